"""Campaigns that were approved for the people whom a segment found, and wait for another look when it finds others."""

from typing import Any

from appliance import clock
from appliance.db.work import writing
from appliance.segments import needed
from appliance.tables import Account, Campaign


def ask_again(account_id: int, segment_id: int, user_id: int | None) -> None:
    """Take back the approval of campaigns that a segment has a say in; armed ones are disarmed.

    An edit of the audience has to be approved anew (decisions, section 6), by whatever door: somebody who may change
    segments and not approve would send to other people than those that were looked at. `user_id` is who changed it.
    """
    writing()
    waiting = Campaign.select(Campaign).join(Account).where(
        Campaign.account == account_id, Account.approval_required, Campaign.approval_state == "approved",
        Campaign.phase.in_(("draft", "scheduled")), Campaign.started_at.is_null(), Campaign.deleted_at.is_null(),
    )  # fmt: skip
    for campaign in list(waiting):
        if _has_a_say(account_id, segment_id, campaign.trigger):
            campaign.approval_state, campaign.edited_by = "pending_review", user_id
            campaign.status = campaign.phase = "draft"
            campaign.updated_at = max(clock.now_ms(), campaign.updated_at + 1)
            campaign.save()


def _has_a_say(account_id: int, segment_id: int, trigger: Any) -> bool:
    chosen = [("segment", trigger.segment_id), ("list", trigger.contact_list_id)]
    chosen += [("segment", number) for number in trigger.data.get("exclude_segment_ids") or []]
    chosen += [("list", number) for number in trigger.data.get("exclude_list_ids") or []]
    return any(
        ("segment", segment_id) in needed.reached(account_id, kind, number) for kind, number in chosen if number
    )  # fmt: skip
