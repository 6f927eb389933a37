"""The log of the service: one JSON object a line, no personal data, and log rotation."""

import json
import logging
import os
import signal
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.core.logs import RepeatedErrors, _TextFormatter, redact
from tests.conftest import FreshServer
from tests.kit.server import Server

FILE = {"CAMPANERO_LOG__FILE": "campanero.log", "CAMPANERO_LOG__FORMAT": "json"}


def break_brand(server: Server, table: str = "brand") -> Server:
    """Rename the table of brands, or another one, so that requests for the brand fail."""
    server.stop()
    with closing(sqlite3.connect(server.data / "campanero.db")) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO lost")
        connection.commit()
    return server.start()


def cause_error(server: Server) -> str:
    """Cause a server error and return its request id."""
    return str(server.client(validate=False).get("/brand").expect(500)["request_id"])


def entries(*files: Path) -> list[dict[str, Any]]:
    """Return the entries of log files with one object a line."""
    return [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def wait_for_text(path: Path, text: str) -> None:
    """Wait until a file contains a text."""
    end = time.monotonic() + 30
    while not (path.exists() and text in path.read_text(encoding="utf-8")):
        assert time.monotonic() < end, f"{path} does not say {text}"
        time.sleep(0.02)


def test_json_log_entries(fresh_server: FreshServer) -> None:
    """Each entry has time, level, logger and message; a traceback stays within its line."""
    server = break_brand(fresh_server(env={"CAMPANERO_LOG__FORMAT": "json"}))
    failed = cause_error(server)
    server.wait_for_line(failed)
    server.stop()
    log_entries = [json.loads(line) for line in server.lines if not line.startswith("Campanero is ready")]
    assert all({"time", "level", "logger", "message"} <= log_entry.keys() for log_entry in log_entries)
    [entry] = [log_entry for log_entry in log_entries if log_entry.get("request_id") == failed]
    assert (entry["level"], entry["method"], entry["path"]) == ("error", "GET", "/v1/my/brand")
    assert entry["trace"].startswith("Traceback") and "\n" in entry["trace"]
    assert any("sending stopped" in log_entry["message"] and log_entry["level"] == "info" for log_entry in log_entries)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("request 1 /v1/my/contacts/ann.lee+x@example.org failed", "request 1 /v1/my/contacts/…@example.org failed"),
        ("/v1/my/contacts/ann%40example.org", "/v1/my/contacts/…%40example.org"),
        ("550 5.1.1 <ann@example.org>: unknown", "550 5.1.1 <…@example.org>: unknown"),
        ("https://user:pass-word@relay.example/x", "https://user:…@relay.example/x"),
        ("/numbers/+14155550123 and %2B14155550123", "/numbers/+… and %2B…"),
        ("/u/abc.def failed", "/u/… failed"),
        ("/invitations/12/abc.def failed", "/invitations/12/… failed"),
        *((plain, plain) for plain in ("stopped after 12345678.5 s", "version 3.11+20260101", "a @ b")),
        ("key camp_live_0123456789 and whsec_abcdefgh", "key camp_live_… and …"),
    ],
)  # fmt: skip
def test_redaction(line: str, expected: str) -> None:
    """Mailboxes, phone numbers, passwords and tokens are replaced; the rest of a line stays."""
    assert redact(line) == expected


def test_the_link_of_an_invitation_is_not_logged(fresh_server: FreshServer) -> None:
    """If the page of an invitation fails, the log has its path without the secret of the link (T13, T39)."""
    for form in ("text", "json"):
        server = break_brand(fresh_server(env={"CAMPANERO_LOG__FORMAT": form}), "invitation")
        assert server.client(validate=False).request("GET", "/invitations/1/AAAAbbbbCCCC").status == 500
        server.wait_for_line("/invitations/1/")
        server.stop()
        assert "AAAAbbbb" not in server.output


def test_texts_of_others_cannot_forge_log_entries() -> None:
    """Control characters are escaped, and the lines of an exception are indented, so that none looks like an entry."""
    try:
        raise ValueError("first\n2026-01-01 00:00:00 error campanero: forged\r\x1b[2J")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "a\nb %s", "args": ("c\rd",), "exc_info": (type(error), error, None)})
    first, *others = _TextFormatter().format(record).split("\n")
    assert first.endswith(r"a\nb c\rd") and others and all(line.startswith("  ") for line in others)
    assert "forged" in others[-1] and not {"\r", "\x1b"} & set("".join(others))


def test_log_rotation_by_size(fresh_server: FreshServer) -> None:
    """Log files are private and of limited size and number, and no entry is lost."""
    sizes = {"CAMPANERO_LOG__FILE_MB": "0.1", "CAMPANERO_LOG__FILES": "50"}
    server = break_brand(fresh_server(env=FILE | sizes))
    log = server.data / "campanero.log"
    ids = []
    while len(list(server.data.glob("campanero.log.*"))) < 3:
        ids.append(cause_error(server))
    server.stop()
    files = [log, *server.data.glob("campanero.log.*")]
    assert sorted(entry["request_id"] for entry in entries(*files) if "request_id" in entry) == sorted(ids)
    assert all(path.stat().st_size <= 100_000 and stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert "Traceback" not in server.output and "failed" not in server.output
    server.env["CAMPANERO_LOG__FILES"] = "1"
    server.start()
    before = (server.data / "campanero.log.1").stat().st_ino
    while (server.data / "campanero.log.1").stat().st_ino == before:
        cause_error(server)
    assert not server.cli("doctor", expect=None).stdout.count("other users can read")
    server.stop()


def test_log_rotation_by_other_programs(fresh_server: FreshServer) -> None:
    """After its file is renamed, with or without SIGHUP, the service writes to a new file and closes the old one."""
    server = break_brand(fresh_server(env=FILE))
    log, aside = server.data / "campanero.log", server.data / "aside"
    first = cause_error(server)
    wait_for_text(log, first)
    log.rename(aside)
    os.kill(server.pid, signal.SIGHUP)
    wait_for_text(log, "")
    open_files = {os.path.realpath(descriptor) for descriptor in Path(f"/proc/{server.pid}/fd").iterdir()}
    assert str(log.resolve()) in open_files and str(aside.resolve()) not in open_files
    second = cause_error(server)
    wait_for_text(log, second)
    log.rename(server.data / "aside2")
    third = cause_error(server)
    wait_for_text(log, third)
    server.stop()
    assert [entry["request_id"] for entry in entries(aside, server.data / "aside2", log) if "request_id" in entry] == [
        first, second, third,
    ]  # fmt: skip


def test_an_invalid_log_file_prevents_the_start(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A missing directory or a forbidden name is reported in one line, with exit code 1."""
    for name, text in ((str(tmp_path / "no" / "x.log"), "No such file or directory"), ("campanero.db", "log.file")):
        server = fresh_server(start=False, set_up=False, env={"CAMPANERO_LOG__FILE": name})
        result = server.cli("serve", expect=1)
        assert text in result.stderr and result.stderr.startswith("campanero: ") and result.stderr.count("\n") == 1


def test_a_job_that_fails_each_time_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The first error has its traceback, another one a line, and repeats are counted."""
    errors = RepeatedErrors(logging.getLogger("campanero.test"), "pulse: run failed")
    for number in range(200):
        errors.log(ValueError("one" if number % 2 else "two"))
    errors.log(KeyError("three"))
    first, second, third = caplog.records
    assert first.exc_info is not None and first.getMessage() == "pulse: run failed"
    assert second.getMessage() == "pulse: run failed: ValueError: one count=1" and second.exc_info is None
    assert third.getMessage() == "pulse: run failed: KeyError: 'three' count=199"
