"""A damaged or replaced database: commands fail with one line of advice, and a running service reports it."""

import http.client
import os
import re
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.client import Response
from tests.kit.recipients import create_list
from tests.kit.sampling import sampled
from tests.kit.server import EMAIL, PASSWORD, Server, free_port
from tests.kit.timeouts import extend_timeout

COMMANDS = (
    ("serve",), ("setup", "--email", "new@example.com"), ("user", "add", "--email", "new@example.com"),
    ("key", "create", "more"), ("account", "add", "More"), ("recount",), ("backup", "copy.tar.gz"), ("status",),
)  # fmt: skip


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(path: Path) -> None:
    path.unlink()
    # Socket paths have a short limit
    directory = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _text(path: Path) -> None:
    path.write_text("hello\n" * 1000)


def _other_program(path: Path) -> None:
    path.unlink()
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE account (id INTEGER); PRAGMA user_version = 2")
    connection.close()


def _marked_by_another(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA application_id = 1196444487")
    connection.close()


def _header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 100)


def _half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _piece(path: Path) -> None:
    os.truncate(path, 50)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _without_tables(path: Path) -> None:
    path.unlink()
    connection = apsw.Connection(str(path))
    connection.execute("VACUUM")
    connection.close()


def _missing(path: Path) -> None:
    path.unlink()


def _schema_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)


def _all_pages(path: Path) -> None:
    """Damage every page but the first, in place: a file that is cut ends a process that has it in memory (SIGBUS)."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def error_line(server: Server, *command: str) -> str:
    """Run a command that must fail with one line, and return the line."""
    options = ("--listen", f"127.0.0.1:{free_port()}") if command == ("serve",) else ()
    result = server.cli(*command, *options, stdin="a long password\n", expect=1, timeout=60)
    assert re.fullmatch(r"campanero: [^\n]+\n", result.stderr), (command, result.stderr)
    assert "Error(" not in result.stderr and result.stdout == "", (command, result.stdout)
    return result.stderr


@pytest.mark.parametrize(
    "damage",
    sampled(
        [
            _directory, _pipe, _socket, _device, _loop, _nowhere, _text, _other_program, _marked_by_another, _header,
            _half, _piece, _empty, _without_tables, _missing, _schema_page,
        ],
        [_directory, _text, _marked_by_another, _half, _empty, _schema_page],
    ),
)  # fmt: skip
def test_commands_report_a_damaged_database_in_one_line(
    damage: Callable[[Path], None], fresh_server: FreshServer, tmp_path: Path
) -> None:
    """Each command exits with 1, without a traceback and without creating a database; a restore repairs it."""
    server = fresh_server(start=False)
    copy = tmp_path / "kept.tar.gz"
    server.cli("backup", str(copy))
    path = server.data / "campanero.db"
    damage(path)
    for command in COMMANDS:
        line = error_line(server, *command)
        assert str(server.data) in line, (command, line)
        assert command[0] == "status" or "restore" in line or command[0] == "backup", (command, line)
    assert not (server.home / "copy.tar.gz").exists()
    report = server.cli("doctor", expect=1, timeout=60)
    assert "fail  database: " in report.stdout and report.stderr == ""
    server.cli("check")
    if path.is_dir() or path.is_fifo() or path.is_socket() or path.is_char_device():
        assert "move it away" in error_line(server, "restore", str(copy), "--force")
        path.rmdir() if path.is_dir() else path.unlink()
    elif path.is_symlink():
        path.unlink()
    server.cli("restore", str(copy), "--force")
    server.start()
    assert server.client().get("/account").status == 200
    server.stop()


REMAINS = ("secret.key", "optouts.jsonl", "imports/1", "audiences/1-1.list", "backups/a.tar.gz")


@pytest.mark.parametrize("remaining", REMAINS)
@pytest.mark.parametrize("has_file", [True, False])
def test_files_without_a_database_prevent_a_new_installation(
    remaining: str, has_file: bool, fresh_server: FreshServer
) -> None:
    """With files of an installation but a missing or empty database, the start fails instead of creating one."""
    server = fresh_server(start=False, set_up=False)
    server.data.mkdir()
    (server.data / remaining).parent.mkdir(exist_ok=True)
    (server.data / remaining).touch()
    if has_file:
        (server.data / "campanero.db").touch()
    line = error_line(server, "serve")
    assert remaining.partition("/")[0] in line and "restore a backup" in line
    assert (server.data / "campanero.db").exists() == has_file
    shutil.rmtree(server.data)
    server.start()
    server.stop()


def test_the_wal_of_another_database_is_rejected(fresh_server: FreshServer) -> None:
    """A write-ahead log of another database prevents the start; without it the database is unchanged.

    A log whose pages fit by chance cannot be detected: SQLite does not record which database a log belongs to.
    """
    server, other = fresh_server(start=False), fresh_server(set_up=False, start=False)
    other.set_up(account="Elsewhere").start()
    create_list(other.client(), 1_000, "first")
    connection = apsw.Connection(str(other.data / "campanero.db"))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    # A reader keeps the log from starting anew, after which a few of its pages might fit by chance
    connection.execute("BEGIN; SELECT count(*) FROM account").fetchall()
    create_list(other.client(), 300, "then")
    log = other.data / "campanero.db-wal"
    assert log.stat().st_size > 100_000
    path = server.data / "campanero.db"
    own = path.read_bytes()
    shutil.copyfile(log, server.data / log.name)
    connection.close()
    assert "campanero.db-wal beside it belongs to another database" in error_line(server, "serve")
    assert path.read_bytes() == own
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    server.start()
    server.stop()
    other.stop()


def _damage_pages(server: Server) -> bytes:
    """Damage the rows of contacts in the database file of a running service.

    Return the former content.
    """
    path = server.data / "campanero.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sql = "SELECT pageno FROM dbstat WHERE name = 'contact' AND pagetype = 'leaf'"
    pages = [page for (page,) in connection.execute(sql).fetchall()]
    size = connection.execute("PRAGMA page_size").get
    connection.close()
    content = path.read_bytes()
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)
    return content


def test_health_reports_damage_found_by_a_request(fresh_server: FreshServer) -> None:
    """Health turns to 503 with the reason, sending stops, and requests for intact data still work."""
    server = fresh_server()
    api = server.client(validate=False)
    create_list(api, 300)
    server.restart()
    assert api.get("/healthz").status == 200
    _damage_pages(server)
    while api.get("/contacts?page=1").status == 200:  # pages that were read before are cached
        server.client(validate=False).get("/contacts?search=zzz")
        time.sleep(0.05)
    end = time.monotonic() + extend_timeout(10)
    while (health := api.get("/healthz")).status == 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert health.status == 503 and "damaged" in health.text
    assert api.get("/readyz").status == 503
    assert api.get("/account").status == 200
    server.wait_for_line("sending stopped: the database is damaged")
    server.stop()


def test_damage_is_found_after_a_start(fresh_server: FreshServer) -> None:
    """The whole database is checked once after each start, so that damage is found without a request."""
    server = fresh_server()
    create_list(server.client(), 300)
    server.stop()
    _damage_pages(server)
    server.start()
    server.wait_for_line("sending stopped: the database is damaged")
    assert server.client(validate=False).get("/healthz").status == 503
    server.stop()


def _signed_in(server: Server) -> str:
    """Sign in on the page, and return the cookie."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    typed = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    link.request("POST", "/login", urlencode({"email": EMAIL, "password": PASSWORD}), typed)
    cookie = str(link.getresponse().headers["Set-Cookie"]).partition(";")[0]
    link.close()
    return cookie


def _break(server: Server, harm: Callable[[Path], None], first: Callable[[], Any] = lambda: None) -> None:
    """Damage the file beneath a service that has read little of it, and wait until the service has noticed."""
    create_list(server.client(), 300)
    server.restart()
    first()
    end = time.monotonic() + extend_timeout(20)
    while True:
        # The write-ahead log may have a page of before, which is read instead, or is copied over the damage
        harm(server.data / "campanero.db")
        if server.client(validate=False).get("/healthz").status != 200:
            return
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize("harm", sampled([_header, _all_pages], [_all_pages]))
def test_a_service_whose_database_breaks_says_so_on_its_pages(
    harm: Callable[[Path], None], fresh_server: FreshServer
) -> None:
    """Pages are 503 and ask to try again, and the log has few tracebacks however long it lasts."""
    server = fresh_server()
    cookie = _signed_in(server)
    _break(server, harm)
    refused = 0
    for path in ("/", "/contacts", "/lists", "/campaigns", "/settings/data"):
        answer = server.client(validate=False).request("GET", path, None, {"Cookie": cookie})
        # Pages whose rows are in memory are still shown.
        assert answer.status in (200, 503), (path, answer.status)
        refused += answer.status == 503 and "again" in answer.text
    assert refused >= 3 or harm is _header
    time.sleep(3)
    assert server.output.count("Traceback") <= 1, server.output
    failures = re.findall(r"\w+: run failed(?: job=\w+)?", server.output)
    assert len(failures) <= len(set(failures)) + 2, server.output
    server.stop()


@pytest.mark.parametrize("harm", [_header, _all_pages])
def test_metrics_are_served_without_the_database(harm: Callable[[Path], None], fresh_server: FreshServer) -> None:
    """Who fetched them before still gets those of the process and of the storage, which tell of the trouble."""
    server = fresh_server()
    other = server.new_key()

    def scrape(key: str | None) -> Response:
        headers = {"Authorization": f"Bearer {key}"}
        return server.client(validate=False).request("GET", "/metrics", None, headers)

    _break(server, harm, lambda: scrape(server.key))
    answer = scrape(server.key)
    assert answer.status == 200 and "campanero_storage_trouble 1" in answer.text, answer.text[:500]
    assert scrape("camp_live_" + "x" * 36).status in (401, 503)
    assert harm is _header or scrape(other).status == 503
    server.stop()
