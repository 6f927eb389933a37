"""The resend: a draft with the content of a sent campaign, for a new segment of recipients who did not open it."""

from datetime import datetime, time, timedelta

from appliance.accounts.audit import Actor
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.audience.time_zones import get_account_zone
from appliance.campaigns import store, variants
from appliance.content.templates import store as templates
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.core.time_zones import find_moment
from appliance.storage.database import scalar
from appliance.storage.models import Campaign, Segment
from appliance.storage.transactions import require_write_transaction

# So many days after it is created, a resend is sent: contacts who are slow to open have opened by then.
RESEND_DAYS = 2
_MAX_NAME = 230
_HAS_NON_OPENERS = (
    "SELECT EXISTS (SELECT 1 FROM message WHERE campaign_id = ? AND status IN ('sent', 'delivered') "
    "AND opened_at IS NULL AND contact_id NOT NULL AND test = 0)"
)


def check_resend(account_id: int, campaign_id: int) -> None:
    """Raise Invalid, with the reason, if a campaign cannot be resent to the recipients who did not open it.

    Raises NotFound.
    """
    campaign = store.get_row(account_id, campaign_id)
    _require_resendable(campaign)
    if not scalar(_HAS_NON_OPENERS, (campaign_id,)):
        raise Invalid({"base": [gettext("every recipient of this campaign has opened it")]})


def _require_resendable(campaign: Campaign) -> None:
    if campaign.channel != "email" or campaign.started_at is None:
        raise Invalid({"base": [gettext("this is not an email campaign that was sent")]})
    if campaign.phase not in ("completed", "cancelled"):
        raise Invalid({"base": [gettext("this campaign is still being sent: wait until it is done")]})
    if not campaign.tracking:
        raise Invalid({"base": [gettext("opens of this campaign were not tracked, so non-openers are unknown")]})


def find_resent_campaign(campaign: Campaign) -> Campaign | None:
    """Return the campaign of the same account whose non-openers get a campaign; None if it is not a resend."""
    segment_id = campaign.trigger.segment_id
    segment = None if segment_id is None else Segment.get_or_none(Segment.id == segment_id)
    if segment is None:
        return None
    ids = [row["value"] for row in segment.filters
           if row.get("name") == "campaign_opened" and row.get("predicate") == "not_eq"]  # fmt: skip
    if len(ids) != 1:
        return None
    return Campaign.get_or_none(Campaign.account == campaign.account_id, Campaign.id == ids[0])


def create_resend_to_non_openers(account_id: int, campaign_id: int, by: Actor) -> Campaign:
    """Create a draft with a campaign's content, and a segment of the recipients who did not open the campaign.

    The draft keeps the lists and exclusions, so contacts who have left the lists are not included. Its time is set to
    the day after tomorrow, at the hour at which the campaign was sent, so that late openers count. Raises NotFound, or
    Invalid for a campaign that was not sent, is SMS or was not tracked. Call `check_resend` first, outside of the
    transaction: it also checks that such recipients exist.
    """
    require_write_transaction()
    original = store.get(account_id, campaign_id)
    _require_resendable(original)
    name = original.name[:_MAX_NAME]
    segment = segments.create(
        account_id,
        SegmentCreate(
            name=gettext("Did not open %(name)s", name=name),
            filters=[
                {"name": "campaign_sent", "predicate": "eq", "value": campaign_id},
                {"name": "campaign_opened", "predicate": "not_eq", "value": campaign_id},
            ],
        ),
    )
    draft = store.duplicate(account_id, campaign_id, by)
    _replace_test_by_winner(original, draft, by)
    draft.name = gettext("%(name)s (resend)", name=name)
    draft.scheduled_at = _choose_time(original)
    draft.trigger.segment_id, draft.trigger.updated_at = segment.id, clock.now_ms()
    # The segment limits the audience to the recipients, so a list or segment that has been deleted is not missing.
    draft.trigger.data.pop(segments.AUDIENCE_DELETED, None)
    draft.trigger.save()
    store.mark_changed(draft)
    return store.get(account_id, draft.id)


def _choose_time(original: Campaign) -> int:
    """Return the time of a resend in Unix milliseconds: the hour of the first send in the account's time zone."""
    zone = get_account_zone(original.account_id).zone
    sent, now = (datetime.fromtimestamp(ms / 1000, zone) for ms in (original.started_at, clock.now_ms()))
    day = now.date() + timedelta(days=RESEND_DAYS)
    return find_moment(datetime.combine(day, time(sent.hour)), zone)


def _replace_test_by_winner(original: Campaign, draft: Campaign, by: Actor) -> None:
    """Give a duplicate of a campaign with an A/B test no test, and the content of the winner, if there is one."""
    variants.remove(draft.id)
    setup: variants.Setup | None = original.setup
    winner = setup.experiment.winner or 1 if setup is not None else 1
    if setup is not None and winner > 1:
        document = variants.get_variant(setup, winner).document
        templates.write(draft.template, document, by.user_id, begins=True)
