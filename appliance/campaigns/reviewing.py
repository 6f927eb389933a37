"""Somebody looks at a campaign before it goes out: asked for, approved, rejected (docs/decisions.md#6)."""

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.campaigns import checks, preflight, send, states, store
from appliance.storage.models import Campaign
from appliance.storage.work import writing


def ask(account_id: int, campaign_id: int, by: By) -> Campaign:
    """Let a campaign wait for approval; raises NotFound, or Invalid with what is missing, or for one past its lock."""
    writing()
    campaign = _open(account_id, campaign_id)
    confirmed = campaign.trigger.data.get("confirm_send_to_all") is True
    send.refuse(preflight.blockers(preflight.open_case(campaign, confirmed, By(approves=True))))
    approving.ask(campaign, by)
    return _kept(campaign)


def approve(account_id: int, campaign_id: int, by: By) -> Campaign:
    """Let a campaign be sent as it is; raises NotFound, NotAllowed, or Invalid for one past its lock."""
    writing()
    campaign = _open(account_id, campaign_id)
    approving.approve(campaign, by)
    return _kept(campaign)


def reject(account_id: int, campaign_id: int, note: str | None) -> Campaign:
    """Keep a campaign from being sent as it is; one whose time is to come is a draft again. Raises as `approve`."""
    writing()
    campaign = _open(account_id, campaign_id)
    approving.reject(campaign, note)
    if campaign.phase == "scheduled":
        states.disarm(campaign)
    return _kept(campaign)


def _open(account_id: int, campaign_id: int) -> Campaign:
    campaign = store.get(account_id, campaign_id)
    if campaign.started_at is not None or campaign.phase not in ("draft", "scheduled", "paused"):
        raise checks.locked(campaign)
    return campaign


def _kept(campaign: Campaign) -> Campaign:
    store.touch(campaign)
    return store.get(campaign.account_id, campaign.id)
