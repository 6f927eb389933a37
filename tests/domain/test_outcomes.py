"""What becomes of a message in hand: each answer of the next hop, at each moment of its campaign (P3, P5, P6, P7)."""

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
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.storage import transactions
from appliance.storage.database import fetch_one, scalar
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home, crash, turn

ERRORS: dict[str, DeliveryError | None] = {
    "accepted": None,
    "temporary": Deferred("greylisted", 451, "4.7.1"),
    "permanent": RecipientRejected("no such user", 550, "5.1.1"),
    "uncertain": Uncertain("the connection broke after the dot"),
    "unreachable": ConnectionFailed("no route"),
    "ours": ClientRejected("wrong password", 535),
}


def sent(home: Home, people: int = 1, **body: Any) -> Campaign:
    """Send a campaign to some people."""
    members = [home.contact(f"p{number}@example.org").id for number in range(people)]
    return home.send(home.campaign(home.list_of(*members).id), **body)


def take() -> Claim | None:
    """Take the next message in hand."""
    return turn(None, True)


def finish(claim: Claim | None, kind: str) -> Message:
    """Store what became of a message, and answer its row."""
    assert claim is not None
    turn(Outcome(claim, ERRORS[kind], None, "Hello", "a@example.org", "1@example.org"), False)
    return Message.get_by_id(claim.id)


@pytest.mark.parametrize(
    ("kind", "status", "attempts"),
    [("accepted", "sent", 1), ("temporary", "queued", 1), ("permanent", "failed", 1), ("uncertain", "queued", 1),
     ("unreachable", "queued", 0), ("ours", "queued", 0)],
)  # fmt: skip
def test_each_answer_has_its_end(kind: str, status: str, attempts: int, home: Home) -> None:
    """Accepted is sent, refused for good is failed, the rest waits; trouble on our side costs nobody an attempt."""
    sent(home)
    row = finish(take(), kind)
    assert (row.status, row.attempts, row.claimed_by) == (status, attempts, None)
    assert (row.due_at is None) is (status != "queued")


@pytest.mark.parametrize(
    ("kind", "status"),
    [("accepted", "sent"), ("temporary", "cancelled"), ("permanent", "failed"), ("unreachable", "cancelled"),
     ("ours", "cancelled")],
)  # fmt: skip
def test_what_is_in_hand_at_a_cancel_ends_by_itself(kind: str, status: str, home: Home) -> None:
    """After a cancel the message in hand is sent or failed as it goes, and is never tried again."""
    campaign = sent(home, people=3)
    claim = take()
    stats = transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1")).stats
    assert (stats["pending"], stats["cancelled"]) == (1, 2)
    assert finish(claim, kind).status == status
    home.advance(100_000)
    assert take() is None and store.get(home.account_id, campaign.id).stats["pending"] == 0


@pytest.mark.parametrize("kind", ["temporary", "unreachable", "ours", "uncertain"])
def test_what_is_in_hand_at_a_pause_waits(kind: str, home: Home) -> None:
    """After a pause an unfinished message waits for the resume, however long that takes."""
    campaign = sent(home)
    claim = take()
    transactions.write(states.pause, home.account_id, campaign.id, Actor("key:1"))
    assert finish(claim, kind).status == "queued"
    home.advance(100_000)
    assert take() is None
    transactions.write(send.resume, home.account_id, campaign.id, Actor("key:1"))
    again = take()
    assert claim is not None and again is not None and again.id == claim.id


def test_a_temporary_refusal_climbs_the_ladder(home: Home) -> None:
    """Attempts come after each step of the ladder (give or take a fifth), the last repeats, until it is given up."""
    home.configure(email__retry_after=[100.0, 1000.0], email__give_up="1h")
    sent(home)
    waits = []
    while (row := finish(take(), "temporary")).status == "queued":
        wait = row.due_at - row.updated_at
        waits.append(wait / 1000)
        home.advance(wait / 1000 - 1)
        assert take() is None, "never early"
        home.advance(1.1)
    assert 80 <= waits[0] <= 120 and len(waits) > 3 and all(800 <= wait <= 1200 for wait in waits[1:])
    assert (row.status, row.error_code, row.attempts) == ("failed", "expired", len(waits) + 1)
    assert sum(waits) >= 3600 and (row.error_smtp, row.error_enhanced, row.error_text) == (451, "4.7.1", "greylisted")


def test_time_before_the_first_attempt_gives_up_nobody(home: Home) -> None:
    """Who waited for days until their turn came has the whole ladder before them, as everybody has."""
    home.configure(email__retry_after=[100.0], email__give_up="1h")
    sent(home)
    home.advance(5 * 24 * 3600)
    assert finish(take(), "temporary").status == "queued"
    home.advance(3500)
    assert finish(take(), "temporary").status == "queued"
    home.advance(200)
    assert finish(take(), "temporary").error_code == "expired"


def test_trouble_on_our_side_is_probed(home: Home) -> None:
    """An unreachable next hop is tried again after the pause, for ever, at nobody's expense."""
    home.configure(email__probe_after="30s", email__give_up="1h")
    sent(home)
    for _ in range(200):
        row = finish(take(), "unreachable")
        assert (row.status, row.attempts, row.due_at - row.updated_at) == ("queued", 0, 30_000)
        home.advance(30.1)
    assert finish(take(), "accepted").status == "sent"


@pytest.mark.parametrize(("in_doubt", "tries"), [("resend", 2), ("hold", 1)])
def test_a_doubt_is_bounded(in_doubt: str, tries: int, home: Home) -> None:
    """`resend` tries a doubtful message once more and then leaves it uncertain; `hold` does so at once (P3)."""
    home.configure(email__in_doubt=in_doubt)
    sent(home)
    for _ in range(tries):
        row = finish(take(), "uncertain")
    home.advance(100_000)
    assert (row.status, row.uncertain_count, row.error_code) == ("uncertain", tries, "in_doubt") and take() is None


def test_a_repeat_does_not_wait_for_a_clock_that_stepped_back(home: Home) -> None:
    """What goes again at once goes at once, whatever the clock says by then."""
    sent(home)
    assert finish(take(), "uncertain").status == "queued"
    home.advance(-3600)
    again = take()
    assert again is not None and again.uncertain_count == 1


@pytest.mark.parametrize(("in_doubt", "status"), [("resend", "queued"), ("hold", "uncertain")])
def test_a_crash_leaves_what_was_in_hand_in_doubt(in_doubt: str, status: str, home: Home) -> None:
    """Only what was in hand when the process died is in doubt; the others go on as if nothing had happened."""
    home.configure(email__in_doubt=in_doubt)
    sent(home, people=3)
    claim = take()
    assert claim is not None and crash() == 1
    assert (Message.get_by_id(claim.id).status, Message.get_by_id(claim.id).uncertain_count) == (status, 1)
    assert scalar("SELECT count(*) FROM message WHERE status = 'queued' AND uncertain_count = 0") == 2


def test_acceptance_is_counted_once_everywhere(home: Home) -> None:
    """An accepted message counts for campaign, contact and address, with its event, subject and Message-ID."""
    campaign = sent(home)
    row = finish(take(), "accepted")
    assert (row.subject, row.sender, row.internet_message_id) == ("Hello", "a@example.org", "1@example.org")
    assert store.get(home.account_id, campaign.id).sent_count == 1
    assert fetch_one("SELECT email_sent_count, sent_count FROM contact c JOIN channel h ON h.contact_id = c.id") == (
        1,
        1,
    )
    assert fetch_one(
        "SELECT count(*) FROM event WHERE event = 'email_sent' AND resource_uid = ?", (f"message:{row.id}",)
    ) == (1,)


def test_a_hold_keeps_everything_back(home: Home) -> None:
    """During its hold nothing of a campaign goes out; undone, it is a draft without rows; past it, it goes."""
    campaign = sent(home, people=2, hold_seconds=15)
    assert campaign.phase == "holding" and take() is None
    undone = transactions.write(states.undo_send, home.account_id, campaign.id)
    assert (undone.status, undone.stats["audience"]) == ("draft", 0) and scalar("SELECT count(*) FROM message") == 0
    home.send(undone, hold_seconds=15)
    home.advance(15.1)
    assert take() is not None


def test_a_stopped_account_sends_nothing(home: Home) -> None:
    """The account's stop switch holds everything that is queued, and lets it go on unchanged."""
    sent(home)
    transactions.write(lambda: Campaign.raw("UPDATE account SET sending_stopped = 1").execute())
    assert take() is None and not queue_reader.has_due()
    transactions.write(lambda: Campaign.raw("UPDATE account SET sending_stopped = 0").execute())
    assert queue_reader.has_due() and take() is not None


def test_who_left_is_skipped_when_the_turn_comes(home: Home) -> None:
    """An opt-out after the send ends the row as skipped, with its reason and its event, and nothing goes out (P4)."""
    sent(home)
    home.leave("p0@example.org")
    assert take() is None
    assert fetch_one("SELECT status, skip_reason, due_at FROM message") == ("skipped", "unsubscribed", None)
    assert scalar("SELECT count(*) FROM event WHERE event = 'email_skipped'") == 1


def test_what_is_not_known_as_ours_is_tried_again_and_blames_nobody(home: Home) -> None:
    """A refusal that names our DNS costs an attempt of the ladder, not the recipient, and has an end."""
    home.configure(email__retry_after=[100.0], email__give_up="1h")
    sent(home)
    claim, refused = take(), MailUnauthenticated("550 5.7.26 unauthenticated", 550, "5.7.26")
    assert claim is not None
    turn(Outcome(claim, refused), False)
    row = Message.get_by_id(claim.id)
    assert (row.status, row.attempts, row.error_enhanced) == ("queued", 1, "5.7.26")
    assert 80_000 <= row.due_at - row.updated_at <= 120_000
    home.advance(7200)
    turn(Outcome(take() or claim, refused), False)
    assert Message.get_by_id(claim.id).status == "failed"
    assert scalar("SELECT count(*) FROM event WHERE event = 'email_failed'") == 1
    assert scalar("SELECT count(*) FROM suppression") == 0 and fetch_one("SELECT kind FROM bounce") == (
        "authentication",
    )
