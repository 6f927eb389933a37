"""Kills in the middle of imports, exports and upgrades: the job ends as if nothing had happened.

With `--full` larger, and for three seeds.
"""

import http.client
import os
import random
import shutil
import signal
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from appliance.storage.migrations import MIGRATIONS
from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.kit.client import Client
from tests.kit.fork_server import fork_server
from tests.kit.recipients import create_list
from tests.kit.server import Server
from tests.kit.uploads import import_results, upload, wait_for_import

# Tables by the schema version that adds them. Other versions find what they add, because only these are dropped.
TABLES_OF_VERSION = {
    2: {"restoration"}, 3: {"installation"}, 4: {"send_log"}, 14: {"flow_replay"}, 20: {"proposal"},
    21: {"app_client", "app_grant", "app_code", "app_token"}, 22: {"click_hour"}, 23: {"team_member"},
    24: {"passkey", "device"}, 25: {"sign_in_provider", "identity"}, 26: {"restored_send"}, 27: {"copy_run"},
    29: {"role"}, 30: {"time_zone", "contact_zone"}, 31: {"account_host"},
}  # fmt: skip
LATER_TABLES: set[str] = set().union(*TABLES_OF_VERSION.values())
# What an import writes, without ids and times, which differ between two servers. A contact in several chunks has a
# `contact_update` in each but the first, and the size of a chunk depends on the time that the one before took.
WRITTEN = (
    "SELECT h.kind, h.value, h.subscribed, h.opted_out_by, h.suppression, c.first_name, c.data, "
    "(SELECT count(*) FROM membership m WHERE m.contact_id = c.id) "
    "FROM contact c LEFT JOIN channel h ON h.contact_id = c.id ORDER BY 1, 2",
    "SELECT event, count(*), count(DISTINCT contact_id) FROM event "
    "WHERE event != 'contact_update' GROUP BY 1 ORDER BY 1",
    'SELECT kind, act, "by", source, count(*), count(DISTINCT address_hash) FROM consent GROUP BY 1, 2, 3, 4 '
    "ORDER BY 1, 2, 3, 4",
    'SELECT kind, "by", count(*) FROM opt_out GROUP BY 1, 2 ORDER BY 1, 2',
    "SELECT address, reason FROM suppression ORDER BY 1",
    "SELECT status, phase, total, processed, created, updated, skipped, failed, warnings, arriving FROM import",
)


def query(server: Server, sql: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query on the database of a server, which may be down."""
    database = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        database.set_busy_timeout(5_000)
        return list(database.execute(sql))
    finally:
        database.close()


def written(server: Server) -> list[Any]:
    """Return what an import has written, and the files that it has left."""
    files = sorted(str(path.relative_to(server.data)) for path in (server.data / "imports").rglob("*"))
    return [*(query(server, sql) for sql in WRITTEN), files]


def create_file(count: int) -> str:
    """Return a file whose rows create, repeat and opt out contacts; some have an invalid value."""
    lines = ["email,first_name,n,unsubscribed,birthday"]
    for index in range(count):
        address = f"P{index // 2}@EXAMPLE.org" if index % 7 == 0 else f"p{index}@example.org"
        lines.append(f"{address},N{index},{index},{'yes' if index % 10 == 3 else ''},{'x' if index % 11 == 0 else ''}")
    return "\n".join([*lines, "nobody,N,1,,"])


def start_import(server: Server, file: str, dry_run: bool = False) -> tuple[Client, str]:
    """Upload a file to a new list and return a client and the path of the import."""
    api = server.client(validate=False)
    list_id = api.post("/lists", {"name": "All"}).expect(201)["id"]
    job = upload(api, file, dry_run=dry_run, list_ids=[list_id], opt_in=True).expect(201)["id"]
    return api, f"/imports/{job}"


def restart(server: Server) -> None:
    """Kill a server and start it again."""
    server.kill()
    server.start()


def wait_until_ended(api: Client, path: str) -> Any:
    """Wait until an import has ended and return it."""
    return api.wait(path, lambda row: row["status"] not in ("pending", "processing"), 300)


def kill_during_import(server: Server, path: str, total: int, kills: int, rng: random.Random) -> list[str]:
    """Kill a server while it reads a file, and while it writes the rows; return what the import did each time."""
    api, phases = server.client(validate=False), []
    for turn in range(kills):
        if turn < kills // 2:
            time.sleep(rng.uniform(0, 0.3))
        else:
            processed = rng.randrange(total * (turn - kills // 2) // kills, total * (turn + 1) // kills)
            api.wait(path, lambda row, least=processed: row["processed"] >= least or row["status"] == "complete", 300)
        row = api.get(path).expect(200)
        phases.append(f"{row['phase'] or row['status']} {row['processed']}")
        restart(server)
    return phases


def test_kills_during_an_import(fresh_server: FreshServer, full: bool, figures: Figures, seed: int) -> None:
    """An import and its undo that were killed often end as undisturbed ones do, with the same rows and files."""
    count, kills = (60_000, 12) if full else (2_500, 4)
    file, rng = create_file(count), random.Random(seed)
    quiet, rough = fresh_server(), fresh_server()
    known = "\n".join(["email", *(f"p{index}@example.org" for index in range(0, count, 3))])
    for server in (quiet, rough):
        wait_for_import(server.client(validate=False), upload(server.client(), known, opt_in=True), 300)
    quiet_api, path = start_import(quiet, file)
    wait_until_ended(quiet_api, path)
    api, rough_path = start_import(rough, file)
    assert rough_path == path
    phases = kill_during_import(rough, path, count, kills, rng)
    figures.note(size=count, kills=kills, at_each_kill=phases)
    end = wait_until_ended(api, path)
    assert (end["status"], end["total"], end["failed"]) == ("complete", count + 1, 1), end
    job = int(path.rpartition("/")[2])
    ends = import_results(api, job)
    assert [int(row["line"]) for row in ends] == list(range(2, count + 3))
    assert [row["result"] for row in ends] == [row["result"] for row in import_results(quiet_api, job)]
    assert written(rough) == written(quiet)

    for server, is_rough in ((quiet, False), (rough, True)):
        client = server.client(validate=False)
        client.post(f"{path}/undo").expect(200)
        for _ in range(kills // 4 if is_rough else 0):
            time.sleep(rng.uniform(0, 0.2))
            restart(server)
        client.wait(path, lambda row: row["phase"] == "undone", 300)
    assert written(rough) == written(quiet)
    for server in (quiet, rough):
        server.stop()
        assert query(server, "PRAGMA integrity_check") == [("ok",)]


def test_kills_during_a_dry_run(fresh_server: FreshServer, full: bool, figures: Figures, seed: int) -> None:
    """A check of a file that was killed often has the results of an undisturbed one, and writes no contact."""
    count, kills = (60_000, 8) if full else (2_500, 2)
    file, rng = create_file(count), random.Random(seed)
    quiet, rough = fresh_server(), fresh_server()
    quiet_api, path = start_import(quiet, file, dry_run=True)
    clean = wait_until_ended(quiet_api, path)
    api, _ = start_import(rough, file, dry_run=True)
    phases = kill_during_import(rough, path, count, kills, rng)
    figures.note(size=count, kills=kills, at_each_kill=phases)
    end = wait_until_ended(api, path)
    names = ("status", "total", "processed", "created", "updated", "skipped", "failed", "warnings")
    assert {name: end[name] for name in names} == {name: clean[name] for name in names}
    assert end["status"] == "complete"
    assert written(rough) == written(quiet) and query(rough, "SELECT count(*) FROM contact") == [(0,)]
    for server in (quiet, rough):
        server.stop()


def read_part(server: Server, path: str, size: int) -> tuple[http.client.HTTPResponse, bytes]:
    """Return the response of an export and its first bytes; the rest waits in the service."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.sock = socket.socket()
    # The system keeps little of what is not read, so that the service cannot send the rest in advance.
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
    connection.sock.settimeout(30)
    connection.sock.connect(("127.0.0.1", server.port))
    connection.request("GET", f"/v1/my{path}", headers={"Authorization": f"Bearer {server.key}"})
    response = connection.getresponse()
    assert response.status == 200
    return response, response.read(size)


def kept_files(server: Server) -> list[str]:
    """Return the names in the data directory, without the log of the database and the numbers of running exports."""
    skipped = ("campanero.db-wal", "exports.json")
    return sorted(path.name for path in server.data.rglob("*") if path.name not in skipped)


def test_kills_during_an_export(fresh_server: FreshServer, full: bool, figures: Figures, seed: int) -> None:
    """A client notices that a killed export is incomplete, and the next export has every row once."""
    count, kills = (60_000, 12) if full else (4_000, 3)
    rng, server = random.Random(seed), fresh_server()
    api = server.client(validate=False)
    note = "n" * (700 if full else 2_600)  # the rest of an export is longer than what the system keeps of it (4 MB)
    lines = [f"p{index}@example.org,N{index},{note}{index}" for index in range(count)]
    wait_for_import(api, upload(api, "\n".join(["email,first_name,note", *lines])), 300)
    whole = {path: api.get(path).body for path in ("/exports/contacts.csv", "/exports/contacts.jsonl")}
    names = kept_files(server)
    parts = []
    for turn in range(kills):
        path = rng.choice([*whole])
        size = rng.randrange(1, len(whole[path]) // 2)
        response, first = read_part(server, path, size)
        with closing(response):
            server.kill()
            rest, is_complete = b"", True
            try:
                rest = response.read()
            except http.client.IncompleteRead as error:
                rest, is_complete = error.partial, False
            except ConnectionResetError:
                is_complete = False
        assert not is_complete, (turn, len(first) + len(rest), len(whole[path]))
        assert whole[path].startswith(first + rest)
        parts.append(len(first) + len(rest))
        server.start()
        assert api.get(path).body == whole[path]
    figures.note(size=count, kills=kills, bytes_of_each=parts, bytes_of_all={len(body) for body in whole.values()})
    assert kept_files(server) == names
    server.stop()
    assert query(server, "PRAGMA integrity_check") == [("ok",)]


def start_upgrade(server: Server) -> Any:
    """Start a service without waiting for it."""
    arguments = server._arguments("serve", "--listen", f"127.0.0.1:{server.port}")
    return fork_server().start(arguments, server.env, server.home)


def test_kills_during_an_upgrade(fresh_server: FreshServer, full: bool, figures: Figures, seed: int) -> None:
    """A start that is killed while it upgrades leaves the old schema or the new one; the next start ends the upgrade.

    The backup that it makes before is whole or absent.
    """
    count, kills = (20_000, 40) if full else (1_000, 6)
    rng, server = random.Random(seed), fresh_server()
    create_list(server.client(validate=False), count)
    server.stop()
    old = server.home / "old"
    tables = {
        schema: set().union(*(added for version, added in TABLES_OF_VERSION.items() if version <= schema))
        for schema in range(1, len(MIGRATIONS) + 1)
    }
    drops = "; ".join(f"DROP TABLE {name}" for name in sorted(LATER_TABLES))
    query(server, f"{drops}; PRAGMA application_id = 0; PRAGMA user_version = 1")
    shutil.copytree(server.data, old)

    def reset() -> None:
        shutil.rmtree(server.data)
        shutil.copytree(old, server.data)

    started = time.monotonic()
    server.start()
    undisturbed = time.monotonic() - started
    server.stop()
    reset()
    schemas, backup = [], server.data / "backups" / f"before-schema-{len(MIGRATIONS)}.tar.gz"
    for _ in range(kills):
        process = start_upgrade(server)
        time.sleep(rng.uniform(0, undisturbed))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            stream.close()
        ((schema,),) = query(server, "PRAGMA user_version")
        names = {name for (name,) in query(server, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert names & LATER_TABLES == tables[schema]
        assert query(server, "PRAGMA integrity_check") == [("ok",)]
        assert query(server, "SELECT count(*) FROM contact") == [(count,)]
        assert schema == 1 or backup.exists()
        schemas.append(schema)
        if backup.exists():
            check_backup(server, backup, count)
        if schema == 3:
            reset()
    figures.note(size=count, kills=kills, schemas=schemas)
    server.start()
    assert server.client().get("/account").expect(200)["counts"]["contacts"] == count
    server.stop()
    assert [path.name for path in (server.data / "backups").iterdir()] == [backup.name]


def check_backup(server: Server, backup: Path, count: int) -> None:
    """Check that a backup made before an upgrade is whole, by restoring it into an empty directory."""
    target = server.home / "restored"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    shutil.copyfile(server.data / "secret.key", target / "secret.key")
    shutil.copyfile(backup, server.home / "copy.tar.gz")
    data, server.data = server.data, target
    try:
        server.cli("restore", str(server.home / "copy.tar.gz"), timeout=120)
        assert query(server, "SELECT count(*) FROM contact") == [(count,)]
    finally:
        server.data = data
