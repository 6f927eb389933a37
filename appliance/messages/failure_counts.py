"""Counts what speaks against a campaign: addresses that do not exist, and people who call it spam."""

from typing import Literal

from appliance.db.open import connection
from appliance.db.work import after_commit, writing
from appliance.work import wake_ups

# Refused as nobody's address, come back after it was accepted, called spam
Against = Literal["refused", "bounced", "complained"]
_ONE_MORE = {
    one: f"UPDATE campaign SET {one}_count = {one}_count + 1 WHERE id = ?"
    for one in ("refused", "bounced", "complained")
}


def against(campaign_id: int, what: Against) -> None:
    """Count one more, and let somebody look at once whether that is too many (`campaigns.auto_pause`)."""
    writing()
    connection().execute(_ONE_MORE[what], (campaign_id,))
    after_commit(lambda: wake_ups.ring("campaigns"))
