"""The send log: claims and acceptances of emails, written at once and moved into the ledger hundreds at a time.

Each commit of the email sender writes only this small table. Updating the rows of the ledger, its indexes, counters
and events in every commit would change ten times as many pages; `settle` does it for hundreds of messages in one
transaction. Every other write that reads or changes messages calls `settle` first (`storage/writer.py`), so only the
functions here read the log. Code that only reads sees a message as queued for some tenths of a second after it was
sent.

A row is a claim, on disk before the body of its message is sent (docs/promises.md#p3). Its `sent_at` is set when the
server has accepted the message. After a crash, the first `settle` moves both into the ledger.

The log contains only claims that `queue.IS_ALLOWED` certainly allows, and plain acceptances. All others are rare and
are recorded by `queue.record_and_claim`, which changes the ledger at once: other claims and outcomes, every SMS, and
acceptances in direct delivery, whose server and encryption have no column here.
"""

import itertools
import logging
from typing import Any

import msgspec

from appliance.core import clock
from appliance.sending.messages import outcomes, queue
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.storage import disk_guard
from appliance.storage.database import connection, fetch_one, rows, run, run_set, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.sender")
# A plus sign keeps SQLite from using an index, so that it reads the log first, and then the messages by id.
_OPEN = "('queued', 'held', 'sending')"
# Items: (id, time of the first attempt, hash of the body).
_CLAIM = (
    "INSERT INTO send_log (message_id, batch, process, first_attempt_at, body_hash) "
    "SELECT message.id, :batch, :process, item.value ->> 1, item.value ->> 2 "
    "FROM json_each(:items) AS item JOIN message ON message.id = item.value ->> 0 "
    "WHERE +status IN ('queued', 'held') AND due_at <= :now "
    f"AND NOT EXISTS (SELECT 1 FROM send_log l WHERE l.message_id = message.id) AND {queue.IS_ALLOWED}"
)
# Items: (id, subject, sender, Message-ID). The claim may have been settled since; then the acceptance gets a row alone.
_ACCEPT = (
    "INSERT INTO send_log (message_id, sent_at, subject, sender, internet_message_id) "
    "SELECT item.value ->> 0, :now, item.value ->> 1, item.value ->> 2, item.value ->> 3 "
    "FROM json_each(:items) AS item JOIN message m ON m.id = item.value ->> 0 "
    "WHERE m.status = 'sending' OR EXISTS (SELECT 1 FROM send_log l WHERE l.message_id = m.id) "
    "ON CONFLICT (message_id) DO UPDATE SET sent_at = excluded.sent_at, subject = excluded.subject, "
    "sender = excluded.sender, internet_message_id = excluded.internet_message_id WHERE sent_at IS NULL"
)
_SHOW_CLAIMS = (
    "UPDATE message SET status = 'sending', claimed_by = l.process, "
    "first_attempt_at = coalesce(message.first_attempt_at, l.first_attempt_at), body_hash = l.body_hash, "
    "updated_at = :now FROM send_log l WHERE message.id = +l.message_id AND l.sent_at IS NULL "
    "AND +message.status IN ('queued', 'held')"
)
_ACCEPTED = f"l.sent_at IS NOT NULL AND +m.status IN {_OPEN} AND (:id IS NULL OR m.id = :id)"
_LIST_ACCEPTED = (
    f"SELECT json_group_array(json_array({', '.join(f'm.{name}' for name in Claim._fields)}, l.sender)) "
    f"FROM send_log l JOIN message m ON m.id = +l.message_id WHERE {_ACCEPTED}"
)
_MARK_SENT = (
    "UPDATE message AS m SET status = 'sent', sent_at = l.sent_at, attempts = attempts + 1, due_at = NULL, "
    "claimed_by = NULL, first_attempt_at = coalesce(m.first_attempt_at, l.first_attempt_at), "
    "body_hash = coalesce(l.body_hash, m.body_hash), "
    "subject = CASE WHEN recipient_key IS NULL THEN NULL ELSE l.subject END, sender = l.sender, "
    "internet_message_id = l.internet_message_id, error_code = NULL, error_smtp = NULL, error_enhanced = NULL, "
    f"error_text = NULL, updated_at = :now FROM send_log l WHERE m.id = +l.message_id AND {_ACCEPTED}"
)
# The numbers of the batches of claims. They start again with each process, whose start empties the log before.
_numbers = itertools.count(1)


def record_and_claim(new_outcomes: list[Outcome], claims: list[Claim], process: str) -> set[int]:
    """Log accepted emails and the claims of the next ones, and return the ids of the claimed messages.

    `queue.record_and_claim` records all other outcomes, and decides about claims that are not certainly allowed.
    """
    require_write_transaction()
    accepted = [outcome for outcome in new_outcomes if _can_be_logged(outcome)]
    others = [outcome for outcome in new_outcomes if not _can_be_logged(outcome)]
    if others:
        settle()
        queue.record_and_claim(others, [], process)
    if accepted:
        items = [(row.claim.id, row.subject, row.sender, row.internet_message_id) for row in accepted]
        run_set(_ACCEPT, items, now=clock.now_ms())
    return _claim(claims, process) if claims and disk_guard.send_blocker() is None else set()


def _can_be_logged(outcome: Outcome) -> bool:
    """Return whether an outcome is the plain acceptance of an email."""
    claim = outcome.claim
    return (
        outcome.error is None
        and outcome.skip_reason is None
        and claim.channel == "email"
        and not claim.uncertain_count
        and not outcome.delivered_via
    )


def _claim(claims: list[Claim], process: str) -> set[int]:
    # If not all are claimed, the rows with this number are the claimed ones: the log has rows of other batches too.
    number = next(_numbers)
    items = [(row.id, row.first_attempt_at, row.body_hash) for row in claims if row.channel == "email"]
    claimed = {row[0] for row in items}
    if run_set(_CLAIM, items, batch=number, process=process, now=clock.now_ms()) < len(items):
        claimed = {row[0] for row in rows("SELECT message_id FROM send_log WHERE batch = ?", (number,))}
    others = [row for row in claims if row.id not in claimed]
    if others:
        settle()
        claimed |= queue.record_and_claim([], others, process)
    return claimed


def is_empty() -> bool:
    """Return whether the log has no rows."""
    return fetch_one("SELECT 1 FROM send_log LIMIT 1") is None


def settle() -> None:
    """Mark the messages of the log as sent or being sent in the ledger, and empty the log.

    A message that cannot be recorded as sent is logged as an error and stays `sending`, so that the others are
    recorded; the next start decides about it (`retries.recover_interrupted`).
    """
    require_write_transaction()
    if is_empty():
        return
    handle = connection()
    handle.execute("SAVEPOINT settle")
    try:
        _record_sent(None)
    except Exception as error:
        handle.execute("ROLLBACK TO settle")
        if to_storage_error(error) is not None:
            raise
        _record_one_by_one(handle)
    run(_SHOW_CLAIMS, {"now": clock.now_ms()})
    run("DELETE FROM send_log")
    handle.execute("RELEASE settle")


def _record_one_by_one(handle: Any) -> None:
    for (message_id,) in rows("SELECT message_id FROM send_log WHERE sent_at IS NOT NULL"):
        handle.execute("SAVEPOINT settle_one")
        try:
            _record_sent(message_id)
        except Exception as error:
            handle.execute("ROLLBACK TO settle_one")
            if to_storage_error(error) is not None:
                raise
            log.exception("sender: recording message %s as sent failed", message_id)
            run("UPDATE send_log SET sent_at = NULL WHERE message_id = ?", (message_id,))
        handle.execute("RELEASE settle_one")


def _record_sent(message_id: int | None) -> None:
    """Record the accepted messages of the log as sent, or only the one with this id."""
    now = clock.now_ms()
    values = {"id": message_id, "now": now}
    accepted = msgspec.json.decode(scalar(_LIST_ACCEPTED, values))
    if not accepted:
        return
    run(_MARK_SENT, values)
    outcomes.record_sent([Outcome(Claim._make(row[:-1]), sender=row[-1]) for row in accepted], now)
