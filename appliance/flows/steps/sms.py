"""The step that sends an SMS, whose text is in a template of its own."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.content.designs.merge import make_readable
from appliance.content.templates.validation import Content
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.base import UTM_FIELD, MessageStep, ParseContext, StepField, get_content
from appliance.sending.sms import segments
from appliance.sending.sms.segments import MAX_CHARACTERS

_MAX_SUMMARY_CHARACTERS = 60


class SmsContent(Struct):
    """The content of an SMS, for validation."""

    body: Annotated[str, Meta(max_length=MAX_CHARACTERS)] | None | UnsetType = UNSET


class Sms(MessageStep):
    """A step that sends an SMS to the contact."""

    type = "sms"
    label = gettext_noop("SMS")
    icon = "message-square"
    claims = frozenset({"body"})
    keys = frozenset({"body", "transactional", "utm", "template_id"})
    content_type = SmsContent
    fields = (
        StepField("body", gettext_noop("Text"), "text", required=True),
        StepField(
            "transactional", gettext_noop("Transactional message"), "boolean",
            help=gettext_noop(
                "Sent even to unsubscribed contacts. Use only for transactional messages such as "
"receipts."
            ),
        ),
        UTM_FIELD,
    )  # fmt: skip

    def check(self, content: Content, context: ParseContext) -> None:
        """Add an error to `context` for invalid merge tags, or a text that is too long even with empty merge tags."""
        error = segments.find_length_fault(content.body) if isinstance(content.body, str) else None
        if error:
            context.add_fault("body", error)

    def list_missing_content(self, content: dict[str, Any]) -> list[tuple[str, str]]:
        """Return an error, as (key, message), for an empty text."""
        return [] if (content.get("body") or "").strip() else [("body", gettext("write the message"))]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the beginning of the SMS."""
        text = _get_beginning(props)
        return gettext("Send SMS “%(text)s”", text=text) if text else gettext("Send an SMS without text")

    def name(self, props: dict[str, Any], account_id: int) -> str:
        """Return the kind of the step with the beginning of the SMS."""
        text = _get_beginning(props)
        return gettext("SMS “%(text)s”", text=text) if text else gettext("SMS without text")


def _get_beginning(props: dict[str, Any]) -> str:
    body = make_readable(" ".join((get_content(props).get("body") or "").split()))
    return f"{body[: _MAX_SUMMARY_CHARACTERS - 1]}…" if len(body) > _MAX_SUMMARY_CHARACTERS else body
