"""The server of the state machine, and the comparison of what it did with what the interpreter allows."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.model import documents
from tests.model.facts import Facts
from tests.model.interpreter import Contact, Flow, record_event
from tests.model.possible import TooManyStates, final_states, outline, states_before_event

# Only events of these names are compared; others are not caused by flows
NAMES = (
    *documents.NAMES, "flow_enter", "flow_exit", "flow_goal", "email_sent", "email_skipped", "list_add", "list_remove",
)  # fmt: skip
PEOPLE, MAX_KILLS = 3, 2
_RUNS = "SELECT status || coalesce(' ' || exit_reason, ''), count(*) FROM run WHERE flow_id >= ? GROUP BY 1"
_STEPS = (
    "SELECT s.kind || ' ' || coalesce(p.outcome, 'waits') || coalesce(' ' || p.reason, ''), count(*) "
    "FROM step_visit p JOIN run r ON r.id = p.run_id JOIN step s ON s.flow_id = p.flow_id "
    "AND s.version = r.version AND s.action_id = p.action_id WHERE p.flow_id >= ? GROUP BY 1"
)


class Environment(NamedTuple):
    """The server and the clock of all examples; each example has its own contacts and flows."""

    server: Server
    clock: TestClock


class Tally:
    """Counts over all examples."""

    def __init__(self) -> None:
        self.examples = self.checks = self.kills = self.given_up = 0
        self.runs: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()


class Example:
    """The contacts and flows of one example, in the interpreter and in the service."""

    def __init__(self, stage: Environment, tally: Tally) -> None:
        self.stage, self.tally = stage, tally
        tally.examples += 1
        self.api: Client = stage.server.client(validate=False)
        self.facts = Facts(stage.server.data / "campanero.db", stage.clock)
        self.flows: dict[int, Flow] = {}
        self.kills = 0
        self.given_up = False
        name = f"{tally.examples}-{time.time_ns()}"
        self.lists = [self._create("/lists", {"name": f"{index} {name}"}) for index in "AB"]
        self.ids: list[int | None] = [
            self._create("/contacts", {"email": f"p{index}-{name}@model.example", "data": {"n": index},
                                     "subscribed_email": True})
            for index in range(PEOPLE)
        ]  # fmt: skip
        self.possible = [[Contact({"n": index}, number=index)] for index in range(PEOPLE)]
        self.since = self.facts.query("SELECT coalesce(max(id), 0) FROM event")[0][0]

    def _create(self, path: str, body: dict[str, Any]) -> int:
        number: int = self.api.post(path, body).expect(201)["id"]
        return number

    def kill(self, after: float) -> None:
        """Kill the service after some seconds and start it again, at most `MAX_KILLS` times."""
        if self.kills < MAX_KILLS:
            self.kills += 1
            self.tally.kills += 1
            time.sleep(after)  # where the kill hits is random
            self.stage.server.kill()
            self.stage.server.start()

    def update_contact(self, index: int, change: Callable[[Contact], Contact]) -> None:
        """Apply a change to a contact of the interpreter."""
        self.possible[index] = [change(contact) for contact in self.possible[index]]

    def record_event(self, index: int, name: str, n: int) -> None:
        """Send an event of a contact, and record it in the interpreter in each state of the service at that time."""
        sent = {"event": name, "contact_id": self.ids[index], "data": {"n": n}}
        self.api.post("/events", sent).expect(201)
        if self.given_up:
            return
        try:
            self.possible[index] = states_before_event(self.possible[index], self.flows, self.facts.hour, name)
        except TooManyStates:
            self._give_up()
        self.update_contact(index, lambda contact: record_event(contact, name, {"n": n}))

    def check_when_idle(self) -> None:
        """Wait until the service is idle, then check each contact against the interpreter."""
        self.facts.wait_until_idle(why=lambda: self.stage.server.output[-3000:])
        for index, number in enumerate(self.ids):
            if number is not None and not self.given_up:
                self._check_contact(index, number)

    def _check_contact(self, index: int, number: int) -> None:
        try:
            ends = final_states(self.possible[index], self.flows, self.facts.hour)
        except TooManyStates:
            self._give_up()
            return
        seen = self.facts.outline(number, self.flows, NAMES, self.since)
        self.possible[index] = [contact for contact in ends if _observable(contact) == seen]
        self.tally.checks += 1
        assert self.possible[index], _difference(seen, [_observable(contact) for contact in ends], self.flows)

    def _give_up(self) -> None:
        """Check no contact of this example any more."""
        self.given_up = True
        self.tally.given_up += 1

    def check_stats(self) -> None:
        """Check that the stats of each flow match its runs."""
        for flow in self.flows.values():
            if flow.status == "deleted":
                continue
            rows = dict(self.facts.query(
                "SELECT status, count(*) FROM run WHERE flow_id = ? AND NOT test GROUP BY status", flow.id
            ))  # fmt: skip
            live, completed, exited = (rows.get(status, 0) for status in ("live", "completed", "exited"))
            stats = self.api.get(f"/flows/{flow.id}").expect(200)["stats"]
            want = {"entered": live + completed + exited, "active": live, "completed": completed, "exited": exited}
            assert {key: stats[key] for key in want} == want, (stats, rows)

    def end(self) -> None:
        """Update the tally and delete the flows of the example."""
        if self.stage.server.process is None:
            self.stage.server.start()
        first = min(self.flows, default=0)
        self.tally.runs.update(dict(self.facts.query(_RUNS, first)))
        self.tally.steps.update(dict(self.facts.query(_STEPS, first)))
        for flow in self.flows.values():
            if flow.status != "deleted":
                self.api.delete(f"/flows/{flow.id}")


def _observable(contact: Contact) -> dict[str, Any]:
    return {key: value for key, value in outline(contact, NAMES).items() if key != "data"}


def _difference(seen: dict[str, Any], ends: list[dict[str, Any]], flows: dict[int, Flow]) -> str:
    """Return what was observed, and where it differs from the nearest allowed state."""
    nearest = min(ends, key=lambda state: sum(state[key] != seen[key] for key in seen))
    parts = [f"{key}:\n  is     {seen[key]}\n  may be {nearest[key]}" for key in seen if seen[key] != nearest[key]]
    return "\n".join([*parts, f"one of {len(ends)}", *(repr(flow) for flow in flows.values())])
