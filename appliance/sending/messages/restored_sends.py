"""Messages that were sent after the backup from which the database was restored: they are not sent again.

A restore reads them from the journal (`ops/backups/replay_sends.py`). Messages whose rows are in the backup are marked
as sent at once. For all others the restore stores a `RestoredSend`, because a campaign that was not yet started in the
backup, and a flow whose runs were not yet at the step, only create the rows later. Before a row is claimed, the sender
looks for it here (`withhold`).
"""

from typing import Any, NamedTuple

from appliance.core import clock
from appliance.core.i18n import gettext_noop
from appliance.sending.messages import ledger, outcomes
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.sending.messages.sent_journal import AddressHasher
from appliance.storage.database import fetch_one, rows, run, run_set
from appliance.storage.transactions import require_write_transaction

# Reasons for the status `uncertain`.
MAY_HAVE_BEEN_SENT = gettext_noop("it may have been sent after the backup from which the data was restored")
_OTHER_ADDRESS = gettext_noop("it was sent after the backup from which the data was restored, to another address")
_OTHER_RUN = gettext_noop("this step was sent to the address after the backup from which the data was restored")
# How long a message of a run that the backup lacks prevents that of another run to the same address: what makes a
# contact enter a flow again after a restore, such as a date or a segment, does so within days.
_MAX_RUN_GAP_MS = 7 * clock.DAY_MS
# Such a message may have been created in that time and wait longer, for example while its flow is paused.
_MAX_AGE_MS = 60 * clock.DAY_MS

# Whether a message was marked as sent by a restore: only then its bytes are not known.
SENT_SINCE_BACKUP = "({0}.sent_at IS NOT NULL AND {0}.body_hash IS NULL)"

_MARK_SENT = (
    "UPDATE message SET status = 'sent', sent_at = item.value ->> 1, attempts = attempts + 1, due_at = NULL, "
    "claimed_by = NULL, body_hash = NULL, error_code = NULL, error_smtp = NULL, error_enhanced = NULL, "
    "error_text = NULL, updated_at = :now FROM json_each(:items) AS item WHERE message.id = item.value ->> 0"
)
_FIND_OF_CAMPAIGN = (
    "SELECT id, sent_at, is_doubtful, address_hash = :hash, 1 FROM restored_send WHERE campaign_id = :campaign "
    "AND due_at IS :due AND account_id = :account AND (address_hash = :hash OR contact_id = :contact) "
    "ORDER BY address_hash = :hash DESC, id LIMIT 1"
)
_FIND_OF_FLOW = (
    "SELECT id, sent_at, is_doubtful, address_hash = :hash, run_id IS NOT NULL FROM restored_send "
    "WHERE flow_id = :flow AND step_id = :step AND account_id = :account AND (run_id = :run "
    "OR (run_id IS NULL AND address_hash = :hash AND :created < sent_at + :gap)) ORDER BY run_id IS NULL, id LIMIT 1"
)
_SERIES = "SELECT s.campaign_id, o.due_at FROM occurrence o JOIN series s ON s.id = o.series_id WHERE o.campaign_id = ?"


class _Match(NamedTuple):
    """A `RestoredSend` that may be the message of a ledger row: whether both have the same address and source."""

    id: int
    sent_at: int
    is_doubtful: int
    is_same_address: int
    is_same_source: int


def has_rows() -> bool:
    """Return whether there are messages that were sent after the backup and have no row yet."""
    return fetch_one("SELECT 1 FROM restored_send LIMIT 1") is not None


def withhold(candidates: list[LedgerRow]) -> list[LedgerRow]:
    """Return those of the messages that may be claimed, and end the others, which were sent before the restore.

    A message that was certainly sent becomes `sent`. One of which this is not certain becomes `uncertain`, so that a
    person decides.
    """
    require_write_transaction()
    hasher = AddressHasher()
    remaining = []
    for row in candidates:
        match = _find(row, hasher)
        if match is None:
            remaining.append(row)
        else:
            _end(row, match)
    return remaining


def _find(row: LedgerRow, hasher: AddressHasher) -> _Match | None:
    values: dict[str, Any] = {
        "account": row.account_id, "hash": hasher.hash_recipient(row.address_kind, row.recipient_key),
        "contact": row.contact_id, "created": row.created_at, "gap": _MAX_RUN_GAP_MS,
    }  # fmt: skip
    if row.campaign_id is not None:
        campaign_id, due_at = fetch_one(_SERIES, (row.campaign_id,)) or (row.campaign_id, None)
        match = fetch_one(_FIND_OF_CAMPAIGN, {**values, "campaign": campaign_id, "due": due_at})
    elif row.run_id is not None:
        match = fetch_one(_FIND_OF_FLOW, {**values, "flow": row.flow_id, "step": row.step_id, "run": row.run_id})
    else:
        return None
    return _Match._make(match) if match is not None else None


def _end(row: LedgerRow, match: _Match) -> None:
    run("DELETE FROM restored_send WHERE id = ?", (match.id,))
    # The row as it is now: a candidate was read before it was rendered.
    if fetch_one("SELECT 1 FROM message WHERE id = ? AND status IN ('queued', 'held')", (row.id,)) is None:
        return
    if match.is_same_source and match.is_same_address and not match.is_doubtful:
        mark_sent([(ledger.get_row(row.id), match.sent_at)])
    else:
        text = MAY_HAVE_BEEN_SENT if match.is_doubtful else _OTHER_ADDRESS if match.is_same_source else _OTHER_RUN
        mark_uncertain(row, text)


def mark_sent(messages: list[tuple[LedgerRow, int]]) -> None:
    """Mark messages as sent at a time (ms) before the restore, with their counters and events.

    Their subjects and Message-IDs as they were sent are not known.
    """
    require_write_transaction()
    now = clock.now_ms()
    run_set(_MARK_SENT, [(row.id, sent_at) for row, sent_at in messages], now=now)
    outcomes.record_sent([Outcome(row, sender=row.sender, accepted_at=sent_at) for row, sent_at in messages], now)


def mark_uncertain(row: LedgerRow, text: str = MAY_HAVE_BEEN_SENT) -> None:
    """Set a message that may have been sent before the restore to `uncertain`; `text` is the reason."""
    ledger.mark_uncertain(row, text, clock.now_ms())


def list_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` rows that no message can match any more.

    Their campaign or flow has ended, or has been deleted, or they are older than `_MAX_AGE_MS`.
    """
    return [
        number
        for (number,) in rows(
            "SELECT r.id FROM restored_send r LEFT JOIN campaign c ON c.id = r.campaign_id "
            "LEFT JOIN flow f ON f.id = r.flow_id WHERE c.deleted_at IS NOT NULL "
            "OR c.phase IN ('completed', 'cancelled') OR f.deleted_at IS NOT NULL "
            "OR (r.flow_id IS NOT NULL AND r.run_id IS NULL AND r.sent_at < ?) OR (r.run_id IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM run n WHERE n.id = r.run_id AND n.status = 'live') AND NOT EXISTS (SELECT 1 FROM message m "
            "WHERE m.run_id = r.run_id AND m.status IN ('queued', 'held', 'sending'))) LIMIT ?",
            (clock.now_ms() - _MAX_AGE_MS, limit),
        )
    ]


def delete_rows(ids: list[int]) -> int:
    """Delete rows of `list_expired`, and return how many."""
    require_write_transaction()
    return run_set("DELETE FROM restored_send WHERE id IN (SELECT value FROM json_each(:items))", ids)
