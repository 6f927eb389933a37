"""Measures how a large audience is frozen: `python -m benchmarks.bench_freezing --contacts N`; not a test, run by hand.

Makes that many contacts, sends a campaign to all of them with a long hold (so that nothing but the freezing is
measured), and writes to contacts all the while: prints how long the freezing took and how long the writes waited. Then
the same for its cancellation.
"""

import argparse
import hashlib
import threading
import time
from pathlib import Path
from typing import Any

import apsw

from benchmarks.bench_import import memory
from tests.kit.client import Client
from tests.kit.crowd import fill
from tests.kit.patience import settled, tell_what_the_host_takes
from tests.kit.server import Server

GOAL_SECONDS, GOAL_MS = 30.0, 100.0
UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}


class Others(threading.Thread):
    """Writes to contacts, one after the other, until it is told to end."""

    def __init__(self, api: Client, contacts: int) -> None:
        super().__init__(daemon=True)
        self._api, self._contacts = api, contacts
        self.ending = threading.Event()
        self.waits: list[float] = []

    def run(self) -> None:
        """Change somebody's name every 10 ms or so, and note how long it took."""
        number = 0
        while not self.ending.wait(0.01):
            number = number * 7_919 % self._contacts + 1
            begun = time.monotonic()
            self._api.patch(f"/contacts/{number}", {"first_name": f"N{number}"}).expect(200)
            self.waits.append((time.monotonic() - begun) * 1000)


def during(server: Server, contacts: int, words: str, act: Any, is_over: Any) -> float:
    """Do something while others write; prints how long it and they took, and returns the seconds."""
    api = server.client(validate=False, keep_alive=True)
    others = Others(server.client(validate=False, keep_alive=True), contacts)
    others.start()
    time.sleep(1)
    begun = time.monotonic()
    act()
    answered = (time.monotonic() - begun) * 1000
    most = 0
    while not is_over(api):
        most = max(most, private(server))
        time.sleep(0.1)
    seconds = time.monotonic() - begun
    others.ending.set()
    others.join()
    waits = sorted(others.waits)
    print(
        f"{words}: {seconds:.1f} s, answered after {answered:.0f} ms; {len(waits)} writes beside it: "
        f"p50 {waits[len(waits) // 2]:.1f} ms, p99 {waits[len(waits) * 99 // 100]:.1f} ms, longest {waits[-1]:.1f} ms; "
        f"at most {most} MB of its own"
    )
    return seconds


def private(server: Server) -> int:
    """Return the megabytes that are the process's own, not mapped from files."""
    return memory(server.pid)["RssAnon"] // 1024


def main() -> None:
    """Run it."""
    tell_what_the_host_takes()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=200_000)
    asked = parser.parse_args()
    server = Server(env=UNLIMITED).set_up()
    begun = time.monotonic()
    fill(server.data / "campanero.db", asked.contacts)
    print(f"{asked.contacts} contacts made in {time.monotonic() - begun:.0f} s")
    with server:
        settled(server.pid)
        api = server.client(validate=False, keep_alive=True)
        body = {"name": "Large", "template_attributes": {"subject": "s", "body": "<p>b</p>"}}
        path = f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"
        asked_for = {"trigger_attributes": {"contact_list_id": 1}, "hold_seconds": 3600}

        def frozen(reader: Client) -> bool:
            return reader.get(path).expect(200)["freezing"] is None

        def ended(reader: Client) -> bool:
            return not reader.get(path).expect(200)["stats"]["pending"]

        seconds = during(
            server, asked.contacts, "frozen", lambda: api.post(f"{path}/send", asked_for).expect(200), frozen
        )
        found = api.get(path).expect(200)
        assert found["audience_count"] == found["stats"]["audience"] == asked.contacts
        during(server, asked.contacts, "cancelled", lambda: api.post(f"{path}/cancel").expect(200), ended)
        print(f"goals: {GOAL_SECONDS:.0f} s for 1,000,000 ({seconds / asked.contacts * 1e6:.1f} s here), "
              f"no write over {GOAL_MS:.0f} ms")  # fmt: skip
        log = server.data / "campanero.db-wal"
        print(f"log: {log.stat().st_size / 1e6:.0f} MB; fingerprint {digest(server.data / 'campanero.db')}")
        server.stop()


def digest(path: Path) -> str:
    """Return a fingerprint of who has a row, to hold runs against each other."""
    here = apsw.Connection(str(path))
    found = hashlib.blake2b(digest_size=6)
    for row in here.execute("SELECT contact_id, recipient, skip_reason FROM message ORDER BY id"):
        found.update(repr(row).encode())
    return found.hexdigest()


if __name__ == "__main__":
    main()
