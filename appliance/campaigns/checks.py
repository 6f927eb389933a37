"""What a change of a campaign may say: its faults, and whether it touches what is locked."""

from typing import Any

from msgspec import UNSET

from appliance.campaigns.findings import AUDIENCE_DATA, AUDIENCE_KEYS
from appliance.campaigns.requests import CampaignCreate, CampaignPatch, SendRequest, TriggerWrite
from appliance.content.templates import store as templates
from appliance.core import validation
from appliance.core.errors import Faults, Invalid
from appliance.storage.models import Campaign, ContactList, Segment

# Lists or segments that one audience may unite or leave out
MAX_IDS = 500


def locked(campaign: Campaign) -> Invalid:
    """Make the refusal of a change after the lock."""
    return Invalid({"base": ["is locked: duplicate it to change it"]}, reason="campaign_locked", status=campaign.status)


def changes(campaign: Campaign, request: CampaignPatch | SendRequest) -> bool:
    """Return whether a request would change what is locked."""
    if isinstance(request, CampaignPatch):
        if isinstance(request.channel, str) and request.channel != campaign.channel:
            return True
        if isinstance(request.tracking, bool) and request.tracking != campaign.tracking:
            return True
    if request.scheduled_at is not UNSET and request.scheduled_at != campaign.scheduled_at:
        return True
    if isinstance(request.trigger_attributes, TriggerWrite):
        new, old = request.trigger_attributes, campaign.trigger
        for name, have in (("event", old.event), ("contact_list_id", old.contact_list_id),
                           ("segment_id", old.segment_id), ("data", old.data)):  # fmt: skip
            value = getattr(new, name)
            if value is not UNSET and (value or ({} if name == "data" else None)) != have:
                return True
    if request.template_attributes is not UNSET:
        before = templates.document(campaign.template)
        for name in ("subject", "body", "preheader", "from_name", "from_email", "reply_to", "design"):
            value = getattr(request.template_attributes, name)
            if value is not UNSET and templates.kept(name, value) != before[name]:
                return True
    return False


def check(account_id: int, request: CampaignCreate | CampaignPatch | SendRequest, channel: str) -> None:
    """Raise Invalid with every fault of trigger and template attributes."""
    faults = Faults()
    if isinstance(request.trigger_attributes, TriggerWrite):
        check_trigger(account_id, request.trigger_attributes, faults)
    if request.template_attributes is not UNSET:
        templates.check(account_id, request.template_attributes, "template_attributes.", faults, channel)
    faults.check()


def check_trigger(account_id: int, trigger: TriggerWrite, faults: Faults) -> None:
    """Note every fault of what would say who a campaign is for."""
    path = "trigger_attributes."
    wanted: list[tuple[str, Any, Any]] = [
        ("contact_list_id", ContactList, trigger.contact_list_id),
        ("segment_id", Segment, trigger.segment_id),
    ]
    data = trigger.data if isinstance(trigger.data, dict) else {}
    for key, table in (
        ("contact_list_ids", ContactList), ("exclude_contact_list_ids", ContactList), ("exclude_segment_ids", Segment),
    ):  # fmt: skip
        ids = data.get(key, [])
        if not isinstance(ids, list) or not all(type(number) is int for number in ids):
            faults.add(f"{path}data.{key}", "is invalid")
        elif len(ids) > MAX_IDS:
            faults.add(f"{path}data.{key}", f"is too long (maximum is {MAX_IDS} entries)")
        else:
            wanted += [(f"data.{key}[{index}]", table, number) for index, number in enumerate(ids)]
    for name, table, number in wanted:
        if (isinstance(number, int) and not 0 < number < 2**63) or (
            isinstance(number, int)
            and not table.select().where(table.account == account_id, table.id == number).exists()
        ):
            faults.add(path + name, "must exist")
    for index, key in enumerate(data.keys() - AUDIENCE_KEYS):
        guess = index < validation.MAX_GUESSED_KEYS
        if message := validation.key_fault(AUDIENCE_KEYS, AUDIENCE_DATA, key, data[key], guess):
            faults.add(f"{path}data.{key}", message)
    if data.get("audience_type") not in (None, "all_contacts"):
        faults.add(f"{path}data.audience_type", "is not included in the list")
