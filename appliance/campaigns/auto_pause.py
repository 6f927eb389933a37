"""Stops campaigns that do more harm than good: too many addresses that do not exist, too many complaints, no right to
the domain or number they are from, or networks that keep back what they take for unwanted.

The counts stand in the campaign itself, so that looking costs nothing. Once a person lets it go on, what happened
until then is theirs to answer for: from there it is counted anew.
"""

from appliance.campaigns import states, store
from appliance.db.work import writing
from appliance.delivery import classes
from appliance.messages import senders, verdicts
from appliance.tables import Campaign

# Decisions, section 6: hard bounces and complaints, both from so many messages on
MAX_BOUNCES, MAX_COMPLAINTS, FROM_MESSAGES = 0.05, 0.003, 100
# Messages that servers could not tell to be ours, or whose sender is not registered, as reported later
# (`work.circuit_breaker` stops for what is refused at once)
MAX_STRANGERS = 3
# SMS that networks took for unwanted: single ones are caught always, so many and such a part of all mean us
MAX_FILTERED, FROM_FILTERED = 0.05, 10
_LIVE = ("sending", "holding")


def suspects() -> list[tuple[int, int]]:
    """Return (account, id) of the live campaigns that have to stop."""
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
    """Return why a campaign has to stop, or None."""
    address = (campaign.sender or {}).get("email")
    if not campaign.test and address and senders.is_lost(campaign.account_id, address):
        return "domain_failed"
    counts = states.counted(campaign)
    sent, refused, bounced, complained, strangers, filtered = (
        count - int(campaign.baseline.get(name, 0)) for name, count in counts.items()
    )  # fmt: skip
    if strangers >= MAX_STRANGERS or (filtered >= FROM_FILTERED and filtered > MAX_FILTERED * (sent + refused)):
        return "transport"
    if sent + refused < FROM_MESSAGES:
        return None
    if refused + bounced > MAX_BOUNCES * (sent + refused):
        return "bounce_rate"
    return "complaint_rate" if complained > MAX_COMPLAINTS * sent else None


def _words(campaign_id: int) -> str:
    """Return what was said last about a message that came back for what we are, and what helps."""
    kind, enhanced, text = verdicts.of_unwelcome(campaign_id) or (classes.AUTHENTICATION.name, None, None)
    found = classes.BY_NAME[kind]
    help = classes.remedy(enhanced, text or "") if found is classes.AUTHENTICATION else found.help
    return f"{text or found.words} - {help}"
