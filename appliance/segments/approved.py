"""Campaigns and flows that were approved for the people whom a segment found: if it changes they wait for another look.

An edit of the audience has to be approved anew (docs/decisions.md#6), by whatever door: somebody who may change
segments and not approve would write to other people than those that were looked at.
"""

from typing import Any

from appliance import clock
from appliance.account import approving
from appliance.account.acting import By
from appliance.db.work import after_commit, writing
from appliance.segments import dependencies
from appliance.segments.dependencies import Kind
from appliance.tables import Account, Campaign, Flow
from appliance.work import wake_ups


def ask_again(account_id: int, kind: Kind, number: int, by: By) -> None:
    """Take back the approval of what a segment, or a list that shows one, has a say in; `by` is who changes it.

    Armed campaigns are disarmed. A live flow is paused, unless who changes it may approve of it, as with any other
    change of a live flow.
    """
    writing()
    _campaigns(account_id, kind, number, by)
    _flows(account_id, kind, number, by)


def _campaigns(account_id: int, kind: Kind, number: int, by: By) -> None:
    waiting = Campaign.select(Campaign).join(Account).where(
        Campaign.account == account_id, Account.approval_required, Campaign.approval_state == "approved",
        Campaign.phase.in_(("draft", "scheduled")), Campaign.started_at.is_null(), Campaign.deleted_at.is_null(),
    )  # fmt: skip
    for campaign in list(waiting):
        if _has_a_say(account_id, kind, number, _chosen(campaign.trigger)):
            approving.touched(campaign, by.user_id)
            campaign.status = campaign.phase = "draft"
            campaign.updated_at = max(clock.now_ms(), campaign.updated_at + 1)
            campaign.save()


def _flows(account_id: int, kind: Kind, number: int, by: By) -> None:
    found = Flow.select(Flow).join(Account).where(
        Flow.account == account_id, Account.approval_required, Flow.approval_state == "approved",
        ~Flow.hidden, Flow.deleted_at.is_null(),
    )  # fmt: skip
    for flow in list(found):
        is_live = flow.status == "active"
        if (is_live and approving.allows(flow, by)) or not _has_a_say(
            account_id, kind, number, dependencies.of_flow(flow)
        ):
            continue
        approving.touched(flow, by.user_id)
        if is_live:
            flow.status, flow.paused_at = "paused", clock.now_ms()
        flow.updated_at = max(clock.now_ms(), flow.updated_at + 1)
        flow.save(only=[Flow.approval_state, Flow.edited_by, Flow.status, Flow.paused_at, Flow.updated_at])
        after_commit(lambda: wake_ups.ring("flows"))


def _chosen(trigger: Any) -> set[tuple[str, int | None]]:
    lists, segments = ("contact_list_ids", "exclude_contact_list_ids"), ("exclude_segment_ids",)
    chosen: set[tuple[str, int | None]] = {("segment", trigger.segment_id), ("list", trigger.contact_list_id)}
    for of, names in (("list", lists), ("segment", segments)):
        chosen |= {(of, number) for name in names for number in trigger.data.get(name) or []}
    return chosen


def _has_a_say(account_id: int, kind: Kind, number: int, chosen: set[tuple[str, int | None]]) -> bool:
    return any((kind, number) in dependencies.reached(account_id, of, one) for of, one in chosen if one)
