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
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.timeouts import report_stolen_cpu_at_exit, wait_until_idle

GOAL_SECONDS, GOAL_MS = 30.0, 100.0
UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}


class Others(threading.Thread):
    """A thread that writes to contacts, one after the other, until it is stopped."""

    def __init__(self, api: Client, contacts: int) -> None:
        super().__init__(daemon=True)
        self._api, self._contacts = api, contacts
        self.ending = threading.Event()
        self.waits: list[float] = []

    def run(self) -> None:
        """Change a contact's name about every 10 ms, and record how long each change took."""
        number = 0
        while not self.ending.wait(0.01):
            number = number * 7_919 % self._contacts + 1
            started_at = time.monotonic()
            self._api.patch(f"/contacts/{number}", {"first_name": f"N{number}"}).expect(200)
            self.waits.append((time.monotonic() - started_at) * 1000)


def during(server: Server, contacts: int, label: str, act: Any, is_over: Any) -> float:
    """Run an operation while others write; print both times, and return the seconds."""
    api = server.client(validate=False, keep_alive=True)
    others = Others(server.client(validate=False, keep_alive=True), contacts)
    others.start()
    time.sleep(1)
    started_at = time.monotonic()
    act()
    response_ms = (time.monotonic() - started_at) * 1000
    max_private = 0
    while not is_over(api):
        max_private = max(max_private, private(server))
        time.sleep(1)  # each answer counts the rows of the campaign
    seconds = time.monotonic() - started_at
    others.ending.set()
    others.join()
    waits = sorted(others.waits)
    print(
        f"{label}: {seconds:.1f} s, answered after {response_ms:.0f} ms; {len(waits)} writes beside it: "
        f"p50 {waits[len(waits) // 2]:.1f} ms, p99 {waits[len(waits) * 99 // 100]:.1f} ms, longest {waits[-1]:.1f} ms; "
        f"at most {max_private} MB of its own"
    )
    return seconds


def private(server: Server) -> int:
    """Return the private memory of a process in megabytes, without mapped files."""
    return memory(server.pid)["RssAnon"] // 1024


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=200_000)
    options = parser.parse_args()
    server = Server(env=UNLIMITED).set_up()
    started_at = time.monotonic()
    insert_contacts(server.data / "campanero.db", options.contacts)
    print(f"{options.contacts} contacts made in {time.monotonic() - started_at:.0f} s")
    with server:
        wait_until_idle(server.pid)
        api = server.client(validate=False, keep_alive=True)
        body = {"name": "Large", "template_attributes": {"subject": "s", "body": "<p>b</p>"}}
        path = f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"
        asked_for = {"trigger_attributes": {"contact_list_id": 1}, "hold_seconds": 3600}

        def frozen(reader: Client) -> bool:
            return reader.get(path).expect(200)["freezing"] is None

        def ended(reader: Client) -> bool:
            return not reader.get(path).expect(200)["stats"]["pending"]

        seconds = during(
            server, options.contacts, "frozen", lambda: api.post(f"{path}/send", asked_for).expect(200), frozen
        )
        campaign = api.get(path).expect(200)
        assert campaign["audience_count"] == campaign["stats"]["audience"] == options.contacts
        during(server, options.contacts, "cancelled", lambda: api.post(f"{path}/cancel").expect(200), ended)
        print(f"goals: {GOAL_SECONDS:.0f} s for 1,000,000 ({seconds / options.contacts * 1e6:.1f} s here), "
              f"no write over {GOAL_MS:.0f} ms")  # fmt: skip
        log = server.data / "campanero.db-wal"
        print(f"log: {log.stat().st_size / 1e6:.0f} MB; fingerprint {digest(server.data / 'campanero.db')}")
        server.stop()


def digest(path: Path) -> str:
    """Return a digest of the recipients, for comparing runs."""
    database = apsw.Connection(str(path))
    digest_ = hashlib.blake2b(digest_size=6)
    for row in database.execute("SELECT contact_id, recipient, skip_reason FROM message ORDER BY id"):
        digest_.update(repr(row).encode())
    return digest_.hexdigest()


if __name__ == "__main__":
    main()
