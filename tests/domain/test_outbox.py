"""The claim of a message: rejected while its campaign may not send, and cheap with many campaigns."""

import apsw
import pytest

from appliance.core import clock
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.queue_reader import QueueReader
from appliance.storage import transactions
from appliance.storage.database import connection, run
from tests.domain.home import Home
from tests.domain.test_queue_reader import send_campaign


def _claim(row: LedgerRow) -> bool:
    return transactions.write(queue.claim_one, row, "process", row, clock.now_ms())


@pytest.mark.parametrize(
    ("change", "is_claimed"),
    [("UPDATE campaign SET phase = 'holding'", True), ("UPDATE campaign SET phase = 'paused'", False),
     ("UPDATE campaign SET phase = 'cancelled'", False), ("UPDATE account SET sending_stopped = 1", False)],
)  # fmt: skip
def test_a_claim_needs_a_sending_campaign(change: str, is_claimed: bool, home: Home) -> None:
    """A claim checks the current phase of the campaign and the account's stop switch."""
    send_campaign(home, "ana@example.org")
    row = QueueReader().fetch_candidates(1)[0]
    transactions.write(run, change)
    assert _claim(row) is is_claimed


def test_a_message_is_claimed_once(home: Home) -> None:
    """Who claims a message that is being sent already does not get it, so that nobody sends it a second time (P3)."""
    send_campaign(home, "ana@example.org", "bob@example.org")
    first, second = QueueReader().fetch_candidates(2)
    assert transactions.write(queue.claim, [first], "p") == {first.id}
    assert transactions.write(queue.claim, [first], "p") == set()
    assert transactions.write(queue.record_and_claim, [], [first, second], "p") == {second.id}


def test_a_claim_reads_only_its_own_campaign(home: Home) -> None:
    """A claim reads as many rows with twenty more campaigns being sent as with one."""
    send_campaign(home, "ana@example.org", "bob@example.org")
    first, second = QueueReader().fetch_candidates(2)

    def count_rows_read(row: LedgerRow) -> int:
        rows_read: list[object] = []

        def claim_traced() -> bool:
            connection().trace_v2(apsw.SQLITE_TRACE_ROW, rows_read.append, id="test")
            try:
                return queue.claim_one(row, "process", row, clock.now_ms())
            finally:
                connection().trace_v2(0, None, id="test")

        assert transactions.write(claim_traced)
        return len(rows_read)

    rows_before = count_rows_read(first)
    for number in range(20):
        send_campaign(home, f"c{number}@example.org", name=f"C{number}")
    assert count_rows_read(second) == rows_before
