"""The audience of a campaign in a request: the lists and segments of its trigger, and validating them."""

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.campaigns import findings
from appliance.campaigns.findings import AUDIENCE_DATA, AUDIENCE_KEYS
from appliance.core.errors import MAX_GUESSED_KEYS, Faults, Invalid, RefusedKeys, find_key_error
from appliance.core.i18n import gettext
from appliance.core.validation import Data, EventName, Id, schema_name
from appliance.storage.models import ContactList, Segment

# The largest number of lists or segments in one key of the trigger's data.
MAX_IDS = 500


class TriggerWrite(Struct, forbid_unknown_fields=True):
    """The audience of a campaign; unknown keys are rejected, because ignoring them could change who gets messages."""

    REFUSED: ClassVar[RefusedKeys] = findings.TRIGGER

    event: Annotated[EventName, Meta(description="event that triggers it; `manual` for a campaign")] | UnsetType = UNSET
    contact_list_id: (
        Annotated[Id, Meta(description="id of the list to send to; with a segment, only contacts in both")]
        | None
        | UnsetType
    ) = UNSET
    segment_id: Annotated[Id, Meta(description="id of the segment to send to")] | None | UnsetType = UNSET
    data: (
        Annotated[Data, schema_name("CampaignTriggerData"), Meta(description="further parts of the audience")]
        | None
        | UnsetType
    ) = UNSET


def validate_trigger(account_id: int, trigger: TriggerWrite, faults: Faults) -> None:
    """Add all errors of the trigger attributes to `faults`."""
    path = "trigger_attributes."
    references: list[tuple[str, Any, Any]] = [
        ("contact_list_id", ContactList, trigger.contact_list_id),
        ("segment_id", Segment, trigger.segment_id),
    ]
    data = trigger.data if isinstance(trigger.data, dict) else {}
    for key, table in (
        ("contact_list_ids", ContactList), ("exclude_contact_list_ids", ContactList), ("exclude_segment_ids", Segment),
    ):  # fmt: skip
        ids = data.get(key, [])
        if not isinstance(ids, list) or not all(type(item_id) is int for item_id in ids):
            faults.add(f"{path}data.{key}", gettext("is invalid"))
        elif len(ids) > MAX_IDS:
            faults.add(f"{path}data.{key}", gettext("is too long (maximum is %(limit)s entries)", limit=MAX_IDS))
        else:
            references += [(f"data.{key}[{index}]", table, item_id) for index, item_id in enumerate(ids)]
    for name, table, item_id in references:
        if (isinstance(item_id, int) and not 0 < item_id < 2**63) or (
            isinstance(item_id, int)
            and not table.select().where(table.account == account_id, table.id == item_id).exists()
        ):
            faults.add(path + name, gettext("must exist"))
    for index, key in enumerate(data.keys() - AUDIENCE_KEYS):
        guess = index < MAX_GUESSED_KEYS
        if message := find_key_error(AUDIENCE_KEYS, AUDIENCE_DATA, key, data[key], guess):
            faults.add(f"{path}data.{key}", message)
    if data.get("audience_type") not in (None, "all_contacts"):
        faults.add(f"{path}data.audience_type", gettext("is not included in the list"))
    if not isinstance(data.get("confirm_send_to_all", False), bool):
        faults.add(f"{path}data.confirm_send_to_all", gettext("must be true or false"))


def refuse_confirmation(trigger: TriggerWrite | UnsetType) -> None:
    """Raise Invalid if an agent confirms a send to all contacts in advance, which is for the user who decides."""
    if isinstance(trigger, TriggerWrite) and isinstance(trigger.data, dict) and "confirm_send_to_all" in trigger.data:
        field = "trigger_attributes.data.confirm_send_to_all"
        raise Invalid({field: [gettext("cannot be set by an agent")]})
