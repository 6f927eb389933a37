"""SMS in doubt and their lookup at the provider: matched once, looked up three times, then held or sent once more."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import ConnectionFailed, Deferred, LookupUnsupported, Postponed, Uncertain
from appliance.sending.delivery.smtp_client import Envelope
from appliance.sending.messages import capture_inbox, queue, retries
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome, OutgoingMessage
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Message
from tests.domain.home import Home, recover_after_crash

NUMBER = "+12125550100"
BODY = OutgoingMessage(Envelope("+12125550199", NUMBER, "Grüße".encode()), "", "+12125550199", "", 2, True)


def create_uncertain_sms(home: Home, provider: str = "twilio", **fields: Any) -> int:
    """Create an SMS whose attempt was uncertain, and return its id."""
    contact, now = home.upsert(phone=NUMBER).contact, clock.now_ms()
    values = {
        "account": home.account_id, "contact": contact.id, "channel": "sms", "recipient": NUMBER,
        "first_attempt_at": now,
        "recipient_key": NUMBER, "status": "sending", "source_type": "transactional", "transactional": True,
        "provider": provider, "created_at": now, "updated_at": now, **fields,
    }  # fmt: skip
    number = int(transactions.write(Message.create, **values).id)
    transactions.write(
        queue.record, [Outcome(load_claim(number), Uncertain("no answer"), sender=BODY.sender, prepared=BODY)]
    )
    return number


def load_claim(number: int) -> LedgerRow:
    """Return the claim of a message."""
    return LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])


def fetch_state(number: int) -> tuple[Any, ...]:
    """Return status, attempts, uncertain count, lookup count, and the seconds until the message is due."""
    row = fetch_one(
        "SELECT m.status, m.attempts, m.uncertain_count, r.lookup_count, m.due_at FROM message m LEFT JOIN "
        "retry_payload r "
        "ON r.message_id = m.id WHERE m.id = ?",
        (number,),
    )
    assert row is not None
    return (*row[:4], None if row[4] is None else max(0, round((row[4] - clock.now_ms()) / 1000)))


def settle_lookup(number: int, *provider_ids: str) -> None:
    """Settle a lookup that found the provider's messages with these ids."""
    payload = retries.load_payload(number)
    assert payload is not None
    transactions.write(
        retries.settle_lookup, load_claim(number), payload, tuple(AcceptedSms(name, "sent") for name in provider_ids)
    )


def test_a_message_found_by_lookup_is_sent(home: Home) -> None:
    """A found message counts as one attempt, with its segments, provider id and event; its opt-out hint is recorded."""
    number = create_uncertain_sms(home)
    assert fetch_state(number) == ("queued", 1, 1, 0, 5) and retries.load_payload(number) == BODY._replace(
        lookup_count=0
    )
    settle_lookup(number, "SM1")
    row = Message.get_by_id(number)
    assert (row.status, row.attempts, row.provider_id, row.segments, row.sender) == ("sent", 1, "SM1", 2, BODY.sender)
    assert retries.load_payload(number) is None and home.channel(NUMBER).opt_out_hint_sent_at is not None
    assert rows("SELECT event FROM event WHERE resource_uid = ?", (f"message:{number}",)) == [("sms_sent",)]
    assert home.channel(NUMBER).sent_count == 1


def test_a_provider_message_matches_one_row_only(home: Home) -> None:
    """Of three identical messages in doubt, each of the provider's two messages is matched to one."""
    first, second, third = (create_uncertain_sms(home) for _ in range(3))
    for number in (second, first, third):
        settle_lookup(number, "SM1", "SM2")
    provider_ids = {number: Message.get_by_id(number).provider_id for number in (first, second, third)}
    assert provider_ids == {second: "SM1", first: "SM2", third: None}
    assert fetch_state(third)[:4] == ("queued", 1, 1, 1)


@pytest.mark.parametrize("in_doubt", ["hold", "resend"])
def test_a_message_not_found_is_held_or_sent_again(in_doubt: str, home: Home) -> None:
    """An uncertain SMS is looked up after 5 s, 30 s and 2 min, then held or sent once more; a second doubt is final."""
    home.configure(sms__in_doubt=in_doubt)
    number = create_uncertain_sms(home)
    waits = []
    for _ in range(3):
        waits.append(fetch_state(number)[4])
        home.advance(waits[-1])
        assert [row.id for row in QueueReader("sms").fetch_candidates(5)] == [number]
        settle_lookup(number)
    assert waits == [5, 30, 120]
    if in_doubt == "resend":
        assert fetch_state(number) == ("queued", 1, 1, None, 0), "the message is sent once more, with the same body"
        transactions.write(run, "UPDATE message SET status = 'sending' WHERE id = ?", (number,))
        transactions.write(queue.record, [Outcome(load_claim(number), Uncertain("again"), prepared=BODY)])
        for lookup_count in range(3):
            assert fetch_state(number)[:4] == ("queued", 2, 2, lookup_count)
            settle_lookup(number)
    assert fetch_state(number)[0] == "uncertain" and retries.load_payload(number) == BODY
    assert "after three checks" in scalar("SELECT error_text FROM message WHERE id = ?", (number,))


@pytest.mark.parametrize("in_doubt", ["hold", "resend"])
def test_a_provider_without_lookups_is_asked_once(in_doubt: str, home: Home) -> None:
    """If the provider does not support lookups, the message is held or sent once more right away."""
    home.configure(sms__in_doubt=in_doubt)
    number = create_uncertain_sms(home)
    transactions.write(retries.postpone_lookup, load_claim(number), LookupUnsupported("no list"))
    assert fetch_state(number)[0] == ("uncertain" if in_doubt == "hold" else "queued")
    assert fetch_state(number)[3:] == (None, None if in_doubt == "hold" else 0)


def test_a_failed_lookup_is_retried(home: Home) -> None:
    """A failed lookup is retried after the SMS retry delays or when the provider says.

    At the end the message is uncertain.
    """
    home.configure(sms__retry_after=[100, 1000], sms__give_up_transactional="1h", sms__probe_after="7s")
    number = create_uncertain_sms(home)
    for error, min_seconds, max_seconds in (
        (ConnectionFailed("gone"), 7, 7), (Postponed("too fast", 40), 40, 40), (Deferred("500"), 80, 120),
    ):  # fmt: skip
        transactions.write(retries.postpone_lookup, load_claim(number), error)
        assert min_seconds <= fetch_state(number)[4] <= max_seconds and fetch_state(number)[:4] == ("queued", 1, 1, 0)
    home.advance(600)
    transactions.write(retries.postpone_lookup, load_claim(number), Deferred("500"))
    assert 800 <= fetch_state(number)[4] <= 1200
    home.advance(3600)
    # A lookup that had to wait for another one did not ask the provider
    transactions.write(retries.postpone_lookup, load_claim(number), Postponed("another one", 5))
    assert fetch_state(number)[0] == "queued"
    transactions.write(retries.postpone_lookup, load_claim(number), Deferred("500 oops"))
    assert fetch_state(number)[:2] == ("uncertain", 1)
    assert "500 oops" in scalar("SELECT error_text FROM message WHERE id = ?", (number,))


@pytest.mark.parametrize("decision", ["cancelled", "arrived", "retried"])
def test_a_late_lookup_changes_nothing(decision: str, home: Home) -> None:
    """A lookup that ends after a user cancelled or retried the message, or a receipt settled it, is ignored."""
    number = create_uncertain_sms(home)
    if decision == "cancelled":
        transactions.write(retries.cancel, home.account_id, number, "a person")
    elif decision == "arrived":
        transactions.write(retries.confirm_arrival, number, "SM9")
    else:
        transactions.write(retries.cancel, home.account_id, number, "a person")
        transactions.write(retries.retry, home.account_id, number, "a person")
    state_before = fetch_state(number)
    transactions.write(retries.settle_lookup, load_claim(number), BODY, (AcceptedSms("SM1", "sent"),))
    transactions.write(retries.postpone_lookup, load_claim(number), Deferred("late"))
    assert fetch_state(number) == state_before and state_before[0] == {"cancelled": "uncertain", "arrived": "sent"}.get(
        decision, "queued"
    )
    if decision == "arrived":
        row = Message.get_by_id(number)
        assert (row.provider_id, row.segments, row.attempts) == ("SM9", 2, 1)


def test_doubts_at_a_provider_without_lookups(home: Home) -> None:
    """With `hold` the message is uncertain at once; with `resend` it is sent once more and then uncertain."""
    assert fetch_state(create_uncertain_sms(home, "http"))[:4] == ("uncertain", 1, 1, None)
    home.configure(sms__in_doubt="resend", email__in_doubt="hold")
    assert fetch_state(create_uncertain_sms(home, "http"))[:4] == ("queued", 1, 1, None)
    assert fetch_state(create_uncertain_sms(home, "http", uncertain_count=1, attempts=1))[:4] == (
        "uncertain",
        2,
        2,
        None,
    )


def test_a_crash_puts_a_sent_again_sms_in_doubt(home: Home) -> None:
    """A message that was being sent again at the crash is looked up; one that waits for a lookup is unchanged."""
    waiting_id, resent_id = create_uncertain_sms(home), create_uncertain_sms(home)
    transactions.write(run, "UPDATE retry_payload SET lookup_count = NULL WHERE message_id = ?", (resent_id,))
    digest = retries.hash_body(BODY)
    transactions.write(run, f"UPDATE message SET status = 'sending', body_hash = {digest} WHERE id = ?", (resent_id,))
    assert recover_after_crash() == 1
    assert fetch_state(waiting_id)[:4] == ("queued", 1, 1, 0) and fetch_state(resent_id)[:4] == ("queued", 2, 2, 0)


def test_the_capture_inbox_stores_an_sms_once(home: Home) -> None:
    """A captured SMS in doubt is delivered again at once and stored only once."""
    number = create_uncertain_sms(home, "capture")
    assert fetch_state(number)[:4] == ("queued", 1, 1, None) and fetch_state(number)[4] == 0
    text = OutgoingSms(number, NUMBER, BODY.sender, "Grüße", "")
    assert len({transactions.write(capture_inbox.store_sms, text) for _ in range(2)}) == 1
    assert scalar("SELECT count(*) FROM captured_message") == 1
    assert fetch_state(create_uncertain_sms(home, "capture", uncertain_count=1))[:4] == ("queued", 1, 1, None)
