"""Whether an earlier process had messages in hand when it died: asked at each start, which loads the rest only then."""

from appliance.storage.open import fetch_one
from appliance.storage.sql import THEN_JOIN

# Source by source, as the index of states has it; a ledger of years is not read through at each start
IN_HAND = (
    "SELECT id FROM message WHERE campaign_id IS NULL AND status = 'sending' UNION ALL "
    f"SELECT m.id FROM campaign c {THEN_JOIN} message m ON m.campaign_id = c.id WHERE m.status = 'sending'"
)


def is_any() -> bool:
    """Return whether there are such messages."""
    return fetch_one(f"{IN_HAND} LIMIT 1") is not None
