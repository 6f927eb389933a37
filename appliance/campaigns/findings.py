"""Input and findings of preflight, and the request keys that the campaign endpoints reject."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from appliance.accounts.audit import Actor
from appliance.content.designs.links import Link
from appliance.content.templates.validation import Content as requests_Content
from appliance.core.aliases import Alias, Aliases
from appliance.core.errors import (
    SEND_TIMES,
    RefusedKey,
    RefusedKeys,
    content_keys,
    unsupported,
    use_instead,
    use_within,
)
from appliance.sending.messages.compose import CompiledMessage
from appliance.settings import config
from appliance.storage.models import Account, Brand, Campaign

if TYPE_CHECKING:
    from appliance.content.designs.compiled_template import CompiledTemplate


class Finding(Struct):
    """A blocker or warning of preflight; docs/decisions.md#3 lists the codes."""

    code: Annotated[str, Meta(description="reason code, as in errors")]
    message: str
    field: Annotated[str, Meta(description="path of the field with the problem")]


class TranslatedMessage(NamedTuple):
    """The message of a campaign in a language that it is translated into; `document` has the translated texts.

    `content` (email) or `text` (SMS) is None if it is empty or does not compile; then `error` says why.
    """

    language: str
    document: dict[str, Any]
    content: CompiledMessage | None
    text: "CompiledTemplate | None"
    error: str | None


class PreflightInput(NamedTuple):
    """A campaign with everything that its preflight checks need.

    `content` (email) or `text` (SMS) is None if it is empty or does not compile; then `content_error` says why.
    `translated` are the messages in the languages that it is translated into.
    """

    campaign: Campaign
    account: Account
    brand: Brand
    is_confirmed: bool
    by: Actor  # the user or API key that sends the campaign
    content: CompiledMessage | None
    text: "CompiledTemplate | None"
    content_error: str | None
    is_real: bool  # false if the built-in inbox captures all messages
    translated: tuple[TranslatedMessage, ...] = ()

    @property
    def is_readable(self) -> bool:
        """Return whether the campaign has content that compiles."""
        return self.content is not None or self.text is not None

    @property
    def links(self) -> tuple[Link, ...]:
        """Return the links of an email in all its languages, the original's first."""
        contents = (self.content, *(message.content for message in self.translated))
        return tuple(link for content in contents if content is not None for link in content.links)

    @property
    def is_email(self) -> bool:
        """Return whether the campaign is an email campaign, not SMS."""
        return bool(self.campaign.channel == "email")


def find_transport(campaign: Campaign) -> str:
    """Return the transport of a campaign, by its name in the settings; a test campaign always uses `capture`."""
    settings = config.current()
    if campaign.test:
        return "capture"
    return settings.sms.transport if campaign.channel == "sms" else settings.email.transport


# Unknown keys that campaign requests reject, because ignoring them would change what is sent, to whom, or when.

_ONE_SEGMENT = "a campaign goes to one `segment_id`; make a segment of several"
_NO_CONTACTS = "a campaign goes to a list or a segment, which `trigger_attributes` names"
_LISTS = ("list_ids", "lists", "contact_lists")
_EXCLUDED_LISTS = ("exclude_list_ids", "exclude_lists", "exclude_contact_list_id", "excluded_contact_list_ids")
_EXCLUDED_SEGMENTS = ("exclude_segment_id", "exclude_segments", "excluded_segment_ids")
_HOLD = ("hold", "hold_for", "hold_secs", "hold_minutes", "delay", "delay_seconds")

AUDIENCE_KEYS = (
    "contact_list_ids", "exclude_contact_list_ids", "exclude_segment_ids", "audience_type", "confirm_send_to_all",
)  # fmt: skip


def _refuse_audience_keys(prefix: str) -> dict[str, RefusedKey]:
    """Return rejected names of audience keys, each with the key to use instead or why there is none.

    `prefix` is the path from the checked object to `trigger_attributes.data`, empty or with a dot at the end.
    """
    return {
        **use_instead(f"`{prefix}contact_list_ids`", *_LISTS),
        **use_instead(f"`{prefix}exclude_contact_list_ids`", *_EXCLUDED_LISTS),
        **use_instead(f"`{prefix}exclude_segment_ids`", *_EXCLUDED_SEGMENTS),
        **unsupported(_ONE_SEGMENT, "segment_ids", "segments"),
        **unsupported("make a segment with these filters", "filters"),
        **unsupported(_NO_CONTACTS, "contact_id", "contact_ids", "contacts", "emails", "recipients", "to"),
    }


# For `trigger_attributes.data`, which stores any key that is not rejected here.
AUDIENCE_DATA: RefusedKeys = {
    **_refuse_audience_keys(""),
    **use_within("trigger_attributes", "contact_list_id", "segment_id"),
    **use_instead("`trigger_attributes.contact_list_id`", "list_id"),
}
TRIGGER: RefusedKeys = {
    **_refuse_audience_keys("data."),
    **use_within("data", *AUDIENCE_KEYS),
    **use_instead("`contact_list_id`", "list_id"),
}
CREATE: RefusedKeys = {
    **use_instead("`scheduled_at`", "send_at", *SEND_TIMES),
    **content_keys("template_attributes."),
    **use_within("template_attributes", *requests_Content.__struct_fields__),
    **unsupported("put the content of the template into `template_attributes`", "template_id"),
    **_refuse_audience_keys("trigger_attributes.data."),
    **use_within("trigger_attributes.data", *AUDIENCE_KEYS[:4]),
    **use_within("trigger_attributes", "contact_list_id", "segment_id"),
    **use_instead("`trigger_attributes.contact_list_id`", "list_id"),
    **unsupported("campaigns are marketing; `POST /messages` sends other mail", "transactional", neutral=False),
    **unsupported("send with a test key", "test", "test_mode", "sandbox", neutral=False),
    **unsupported("use `GET /campaigns/{id}/preflight`", "dry_run", neutral=False),
    **use_instead("`experiment`", "ab_test", "split_test", "variants", "variations", "abtest"),
    **use_instead("`experiment.holdout`", "holdout", "control_group"),
    **use_instead("`local_time`", "timewarp", "in_local_time", "is_local", "local_send_at", "send_at_local_time"),
}
PATCH: RefusedKeys = {**CREATE, **unsupported("give it to `POST /campaigns/{id}/send`", "hold_seconds", *_HOLD)}
# Second names of the audience at the top of a request that creates or sends a campaign.
# They stay rejected keys, too, so that a misspelt one is an error.
AUDIENCE_ALIASES: Aliases = {
    **{name: Alias(f"trigger_attributes.{name}") for name in ("contact_list_id", "segment_id")},
    **{name: Alias(f"trigger_attributes.data.{name}") for name in AUDIENCE_KEYS[:4]},
}
SEND: RefusedKeys = {
    **CREATE,
    **use_instead("`hold_seconds`", *_HOLD),
    **unsupported("change it with `PATCH /campaigns/{id}` first", "channel", "tracking", "experiment"),
}
