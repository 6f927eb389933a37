"""Only the machine that holds the lease sends: two services on two data directories, with one store."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.faults.trouble import CONNECTIONS
from tests.kit.client import Client
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.s3_server import Fault, S3Server
from tests.kit.server import Server, relay_settings
from tests.kit.smtp import SmtpServer

SECONDS = 6


FULL = pytest.mark.full
DIRECTORY_FIRST = pytest.mark.parametrize("lease_env", ["directory", pytest.param("s3", marks=FULL)], indirect=True)
S3_FIRST = pytest.mark.parametrize("lease_env", ["s3", pytest.param("directory", marks=FULL)], indirect=True)


@pytest.fixture
def lease_env(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server) -> dict[str, str]:
    """Return the environment of a server whose lease is in a directory or in a bucket."""
    environment = {"CAMPANERO_LEASE__SECONDS": str(SECONDS)}
    if request.param == "directory":
        return environment | {"CAMPANERO_LEASE__STORE": tmp_path.as_uri()}
    s3.faults.clear()
    s3.remove("lease.json")
    s3_env = {name: value for name, value in s3.env.items() if "__S3__" in name}
    return environment | s3_env | {"CAMPANERO_LEASE__STORE": s3.store_url}


def start(fresh_server: FreshServer, smtp: SmtpServer, env: dict[str, str]) -> Server:
    """Start a server with a relay and a lease."""
    return fresh_server(env=relay_settings(smtp.port) | env).set_postal_address()


def clone(server: Server, env: dict[str, str]) -> Server:
    """Return a server on a copy of the data of another one, as another machine: without its identity."""
    other = Server(env=env)
    shutil.copytree(server.data, other.data, ignore=shutil.ignore_patterns("node.json", "serve.lock"))
    other.key = server.key
    return other


def obstacle_codes(api: Client) -> list[str]:
    """Return what keeps the account from sending."""
    return [obstacle["code"] for obstacle in api.get("/delivery/status").expect(200)["obstacles"]]


def wait_for_obstacles(api: Client, expected: list[str], timeout: float) -> float:
    """Wait until exactly these obstacles are there, and return the seconds."""
    began = time.monotonic()
    while (codes := obstacle_codes(api)) != expected:
        assert time.monotonic() < began + timeout, (codes, expected)
        time.sleep(0.1)
    return time.monotonic() - began


@DIRECTORY_FIRST
def test_a_send_with_a_lease(fresh_server: FreshServer, smtp_server: SmtpServer, lease_env: dict[str, str]) -> None:
    """The holder sends everything once, and a restart after a kill waits for the end of its own lease."""
    server = start(fresh_server, smtp_server, lease_env)
    api = server.client(validate=False)
    path = send_campaign(api, create_list(api, 200))
    wait_until_completed(api, path, timeout=60)
    assert (reconcile(api, path, smtp_server.messages).copies, len(smtp_server.messages)) == (0, 200)
    server.kill()
    server.start()
    assert obstacle_codes(api) == ["lease"]
    wait_for_obstacles(api, [], SECONDS * 2)
    server.stop()
    server.start()
    wait_for_obstacles(api, [], 2)  # it gave the lease back


def start_two_in_a_send(
    fresh_server: FreshServer, smtp_server: SmtpServer, lease_env: dict[str, str]
) -> tuple[Server, Server]:
    """Return a machine in the middle of a slow send to 600 contacts, and a copy of it that does not run."""
    server = start(fresh_server, smtp_server, lease_env)
    api = server.client(validate=False)
    other = clone(server, server.env)
    smtp_server.rules.delay("body", 0.05)
    send_campaign(api, create_list(api, 600))
    smtp_server.wait_for(20)
    return server, other


@S3_FIRST
def test_a_promotion_stops_the_other_machine(
    fresh_server: FreshServer, smtp_server: SmtpServer, lease_env: dict[str, str]
) -> None:
    """In a send, another machine takes the lease: the first stops within seconds, says why, and stays stopped."""
    server, other = start_two_in_a_send(fresh_server, smtp_server, lease_env)
    api = server.client(validate=False)
    try:
        assert "epoch 2" in other.cli("promote", "--lease-only").stdout
        taken = len(smtp_server.messages)
        assert wait_for_obstacles(api, ["lease"], 1) < 1  # the command waited for the end of the former lease
        [obstacle] = api.get("/delivery/status").expect(200)["obstacles"]
        assert "another machine" in obstacle["text"] and "“Go back” in the guide" in obstacle["text"]
        assert api.get("/readyz").status == 503
        time.sleep(1)
        assert len(smtp_server.messages) - taken <= CONNECTIONS and "lease: sending stopped" in server.output
        server.restart()
        server.wait_for_line("lease: sending stopped: another machine")
        count = len(smtp_server.messages)
        other.start()
        other_api = other.client(validate=False)
        wait_for_obstacles(other_api, [], 3 * SECONDS)
        assert "without giving it back" not in other.output  # the command waited, so that the service need not
        assert obstacle_codes(api) == ["lease"] and len(smtp_server.messages) == count
        findings = server.cli("doctor", expect=1).stdout
        assert "lease:" in findings and "this machine sends nothing" in findings
    finally:
        other.close()


@DIRECTORY_FIRST
def test_an_unreachable_store_stops_sending_at_the_end_of_the_lease(
    fresh_server: FreshServer, smtp_server: SmtpServer, lease_env: dict[str, str], s3: S3Server
) -> None:
    """Without its store a machine sends until its lease is over, says why it stopped, and goes on by itself."""
    server = start(fresh_server, smtp_server, lease_env)
    api = server.client(validate=False)
    smtp_server.rules.delay("body", 0.05)
    path = send_campaign(api, create_list(api, 250))
    smtp_server.wait_for(10)
    store = lease_env["CAMPANERO_LEASE__STORE"]
    if store.startswith("file:"):
        directory = Path(store.removeprefix("file://"))
        hidden = directory.with_name("unmounted")
        directory.rename(hidden)
    else:
        s3.faults.append(Fault(503, "SlowDown"))
    assert wait_for_obstacles(api, ["lease"], 2 * SECONDS) <= SECONDS + 1
    assert "its storage" in api.get("/delivery/status").expect(200)["obstacles"][0]["text"]
    time.sleep(0.5)
    count = len(smtp_server.messages)
    time.sleep(1)
    assert len(smtp_server.messages) == count
    if store.startswith("file:"):
        hidden.rename(directory)
    else:
        s3.faults.clear()
    wait_until_completed(api, path, timeout=60)
    assert reconcile(api, path, smtp_server.messages).copies == 0 and len(smtp_server.messages) == 250


@DIRECTORY_FIRST
def test_a_frozen_machine_sends_nothing_when_it_comes_back(
    fresh_server: FreshServer, smtp_server: SmtpServer, lease_env: dict[str, str]
) -> None:
    """A process that was stopped beyond its lease sends nothing after it, also not what it had claimed before."""
    server, other = start_two_in_a_send(fresh_server, smtp_server, lease_env)
    api = server.client(validate=False)
    try:
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(0.2)
        other.cli("promote", "--lease-only")
        count = len(smtp_server.messages)
        os.kill(server.pid, signal.SIGCONT)
        wait_for_obstacles(api, ["lease"], SECONDS)
        time.sleep(1)
        assert len(smtp_server.messages) - count <= CONNECTIONS  # bodies that were on their way
    finally:
        other.close()


def empty_bucket(s3: S3Server) -> dict[str, str]:
    """Remove faults and the lease from a bucket; return the environment of a machine with its lease there."""
    s3.faults.clear()
    s3.remove("lease.json")
    env = {name: value for name, value in s3.env.items() if "__S3__" in name}
    return env | {"CAMPANERO_LEASE__SECONDS": str(SECONDS), "CAMPANERO_LEASE__STORE": s3.store_url}


@pytest.mark.full
def test_a_lost_lease_object_lets_nobody_else_in(
    fresh_server: FreshServer, smtp_server: SmtpServer, s3: S3Server
) -> None:
    """The holder writes a lost object again, and a machine with an old epoch never takes its place."""
    env = empty_bucket(s3)
    server = start(fresh_server, smtp_server, env)
    wait_for_obstacles(server.client(validate=False), [], 5)
    before = json.loads(s3.objects()["lease.json"])
    s3.remove("lease.json")
    end = time.monotonic() + SECONDS
    while "lease.json" not in s3.objects():
        assert time.monotonic() < end
        time.sleep(0.1)
    after = json.loads(s3.objects()["lease.json"])
    assert (after["node"], after["epoch"]) == (before["node"], before["epoch"])
    assert obstacle_codes(server.client(validate=False)) == []
