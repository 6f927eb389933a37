"""The log of the real process: one object a line for machines, nobody named in it, and files that are put aside."""

import json
import os
import signal
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.core.logs import redact
from tests.conftest import FreshServer
from tests.kit.server import Server

FILE = {"CAMPANERO_LOG__FILE": "campanero.log", "CAMPANERO_LOG__FORMAT": "json"}


def broken(server: Server) -> Server:
    """Let whatever asks for the brand fail."""
    server.stop()
    with closing(sqlite3.connect(server.data / "campanero.db")) as books:
        books.execute("ALTER TABLE brand RENAME TO lost")
        books.commit()
    return server.start()


def fail(server: Server) -> str:
    """Provoke a fault, and return the id of its request."""
    return str(server.client(validate=False).get("/brand").expect(500)["request_id"])


def entries(*files: Path) -> list[dict[str, Any]]:
    """Return the entries of files, each of which is one object a line."""
    return [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def until(path: Path, words: str) -> None:
    """Wait until a file says something."""
    end = time.monotonic() + 30
    while not (path.exists() and words in path.read_text(encoding="utf-8")):
        assert time.monotonic() < end, f"{path} does not say {words}"
        time.sleep(0.02)


def test_each_entry_is_one_object_a_line(fresh_server: FreshServer) -> None:
    """Time, level, logger, message and the fields of a request; a whole traceback stands within its line."""
    server = broken(fresh_server(env={"CAMPANERO_LOG__FORMAT": "json"}))
    failed = fail(server)
    server.wait_for_line(failed)
    server.stop()
    said = [json.loads(line) for line in server.lines if not line.startswith("Campanero is ready")]
    assert all({"time", "level", "logger", "message"} <= one.keys() for one in said)
    [entry] = [one for one in said if one.get("request_id") == failed]
    assert (entry["level"], entry["method"], entry["path"]) == ("error", "GET", "/v1/my/brand")
    assert entry["trace"].startswith("Traceback") and "\n" in entry["trace"]
    assert any("sending stopped" in one["message"] and one["level"] == "info" for one in said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("request 1 /v1/my/contacts/ann.lee+x@example.org failed", "request 1 /v1/my/contacts/…@example.org failed"),
        ("/v1/my/contacts/ann%40example.org", "/v1/my/contacts/…%40example.org"),
        ("550 5.1.1 <ann@example.org>: unknown", "550 5.1.1 <…@example.org>: unknown"),
        ("https://user:pass-word@relay.example/x", "https://user:…@relay.example/x"),
        ("/numbers/+14155550123 and %2B14155550123", "/numbers/+… and %2B…"),
        ("/u/abc.def failed", "/u/… failed"),
        *((plain, plain) for plain in ("stopped after 12345678.5 s", "version 3.11+20260101", "a @ b")),
        ("key camp_live_0123456789 and whsec_abcdefgh", "key camp_live_… and …"),
    ],
)  # fmt: skip
def test_nobody_is_named_in_it(line: str, said: str) -> None:
    """Mailboxes, numbers, passwords and tokens are taken out wherever they stand; the rest of a line stays."""
    assert redact(line) == said


def test_a_file_puts_itself_aside(fresh_server: FreshServer) -> None:
    """It is private and in the data directory; large ones are numbered, no entry is lost, and the oldest go."""
    sizes = {"CAMPANERO_LOG__FILE_MB": "0.1", "CAMPANERO_LOG__FILES": "50"}
    server = broken(fresh_server(env=FILE | sizes))
    log = server.data / "campanero.log"
    ids = []
    while len(list(server.data.glob("campanero.log.*"))) < 3:
        ids.append(fail(server))
    server.stop()
    files = [log, *server.data.glob("campanero.log.*")]
    assert sorted(one["request_id"] for one in entries(*files) if "request_id" in one) == sorted(ids)
    assert all(path.stat().st_size <= 100_000 and stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert "Traceback" not in server.output and "failed" not in server.output
    server.env["CAMPANERO_LOG__FILES"] = "1"
    server.start()
    before = (server.data / "campanero.log.1").stat().st_ino
    while (server.data / "campanero.log.1").stat().st_ino == before:
        fail(server)
    assert not server.cli("doctor", expect=None).stdout.count("other users can read")
    server.stop()


def test_others_may_put_it_aside(fresh_server: FreshServer) -> None:
    """Renamed and told so by SIGHUP, or told nothing: the service goes on in a new file and lets go of the old one."""
    server = broken(fresh_server(env=FILE))
    log, aside = server.data / "campanero.log", server.data / "aside"
    first = fail(server)
    until(log, first)
    log.rename(aside)
    os.kill(server.pid, signal.SIGHUP)
    until(log, "")
    held = {os.path.realpath(one) for one in Path(f"/proc/{server.pid}/fd").iterdir()}
    assert str(log.resolve()) in held and str(aside.resolve()) not in held
    second = fail(server)
    until(log, second)
    log.rename(server.data / "aside2")
    third = fail(server)
    until(log, third)
    server.stop()
    assert [one["request_id"] for one in entries(aside, server.data / "aside2", log) if "request_id" in one] == [
        first, second, third,
    ]  # fmt: skip


def test_a_file_that_cannot_be_written_is_told(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A place that is not there, or a name that is no log's: one clear line, exit 1."""
    for name, words in ((str(tmp_path / "no" / "x.log"), "No such file or directory"), ("campanero.db", "log.file")):
        server = fresh_server(start=False, set_up=False, env={"CAMPANERO_LOG__FILE": name})
        done = server.cli("serve", expect=1)
        assert words in done.stderr and done.stderr.startswith("campanero: ") and done.stderr.count("\n") == 1
