"""A mark that is looked at closely: by the rules, and without reading what is not asked about."""

import apsw
import pytest

from appliance.core import clock
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.queue_reader import QueueReader
from appliance.storage import transactions
from appliance.storage.database import connection, run
from tests.domain.home import Home
from tests.domain.test_line import crowd


def _mark(row: Claim) -> bool:
    return transactions.write(queue.claim_one, row, "process", row, clock.now_ms())


@pytest.mark.parametrize(
    ("change", "may"),
    [("UPDATE campaign SET phase = 'holding'", True), ("UPDATE campaign SET phase = 'paused'", False),
     ("UPDATE campaign SET phase = 'cancelled'", False), ("UPDATE account SET sending_stopped = 1", False)],
)  # fmt: skip
def test_a_mark_needs_a_live_campaign(change: str, may: bool, home: Home) -> None:
    """Phase and the account's switch as they are by now count, not what was true when the message was made."""
    crowd(home, "ana@example.org")
    row = QueueReader().fetch_candidates(1)[0]
    transactions.write(run, change)
    assert _mark(row) is may


def test_a_mark_reads_its_own_campaign_alone(home: Home) -> None:
    """With very many campaigns under way a mark reads no more than with one."""
    crowd(home, "ana@example.org", "bob@example.org")
    first, second = QueueReader().fetch_candidates(2)

    def read(row: Claim) -> int:
        seen: list[object] = []

        def marked() -> bool:
            connection().trace_v2(apsw.SQLITE_TRACE_ROW, seen.append, id="test")
            try:
                return queue.claim_one(row, "process", row, clock.now_ms())
            finally:
                connection().trace_v2(0, None, id="test")

        assert transactions.write(marked)
        return len(seen)

    alone = read(first)
    for number in range(20):
        crowd(home, f"c{number}@example.org", name=f"C{number}")
    assert read(second) == alone
