"""Values computed before a write transaction: the transaction uses them and does not compute them again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import preflight, send
from appliance.campaigns import store as campaigns
from appliance.campaigns.store import CampaignPatch, SendRequest
from appliance.content.designs import merge
from appliance.content.templates import editing, store, template_edits, validation
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation as fields
from appliance.core.errors import NotFound
from appliance.flows import drafts, lifecycle
from appliance.flows import store as flows
from appliance.flows.store import FlowCreate, FlowPatch
from appliance.sending.messages import compose, shared_content, test_sends, transactional
from appliance.sending.messages.test_sends import TestRequest
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import rows
from tests.domain.home import Home

DESIGN: dict[str, Any] = {"sections": [{"type": "text", "props": {"content": "<p>{{ contact.warmth }}</p>"}}]}
STEP: dict[str, Any] = {
    "type": "email",
    "subject": "Hi {{ contact.first_name }}",
    "body": "<p>{{ contact.data.x }}</p>",
}


def clear_caches() -> None:
    """Clear all caches of compiled texts, so that compiling again is counted."""
    validation._find_variables.cache_clear()
    validation._design_faults.cache_clear()
    compose.try_compile.cache_clear()
    merge.parse_template.cache_clear()
    shared_content.get_step_links.cache.clear()


@contextmanager
def assert_nothing_computed() -> Iterator[None]:
    """Fail if the variables or the message of a text are computed in the block."""
    clear_caches()
    yield
    computed = validation._find_variables.cache_info().misses, compose.try_compile.cache_info().misses
    assert computed == (0, 0), "(variables, messages) were computed in the write transaction"


def write(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a write transaction that must use prepared values."""
    with assert_nothing_computed():
        return transactions.write(lambda: function(*args, **kwargs))


def parse(kind: Any, raw: dict[str, Any]) -> Any:
    """Parse a request."""
    return fields.read(kind, raw)


def test_a_campaign_update_uses_prepared_content(home: Home) -> None:
    """The variables of the unchanged fields are included."""
    draft = home.campaign(home.list_of().id, preheader="For {{ contact.first_name }}")
    for change in ({"design": DESIGN}, {"subject": "Other"}, {"from_name": "Ann"}):
        request = parse(CampaignPatch, {"template_attributes": change})
        content = campaigns.prepare(home.account_id, draft.id, request.template_attributes)
        updated = write(send.update, home.account_id, draft.id, request, Actor("key:1"), content)
    assert set(updated.template.variables) == {"contact.first_name", "contact.warmth"}


def test_a_send_uses_its_prepared_message_and_audience(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The send compiles no message and does not count the audience again."""
    contact_list = home.list_of(home.contact("ann@example.org").id)
    body = '<p><a href="https://example.org/x">x</a> {{ contact.first_name }}</p>'
    draft = home.campaign(contact_list.id, subject="Hi", body=body)
    prepared = preflight.prepare_send(home.account_id, draft.id)

    def count_again(*_: Any) -> int:
        raise AssertionError("the audience was counted in the write transaction")

    monkeypatch.setattr("appliance.campaigns.audience.estimate_size", count_again)
    campaign = write(send.go_live, home.account_id, draft.id, SendRequest(), Actor(can_approve=True), None, prepared)
    assert (campaign.status, campaign.audience_count) == ("active", 1)


def test_an_outdated_preparation_is_not_sent(home: Home) -> None:
    """If the campaign changed after the preparation, its stored content is sent."""
    draft = home.campaign(home.list_of(home.contact("ann@example.org").id).id, subject="Hi", body="<p>before</p>")
    prepared = preflight.prepare_send(home.account_id, draft.id)
    body = '<p><a href="https://example.org/new">new</a></p>'
    change = parse(CampaignPatch, {"template_attributes": {"body": body}})
    transactions.write(send.update, home.account_id, draft.id, change, Actor("key:1"))
    arguments = (home.account_id, draft.id, SendRequest(), Actor(can_approve=True), None, prepared)
    campaign = transactions.write(send.go_live, *arguments)
    urls = [url for (url,) in rows("SELECT url FROM link WHERE campaign_id = ? ORDER BY number", (campaign.id,))]
    assert urls == ["https://example.org/new", "{{ unsubscribe_url }}"]


@pytest.mark.parametrize("target", ["undo", 1, "redo"])
def test_undo_restore_and_redo_use_the_prepared_revision(target: Literal["undo", "redo"] | int, home: Home) -> None:
    """No variables of the restored revision are computed in the write transaction."""
    template = transactions.write(store.create, home.account_id, parse(TemplateWrite, {"design": DESIGN}))
    bare_request = parse(TemplateWrite, {"design": {}, "subject": "Bare"})
    transactions.write(store.update, home.account_id, template.id, bare_request)
    if target == "redo":
        transactions.write(template_edits.undo, home.account_id, template.id)
    prepared = template_edits.prepare_revision(home.account_id, template.id, target)
    if isinstance(target, int):
        row = write(template_edits.restore, home.account_id, template.id, target, prepared=prepared)
    else:
        row = write(getattr(template_edits, target), home.account_id, template.id, prepared=prepared)
    assert set(row.variables) == (set() if target == "redo" else {"contact.warmth"})


def test_create_update_and_edits_use_prepared_content(home: Home) -> None:
    """Requests of the API and edits in the editor compute no variables in the write transaction."""
    request = parse(TemplateWrite, {"design": DESIGN})
    prepared = store.prepare(home.account_id, request)
    row = write(store.create, home.account_id, request, prepared=prepared)
    assert set(row.variables) == {"contact.warmth"}
    request = parse(TemplateWrite, {"subject": "Hi {{ contact.last_name }}"})
    prepared = store.prepare(home.account_id, request, row.id)
    row = write(store.update, home.account_id, row.id, request, prepared=prepared)
    assert set(row.variables) == {"contact.warmth", "contact.last_name"}
    changes = [editing.Change("email.subject", "Plain")]
    prepared = editing.prepare(row, editing.build_detail_edit(row, changes))
    row = write(editing.edit_details, home.account_id, row.id, changes, None, prepared).template
    assert set(row.variables) == {"contact.warmth"}


def test_prepared_errors_belong_to_their_request(home: Home) -> None:
    """The errors of one request are not returned for another request or another channel."""
    good, bad = parse(TemplateWrite, {"subject": "Hi"}), parse(TemplateWrite, {"subject": "{{ nope"})
    assert store.prepare(home.account_id, bad).get_faults(bad, "email")
    assert store.prepare(home.account_id, bad).get_faults(good, "email") is None
    assert store.prepare(home.account_id, good).get_faults(good, "email") == ()
    assert store.prepare(home.account_id, good).get_faults(good, "sms") is None


def test_fields_without_merge_tags_compute_no_variables(home: Home) -> None:
    """A change of name, reply-to and From email computes no variables."""
    template = transactions.write(store.create, home.account_id, parse(TemplateWrite, {"design": DESIGN}))
    misses_before = validation._find_variables.cache_info().misses
    changes = {"name": "Else", "reply_to": "back@example.org", "from_email": "us@example.org"}
    transactions.write(store.update, home.account_id, template.id, parse(TemplateWrite, changes))
    assert validation._find_variables.cache_info().misses == misses_before


def test_a_flow_uses_its_prepared_contents_and_messages(home: Home) -> None:
    """Creating and changing a live flow, changing a step's template and activating again compute nothing."""
    actor = Actor(can_approve=True)
    body_data = {"name": "Welcome", "trigger": {"event": "optin"}, "steps": [STEP], "status": "active"}
    body, draft = flows.prepare_create(home.account_id, parse(FlowCreate, body_data), True)
    flow = write(flows.create, home.account_id, body, draft, actor)
    assert flow.status == "active"

    step = {"id": flow.steps[0]["id"], **STEP, "subject": "Bye {{ contact.last_name }}"}
    request = parse(FlowPatch, {"steps": [step]})
    draft = flows.prepare_update(home.account_id, request, flow.id, True)
    flow = write(flows.update, home.account_id, flow.id, request, draft, actor)
    assert flow.version == 2

    template_id = flow.steps[0]["template_id"]
    change = parse(TemplateWrite, {"subject": "Third"})
    prepared = store.prepare(home.account_id, change, template_id)
    write(store.update, home.account_id, template_id, change, prepared=prepared)
    assert flows.get(home.account_id, flow.id).version == 3

    messages = drafts.prepare_messages(home.account_id, flow.id)
    assert len(messages) == 1
    transactions.write(flows.apply_action, home.account_id, flow.id, lifecycle.pause)
    assert write(drafts.activate, home.account_id, flow.id, actor, None, messages).status == "active"


def test_test_sends_and_transactional_mail_use_prepared_messages(home: Home) -> None:
    """The write transaction compiles neither a test email nor a transactional one."""
    template_request = parse(TemplateWrite, {"subject": "Hi", "body": "<p>{{ contact.first_name }}</p>"})
    template = transactions.write(store.create, home.account_id, template_request)
    request = parse(MessageWrite, {"to": "ann@example.org", "subject": "One", "body": "<p>{{ data.x }}</p>"})
    prepared_message = transactional.prepare(home.account_id, request)
    assert write(transactional.queue_message, home.account_id, request, prepared=prepared_message).status == "queued"
    prepared = test_sends.prepare(home.account_id, template.id)
    test_request = parse(TestRequest, {"email": "ann@example.org"})
    clear_caches()
    result = transactions.write(test_sends.send, home.account_id, template.id, test_request, True, prepared)
    assert result.sent == 1 and compose.try_compile.cache_info().misses == 0


def test_preparing_a_missing_object_raises(home: Home) -> None:
    """A draft that does not exist or belongs to another account raises NotFound."""
    draft = home.campaign(home.list_of().id)
    body = parse(TemplateWrite, {"design": DESIGN})
    for account_id, campaign_id in ((home.account_id + 1, draft.id), (home.account_id, draft.id + 1)):
        with pytest.raises(NotFound):
            campaigns.prepare(account_id, campaign_id, body)
        with pytest.raises(NotFound):
            preflight.prepare_send(account_id, campaign_id)
    with pytest.raises(NotFound):
        template_edits.prepare_revision(home.account_id + 1, draft.template_id, "undo")
