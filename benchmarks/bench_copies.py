"""Measures copies: `python -m benchmarks.bench_copies [--megabytes 2000] [--sending]`; not a test, run by hand.

An installation is filled to a size. Then, for a directory and for an S3 server of the tests: its first copy, the one
after 1 % of its pages have changed, and the way back of that one, by the commands, as an operator runs them. With
`--sending` instead: what a first copy and a daily one cost a campaign that is sent beside them; `--prefix "nice -n 9"`
repeats the daily one with these words before the command, in turn with the plain one.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import apsw

from appliance.accounts import accounts
from appliance.core import crypto, data_dir
from appliance.ops.copies import keys
from appliance.storage import transactions
from appliance.storage.database import close_database, open_database
from appliance.storage.migrations import bind_key, migrate
from benchmarks.bench_backup import cost_of_sending, grow
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.s3_server import S3Server
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import report_stolen_cpu_at_exit

_FILES, _FILE_BYTES = 40, 500_000
_CONTACTS = 200_000


class Cost(NamedTuple):
    """Seconds by the clock, and of a processor, which do not depend on what else the machine does, and peak memory.

    `memory` has the files that are mapped into it, too, which `own_memory` has not; both in MB.
    """

    seconds: float
    processor: float
    memory: float
    own_memory: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.1f} s ({self.processor:.1f} s of a processor, {self.memory:,.0f} MB of memory, "
            f"{self.own_memory:,.0f} MB without mapped files)"
        )


def create_installation(directory: Path, megabytes: int) -> None:
    """Create an installation with a database of a size, with some text and some random bytes in each row."""
    data_dir.create(directory)
    open_database(directory / "campanero.db")
    migrate()
    crypto.create_key(directory)
    bind_key()
    transactions.write(lambda: accounts.create("Acme"))
    close_database()
    grow(directory / "campanero.db", megabytes, 100_000)
    (directory / "attachments").mkdir(exist_ok=True)
    for number in range(_FILES):
        (directory / "attachments" / f"{number}.pdf").write_bytes(os.urandom(_FILE_BYTES))


def change_pages(path: Path, part: float) -> None:
    """Change rows on a part of the pages of a database, spread over the file."""
    database = apsw.Connection(str(path))
    database.execute("PRAGMA synchronous = off").fetchall()
    page_count = int(database.execute("PRAGMA page_count").get)
    last_id = int(database.execute("SELECT max(id) FROM event").get)
    wanted = int(page_count * part)
    step = max(1, last_id // wanted)
    database.execute("UPDATE event SET quiet = 1 - quiet WHERE id % ? = 0", (step,)).fetchall()
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    database.close()


def command(env: dict[str, str], *words: str) -> "Cost":
    """Run a command of Campanero, and return what it cost."""
    started_at, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = [sys.executable, "-m", "appliance", *words]
    peak = own_peak = 0.0
    with subprocess.Popen(
        arguments, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # The kernel counts the memory of this process, too, in the `ru_maxrss` of its child.
        while process.poll() is None:
            memory, own_memory = read_memory(process.pid)
            peak, own_peak = max(peak, memory), max(own_peak, own_memory)
            time.sleep(0.05)
        output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{words}: {errors}")
    print(f"    {output.splitlines()[0]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.monotonic() - started_at, processor, peak, own_peak)


def read_memory(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process in MB, with and without mapped files; zeros once it has ended."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return 0.0, 0.0
    sizes = (lines.get(name, "0").split()[0] for name in ("VmRSS", "RssAnon"))
    memory, own_memory = (int(size) / 1024 for size in sizes)
    return memory, own_memory


def measure(name: str, env: dict[str, str], data: Path, scratch: Path, key_file: Path) -> None:
    """Make and restore the copies of a store, and print the seconds."""
    store, size = env["CAMPANERO_COPIES__STORE"], (data / "campanero.db").stat().st_size
    first = command(env, "backup", "--to", "--data", str(data))
    change_pages(data / "campanero.db", 0.01)
    second = command(env, "backup", "--to", "--data", str(data))
    words = ["restore", store, "--at", "latest", "--identity", str(key_file), "--data", str(scratch)]
    back = command(env, *words)
    print(f"  {name}: first copy    {first}, {size / 1e6 / first.seconds:,.0f} MB/s\n"
          f"        1 % changed   {second} (goal: below 60 s)\n"
          f"        restore       {back} (goal: below 180 s)", flush=True)  # fmt: skip


def measure_sending(megabytes: int, prefixes: list[str], rounds: int) -> None:
    """Print what a first copy and those of 1 % changed cost a campaign that is sent beside them."""
    with SmtpServer() as smtp, Server(relay=smtp.port, env=NO_RATE_LIMITS).set_up() as server:
        server.set_postal_address().stop()
        database = server.data / "campanero.db"
        insert_contacts(database, _CONTACTS)
        grow(database, megabytes, _CONTACTS)
        store = server.home / "store"
        store.mkdir()
        server.env |= {
            "CAMPANERO_COPIES__STORE": store.as_uri(), "CAMPANERO_COPIES__RECIPIENTS": keys.create_identity()[1],
            "CAMPANERO_COPIES__EVERY": "0s",
        }  # fmt: skip
        runs = [("first copy", ""), *(("1 % changed", prefix) for prefix in ["", *prefixes] * rounds)]
        for name, prefix in runs:
            server.start()
            words = " ".join((name, prefix)).rstrip()
            cost_of_sending(server, words, ["backup", "--to"], goal=0.15, prefix=tuple(prefix.split()))
            server.stop()
            change_pages(database, 0.01)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2_000)
    parser.add_argument("--data", type=Path, help="an installation of an earlier call that was kept, which is changed")
    parser.add_argument("--store", choices=["file", "s3"], help="only this kind of store")
    parser.add_argument("--sending", action="store_true", help="measure a send beside copies, in a directory")
    parser.add_argument("--prefix", action="append", default=[], help="words before the command, with --sending")
    parser.add_argument("--rounds", type=int, default=1, help="of daily copies, with --sending")
    options = parser.parse_args()
    report_stolen_cpu_at_exit()
    if options.sending:
        measure_sending(options.megabytes, options.prefix, options.rounds)
        return
    with tempfile.TemporaryDirectory(prefix="campanero-bench-") as place, S3Server() as s3:
        root = Path(place)
        data = options.data or root / "data"
        if options.data is None:
            create_installation(data, options.megabytes)
        crypto.load_key(data)
        identity, recipient = keys.create_identity()
        (root / "key.txt").write_text(keys.format_recovery_key(identity))
        (root / "store").mkdir()
        print(
            f"{(data / 'campanero.db').stat().st_size / 1e6:,.0f} MB, and {_FILES * _FILE_BYTES / 1e6:.0f} MB of files"
        )
        recipients = {"CAMPANERO_COPIES__RECIPIENTS": recipient}
        for name, env in (
            ("file", {"CAMPANERO_COPIES__STORE": (root / "store").as_uri()}),
            ("s3", s3.env),
        ):
            if options.store in (None, name):
                measure(name, env | recipients, data, root / f"new-{name}", root / "key.txt")


if __name__ == "__main__":
    main()
