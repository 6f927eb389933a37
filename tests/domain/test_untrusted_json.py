"""JSON that others may have written: whatever it is, its reader raises its own error with a plain reason."""

import os
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.core import crypto, untrusted_json
from appliance.core.untrusted_json import InvalidJson
from appliance.ops import status, stores
from appliance.ops.copies import local
from appliance.ops.fencing import record as records
from appliance.ops.fencing.mirror import MirrorReader
from appliance.ops.fencing.record import DamagedLease
from appliance.ops.standby import place
from appliance.ops.standby.place import StandbyFailed
from appliance.ops.stores.base import StoreError
from appliance.settings.copies import Copies
from tests.domain.home import Home
from tests.kit.background_http import BackgroundHttp

DEEP = b"[" * 100_000
CONTENTS = {
    "deep": DEEP,
    "deep in an unknown field": b'{"node":"a","unknown":' + DEEP,
    "deep objects": b'{"node":"a","unknown":' + b'{"a":' * 100_000,
    "huge number": b'{"node":"a","epoch":1' + b"0" * 400 + b',"source":1e999}',
    "wrong type": b'{"node":["a"],"source":{}}',
    "not UTF-8": b'{"node":"\xff","source":"\xff","store":"\xff","copy_id":"\xff","path":"\xff"}',
    "truncated": b'{"node":"a","sour',
    "empty": b"",
    "null": b"null",
}


class _Value(msgspec.Struct):
    node: str


@pytest.fixture
def key() -> Iterator[None]:
    """Use a key of the installation for a test."""
    former = crypto.loaded_key()
    crypto.use_key(b"k" * 32)
    yield
    crypto.use_key(former)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_hostile_content(content: bytes, key: None, tmp_path: Path) -> None:
    """No reader of a file of another machine, or of an object of a store, raises an error that it did not declare."""
    (tmp_path / "standby").mkdir()
    (tmp_path / "copies" / "spool").mkdir(parents=True)
    for name in ("node.json", "lease.json", "standby/source.json", "copies/state.json", "copies/spool/plan.json"):
        (tmp_path / name).write_bytes(content)
    store = stores.open_store(tmp_path.as_uri(), Copies())
    with pytest.raises(DamagedLease, match="is not a lease"):
        records.fetch_lease(store)
    with pytest.raises(StandbyFailed, match="is damaged"):
        place.load_source(tmp_path)
    assert local.read_state(tmp_path / "copies", "file:///other") == local.State("file:///other")
    assert local.read_spool(tmp_path / "copies") is None
    with pytest.raises(DamagedLease, match="is damaged"):
        records.find_node(tmp_path)
    sealed = crypto.seal(crypto.derive_key("standby file"), "files/a", content + b"\nx")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_bytes(sealed)
    with pytest.raises(StoreError, match="has no valid header"):
        MirrorReader(store, tmp_path / "fetched").fetch()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (os.mkfifo, "a named pipe"),
        (Path.mkdir, "a directory"),
        (lambda path: path.write_bytes(b'{"node":"%s"}' % (b"a" * 200)), "more than 100"),
    ],
    ids=["pipe", "directory", "large"],
)
def test_what_is_not_read(prepare: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
    """A pipe would block its reader for ever, and a large file would fill the memory."""
    path = tmp_path / "value.json"
    prepare(path)
    with pytest.raises(InvalidJson, match=words):
        untrusted_json.decode_file(path, _Value, 100)


def test_a_valid_file(tmp_path: Path) -> None:
    """Unknown fields are skipped."""
    path = tmp_path / "value.json"
    path.write_bytes(b'{"node":"a","other":[[1]]}')
    assert untrusted_json.decode_file(path, _Value, 100) == _Value("a")


@pytest.mark.parametrize("content", [DEEP[:9_000], b'{"message":' + DEEP[:9_000], b"[1]", b"{}", b"\xff"])
def test_another_program_at_the_address_of_the_service(content: bytes, home: Home) -> None:
    """Whatever it answers, the status says that the service does not."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with BackgroundHttp(Handler) as http:
        listen = http.url.removeprefix("http://")
        assert status.fetch_readiness(listen) == f"does not answer on {listen}"
