"""What a look at a campaign finds, and everything it looks at."""

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from appliance.accounts.acting import By
from appliance.content.templates.requests import Content as requests_Content
from appliance.core.validation import (
    SEND_TIMES,
    RefusedKey,
    RefusedKeys,
    of_content,
    unsupported,
    use_instead,
    use_within,
)
from appliance.sending.messages.compose import Content
from appliance.settings import config
from appliance.storage.models import Account, Brand, Campaign

if TYPE_CHECKING:
    from appliance.content.designs.compiled import Compiled


class Finding(Struct):
    """One thing that is not in order: a reason of docs/decisions.md#3, its words, and the field to go to."""

    code: str
    message: str
    field: str


class Case(NamedTuple):
    """A campaign with all that its checks look at."""

    campaign: Campaign
    account: Account
    brand: Brand
    confirmed: bool
    by: By  # who would send it
    content: Content | None  # of an e-mail
    text: "Compiled | None"  # of an SMS
    content_error: str | None
    real: bool  # a transport that leaves this machine

    @property
    def is_readable(self) -> bool:
        """Whether there is a message that can be read."""
        return self.content is not None or self.text is not None

    @property
    def email(self) -> bool:
        """Whether it is an e-mail."""
        return bool(self.campaign.channel == "email")


def transport(campaign: Campaign) -> str:
    """Return what will carry a campaign: a test key's go to capture whatever is set."""
    here = config.current()
    if campaign.test:
        return "capture"
    return here.sms.transport if campaign.channel == "sms" else here.email.transport


def persons(count: int) -> str:
    """Return how many people."""
    return "1 person" if count == 1 else f"{count:,} people"


# Keys that requests about campaigns refuse: to ignore them would change what is sent, to whom, or when.

_ONE_SEGMENT = "a campaign goes to one `segment_id`; make a segment of several"
_NO_CONTACTS = "a campaign goes to a list or a segment, which `trigger_attributes` names"
_LISTS = ("list_ids", "lists", "contact_lists")
_EXCLUDED_LISTS = ("exclude_list_ids", "exclude_lists", "exclude_contact_list_id", "excluded_contact_list_ids")
_EXCLUDED_SEGMENTS = ("exclude_segment_id", "exclude_segments", "excluded_segment_ids")
_HOLD = ("hold", "hold_for", "hold_secs", "hold_minutes", "delay", "delay_seconds")

AUDIENCE_KEYS = (
    "contact_list_ids", "exclude_contact_list_ids", "exclude_segment_ids", "audience_type", "confirm_send_to_all",
)  # fmt: skip


def _audience(data: str) -> dict[str, RefusedKey]:
    """Refuse what others call the audience; `data` is the path before the keys of `trigger_attributes.data`."""
    return {
        **use_instead(f"`{data}contact_list_ids`", *_LISTS),
        **use_instead(f"`{data}exclude_contact_list_ids`", *_EXCLUDED_LISTS),
        **use_instead(f"`{data}exclude_segment_ids`", *_EXCLUDED_SEGMENTS),
        **unsupported(_ONE_SEGMENT, "segment_ids", "segments"),
        **unsupported("make a segment with these filters", "filters"),
        **unsupported(_NO_CONTACTS, "contact_id", "contact_ids", "contacts", "emails", "recipients", "to"),
    }


# In `trigger_attributes.data`, which keeps every other key
AUDIENCE_DATA: RefusedKeys = {
    **_audience(""),
    **use_within("trigger_attributes", "contact_list_id", "segment_id"),
    **use_instead("`trigger_attributes.contact_list_id`", "list_id"),
}
TRIGGER: RefusedKeys = {
    **_audience("data."),
    **use_within("data", *AUDIENCE_KEYS),
    **use_instead("`contact_list_id`", "list_id"),
}
CREATE: RefusedKeys = {
    **use_instead("`scheduled_at`", "send_at", *SEND_TIMES),
    **of_content("template_attributes."),
    **use_within("template_attributes", *requests_Content.__struct_fields__),
    **unsupported("put the content of the template into `template_attributes`", "template_id"),
    **_audience("trigger_attributes.data."),
    **use_within("trigger_attributes.data", *AUDIENCE_KEYS[:4]),
    **use_within("trigger_attributes", "contact_list_id", "segment_id"),
    **use_instead("`trigger_attributes.contact_list_id`", "list_id"),
    **unsupported("campaigns are marketing; `POST /messages` sends other mail", "transactional", neutral=False),
    **unsupported("send with a test key", "test", "test_mode", "sandbox", neutral=False),
    **unsupported("use `GET /campaigns/{id}/preflight`", "dry_run", neutral=False),
}
PATCH: RefusedKeys = {**CREATE, **unsupported("give it to `POST /campaigns/{id}/send`", "hold_seconds", *_HOLD)}
SEND: RefusedKeys = {
    **CREATE,
    **use_instead("`hold_seconds`", *_HOLD),
    **unsupported("change it with `PATCH /campaigns/{id}` first", "channel", "tracking"),
}
