"""The frequency cap: nobody gets more marketing messages than the account says, however many campaigns run at once."""

import random

import pytest

from appliance.accounts import accounts
from appliance.accounts.accounts import AccountWrite
from appliance.core import clock, validation
from appliance.core.errors import Deferred
from appliance.sending.messages import queue, transactional
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from tests.domain import sms_crowd
from tests.domain.home import Home, turn

DAY = 86_400


def cap(home: Home, limit: dict[str, int] | None) -> None:
    """Set the cap of the account."""
    asked = validation.read(AccountWrite, {"frequency_cap": limit})
    transactions.write(accounts.update, home.account_id, asked)


def launch(home: Home, *people: int, name: str = "Spring", **body: object) -> Campaign:
    """Send a campaign to these people."""
    return home.send(home.campaign(home.list_of(*people, name=name).id, name=name), **body)


def deliver() -> int:
    """Hand over all that may go now, and answer how many."""
    count = 0
    while claim := turn(None, True):
        turn(Outcome(claim, None, None, "Hello", "a@example.org", f"{claim.id}@example.org"), False)
        count += 1
    return count


def ends(campaign: Campaign) -> list[tuple[str, str | None]]:
    """Return how the rows of a campaign stand."""
    return rows("SELECT status, skip_reason FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))


def test_who_got_enough_is_skipped_until_days_have_passed(home: Home) -> None:
    """Two in seven days: the third is skipped with its reason, and after the days have passed the fourth goes."""
    cap(home, {"messages": 2, "days": 7})
    ana = home.contact("ana@example.org").id
    two = [launch(home, ana, name=f"n{number}") for number in range(2)]
    assert deliver() == 2
    third = launch(home, ana, name="n3")
    assert deliver() == 0 and ends(third) == [("skipped", "frequency_cap")]
    home.advance(7 * DAY + 1)
    fourth = launch(home, ana, name="n4")
    assert deliver() == 1 and [ends(one)[0][0] for one in (*two, fourth)] == ["sent"] * 3


def test_mail_and_sms_count_as_one(home: Home) -> None:
    """A person is one whatever reaches them: after an SMS the mail of the week is one too many; a code is not."""
    cap(home, {"messages": 1, "days": 7})
    ana = home.upsert(email="ana@example.org", phone="+447700900123").contact.id
    for asked in ({"body": "Offer", "transactional": False}, {"body": "Code"}):
        request = validation.read(MessageWrite, {"channel": "sms", "to": "+447700900123", **asked})
        transactions.write(transactional.queue_message, home.account_id, request)
    taken = sms_crowd.taken()
    sms_crowd.accept(taken)
    campaign = launch(home, ana)
    assert (len(taken), deliver(), ends(campaign)) == (2, 0, [("skipped", "frequency_cap")])
    home.advance(7 * DAY + 1)
    launch(home, ana, name="later")
    assert deliver() == 1
    late = {"channel": "sms", "to": "+447700900123", "body": "Offer", "transactional": False}
    transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, late))
    assert sms_crowd.taken() == []
    assert rows("SELECT channel, skip_reason FROM message ORDER BY id DESC LIMIT 1") == [("sms", "frequency_cap")]


def test_only_marketing_to_people_counts(home: Home) -> None:
    """Receipts, tests and refused messages use nothing up, and receipts and tests are never skipped for it."""
    cap(home, {"messages": 1, "days": 1})
    ana = home.contact("ana@example.org").id
    body = {"to": "ana@example.org", "subject": "Receipt", "body": "<p>Thanks</p>"}
    for _ in range(3):
        transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, body))
    assert deliver() == 3
    refused = launch(home, ana, name="refused")
    claim = turn(None, True)
    assert claim is not None
    turn(Outcome(claim, Deferred("later", 451)), False)
    assert ends(refused) == [("queued", None)]
    launch(home, ana, name="first")
    assert deliver() == 1
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
    assert deliver() == 2
    assert rows("SELECT skip_reason FROM message WHERE skip_reason NOT NULL") == [("frequency_cap",)]


def test_what_is_in_hand_decides_about_the_next(home: Home) -> None:
    """While the last one allowed is in hand the other waits: skipped once that was taken, sent if it was refused."""
    cap(home, {"messages": 1, "days": 1})
    for end, expected in ((None, ("skipped", "frequency_cap")), (Deferred("later", 451), ("sending", None))):
        person = home.contact(f"{expected[0]}@example.org").id
        first, second = (launch(home, person, name=f"{name}-{expected[0]}") for name in "ab")
        claim = turn(None, True)
        assert claim is not None and turn(None, True) is None
        other = second if claim.campaign_id == first.id else first
        assert ends(other) == [("queued", None)]
        turn(Outcome(claim, end, None, "Hello", "a@example.org", "1@example.org"), False)
        home.advance(6)
        taken = turn(None, True)
        assert (taken is not None, ends(other)) == (expected[0] == "sending", [expected])
        run("UPDATE message SET status = 'cancelled', due_at = NULL WHERE status IN ('queued', 'sending')")


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_marks_and_ends_keeps_the_cap(home: Home, seed: int) -> None:
    """Several campaigns at once, marked in batches and ended in any order: nobody ever gets more than allowed."""
    chance, most = random.Random(seed), 1 + seed % 3
    cap(home, {"messages": most, "days": 30})
    people = [home.contact(f"p{number}@example.org").id for number in range(2)]
    for number in range(4):
        launch(home, *people, name=f"c{number}")
    hand: list[Claim] = []
    for _ in range(40):
        marks = chance.choice([0, 1, 3])
        done = [hand.pop(chance.randrange(len(hand)))] if hand and chance.random() < 0.5 else []
        error = Deferred("later", 451) if chance.random() < 0.5 else None
        found = [Outcome(one, error, None, "Hi", "a@example.org", f"{one.id}@example.org") for one in done]
        wanted = (
            [one._replace(first_attempt_at=clock.now_ms()) for one in QueueReader().fetch_candidates(marks)]
            if marks
            else []
        )
        marked = transactions.write(queue.record_and_claim, found, wanted, "process")
        hand += [one for one in wanted if one.id in marked]
        home.advance(chance.choice([0, 6, 400]))
    for person in people:
        counted = rows("SELECT count(*) FROM message WHERE contact_id = ? AND sent_at NOT NULL", (person,))
        assert 0 < counted[0][0] <= most


def test_the_question_reads_an_index(home: Home) -> None:
    """Looking at what a person got reads that person's rows alone."""
    ana = home.contact("ana@example.org").id
    launch(home, ana)
    plan = str(rows(f"EXPLAIN QUERY PLAN {queue.COUNT_MARKETING}", (0, ana, 1)))
    assert "message_contact_id" in plan
