"""SQLite plans a query once for each connection, not each time that it is executed."""

from collections.abc import Callable

import apsw

from appliance.sending.messages import queue
from appliance.sending.messages.ledger import Outcome
from appliance.sending.messages.queue_reader import QueueReader
from appliance.storage import transactions
from appliance.storage.database import connection, run
from tests.domain.home import Home


def count_plans(function: Callable[[], object]) -> int:
    """Return how many accesses SQLite planned in a third call of a function: it asks an authorizer for each of them."""
    accesses: list[int] = []

    def authorize(action: int, *_: object) -> int:
        accesses.append(action)
        return apsw.SQLITE_OK

    connection().authorizer = authorize
    try:
        function()
        assert accesses, "the first call plans its statements"
        function()
        accesses.clear()
        function()
    finally:
        connection().authorizer = None
    return len(accesses)


def test_the_statements_of_a_message_are_planned_once(home: Home) -> None:
    """Claiming a message, checking it again, recording its acceptance and settling the log."""
    contact = home.contact("ann@example.org")
    home.send(home.campaign(home.list_of(contact.id).id))
    transactions.write(run, "UPDATE message SET provider = 'relay'")
    [row] = QueueReader().fetch_candidates(3)
    accepted = Outcome(row, None, None, "Subject", "news@example.org", "1@example.org")

    def send() -> None:
        transactions.write(run, "UPDATE message SET status = 'queued', due_at = 0 WHERE id = ?", (row.id,))
        assert transactions.write(queue.record_and_claim, [], [row], "process") == {row.id}
        assert queue.is_still_allowed(row.id)
        transactions.write(queue.record_and_claim, [accepted], [], "process")
        transactions.write(queue.settle_log)

    assert count_plans(send) == 0
