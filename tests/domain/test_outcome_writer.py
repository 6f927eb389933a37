"""The outcome writer: a claim that fails does not take the outcome of another message with it."""

import asyncio

import apsw
import pytest

from appliance.core import clock
from appliance.core.errors import Deferred, DeliveryError, RateLimited
from appliance.sending.messages import ledger, queue
from appliance.sending.messages.ledger import Outcome
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home, recover_after_crash
from tests.domain.test_queue_reader import send_campaign


def test_an_outcome_is_stored_although_the_claim_beside_it_fails(home: Home) -> None:
    """The accepted message is recorded as sent, so a restart does not send it again (P3); the caller gets the error."""
    send_campaign(home, "p1@example.org", "p2@example.org")
    accepted, failing = QueueReader().fetch_candidates(2)
    transactions.write(
        run,
        f"CREATE TRIGGER full BEFORE INSERT ON send_log WHEN new.message_id = {failing.id} "
        "BEGIN SELECT raise(ABORT, 'no room'); END",
    )

    async def write_both() -> None:
        writer = OutcomeWriter("p", 1)
        assert await writer.write(None, accepted)
        with pytest.raises(apsw.ConstraintError):
            await writer.write(Outcome(accepted, sender="news@campanero.invalid"), failing)
        await writer.flush()

    transactions.start(before_write=queue.settle_log)
    asyncio.run(write_both())
    assert rows("SELECT status FROM message ORDER BY id") == [("sent",), ("queued",)]
    assert recover_after_crash() == 0


@pytest.mark.parametrize("way", ["together", "one by one"])
def test_an_acceptance_settled_after_a_crash_keeps_its_time(way: str, home: Home) -> None:
    """Event, contact and the hourly limit have the time of the acceptance, not of the start that settles it."""
    send_campaign(home, "p1@example.org", "p2@example.org")
    row, other = QueueReader().fetch_candidates(2)
    assert transactions.write(queue.record_and_claim, [], [row, other], "p") == {row.id, other.id}
    accepted_at = clock.now_ms()
    transactions.write(queue.record_and_claim, [Outcome(row, sender="news@campanero.invalid")], [], "p")
    home.advance(2 * 3600)
    if way == "one by one":
        transactions.write(queue.record_and_claim, [Outcome(other, sender="news@campanero.invalid")], [], "p")
        refuse_status(other.id, "sent")
    transactions.write(queue.settle_log)
    [(happened_at, recorded_at)] = rows("SELECT created_at, updated_at FROM event WHERE event = 'email_sent'")
    assert 0 <= happened_at - accepted_at < 60_000 and recorded_at - happened_at > 3_600_000
    assert rows("SELECT sent_at FROM message WHERE id = ?", (row.id,)) == [(happened_at,)]
    assert rows("SELECT email_last_sent_at FROM contact WHERE id = ?", (row.contact_id,)) == [(happened_at,)]
    assert queue.list_accepted_since(clock.now_ms() - 3_600_000) == []


def refuse_status(message_id: int, status: str) -> None:
    """Make every write fail that sets a message to a status."""
    transactions.write(
        run,
        f"CREATE TRIGGER refused BEFORE UPDATE ON message WHEN new.id = {message_id} AND new.status = '{status}' "
        "BEGIN SELECT raise(ABORT, 'damaged'); END",
    )


def get_accepted_count(account_id: int) -> float:
    """Return how many messages of an account were counted as accepted."""
    samples = ledger.SENDS.family(account_id).samples
    return sum(sample.value for sample in samples if ("result", "accepted") in sample.labels)


def test_an_acceptance_that_cannot_be_recorded_waits_for_a_person(home: Home) -> None:
    """It is not sent again after a restart (P3), nothing stays `sending`, and the others are counted once."""
    send_campaign(home, "p1@example.org", "p2@example.org")
    candidates = QueueReader().fetch_candidates(2)
    transactions.write(
        run,
        "CREATE TRIGGER refused BEFORE INSERT ON event WHEN new.event = 'email_sent' "
        f"AND new.data ->> 'message_id' = {candidates[0].id} BEGIN SELECT raise(ABORT, 'damaged'); END",
    )
    before = get_accepted_count(home.account_id)
    transactions.write(queue.record_and_claim, [], candidates, "p")
    accepted = [Outcome(row, subject="Hello", sender="news@campanero.invalid") for row in candidates]
    transactions.write(queue.record_and_claim, accepted, [], "p")
    transactions.write(queue.settle_log)
    assert rows("SELECT status, attempts, uncertain_count, subject FROM message ORDER BY id") == [
        ("uncertain", 1, 1, "Hello"),
        ("sent", 1, 0, "Hello"),
    ]
    assert get_accepted_count(home.account_id) == before + 1
    assert recover_after_crash() == 0


@pytest.mark.parametrize(("error", "status"), [(None, "sent"), (Deferred("451 later", 451), "queued")])
def test_an_outcome_that_fails_alone_waits_for_a_person(error: DeliveryError | None, status: str, home: Home) -> None:
    """The worker goes on, and a restart does not send the message again."""
    send_campaign(home, "p1@example.org")
    [row] = QueueReader().fetch_candidates(1)

    async def write() -> None:
        writer = OutcomeWriter("p", 1)
        assert await writer.write(None, row)
        refuse_status(row.id, status)
        # In direct delivery, an acceptance is written to the ledger and not to the log.
        outcome = Outcome(row, error, sender="news@campanero.invalid", delivered_via={"mx": "mx.example.org"})
        assert not await writer.write(outcome, None)
        await writer.flush()

    transactions.start(before_write=queue.settle_log)
    asyncio.run(write())
    assert rows("SELECT status, attempts FROM message") == [("uncertain", 1)]
    assert recover_after_crash() == 0


def test_an_expired_message_may_suppress_its_address(home: Home) -> None:
    """Its outcome is written so that claimed messages to the same address are checked again (P4)."""
    send_campaign(home, "p1@example.org")
    [row] = QueueReader().fetch_candidates(1)

    async def write() -> None:
        writer = OutcomeWriter("p", 1)
        assert await writer.write(None, row)
        revision = transactions.get_permission_revision()
        await writer.write(Outcome(row, RateLimited("452 too many", 60.0, 452)), None)
        assert transactions.get_permission_revision() > revision
        await writer.flush()

    transactions.start(before_write=queue.settle_log)
    asyncio.run(write())
