"""Path traversal, probed paths, errors without details, and foreign task queues (T19, T40, T42, T43)."""

import contextlib
import pickle
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.server import Server

UP = ("..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "..\\", "....//", "%252e%252e%252f", "..%c0%af", "../")
FILES = ("etc/passwd", "appliance/http/server.py", "campanero.db", "secret.key")
# Paths that scanners probe
COMMON = (
    "/.env", "/.git/config", "/data.db", "/campanero.db", "/campanero.db-wal", "/secret.key",
    "/backup", "/backup/latest",
    "/metrics", "/debug", "/admin", "/tasks", "/huey", "/queue", "/status", "/server-status",
    "/actuator/env", "/console",
    "/phpmyadmin/", "/wp-login.php", "/setup", "/setup/x", "/config.toml", "/static", "/static/", "/media/",
    "/uploads/1",
    "/v1", "/v1/", "/v1/admin", "/v1/my", "/v1/my/metrics", "/v2/my/account",
    "/openapi.json", "/%00", "/static/%00",
)  # fmt: skip
TELLTALES = (
    b"Traceback", b"root:x", b"import ", b"sqlite", b"SELECT", b"apsw", b"sanic", b"Sanic", b"peewee", b".py",
    b"no such table", b"python",
)  # fmt: skip


def send_raw(server: Server, target: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    """Send a request for a target without normalizing it, and return the whole response."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as link:
        lines = (method + b" " + target + b" HTTP/1.1", b"Host: h", b"Connection: close", *headers)
        link.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        response = b""
        while piece := link.recv(65_536):
            response += piece
    return response


def check_reveals_nothing(answer: bytes, why: object) -> None:
    """Check that a response contains no implementation detail."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nserver:" not in head.lower(), why
    assert not [telltale for telltale in TELLTALES if telltale in body], (why, body[:600])


def test_path_traversal_is_404(server: Server) -> None:
    """A path to a file outside is a 404, however it is encoded (T19)."""
    for place in ("/static/", "/media/", "/static/css/", "/templates/pictures/", "/inbox/", "/"):
        for up in UP:
            for file in FILES:
                response = send_raw(server, f"{place}{up * 6}{file}".encode())
                assert response.split(b" ", 2)[1] in (b"400", b"404", b"303"), (place, up, response[:200])
                check_reveals_nothing(response, (place, up, file))
    for target in (b"/static//etc/passwd", b"//etc/passwd", b"/static/../../etc/passwd", b"/media/" + b"A" * 200):
        check_reveals_nothing(send_raw(server, target), target)


@pytest.mark.parametrize("path", COMMON)
def test_probed_paths_are_404(path: str, server: Server) -> None:
    """Without a credential these paths have no file, queue, metrics or setup (T43)."""
    response = send_raw(server, path.encode())
    expected = (b"401",) if path == "/metrics" else (b"400", b"404", b"410")
    assert response.split(b" ", 2)[1] in expected, response[:300]
    check_reveals_nothing(response, path)


def test_healthz_contains_no_data(server: Server) -> None:
    """The response has only the status."""
    response = server.client().request("GET", "/healthz")
    assert response.status == 200 and set(response.json) <= {"status", "ok"}, response.text


def test_bad_requests_reveal_nothing(server: Server) -> None:
    """Errors of malformed requests contain no implementation detail (T42)."""
    for target, headers, method in (
        (b"/v1/my/account", (b"Authorization: Bearer \xff\xfe",), b"GET"),
        (b"/contacts", (b"Cookie: campanero=\xff; campanero=" + b"x" * 5000,), b"GET"),
        (b"/contacts", (b"Cookie: " + b"a" * 60_000,), b"GET"),
        (b"/v1/my/contacts?" + b"a=%ff&" * 50, (), b"GET"),
        (b"/%ff%fe", (), b"GET"), (b"/contacts/99999999999999999999999", (), b"GET"), (b"/", (), b"BREW"),
        (b"/login", (b"Content-Type: multipart/form-data", b"Content-Length: 0"), b"POST"),
        (b"/v1/my/contacts", (b"Content-Length: -1",), b"POST"), (b"http://evil.example/", (), b"GET"),
    ):  # fmt: skip
        check_reveals_nothing(send_raw(server, target, *headers, method=method), (target, headers, method))


@contextlib.contextmanager
def without_table(server: Server, table: str) -> Iterator[None]:
    """Rename a table until the context ends, so that requests fail unexpectedly."""
    database = apsw.Connection(str(server.data / "campanero.db"))
    database.set_busy_timeout(10_000)
    database.execute("PRAGMA legacy_alter_table = ON")
    database.execute(f"ALTER TABLE {table} RENAME TO gone_{table}")
    try:
        yield
    finally:
        database.execute(f"ALTER TABLE gone_{table} RENAME TO {table}")
        database.close()


def test_server_errors_reveal_nothing(server: Server) -> None:
    """A 500 has the request id only; the log has the id and the cause (T42)."""
    owner = Visitor(server, "owner@example.com")
    with without_table(server, "suppression"):
        key = b"Authorization: Bearer " + str(server.client().key).encode()
        page = b"Cookie: " + owner.cookie.encode()
        responses = [send_raw(server, b"/v1/my/suppressions", key), send_raw(server, b"/contacts/suppressions", page)]
    for response in responses:
        assert response.split(b" ", 2)[1] == b"500"
        check_reveals_nothing(response, response)
        number = next(line for line in response.split(b"\r\n") if line.lower().startswith(b"x-request-id")).split(b" ")[
            1
        ]
        server.wait_for_line(number.decode())
    server.wait_for_line("no such table")


class Payload:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


def test_a_planted_task_queue_is_not_run(server: Server) -> None:
    """A task queue file in the data directory is not read at a start (T40)."""
    server.stop()
    canary = server.home / "canary"
    for name in ("huey.db", "queue.db"):
        with contextlib.closing(sqlite3.connect(server.data / name)) as database:
            database.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, queue TEXT, data BLOB, priority REAL)")
            database.execute("CREATE TABLE kv (queue TEXT, key TEXT, value BLOB)")
            database.execute("CREATE TABLE schedule (id INTEGER PRIMARY KEY, queue TEXT, data BLOB, timestamp INTEGER)")
            for queue in ("huey", "campanero"):
                database.execute("INSERT INTO task (queue, data) VALUES (?, ?)", (queue, pickle.dumps(Payload(canary))))
            database.commit()
    server.start()
    api = server.client()
    api.post("/messages", {"to": "a@example.org", "subject": "s", "body": "<p>x</p>"}).expect(201)
    api.wait("/messages", lambda rows: rows[0]["status"] == "sent")
    assert not canary.exists()
    with contextlib.closing(sqlite3.connect(server.data / "huey.db")) as database:
        assert database.execute("SELECT count(*) FROM task").fetchone() == (2,)
