"""Measures backups: `python -m benchmarks.bench_backup [--megabytes 2000]`; not a test, run by hand.

A database is filled to a size. Then: a backup of it at rest; one in the middle of a send, and what it cost that send
(the rate while it was made against the rate before it, in one campaign); the way back; and an upgrade from the first
schema, which backs up first.
"""

import argparse
import os
import subprocess
import time
from pathlib import Path

import apsw

from tests.kit.bulk_contacts import insert_contacts
from tests.kit.client import Client
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import report_stolen_cpu_at_exit

_SETTLE_SECONDS, _MAX_IDLE_TICKS = 3, 30
_EVENT = """
INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, updated_at)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
SELECT 1, i % ? + 1, 'page_viewed', json_object('page', '/shop/' || (i * 7919 % 10007), 'words', hex(randomblob(60))),
       0, 0, 1, 0, ? + i, ? + i FROM n
"""


def grow(path: Path, megabytes: int, people: int) -> None:
    """Add events until a database has a size, as after years of use."""
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -400000").fetchall()
    now = int(time.time() * 1000)
    while path.stat().st_size < megabytes * 1e6:
        database.execute(_EVENT, (100_000, people, now, now)).fetchall()
    database.execute("PRAGMA journal_mode = wal").fetchall()
    database.close()


def rate(api: Client, path: str, seconds: float, until: "subprocess.Popen[bytes] | None" = None) -> float:
    """Return the messages a second that a campaign sends, for some seconds or until a process ends."""
    started_at, before = time.monotonic(), sent(api, path)
    while time.monotonic() < started_at + seconds and (until is None or until.poll() is None):
        time.sleep(0.05)
    return (sent(api, path) - before) / (time.monotonic() - started_at)


def sent(api: Client, path: str) -> int:
    """Return the number of sent messages of a campaign."""
    return int(api.get(path).expect(200)["stats"]["sent"])


def settle(pid: int) -> None:
    """Write all pages of files to disk, and wait until a service has ended what it does at its start.

    Otherwise a send begins beside the check of the database and the pages of its creation, and is slow without a copy.
    """
    os.sync()
    busy = _read_ticks(pid)
    time.sleep(_SETTLE_SECONDS)
    while (ticks := _read_ticks(pid)) - busy > _MAX_IDLE_TICKS:
        busy = ticks
        time.sleep(_SETTLE_SECONDS)


def _read_ticks(pid: int) -> int:
    """Return the processor time of a process in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def cost_of_sending(server: Server, name: str, words: list[str], goal: float, prefix: tuple[str, ...] = ()) -> None:
    """Run a command during a send, and print by how much that is slower meanwhile; `goal` is the share.

    `prefix` are words before the command, such as `nice -n 9`.
    """
    assert server.process is not None
    settle(server.process.pid)
    api = server.client(validate=False, keep_alive=True)
    content = {
        "subject": "News for {{ first_name }}",
        "body": f"<p>Dear {{{{ first_name }}}}</p>{'<p>Bread</p>' * 200}",
    }
    number = api.post("/campaigns", {"name": "Measured"}).expect(201)["id"]
    order = {
        "trigger_attributes": {"contact_list_id": 1},
        "template_attributes": {**content, "from_email": "ana@bakery.example"},
    }
    api.post(f"/campaigns/{number}/send", order).expect(200)
    path = f"/campaigns/{number}"
    api.wait(path, lambda row: not row["freezing"] and row["stats"]["sent"] > 5_000, timeout=300)
    alone = rate(api, path, 8)
    started_at = time.monotonic()
    making = subprocess.Popen([*prefix, *server._command(*words)], env=server.env, cwd=server.home)
    meanwhile = rate(api, path, 600, making)
    took = time.monotonic() - started_at
    after = rate(api, path, 8)
    usual = (alone + after) / 2
    rates = f"{alone:,.0f}/s before, {meanwhile:,.0f}/s meanwhile, {after:,.0f}/s after"
    print(f"  {name} in a send: {took:6.1f} s; {rates}: "
          f"{1 - meanwhile / usual:.0%} less (goal: at most {goal:.0%})", flush=True)  # fmt: skip
    api.post(f"{path}/cancel").expect(200)


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2_000)
    parser.add_argument("--people", type=int, default=100_000)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")
    with SmtpServer() as smtp, Server(relay=smtp.port, env=NO_RATE_LIMITS).set_up() as server:
        server.set_postal_address().stop()
        database = server.data / "campanero.db"
        insert_contacts(database, options.people)
        grow(database, options.megabytes, options.people)
        size = database.stat().st_size / 1e6
        first, second = server.home / "first.tar.gz", server.home / "second.tar.gz"
        started_at = time.monotonic()
        server.cli("backup", str(first), timeout=1200)
        took = time.monotonic() - started_at
        packed = first.stat().st_size / 1e6
        print(f"  at rest:   {took:6.1f} s for {size:,.0f} MB, {size / took:,.0f} MB/s, packed {packed:,.0f} MB")
        server.start()
        cost_of_sending(server, "backup", ["backup", str(second)], goal=0.3)
        server.stop()
        started_at = time.monotonic()
        server.cli("restore", str(first), "--force", timeout=1200)
        print(f"  restored:  {time.monotonic() - started_at:6.1f} s, with a backup of what was there")
        connection = apsw.Connection(str(database))
        connection.execute("DROP TABLE restoration; DROP TABLE installation; PRAGMA application_id = 0")
        connection.execute("PRAGMA user_version = 1")
        connection.close()
        started_at = time.monotonic()
        server.start(timeout=1200)
        print(f"  upgraded:  {time.monotonic() - started_at:6.1f} s from start to ready, with its backup")
        server.stop()


if __name__ == "__main__":
    main()
