"""What may be asked of templates; API bodies, queries, forms and the published document all read these."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.core.fields import EmailText, Line, PageQuery, Short, Subject, Text, When, default, named
from appliance.core.validation import RefusedKeys, of_content

DESIGN_BYTES = 1_048_576
Design = Annotated[dict[str, Any], Meta(extra={"bytes": DESIGN_BYTES}), named("Design")]


class Content(Struct):
    """Subject, body and sender of one message."""

    REFUSED: ClassVar[RefusedKeys] = of_content()

    subject: Subject | None | UnsetType = UNSET
    body: Text | None | UnsetType = UNSET
    preheader: Line | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    from_email: EmailText | None | UnsetType = UNSET
    reply_to: EmailText | None | UnsetType = UNSET
    design: Design | None | UnsetType = UNSET


class TemplateWrite(Content):
    """A template as created or changed; its channel is chosen once. `updated_at` of what was read guards it."""

    name: Line | None | UnsetType = UNSET
    channel: Literal["email", "sms"] | UnsetType = UNSET
    updated_at: When | UnsetType = UNSET


class TemplateCreate(TemplateWrite):
    """A new template; nothing is needed."""

    name: Annotated[Line, default("Untitled template")] | None | UnsetType = UNSET
    channel: Annotated[Literal["email", "sms"], default("email")] | UnsetType = UNSET
    design: Annotated[Design, default({"sections": [], "theme": {}})] | None | UnsetType = UNSET


class TemplateQuery(PageQuery):
    """Filters of the template list."""

    standalone: bool | UnsetType = UNSET
    channel: Literal["email", "sms"] | UnsetType = UNSET
    search: Short | UnsetType = UNSET
