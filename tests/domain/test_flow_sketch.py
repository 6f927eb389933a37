"""A flow that is changed step by step: at once where it was never live, beside what is live where it was."""

from typing import Any

import pytest

from appliance.accounts import users
from appliance.accounts.audit import Actor
from appliance.accounts.users import NewUser
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation
from appliance.core.errors import Invalid
from appliance.flows import (
    document,
    drafts,
    engine,
    lifecycle,
    simulation,
    simulation_bulk,
    simulation_sandbox,
    store,
    versions,
)
from appliance.flows.document import Position
from appliance.flows.simulation_events import SimulationInput
from appliance.flows.store import FlowCreate, FlowPatch
from appliance.flows.triggers import TriggerSpec
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Flow, Step, Template, TemplateRevision
from tests.domain.flows_home import happen
from tests.domain.home import Home
from tests.domain.test_flow_run import enter

TABLES = ("run", "message", "event", "contact", "template", "step_visit")
LETTER = {"subject": "One", "body": "<p>Hello</p>"}
BRANCH = {"filters": [{"name": "contact_first_name", "predicate": "eq", "value": "Ana"}]}


@pytest.fixture
def ana(home: Home) -> Actor:
    """Somebody who is signed in and may approve."""
    made = transactions.write(users.create, home.account_id, NewUser("ana@example.org", "Ana", "a hash"))
    return Actor(can_approve=True, user_id=made.id)


def make(home: Home, *steps: dict[str, Any], status: str = "draft", event: str = "order_paid") -> int:
    """Make a flow as a request does, and answer its id."""
    request = validation.read(FlowCreate, {"trigger": {"event": event}, "status": status, "steps": list(steps)})
    flow = transactions.write(
        store.create, home.account_id, request, store.parse_request(home.account_id, request), Actor()
    )
    return int(flow.id)


def ways(home: Home, flow_id: int) -> list[Any]:
    """Return the kinds of the steps as they are being changed."""

    def kinds(steps: list[Any]) -> list[Any]:
        return [[one["type"], kinds(one["yes"]), kinds(one["no"])] if "yes" in one else one["type"] for one in steps]

    return kinds(drafts.load_draft(home.account_id, flow_id).steps)


def add(home: Home, flow_id: int, where: str, kind: str, raw: dict[str, Any], by: Actor) -> int:
    """Put a step in."""
    spot = document.parse_position(where)
    assert spot is not None
    return int(transactions.write(drafts.add_step, home.account_id, flow_id, spot, kind, raw, by))


def test_a_draft_grows_step_by_step(home: Home, ana: Actor) -> None:
    """Steps stand where they were put, with words of their own, and nothing waits to be published."""
    flow = make(home)
    letter = add(home, flow, "start", "email", {}, ana)
    branch = add(home, flow, f"after-{letter}", "split", BRANCH, ana)
    add(home, flow, f"no-{branch}", "wait", {"duration": 60}, ana)
    transactions.write(drafts.change_step, home.account_id, flow, letter, {"subject": "Hi", "transactional": None}, ana)
    copy = transactions.write(drafts.duplicate_step, home.account_id, flow, letter, ana)
    transactions.write(drafts.move_step, home.account_id, flow, copy, Position("yes", branch), ana)
    drawn = drafts.load_draft(home.account_id, flow)
    assert ways(home, flow) == ["email", ["split", ["email"], ["wait"]]]
    assert not drawn.is_changed and not drawn.is_separate
    said = [row.subject for row in Template.select().where(Template.flow == flow).order_by(Template.action_id)]
    assert said == ["Hi", "Hi"]
    assert store.get(home.account_id, flow).steps == drawn.steps


def test_what_was_removed_comes_back_with_its_words(home: Home, ana: Actor) -> None:
    """Taking a step out with its branches can be undone."""
    flow = make(home, LETTER, {"duration": 60})
    before = transactions.write(drafts.delete_step, home.account_id, flow, 1, ana)
    assert ways(home, flow) == ["wait"] and not store.get(home.account_id, flow).templates
    transactions.write(drafts.restore_steps, home.account_id, flow, before, ana)
    assert ways(home, flow) == ["email", "wait"]
    assert [row.subject for row in store.get(home.account_id, flow).templates] == ["One"]


def test_changes_of_a_live_flow_wait_until_they_are_published(home: Home, ana: Actor) -> None:
    """Steps, words, start and goal are as they were for everybody else; then all of them change at once."""
    flow = make(home, LETTER, {"duration": 60}, status="active")
    shown = store.get(home.account_id, flow)
    version = shown.version
    template = drafts.get_step_template(home.account_id, flow, 1)
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(subject="Two"), ana.user_id)
    transactions.write(drafts.change_step, home.account_id, flow, 2, {"duration": 120}, ana)
    new = add(home, flow, "after-2", "email", {"subject": "New", "body": "<p>n</p>"}, ana)
    transactions.write(drafts.change_trigger, home.account_id, flow, {"event": "checkout"}, ana)
    transactions.write(drafts.change_goal, home.account_id, flow, "order_paid", ana)
    told = {(one.kind, one.label) for one in drafts.list_changes(home.account_id, flow)}
    assert told == {
        ("changed", "Start"),
        ("changed", "Goal"),
        ("changed", "Email"),
        ("changed", "Wait"),
        ("added", "Email"),
    }
    same = store.get(home.account_id, flow)
    assert (same.version, same.steps, same.goal, same.loaded_trigger.event) == (
        version,
        shown.steps,
        None,
        "order_paid",
    )
    assert [row.action_id for row in same.templates] == [1]

    transactions.write(drafts.publish, home.account_id, flow, ana)
    live = store.get(home.account_id, flow)
    assert (live.version, live.goal, live.loaded_trigger.event, live.draft) == (
        version + 1,
        "order_paid",
        "checkout",
        None,
    )
    assert [node.props.get("duration") for node in versions.read_plan(flow, live.version).nodes.values()] == [
        None,
        120,
        None,
    ]
    said = [
        TemplateRevision.get_by_id(step.content_id).document["subject"]
        for step in Step.select().where(Step.flow == flow, Step.version == live.version, Step.content.is_null(False))
    ]
    assert sorted(said) == ["New", "Two"] and {row.action_id for row in live.templates} == {1, new}
    assert drafts.list_changes(home.account_id, flow) == []


def test_dropped_changes_leave_what_is_live(home: Home, ana: Actor) -> None:
    """After dropping them steps and words are those that are live, and nothing waits."""
    flow = make(home, LETTER, status="active")
    transactions.write(drafts.change_step, home.account_id, flow, 1, {"subject": "Two"}, ana)
    add(home, flow, "start", "wait", {"duration": 5}, ana)
    transactions.write(drafts.discard, home.account_id, flow, ana)
    drawn = drafts.load_draft(home.account_id, flow)
    assert not drawn.is_changed and ways(home, flow) == ["email"]
    assert drafts.get_step_template(home.account_id, flow, 1).subject == "One"


def test_a_change_that_was_taken_back_is_none(home: Home, ana: Actor) -> None:
    """Whoever puts a wait back to what it was has changed nothing."""
    flow = make(home, {"duration": 60}, LETTER, status="active")
    transactions.write(drafts.change_step, home.account_id, flow, 1, {"duration": 120}, ana)
    assert drafts.load_draft(home.account_id, flow).is_changed
    transactions.write(drafts.change_step, home.account_id, flow, 1, {"duration": 60}, ana)
    assert not drafts.load_draft(home.account_id, flow).is_changed


def test_a_program_and_a_person_give_no_id_twice(home: Home, ana: Actor) -> None:
    """A step that a program adds meanwhile is another one than that of the draft, with words of its own."""
    flow = make(home, LETTER, status="active")
    new = add(home, flow, "after-1", "email", {"subject": "Mine", "body": "<p>x</p>"}, ana)
    request = validation.read(FlowPatch, {"steps": [{"id": 1}, {"subject": "Theirs", "body": "<p>y</p>"}]})
    draft = store.parse_request(home.account_id, request, flow)
    changed = transactions.write(store.update, home.account_id, flow, request, draft, Actor())
    assert new not in {step["id"] for step in changed.steps}
    assert drafts.get_step_template(home.account_id, flow, new).subject == "Mine"


def said(flow_id: int) -> tuple[Any, ...]:
    """Return what the first letter says live: subject, preview line and content."""
    flow = Flow.get_by_id(flow_id)
    [(_, _, live)] = lifecycle.load_live_contents(flow)
    return (live["subject"], live["preheader"], live["body"])


def test_programs_publish_nothing_that_a_person_holds_back(home: Home, ana: Actor) -> None:
    """A program sees what is live and changes that alone: the flow, a template, its going on; then people publish."""
    flow = make(home, LETTER, {"duration": 60}, status="active")
    template = drafts.get_step_template(home.account_id, flow, 1)
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(body="<p>Held</p>"), ana.user_id)
    seen = store.get(home.account_id, flow)
    assert seen.templates[0].body == "<p>Hello</p>" and seen.draft is not None

    def patch(raw: dict[str, Any]) -> None:
        request = validation.read(FlowPatch, raw)
        transactions.write(
            store.update, home.account_id, flow, request, store.parse_request(home.account_id, request, flow), Actor()
        )

    patch({"steps": [{"id": 1, "subject": "Theirs", "body": "<p>Hello</p>"}, {"id": 2, "duration": 60}]})
    assert said(flow) == ("Theirs", None, "<p>Hello</p>")
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(preheader="Soon"))
    assert said(flow) == ("Theirs", "Soon", "<p>Hello</p>")
    for status in ("paused", "active"):
        patch({"status": status})
    transactions.write(store.apply_action, home.account_id, flow, lifecycle.pause)
    transactions.write(store.apply_action, home.account_id, flow, lifecycle.activate, Actor(can_approve=True))
    assert said(flow) == ("Theirs", "Soon", "<p>Hello</p>")
    row = drafts.get_step_template(home.account_id, flow, 1)
    assert (row.subject, row.preheader, row.body) == ("Theirs", "Soon", "<p>Held</p>")
    assert [one.detail for one in drafts.list_changes(home.account_id, flow) if one.step_id == 1] != []
    transactions.write(drafts.publish, home.account_id, flow, ana)
    assert said(flow) == ("Theirs", "Soon", "<p>Held</p>")


def test_what_is_not_complete_is_not_published(home: Home, ana: Actor) -> None:
    """Publishing says what is missing and at which step, and changes nothing."""
    flow = make(home, LETTER, status="active")
    empty = add(home, flow, "after-1", "email", {}, ana)
    found = drafts.list_blockers(drafts.load_draft(home.account_id, flow), Actor(can_approve=True))
    assert {step for step, _ in found} == {empty}
    with pytest.raises(Invalid):
        transactions.write(drafts.publish, home.account_id, flow, ana)
    drawn = drafts.load_draft(home.account_id, flow)
    assert drawn.is_changed and drawn.flow.version == 1


def test_people_who_wait_take_the_new_time(home: Home, ana: Actor) -> None:
    """They wait so long since they came; who has waited that long is due."""
    flow = make(home, {"duration": 86_400}, LETTER, status="active")
    people = [home.contact(f"p{number}@example.org").id for number in range(3)]
    enter(home, Flow.get_by_id(flow), *people)
    transactions.write(engine.advance_flow, flow, 10)
    entered = dict(rows("SELECT run_id, entered_at FROM step_visit WHERE flow_id = ?", (flow,)))
    after: int | None = 0
    while after is not None:
        after = transactions.write(drafts.retime_runs, flow, 1, 60, after)
    due = dict(rows("SELECT id, due_at FROM run WHERE flow_id = ?", (flow,)))
    assert due == {run_id: at + 60_000 for run_id, at in entered.items()} and len(due) == 3


def everything(flow_id: int) -> list[Any]:
    """Return what a rehearsal could have written."""
    counts = [rows(f"SELECT count(*), max(id) FROM {table}") for table in TABLES]
    return [*counts, rows("SELECT draft, steps, last_action FROM flow WHERE id = ?", (flow_id,))]


def test_a_rehearsal_shows_what_is_not_published_and_writes_nothing(home: Home, ana: Actor) -> None:
    """The changed way is taken, the database stays as it was; so do the tests that are kept with the flow."""
    flow = make(home, LETTER, status="active")
    new = add(home, flow, "after-1", "email", {"subject": "New {{ first_name }}", "body": "<p>n</p>"}, ana)
    data = {"scripts": [{"name": "New", "expect": [{"step": new, "subject": "New Alex"}]}]}
    Flow.update(data=data).where(Flow.id == flow).execute()
    before = everything(flow)
    drawn = drafts.load_draft(home.account_id, flow)
    found = simulation.simulate_draft(drawn, SimulationInput())
    assert [one.message.subject for one in found.timeline if one.message] == ["One", "New Alex"]
    assert [one.passed for one in simulation_bulk.run_scripts(drawn.flow, draft=drawn)] == [True]
    assert [one.passed for one in simulation_bulk.run_scripts(drawn.flow)] == [False]
    assert everything(flow) == before


def test_who_would_have_entered_is_told_with_why_not(home: Home) -> None:
    """Of the last people an event happened to, each is held against the start and its conditions."""
    flow = Flow.get_by_id(make(home, {"duration": 60}))
    ana, ben = home.contact("ana@example.org", first_name="Ana"), home.contact("ben@example.org", first_name="Ben")
    for one in (ana, ben):
        happen(home, "order_paid", one.id)
    asked = TriggerSpec("order_paid", None, None, {"where": BRANCH["filters"]})
    found = simulation_sandbox.find_recent_contacts(flow, asked)
    assert [(one.contact_id, one.would_enter) for one in found.contacts] == [(ben.id, False), (ana.id, True)]
    assert "Ben" in found.contacts[0].reason and found.number == 2
    assert simulation_sandbox.find_recent_contacts(flow, TriggerSpec()).contacts == []


def test_faults_name_the_field(home: Home, ana: Actor) -> None:
    """A step that cannot be so is refused with the names of its own keys."""
    flow = make(home)
    with pytest.raises(Invalid) as refused:
        add(home, flow, "start", "emit_event", {"event_name": None}, ana)
    assert set(refused.value.fields) == {"event_name"}
    with pytest.raises(Invalid):
        transactions.write(drafts.move_step, home.account_id, make(home, LETTER), 1, Position("after", 99), ana)
