"""`campanero status` beside the running service, without it, and on a terminal."""

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

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.recipients import UNLIMITED, crowd, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


def status(server: Server) -> dict[str, Any]:
    """Return what the command says as JSON."""
    found: dict[str, Any] = json.loads(server.cli("status", "--json").stdout)
    return found


def under_way(server: Server, smtp: SmtpServer) -> None:
    """Begin a send of which some are accepted, and which then stands still in the middle of a message."""
    api = server.client()
    number = len(smtp.messages) + 10
    smtp.rules.delay("body", 0.05)
    send(api, crowd(api, 400))
    smtp.wait_for(number)


def test_it_tells_what_runs(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Beside the service: a send with its speed and its end, what waits, what today brought; as text and as JSON."""
    server = fresh_server(relay=smtp_server.port, env=UNLIMITED)
    under_way(server, smtp_server)
    found = status(server)
    assert found["service"] == {
        "running": True, "process": server.pid, "listen": f"127.0.0.1:{server.port}", "state": "ready",
    }  # fmt: skip
    [task] = found["tasks"]
    assert (task["kind"], task["state"], task["total"]) == ("send", "sending", 400)
    assert 0 < task["done"] < 400 and task["per_second"] > 0 and task["left_seconds"] > 0
    email, sms = found["queue"]
    assert email["due"] > 0 and email["last_minute"] >= task["done"]
    assert not any(value for name, value in sms.items() if name != "channel")
    assert found["today"][0]["sent"] > 0 and found["storage"]["database_bytes"] > 0
    text = server.cli("status").stdout
    assert f"runs as process {server.pid}, ready on" in text and re.search(r"of 400 +\d+/s", text)


def test_it_needs_no_service(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """After a kill the same numbers are there, without a speed; where nothing is, it says how to begin."""
    server = fresh_server(relay=smtp_server.port, env=UNLIMITED)
    under_way(server, smtp_server)
    server.kill()
    found = status(server)
    assert found["service"]["running"] is False
    assert [(one["kind"], one["per_second"], one["left_seconds"]) for one in found["tasks"]] == [("send", None, None)]
    (server.data / "STOP").touch()
    text = server.cli("status").stdout
    assert "the service is not running" in text and "STOP" in text and "/s " not in text
    # The number of a process that is gone may be anybody's
    (server.data / "serve.lock").write_text(f"{os.getpid()}\n127.0.0.1:1\n")
    assert status(server)["service"]["running"] is False
    empty = fresh_server(start=False, set_up=False)
    done = empty.cli("status", expect=1)
    assert "start with campanero serve" in done.stderr and not empty.data.exists()


def test_what_a_person_stopped_is_told(fresh_server: FreshServer) -> None:
    """With the words of who stopped it."""
    server = fresh_server()
    api = server.client()
    api.patch("/account", {"sending_stopped": True, "stop_reason": "we moved"}).expect(200)
    assert status(server)["stopped"] == ["sending is stopped for Bakery: we moved"]


def test_an_export_is_told_while_it_goes(fresh_server: FreshServer) -> None:
    """Somebody reads a large file slowly: it stands there with its rows, and is gone when they have left."""
    server = fresh_server()
    api = server.client()
    crowd(api, 800)
    server.stop()
    with closing(sqlite3.connect(server.data / "campanero.db")) as books:
        # More than the system takes for somebody who does not read
        books.execute("UPDATE contact SET data = json_object('note', hex(zeroblob(15000)))")
        books.commit()
    server.start()
    headers = {"Authorization": f"Bearer {api.key}"}
    found: list[Any] = []
    link = slow_reader(server, "/v1/my/exports/contacts.jsonl", headers)
    end = time.monotonic() + 60
    try:
        while not (found := [one for one in status(server)["tasks"] if one["kind"] == "export"]):
            assert time.monotonic() < end
    finally:
        link.close()
    assert (found[0]["name"], found[0]["total"]) == ("contacts.jsonl", 800)
    while any(one["kind"] == "export" for one in status(server)["tasks"]):
        assert time.monotonic() < end
    assert not list(server.data.glob("exports.json*"))


def slow_reader(server: Server, path: str, headers: dict[str, str]) -> Any:
    """Ask for a file and read nothing of it."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect(("127.0.0.1", server.port))
    lines = [f"GET {path} HTTP/1.1", "Host: h", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    link.sendall("\r\n".join(lines).encode())
    return link


class Terminal:
    """A command on a terminal of so many columns and lines."""

    def __init__(self, server: Server, *words: str, columns: int = 60, lines: int = 24) -> None:
        self.here, there = pty.openpty()
        termios.tcsetwinsize(there, (lines, columns))
        env = {**server.env, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            server._command(*words), env=env, cwd=server.home, stdin=there, stdout=there, stderr=there,
            start_new_session=True,
        )  # fmt: skip
        os.close(there)
        self.said = ""

    def until(self, pattern: str, timeout: float = 60) -> None:
        """Read until it has said something."""
        end = time.monotonic() + timeout
        while not re.search(pattern, self.said, re.DOTALL):
            assert time.monotonic() < end, self.said
            if select.select([self.here], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self.here, 65_536).decode("utf-8", "replace")
                except OSError:  # it has ended
                    break

    def end(self) -> int:
        """Press Ctrl C, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        self.until(r"\x1b\[\?25h")
        return self.process.wait(30)


def test_on_a_terminal_it_is_drawn_in_its_place(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Frames follow each other in the same lines, none wider or longer than the screen; Ctrl C ends it well."""
    server = fresh_server(relay=smtp_server.port, env=UNLIMITED)
    under_way(server, smtp_server)
    for lines in (24, 8):
        terminal = Terminal(server, "status", "--watch", columns=60, lines=lines)
        terminal.until(r"(\x1b\[\d+F.*){2}\x1b\[J")
        assert terminal.end() == 0
        frames = re.split(r"\x1b\[\d+F", terminal.said)
        assert len(frames) >= 3 and "Campanero" in frames[1]
        for frame in frames[:-1]:
            drawn = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", frame).split("\r\n")[:-1]
            assert len(drawn) <= lines - 1 and max(map(len, drawn)) <= 60
        assert set(re.findall(r"\x1b\[(\d+)F", terminal.said)) == {str(len(drawn))}
    server.stop()


def test_elsewhere_it_writes_line_after_line(server: Server, api: Client, tmp_path: Path) -> None:
    """Into a file or a pipe: a line for what is new, with its moment and without escapes; as JSON an object a line."""
    said: dict[str, str] = {}
    for option in ("--watch", "--json"):
        words = ("status", "--watch") if option == "--watch" else ("status", "--watch", "--json")
        process = subprocess.Popen(
            server._command(*words), env=server.env, cwd=server.home, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        lines += process.stdout.readlines()
        assert process.wait(30) == 0
        said[option] = "".join(lines)
    assert "\x1b" not in said["--watch"]
    assert re.match(r"\S+Z service: ready, process \d+\n\S+Z queue email: 0 due", said["--watch"])
    assert {json.loads(line)["version"] for line in said["--json"].splitlines()} == {"0.1.0"}
