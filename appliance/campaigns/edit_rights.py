"""Whose hands may touch a campaign that is on its way (docs/decisions.md#2).

An author writes and does not send: so they neither change what goes out by itself in an hour, nor when, nor stop it. A
key without `campaigns:send` may write, and not move the moment. A test key moves only what test keys have sent.
"""

from msgspec import UNSET

from appliance.accounts.acting import By
from appliance.campaigns import checks
from appliance.campaigns.requests import CampaignPatch, SendRequest
from appliance.core.errors import NotAllowed
from appliance.storage.models import Campaign

_TEST = "a test key moves only what test keys have sent"
_ARMED = "it goes out by itself: who may send changes it, or takes it back first"
_WANTED = "campaigns:send"


def change(campaign: Campaign, request: CampaignPatch | SendRequest, by: By) -> None:
    """Raise NotAllowed where somebody may not change, or move, what is armed or on its way."""
    if campaign.phase == "draft":
        return
    paused = campaign.status == "paused"
    moves = paused if isinstance(request, SendRequest) else isinstance(request.status, str)
    if by.test and not campaign.test and (moves or checks.changes(campaign, request)):
        raise NotAllowed(_TEST)
    if campaign.phase != "scheduled" or by.sends:
        return
    retimed = request.scheduled_at is not UNSET and request.scheduled_at != campaign.scheduled_at
    if retimed or (by.user_id is not None and checks.changes(campaign, request)):
        raise NotAllowed(_ARMED, required_scope=_WANTED)


def end(campaign: Campaign, by: By) -> None:
    """Raise NotAllowed where somebody may not delete what is armed or on its way, which ends it."""
    if campaign.phase in ("draft", "completed", "cancelled"):
        return
    if by.test and not campaign.test:
        raise NotAllowed(_TEST)
    if by.user_id is not None and not by.sends:
        raise NotAllowed("it is on its way: who may send deletes it", required_scope=_WANTED)


def words(account_id: int, template_id: int, by: By) -> None:
    """Raise NotAllowed for what an armed campaign says, where its sender alone may change that."""
    if not by.test and (by.user_id is None or by.sends):
        return
    armed = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.template == template_id, Campaign.phase == "scheduled",
        Campaign.deleted_at.is_null(),
    )  # fmt: skip
    if armed is not None and not (by.test and armed.test):
        raise NotAllowed(_TEST) if by.test else NotAllowed(_ARMED, required_scope=_WANTED)
