"""The frequency cap: no contact gets more marketing messages than the account allows, with any number of campaigns."""

import random

import pytest

from appliance.accounts import accounts
from appliance.accounts.accounts import AccountWrite
from appliance.core import clock, validation
from appliance.core.errors import Deferred
from appliance.sending.messages import queue, transactional
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from tests.domain import sms_crowd
from tests.domain.home import Home, record_and_claim

DAY = 86_400


def set_cap(home: Home, limit: dict[str, int] | None) -> None:
    """Set the frequency cap of the account."""
    request = validation.read(AccountWrite, {"frequency_cap": limit})
    transactions.write(accounts.update, home.account_id, request)


def send_campaign(home: Home, *contact_ids: int, name: str = "Spring", **body: object) -> Campaign:
    """Send a campaign to these contacts."""
    return home.send(home.campaign(home.list_of(*contact_ids, name=name).id, name=name), **body)


def deliver_all() -> int:
    """Deliver all messages that are due, and return their number."""
    count = 0
    while row := record_and_claim(None, True):
        record_and_claim(Outcome(row, None, None, "Hello", "a@example.org", f"{row.id}@example.org"), False)
        count += 1
    return count


def message_states(campaign: Campaign) -> list[tuple[str, str | None]]:
    """Return (status, skip reason) of a campaign's messages."""
    return rows("SELECT status, skip_reason FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))


def test_a_message_over_the_cap_is_skipped(home: Home) -> None:
    """The third message within the days is skipped with a reason; after the days the next is sent."""
    set_cap(home, {"messages": 2, "days": 7})
    ana = home.contact("ana@example.org").id
    first_campaigns = [send_campaign(home, ana, name=f"n{number}") for number in range(2)]
    assert deliver_all() == 2
    third = send_campaign(home, ana, name="n3")
    assert deliver_all() == 0 and message_states(third) == [("skipped", "frequency_cap")]
    home.advance(7 * DAY + 1)
    fourth = send_campaign(home, ana, name="n4")
    assert (
        deliver_all() == 1
        and [message_states(campaign)[0][0] for campaign in (*first_campaigns, fourth)] == ["sent"] * 3
    )


def test_the_cap_counts_email_and_sms_together(home: Home) -> None:
    """After an SMS an email is over the cap, and the reverse; transactional SMS do not count."""
    set_cap(home, {"messages": 1, "days": 7})
    ana = home.upsert(email="ana@example.org", phone="+447700900123").contact.id
    for fields in ({"body": "Offer", "transactional": False}, {"body": "Code"}):
        request = validation.read(MessageWrite, {"channel": "sms", "to": "+447700900123", **fields})
        transactions.write(transactional.queue_message, home.account_id, request)
    ledger_rows = sms_crowd.claim_all()
    sms_crowd.record_accepted(ledger_rows)
    campaign = send_campaign(home, ana)
    assert (len(ledger_rows), deliver_all(), message_states(campaign)) == (2, 0, [("skipped", "frequency_cap")])
    home.advance(7 * DAY + 1)
    send_campaign(home, ana, name="later")
    assert deliver_all() == 1
    late_sms = {"channel": "sms", "to": "+447700900123", "body": "Offer", "transactional": False}
    transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, late_sms))
    assert sms_crowd.claim_all() == []
    assert rows("SELECT channel, skip_reason FROM message ORDER BY id DESC LIMIT 1") == [("sms", "frequency_cap")]


def test_only_sent_marketing_messages_count(home: Home) -> None:
    """Transactional, test and deferred messages do not count; transactional and test ones are never skipped."""
    set_cap(home, {"messages": 1, "days": 1})
    ana = home.contact("ana@example.org").id
    body = {"to": "ana@example.org", "subject": "Receipt", "body": "<p>Thanks</p>"}
    for _ in range(3):
        transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, body))
    assert deliver_all() == 3
    deferred_campaign = send_campaign(home, ana, name="refused")
    row = record_and_claim(None, True)
    assert row is not None
    record_and_claim(Outcome(row, Deferred("later", 451)), False)
    assert message_states(deferred_campaign) == [("queued", None)]
    send_campaign(home, ana, name="first")
    assert deliver_all() == 1
    transactions.write(
        transactional.queue_message, home.account_id, validation.read(MessageWrite, body | {"transactional": False})
    )
    transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, body))
    transactions.write(
        transactional.queue_message,
        home.account_id,
        validation.read(MessageWrite, body | {"transactional": False}),
        None,
        True,
    )
    assert deliver_all() == 2
    assert rows("SELECT skip_reason FROM message WHERE skip_reason NOT NULL") == [("frequency_cap",)]


def test_a_claimed_message_holds_back_the_next_one(home: Home) -> None:
    """The next message waits for the outcome: skipped if the claimed one was sent, sent if it was deferred."""
    set_cap(home, {"messages": 1, "days": 1})
    for error, expected in ((None, ("skipped", "frequency_cap")), (Deferred("later", 451), ("sending", None))):
        contact_id = home.contact(f"{expected[0]}@example.org").id
        first, second = (send_campaign(home, contact_id, name=f"{name}-{expected[0]}") for name in "ab")
        row = record_and_claim(None, True)
        assert row is not None and record_and_claim(None, True) is None
        other = second if row.campaign_id == first.id else first
        assert message_states(other) == [("queued", None)]
        record_and_claim(Outcome(row, error, None, "Hello", "a@example.org", "1@example.org"), False)
        home.advance(6)
        next_claim = record_and_claim(None, True)
        assert (next_claim is not None, message_states(other)) == (expected[0] == "sending", [expected])
        run("UPDATE message SET status = 'cancelled', due_at = NULL WHERE status IN ('queued', 'sending')")


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_claims_and_outcomes_keeps_the_cap(home: Home, seed: int) -> None:
    """With several campaigns and random batches no contact gets more than the cap."""
    rng, maximum = random.Random(seed), 1 + seed % 3
    set_cap(home, {"messages": maximum, "days": 30})
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(2)]
    for number in range(4):
        send_campaign(home, *contact_ids, name=f"c{number}")
    claimed: list[LedgerRow] = []
    for _ in range(40):
        claim_count = rng.choice([0, 1, 3])
        finished = [claimed.pop(rng.randrange(len(claimed)))] if claimed and rng.random() < 0.5 else []
        error = Deferred("later", 451) if rng.random() < 0.5 else None
        outcomes = [Outcome(row, error, None, "Hi", "a@example.org", f"{row.id}@example.org") for row in finished]
        candidates = (
            [row._replace(first_attempt_at=clock.now_ms()) for row in QueueReader().fetch_candidates(claim_count)]
            if claim_count
            else []
        )
        transactions.write(queue.record, outcomes)
        claimed_ids = transactions.write(queue.claim, candidates, "process")
        claimed += [row for row in candidates if row.id in claimed_ids]
        home.advance(rng.choice([0, 6, 400]))
    for contact_id in contact_ids:
        counted = rows("SELECT count(*) FROM message WHERE contact_id = ? AND sent_at NOT NULL", (contact_id,))
        assert 0 < counted[0][0] <= maximum


def test_counting_marketing_messages_uses_an_index(home: Home) -> None:
    """The count for the cap reads only the contact's rows."""
    ana = home.contact("ana@example.org").id
    send_campaign(home, ana)
    plan = str(rows(f"EXPLAIN QUERY PLAN {queue.COUNT_MARKETING}", (0, ana, 1)))
    assert "message_contact_id" in plan
