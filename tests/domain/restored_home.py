"""An installation that sends into a list, is backed up, killed and restored, within this process."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from appliance.core.errors import DeliveryError
from appliance.flows import versions
from appliance.ops.backups import create, restore
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.sending.messages.queue_reader import QueueReader
from appliance.storage import journal, transactions
from appliance.storage.database import close_database, rows, run
from tests.domain.home import Home, recover_after_crash
from tests.domain.test_flow_run import advance_until_idle

DATABASE = "campanero.db"


class RestoredHome:
    """A home whose messages are accepted by a list: `accepted` has (campaign or flow, recipient) of each."""

    def __init__(self, home: Home, **settings: Any) -> None:
        self.home = home
        home.configure(email__in_doubt="hold", **settings)
        self.accepted: list[tuple[str, str]] = []
        self.in_flight: list[LedgerRow] = []
        self.copies = 0
        journal.open_journal(home.directory)

    def close(self) -> None:
        """Close the journal, which is global to the process."""
        journal._journal = None

    def claim(self, count: int) -> list[LedgerRow]:
        """Claim up to `count` messages, as a worker does, and return them. They are in flight."""
        candidates = [
            row._replace(first_attempt_at=row.first_attempt_at or 1, body_hash=1)
            for row in QueueReader("email").fetch_candidates(count)
        ]
        claimed = transactions.write(queue.record_and_claim, [], candidates, "process")
        ready = [row for row in candidates if row.id in claimed]
        self.in_flight += ready
        return ready

    def accept(self, row: LedgerRow) -> None:
        """Accept a message as the server, before the sender has recorded it."""
        self.accepted.append((describe_source(row), row.recipient))

    def record(self, sent_rows: list[LedgerRow], error: DeliveryError | None = None) -> None:
        """Record the outcomes of messages in flight, which the send log holds until it is settled."""
        outcomes = [Outcome(row, error, None, "Hello", "us@acme.test", f"{row.id}@acme.test") for row in sent_rows]
        transactions.write(queue.record_and_claim, outcomes, [], "process")
        self.in_flight = [row for row in self.in_flight if row not in sent_rows]

    def send(self, count: int, is_settled: bool = True) -> list[LedgerRow]:
        """Send up to `count` messages, and settle the send log or leave them in it."""
        ready = self.claim(count)
        for row in ready:
            self.accept(row)
        if ready:
            self.record(ready)
        if is_settled:
            transactions.write(queue.settle_log)
        return ready

    def send_all(self) -> None:
        """Send until no message is due, and let the flows create theirs."""
        advance_until_idle()
        while self.send(50):
            advance_until_idle()

    def back_up(self) -> Path:
        """Create a backup and return its path."""
        self.copies += 1
        path = self.home.directory / f"copy-{self.copies}.tar.gz"
        create.create_backup(self.home.directory, path)
        return path

    def kill(self) -> None:
        """Start again as after a kill: what was in flight is in doubt."""
        self.in_flight = []
        transactions.write(queue.settle_log)
        recover_after_crash()

    def restore(self, path: Path, is_lost: bool = False, is_journal_lost: bool = False) -> restore.RestoreResult:
        """Restore a backup after a kill; `is_lost` destroys the current database first. Sending stays stopped."""
        self.in_flight = []
        close_database()
        journal._journal = None  # the command is another process
        if is_lost:
            for suffix in ("", "-wal", "-shm"):
                (self.home.directory / f"{DATABASE}{suffix}").unlink(missing_ok=True)
        if is_journal_lost:
            (self.home.directory / journal.JOURNAL_FILE).unlink(missing_ok=True)
        result = restore.restore_backup(self.home.directory, path, True, lambda words: None)
        shutil.rmtree(self.home.directory / "backups", ignore_errors=True)
        versions._plan_cache.clear()
        journal.open_journal(self.home.directory)
        return result

    def resume(self) -> None:
        """Resume sending and all flows, as a person does who read the page about the restore."""
        transactions.write(run, "UPDATE account SET sending_stopped = 0, stop_reason = NULL")
        transactions.write(run, "UPDATE flow SET status = 'active' WHERE status = 'paused'")

    def replace_database(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """Change the database behind the back of the service."""
        transactions.write(run, statement, values)

    def count_accepted(self) -> Counter[tuple[str, str]]:
        """Return how often the server accepted each message."""
        return Counter(self.accepted)


def describe_source(row: LedgerRow) -> str:
    """Return which campaign, or flow and step, a message is of, or that it is a single one."""
    if row.campaign_id is not None:
        return f"campaign {row.campaign_id}"
    return f"flow {row.flow_id} step {row.step_id}" if row.run_id is not None else f"message {row.id}"


def statuses(table_filter: str = "true") -> dict[str, str]:
    """Return the status of each message by recipient; the filter is SQL."""
    return dict(rows(f"SELECT recipient, status FROM message WHERE {table_filter} ORDER BY id"))
