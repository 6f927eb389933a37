"""The frequency cap: how many marketing messages one person gets in how many days, over all campaigns together."""

from appliance.db.dialect.documents import field_of
from appliance.db.open import connection, one
from appliance.messages.ledger import Claim

_DAY_MS = 86_400_000
_LOOK_AGAIN_MS = 5_000
_CAP = (
    f"SELECT {field_of('frequency_cap', 'messages')}, {field_of('frequency_cap', 'days')} FROM account "
    "WHERE id = ? AND frequency_cap IS NOT NULL"
)
MARKETING_TO = (
    "SELECT count(*) FILTER (WHERE sent_at >= ?), count(*) FILTER (WHERE status = 'sending') FROM message "
    "WHERE contact_id = ? AND transactional = 0 AND test = 0 AND id != ?"
)


def is_full(row: Claim, now: int) -> bool | None:
    """Return whether the person of a row got all that the account allows; None if what is in hand now decides about it.

    A row that has to wait for that waits in the queue.
    """
    if row.transactional or row.test or row.contact_id is None:
        return False
    cap = one(_CAP, (row.account_id,))
    if cap is None:
        return False
    got, in_hand = _marketing_to(row, now - cap[1] * _DAY_MS)
    if got < cap[0] <= got + in_hand:
        connection().execute("UPDATE message SET due_at = ? WHERE id = ?", (now + _LOOK_AGAIN_MS, row.id))
        return None
    return bool(got >= cap[0])


def _marketing_to(row: Claim, since: int) -> tuple[int, int]:
    """Count the other marketing messages that the person of a row got since then, and those in hand now."""
    found = one(MARKETING_TO, (since, row.contact_id, row.id))
    return (int(found[0]), int(found[1])) if found else (0, 0)
