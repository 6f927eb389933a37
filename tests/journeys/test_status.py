"""`campanero status` with a running service, without one, and on a terminal."""

import json
import os
import pty
import re
import select
import signal
import socket
import sqlite3
import subprocess
import termios
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


def read_status(server: Server) -> dict[str, Any]:
    """Return the JSON output of the command."""
    output: dict[str, Any] = json.loads(server.cli("status", "--json").stdout)
    return output


def start_blocked_send(server: Server, smtp: SmtpServer) -> None:
    """Start a slow send and wait until some of its messages count as sent."""
    api = server.client()
    smtp.rules.delay("body", 0.05)
    path = send_campaign(api, create_list(api, 400))
    api.wait(path, lambda row: row["stats"]["sent"] > 0)


def test_status_of_a_running_service(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Shows a send with its rate and time left, the queue and today's counts, as text and as JSON."""
    server = fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS)
    start_blocked_send(server, smtp_server)
    report = read_status(server)
    assert report["service"] == {
        "running": True, "process": server.pid, "listen": f"127.0.0.1:{server.port}", "state": "ready",
    }  # fmt: skip
    [task] = report["tasks"]
    assert (task["kind"], task["state"], task["total"]) == ("send", "sending", 400)
    assert 0 < task["done"] < 400 and task["per_second"] > 0 and task["left_seconds"] > 0
    email, sms = report["queue"]
    assert email["due"] > 0 and email["last_minute"] >= task["done"]
    assert not any(value for name, value in sms.items() if name != "channel")
    assert report["today"][0]["sent"] > 0 and report["storage"]["database_bytes"] > 0
    text = server.cli("status").stdout
    assert f"runs as process {server.pid}, ready on" in text and re.search(r"of 400 +\d+/s", text)


def test_status_without_a_service(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """After a kill the same tasks are shown without a rate; without an installation it says how to start."""
    server = fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS)
    start_blocked_send(server, smtp_server)
    server.kill()
    report = read_status(server)
    assert report["service"]["running"] is False
    assert [(task["kind"], task["per_second"], task["left_seconds"]) for task in report["tasks"]] == [
        ("send", None, None)
    ]
    (server.data / "STOP").touch()
    text = server.cli("status").stdout
    assert "the service is not running" in text and "STOP" in text and "/s " not in text
    # The pid of a dead process may have been reused
    (server.data / "serve.lock").write_text(f"{os.getpid()}\n127.0.0.1:1\n")
    assert read_status(server)["service"]["running"] is False
    empty = fresh_server(start=False, set_up=False)
    result = empty.cli("status", expect=1)
    assert "start with campanero serve" in result.stderr and not empty.data.exists()


def test_status_shows_who_stopped_sending(fresh_server: FreshServer) -> None:
    """Stopped sending is shown with its reason."""
    server = fresh_server()
    api = server.client()
    api.patch("/account", {"sending_stopped": True, "stop_reason": "we moved"}).expect(200)
    assert read_status(server)["stopped"] == ["sending is stopped for Bakery: we moved"]


def test_status_shows_a_running_export(fresh_server: FreshServer) -> None:
    """An export that a client reads slowly is shown with its rows, and disappears when the client is gone."""
    server = fresh_server()
    api = server.client()
    create_list(api, 800)
    server.stop()
    with closing(sqlite3.connect(server.data / "campanero.db")) as connection:
        # More than the socket buffers hold
        connection.execute("UPDATE contact SET data = json_object('note', hex(zeroblob(15000)))")
        connection.commit()
    server.start()
    headers = {"Authorization": f"Bearer {api.key}"}
    exports: list[Any] = []
    slow_socket = request_without_reading(server, "/v1/my/exports/contacts.jsonl", headers)
    end = time.monotonic() + 60
    try:
        while not (exports := [task for task in read_status(server)["tasks"] if task["kind"] == "export"]):
            assert time.monotonic() < end
    finally:
        slow_socket.close()
    assert (exports[0]["name"], exports[0]["total"]) == ("contacts.jsonl", 800)
    while any(task["kind"] == "export" for task in read_status(server)["tasks"]):
        assert time.monotonic() < end
    assert not list(server.data.glob("exports.json*"))


def request_without_reading(server: Server, path: str, headers: dict[str, str]) -> Any:
    """Request a file without reading the response."""
    client_socket = socket.socket()
    client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client_socket.connect(("127.0.0.1", server.port))
    lines = [f"GET {path} HTTP/1.1", "Host: h", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    client_socket.sendall("\r\n".join(lines).encode())
    return client_socket


class Terminal:
    """A command on a pseudo-terminal of a given size."""

    def __init__(self, server: Server, *arguments: str, columns: int = 60, lines: int = 24) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (lines, columns))
        env = {**server.env, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            server._command(*arguments), env=env, cwd=server.home, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.output = ""

    def read_until(self, pattern: str, timeout: float = 60) -> None:
        """Read the output until it matches a pattern."""
        end = time.monotonic() + timeout
        while not re.search(pattern, self.output, re.DOTALL):
            assert time.monotonic() < end, self.output
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self.master, 65_536).decode("utf-8", "replace")
                except OSError:  # the process has ended
                    break

    def interrupt(self) -> int:
        """Send SIGINT and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        self.read_until(r"\x1b\[\?25h")
        return self.process.wait(30)


@pytest.mark.full
def test_watch_on_a_terminal(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Frames replace each other and fit the screen; SIGINT ends with exit code 0."""
    server = fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS)
    start_blocked_send(server, smtp_server)
    for lines in (24, 8):
        terminal = Terminal(server, "status", "--watch", columns=60, lines=lines)
        terminal.read_until(r"(\x1b\[\d+F.*){2}\x1b\[J")
        assert terminal.interrupt() == 0
        frames = re.split(r"\x1b\[\d+F", terminal.output)
        assert len(frames) >= 3 and "Campanero" in frames[1]
        for frame in frames[:-1]:
            drawn = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", frame).split("\r\n")[:-1]
            assert len(drawn) <= lines - 1 and max(map(len, drawn)) <= 60
        assert set(re.findall(r"\x1b\[(\d+)F", terminal.output)) == {str(len(drawn))}
    server.stop()


def test_watch_without_a_terminal(server: Server, api: Client, tmp_path: Path) -> None:
    """Into a pipe it writes lines with a timestamp and without escapes; with `--json` one object a line."""
    outputs: dict[str, str] = {}
    for option in ("--watch", "--json"):
        arguments = ("status", "--watch") if option == "--watch" else ("status", "--watch", "--json")
        process = server.begin(*arguments)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        lines += process.stdout.readlines()
        assert process.wait(30) == 0
        outputs[option] = "".join(lines)
    assert "\x1b" not in outputs["--watch"]
    assert re.match(r"\S+Z service: ready, process \d+\n\S+Z queue email: 0 due", outputs["--watch"])
    assert {json.loads(line)["version"] for line in outputs["--json"].splitlines()} == {"0.1.0"}
