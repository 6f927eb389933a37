"""Simulations predict real runs: random flows are simulated and then run with the same contact."""

import random
from typing import Any

import pytest

from appliance.core import clock
from appliance.flows import engine
from appliance.sending.messages.ledger import Outcome
from appliance.storage.database import rows, scalar
from tests.domain import flows_home
from tests.domain.flows_rehearsed import create_flow, simulate
from tests.domain.home import Home, record_and_claim

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


class FlowGenerator:
    """Generates random steps."""

    def __init__(self, seed: int, list_id: int) -> None:
        self.rng, self.list_id, self.steps_left = random.Random(seed), list_id, 20

    def steps(self, depth: int = 0) -> list[dict[str, Any]]:
        """Return random steps, with branches."""
        new_steps: list[dict[str, Any]] = []
        for _ in range(self.rng.randint(*((3, 7) if depth == 0 else (1, 3)))):
            self.steps_left -= 1
            if self.steps_left > 0:
                new_steps.append(self.step(depth))
        return new_steps

    def _kind(self) -> str:
        kinds = ["wait", "wait", "split", "split", "split", "email", "email", "emit", "add", "remove", "update", "exit"]
        return self.rng.choice(kinds)

    def step(self, depth: int) -> dict[str, Any]:
        """Return a random step."""
        kinds = ["wait", "wait", "split", "split", "email", "emit", "add", "remove", "update", "unsubscribe", "exit"]
        kind = self.rng.choice(kinds)
        if kind == "split" and depth < 3:
            member = {"name": "contact_list", "predicate": "eq", "value": self.list_id}
            filters = self.rng.sample([*FILTERS, member], self.rng.randint(1, 2))
            return {"filters": filters, "yes": self.steps(depth + 1), "no": self.steps(depth + 1)}
        if kind == "exit" and depth:
            return {"type": "exit"}
        return {
            "email": {"subject": "Hi {{ contact.data.plan }} {{ event.total }}", "body": "<p>x</p>"},
            "emit": {"event_name": "seen_it", "forward_event_data": True},
            "add": {"type": "list_add", "contact_list_id": self.list_id},
            "unsubscribe": {"type": "unsubscribe"},
            "remove": {"type": "list_remove", "contact_list_id": self.list_id},
            "update": {
                "type": "contact_update",
                "data_merge": {"seen": True, "plan": self.rng.choice(["pro", None])},
            },
        }.get(kind, {"duration": self.rng.randint(1, 48) * HOUR})


def run_flow(home: Home, contact_id: int, flow_id: int, data: dict[str, Any]) -> None:
    """Record the trigger event, and run the flow until no run is live."""
    flows_home.record_event(home, "cart_add", contact_id, data)
    for _ in range(100):
        flows_home.process_events()
        while engine.advance_due_runs():
            pass
        while (row := record_and_claim(None, want=True)) is not None:
            subject = scalar("SELECT subject FROM message WHERE id = ?", (row.id,))
            record_and_claim(Outcome(row, subject=subject, sender="a@example.org"), want=False)
        due = scalar("SELECT min(due_at) FROM run WHERE status = 'live' AND flow_id = ?", (flow_id,))
        if due is None:
            return
        home.advance((due - clock.now_ms()) / 1000 + 0.001)


@pytest.mark.parametrize("seed", range(10))
def test_a_simulation_predicts_the_real_run(home: Home, seed: int) -> None:
    """Steps, outcomes, hours, messages and the end are the same in simulation and reality."""
    home.configure(email__allow_unverified_domains=True)
    rng = random.Random(seed)
    data = {"plan": rng.choice(["pro", "free"]), "tags": rng.choice([["vip"], []])}
    ann = home.contact("ann@example.org", first_name="Ann", data=data)
    if rng.random() < 0.25:
        home.opt_out("ann@example.org")
    flow = create_flow(home, [*FlowGenerator(seed, home.list_of().id).steps(), {"duration": HOUR}], status="active")
    event = {"total": rng.randint(1, 20)}
    start = clock.now_ms()
    simulation = simulate(home, flow, contact_id=ann.id, event=event, start_at=clock.iso(start))
    run_flow(home, ann.id, flow.id, event)

    def hour(ms: int) -> int:
        return round((ms - start) / 1000 / HOUR)

    visits = rows(
        "SELECT action_id, coalesce(outcome, 'waits'), reason, entered_at FROM step_visit ORDER BY entered_at, id"
    )
    predicted = [entry for entry in simulation.timeline if entry.kind == "step"]
    # The simulation shows a wait when it begins; its visit has the final outcome
    assert [
        (entry.step_id, "on" if entry.outcome == "waits" else entry.outcome, entry.reason) for entry in predicted
    ] == [
        row[:3]
        for row in sorted(visits, key=lambda row: (hour(row[3]), [entry.step_id for entry in predicted].index(row[0])))
    ], simulation.text
    assert [hour(clock.parse(entry.at)) for entry in predicted] == sorted(hour(row[3]) for row in visits)
    assert rows("SELECT status, exit_reason FROM run WHERE flow_id = ?", (flow.id,)) == [
        (simulation.end.status, simulation.end.reason)
    ]
    sent = [(entry.step_id, entry.message.status) for entry in predicted if entry.message is not None]
    assert sent == rows("SELECT step_id, status FROM message WHERE flow_id = ? ORDER BY id", (flow.id,))
