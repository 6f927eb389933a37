"""The outcome writer: a claim that fails does not take the outcome of another message with it."""

import asyncio

import apsw
import pytest

from appliance.sending.messages import queue
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
