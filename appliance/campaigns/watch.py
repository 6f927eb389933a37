"""Stops campaigns that do more harm than good: too many addresses that do not exist, too many complaints, no right to
the domain they are from any more.

The counts stand in the campaign itself, so that looking costs nothing. Once a person lets it go on, what happened
until then is theirs to answer for: from there it is counted anew.
"""

from appliance.campaigns import states, store
from appliance.db.open import one
from appliance.db.work import writing
from appliance.delivery import classes
from appliance.messages import senders
from appliance.tables import Campaign

# Decisions, section 6: hard bounces and complaints, both from so many messages on
MOST_BOUNCES, MOST_COMPLAINTS, FROM_MESSAGES = 0.05, 0.003, 100
# Messages that servers could not tell to be ours, as reported later (`work.gate` stops for what is refused at once)
MOST_UNAUTHENTICATED = 3
_LIVE = ("sending", "holding")


def suspects() -> list[tuple[int, int]]:
    """Answer (account, id) of the live campaigns that have to stop."""
    live = Campaign.select().where(Campaign.phase.in_(_LIVE), Campaign.deleted_at.is_null())
    return [(campaign.account_id, campaign.id) for campaign in live if verdict(campaign) is not None]


def look(account_id: int, campaign_id: int) -> str | None:
    """Pause a live campaign if too much speaks against it, and answer the reason."""
    writing()
    campaign = store.get(account_id, campaign_id)
    reason = verdict(campaign) if campaign.phase in _LIVE else None
    if reason == "transport":
        campaign.data = {**campaign.data, "pause_detail": _words(campaign_id)}
    if reason is not None:
        states.stop(campaign, reason)
    return reason


def verdict(campaign: Campaign) -> str | None:
    """Say why a campaign has to stop, or None."""
    if not campaign.test and campaign.sender and senders.is_lost(campaign.account_id, campaign.sender["email"]):
        return "domain_failed"
    counts = states.counted(campaign)
    sent, refused, bounced, complained, strangers = (
        count - int(campaign.baseline.get(name, 0)) for name, count in counts.items()
    )  # fmt: skip
    if strangers >= MOST_UNAUTHENTICATED:
        return "transport"
    if sent + refused < FROM_MESSAGES:
        return None
    if refused + bounced > MOST_BOUNCES * (sent + refused):
        return "bounce_rate"
    return "complaint_rate" if complained > MOST_COMPLAINTS * sent else None


def _words(campaign_id: int) -> str:
    """Answer what the last server said that could not tell a message to be ours, and what helps."""
    found = one(
        "SELECT error_enhanced, error_text FROM message m JOIN returned r ON r.message_id = m.id "
        "WHERE r.campaign_id = ? AND r.kind = 'authentication' ORDER BY r.created_at DESC LIMIT 1",
        (campaign_id,),
    )
    enhanced, text = found or (None, "")
    return f"{text or classes.AUTHENTICATION.words} - {classes.remedy(enhanced, text or '')}"
