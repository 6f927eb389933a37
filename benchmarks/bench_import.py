"""Measures imports: `python -m benchmarks.bench_import --rows 1000000`; not a test, run by hand.

The same rows go through `sqlite3 .import` into one uniquely indexed table and, as a file over HTTP, into the real
service with membership of a list, evidence of consent and search index. A client reads pages of contacts and another
writes contacts meanwhile; what they wait is what people would feel.
"""

import argparse
import random
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.timeouts import report_stolen_cpu_at_exit, wait_until_idle
from tests.kit.uploads import upload

UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}


def make(path: Path, rows: int) -> None:
    """Write a file of contacts with addresses in random order."""
    pick = random.Random(1)
    with path.open("w") as file:
        file.write("email,first_name,last_name,city,plan\n")
        for _ in range(rows):
            name = f"{pick.choice('abcdefghijklmnop')}{pick.getrandbits(36):x}"
            file.write(f"{name}@example{pick.randint(0, 500)}.org,Ann{pick.randint(0, 999)},"
                       f"Adler{pick.randint(0, 9999)},Berlin,pro\n")  # fmt: skip


def floor(path: Path, home: Path) -> float:
    """Return the seconds that `sqlite3 .import` takes for the same rows."""
    begin = time.perf_counter()
    table = "CREATE TABLE person (email TEXT UNIQUE, first_name TEXT, last_name TEXT, city TEXT, plan TEXT)"
    command = ["sqlite3", str(home / "floor.db"), table, ".mode csv", f".import --skip 1 {path} person"]
    subprocess.run(command, check=True)
    return time.perf_counter() - begin


class Meanwhile:
    """Another client at work, and how long each of its requests takes."""

    def __init__(self, api: Client, pause: float, what: Any) -> None:
        self.times: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(api, pause, what))
        self._thread.start()

    def _run(self, api: Client, pause: float, what: Any) -> None:
        while not self._stop.wait(pause):
            begin = time.perf_counter()
            what(api)
            self.times.append((time.perf_counter() - begin) * 1000)

    def end(self) -> tuple[float, float, float]:
        """Return p50, p99 and the longest, in milliseconds."""
        self._stop.set()
        self._thread.join()
        self.times.sort()
        return self.times[len(self.times) // 2], self.times[int(len(self.times) * 0.99)], self.times[-1]


def memory(pid: int) -> dict[str, int]:
    """Return the kilobytes of a process by kind: private (`RssAnon`), and mapped from files (`RssFile`)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: int(text.split()[0]) for name, _, text in (line.partition(":") for line in lines) if "kB" in text}


def run(server: Server, path: Path, label: str, rows: int, base: float) -> None:
    """Import a file and print the result."""
    api = server.client(validate=False, keep_alive=True)
    reader = Meanwhile(
        server.client(validate=False, keep_alive=True), 0.02, lambda client: client.get("/contacts", limit=50)
    )
    writer = Meanwhile(
        server.client(validate=False, keep_alive=True), 0.05,
        lambda client: client.post("/contacts", {"email": f"w{time.time_ns()}@example.com"}),
    )  # fmt: skip
    begin = time.perf_counter()
    number = upload(api, path.read_bytes(), list_ids=[1], consent_source="bench").expect(201)["id"]
    phases: dict[str, float] = {}
    private = 0
    while True:
        job = api.get(f"/imports/{number}").json
        phases.setdefault(job["phase"] or job["status"], time.perf_counter() - begin)
        private = max(private, memory(server.pid)["RssAnon"])
        if job["status"] not in ("pending", "processing"):
            break
        time.sleep(0.05)
    took = time.perf_counter() - begin
    applying = took - phases.get("applying", took)
    page, write = reader.end(), writer.end()
    summary = {name: job[name] for name in ("status", "created", "updated", "failed")}
    print(f"{label}: {summary}")
    print(f"  {rows / took:,.0f} rows/s in all, {rows / applying:,.0f} applying; {base / took:.2f} of .import")
    print(f"  page of contacts p50 {page[0]:.1f}, p99 {page[1]:.1f}, longest {page[2]:.0f} ms (goal: p99 25)")
    print(f"  upsert of another p50 {write[0]:.1f}, p99 {write[1]:.1f}, longest {write[2]:.0f} ms (goal: longest 100)")
    print(f"  private memory at most {private / 1024:.0f} MB (goal 300); "
          f"with mapped files {memory(server.pid)['VmHWM'] / 1024:.0f} MB")  # fmt: skip


def main() -> None:
    """Measure an import of new contacts, then an update of the same contacts."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--new-only", action="store_true", help="do not import the changed rows")
    options = parser.parse_args()
    if shutil.which("sqlite3") is None:
        parser.error("the measure is `sqlite3 .import`: install sqlite3")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "people.csv")
        make(path, options.rows)
        base = floor(path, Path(name))
        print(f".import: {options.rows / base:,.0f} rows/s")
        with Server(env=UNLIMITED).set_up() as server:
            server.client().post("/lists", {"name": "Everybody"}).expect(201)
            wait_until_idle(server.pid)
            run(server, path, "new", options.rows, base)
            if not options.new_only:
                path.write_text(path.read_text().replace(",Ann", ",Bob"))
                run(server, path, "changed", options.rows, base)


if __name__ == "__main__":
    main()
