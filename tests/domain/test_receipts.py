"""Delivery receipts of SMS providers: any order gives the same status, and each event is recorded once."""

from itertools import permutations
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import Uncertain
from appliance.inbound import delivery_reports
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome
from appliance.sending.sms.error_codes import Receipt
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Message
from tests.domain.home import Home

NUMBER = "+15550001111"


def create_sms(home: Home, status: str = "sent", sid: str | None = "SM1", number: str = NUMBER, **fields: Any) -> int:
    """Create an SMS with this status and provider id, by default one that was sent."""
    contact = home.upsert(phone=number).contact
    now = clock.now_ms()
    values = {
        "account": home.account_id, "contact": contact.id, "channel": "sms", "recipient": number,
        "recipient_key": number, "sender": "Acme", "status": status, "source_type": "transactional",
        "transactional": True, "provider": "twilio", "provider_id": sid, "created_at": now, "updated_at": now,
        "sent_at": now if status == "sent" else None, **fields,
    }  # fmt: skip
    return int(transactions.write(Message.create, **values).id)


def apply_receipt(status: str, sid: str = "SM1", number: int | None = None, code: str | None = None) -> bool:
    """Apply a delivery receipt."""
    return transactions.write(delivery_reports.apply_receipt, "twilio", Receipt(sid, status, number, code))


def record_outcome(number: int, error: Any = None, sid: str | None = None) -> None:
    """Record the outcome of a message that is being sent."""
    row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])
    transactions.write(
        queue.record_and_claim,
        [Outcome(row, error, sender="Acme", provider_id=sid)],
        [],
        "process",
    )


def fetch_state(number: int) -> tuple[str, list[str]]:
    """Return status and events of a message."""
    query = "SELECT event FROM event WHERE resource_uid = ? ORDER BY id"
    return Message.get_by_id(number).status, [row[0] for row in rows(query, (f"message:{number}",))]


@pytest.mark.parametrize("order", sorted(set(permutations(["sent", "sent", "delivered"]))))
def test_receipts_in_any_order(order: tuple[str, ...], home: Home) -> None:
    """Shuffled and repeated receipts end in `delivered`, with one event."""
    number = create_sms(home)
    for status in (*order, *order):
        apply_receipt(status)
    row = Message.get_by_id(number)
    assert fetch_state(number) == ("delivered", ["sms_delivered"]) and row.delivered_at is not None
    assert scalar("SELECT count(*) FROM receipt") == 0


@pytest.mark.parametrize("status", ["undelivered", "failed"])
def test_an_undelivered_sms_is_bounced(status: str, home: Home) -> None:
    """An undelivered SMS stays bounced whatever receipts follow; the event has reason, code and provider."""
    number = create_sms(home)
    for receipt_status in (status, "delivered", "sent", "undelivered"):
        apply_receipt(receipt_status, code="30008" if receipt_status == status else None)
    [event_data] = rows(
        "SELECT data ->> 'reason', data ->> 'code', data ->> 'source' FROM event WHERE event = 'sms_failed'"
    )
    assert fetch_state(number) == ("bounced", ["sms_failed"]) and event_data == ("returned", "30008", "twilio")
    assert scalar("SELECT fail_count FROM channel WHERE key = ?", (NUMBER,)) == 1


@pytest.mark.parametrize("has_token", [True, False], ids=["by our token", "by its sid alone"])
def test_a_receipt_before_the_response(has_token: bool, home: Home) -> None:
    """Receipts that arrive before the provider's response is recorded are kept, and count once after it."""
    number = create_sms(home, "sending", None)
    for status in ("delivered", "sent", "delivered"):
        assert not apply_receipt(status, number=number if has_token else None)
    assert fetch_state(number) == ("sending", []) and scalar("SELECT count(*) FROM receipt") == 2
    record_outcome(number, sid="SM1")
    assert fetch_state(number) == ("delivered", ["sms_sent", "sms_delivered"])
    assert scalar("SELECT count(*) FROM receipt") == 0


@pytest.mark.parametrize(
    ("status", "final_status"), [("sent", "sent"), ("delivered", "delivered"), ("undelivered", "bounced")]
)
@pytest.mark.parametrize("status_before", ["uncertain", "queued", "held"])
def test_a_receipt_settles_a_message_in_doubt(status_before: str, status: str, final_status: str, home: Home) -> None:
    """A receipt with our token shows that the message was accepted; it is not retried or looked up any more."""
    number = create_sms(
        home, status_before, None, uncertain_count=1, attempts=1, due_at=5 if status_before != "uncertain" else None
    )
    assert apply_receipt(status, "SM9", number)
    row = Message.get_by_id(number)
    assert (row.status, row.provider_id, row.due_at, row.attempts) == (final_status, "SM9", None, 1)
    assert fetch_state(number)[1][0] == "sms_sent"


def test_a_receipt_before_a_lost_response(home: Home) -> None:
    """A receipt that arrives while the message is being sent settles the doubt after the lost response."""
    number = create_sms(home, "sending", None)
    apply_receipt("delivered", "SM1", number)
    record_outcome(number, Uncertain("the connection broke"))
    assert fetch_state(number)[0] == "delivered" and Message.get_by_id(number).provider_id == "SM1"


def test_a_receipt_settles_an_interrupted_message(home: Home) -> None:
    """A receipt that arrived before a crash settles the message at the next start."""
    number = create_sms(home, "sending", None, body_hash=7)
    apply_receipt("sent", "SM1", number)
    transactions.write(
        delivery_reports.recover_with_receipts, [(LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message")[0]), None)]
    )
    assert fetch_state(number) == ("sent", ["sms_sent"]) and Message.get_by_id(number).provider_id == "SM1"


def test_a_receipt_settles_only_messages_in_doubt(home: Home) -> None:
    """A receipt with our token changes no message that was not handed over, or that another provider carries."""
    for status in ("queued", "held", "failed", "skipped", "cancelled"):
        number = create_sms(home, status, None)
        assert not apply_receipt("delivered", f"SM-{status}", number) and fetch_state(number) == (status, [])
    other_sms = create_sms(home, "uncertain", None, provider="http", uncertain_count=1)
    assert not apply_receipt("delivered", "SM7", other_sms) and fetch_state(other_sms) == ("uncertain", [])
    assert scalar("SELECT count(*) FROM receipt") == 0


def test_a_receipt_of_another_copy(home: Home) -> None:
    """For another copy of a message only its delivery counts, not its failure."""
    number = create_sms(home)
    assert not apply_receipt("undelivered", "SM2", number) and fetch_state(number) == ("sent", [])
    assert apply_receipt("delivered", "SM2", number) and Message.get_by_id(number).provider_id == "SM1"


@pytest.mark.parametrize(("sid", "final_status"), [("SM1", "bounced"), ("77", "sent"), (None, "sent")])
def test_a_receipt_with_our_message_id(sid: str | None, final_status: str, home: Home) -> None:
    """A receipt may have our message id instead of the provider's, unless that one is numeric or not known."""
    number = create_sms(home, sid=sid)
    apply_receipt("undelivered", str(number))
    assert fetch_state(number)[0] == final_status and Message.get_by_id(number).provider_id == sid
    assert scalar("SELECT count(*) FROM receipt") == (final_status == "sent")


def test_unknown_receipts_are_deleted(home: Home) -> None:
    """Receipts of unknown messages are deleted after two weeks; late ones of our messages change nothing."""
    number = create_sms(home)
    apply_receipt("sent", "SM-foreign")
    home.advance(15 * 24 * 3600)
    assert not apply_receipt("delivered") and fetch_state(number)[0] == "sent"
    apply_receipt("sent", "SM-other")
    assert rows("SELECT provider_id FROM receipt") == [("SM-other",)]


def test_receipts_of_test_sends_and_erased_contacts(home: Home) -> None:
    """A test's receipt changes only that message and its event; for an erased contact nothing is written."""
    test_id = create_sms(home, test=True)
    assert apply_receipt("undelivered") and fetch_state(test_id)[0] == "bounced"
    assert scalar("SELECT count(*) FROM event WHERE event = 'sms_failed' AND test = 1") == 1
    assert scalar("SELECT fail_count FROM channel WHERE key = ?", (NUMBER,)) == 0
    erased_id = create_sms(home, sid="SM2")
    transactions.write(run, "UPDATE message SET recipient_key = NULL, recipient = NULL WHERE id = ?", (erased_id,))
    assert not apply_receipt("delivered", "SM2") and fetch_state(erased_id) == ("sent", [])


def test_invalid_receipts_are_ignored(home: Home) -> None:
    """An unknown status or message id changes and stores nothing."""
    create_sms(home)
    assert not apply_receipt("read") and not apply_receipt("delivered", "SM5", 99_999)
    assert scalar("SELECT count(*) FROM receipt") == 0
