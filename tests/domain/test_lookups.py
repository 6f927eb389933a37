"""SMS in doubt and what their provider knows of them: found once, asked for three times, held or sent once more."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import ConnectionFailed, Deferred, LookupUnsupported, Postponed, Uncertain
from appliance.sending.delivery.smtp_client import Envelope
from appliance.sending.messages import capture_inbox, queue, retries
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome, PreparedMessage
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Message
from tests.domain.home import Home, crash

NUMBER = "+12125550100"
BODY = PreparedMessage(
    Envelope("+12125550199", NUMBER, "Grüße".encode(), is_stuffed=True), "", "+12125550199", "", 2, True
)


def doubtful(home: Home, provider: str = "twilio", **more: Any) -> int:
    """Write an SMS, and let its answer get lost."""
    person, now = home.upsert(phone=NUMBER).contact, clock.now_ms()
    values = {
        "account": home.account_id, "contact": person.id, "channel": "sms", "recipient": NUMBER,
        "first_attempt_at": now,
        "recipient_key": NUMBER, "status": "sending", "source_type": "transactional", "transactional": True,
        "provider": provider, "created_at": now, "updated_at": now, **more,
    }  # fmt: skip
    number = int(transactions.write(Message.create, **values).id)
    transactions.write(
        queue.record_and_claim,
        [Outcome(claim(number), Uncertain("no answer"), sender=BODY.sender, prepared=BODY)],
        [],
        "p",
    )
    return number


def claim(number: int) -> Claim:
    """Return a row as it is taken in hand."""
    return Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])


def state(number: int) -> tuple[Any, ...]:
    """Return status, attempts and doubts, how often it was looked for, and the seconds until it is due."""
    found = fetch_one(
        "SELECT m.status, m.attempts, m.uncertain_count, r.lookup_count, m.due_at FROM message m LEFT JOIN "
        "retry_payload r "
        "ON r.message_id = m.id WHERE m.id = ?",
        (number,),
    )
    assert found is not None
    return (*found[:4], None if found[4] is None else max(0, round((found[4] - clock.now_ms()) / 1000)))


def look(number: int, *found: str) -> None:
    """Ask for a message as the sender does when its time has come."""
    kept = retries.load_payload(number)
    assert kept is not None
    transactions.write(retries.settle_lookup, claim(number), kept, tuple(AcceptedSms(name, "sent") for name in found))


def test_what_is_found_was_accepted(home: Home) -> None:
    """It counts as one attempt, with its parts, its name at the provider, its event; that it hinted is remembered."""
    number = doubtful(home)
    assert state(number) == ("queued", 1, 1, 0, 5) and retries.load_payload(number) == BODY._replace(lookup_count=0)
    look(number, "SM1")
    row = Message.get_by_id(number)
    assert (row.status, row.attempts, row.provider_id, row.segments, row.sender) == ("sent", 1, "SM1", 2, BODY.sender)
    assert retries.load_payload(number) is None and home.channel(NUMBER).opt_out_hint_sent_at is not None
    assert rows("SELECT event FROM event WHERE resource_uid = ?", (f"message:{number}",)) == [("sms_sent",)]
    assert home.channel(NUMBER).sent_count == 1


def test_two_that_say_the_same_are_two(home: Home) -> None:
    """What another row has is not this one's, whichever is looked for first."""
    first, second, third = (doubtful(home) for _ in range(3))
    for number in (second, first, third):
        look(number, "SM1", "SM2")
    names = {number: Message.get_by_id(number).provider_id for number in (first, second, third)}
    assert names == {second: "SM1", first: "SM2", third: None}
    assert state(third)[:4] == ("queued", 1, 1, 1)


@pytest.mark.parametrize("in_doubt", ["hold", "resend"])
def test_what_is_nowhere_is_held_or_sent_once_more(in_doubt: str, home: Home) -> None:
    """After 5 s, 30 s and 2 min; the one time more ends in doubt for good."""
    home.configure(sms__in_doubt=in_doubt)
    number = doubtful(home)
    waits = []
    for _ in range(3):
        waits.append(state(number)[4])
        home.advance(waits[-1])
        assert [row.id for row in QueueReader("sms").fetch_candidates(5)] == [number]
        look(number)
    assert waits == [5, 30, 120]
    if in_doubt == "resend":
        assert state(number) == ("queued", 1, 1, None, 0), "the bytes that may have arrived go out again"
        transactions.write(run, "UPDATE message SET status = 'sending' WHERE id = ?", (number,))
        transactions.write(queue.record_and_claim, [Outcome(claim(number), Uncertain("again"), prepared=BODY)], [], "p")
        for looked in range(3):
            assert state(number)[:4] == ("queued", 2, 2, looked)
            look(number)
    assert state(number)[0] == "uncertain" and retries.load_payload(number) == BODY
    assert "asked three times" in scalar("SELECT error_text FROM message WHERE id = ?", (number,))


@pytest.mark.parametrize("in_doubt", ["hold", "resend"])
def test_who_keeps_no_list_is_asked_once(in_doubt: str, home: Home) -> None:
    """A provider that speaks only as much of an interface as sending takes leaves nobody waiting for days."""
    home.configure(sms__in_doubt=in_doubt)
    number = doubtful(home)
    transactions.write(retries.postpone_lookup, claim(number), LookupUnsupported("no list"))
    assert state(number)[0] == ("uncertain" if in_doubt == "hold" else "queued")
    assert state(number)[3:] == (None, None if in_doubt == "hold" else 0)


def test_who_cannot_be_asked_is_asked_later(home: Home) -> None:
    """By the ladder from when it was sent, or when the provider says; at the end of all attempts a person decides."""
    home.configure(sms__retry_after=[100, 1000], sms__give_up_transactional="1h", sms__probe_after="7s")
    number = doubtful(home)
    for error, least, most in (
        (ConnectionFailed("gone"), 7, 7), (Postponed("too fast", 40), 40, 40), (Deferred("500"), 80, 120),
    ):  # fmt: skip
        transactions.write(retries.postpone_lookup, claim(number), error)
        assert least <= state(number)[4] <= most and state(number)[:4] == ("queued", 1, 1, 0)
    home.advance(600)
    transactions.write(retries.postpone_lookup, claim(number), Deferred("500"))
    assert 800 <= state(number)[4] <= 1200
    home.advance(3600)
    transactions.write(retries.postpone_lookup, claim(number), Deferred("500 oops"))
    assert state(number)[:2] == ("uncertain", 1)
    assert "500 oops" in scalar("SELECT error_text FROM message WHERE id = ?", (number,))


@pytest.mark.parametrize("how", ["cancelled", "arrived", "retried"])
def test_what_was_decided_meanwhile_stays(how: str, home: Home) -> None:
    """An answer that comes after somebody took it back, a receipt settled it or a person sent it again is too late."""
    number = doubtful(home)
    if how == "cancelled":
        transactions.write(retries.cancel, home.account_id, number, "a person")
    elif how == "arrived":
        transactions.write(retries.confirm_arrival, number, "SM9")
    else:
        transactions.write(retries.cancel, home.account_id, number, "a person")
        transactions.write(retries.retry, home.account_id, number, "a person")
    before = state(number)
    transactions.write(retries.settle_lookup, claim(number), BODY, (AcceptedSms("SM1", "sent"),))
    transactions.write(retries.postpone_lookup, claim(number), Deferred("late"))
    assert state(number) == before and before[0] == {"cancelled": "uncertain", "arrived": "sent"}.get(how, "queued")
    if how == "arrived":
        row = Message.get_by_id(number)
        assert (row.provider_id, row.segments, row.attempts) == ("SM9", 2, 1)


def test_a_provider_that_cannot_look_up_holds_at_once(home: Home) -> None:
    """With `hold` for a person, with `resend` once more the same."""
    assert state(doubtful(home, "http"))[:4] == ("uncertain", 1, 1, None)
    home.configure(sms__in_doubt="resend", email__in_doubt="hold")
    assert state(doubtful(home, "http"))[:4] == ("queued", 1, 1, None)
    assert state(doubtful(home, "http", uncertain_count=1, attempts=1))[:4] == ("uncertain", 2, 2, None)


def test_a_death_with_a_message_in_hand_is_a_doubt(home: Home) -> None:
    """What was sent once more when the process died is looked for again; what is looked for stays as it is."""
    waiting, again = doubtful(home), doubtful(home)
    transactions.write(run, "UPDATE retry_payload SET lookup_count = NULL WHERE message_id = ?", (again,))
    digest = retries.hash_body(BODY)
    transactions.write(run, f"UPDATE message SET status = 'sending', body_hash = {digest} WHERE id = ?", (again,))
    assert crash() == 1
    assert state(waiting)[:4] == ("queued", 1, 1, 0) and state(again)[:4] == ("queued", 2, 2, 0)


def test_the_inbox_takes_each_once(home: Home) -> None:
    """What may have been captured is handed over again at once, however often, and stands there once."""
    number = doubtful(home, "capture")
    assert state(number)[:4] == ("queued", 1, 1, None) and state(number)[4] == 0
    text = OutgoingSms(number, NUMBER, BODY.sender, "Grüße", "")
    assert len({transactions.write(capture_inbox.store_sms, text) for _ in range(2)}) == 1
    assert scalar("SELECT count(*) FROM captured_message") == 1
    assert state(doubtful(home, "capture", uncertain_count=1))[:4] == ("queued", 1, 1, None)
