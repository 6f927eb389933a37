"""A new draft that says the same to the same people as a campaign that was sent, or is to be."""

from appliance import clock
from appliance.campaigns import store
from appliance.campaigns.requests import CampaignCreate
from appliance.db.work import writing
from appliance.tables import Campaign
from appliance.templates import store as templates

_MAX_NAME = 240
# What was noted of that one alone, and what has to be said anew before a send
_NOT_KEPT = ("pause_detail",)
_TO_CONFIRM = ("confirm_send_to_all",)


def duplicate(account_id: int, campaign_id: int, user_id: int | None = None, name: str | None = None) -> Campaign:
    """Make a draft like a campaign, by its own name or another: words, audience, channel, not its time; or NotFound."""
    writing()
    have = store.get(account_id, campaign_id)
    asked = CampaignCreate(
        name=name or f"{have.name[:_MAX_NAME]} (copy)", channel="sms" if have.channel == "sms" else "email",
        tracking=have.tracking,
        data={key: value for key, value in have.data.items() if key not in _NOT_KEPT},
    )  # fmt: skip
    made = store.create(account_id, asked, user_id)
    trigger, old = made.trigger, have.trigger
    trigger.event, trigger.contact_list_id, trigger.segment_id = old.event, old.contact_list_id, old.segment_id
    trigger.data = {key: value for key, value in old.data.items() if key not in _TO_CONFIRM}
    trigger.updated_at = clock.now_ms()
    trigger.save()
    templates.write(made.template, templates.document(have.template), user_id,
                    label=f"Copied from {have.name[:_MAX_NAME]}", begins=True)  # fmt: skip
    return store.get(account_id, made.id)
