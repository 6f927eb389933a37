"""Editing a flow step by step: at once in a draft, beside the live version in an active flow."""

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
from tests.domain.flows_home import record_event
from tests.domain.home import Home
from tests.domain.test_flow_run import start_runs

TABLES = ("run", "message", "event", "contact", "template", "step_visit")
EMAIL = {"subject": "One", "body": "<p>Hello</p>"}
BRANCH = {"filters": [{"name": "contact_first_name", "predicate": "eq", "value": "Ana"}]}


@pytest.fixture
def ana(home: Home) -> Actor:
    """Return the actor of a user who may approve."""
    user = transactions.write(users.create, home.account_id, NewUser("ana@example.org", "Ana", "a hash"))
    return Actor(can_approve=True, user_id=user.id)


def create_flow(home: Home, *steps: dict[str, Any], status: str = "draft", event: str = "order_paid") -> int:
    """Create a flow as the API does, and return its id."""
    request = validation.read(FlowCreate, {"trigger": {"event": event}, "status": status, "steps": list(steps)})
    flow = transactions.write(
        store.create, home.account_id, request, store.parse_request(home.account_id, request), Actor()
    )
    return int(flow.id)


def draft_step_types(home: Home, flow_id: int) -> list[Any]:
    """Return the types of the draft's steps, nested for branches."""

    def kinds(steps: list[Any]) -> list[Any]:
        return [
            [step["type"], kinds(step["yes"]), kinds(step["no"])] if "yes" in step else step["type"] for step in steps
        ]

    return kinds(drafts.load_draft(home.account_id, flow_id).steps)


def add_step(home: Home, flow_id: int, position_text: str, kind: str, raw: dict[str, Any], actor: Actor) -> int:
    """Add a step to the draft and return its id."""
    position = document.parse_position(position_text)
    assert position is not None
    return int(transactions.write(drafts.add_step, home.account_id, flow_id, position, kind, raw, actor))


def test_steps_are_added_changed_copied_and_moved(home: Home, ana: Actor) -> None:
    """In a flow that was never live edits apply at once; a copied email has its own template."""
    flow = create_flow(home)
    email_id = add_step(home, flow, "start", "email", {}, ana)
    branch_id = add_step(home, flow, f"after-{email_id}", "split", BRANCH, ana)
    add_step(home, flow, f"no-{branch_id}", "wait", {"duration": 60}, ana)
    transactions.write(
        drafts.change_step, home.account_id, flow, email_id, {"subject": "Hi", "transactional": None}, ana
    )
    copy_id = transactions.write(drafts.duplicate_step, home.account_id, flow, email_id, ana)
    transactions.write(drafts.move_step, home.account_id, flow, copy_id, Position("yes", branch_id), ana)
    draft = drafts.load_draft(home.account_id, flow)
    assert draft_step_types(home, flow) == ["email", ["split", ["email"], ["wait"]]]
    assert not draft.is_changed and not draft.is_separate
    subjects = [row.subject for row in Template.select().where(Template.flow == flow).order_by(Template.action_id)]
    assert subjects == ["Hi", "Hi"]
    assert store.get(home.account_id, flow).steps == draft.steps


def test_a_deleted_step_can_be_restored_with_its_template(home: Home, ana: Actor) -> None:
    """Undo restores the step and its template."""
    flow = create_flow(home, EMAIL, {"duration": 60})
    before = transactions.write(drafts.delete_step, home.account_id, flow, 1, ana)
    assert draft_step_types(home, flow) == ["wait"] and not store.get(home.account_id, flow).templates
    transactions.write(drafts.restore_steps, home.account_id, flow, before, ana)
    assert draft_step_types(home, flow) == ["email", "wait"]
    assert [row.subject for row in store.get(home.account_id, flow).templates] == ["One"]


def test_changes_of_a_live_flow_wait_for_publishing(home: Home, ana: Actor) -> None:
    """Steps, templates, trigger and goal stay as they are until all changes are published at once."""
    flow = create_flow(home, EMAIL, {"duration": 60}, status="active")
    before = store.get(home.account_id, flow)
    version = before.version
    template = drafts.get_step_template(home.account_id, flow, 1)
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(subject="Two"), ana.user_id)
    transactions.write(drafts.change_step, home.account_id, flow, 2, {"duration": 120}, ana)
    new_step = add_step(home, flow, "after-2", "email", {"subject": "New", "body": "<p>n</p>"}, ana)
    transactions.write(drafts.change_trigger, home.account_id, flow, {"event": "checkout"}, ana)
    transactions.write(drafts.change_goal, home.account_id, flow, "order_paid", ana)
    change_labels = {(item.kind, item.label) for item in drafts.list_changes(home.account_id, flow)}
    assert change_labels == {
        ("changed", "Trigger"),
        ("changed", "Goal"),
        ("changed", "Email"),
        ("changed", "Wait"),
        ("added", "Email"),
    }
    unpublished = store.get(home.account_id, flow)
    assert (unpublished.version, unpublished.steps, unpublished.goal, unpublished.loaded_trigger.event) == (
        version,
        before.steps,
        None,
        "order_paid",
    )
    assert [row.action_id for row in unpublished.templates] == [1]

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
    subjects = [
        TemplateRevision.get_by_id(step.content_id).document["subject"]
        for step in Step.select().where(Step.flow == flow, Step.version == live.version, Step.content.is_null(False))
    ]
    assert sorted(subjects) == ["New", "Two"] and {row.action_id for row in live.templates} == {1, new_step}
    assert drafts.list_changes(home.account_id, flow) == []


def test_discarded_changes_restore_the_live_version(home: Home, ana: Actor) -> None:
    """After discarding, steps and templates are those of the live version."""
    flow = create_flow(home, EMAIL, status="active")
    transactions.write(drafts.change_step, home.account_id, flow, 1, {"subject": "Two"}, ana)
    add_step(home, flow, "start", "wait", {"duration": 5}, ana)
    transactions.write(drafts.discard, home.account_id, flow, ana)
    draft = drafts.load_draft(home.account_id, flow)
    assert not draft.is_changed and draft_step_types(home, flow) == ["email"]
    assert drafts.get_step_template(home.account_id, flow, 1).subject == "One"


def test_a_reverted_change_is_no_change(home: Home, ana: Actor) -> None:
    """Setting a wait back to its old duration leaves the draft unchanged."""
    flow = create_flow(home, {"duration": 60}, EMAIL, status="active")
    transactions.write(drafts.change_step, home.account_id, flow, 1, {"duration": 120}, ana)
    assert drafts.load_draft(home.account_id, flow).is_changed
    transactions.write(drafts.change_step, home.account_id, flow, 1, {"duration": 60}, ana)
    assert not drafts.load_draft(home.account_id, flow).is_changed


def test_api_and_draft_never_use_the_same_step_id(home: Home, ana: Actor) -> None:
    """A step added by the API gets another id than a step of the draft, which keeps its template."""
    flow = create_flow(home, EMAIL, status="active")
    draft_step = add_step(home, flow, "after-1", "email", {"subject": "Mine", "body": "<p>x</p>"}, ana)
    request = validation.read(FlowPatch, {"steps": [{"id": 1}, {"subject": "Theirs", "body": "<p>y</p>"}]})
    draft = store.parse_request(home.account_id, request, flow)
    changed = transactions.write(store.update, home.account_id, flow, request, draft, Actor())
    assert draft_step not in {step["id"] for step in changed.steps}
    assert drafts.get_step_template(home.account_id, flow, draft_step).subject == "Mine"


def live_content(flow_id: int) -> tuple[Any, ...]:
    """Return subject, preview text and body of the flow's only live email."""
    flow = Flow.get_by_id(flow_id)
    [(_, _, document_)] = lifecycle.load_live_contents(flow)
    return (document_["subject"], document_["preheader"], document_["body"])


def test_api_edits_do_not_publish_the_draft(home: Home, ana: Actor) -> None:
    """The API shows and changes the live version only; publishing merges the user's draft."""
    flow = create_flow(home, EMAIL, {"duration": 60}, status="active")
    template = drafts.get_step_template(home.account_id, flow, 1)
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(body="<p>Held</p>"), ana.user_id)
    shown = store.get(home.account_id, flow)
    assert shown.templates[0].body == "<p>Hello</p>" and shown.draft is not None

    def patch_flow(raw: dict[str, Any]) -> None:
        request = validation.read(FlowPatch, raw)
        transactions.write(
            store.update, home.account_id, flow, request, store.parse_request(home.account_id, request, flow), Actor()
        )

    patch_flow({"steps": [{"id": 1, "subject": "Theirs", "body": "<p>Hello</p>"}, {"id": 2, "duration": 60}]})
    assert live_content(flow) == ("Theirs", None, "<p>Hello</p>")
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(preheader="Soon"))
    assert live_content(flow) == ("Theirs", "Soon", "<p>Hello</p>")
    for status in ("paused", "active"):
        patch_flow({"status": status})
    transactions.write(store.apply_action, home.account_id, flow, lifecycle.pause)
    transactions.write(store.apply_action, home.account_id, flow, lifecycle.activate, Actor(can_approve=True))
    assert live_content(flow) == ("Theirs", "Soon", "<p>Hello</p>")
    template_row = drafts.get_step_template(home.account_id, flow, 1)
    assert (template_row.subject, template_row.preheader, template_row.body) == ("Theirs", "Soon", "<p>Held</p>")
    assert [change.detail for change in drafts.list_changes(home.account_id, flow) if change.step_id == 1] != []
    transactions.write(drafts.publish, home.account_id, flow, ana)
    assert live_content(flow) == ("Theirs", "Soon", "<p>Held</p>")


def test_an_incomplete_draft_cannot_be_published(home: Home, ana: Actor) -> None:
    """The blockers name the step, and nothing changes."""
    flow = create_flow(home, EMAIL, status="active")
    empty_step = add_step(home, flow, "after-1", "email", {}, ana)
    blockers = drafts.list_blockers(drafts.load_draft(home.account_id, flow), Actor(can_approve=True))
    assert {step for step, _ in blockers} == {empty_step}
    with pytest.raises(Invalid):
        transactions.write(drafts.publish, home.account_id, flow, ana)
    draft = drafts.load_draft(home.account_id, flow)
    assert draft.is_changed and draft.flow.version == 1


def test_waiting_runs_get_the_new_duration(home: Home, ana: Actor) -> None:
    """Waiting runs are due the new duration after they entered the step."""
    flow = create_flow(home, {"duration": 86_400}, EMAIL, status="active")
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(3)]
    start_runs(home, Flow.get_by_id(flow), *contact_ids)
    transactions.write(engine.advance_flow, flow, 10)
    entered = dict(rows("SELECT run_id, entered_at FROM step_visit WHERE flow_id = ?", (flow,)))
    after: int | None = 0
    while after is not None:
        after = transactions.write(drafts.retime_runs, flow, 1, 60, after)
    due = dict(rows("SELECT id, due_at FROM run WHERE flow_id = ?", (flow,)))
    assert due == {run_id: entered_at + 60_000 for run_id, entered_at in entered.items()} and len(due) == 3


def snapshot_tables(flow_id: int) -> list[Any]:
    """Return what a simulation could have changed."""
    counts = [rows(f"SELECT count(*), max(id) FROM {table}") for table in TABLES]
    return [*counts, rows("SELECT draft, steps, last_action FROM flow WHERE id = ?", (flow_id,))]


def test_a_simulation_of_a_draft_writes_nothing(home: Home, ana: Actor) -> None:
    """Draft and scripts can be simulated without publishing, and the database stays the same."""
    flow = create_flow(home, EMAIL, status="active")
    new_step = add_step(home, flow, "after-1", "email", {"subject": "New {{ first_name }}", "body": "<p>n</p>"}, ana)
    data = {"scripts": [{"name": "New", "expect": [{"step": new_step, "subject": "New Alex"}]}]}
    Flow.update(data=data).where(Flow.id == flow).execute()
    before = snapshot_tables(flow)
    draft = drafts.load_draft(home.account_id, flow)
    result = simulation.simulate_draft(draft, SimulationInput())
    assert [item.message.subject for item in result.timeline if item.message] == ["One", "New Alex"]
    assert [item.passed for item in simulation.run_scripts(draft.flow, draft=draft)] == [True]
    assert [item.passed for item in simulation.run_scripts(draft.flow)] == [False]
    assert snapshot_tables(flow) == before


def test_recent_contacts_with_whether_they_would_enter(home: Home) -> None:
    """Contacts with a recent trigger event are listed, with a reason for those who would not enter."""
    flow = Flow.get_by_id(create_flow(home, {"duration": 60}))
    ana_contact, ben_contact = (
        home.contact("ana@example.org", first_name="Ana"),
        home.contact("ben@example.org", first_name="Ben"),
    )
    for item in (ana_contact, ben_contact):
        record_event(home, "order_paid", item.id)
    trigger = TriggerSpec("order_paid", None, None, {"where": BRANCH["filters"]})
    result = simulation_sandbox.find_recent_contacts(flow, trigger)
    assert [(item.contact_id, item.would_enter) for item in result.contacts] == [
        (ben_contact.id, False),
        (ana_contact.id, True),
    ]
    assert "Ben" in result.contacts[0].reason and result.number == 2
    assert simulation_sandbox.find_recent_contacts(flow, TriggerSpec()).contacts == []
    held_out = TriggerSpec("order_paid", None, None, {"holdout": 1})
    assert {
        (item.would_enter, item.reason) for item in simulation_sandbox.find_recent_contacts(flow, held_out).contacts
    } == {(False, "the contact is in the holdout group of this flow")}


def test_recent_contacts_are_those_that_the_trigger_admits(home: Home) -> None:
    """A quiet event starts nothing and is left out; an unsubscribed contact enters, but its emails are skipped."""
    flow = Flow.get_by_id(create_flow(home, EMAIL, event="list_add"))
    imported, ana_contact, ben_contact = (home.contact(f"{name}@example.org") for name in ("imported", "ana", "ben"))
    home.opt_out("ben@example.org")
    record_event(home, "list_add", imported.id, quiet=True)
    for item in (ana_contact, ben_contact):
        record_event(home, "list_add", item.id)
    result = simulation_sandbox.find_recent_contacts(flow, TriggerSpec("list_add", None, None, {}), channels=["email"])
    assert result.number == 2
    assert [(item.contact_id, item.would_enter, item.reason) for item in result.contacts] == [
        (ben_contact.id, True, "not subscribed to emails: they would be skipped"),
        (ana_contact.id, True, ""),
    ]


def test_errors_of_a_step_name_its_fields(home: Home, ana: Actor) -> None:
    """An invalid step is rejected with the names of its fields; an unknown position is rejected too."""
    flow = create_flow(home)
    with pytest.raises(Invalid) as error_info:
        add_step(home, flow, "start", "emit_event", {"event_name": None}, ana)
    assert set(error_info.value.fields) == {"event_name"}
    with pytest.raises(Invalid):
        transactions.write(drafts.move_step, home.account_id, create_flow(home, EMAIL), 1, Position("after", 99), ana)
