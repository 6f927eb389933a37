"""Values that are made before a write transaction: the transaction uses them and computes nothing of a text again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import preflight, send
from appliance.campaigns import store as campaigns
from appliance.campaigns.store import CampaignPatch, SendRequest
from appliance.content.designs import merge
from appliance.content.templates import editing, store, validation
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
    """Forget everything that was computed of a text, so that computing it again shows."""
    validation._find_variables.cache_clear()
    validation._design_faults.cache_clear()
    compose.try_compile.cache_clear()
    merge.parse_template.cache_clear()
    shared_content._links_cache.clear()


@contextmanager
def nothing_computed() -> Iterator[None]:
    """Fail if the variables or the message of a text are computed in the block."""
    clear_caches()
    yield
    computed = validation._find_variables.cache_info().misses, compose.try_compile.cache_info().misses
    assert computed == (0, 0), "(variables, messages) were computed in the write transaction"


def write(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a write transaction that must use what was prepared."""
    with nothing_computed():
        return transactions.write(lambda: function(*args, **kwargs))


def read(kind: Any, raw: dict[str, Any]) -> Any:
    """Parse a request."""
    return fields.read(kind, raw)


def test_a_change_of_a_campaign_uses_its_prepared_content(home: Home) -> None:
    """The template's other texts count as much as those that the change names."""
    draft = home.campaign(home.list_of().id, preheader="For {{ contact.first_name }}")
    for change in ({"design": DESIGN}, {"subject": "Other"}, {"from_name": "Ann"}):
        request = read(CampaignPatch, {"template_attributes": change})
        content = campaigns.prepare(home.account_id, draft.id, request.template_attributes)
        done = write(send.update, home.account_id, draft.id, request, Actor("key:1"), content)
    assert set(done.template.variables) == {"contact.first_name", "contact.warmth"}


def test_a_send_uses_its_prepared_message_and_audience(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The links of the send too, and the audience is not counted again."""
    people = home.list_of(home.contact("ann@example.org").id)
    body = '<p><a href="https://example.org/x">x</a> {{ contact.first_name }}</p>'
    draft = home.campaign(people.id, subject="Hi", body=body)
    prepared = preflight.prepare_send(home.account_id, draft.id)

    def count_again(*_: Any) -> int:
        raise AssertionError("the audience was counted in the write transaction")

    monkeypatch.setattr("appliance.campaigns.audience.estimate_size", count_again)
    sent = write(send.go_live, home.account_id, draft.id, SendRequest(), Actor(can_approve=True), None, prepared)
    assert (sent.status, sent.audience_count) == ("active", 1)


def test_a_send_of_something_else_than_was_prepared_sends_what_is_stored(home: Home) -> None:
    """A change between preparation and send is sent, and a fault of it refuses the send."""
    draft = home.campaign(home.list_of(home.contact("ann@example.org").id).id, subject="Hi", body="<p>before</p>")
    prepared = preflight.prepare_send(home.account_id, draft.id)
    link = '<p><a href="https://example.org/new">new</a></p>'
    change = read(CampaignPatch, {"template_attributes": {"body": link}})
    transactions.write(send.update, home.account_id, draft.id, change, Actor("key:1"))
    args = (home.account_id, draft.id, SendRequest(), Actor(can_approve=True), None, prepared)
    sent = transactions.write(send.go_live, *args)
    urls = [url for (url,) in rows("SELECT url FROM link WHERE campaign_id = ? ORDER BY number", (sent.id,))]
    assert urls == ["https://example.org/new", "{{ unsubscribe_url }}"]


@pytest.mark.parametrize("way", ["undo", 1, "redo"])
def test_a_step_in_the_history_uses_the_prepared_revision(way: Literal["undo", "redo"] | int, home: Home) -> None:
    """Undo, a revision by number, and redo."""
    template = transactions.write(store.create, home.account_id, read(TemplateWrite, {"design": DESIGN}))
    bare = read(TemplateWrite, {"design": {}, "subject": "Bare"})
    transactions.write(store.update, home.account_id, template.id, bare)
    if way == "redo":
        transactions.write(store.undo, home.account_id, template.id)
    prepared = store.prepare_revision(home.account_id, template.id, way)
    if isinstance(way, int):
        row = write(store.restore, home.account_id, template.id, way, prepared=prepared)
    else:
        row = write(getattr(store, way), home.account_id, template.id, prepared=prepared)
    assert set(row.variables) == (set() if way == "redo" else {"contact.warmth"})


def test_create_update_and_edits_use_prepared_content(home: Home) -> None:
    """The API's requests and the editor's values."""
    request = read(TemplateWrite, {"design": DESIGN})
    prepared = store.prepare(home.account_id, request)
    row = write(store.create, home.account_id, request, prepared=prepared)
    assert set(row.variables) == {"contact.warmth"}
    request = read(TemplateWrite, {"subject": "Hi {{ contact.last_name }}"})
    prepared = store.prepare(home.account_id, request, row.id)
    row = write(store.update, home.account_id, row.id, request, prepared=prepared)
    assert set(row.variables) == {"contact.warmth", "contact.last_name"}
    changes = [editing.Change("email.subject", "Plain")]
    prepared = editing.prepare(row, editing.build_detail_edit(row, changes))
    row = write(editing.edit_details, home.account_id, row.id, changes, None, prepared).template
    assert set(row.variables) == {"contact.warmth"}


def test_prepared_faults_are_those_of_the_request_only(home: Home) -> None:
    """Faults that were found in one request are not reported for another, nor forgotten."""
    good, bad = read(TemplateWrite, {"subject": "Hi"}), read(TemplateWrite, {"subject": "{{ nope"})
    assert store.prepare(home.account_id, bad).get_faults(bad, "email")
    assert store.prepare(home.account_id, bad).get_faults(good, "email") is None
    assert store.prepare(home.account_id, good).get_faults(good, "email") == ()
    assert store.prepare(home.account_id, good).get_faults(good, "sms") is None


def test_another_name_or_sender_is_no_other_text(home: Home) -> None:
    """Fields that cannot have variables change none."""
    template = transactions.write(store.create, home.account_id, read(TemplateWrite, {"design": DESIGN}))
    before = validation._find_variables.cache_info().misses
    names = {"name": "Else", "reply_to": "back@example.org", "from_email": "us@example.org"}
    transactions.write(store.update, home.account_id, template.id, read(TemplateWrite, names))
    assert validation._find_variables.cache_info().misses == before


def test_a_flow_uses_its_prepared_contents_and_messages(home: Home) -> None:
    """Created live, changed while live, a step's template changed, and activated again."""
    by = Actor(can_approve=True)
    raw = {"name": "Welcome", "trigger": {"event": "optin"}, "steps": [STEP], "status": "active"}
    body, draft = flows.prepare_create(home.account_id, read(FlowCreate, raw), True)
    flow = write(flows.create, home.account_id, body, draft, by)
    assert flow.status == "active"

    step = {"id": flow.steps[0]["id"], **STEP, "subject": "Bye {{ contact.last_name }}"}
    request = read(FlowPatch, {"steps": [step]})
    draft = flows.prepare_update(home.account_id, request, flow.id, True)
    flow = write(flows.update, home.account_id, flow.id, request, draft, by)
    assert flow.version == 2

    template_id = flow.steps[0]["template_id"]
    change = read(TemplateWrite, {"subject": "Third"})
    prepared = store.prepare(home.account_id, change, template_id)
    write(store.update, home.account_id, template_id, change, prepared=prepared)
    assert flows.get(home.account_id, flow.id).version == 3

    messages = drafts.prepare_messages(home.account_id, flow.id)
    assert len(messages) == 1
    transactions.write(flows.apply_action, home.account_id, flow.id, lifecycle.pause)
    assert write(drafts.activate, home.account_id, flow.id, by, None, messages).status == "active"


def test_tests_and_single_messages_use_their_prepared_message(home: Home) -> None:
    """A test email of a template, and an email over the API."""
    written = read(TemplateWrite, {"subject": "Hi", "body": "<p>{{ contact.first_name }}</p>"})
    template = transactions.write(store.create, home.account_id, written)
    request = read(MessageWrite, {"to": "ann@example.org", "subject": "One", "body": "<p>{{ data.x }}</p>"})
    single = transactional.prepare(home.account_id, request)
    assert write(transactional.queue_message, home.account_id, request, prepared=single).status == "queued"
    prepared = test_sends.prepare(home.account_id, template.id)
    test = read(TestRequest, {"email": "ann@example.org"})
    clear_caches()
    sent = transactions.write(test_sends.send, home.account_id, template.id, test, True, prepared)
    assert sent.sent == 1 and compose.try_compile.cache_info().misses == 0


def test_nothing_is_prepared_of_what_does_not_exist(home: Home) -> None:
    """Nor of what belongs to another account."""
    draft = home.campaign(home.list_of().id)
    body = read(TemplateWrite, {"design": DESIGN})
    for account, number in ((home.account_id + 1, draft.id), (home.account_id, draft.id + 1)):
        with pytest.raises(NotFound):
            campaigns.prepare(account, number, body)
        with pytest.raises(NotFound):
            preflight.prepare_send(account, number)
    with pytest.raises(NotFound):
        store.prepare_revision(home.account_id + 1, draft.template_id, "undo")
