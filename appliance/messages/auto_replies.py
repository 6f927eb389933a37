"""Answers to what people write us: they go out whatever the person's consent is, soon or not at all."""

from appliance.db.open import one
from appliance.messages.ledger import Claim

LASTS_MS = 5 * 60 * 1000
# An operator's own word is kept; everything else does not forbid to answer who has just written
LETS_PASS = ("stop_keyword", "complaint", "erased", "hard_bounce", "soft_bounce")


def is_one(row: Claim) -> bool:
    """Return whether a row answers what its recipient wrote: the confirmation of a STOP, help."""
    if row.channel != "sms" or row.source_type != "system":
        return False
    return one("SELECT 1 FROM incoming WHERE reply_id = ?", (row.id,)) is not None


def is_late(row: Claim, now: int) -> bool:
    """Return whether it is too late for a row to answer anything; of no other row it ever is."""
    return now - row.created_at > LASTS_MS and is_one(row)
