"""What may be written about a campaign, and how campaigns are asked for."""

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.campaigns import findings
from appliance.content.templates.store import Content
from appliance.core.fields import Data, EventName, Id, Name, PageQuery, Short, When, default
from appliance.core.validation import RefusedKeys

StatusWord = Literal["draft", "active", "paused", "completed", "live", "cancelled", "scheduled"]

Phase = Literal["draft", "scheduled", "holding", "sending", "paused", "completed", "cancelled"]


class TriggerWrite(Struct, forbid_unknown_fields=True):
    """For whom a campaign is; an unknown key here would change who gets mail, so it is refused."""

    REFUSED: ClassVar[RefusedKeys] = findings.TRIGGER

    event: EventName | UnsetType = UNSET
    contact_list_id: Id | None | UnsetType = UNSET
    segment_id: Id | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET


class CampaignCreate(Struct):
    """A new campaign; only its name is needed."""

    REFUSED: ClassVar[RefusedKeys] = findings.CREATE

    name: Name
    channel: Literal["email", "sms"] = "email"
    scheduled_at: When | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    tracking: Annotated[bool, default(True)] | UnsetType = UNSET
    trigger_attributes: TriggerWrite | UnsetType = UNSET
    template_attributes: Content | UnsetType = UNSET


class CampaignPatch(Struct):
    """A change of a campaign; `updated_at` of what was read guards against overwriting."""

    REFUSED: ClassVar[RefusedKeys] = findings.PATCH

    name: Name | UnsetType = UNSET
    channel: Literal["email", "sms"] | UnsetType = UNSET
    scheduled_at: When | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    tracking: bool | UnsetType = UNSET
    status: StatusWord | UnsetType = UNSET
    trigger_attributes: TriggerWrite | UnsetType = UNSET
    template_attributes: Content | UnsetType = UNSET
    updated_at: When | UnsetType = UNSET


class CampaignCopy(Struct):
    """A duplicate; without a name it is called as the campaign, with "(copy)" behind."""

    name: Name | UnsetType = UNSET


class SendRequest(Struct):
    """Attributes that are applied in the same transaction as the send.

    A future `scheduled_at` schedules the campaign; a past one, or null, sends it now.
    """

    REFUSED: ClassVar[RefusedKeys] = findings.SEND

    scheduled_at: When | None | UnsetType = UNSET
    trigger_attributes: TriggerWrite | UnsetType = UNSET
    template_attributes: Content | UnsetType = UNSET
    confirm_send_to_all: Annotated[bool, default(False)] | UnsetType = UNSET
    hold_seconds: Annotated[int, Meta(ge=0, le=86_400), default(0)] | UnsetType = UNSET


class CampaignQuery(PageQuery):
    """Filters of the campaign list; those that are `asked` about wait for somebody to approve of them."""

    status: StatusWord | UnsetType = UNSET
    phase: Phase | UnsetType = UNSET
    channel: Literal["email", "sms"] | UnsetType = UNSET
    search: Short | UnsetType = UNSET
    approval_state: Literal["pending_review", "approved", "rejected"] | UnsetType = UNSET
    asked: bool | UnsetType = UNSET
