"""The step that sends an email, whose content is in a template of its own."""

from typing import Any

from appliance.content.designs import document
from appliance.content.designs.merge import make_readable
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.base import UTM_FIELD, MessageStep, StepField, get_content


class Email(MessageStep):
    """A step that sends an email to the contact."""

    type = "email"
    label = gettext_noop("Email")
    icon = "mail"
    claims = frozenset({"subject", "design", "preheader", "from_name", "from_email", "reply_to"})
    keys = claims | {"body", "transactional", "utm", "template_id"}
    fields = (
        StepField("subject", gettext_noop("Subject"), "line", required=True),
        StepField("preheader", gettext_noop("Preview text"), "line"),
        StepField("from_name", gettext_noop("From name"), "line"),
        StepField(
            "from_email", gettext_noop("From address"), "line",
            help=gettext_noop("Leave empty to use the account’s From address."),
        ),
        StepField("reply_to", gettext_noop("Reply-to address"), "line"),
        StepField("body", gettext_noop("Text"), "text", help=gettext_noop("With a design: its plain-text version.")),
        StepField("design", gettext_noop("Design"), "design"),
        StepField(
            "transactional", gettext_noop("Transactional message"), "boolean",
            help=gettext_noop(
                "Sent even to unsubscribed contacts, without a footer or tracking. Use only for "
"transactional messages such as receipts."
            ),
        ),
        UTM_FIELD,
    )  # fmt: skip

    def list_missing_content(self, content: dict[str, Any]) -> list[tuple[str, str]]:
        """Return (key, message) for a missing subject, a missing body or design, and sections of unknown kinds."""
        missing = []
        if not (content.get("subject") or "").strip():
            missing.append(("subject", gettext("write a subject")))
        design = content.get("design") or {}
        if not (content.get("body") or "").strip() and not document.get_sections(design):
            missing.append(("body", gettext("write the message")))
        unknown = document.find_unknown(design)
        if unknown:
            kinds = ", ".join(sorted({section.type or gettext("without type") for section in unknown}))
            missing.append((f"design.{unknown[0].path}", gettext("unknown section kind: %(kinds)s", kinds=kinds)))
        return missing

    def name(self, props: dict[str, Any], account_id: int) -> str:
        """Return the kind of the step with the subject."""
        subject = _get_subject(props)
        return gettext("Email “%(subject)s”", subject=subject) if subject else gettext("Email without a subject")

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the subject."""
        subject = _get_subject(props)
        return gettext("Send “%(subject)s”", subject=subject) if subject else gettext("Send an email without a subject")


def _get_subject(props: dict[str, Any]) -> str:
    return make_readable((get_content(props).get("subject") or "").strip())
