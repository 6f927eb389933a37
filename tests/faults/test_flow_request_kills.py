"""Kills while the requests of a flow are made: each run gets its response once, and a repeated request is the same."""

import random
from collections import defaultdict
from pathlib import Path

from tests.faults.conftest import Figures, StartRelayed
from tests.faults.test_flow_kills import Rows
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list
from tests.kit.webhook_receiver import Receiver

CONNECTIONS = 4  # of an account


def test_kills_while_requests_are_made(
    relayed: StartRelayed, clock: TestClock, tmp_path: Path, full: bool, figures: Figures, seed: int
) -> None:
    """However often the process dies, each run takes its branch once, and repeats have the same key and body."""
    count = 2_000 if full else 200
    server = relayed(clock=clock)
    server.stop()
    server.env |= {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}
    server.start()
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, count)
    filters = [{"name": "contact_list", "predicate": "eq", "value": list_id}]
    segment = api.post("/segments", {"name": "All", "filters": filters}).expect(201)["id"]
    with Receiver(tmp_path) as receiver:
        receiver.respond_with(200, '{"score": 3}', seconds=0.005)
        steps = [
            {"type": "http_request", "url": receiver.url, "payload": {"to": "{{ email }}"}, "timeout": 259_200,
             "save_to_contact": {"score": "score"}, "yes": [{"event_name": "asked"}], "no": [{"event_name": "failed"}]},
        ]  # fmt: skip
        flow = api.post("/flows", {"name": "Ask", "trigger": {"event": "started"}, "steps": steps}).expect(201)["id"]
        api.post(f"/flows/{flow}/activate").expect(200)
        api.post(f"/flows/{flow}/enroll", {"segment_id": segment}).expect(200)
        for bound in sorted(random.Random(seed).sample(range(5, count * 3 // 4), 3)):
            rows.wait_for(bound, "run WHERE status = 'completed'")
            server.kill()
            server.start()
        rows.wait_for(count, "run WHERE status = 'completed'")
        requests = receiver.requests
    bodies = defaultdict(set)
    for request in requests:
        bodies[request.headers["idempotency-key"]].add(request.body)
    assert len(bodies) == count and {len(same) for same in bodies.values()} == {1}
    copies = len(requests) - count
    figures.note(size=count, kills=3, copies=copies)
    # What was in flight, or had no stored result, when the process died.
    assert 0 <= copies <= 3 * 2 * CONNECTIONS
    assert rows.query("SELECT outcome, reason, count(*) FROM step_visit WHERE action_id = 1 GROUP BY 1, 2") == [
        ("yes", None, count)
    ]
    assert rows.count("event WHERE event = 'asked'") == count and rows.count("flow_request") == 0
    assert rows.count("contact WHERE json_extract(data, '$.score') = 3") == count
