"""Ends the open rows of a campaign that is cancelled, deleted or taken back.

Those of a large one are ended in chunks. Nothing more of it leaves from the moment its phase says so, which is when
the person has the answer; until its chunk comes a row counts as what it is, waiting. The campaign says what is left to
be done, so that a process that dies is followed by one that goes on.
"""

from appliance.campaigns.store import MAX_AT_ONCE
from appliance.core import clock, wake_ups
from appliance.storage.models import Campaign
from appliance.storage.open import fetch_one, run
from appliance.storage.work import after_commit, writing

_SOME = "id IN (SELECT id FROM message WHERE campaign_id = ? {}LIMIT ?)"
_OPEN = "AND status IN ('queued', 'held') "
_CANCEL = (
    "UPDATE message SET status = CASE WHEN doubts > 0 THEN 'uncertain' ELSE 'cancelled' END, "
    "due_at = NULL, updated_at = ? WHERE "
)
_ALL = -1


def cancel(campaign: Campaign) -> None:
    """Cancel what has not left; the caller saves the campaign."""
    _begin(campaign, "cancel")


def undo(campaign: Campaign) -> None:
    """Take all rows away, none of which was ever attempted; the caller saves the campaign."""
    _begin(campaign, "undo")


def _begin(campaign: Campaign, how: str) -> None:
    writing()
    # Whoever has no row yet gets none
    campaign.freezing = None
    if campaign.closing is not None or campaign.audience_count > MAX_AT_ONCE:
        campaign.closing = campaign.closing or how
        after_commit(lambda: wake_ups.ring("audiences"))
    else:
        _end(campaign.id, how, _ALL)


def chunk(campaign_id: int, size: int) -> int:
    """End so many rows of a campaign; answers 0 once none is left."""
    writing()
    found = fetch_one("SELECT closing FROM campaign WHERE id = ? AND closing IS NOT NULL", (campaign_id,))
    left = _end(campaign_id, found[0], size) if found is not None else 0
    if not left:
        run("UPDATE campaign SET closing = NULL WHERE id = ?", (campaign_id,))
    return left


def _end(campaign_id: int, how: str, most: int) -> int:
    if how == "undo":
        return run(f"DELETE FROM message WHERE {_SOME.format('')}", (campaign_id, most))
    return run(f"{_CANCEL}{_SOME.format(_OPEN)}", (clock.now_ms(), campaign_id, most))
