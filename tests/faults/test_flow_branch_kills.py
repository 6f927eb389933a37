"""Kills while runs go round in loops or wait for events: each takes its branch once, and nothing is done twice."""

import random
from typing import Any

from tests.faults.conftest import Figures, StartRelayed
from tests.faults.test_flow_kills import CONNECTIONS, Rows
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list
from tests.kit.smtp import SmtpServer

# Each round takes an hour. The steps get the ids 1 (wait), 2 (split, with the keys b3 and b4), 5, 6 and 7 (jump).
LOOP = [
    {"id": 90, "duration": 3600},
    {"type": "random_split", "branches": [
        {"share": 50, "steps": [{"subject": "Again", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}]},
        {"share": 50, "steps": [{"event_name": "quiet_round"}]},
    ]},
    {"type": "go_to", "step_id": 90, "max_jumps": 2},
]  # fmt: skip
WAIT = [
    {"type": "wait_until", "until": "event", "event_name": "order_paid", "timeout": 7 * 86_400,
     "yes": [{"event_name": "thanked"}], "no": [{"event_name": "missed"}]},
]  # fmt: skip


def test_kills_during_jumps_back(
    relayed: StartRelayed, smtp_server: SmtpServer, clock: TestClock, full: bool, figures: Figures, seed: int,
) -> None:  # fmt: skip
    """Each run makes three rounds on one branch, with one message a round, except copies of uncertain ones."""
    count = 2_000 if full else 200
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, count)
    filters = [{"name": "contact_list", "predicate": "eq", "value": list_id}]
    segment = api.post("/segments", {"name": "All", "filters": filters}).expect(201)["id"]
    flow = api.post("/flows", {"name": "Loop", "trigger": {"event": "started"}, "steps": LOOP}).expect(201)["id"]
    api.post(f"/flows/{flow}/activate").expect(200)
    api.post(f"/flows/{flow}/enroll", {"segment_id": segment}).expect(200)
    rows.wait_for(count, "run WHERE step_visit_id NOT NULL")

    rng, uncertain_count = random.Random(seed), 0
    for number in range(1, 4):
        clock.advance(hours=1, minutes=1)
        waits = "step_visit WHERE action_id = 1 AND left_at IS NOT NULL"
        rows.wait_for(count * (number - 1) + rng.randrange(1, count * 3 // 4), waits)
        server.kill()
        uncertain_count += rows.count("message WHERE status = 'sending'")
        server.start()
        rows.wait_for(count * number, waits)
        done = "step_visit WHERE action_id = 7 AND left_at IS NOT NULL"
        rows.wait_for(count * number, done)
        # A second lost reply of the same message would hold it for a user (P3).
        rows.wait_for(rows.count("message"), "message WHERE status = 'sent'")
    rows.wait_for(count, "run WHERE status = 'completed'")
    emailed = rows.count("message")
    rows.wait_for(emailed, "message WHERE status = 'sent'")

    outcomes = rows.query("SELECT action_id, outcome, count(*) FROM step_visit WHERE action_id IN (1, 7) GROUP BY 1, 2")
    assert sorted(outcomes) == [(1, "on", 3 * count), (7, "jumped", 2 * count), (7, "on", count)]
    branches = rows.query(
        "SELECT count(DISTINCT outcome), count(*) FROM step_visit WHERE action_id = 2 GROUP BY run_id"
    )
    assert branches == [(1, 3)] * count
    rounds = rows.query("SELECT DISTINCT count(*), min(round), max(round) FROM message GROUP BY run_id")
    assert rounds == [(3, 0, 2)]
    quiet = rows.count("event WHERE event = 'quiet_round'")
    copies = len(smtp_server.messages) - emailed
    figures.note(size=count, kills=3, emailed=emailed, quiet=quiet, copies=copies, uncertain=uncertain_count)
    assert emailed + quiet == 3 * count and emailed > count // 2 and quiet > count // 2
    assert 0 <= copies <= 3 * 2 * CONNECTIONS


def test_kills_while_events_end_waits(
    relayed: StartRelayed, clock: TestClock, full: bool, figures: Figures, seed: int
) -> None:
    """Of contacts that wait for an order, each that orders goes on once, and each other one once after the limit."""
    count = 2_000 if full else 300
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, count)
    contacts = [contact["id"] for contact in _list_all(api, list_id)]
    filters = [{"name": "contact_list", "predicate": "eq", "value": list_id}]
    segment = api.post("/segments", {"name": "All", "filters": filters}).expect(201)["id"]
    flow = api.post("/flows", {"name": "Wait", "trigger": {"event": "started"}, "steps": WAIT}).expect(201)["id"]
    api.post(f"/flows/{flow}/activate").expect(200)
    api.post(f"/flows/{flow}/enroll", {"segment_id": segment}).expect(200)
    rows.wait_for(count, "run WHERE step_visit_id NOT NULL")

    clock.advance(hours=2)
    rng = random.Random(seed)
    buyers, thanked_at_kills = contacts[: count * 2 // 3], []
    for start in range(0, len(buyers), 100):
        events = [{"event": "order_paid", "contact_id": number} for number in buyers[start : start + 100]]
        api.post("/events/batch", {"events": events}).expect(200)
        rows.wait_for(rng.randrange(start, start + len(events)), "event WHERE event = 'thanked'")
        server.kill()
        thanked_at_kills.append(rows.count("event WHERE event = 'thanked'"))
        server.start()
    rows.wait_for(len(buyers), "run WHERE status = 'completed'")
    clock.advance(days=8)
    rows.wait_for(count, "run WHERE status = 'completed'")

    visits = rows.query(
        "SELECT outcome, reason, count(*), count(DISTINCT run_id) FROM step_visit WHERE action_id = 1 GROUP BY 1, 2"
    )
    others = count - len(buyers)
    assert sorted(visits) == [("no", "timed_out", others, others), ("yes", None, len(buyers), len(buyers))]
    ends = rows.query(
        "SELECT event, count(*), count(DISTINCT contact_id) FROM event WHERE event IN ('thanked', 'missed') GROUP BY 1"
    )
    assert sorted(ends) == [("missed", others, others), ("thanked", len(buyers), len(buyers))]
    figures.note(size=count, kills=len(thanked_at_kills), thanked_at_kills=thanked_at_kills)


def _list_all(api: Client, list_id: int) -> list[dict[str, Any]]:
    """Return all contacts of a list."""
    contacts: list[dict[str, Any]] = []
    page = 1
    while batch := api.get("/contacts", list_id=list_id, page=page, limit=100).expect(200):
        contacts += batch
        page += 1
    return contacts


def test_kills_while_a_colleague_is_notified(
    relayed: StartRelayed, smtp_server: SmtpServer, clock: TestClock, figures: Figures, seed: int
) -> None:
    """However often the process dies, 20 contacts of an hour are announced, each in one email, and all go on."""
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, 200)
    filters = [{"name": "contact_list", "predicate": "eq", "value": list_id}]
    segment = api.post("/segments", {"name": "All", "filters": filters}).expect(201)["id"]
    steps = [{"duration": 3600}, {"type": "contact_update", "data_merge": {"seen": 1}},
             {"type": "notify", "user_id": 1, "note": "Call <b>them</b>"}]  # fmt: skip
    flow = api.post("/flows", {"name": "Tell", "trigger": {"event": "started"}, "steps": steps}).expect(201)["id"]
    api.post(f"/flows/{flow}/activate").expect(200)
    api.post(f"/flows/{flow}/enroll", {"segment_id": segment}).expect(200)
    rows.wait_for(200, "run WHERE step_visit_id NOT NULL")
    clock.advance(hours=1, minutes=1)
    rng, notices = random.Random(seed), []
    for bound in sorted(rng.sample(range(1, 150), 3)):
        rows.wait_for(bound, "run WHERE status = 'completed'")
        server.kill()
        notices.append(rows.count("message WHERE source_type = 'system'"))
        server.start()
    rows.wait_for(200, "run WHERE status = 'completed'")
    assert sorted(rows.query("SELECT outcome, reason, count(*) FROM step_visit WHERE action_id = 3 GROUP BY 1, 2")) == [
        ("on", None, 20),
        ("skipped", "too_many_notices", 180),
    ]
    assert rows.count("message WHERE source_type = 'system'") == 20
    smtp_server.wait_until(lambda: len(smtp_server.messages) >= 20, "the emails", 60)
    assert "Call &lt;b&gt;them&lt;/b&gt;" in smtp_server.messages[0].html()
    figures.note(kills=3, notices_at_kills=notices, emails=len(smtp_server.messages))


def test_kills_while_contacts_wait_to_enter(
    relayed: StartRelayed, clock: TestClock, figures: Figures, seed: int
) -> None:
    """However often the process dies, at most 100 contacts begin in each hour, and all of them do in the end."""
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, 250)
    filters = [{"name": "contact_list", "predicate": "eq", "value": list_id}]
    segment = api.post("/segments", {"name": "All", "filters": filters}).expect(201)["id"]
    trigger = {"event": "started", "data": {"max_per_hour": 100}}
    steps = [{"type": "tag_add", "tag": "seen"}]
    flow = api.post("/flows", {"name": "Cap", "trigger": trigger, "steps": steps}).expect(201)["id"]
    api.post(f"/flows/{flow}/activate").expect(200)
    api.post(f"/flows/{flow}/enroll", {"segment_id": segment}).expect(200)
    rng, begun = random.Random(seed), []
    for bound in (100, 200, 250):
        rows.wait_for(rng.randrange(bound - 90 if bound < 250 else 201, bound), "step_visit")
        server.kill()
        server.start()
        rows.wait_for(bound, "step_visit")
        begun.append(rows.count("step_visit"))
        clock.advance(hours=1)
    rows.wait_for(250, "run WHERE status = 'completed'")
    assert begun == [100, 200, 250] and rows.count("run") == 250
    figures.note(kills=3, begun=begun)


def test_kills_while_the_winner_of_a_test_is_taken(
    relayed: StartRelayed, clock: TestClock, figures: Figures, seed: int
) -> None:
    """Each run takes one branch; from the choice on all take the winner, whatever is killed."""
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, 300)
    filters = [{"name": "contact_list", "predicate": "eq", "value": list_id}]
    segment = api.post("/segments", {"name": "All", "filters": filters}).expect(201)["id"]
    split = {"type": "random_split", "metric": "clicks", "decided_by": "person",
             "branches": [{"share": 50}, {"share": 50}]}  # fmt: skip
    steps = [{"duration": 3600}, {"type": "contact_update", "data_merge": {"seen": 1}}, split]
    flow = api.post("/flows", {"name": "Test", "trigger": {"event": "started"}, "steps": steps}).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    api.post(f"/flows/{flow['id']}/enroll", {"segment_id": segment}).expect(200)
    rows.wait_for(300, "run WHERE step_visit_id NOT NULL")
    clock.advance(hours=1, minutes=1)
    rng = random.Random(seed)
    rows.wait_for(rng.randrange(20, 120), "run WHERE status = 'completed'")
    server.kill()
    server.start()
    split_id, winner = flow["steps"][2]["id"], flow["steps"][2]["branches"][1]["key"]
    api.post(f"/flows/{flow['id']}/winner", {"step": split_id, "branch": winner}).expect(200)
    server.kill()
    server.start()
    rows.wait_for(300, "run WHERE status = 'completed'")
    visits = rows.query(f"SELECT count(*), count(DISTINCT run_id) FROM step_visit WHERE action_id = {split_id}")
    assert visits == [(300, 300)]
    reasons = dict(
        rows.query(
            f"SELECT coalesce(reason, 'drawn'), count(*) FROM step_visit WHERE action_id = {split_id} GROUP BY 1"
        )
    )
    taken = rows.query(f"SELECT DISTINCT outcome FROM step_visit WHERE action_id = {split_id} AND reason = 'winner'")
    first_taken = rows.query("SELECT min(id) FROM step_visit WHERE reason = 'winner'")[0][0]
    last_drawn = rows.query(f"SELECT max(id) FROM step_visit WHERE action_id = {split_id} AND reason IS NULL")[0][0]
    assert not taken or (taken == [(winner,)] and first_taken > last_drawn)
    figures.note(size=300, kills=2, **reasons)


def test_kills_while_contacts_are_held_out(
    relayed: StartRelayed, clock: TestClock, figures: Figures, seed: int
) -> None:
    """Each contact enters once or is recorded once as held out, and the groups of a repeated trigger are the same."""
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, 400)
    contacts = [contact["id"] for contact in _list_all(api, list_id)]
    trigger = {"event": "went_in", "data": {"holdout": 0.4, "frequency": "once"}}
    flow = api.post("/flows", {"name": "Held", "trigger": trigger, "steps": [{"duration": 60}]}).expect(201)["id"]
    api.post(f"/flows/{flow}/activate").expect(200)
    rng = random.Random(seed)
    for turn in range(2):
        for start in range(0, 400, 100):
            events = [{"event": "went_in", "contact_id": number} for number in contacts[start : start + 100]]
            api.post("/events/batch", {"events": events}).expect(200)
        if not turn:
            rows.wait_for(rng.randrange(10, 300), f"run WHERE flow_id = {flow}")
        server.kill()
        server.start()
        rows.wait_for(400, f"run WHERE flow_id = {flow} AND exit_reason IS NOT 'frequency'")
    last = rows.query("SELECT max(id) FROM event WHERE event = 'went_in'")[0][0]
    rows.wait_for(1, f"cursor WHERE name = 'flows' AND event_id >= {last}")
    held_out = rows.count(f"run WHERE flow_id = {flow} AND exit_reason = 'held_out'")
    counts = rows.query(
        "SELECT count(*), count(DISTINCT contact_id) FROM run WHERE status <> 'ignored' OR exit_reason = 'held_out'"
    )
    assert counts == [(400, 400)] and 100 < held_out < 220
    figures.note(size=400, kills=2, held_out=held_out)
