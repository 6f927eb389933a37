"""Every kind of store keeps the same promises: whole objects, verified uploads, conditional writes, plain errors."""

import hashlib
import io
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import asyncssh
import httpx
import pytest

from appliance.core import clock
from appliance.ops import stores
from appliance.ops.stores import base, min_speed_http, s3, s3_responses
from appliance.ops.stores import sftp as sftp_store
from appliance.ops.stores.base import Store
from appliance.settings.copies import Copies
from tests.kit.s3_server import Fault, S3Server
from tests.kit.sftp_server import PASSWORD, SftpServer


@pytest.fixture(scope="module")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SftpServer]:
    """Return an SFTP server."""
    with SftpServer(tmp_path_factory.mktemp("sftp")) as server:
        yield server


@pytest.fixture
def sftp(sftp_server: SftpServer) -> SftpServer:
    """Return an SFTP server with an empty store."""
    shutil.rmtree(sftp_server.root)
    (sftp_server.root / "store").mkdir(parents=True)
    sftp_server.is_full = False
    return sftp_server


@pytest.fixture(params=["file", "s3", "sftp"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return an empty store of each kind."""
    if request.param == "file":
        opened = stores.open_store(tmp_path.as_uri(), Copies())
    elif request.param == "sftp":
        opened = stores.open_store((server := request.getfixturevalue("sftp")).store_url, server.settings())
    else:
        server = request.getfixturevalue("bucket")
        opened = server.open_store()
    yield opened
    opened.close()


def _put(store: Store, key: str, content: bytes) -> None:
    store.put(key, io.BytesIO(content), len(content), hashlib.sha256(content).digest())


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _read(store: Store, key: str) -> bytes:
    with store.open(key) as stream:
        return b"".join(iter(lambda: stream.read(70_000), b""))


def test_objects_are_stored_listed_read_and_deleted(store: Store) -> None:
    """An object that was put is listed with its size and read whole; after its deletion it is gone."""
    content = bytes(range(256)) * 800
    _put(store, "copies/a.1/data-1", content)
    _put(store, "copies/b/data-1", b"")
    _put(store, "blobs/ab/ab12", b"blob")
    assert _read(store, "copies/a.1/data-1") == content
    assert _read(store, "copies/b/data-1") == b""
    assert {info.key: info.size for info in store.list("copies/")} == {
        "copies/a.1/data-1": 204_800,
        "copies/b/data-1": 0,
    }
    assert sorted(info.key for info in store.list("")) == ["blobs/ab/ab12", "copies/a.1/data-1", "copies/b/data-1"]
    head = store.head("blobs/ab/ab12")
    assert head is not None and head.size == 4 and head.modified_ms > 1_600_000_000_000
    _put(store, "blobs/ab/ab12", b"another")
    assert _read(store, "blobs/ab/ab12") == b"another"
    store.delete("blobs/ab/ab12")
    store.delete("blobs/ab/ab12")
    assert store.head("blobs/ab/ab12") is None and list(store.list("blobs/")) == []
    with pytest.raises(base.Missing), store.open("blobs/ab/ab12"):
        pass


@pytest.mark.parametrize("key", ["", "/a", "../a", "a/../b", "a//b", "a/", ".hidden", "a/.b", "a\n", "ä", "a b"])
def test_keys_of_another_form_are_rejected(store: Store, key: str) -> None:
    """No key leads outside of the store."""
    with pytest.raises(ValueError, match="is not the key"):
        _put(store, key, b"x")
    with pytest.raises(ValueError, match="is not the key"):
        store.head(key)


def test_conditional_writes(store: Store) -> None:
    """A write succeeds only if the object is still as it was read; the first write only if there is none."""
    assert store.fetch("lease.json") is None
    if store.url.startswith("sftp:"):
        with pytest.raises(base.NotSupported):
            store.put_if("lease.json", b"1", None)
        return
    first = store.put_if("lease.json", b"1", None)
    with pytest.raises(base.Conflict):
        store.put_if("lease.json", b"2", None)
    assert store.fetch("lease.json") == (b"1", first)
    second = store.put_if("lease.json", b"2", first)
    assert second != first
    with pytest.raises(base.Conflict):
        store.put_if("lease.json", b"3", first)
    assert store.fetch("lease.json") == (b"2", second)
    info = store.head("lease.json")
    assert info is not None and info.etag == second


def test_a_large_object_in_parts(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that broke off continues with the parts that are missing, and no half object is ever there."""
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(s3, "_FIRST_PAUSE_SECONDS", 0.01)
    store, content = bucket.open_store(), hashlib.sha256(b"x").digest() * (11 * (1 << 20) // 32)
    bucket.faults.append(Fault(503, "SlowDown", "PUT", "large", times=1 << 30))
    bucket.faults.insert(0, Fault(200, method="PUT", key="large", times=2))
    with pytest.raises(base.Unreachable, match="SlowDown"):
        _put(store, "large", content)
    assert store.head("large") is None and bucket.unfinished_uploads() == ["campanero/large"]
    bucket.faults.clear()
    bucket.requests.clear()
    _put(store, "large", content)
    assert [query.partition("&")[0] for method, _, query in bucket.requests if method == "PUT"] == ["partNumber=3"]
    assert _read(store, "large") == content
    assert bucket.unfinished_uploads() == []


def test_a_download_that_breaks_continues(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that ends in an object is opened again at the missing byte."""
    monkeypatch.setattr(s3, "_FIRST_PAUSE_SECONDS", 0.01)
    store, content = bucket.open_store(), bytes(range(256)) * 12_000
    _put(store, "object", content)
    bucket.faults.append(Fault(200, method="GET", key="object", times=2, cut_after=1_000_000))
    assert _read(store, "object") == content
    bucket.faults.append(Fault(200, method="GET", key="object", cut_after=1_000))
    with pytest.raises(base.Unreachable, match="broke off"):
        _read(store, "object")


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (403, "AccessDenied", base.Refused, "may not do this"),
        (403, "InvalidAccessKeyId", base.Refused, "was the key rotated"),
        (507, "XMinioStorageFull", base.StoreFull, "full"),
        (403, "QuotaExceeded", base.StoreFull, "full"),
        (503, "SlowDown", base.Unreachable, "overloaded"),
        (404, "NoSuchBucket", base.Missing, "bucket does not exist"),
        (400, "PermanentRedirect", base.Refused, "another region"),
        (400, "BadDigest", base.Damaged, "arrived changed"),
    ],
)
def test_errors_of_s3_in_plain_words(
    bucket: S3Server, monkeypatch: pytest.MonkeyPatch, status: int, code: str, kind: type[base.StoreError], words: str
) -> None:
    """Each error of the service is an error of stores with words that say what to do."""
    monkeypatch.setattr(s3, "_FIRST_PAUSE_SECONDS", 0.01)
    bucket.faults.append(Fault(status, code, "PUT"))
    with pytest.raises(kind, match=words):
        _put(bucket.open_store(), "refused", b"content")
    assert bucket.open_store().head("refused") is None


def test_rotated_keys_and_a_wrong_clock(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong secret and a clock that is three hours fast are said in plain words."""
    store = bucket.open_store()
    with monkeypatch.context() as rotated:
        rotated.setattr(bucket, "secret_access_key", "another")
        with pytest.raises(base.Refused, match="secret access key does not belong"):
            store.head("object")
        with pytest.raises(base.Refused, match="secret access key does not belong"):
            _put(store, "object", b"x")
    with monkeypatch.context() as skewed:
        skewed.setattr(bucket, "checks_clock", True)
        skewed.setattr(clock, "_offset", lambda: 3 * 3600 + 30.0)
        with pytest.raises(base.Refused, match="clock of this machine is 3 hours fast"):
            _put(store, "object", b"x")


def test_a_lost_answer_of_a_conditional_write(bucket: S3Server) -> None:
    """A write whose answer was lost is recognised as done, and reported as failed if another one is there."""
    store = bucket.open_store()
    bucket.faults.append(Fault(503, "SlowDown", "PUT", "lost.json", times=1))
    with pytest.raises(base.Unreachable):
        store.put_if("lost.json", b"mine", None)
    bucket.faults.append(Fault(200, method="PUT", key="lost.json", times=1, cut_after=0))
    etag = store.put_if("lost.json", b"mine", None)
    assert store.fetch("lost.json") == (b"mine", etag)


def test_a_store_that_is_gone(tmp_path: Path, bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer and a disk that is not mounted are errors, and no folder is created."""
    monkeypatch.setattr(s3, "_FIRST_PAUSE_SECONDS", 0.01)
    settings = bucket.settings()
    gone = stores.open_store(bucket.store_url, Copies(s3=type(settings.s3)("http://127.0.0.1:9", "r", "a", "b")))
    with pytest.raises(base.Unreachable, match="cannot be reached"):
        gone.head("object")
    directory = stores.open_store((tmp_path / "disk").as_uri(), Copies())
    with pytest.raises(base.Missing, match="mount its disk"):
        _put(directory, "object", b"x")
    assert not (tmp_path / "disk").exists()


def test_faults_of_an_sftp_server(sftp: SftpServer, tmp_path: Path) -> None:
    """A full disk, a missing directory, a wrong key of the user or the server, and a connection that ends."""
    store = stores.open_store(sftp.store_url, sftp.settings())
    sftp.is_full = True
    with pytest.raises(base.StoreFull, match="No space left"):
        _put(store, "copies/a", b"content")
    sftp.is_full = False
    assert store.head("copies/a") is None and list(store.list("")) == []
    _put(store, "copies/a", b"content")
    sftp.drop_connections()
    wait_until(lambda: store._connection.is_closed())  # type: ignore[attr-defined]  # a store by SFTP has one
    assert _read(store, "copies/a") == b"content"
    (sftp.root / "store").rename(sftp.root / "gone")
    with pytest.raises(base.Missing, match="does not exist"):
        _put(store, "copies/b", b"content")
    store.close()
    other = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "other").write_bytes(other.export_private_key())
    for login in ({"private_key": sftp.key_file.read_text()}, {"password": PASSWORD}):
        (sftp.root / "store").mkdir(exist_ok=True)
        opened = stores.open_store(sftp.store_url, sftp.settings(key_file="", **login))
        assert opened.head("copies/c") is None
        opened.close()
    for changes, words in (
        ({"key_file": str(tmp_path / "other")}, "did not accept the login of copies"),
        ({"host_key": other.export_public_key().decode()}, "a host key other than"),
        ({"host_key": "nonsense"}, "is not a public key of a server"),
        ({"key_file": str(tmp_path / "missing")}, "cannot be read"),
        ({"key_file": ""}, "are required"),
        ({"key_file": "", "private_key": "nonsense"}, "is not a usable private key"),
        ({"key_file": "", "password": "wrong"}, "did not accept the login of copies"),
    ):
        with pytest.raises(base.Refused, match=words):
            stores.open_store(sftp.store_url, sftp.settings(**changes)).head("copies/a")


def test_an_sftp_server_that_stalls(sftp: SftpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps the connection alive, but answers nothing, is left; the next request connects again."""
    monkeypatch.setattr(sftp_store, "STALL_SECONDS", 0.3)
    opened = stores.open_store(sftp.store_url, sftp.settings())
    sftp.is_stalled = True
    with pytest.raises(base.Unreachable, match=r"no answer for 0\.3 s"):
        opened.head("copies/a")
    sftp.is_stalled = False
    assert opened.head("copies/a") is None
    opened.close()


def _drip(listener: socket.socket, start: bytes) -> None:
    """Send some bytes to each client, and then a byte of a header or body now and then."""
    with suppress(OSError):  # The listener is closed at the end.
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(start)
                while True:
                    time.sleep(0.02)
                    connection.sendall(b"x")


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n"])
def test_an_answer_that_drips(start: bytes, bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte now and then is left, whether in the headers or in the content."""
    monkeypatch.setattr(min_speed_http, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(s3, "_FIRST_PAUSE_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_drip, args=(listener, start), daemon=True).start()
        login = type(bucket.settings().s3)(f"http://127.0.0.1:{listener.getsockname()[1]}", "r", "a", "b")
        slow = stores.open_store(bucket.store_url, Copies(s3=login))
        started_at = time.monotonic()
        with pytest.raises(base.Unreachable, match="bytes a second arrived"):
            slow.head("object") if start.endswith(b": ") else _read(slow, "object")
        assert time.monotonic() - started_at < 5
        slow.close()


def test_a_listing_without_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing fails once there are more objects than copies need."""
    for number in range(3):
        _put(store, f"blobs/{number}", b"x")
    monkeypatch.setattr(base, "MAX_OBJECTS", 3)
    assert len(list(store.list("blobs/"))) == 3
    monkeypatch.setattr(base, "MAX_OBJECTS", 2)
    with pytest.raises(base.StoreError, match="more than 2 objects"):
        list(store.list("blobs/"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host/x", "must begin with one of"), ("s3://u:secret@bucket", "must not contain a password"),
        ("s3://B_ad/x", "not a bucket name"), ("s3://bucket/ä", "prefix may have"), ("file://host/x", "absolute path"),
        ("file:///", "absolute path"), ("s3://bucket/x?y", "must not contain"), ("s3://bucket/x", "are required"),
        ("s3://[bucket", "not a storage URL"),
    ],
)  # fmt: skip
def test_unusable_urls(url: str, words: str) -> None:
    """A URL that names no store says what is wrong, without quoting a password."""
    with pytest.raises(base.StoreError, match=words) as raised:
        stores.open_store(url, Copies())
    assert "secret@" not in str(raised.value)


def test_bandwidth_limit(bucket: S3Server) -> None:
    """An upload of a quarter of a second's bytes takes that long."""
    store = bucket.open_store(megabits_per_second=8)
    start = time.monotonic()
    _put(store, "slow", bytes(400_000))
    assert 0.25 < time.monotonic() - start < 3


@pytest.mark.parametrize(
    "body",
    [
        b'<?xml version="1.0" encoding="x-unknown"?><Error/>', b'<?xml version="1.0" encoding="utf-7"?><Error/>',
        b'<?xml version="1.0" encoding="idna"?><Error/>', b"<Error" + b"<a>" * 100_000, b"<Error>\xff</Error>",
    ],
    ids=["unknown encoding", "multi-byte encoding", "encoding without replacement", "deep", "not UTF-8"],
)  # fmt: skip
def test_a_hostile_answer_of_a_bucket(body: bytes) -> None:
    """Whatever a server sends in the place of an error, it is an error of the storage, in one line."""
    response = httpx.Response(404, content=body, request=httpx.Request("GET", "http://127.0.0.1"))
    with pytest.raises(base.StoreError, match=r"sent an answer that is not of the S3 API"):
        s3_responses.read_error(response)
