"""The step that sends an email, whose content is in a template of its own."""

from typing import Any

from appliance.content.designs import document
from appliance.content.designs.merge import make_readable
from appliance.flows.steps.base import MessageStep, StepField, get_content


class Email(MessageStep):
    """A step that sends an email to the contact."""

    type = "email"
    label = "Email"
    icon = "mail"
    claims = frozenset({"subject", "design", "preheader", "from_name", "from_email", "reply_to"})
    keys = claims | {"body", "transactional", "template_id"}
    fields = (
        StepField("subject", "Subject", "line", required=True),
        StepField("preheader", "Preview line", "line"),
        StepField("from_name", "Sender name", "line"),
        StepField("from_email", "Sender address", "line", help="Empty: that of the account."),
        StepField("reply_to", "Replies go to", "line"),
        StepField("body", "Text", "text", help="Beside a design: its plain text."),
        StepField("design", "Design", "design"),
        StepField(
            "transactional", "Service message", "boolean",
            help="Goes to people who unsubscribed too, without footer and tracking. Only for what they asked for.",
        ),
    )  # fmt: skip

    def list_missing_content(self, content: dict[str, Any]) -> list[tuple[str, str]]:
        """Return (key, message) for a missing subject, a missing body or design, and sections of unknown kinds."""
        missing = []
        if not (content.get("subject") or "").strip():
            missing.append(("subject", "write a subject"))
        design = content.get("design") or {}
        if not (content.get("body") or "").strip() and not document.get_sections(design):
            missing.append(("body", "write the message"))
        unknown = document.find_unknown(design)
        if unknown:
            kinds = sorted({section.type or "without type" for section in unknown})
            missing.append((f"design.{unknown[0].path}", f"unknown section kind: {', '.join(kinds)}"))
        return missing

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the subject."""
        subject = make_readable((get_content(props).get("subject") or "").strip())
        return f"Send “{subject}”" if subject else "Send an email that has no subject yet"
