"""SMS: a short message from the flow's template of this step."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.content.designs.readable import readable
from appliance.content.templates.requests import Content
from appliance.flows.steps.kind import Field, Reading
from appliance.flows.steps.writing import Writing, said_of
from appliance.sending.sms import gsm
from appliance.sending.sms.gsm import MAX_CHARACTERS

_SHOWN = 60


class Short(Struct):
    """What an SMS says."""

    body: Annotated[str, Meta(max_length=MAX_CHARACTERS)] | None | UnsetType = UNSET


class Sms(Writing):
    """Send an SMS."""

    type = "sms"
    label = "SMS"
    icon = "message-square"
    claims = frozenset({"body"})
    keys = frozenset({"body", "transactional", "template_id"})
    says = Short
    fields = (
        Field("body", "Text", "text", required=True),
        Field("transactional", "Service message", "boolean", help="Goes to people who left marketing too."),
    )

    def check(self, content: Content, reading: Reading) -> None:
        """Note merge tags that cannot be read, and more parts than one SMS may have."""
        found = gsm.length_fault(content.body) if isinstance(content.body, str) else None
        if found:
            reading.fault("body", found)

    def incomplete(self, said: dict[str, Any]) -> list[tuple[str, str]]:
        """Want a text."""
        return [] if (said.get("body") or "").strip() else [("body", "write the message")]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Show how it begins."""
        body = readable(" ".join((said_of(props).get("body") or "").split()))
        if not body:
            return "Send an SMS that is not written yet"
        return f"Send an SMS: “{body[: _SHOWN - 1]}…”" if len(body) > _SHOWN else f"Send an SMS: “{body}”"
