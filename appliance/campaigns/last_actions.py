"""Who did what to a campaign last, and when: the events that its own states leave behind."""

from typing import NamedTuple

import msgspec

from appliance.storage.models import Campaign
from appliance.storage.open import fetch_one, scalar

_LAST = (
    "SELECT data, created_at FROM event WHERE account_id = ? AND resource_uid = ? AND event = ? "
    "ORDER BY created_at DESC, id DESC LIMIT 1"
)
_OF_PHASE = {"paused": "campaign_paused", "cancelled": "campaign_completed"}


class Act(NamedTuple):
    """When, and the name of the person if it was one (None: the service, or a program's key)."""

    at: int
    name: str | None
    is_service: bool


def last(campaign: Campaign) -> Act | None:
    """Return how a campaign came into the phase it is in, where somebody paused or stopped it."""
    event = _OF_PHASE.get(campaign.phase)
    found = fetch_one(_LAST, (campaign.account_id, f"campaign:{campaign.id}", event)) if event else None
    if found is None:
        return None
    kind, _, number = str(msgspec.json.decode(found[0]).get("actor") or "").partition(":")
    name = None
    if kind == "user" and number.isdecimal():
        sql = "SELECT name FROM user WHERE account_id = ? AND id = ?"
        name = (
            scalar(sql, (campaign.account_id, int(number)))
            if fetch_one(sql, (campaign.account_id, int(number)))
            else None
        )
    return Act(found[1], name, kind == "system")
