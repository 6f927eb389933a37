"""Conditions of sections that cost too much: the message of that contact is not rendered, and all others are."""

import quopri
from typing import Any

import pytest

from appliance.audience.segments.condition_budget import Cost
from appliance.campaigns import content
from appliance.campaigns.rehearsal import RehearsalRun
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates.revisions import to_document
from appliance.core.errors import Invalid
from appliance.sending.messages import preview, section_conditions
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.workers.renderer import Renderer
from appliance.storage.database import connection, rows
from tests.domain.home import Home
from tests.domain.test_flow_condition_limits import record_views

_TOO_SLOW = "takes too long to check which sections to show: use fewer conditions on events"
_SEEN = {"event": "view", "where": [{"name": "event.path", "predicate": "cont", "value": "zzz"}]}
_NOT_SEEN = [{"name": "event", "predicate": "not_performed", "value": _SEEN}]
DESIGN: dict[str, Any] = {
    "sections": [
        {"type": "text", "props": {"content": "<p>Hello</p>"}},
        {"type": "text", "props": {"content": "<p>Not seen</p>", "show_if": _NOT_SEEN}},
        {"type": "text", "props": {"content": "<p>Not seen</p>", "show_if": _NOT_SEEN}},
    ]
}


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the conditions of a message to about the cost of reading a thousand events, however busy the machine is."""
    monkeypatch.setattr(section_conditions, "MAX_COST", Cost(60_000, 60.0))


def test_only_the_message_of_a_contact_with_a_long_history_fails(home: Home) -> None:
    """The others are rendered, those before and after it in the same batch; preview and preflight name the reason."""
    contacts = [home.contact(f"p{number}@example.org") for number in range(12)]
    list_id = home.list_of(*(contact.id for contact in contacts)).id
    costly_id = contacts[5].id
    record_views(home, costly_id, 5_000)
    draft = home.campaign(list_id, body=None, design=DESIGN)
    *_, result = RehearsalRun(draft).run()
    assert (result.done, [(failure.contact_id, failure.error) for failure in result.failures]) == (
        12, [(costly_id, _TOO_SLOW)],
    )  # fmt: skip
    assert content.render_preview(home.account_id, draft.id, costly_id)["error"] == _TOO_SLOW
    assert content.render_preview(home.account_id, draft.id, contacts[0].id)["error"] is None
    with pytest.raises(Invalid) as caught:
        preview.render_fields(home.account_id, to_document(draft.template), contacts[5])
    assert caught.value.fields == {"document": [_TOO_SLOW]}
    campaign = home.send(draft)
    found_rows = rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))
    ledger_rows = [LedgerRow._make(row)._replace(first_attempt_at=1_780_000_000_000) for row in found_rows]
    renderer = Renderer()
    messages = [message for turn in renderer.render_turns(ledger_rows, 60.0) for message in turn.result()]
    renderer.close()
    assert len(messages) == 12
    for message in messages:
        if message.row.contact_id == costly_id:
            assert message.failure is not None and message.failure.skip_reason == "render_error"
            assert str(message.failure.error) == _TOO_SLOW
        else:
            assert message.prepared is not None
            assert quopri.decodestring(message.prepared.envelope.content).count(b"Not seen") == 4


def test_a_batch_that_costs_too_much_is_split(home: Home) -> None:
    """Contacts who cost too much together, but not alone, are all evaluated, in a few statements."""
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(40)]
    for contact_id in contact_ids:
        record_views(home, contact_id, 100)
    cache = section_conditions.ConditionCache(home.account_id, {"first": _NOT_SEEN})
    cache.set_expected_contacts(contact_ids)
    statements: list[str] = []
    connection().set_exec_trace(lambda cursor, sql, bindings: statements.append(sql) is None)
    try:
        for contact_id in contact_ids:
            assert cache.get_values(contact_id) == {"show": {"first": True}}
    finally:
        connection().set_exec_trace(None)
    assert 5 < sum("json_each(:one_ids)" in sql for sql in statements) < 30


def test_equal_conditions_are_evaluated_once(home: Home) -> None:
    """Two sections with the same conditions cost one statement for a contact."""
    contact_id = home.contact("ann@example.org").id
    campaign = home.send(home.campaign(home.list_of(contact_id).id, body=None, design=DESIGN))
    row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (campaign.id,))[0])
    statements: list[str] = []
    connection().set_exec_trace(lambda cursor, sql, bindings: statements.append(sql) is None)
    try:
        MessagePreparer().build(row._replace(first_attempt_at=1_780_000_000_000))
    finally:
        connection().set_exec_trace(None)
    assert sum("json_each(:one_ids)" in sql for sql in statements) == 1


def test_reading_the_conditions_counts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many conditions that cost little in the database cost processor time before that."""
    monkeypatch.setattr(section_conditions, "MAX_COST", Cost(10**12, 0.002))
    contact_id = home.contact("ann@example.org").id
    conditions = {
        f"c{number}": [{"name": "group", "predicate": "any", "value": _NOT_SEEN * 24}] for number in range(50)
    }
    with pytest.raises(MergeError, match=_TOO_SLOW):
        section_conditions.get_show_values(home.account_id, contact_id, conditions)
