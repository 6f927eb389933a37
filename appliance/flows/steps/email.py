"""Email: a message from the flow's template of this step."""

from typing import Any

from appliance.content.designs import document
from appliance.content.designs.readable import readable
from appliance.flows.steps.kind import Field
from appliance.flows.steps.writing import Writing, said_of


class Email(Writing):
    """Send an e-mail."""

    type = "email"
    label = "Email"
    icon = "mail"
    claims = frozenset({"subject", "design", "preheader", "from_name", "from_email", "reply_to"})
    keys = claims | {"body", "transactional", "template_id"}
    fields = (
        Field("subject", "Subject", "line", required=True),
        Field("preheader", "Preview line", "line"),
        Field("from_name", "Sender name", "line"),
        Field("from_email", "Sender address", "line", help="Empty: that of the account."),
        Field("reply_to", "Replies go to", "line"),
        Field("body", "Text", "text", help="Beside a design: its plain text."),
        Field("design", "Design", "design"),
        Field(
            "transactional", "Service message", "boolean",
            help="Goes to people who unsubscribed too, without footer and tracking. Only for what they asked for.",
        ),
    )  # fmt: skip

    def incomplete(self, said: dict[str, Any]) -> list[tuple[str, str]]:
        """Want a subject, a section or a body, and no section that nobody can show."""
        found = []
        if not (said.get("subject") or "").strip():
            found.append(("subject", "write a subject"))
        design = said.get("design") or {}
        if not (said.get("body") or "").strip() and not document.sections(design):
            found.append(("body", "write the message"))
        unknown = document.unknown(design)
        if unknown:
            kinds = sorted({one.type or "without type" for one in unknown})
            found.append((f"design.{unknown[0].path}", f"unknown section kind: {', '.join(kinds)}"))
        return found

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Name it by its subject."""
        subject = readable((said_of(props).get("subject") or "").strip())
        return f"Send “{subject}”" if subject else "Send an email that has no subject yet"
