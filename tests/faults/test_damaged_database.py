"""Whatever stands in the place of the database: one line that says what to do, and a service in use says it is ill."""

import os
import re
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.patience import soon
from tests.kit.recipients import crowd
from tests.kit.server import Server, free_port

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
    # Names of sockets are short
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


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
    here = apsw.Connection(str(path))
    here.execute("CREATE TABLE account (id INTEGER); PRAGMA user_version = 2")
    here.close()


def _marked_by_another(path: Path) -> None:
    here = apsw.Connection(str(path))
    here.execute("PRAGMA application_id = 1196444487")
    here.close()


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
    here = apsw.Connection(str(path))
    here.execute("VACUUM")
    here.close()


def _missing(path: Path) -> None:
    path.unlink()


def _schema_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)


def said(server: Server, *words: str) -> str:
    """Run a command that must be refused with one line, and return the line."""
    options = ("--listen", f"127.0.0.1:{free_port()}") if words == ("serve",) else ()
    done = server.cli(*words, *options, stdin="a long password\n", expect=1, timeout=20)
    assert re.fullmatch(r"campanero: [^\n]+\n", done.stderr), (words, done.stderr)
    assert "Error(" not in done.stderr and done.stdout == "", (words, done.stdout)
    return done.stderr


@pytest.mark.parametrize(
    "harm",
    [
        _directory, _pipe, _socket, _device, _loop, _nowhere, _text, _other_program, _marked_by_another, _header,
        _half, _piece, _empty, _without_tables, _missing, _schema_page,
    ],
)  # fmt: skip
def test_every_command_says_in_one_line_what_is_wrong(
    harm: Callable[[Path], None], fresh_server: FreshServer, tmp_path: Path
) -> None:
    """Exit 1, no traceback, nothing made anew; a backup put back makes it well."""
    server = fresh_server(start=False)
    kept = tmp_path / "kept.tar.gz"
    server.cli("backup", str(kept))
    path = server.data / "campanero.db"
    harm(path)
    for words in COMMANDS:
        line = said(server, *words)
        assert str(server.data) in line, (words, line)
        assert words[0] == "status" or "restore" in line or words[0] == "backup", (words, line)
    assert not (server.home / "copy.tar.gz").exists()
    told = server.cli("doctor", expect=1, timeout=20)
    assert "fail  database: " in told.stdout and told.stderr == ""
    server.cli("check")
    if path.is_dir() or path.is_fifo() or path.is_socket() or path.is_char_device():
        assert "move it away" in said(server, "restore", str(kept), "--force")
        path.rmdir() if path.is_dir() else path.unlink()
    elif path.is_symlink():
        path.unlink()
    server.cli("restore", str(kept), "--force")
    server.start()
    assert server.client().get("/account").status == 200
    server.stop()


TRACES = ("secret.key", "optouts.jsonl", "imports/1", "audiences/1-1.list", "backups/a.tar.gz")


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("has_file", [True, False])
def test_what_an_installation_left_is_no_new_installation(
    trace: str, has_file: bool, fresh_server: FreshServer
) -> None:
    """Without its database, or beside one of no bytes, each of them keeps a start from making an empty one."""
    server = fresh_server(start=False, set_up=False)
    server.data.mkdir()
    (server.data / trace).parent.mkdir(exist_ok=True)
    (server.data / trace).touch()
    if has_file:
        (server.data / "campanero.db").touch()
    line = said(server, "serve")
    assert trace.partition("/")[0] in line and "restore a backup" in line
    assert (server.data / "campanero.db").exists() == has_file
    shutil.rmtree(server.data)
    server.start()
    server.stop()


def test_the_log_of_another_database_does_not_destroy_this_one(fresh_server: FreshServer) -> None:
    """A write-ahead log that does not fit is refused, and taken away all is as it was.

    One whose pages fit by chance cannot be told: SQLite notes nowhere which database a log belongs to.
    """
    server, other = fresh_server(start=False), fresh_server(set_up=False, start=False)
    other.set_up(account="Elsewhere").start()
    crowd(other.client(), 1_000, "first")
    here = apsw.Connection(str(other.data / "campanero.db"))
    here.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    here.close()
    crowd(other.client(), 300, "then")
    log = other.data / "campanero.db-wal"
    assert log.stat().st_size > 100_000
    path = server.data / "campanero.db"
    own = path.read_bytes()
    shutil.copyfile(log, server.data / log.name)
    assert "campanero.db-wal beside it belongs to another database" in said(server, "serve")
    assert path.read_bytes() == own
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    server.start()
    server.stop()
    other.stop()


def _damage_pages(server: Server) -> bytes:
    """Damage the rows of contacts in the file beneath a service; return what stood there."""
    path = server.data / "campanero.db"
    here = apsw.Connection(str(path))
    here.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sql = "SELECT pageno FROM dbstat WHERE name = 'contact' AND pagetype = 'leaf'"
    pages = [page for (page,) in here.execute(sql).fetchall()]
    size = here.execute("PRAGMA page_size").get
    here.close()
    whole = path.read_bytes()
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)
    return whole


def test_health_tells_of_damage_that_a_request_came_upon(fresh_server: FreshServer) -> None:
    """200 until then, 503 from then on, in words; sending stops, and requests that need none of it go on."""
    server = fresh_server()
    api = server.client(validate=False)
    crowd(api, 300)
    server.restart()
    assert api.get("/healthz").status == 200
    _damage_pages(server)
    while api.get("/contacts?page=1").status == 200:  # pages that were read before are in memory
        server.client(validate=False).get("/contacts?search=zzz")
        time.sleep(0.05)
    end = time.monotonic() + soon(10)
    while (health := api.get("/healthz")).status == 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert health.status == 503 and "damaged" in health.text
    assert api.get("/readyz").status == 503
    assert api.get("/account").status == 200
    server.wait_for_line("sending stopped: the database is damaged")
    server.stop()


def test_a_service_that_starts_on_a_damaged_database_says_so_by_itself(fresh_server: FreshServer) -> None:
    """Nobody has to come upon it: all of it is looked through once after each start."""
    server = fresh_server()
    crowd(server.client(), 300)
    server.stop()
    _damage_pages(server)
    server.start()
    server.wait_for_line("sending stopped: the database is damaged")
    assert server.client(validate=False).get("/healthz").status == 503
    server.stop()
