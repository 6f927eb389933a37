"""The content of each version of a flow, and edits that meet a flow changed meanwhile."""

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
from tests.domain.test_flow_run import start_runs

EMAIL_STEP = {"subject": "One", "body": "<p>Hi <a href='https://acme.test/a'>a</a></p>"}


def create_flow(home: Home, *steps: dict[str, Any], **more: Any) -> Flow:
    """Create an active flow as the API does."""
    raw = {"trigger": {"event": "order_paid"}, "status": "active", "steps": list(steps), **more}
    request = validation.read(FlowCreate, raw)
    return transactions.write(
        store.create, home.account_id, request, store.parse_request(home.account_id, request), Actor()
    )


def update_flow(home: Home, flow: Flow, **body: Any) -> Flow:
    """Update a flow as the API does."""
    request = validation.read(FlowPatch, body)
    draft = store.parse_request(home.account_id, request, flow.id)
    return transactions.write(store.update, home.account_id, flow.id, request, draft, Actor())


def message_document(flow: Flow, version: int) -> dict[str, Any]:
    """Return the template document of a version's only email."""
    (step,) = Step.select().where(Step.flow == flow.id, Step.version == version, Step.kind == "email")
    document: dict[str, Any] = TemplateRevision.get_by_id(step.content_id).document
    return document


def test_the_content_of_a_version_is_kept(home: Home) -> None:
    """The revision of a version stays after many edits of its template and after its history was pruned."""
    flow = create_flow(home, EMAIL_STEP)
    template = flow.templates[0].id
    (number,) = [row.number for row in TemplateRevision.select() if row.named]
    # An unnamed old revision would be pruned otherwise
    transactions.write(revisions.name_revision, home.account_id, template, number, None)
    for index in range(120):
        transactions.write(templates.update, home.account_id, template, TemplateWrite(subject=f"Subject {index}"))
        if index == 0:
            # Edits of a paused flow create no versions
            transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.pause)
    transactions.write(revisions.prune, template)
    assert message_document(flow, 1)["subject"] == "One" and message_document(flow, 2)["subject"] == "Subject 0"
    assert Flow.get_by_id(flow.id).version == 2


def test_publishing_keeps_a_revisions_name(home: Home) -> None:
    """A revision that goes live is named after the date unless a user has named it."""
    flow = create_flow(home, EMAIL_STEP, status="draft")
    template = flow.templates[0].id
    transactions.write(revisions.name_revision, home.account_id, template, 1, "The good one")
    transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor())
    transactions.write(templates.update, home.account_id, template, TemplateWrite(subject="Two"))
    labels = [row.label for row in TemplateRevision.select().order_by(TemplateRevision.number)]
    assert labels[0] == "The good one" and labels[1].startswith("Live 20")
    assert all(row.named for row in TemplateRevision.select())


def test_a_removed_step_stays_in_older_versions(home: Home) -> None:
    """The template of a removed step is not listed, but older versions keep its content."""
    flow = create_flow(home, EMAIL_STEP, {"duration": 60})
    wait = flow.steps[1]
    update_flow(home, flow, steps=[wait])
    assert [*versions.read_plan(flow.id, 2).nodes] == [wait["id"]] and [*versions.read_plan(flow.id, 1).nodes] == [
        1,
        wait["id"],
    ]
    assert message_document(flow, 1)["subject"] == "One" and message_document(flow, 1)["body"] == EMAIL_STEP["body"]
    assert store.get(home.account_id, flow.id).templates == []
    (template,) = Template.select().where(Template.flow == flow.id)
    # An edit of this template does not create a version of the flow
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(subject=""))
    assert Flow.get_by_id(flow.id).version == 2


def test_links_and_senders_are_pinned_to_the_version(home: Home) -> None:
    """Links, sender and values are those of publication; a transactional email has no tracked links."""
    flow = create_flow(home, {**EMAIL_STEP, "from_email": "ann@acme.test"}, {**EMAIL_STEP, "transactional": True})
    first, second = [row.pinned for row in Step.select().where(Step.flow == flow.id)]
    assert first["links"][0] == ["https://acme.test/a", "a"] and second["links"] == []
    assert first["sender"]["email"] == "ann@acme.test" and (first["tracking"], second["tracking"]) == (True, False)
    assert first["values"]["campaign"]["name"] == "Untitled flow"
    # The new name of the flow is part of the next version
    transactions.write(run, "UPDATE flow SET name = 'Later'")
    assert transactions.write(lambda: versions.publish(Flow.get_by_id(flow.id)))


def test_an_edit_is_validated_against_the_current_flow(home: Home) -> None:
    """A step that was removed meanwhile is invalid, or gets a new id; a deleted flow is not found."""
    flow = create_flow(home, EMAIL_STEP, {"duration": 60})
    request = validation.read(FlowPatch, {"steps": [{"id": 1}, {"id": 2, "duration": 90}]})
    draft = store.parse_request(home.account_id, request, flow.id)
    update_flow(home, flow, steps=[{"id": 1}])
    with pytest.raises(Invalid) as error_info:
        transactions.write(
            store.update, home.account_id, flow.id, validation.read(FlowPatch, {"steps": [{"id": 2}]}), draft, Actor()
        )
    assert error_info.value.fields == {"steps[0]": ["can't be blank"]}
    after = transactions.write(store.update, home.account_id, flow.id, request, draft, Actor())
    assert [(step["id"], step["type"]) for step in after.steps] == [(1, "email"), (3, "wait")]
    transactions.write(store.delete, home.account_id, flow.id)
    with pytest.raises(NotFound):
        transactions.write(store.update, home.account_id, flow.id, request, draft, Actor())


def test_archiving_ends_many_runs_in_batches(home: Home) -> None:
    """Archiving ends 300 runs at once and the rest later; until then the flow cannot be activated."""
    flow = create_flow(home, {"duration": 999})
    contact_ids = [home.contact(f"p{n}@acme.test").id for n in range(301)]
    start_runs(home, flow, *contact_ids, due_at=2**50)
    transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.archive, True)
    assert rows("SELECT status, count(*) FROM run GROUP BY status ORDER BY status") == [("exited", 300), ("live", 1)]
    update_flow(home, flow, status="draft")
    with pytest.raises(Unavailable):
        transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor())
    while lifecycle.settle_messages():
        pass
    assert rows("SELECT DISTINCT status, exit_reason FROM run") == [("exited", "flow_archived")]
    assert (
        transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor()).status == "active"
    )
