"""Whether an earlier process had messages in hand when it died: asked at each start, which loads the rest only then."""

from appliance.storage.open import fetch_one

# Source by source, as the index of states has it; a ledger of years is not read through at each start
IN_HAND = (
    "SELECT id FROM message WHERE campaign_id IS NULL AND status = 'sending' UNION ALL "
    "SELECT m.id FROM campaign c CROSS JOIN message m ON m.campaign_id = c.id WHERE m.status = 'sending'"
)


def is_any() -> bool:
    """Return whether there are such messages."""
    return fetch_one(f"{IN_HAND} LIMIT 1") is not None
