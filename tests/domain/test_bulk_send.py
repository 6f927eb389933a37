"""Emails to many recipients: stored once, skipped where they may not be sent, and erased with a contact."""

from typing import Any

import pytest

from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.core import validation
from appliance.core.errors import Faults, Invalid
from appliance.sending.messages import bulk_send, ledger, message_source
from appliance.sending.messages.bulk_send import BulkRecipient, CheckedRecipient
from appliance.sending.messages.compose import NOT_PREPARED
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.message_request import MessageRequest
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Message
from tests.domain.home import Home

RAW = {"to": "x@example.org", "from": "News <news@bakery.example>", "subject": "For {{ data.v_name }}",
       "html": "<p>Hi {{ data.v_name }}</p>", "tags": {"tags": ["a"]}}  # fmt: skip


def check(*names: str) -> list[CheckedRecipient]:
    """Return the recipients with these names."""
    faults = Faults()
    recipients = [
        BulkRecipient(
            f"{name}@example.org", {"v_name": name}, {"X-Name": name, "List-Unsubscribe": f"<https://x.org/{name}>"}
        )
        for name in names
    ]
    checked = bulk_send.check_recipients(recipients, faults)
    faults.check()
    return checked


def queue(home: Home, *names: str, **fields: Any) -> list[Message]:
    """Queue an email and return its messages."""
    message = validation.read(MessageRequest, RAW | fields)
    transactions.write(bulk_send.queue, home.account_id, message, check(*names), False, NOT_PREPARED)
    return list(Message.select().order_by(Message.id))


def test_content_is_stored_once_and_filled_for_each(home: Home) -> None:
    """Subject, text and headers have the values of the recipient; the source shows them too."""
    messages = queue(home, "ann", "bea", "cy")
    ledger_rows = [LedgerRow._make(row) for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")]
    preparer = MessagePreparer()
    sources = [preparer.prepare(row).envelope.content.decode() for row in ledger_rows]

    assert rows("SELECT count(*) FROM bulk_content") == [(1,)]
    assert rows("SELECT count(*) FROM message_content WHERE body IS NOT NULL OR text IS NOT NULL") == [(0,)]
    for name, source in zip(("ann", "bea", "cy"), sources, strict=True):
        assert f"Subject: For {name}\r\n" in source and f"X-Name: {name}\r\n" in source
        assert f"<https://x.org/{name}>" in source and "From: News <news@bakery.example>" in source
        assert "Hi=20=\r\n" + name in source
    assert "bea" in message_source.get_source(home.account_id, messages[1].id).decode()
    content = ledger.get_content(messages[1])
    assert content is not None and content.body == RAW["html"]


def test_recipients_who_may_not_be_written_to_are_skipped(home: Home) -> None:
    """Suppressed addresses and people who unsubscribed get nothing; people without a consent record do."""
    out = home.upsert(email="out@example.org", opt_in=True).contact
    home.upsert(email="new@example.org")
    home.suppress("gone@example.org", "hard_bounce")
    home.opt_out("out@example.org")
    messages = queue(home, "ann", "out", "new", "gone")

    assert [(row.recipient.partition("@")[0], row.status, row.skip_reason) for row in messages] == [
        ("ann", "queued", None), ("out", "skipped", "unsubscribed"), ("new", "queued", None),
        ("gone", "skipped", "suppressed_hard_bounce"),
    ]  # fmt: skip
    assert rows("SELECT event, data ->> 'reason' FROM event WHERE event = 'email_skipped' ORDER BY id") == [
        ("email_skipped", "unsubscribed"), ("email_skipped", "suppressed_hard_bounce"),
    ]  # fmt: skip
    assert messages[1].contact_id == out.id


def test_erased_contact_leaves_no_value(home: Home) -> None:
    """The values and headers of the contact are deleted; those of the others stay."""
    ann = home.upsert(email="ann@example.org", opt_in=True).contact
    queue(home, "ann", "bea")
    transactions.write(removal.erase, home.account_id, ann.id, Evidence("erasure"))

    assert rows("SELECT data, headers, bulk_id IS NULL FROM message_content ORDER BY id")[0] == ("{}", "{}", 1)
    assert "bea" in rows("SELECT data FROM message_content ORDER BY id")[1][0]
    assert rows("SELECT recipient, subject FROM message ORDER BY id")[0] == (None, None)


def test_content_that_only_an_erased_contact_got_is_deleted(home: Home) -> None:
    """The HTML of an email to one person may name that person, so it is deleted with the contact."""
    ann = home.upsert(email="ann@example.org", opt_in=True).contact
    queue(home, "ann")
    queue(home, "ann", "bea")
    transactions.write(removal.erase, home.account_id, ann.id, Evidence("erasure"))
    assert rows("SELECT bulk_id FROM message_content WHERE bulk_id NOT NULL") == rows("SELECT id FROM bulk_content")


def test_invalid_email_queues_nothing(home: Home) -> None:
    """The errors of the content are raised together."""
    with pytest.raises(Invalid) as error:
        queue(home, "ann", subject="", html="{{ 7 | }}")

    assert set(error.value.fields) == {"subject", "html"}
    assert rows("SELECT count(*) FROM message") == [(0,)]
