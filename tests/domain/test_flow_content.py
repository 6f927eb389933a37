"""What a flow says in each of its versions, and that an edit is held against the flow as it is by then."""

from typing import Any

import pytest

from appliance.accounts.audit import Actor
from appliance.content.templates import revisions
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation
from appliance.core.errors import Invalid, NotFound, Unavailable
from appliance.flows import lifecycle, store, versions
from appliance.flows.store import FlowCreate, FlowPatch
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Flow, Step, Template, TemplateRevision
from tests.domain.home import Home
from tests.domain.test_flow_run import enter

LETTER = {"subject": "One", "body": "<p>Hi <a href='https://acme.test/a'>a</a></p>"}


def make(home: Home, *steps: dict[str, Any], **more: Any) -> Flow:
    """Make a flow as a request does."""
    raw = {"trigger": {"event": "order_paid"}, "status": "active", "steps": list(steps), **more}
    request = validation.read(FlowCreate, raw)
    return transactions.write(
        store.create, home.account_id, request, store.parse_request(home.account_id, request), Actor()
    )


def patch(home: Home, flow: Flow, **body: Any) -> Flow:
    """Change a flow as a request does."""
    request = validation.read(FlowPatch, body)
    draft = store.parse_request(home.account_id, request, flow.id)
    return transactions.write(store.update, home.account_id, flow.id, request, draft, Actor())


def said(flow: Flow, version: int) -> dict[str, Any]:
    """Return what the only message of a version says."""
    (step,) = Step.select().where(Step.flow == flow.id, Step.version == version, Step.kind == "email")
    document: dict[str, Any] = TemplateRevision.get_by_id(step.content_id).document
    return document


def test_what_a_version_says_is_kept(home: Home) -> None:
    """However often a template changes since, and whatever its history is thinned to, its revision stays."""
    flow = make(home, LETTER)
    template = flow.templates[0].id
    (number,) = [row.number for row in TemplateRevision.select() if row.named]
    # Nobody names it any more, and it is old
    transactions.write(revisions.name_revision, home.account_id, template, number, None)
    for each in range(120):
        transactions.write(templates.update, home.account_id, template, TemplateWrite(subject=f"Subject {each}"))
        if each == 0:
            # So that its edits make no versions
            transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.pause)
    transactions.write(revisions.prune, template)
    assert said(flow, 1)["subject"] == "One" and said(flow, 2)["subject"] == "Subject 0"
    assert Flow.get_by_id(flow.id).version == 2


def test_a_name_that_somebody_gave_stays(home: Home) -> None:
    """Going live keeps a revision for good, and calls it live only where it has no name yet."""
    flow = make(home, LETTER, status="draft")
    template = flow.templates[0].id
    transactions.write(revisions.name_revision, home.account_id, template, 1, "The good one")
    transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor())
    transactions.write(templates.update, home.account_id, template, TemplateWrite(subject="Two"))
    labels = [row.label for row in TemplateRevision.select().order_by(TemplateRevision.number)]
    assert labels[0] == "The good one" and labels[1].startswith("Live 20")
    assert all(row.named for row in TemplateRevision.select())


def test_a_step_that_was_taken_out_still_speaks_to_those_on_the_way(home: Home) -> None:
    """Its template is listed nowhere any more, and what it said stands with the version that people entered with."""
    flow = make(home, LETTER, {"duration": 60})
    wait = flow.steps[1]
    patch(home, flow, steps=[wait])
    assert [*versions.read_plan(flow.id, 2).nodes] == [wait["id"]] and [*versions.read_plan(flow.id, 1).nodes] == [
        1,
        wait["id"],
    ]
    assert said(flow, 1)["subject"] == "One" and said(flow, 1)["body"] == LETTER["body"]
    assert store.get(home.account_id, flow.id).templates == []
    (template,) = Template.select().where(Template.flow == flow.id)
    # Changing it by itself means nothing to the flow any more
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(subject=""))
    assert Flow.get_by_id(flow.id).version == 2


def test_links_and_senders_are_fixed_with_the_version(home: Home) -> None:
    """What stands beside the template is that of the day it went live; a service message has no links to count."""
    flow = make(home, {**LETTER, "from_email": "ann@acme.test"}, {**LETTER, "transactional": True})
    first, second = [row.pinned for row in Step.select().where(Step.flow == flow.id)]
    assert first["links"][0] == ["https://acme.test/a", "a"] and second["links"] == []
    assert first["sender"]["email"] == "ann@acme.test" and (first["tracking"], second["tracking"]) == (True, False)
    assert first["values"]["campaign"]["name"] == "Untitled flow"
    # A new name is said from the next version on
    transactions.write(run, "UPDATE flow SET name = 'Later'")
    assert transactions.write(lambda: versions.publish(Flow.get_by_id(flow.id)))


def test_an_edit_is_held_against_the_flow_as_it_is_by_then(home: Home) -> None:
    """Between reading and writing somebody else took a step away: the id means nothing any more, and is given anew."""
    flow = make(home, LETTER, {"duration": 60})
    request = validation.read(FlowPatch, {"steps": [{"id": 1}, {"id": 2, "duration": 90}]})
    draft = store.parse_request(home.account_id, request, flow.id)
    patch(home, flow, steps=[{"id": 1}])
    with pytest.raises(Invalid) as refused:
        transactions.write(
            store.update, home.account_id, flow.id, validation.read(FlowPatch, {"steps": [{"id": 2}]}), draft, Actor()
        )
    assert refused.value.fields == {"steps[0]": ["can't be blank"]}
    after = transactions.write(store.update, home.account_id, flow.id, request, draft, Actor())
    assert [(step["id"], step["type"]) for step in after.steps] == [(1, "email"), (3, "wait")]
    transactions.write(store.delete, home.account_id, flow.id)
    with pytest.raises(NotFound):
        transactions.write(store.update, home.account_id, flow.id, request, draft, Actor())


def test_many_are_taken_out_in_parts(home: Home) -> None:
    """Of a flow that is put aside without its people some leave at once, the others soon; until then it stays aside."""
    flow = make(home, {"duration": 999})
    people = [home.contact(f"p{n}@acme.test").id for n in range(301)]
    enter(home, flow, *people, due_at=2**50)
    transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.archive, True)
    assert rows("SELECT status, count(*) FROM run GROUP BY status ORDER BY status") == [("exited", 300), ("live", 1)]
    patch(home, flow, status="draft")
    with pytest.raises(Unavailable):
        transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor())
    while lifecycle.settle_messages():
        pass
    assert rows("SELECT DISTINCT status, exit_reason FROM run") == [("exited", "flow_archived")]
    assert (
        transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor()).status == "active"
    )
