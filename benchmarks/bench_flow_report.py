"""Measures the report and the lists of a large flow: `python -m benchmarks.bench_flow_report [--people 250000]`.

Run by hand. Runs, passages and messages are written as the runner leaves them; then all is asked for over HTTP.
"""

import argparse
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.kit.client import Client
from tests.kit.server import Server

STEPS: list[dict[str, Any]] = [
    {"duration": 86_400},
    {"filters": [{"name": "contact_email", "predicate": "present"}], "yes": [{"subject": "s", "body": "<p>x</p>"}]},
    {"duration": 86_400},
]
# Of four people one waits in the first step, one was taken out there, two have been through
RUNS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :people)
INSERT INTO run (account_id, flow_id, version, event_data, status, exit_reason, action_id, due_at, chain_depth, test,
created_at, updated_at) SELECT 1, :flow, 1, '{}', CASE i % 4 WHEN 0 THEN 'live' WHEN 1 THEN 'exited' ELSE 'completed'
END, iif(i % 4 = 1, 'taken_out', NULL), iif(i % 4 < 2, 1, 4), iif(i % 4 = 0, :now + 86400000, NULL), 0, 0,
:now - (:people - i) * (5184000000 / :people), :now FROM n
"""
PASSAGES = """
INSERT INTO step_visit (run_id, flow_id, action_id, test, entered_at, left_at, outcome, reason)
SELECT r.id, :flow, s.value, 0, r.created_at, iif(r.status = 'live', NULL, r.updated_at),
CASE r.status WHEN 'live' THEN NULL WHEN 'exited' THEN 'exited' ELSE iif(s.value = 2, 'yes', 'on') END, r.exit_reason
FROM run r, json_each('[1, 2, 3, 4]') s WHERE r.flow_id = :flow AND (r.status = 'completed' OR s.value = 1)
"""
MESSAGES = """
INSERT INTO message (account_id, flow_id, run_id, step_id, channel, status, source_type, transactional, test, provider,
attempts, uncertain_count, opened_at, created_at, updated_at)
SELECT 1, :flow, id, 3, 'email', 'delivered', 'flow', 0, 0,
'capture', 1, 0, iif(id % 3, created_at, NULL), created_at, updated_at FROM run
WHERE flow_id = :flow AND status = 'completed'
"""
COUNTS = """
UPDATE flow SET entered_count = (SELECT count(*) FROM run), completed_count = (SELECT count(*) FROM run WHERE
status = 'completed'), exited_count = (SELECT count(*) FROM run WHERE status = 'exited') WHERE id = :flow
"""


def grow(path: Path, flow: int, people: int) -> None:
    """Write runs of so many contacts through a flow."""
    values = {"flow": flow, "people": people, "now": int(time.time() * 1000)}
    with closing(sqlite3.connect(path)) as books:
        for sql in (RUNS, PASSAGES, MESSAGES, COUNTS):
            books.execute(sql, values)
        books.commit()


def measure(api: Client, name: str, path: str, **query: Any) -> None:
    """Request three times, and print the fastest time."""
    best_seconds = 1e9
    for _ in range(3):
        started_at = time.perf_counter()
        answer = api.get(path, **query)
        best_seconds = min(best_seconds, time.perf_counter() - started_at)
        assert answer.status == 200, answer.text
    print(f"{name:45} {best_seconds * 1000:7.0f} ms  {answer.headers.get('X-Total-Count', '')}")


def main() -> None:
    """Print how long each response takes."""
    options = argparse.ArgumentParser()
    options.add_argument("--people", type=int, default=250_000)
    people = options.parse_args().people
    with Server().set_up() as server:
        api = server.client()
        flow = api.post("/flows", {"name": "Large", "steps": STEPS}).expect(201)["id"]
        grow(server.data / "campanero.db", flow, people)
        path = f"/flows/{flow}"
        # The first one of each counts; later ones may be what was counted a moment ago
        for period in ("all", "30d", "7d"):
            started_at = time.perf_counter()
            api.get(f"{path}/report", range=period).expect(200)
            print(f"report {period:38} {(time.perf_counter() - started_at) * 1000:7.0f} ms")
        measure(api, "the same again", f"{path}/report")
        measure(api, "list of flows", "/flows")
        for query in ({}, {"status": "live"}, {"step": 1, "outcome": "waiting", "test": "false"}, {"step": 3},
                      {"step": 3, "message": "opened"}, {"step": 3, "page": 1000}, {"status": "exited"}):  # fmt: skip
            measure(api, f"runs {query}", f"{path}/runs", **query)
        for query in ({}, {"status": "delivered"}, {"test": "false"}, {"status": "queued"}):
            measure(api, f"messages of the flow {query}", "/messages", flow_id=flow, **query)
        started_at = time.perf_counter()
        moved_count = api.post(f"{path}/runs/take_out", {"step": 1}).expect(200)["changed"]
        print(f"take out {moved_count:<36} {(time.perf_counter() - started_at) * 1000:7.0f} ms")
        print(server.cli("doctor", expect=0).stdout.split("flows:")[-1].splitlines()[0])


if __name__ == "__main__":
    main()
