"""What providers tell about SMS: in whatever order it comes it ends the same, and each thing is told once."""

from itertools import permutations
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import Uncertain
from appliance.inbound import delivery_reports
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome
from appliance.sending.sms.error_codes import Receipt
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Message
from tests.domain.home import Home

NUMBER = "+15550001111"


def text(home: Home, status: str = "sent", sid: str | None = "SM1", number: str = NUMBER, **more: Any) -> int:
    """Write an SMS as it stands after it was handed over, or while it is."""
    person = home.upsert(phone=number).contact
    now = clock.now_ms()
    values = {
        "account": home.account_id, "contact": person.id, "channel": "sms", "recipient": number,
        "recipient_key": number, "sender": "Acme", "status": status, "source_type": "transactional",
        "transactional": True, "provider": "twilio", "provider_id": sid, "created_at": now, "updated_at": now,
        "sent_at": now if status == "sent" else None, **more,
    }  # fmt: skip
    return int(transactions.write(Message.create, **values).id)


def tell(status: str, sid: str = "SM1", number: int | None = None, code: str | None = None) -> bool:
    """Hand in a receipt."""
    return transactions.write(delivery_reports.apply_receipt, "twilio", Receipt(sid, status, number, code))


def end(number: int, error: Any = None, sid: str | None = None) -> None:
    """Return what became of a message in hand."""
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])
    transactions.write(
        delivery_reports.record_and_claim_with_receipts,
        [Outcome(claim, error, sender="Acme", provider_id=sid)],
        [],
        "process",
    )


def state(number: int) -> tuple[str, list[str]]:
    """Return status and events of a message."""
    words = "SELECT event FROM event WHERE resource_uid = ? ORDER BY id"
    return Message.get_by_id(number).status, [row[0] for row in rows(words, (f"message:{number}",))]


@pytest.mark.parametrize("order", sorted(set(permutations(["sent", "sent", "delivered"]))))
def test_the_order_makes_no_difference(order: tuple[str, ...], home: Home) -> None:
    """Shuffled and repeated receipts end in the highest status, with one event."""
    number = text(home)
    for status in (*order, *order):
        tell(status)
    row = Message.get_by_id(number)
    assert state(number) == ("delivered", ["sms_delivered"]) and row.delivered_at is not None
    assert scalar("SELECT count(*) FROM receipt") == 0


@pytest.mark.parametrize("status", ["undelivered", "failed"])
def test_what_does_not_arrive_has_come_back(status: str, home: Home) -> None:
    """Not delivered after all is `bounced`, whatever is told later; the code stands with the event."""
    number = text(home)
    for told in (status, "delivered", "sent", "undelivered"):
        tell(told, code="30008" if told == status else None)
    [said] = rows("SELECT data ->> 'reason', data ->> 'code', data ->> 'source' FROM event WHERE event = 'sms_failed'")
    assert state(number) == ("bounced", ["sms_failed"]) and said == ("returned", "30008", "twilio")
    assert scalar("SELECT fail_count FROM channel WHERE key = ?", (NUMBER,)) == 1


@pytest.mark.parametrize("named", [True, False], ids=["by our token", "by its sid alone"])
def test_a_receipt_before_the_answer(named: bool, home: Home) -> None:
    """A provider may tell of a message before its answer is written down: it counts then, and once."""
    number = text(home, "sending", None)
    for status in ("delivered", "sent", "delivered"):
        assert not tell(status, number=number if named else None)
    assert state(number) == ("sending", []) and scalar("SELECT count(*) FROM receipt") == 2
    end(number, sid="SM1")
    assert state(number) == ("delivered", ["sms_sent", "sms_delivered"])
    assert scalar("SELECT count(*) FROM receipt") == 0


@pytest.mark.parametrize(("status", "ends"), [("sent", "sent"), ("delivered", "delivered"), ("undelivered", "bounced")])
@pytest.mark.parametrize("before", ["uncertain", "queued", "held"])
def test_who_tells_of_a_message_has_taken_it(before: str, status: str, ends: str, home: Home) -> None:
    """A receipt with our token settles a doubt: the message was taken, and is asked for or repeated no more."""
    number = text(home, before, None, uncertain_count=1, attempts=1, due_at=5 if before != "uncertain" else None)
    assert tell(status, "SM9", number)
    row = Message.get_by_id(number)
    assert (row.status, row.provider_id, row.due_at, row.attempts) == (ends, "SM9", None, 1)
    assert state(number)[1][0] == "sms_sent"


def test_a_receipt_while_the_answer_is_lost(home: Home) -> None:
    """Told while the message is in hand, it settles the doubt that its lost answer ends in."""
    number = text(home, "sending", None)
    tell("delivered", "SM1", number)
    end(number, Uncertain("the connection broke"))
    assert state(number)[0] == "delivered" and Message.get_by_id(number).provider_id == "SM1"


def test_after_a_crash(home: Home) -> None:
    """What was told before a crash is known to the process that begins after it."""
    number = text(home, "sending", None, body_hash=7)
    tell("sent", "SM1", number)
    transactions.write(
        delivery_reports.recover_with_receipts, [(Claim._make(rows(f"SELECT {COLUMNS} FROM message")[0]), None)]
    )
    assert state(number) == ("sent", ["sms_sent"]) and Message.get_by_id(number).provider_id == "SM1"


def test_what_is_not_in_doubt_is_not_settled(home: Home) -> None:
    """A token says nothing of a message that was never handed over, was refused, or is another provider's."""
    for before in ("queued", "held", "failed", "skipped", "cancelled"):
        number = text(home, before, None)
        assert not tell("delivered", f"SM-{before}", number) and state(number) == (before, [])
    other = text(home, "uncertain", None, provider="http", uncertain_count=1)
    assert not tell("delivered", "SM7", other) and state(other) == ("uncertain", [])
    assert scalar("SELECT count(*) FROM receipt") == 0


def test_a_copy(home: Home) -> None:
    """Of another copy of the same message only that it arrived counts; its failure is not this one's."""
    number = text(home)
    assert not tell("undelivered", "SM2", number) and state(number) == ("sent", [])
    assert tell("delivered", "SM2", number) and Message.get_by_id(number).provider_id == "SM1"


@pytest.mark.parametrize(("sid", "ends"), [("SM1", "bounced"), ("77", "sent"), (None, "sent")])
def test_our_own_id_is_a_name_too(sid: str | None, ends: str, home: Home) -> None:
    """Who tells of a message by the id that we gave them is understood, unless it may be one of their own numbers."""
    number = text(home, sid=sid)
    tell("undelivered", str(number))
    assert state(number)[0] == ends and Message.get_by_id(number).provider_id == sid
    assert scalar("SELECT count(*) FROM receipt") == (ends == "sent")


def test_what_nobody_asked_for_does_not_pile_up(home: Home) -> None:
    """Receipts of messages that are not ours are dropped after two weeks, late ones of ours change nothing."""
    number = text(home)
    tell("sent", "SM-foreign")
    home.advance(15 * 24 * 3600)
    assert not tell("delivered") and state(number)[0] == "sent"
    tell("sent", "SM-other")
    assert rows("SELECT provider_id FROM receipt") == [("SM-other",)]


def test_tests_and_the_erased(home: Home) -> None:
    """What happened to a test stands with the test alone; of who was erased nothing is written any more."""
    test = text(home, test=True)
    assert tell("undelivered") and state(test)[0] == "bounced"
    assert scalar("SELECT count(*) FROM event WHERE event = 'sms_failed' AND test = 1") == 1
    assert scalar("SELECT fail_count FROM channel WHERE key = ?", (NUMBER,)) == 0
    gone = text(home, sid="SM2")
    transactions.write(run, "UPDATE message SET recipient_key = NULL, recipient = NULL WHERE id = ?", (gone,))
    assert not tell("delivered", "SM2") and state(gone) == ("sent", [])


def test_nonsense_is_left_out(home: Home) -> None:
    """A status that is none, and a token of a row that is gone, change and keep nothing."""
    text(home)
    assert not tell("read") and not tell("delivered", "SM5", 99_999)
    assert scalar("SELECT count(*) FROM receipt") == 0
