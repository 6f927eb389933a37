"""Measures flows: `python -m benchmarks.bench_flows [--runs 100000]`; not a test, run by hand.

A flow of wait, split and event in the real service, with everybody's wait over in the same second; then a flow of two
hundred steps, a flow that puts a message into the ledger, and how soon an event reaches its first step.
"""

import argparse
import statistics
import time
from pathlib import Path

import apsw

from benchmarks.bench_import import memory
from tests.kit import bulk_contacts
from tests.kit.server import Server
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit

UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "0"}
SPLIT = {"name": "contact_country", "predicate": "in", "value": ["DE", "AT", "CH"]}
THREE = [
    {"duration": 60},
    {"filters": [SPLIT], "yes": [], "no": []},
    {"event_name": "went_through", "event_data": {"n": 1}, "forward_event_data": True},
]
LONG = [{"event_name": f"step_{n}"} for n in range(1, 201)]
MAIL = [{"subject": "Hi {{ contact.first_name }}", "body": "<p>Your {{ event.sku }}</p>"}]
RUN = (
    "INSERT INTO run (id, account_id, flow_id, version, contact_id, event_data, status, action_id, step_visit_id, "
    "due_at, chain_depth, test, created_at, updated_at) "
    "VALUES (?, 1, ?, 1, ?, '{\"sku\":\"A-1\"}', 'live', 1, ?, ?, 0, 0, ?, ?)"
)
PASSAGE = "INSERT INTO step_visit (id, run_id, flow_id, action_id, test, entered_at) VALUES (?, ?, ?, 1, 0, ?)"


def put(path: Path, flow_id: int, count: int, due_in: float, waits: bool) -> None:
    """Write runs of so many contacts, all due at the same moment."""
    now = int(time.time() * 1000)
    database = apsw.Connection(str(path))
    database.execute("BEGIN")
    due, first = now + int(due_in * 1000), 10_000_000 * flow_id
    numbers = range(first, first + count)
    database.executemany(
        RUN, ((n, flow_id, n - first + 1, n if waits else None, due, now - 60_000, now) for n in numbers)
    )
    if waits:
        database.executemany(PASSAGE, ((n, n, flow_id, now - 60_000) for n in numbers))
    database.execute("UPDATE flow SET entered_count = ? WHERE id = ?", (count, flow_id))
    database.execute("COMMIT")
    database.close()


def left(path: Path, flow_id: int) -> int:
    """Return how many contacts are still in a flow."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        query = "SELECT entered_count - completed_count - exited_count FROM flow WHERE id = ?"
        return int(database.execute(query, (flow_id,)).fetchone()[0])
    finally:
        database.close()


def checked(path: Path, flow_id: int, per_run: int) -> None:
    """Raise unless every contact passed every step once and each event was recorded once."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    passed = dict(db.execute("SELECT n, count(*) FROM (SELECT count(*) AS n FROM step_visit WHERE flow_id = ? "
                               "GROUP BY run_id) GROUP BY n", (flow_id,)))  # fmt: skip
    twice = db.execute("SELECT count(*) FROM (SELECT 1 FROM step_visit WHERE flow_id = ? GROUP BY run_id, action_id "
                         "HAVING count(*) > 1)", (flow_id,)).fetchone()[0]  # fmt: skip
    db.close()
    if twice or list(passed) != [per_run]:
        raise AssertionError((passed, twice))


def timed(server: Server, flow_id: int, count: int, label: str) -> None:
    """Wait until everybody has left a flow, and print its rate and how long other requests waited."""
    path = server.data / "campanero.db"
    api = server.client(validate=False, keep_alive=True)
    while left(path, flow_id) == count:
        time.sleep(0.02)
    started_at, used, answers = time.perf_counter(), cpu_seconds(server.pid), []
    while left(path, flow_id):
        before = time.perf_counter()
        api.post("/events", {"event": "seen", "contact_id": 1}).expect(201)
        answers.append((time.perf_counter() - before) * 1000)
        time.sleep(0.1)
    seconds = time.perf_counter() - started_at
    middle = statistics.median(answers) if answers else 0.0
    print(
        f"{label}: {count} runs in {seconds:.1f} s = {count / seconds:.0f} runs/s, "
        f"{(cpu_seconds(server.pid) - used) / count * 1e6:.0f} µs of processor each; POST /events meanwhile "
        f"median {middle:.1f} ms, worst {max(answers, default=0):.1f} ms; "
        f"{memory(server.pid)['VmHWM'] // 1024} MB at most"
    )


def latency(server: Server, times: int) -> None:
    """Return the time from the response of `POST /events` to the end of the first step, on an idle server."""
    path, api = server.data / "campanero.db", server.client(validate=False, keep_alive=True)
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    took = []
    for number in range(1, times + 1):
        api.post("/events", {"event": "begin", "contact_id": number}).expect(201)
        started_at = time.perf_counter()
        while not database.execute(
            "SELECT 1 FROM event WHERE event = 'begun' AND contact_id = ?", (number,)
        ).fetchone():
            time.sleep(0.001)
        took.append((time.perf_counter() - started_at) * 1000)
        time.sleep(0.05)
    database.close()
    print(f"event to first step at rest: median {statistics.median(took):.0f} ms, worst {max(took):.0f} ms of {times}")


def sent(server: Server, count: int) -> None:
    """Return how fast messages of a flow are accepted by the built-in inbox."""
    database = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    open_rows = "SELECT count(*) FROM message WHERE status IN ('queued', 'sending')"
    started_at, first = time.perf_counter(), database.execute(open_rows).fetchone()[0]
    while database.execute(open_rows).fetchone()[0]:
        time.sleep(0.1)
    database.close()
    if first:
        seconds = time.perf_counter() - started_at
        print(f"its messages: the last {first} of {count} left in {seconds:.1f} s = {first / seconds:.0f} a second")


def main() -> None:
    """Run all measurements one after the other."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    count = parser.parse_args().runs
    with Server(env=UNLIMITED).set_up() as server:
        server.client().get("/account").expect(200)
        server.stop()
        path = server.data / "campanero.db"
        bulk_contacts.insert_contacts(path, count)
        for steps, people, waits, label in (
            (THREE, count, True, "wait-split-event"), (LONG, max(count // 100, 1), False, "200 steps"),
            (MAIL, count // 5, False, "email into the ledger"),
        ):  # fmt: skip
            server.start()
            flow = {"name": label, "trigger": {"event": "nothing"}, "steps": steps, "status": "active"}
            flow_id = server.client(validate=False).post("/flows", flow).expect(201)["id"]
            server.stop()
            put(path, flow_id, people, 3, waits)
            server.start()
            timed(server, flow_id, people, label)
            checked(path, flow_id, len(steps))
            if steps is MAIL:
                sent(server, people)
            server.stop()
        server.start()
        begun = {"trigger": {"event": "begin"}, "steps": [{"event_name": "begun"}], "status": "active"}
        server.client(validate=False).post("/flows", begun).expect(201)
        latency(server, 50)


if __name__ == "__main__":
    main()
