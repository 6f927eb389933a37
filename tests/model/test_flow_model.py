"""Random flows, contacts, events, clock steps, pauses, edits and kills: runs agree with a reference interpreter."""

from random import randrange

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.recipients import NO_RATE_LIMITS
from tests.model import documents
from tests.model.interpreter import Flow
from tests.model.machine import FlowMachine, find_held_out
from tests.model.stage import PEOPLE, Environment, Example, Tally

# A seed whose few examples are rich in events
SEED = 42


# The requests of flows go to this process.
ENV = {**NO_RATE_LIMITS, "CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}


def test_runs_agree_with_the_interpreter(fresh_server: FreshServer, clock: TestClock, full: bool) -> None:
    """After each action runs, step visits, messages and events are a result that the interpreter allows."""
    server = fresh_server(clock=clock, env=ENV)
    tally = Tally()

    @seed(SEED if not full else randrange(2**32))
    class Machine(FlowMachine):
        pass

    Machine.stage, Machine.tally = Environment(server, clock), tally
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # its library has no types
        Machine,
        settings=settings(
            max_examples=300 if full else 2, stateful_step_count=30 if full else 20, deadline=None, database=None,
            suppress_health_check=list(HealthCheck), print_blob=True,
            phases=(Phase.generate, Phase.shrink) if full else (Phase.generate,),
        ),
    )  # fmt: skip
    print(vars(tally))
    assert tally.checks > 15 and tally.runs.total() > 5 and tally.given_up <= tally.examples // 10, vars(tally)
    server.stop()


def test_an_event_in_the_hour_in_which_the_goal_ended_a_run(fresh_server: FreshServer, clock: TestClock) -> None:
    """An event that is recorded after a run reached its goal starts another one; the interpreter allows it."""
    server = fresh_server(clock=clock, env=NO_RATE_LIMITS)
    example = Example(Environment(server, clock), Tally())
    wait = {"type": "wait", "duration": 3600}
    steps = [wait, {"type": "emit_event", "event_name": "m_own"}, wait]
    document = {"name": "Goal", "status": "active", "trigger": {"event": "m_one"}, "goal": "m_own", "steps": steps}
    flow_id = example.api.post("/flows", document).expect(201)["id"]
    with_ids = tuple(step | {"id": number} for number, step in enumerate(steps, 1))
    example.flows[flow_id] = Flow(flow_id, "m_one", with_ids, goal="m_own")

    example.record_event(0, "m_one", 1)
    example.check_when_idle()
    clock.advance(hours=1)
    example.facts.wait_until_idle()  # the service emits `m_own`, which ends the run, before the next event
    example.record_event(0, "m_one", 2)
    example.check_when_idle()

    runs = example.facts.query("SELECT status, exit_reason FROM run WHERE flow_id = ? ORDER BY id", flow_id)
    assert runs == [("completed", "goal"), ("live", None)]


def test_a_goodbye_is_sent_before_the_contact_is_unsubscribed(fresh_server: FreshServer, clock: TestClock) -> None:
    """A run that unsubscribes its contact right after an email waits for it; that of another flow is skipped."""
    server = fresh_server(clock=clock, env=NO_RATE_LIMITS)
    example = Example(Environment(server, clock), Tally())
    email = {"type": "email", "subject": "Goodbye", "body": "<p>Goodbye</p>", "from_email": "ana@bakery.example"}
    steps = [email, {"type": "unsubscribe"}, email]
    document = {"name": "Goodbye", "status": "active", "trigger": {"event": "m_one"}, "steps": steps}
    flow_id = example.api.post("/flows", document).expect(201)["id"]
    example.flows[flow_id] = Flow(flow_id, "m_one", tuple(step | {"id": index} for index, step in enumerate(steps, 1)))

    simulation = example.api.post(f"/flows/{flow_id}/simulate", {"contact_id": example.ids[0]}).expect(200)
    for contact in range(PEOPLE):
        example.record_event(contact, "m_one", 1)
    example.check_when_idle()

    mails = example.facts.query("SELECT step_id, status, skip_reason FROM message WHERE flow_id = ?", flow_id)
    assert sorted(set(mails)) == [(1, "sent", None), (3, "skipped", "unsubscribed")] and len(mails) == 2 * PEOPLE
    entries = [(entry.get("step_id"), entry.get("outcome")) for entry in simulation["timeline"] if entry["step_id"]]
    assert entries == [(1, "on"), (2, "on"), (3, "skipped")]
    assert simulation["timeline"][1]["message"]["status"] == "sent"


def test_requests_and_a_holdout_group_agree(fresh_server: FreshServer, clock: TestClock) -> None:
    """The responses decide the branches and change data, held-out contacts are recorded, and a kill changes nothing."""
    server = fresh_server(clock=clock, env=ENV)
    example = Example(Environment(server, clock), Tally())
    own = {"type": "emit_event", "event_name": "m_own"}
    steps = [
        {"type": "http_request", "answer": "ok", "yes": [own], "no": []},
        {"type": "split", "filters": [{"name": "contact_data.seen", "predicate": "eq", "value": 2}], "yes": [own],
         "no": []},
        {"type": "http_request", "answer": "no", "yes": [], "no": [{"type": "wait", "duration": 3600}]},
    ]  # fmt: skip
    sent = {
        "name": "Ask", "status": "active", "trigger": {"event": "m_one", "data": {"holdout": 0.5}},
        "steps": documents.without_types(steps, False, example.facts.begun),
    }  # fmt: skip
    created = example.api.post("/flows", sent).expect(201)
    held_out = find_held_out(example, created["id"], 0.5)
    example.flows[created["id"]] = Flow(
        created["id"], "m_one", documents.with_ids(steps, created["steps"]), held_out=held_out
    )
    for turn in range(2):
        for contact in range(PEOPLE):
            example.record_event(contact, "m_one", turn)
        if turn:
            example.kill(0.01)
        example.check_when_idle()
        clock.advance(hours=1)
        example.check_when_idle()
    outcomes = dict(example.facts.query("SELECT outcome, count(*) FROM step_visit GROUP BY 1"))
    entered = 2 * (PEOPLE - len(held_out))
    assert outcomes == ({"yes": 2 * entered, "no": entered, "on": 3 * entered} if entered else {})
