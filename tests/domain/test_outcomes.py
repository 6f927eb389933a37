"""Outcomes of claimed messages: each result of an attempt, at each moment of the campaign (P3, P5, P6, P7)."""

from typing import Any

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import send, states, store
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    MailUnauthenticated,
    RecipientRejected,
    Uncertain,
)
from appliance.sending.messages import queue_reader
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.storage import transactions
from appliance.storage.database import fetch_one, scalar
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home, record_and_claim, recover_after_crash

ERRORS: dict[str, DeliveryError | None] = {
    "accepted": None,
    "temporary": Deferred("greylisted", 451, "4.7.1"),
    "permanent": RecipientRejected("no such user", 550, "5.1.1"),
    "uncertain": Uncertain("the connection broke after the dot"),
    "unreachable": ConnectionFailed("no route"),
    "client_rejected": ClientRejected("wrong password", 535),
}


def send_campaign(home: Home, contact_count: int = 1, **options: Any) -> Campaign:
    """Send a campaign to this many contacts."""
    members = [home.contact(f"p{number}@example.org").id for number in range(contact_count)]
    return home.send(home.campaign(home.list_of(*members).id), **options)


def claim_next() -> LedgerRow | None:
    """Claim the next message, if there is one."""
    return record_and_claim(None, True)


def finish(row: LedgerRow | None, kind: str) -> Message:
    """Record the outcome of a claimed message and return the message."""
    assert row is not None
    record_and_claim(Outcome(row, ERRORS[kind], None, "Hello", "a@example.org", "1@example.org"), False)
    return Message.get_by_id(row.id)


@pytest.mark.parametrize(
    ("kind", "status", "attempts"),
    [("accepted", "sent", 1), ("temporary", "queued", 1), ("permanent", "failed", 1), ("uncertain", "queued", 1),
     ("unreachable", "queued", 0), ("client_rejected", "queued", 0)],
)  # fmt: skip
def test_each_outcome_has_its_status(kind: str, status: str, attempts: int, home: Home) -> None:
    """Accepted is `sent`, a permanent rejection `failed`, all others are tried again.

    Client-side errors cost no attempt.
    """
    send_campaign(home)
    row = finish(claim_next(), kind)
    assert (row.status, row.attempts, row.claimed_by) == (status, attempts, None)
    assert (row.due_at is None) is (status != "queued")


@pytest.mark.parametrize(
    ("kind", "status"),
    [("accepted", "sent"), ("temporary", "cancelled"), ("permanent", "failed"), ("unreachable", "cancelled"),
     ("client_rejected", "cancelled")],
)  # fmt: skip
def test_a_claimed_message_after_a_cancel(kind: str, status: str, home: Home) -> None:
    """A message claimed before the cancel gets the status of its outcome and is never tried again."""
    campaign = send_campaign(home, contact_count=3)
    row = claim_next()
    stats = transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1")).stats
    assert (stats["pending"], stats["cancelled"]) == (1, 2)
    assert finish(row, kind).status == status
    home.advance(100_000)
    assert claim_next() is None and store.get(home.account_id, campaign.id).stats["pending"] == 0


@pytest.mark.parametrize("kind", ["temporary", "unreachable", "client_rejected", "uncertain"])
def test_a_claimed_message_after_a_pause(kind: str, home: Home) -> None:
    """A message that was not sent before the pause waits until the campaign is resumed."""
    campaign = send_campaign(home)
    row = claim_next()
    transactions.write(states.pause, home.account_id, campaign.id, Actor("key:1"))
    assert finish(row, kind).status == "queued"
    home.advance(100_000)
    assert claim_next() is None
    transactions.write(send.resume, home.account_id, campaign.id, Actor("key:1"))
    next_row = claim_next()
    assert row is not None and next_row is not None and next_row.id == row.id


def test_temporary_rejections_follow_the_retry_delays(home: Home) -> None:
    """Delays are those of `email.retry_after` (±20%), the last one repeats, and `email.give_up` ends the attempts."""
    home.configure(email__retry_after=[100.0, 1000.0], email__give_up="1h")
    send_campaign(home)
    waits = []
    while (row := finish(claim_next(), "temporary")).status == "queued":
        wait = row.due_at - row.updated_at
        waits.append(wait / 1000)
        home.advance(wait / 1000 - 1)
        assert claim_next() is None, "it must not be due early"
        home.advance(1.1)
    assert 80 <= waits[0] <= 120 and len(waits) > 3 and all(800 <= wait <= 1200 for wait in waits[1:])
    assert (row.status, row.error_code, row.attempts) == ("failed", "expired", len(waits) + 1)
    assert sum(waits) >= 3600 and (row.error_smtp, row.error_enhanced, row.error_text) == (451, "4.7.1", "greylisted")


def test_give_up_counts_from_the_first_attempt(home: Home) -> None:
    """A message that was queued for days is still retried for the full `email.give_up`."""
    home.configure(email__retry_after=[100.0], email__give_up="1h")
    send_campaign(home)
    home.advance(5 * 24 * 3600)
    assert finish(claim_next(), "temporary").status == "queued"
    home.advance(3500)
    assert finish(claim_next(), "temporary").status == "queued"
    home.advance(200)
    assert finish(claim_next(), "temporary").error_code == "expired"


def test_an_unreachable_server_is_probed_without_limit(home: Home) -> None:
    """Each attempt follows after `email.probe_after`, does not count, and never ends the message."""
    home.configure(email__probe_after="30s", email__give_up="1h")
    send_campaign(home)
    for _ in range(200):
        row = finish(claim_next(), "unreachable")
        assert (row.status, row.attempts, row.due_at - row.updated_at) == ("queued", 0, 30_000)
        home.advance(30.1)
    assert finish(claim_next(), "accepted").status == "sent"


def test_an_outage_is_no_part_of_the_retry_period(home: Home) -> None:
    """A temporary rejection after an outage that is longer than `give_up` is the first attempt, and is repeated."""
    home.configure(email__probe_after="30s", email__give_up="1h", email__retry_after=[60.0])
    send_campaign(home)
    finish(claim_next(), "unreachable")
    home.advance(7_200)
    row = finish(claim_next(), "temporary")
    assert (row.status, row.attempts) == ("queued", 1) and row.updated_at - row.first_attempt_at < 1_000
    home.advance(3_700)
    assert finish(claim_next(), "temporary").error_code == "expired"


@pytest.mark.parametrize(("in_doubt", "tries"), [("resend", 2), ("hold", 1)])
def test_a_message_in_doubt_is_sent_again_at_most_once(in_doubt: str, tries: int, home: Home) -> None:
    """`resend` sends it once more and then leaves it uncertain; `hold` leaves it uncertain at once (P3)."""
    home.configure(email__in_doubt=in_doubt)
    send_campaign(home)
    for _ in range(tries):
        row = finish(claim_next(), "uncertain")
    home.advance(100_000)
    assert (row.status, row.uncertain_count, row.error_code) == (
        "uncertain",
        tries,
        "in_doubt",
    ) and claim_next() is None


def test_an_immediate_retry_survives_a_clock_change(home: Home) -> None:
    """A message to retry at once is claimed at once, even if the clock was set back an hour."""
    send_campaign(home)
    assert finish(claim_next(), "uncertain").status == "queued"
    home.advance(-3600)
    row = claim_next()
    assert row is not None and row.uncertain_count == 1


@pytest.mark.parametrize(("in_doubt", "status"), [("resend", "queued"), ("hold", "uncertain")])
def test_a_crash_puts_only_claimed_messages_in_doubt(in_doubt: str, status: str, home: Home) -> None:
    """The message claimed at the crash is in doubt; the others stay queued."""
    home.configure(email__in_doubt=in_doubt)
    send_campaign(home, contact_count=3)
    row = claim_next()
    assert row is not None and recover_after_crash() == 1
    assert (Message.get_by_id(row.id).status, Message.get_by_id(row.id).uncertain_count) == (status, 1)
    assert scalar("SELECT count(*) FROM message WHERE status = 'queued' AND uncertain_count = 0") == 2


def test_an_accepted_message_is_counted_once(home: Home) -> None:
    """An accepted message counts for campaign, contact and channel, and has its event, subject and Message-ID."""
    campaign = send_campaign(home)
    row = finish(claim_next(), "accepted")
    assert (row.subject, row.sender, row.internet_message_id) == ("Hello", "a@example.org", "1@example.org")
    assert store.get(home.account_id, campaign.id).sent_count == 1
    assert fetch_one("SELECT email_sent_count, sent_count FROM contact c JOIN channel h ON h.contact_id = c.id") == (
        1,
        1,
    )
    assert fetch_one(
        "SELECT count(*) FROM event WHERE event = 'email_sent' AND resource_uid = ?", (f"message:{row.id}",)
    ) == (1,)


def test_nothing_is_sent_during_a_hold(home: Home) -> None:
    """An undo during the hold returns the campaign to draft and deletes its rows; after the hold it is sent."""
    campaign = send_campaign(home, contact_count=2, hold_seconds=15)
    assert campaign.phase == "holding" and claim_next() is None
    undone = transactions.write(states.undo_send, home.account_id, campaign.id)
    assert (undone.status, undone.stats["audience"]) == ("draft", 0) and scalar("SELECT count(*) FROM message") == 0
    home.send(undone, hold_seconds=15)
    home.advance(15.1)
    assert claim_next() is not None


def test_a_stopped_account_sends_nothing(home: Home) -> None:
    """While sending is stopped nothing is due; afterwards the queued messages are sent."""
    send_campaign(home)
    transactions.write(lambda: Campaign.raw("UPDATE account SET sending_stopped = 1").execute())
    assert claim_next() is None and not queue_reader.has_due()
    transactions.write(lambda: Campaign.raw("UPDATE account SET sending_stopped = 0").execute())
    assert queue_reader.has_due() and claim_next() is not None


def test_an_unsubscribed_recipient_is_skipped(home: Home) -> None:
    """An unsubscribe after the send ends the row as skipped, with its reason and event (P4)."""
    send_campaign(home)
    home.opt_out("p0@example.org")
    assert claim_next() is None
    assert fetch_one("SELECT status, skip_reason, due_at FROM message") == ("skipped", "unsubscribed", None)
    assert scalar("SELECT count(*) FROM event WHERE event = 'email_skipped'") == 1


def test_an_authentication_rejection_is_retried(home: Home) -> None:
    """An authentication rejection counts as an attempt and finally fails the message, without a suppression."""
    home.configure(email__retry_after=[100.0], email__give_up="1h")
    send_campaign(home)
    ledger_row, rejection = claim_next(), MailUnauthenticated("550 5.7.26 unauthenticated", 550, "5.7.26")
    assert ledger_row is not None
    record_and_claim(Outcome(ledger_row, rejection), False)
    row = Message.get_by_id(ledger_row.id)
    assert (row.status, row.attempts, row.error_enhanced) == ("queued", 1, "5.7.26")
    assert 80_000 <= row.due_at - row.updated_at <= 120_000
    home.advance(7200)
    record_and_claim(Outcome(claim_next() or ledger_row, rejection), False)
    assert Message.get_by_id(ledger_row.id).status == "failed"
    assert scalar("SELECT count(*) FROM event WHERE event = 'email_failed'") == 1
    assert scalar("SELECT count(*) FROM suppression") == 0 and fetch_one("SELECT kind FROM bounce") == (
        "authentication",
    )
