"""What a rehearsal foretells is what happens: random flows are rehearsed, and then lived through by the same person."""

import random
from typing import Any

import pytest

from appliance.core import clock
from appliance.flows import engine
from appliance.sending.messages.ledger import Outcome
from appliance.storage.database import rows, scalar
from tests.domain import flows_home
from tests.domain.flows_rehearsed import rehearsed, written
from tests.domain.home import Home, turn

HOUR = 3_600
FILTERS: list[dict[str, Any]] = [
    {"name": "contact_data.plan", "predicate": "eq", "value": "pro"},
    {"name": "contact_data.seen", "predicate": "present"},
    {"name": "contact_tag", "predicate": "eq", "value": "vip"},
    {"name": "event.total", "predicate": "gt", "value": 10},
    {"name": "contact_subscribed_email", "predicate": "true"},
    {"name": "email_sent_count", "predicate": "gteq", "value": 1},
    {"name": "contact_created_at", "predicate": "within_days", "value": 1},
    {"name": "event", "predicate": "performed", "value": {"event": "seen_it", "since": "flow_start"}},
    {"name": "event", "predicate": "not_performed", "value": {"event": "email_sent", "since": "flow_start"}},
]


class Author:
    """Writes flows by chance."""

    def __init__(self, seed: int, list_id: int) -> None:
        self.chance, self.list_id, self.left = random.Random(seed), list_id, 20

    def steps(self, depth: int = 0) -> list[dict[str, Any]]:
        """Some steps, with branches."""
        found: list[dict[str, Any]] = []
        for _ in range(self.chance.randint(*((3, 7) if depth == 0 else (1, 3)))):
            self.left -= 1
            if self.left > 0:
                found.append(self.step(depth))
        return found

    def _kind(self) -> str:
        kinds = ["wait", "wait", "split", "split", "split", "email", "email", "emit", "add", "remove", "update", "exit"]
        return self.chance.choice(kinds)

    def step(self, depth: int) -> dict[str, Any]:
        """One step of any kind."""
        kind = self.chance.choice(
            ["wait", "wait", "split", "split", "email", "emit", "add", "remove", "update", "exit"]
        )
        if kind == "split" and depth < 3:
            member = {"name": "contact_list", "predicate": "eq", "value": self.list_id}
            some = self.chance.sample([*FILTERS, member], self.chance.randint(1, 2))
            return {"filters": some, "yes": self.steps(depth + 1), "no": self.steps(depth + 1)}
        if kind == "exit" and depth:
            return {"type": "exit"}
        return {
            "email": {"subject": "Hi {{ contact.data.plan }} {{ event.total }}", "body": "<p>x</p>"},
            "emit": {"event_name": "seen_it", "forward_event_data": True},
            "add": {"type": "list_add", "contact_list_id": self.list_id},
            "remove": {"type": "list_remove", "contact_list_id": self.list_id},
            "update": {
                "type": "contact_update",
                "data_merge": {"seen": True, "plan": self.chance.choice(["pro", None])},
            },
        }.get(kind, {"duration": self.chance.randint(1, 48) * HOUR})


def lived(home: Home, contact_id: int, flow_id: int, data: dict[str, Any]) -> None:
    """Let it happen: the event, and then hour after hour what is due."""
    flows_home.happen(home, "cart_add", contact_id, data)
    for _ in range(100):
        flows_home.take_in()
        while engine.advance_due_runs():
            pass
        while (taken := turn(None, want=True)) is not None:
            subject = scalar("SELECT subject FROM message WHERE id = ?", (taken.id,))
            turn(Outcome(taken, subject=subject, sender="a@example.org"), want=False)
        due = scalar("SELECT min(due_at) FROM run WHERE status = 'live' AND flow_id = ?", (flow_id,))
        if due is None:
            return
        home.advance((due - clock.now_ms()) / 1000 + 0.001)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_foretold_happens(home: Home, seed: int) -> None:
    """Every step, its outcome, its hour, each message and the end are the same in rehearsal and in reality."""
    home.configure(email__allow_unverified_domains=True)
    chance = random.Random(seed)
    data = {"plan": chance.choice(["pro", "free"]), "tags": chance.choice([["vip"], []])}
    ann = home.contact("ann@example.org", first_name="Ann", data=data)
    if chance.random() < 0.25:
        home.leave("ann@example.org")
    flow = written(home, [*Author(seed, home.list_of().id).steps(), {"duration": HOUR}], status="active")
    event = {"total": chance.randint(1, 20)}
    start = clock.now_ms()
    found = rehearsed(home, flow, contact_id=ann.id, event=event, start_at=clock.iso(start))
    lived(home, ann.id, flow.id, event)

    def hour(ms: int) -> int:
        return round((ms - start) / 1000 / HOUR)

    real = rows(
        "SELECT action_id, coalesce(outcome, 'waits'), reason, entered_at FROM step_visit ORDER BY entered_at, id"
    )
    told = [one for one in found.timeline if one.told == "step"]
    # A wait is told when it begins, and is kept as what it came to
    assert [(one.step_id, "on" if one.outcome == "waits" else one.outcome, one.reason) for one in told] == [
        row[:3] for row in sorted(real, key=lambda row: (hour(row[3]), [one.step_id for one in told].index(row[0])))
    ], found.text
    assert [hour(clock.parse(one.at)) for one in told] == sorted(hour(row[3]) for row in real)
    assert rows("SELECT status, exit_reason FROM run WHERE flow_id = ?", (flow.id,)) == [
        (found.end.status, found.end.reason)
    ]
    sent = [(one.step_id, one.message.status) for one in told if one.message is not None]
    assert sent == rows("SELECT step_id, status FROM message WHERE flow_id = ? ORDER BY id", (flow.id,))
