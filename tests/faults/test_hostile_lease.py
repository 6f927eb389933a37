"""Somebody who may write to the store of the lease, and a store that fails: sending stops with a plain reason.

Nobody without the key of the installation can make a machine send: that takes a lease which the machine itself, or one
with the same key, has written.
"""

import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from appliance.core import crypto
from appliance.ops.fencing import record as records
from appliance.ops.fencing.record import Node
from tests.faults.test_send_lease import start, wait_for_obstacles
from tests.kit.s3_server import Fault, S3Server
from tests.kit.sampling import sampled
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

SECONDS = 6
_numbers = count(1)


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Server]:
    """Yield an S3 server for all tests of the module."""
    with S3Server() as running:
        yield running


@pytest.fixture(scope="module")
def holder(bucket: S3Server, relay: SmtpServer) -> Iterator[Server]:
    """Yield a machine that holds a lease in the bucket."""
    servers: list[Server] = []

    def make(**options: Any) -> Server:
        server = Server(**options)
        servers.append(server)
        return server.set_up().start()

    env = {name: value for name, value in bucket.env.items() if "__S3__" in name}
    lease = {"CAMPANERO_LEASE__SECONDS": str(SECONDS), "CAMPANERO_LEASE__STORE": bucket.store_url}
    yield start(make, relay, env | lease)
    servers[0].close()


def _send(holder: Server) -> str:
    """Queue a message, and return its recipient."""
    address = f"n{next(_numbers)}@b.example"
    holder.client(validate=False).post("/messages", {"to": address, "subject": "s", "body": "b"}).expect(201)
    return address


def _require_stopped(holder: Server, relay: SmtpServer) -> None:
    """Check that the machine stops within its lease, says why in a line, and does not send a new message."""
    api = holder.client(validate=False)
    assert wait_for_obstacles(api, ["lease"], 2 * SECONDS) <= SECONDS + 1.5
    [obstacle] = api.get("/delivery/status").expect(200)["obstacles"]
    sent = len(relay.messages)
    _send(holder)
    time.sleep(1)
    assert len(relay.messages) == sent
    doctor = holder.cli("doctor", expect=1, timeout=120).stdout
    assert any(line.startswith("fail  lease: ") for line in doctor.splitlines()), doctor
    assert len(obstacle["text"]) < 500 and "\n" not in obstacle["text"] and "Traceback" not in holder.output


def _require_recovered(holder: Server, relay: SmtpServer) -> None:
    """Check that the machine sends again what is due."""
    wait_for_obstacles(holder.client(validate=False), [], 4 * SECONDS)
    sent = len(relay.messages)
    _send(holder)
    relay.wait_for(sent + 1)


def _sign_with(key: bytes) -> bytes:
    """Return a lease that is signed with the key of another installation."""
    own = crypto.loaded_key()
    crypto.use_key(key)
    record = records.renew(records.make_first(Node("other", 9), 3600), blocks=[(0, 2**60)])
    signature = records._sign(record).decode()
    crypto.use_key(own)
    return msgspec.json.encode(msgspec.structs.replace(record, signature=signature))


CONTENTS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "garbage": lambda lease: b"\x00\xff\xfe garbage",
    "empty": lambda lease: b"",
    "deep": lambda lease: b"[" * 100_000,
    "deep in an unknown field": lambda lease: json.dumps(lease).encode()[:-1] + b',"x":' + b"[" * 100_000,
    "truncated": lambda lease: json.dumps(lease).encode()[:150],
    "large": lambda lease: json.dumps(lease).encode() + b" " * (20 << 20),
    "far end": lambda lease: json.dumps(lease | {"seconds": 3600, "renewed_at": 2**62}).encode(),
    "later epoch": lambda lease: json.dumps(lease | {"epoch": 2**53}).encode(),
    "huge epoch": lambda lease: json.dumps(lease | {"epoch": 10**400}).encode(),
    "another machine": lambda lease: json.dumps(lease | {"node": "m", "holder": "x"}).encode(),
    "another installation": lambda lease: _sign_with(b"o" * 32),
}


@pytest.mark.parametrize("name", sampled(CONTENTS, ["deep in an unknown field"]))
def test_a_changed_lease(name: str, holder: Server, bucket: S3Server, relay: SmtpServer) -> None:
    """The machine sends nothing until somebody deletes the object, and then goes on by itself."""
    _require_recovered(holder, relay)
    lease = json.loads(bucket.objects()["lease.json"])
    bucket.replace("lease.json", CONTENTS[name](lease))
    try:
        _require_stopped(holder, relay)
    finally:
        bucket.remove("lease.json")
    _require_recovered(holder, relay)


FAULTS = {
    "412": Fault(412, "PreconditionFailed", "PUT", "lease.json"),
    "409": Fault(409, "ConditionalRequestConflict", "PUT", "lease.json"),
    "409 and nothing to read": Fault(409, "OperationAborted", "", "lease.json"),
    "403 for writes": Fault(403, "AccessDenied", "PUT", "lease.json"),
    "404": Fault(404, "NoSuchBucket", "", "lease.json"),
    "403": Fault(403, "AccessDenied", "", "lease.json"),
    "500": Fault(500, "InternalError", "", "lease.json"),
    "500 after the write": Fault(500, "InternalError", "PUT", "lease.json", is_done=True),
    "slow": Fault(200, "", "", "lease.json", delay_seconds=8),
    "half an answer": Fault(200, "", "GET", "lease.json", cut_after=100),
}


@pytest.mark.parametrize("name", sampled(FAULTS, ["403 for writes"]))
def test_a_bucket_that_fails(name: str, holder: Server, bucket: S3Server, relay: SmtpServer) -> None:
    """The machine stops within its lease, unless its writes arrive, and goes on when the bucket is back."""
    _require_recovered(holder, relay)
    bucket.faults.append(FAULTS[name])
    try:
        if name in ("500 after the write", "half an answer"):
            time.sleep(2 * SECONDS)
            _require_recovered(holder, relay)
        else:
            _require_stopped(holder, relay)
    finally:
        bucket.faults.clear()
    _require_recovered(holder, relay)
    assert "Traceback" not in holder.output
