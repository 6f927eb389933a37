"""Tools that prepare a campaign: write its draft, look at it, check it, send a test. None of them sends a campaign."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.api.mcp.tools.base import (
    SAMPLE_VALUES,
    Id,
    Json,
    Tool,
    ToolCall,
    ToolFailed,
    ToolOutput,
    ToolResult,
    pick,
)
from appliance.api.mcp.tools.campaigns import WhichCampaign
from appliance.core.hidden_characters import clean_text

_MAX_BODY_CHARACTERS, _MAX_LINE_CHARACTERS, _MAX_TEST_ADDRESSES = 200_000, 998, 10

Line = Annotated[str, Meta(max_length=_MAX_LINE_CHARACTERS)]
Design = Annotated[
    Json, Meta(description="email design as of the resource campanero://spec/designs; replaces `body` as the content")
]
Body = Annotated[
    str,
    Meta(
        max_length=_MAX_BODY_CHARACTERS,
        description="HTML or plain text of an email, or text of an SMS; merge tags such as {{ contact.first_name }} "
        "are filled for each contact",
    ),
]


class CampaignContent(Struct, forbid_unknown_fields=True):
    """What a draft contains; whatever is left out keeps its value."""

    subject: Line | UnsetType = UNSET
    preheader: Annotated[Line, Meta(description="preview text after the subject line")] | UnsetType = UNSET
    body: Body | UnsetType = UNSET
    design: Design | UnsetType = UNSET
    from_name: Line | UnsetType = UNSET
    from_email: Line | UnsetType = UNSET
    reply_to: Line | UnsetType = UNSET
    list_id: Annotated[Id, Meta(description="the list that gets it")] | UnsetType = UNSET
    segment_id: Annotated[Id, Meta(description="the segment that gets it")] | UnsetType = UNSET


class DraftCampaign(CampaignContent, forbid_unknown_fields=True, kw_only=True):
    """A campaign to draft."""

    name: Annotated[str, Meta(min_length=1, max_length=200, description="name that only the team sees")]
    channel: Literal["email", "sms"] = "email"


class EditDraft(CampaignContent, forbid_unknown_fields=True, kw_only=True):
    """Changes of a draft."""

    campaign_id: Id
    name: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType = UNSET
    updated_at: (
        Annotated[
            str, Meta(description="`updated_at` of the draft that was read; the change fails if it has changed since")
        ]
        | UnsetType
    ) = UNSET


class Draft(ToolOutput, kw_only=True, omit_defaults=True):
    """A draft as it is stored."""

    id: int
    name: str
    phase: str
    channel: str
    updated_at: str
    subject: str = ""
    preheader: str = ""
    from_name: str = ""
    from_email: str = ""
    reply_to: str = ""
    body: str = ""
    has_design: bool = False
    template_id: int | None = None
    trigger: Annotated[Json, Meta(description="the list or segment that gets it")] = {}
    url: Annotated[str, Meta(description="page where people see the draft")] = ""


_CONTENT_FIELDS = ("subject", "preheader", "body", "design", "from_name", "from_email", "reply_to")


def _build_body(content: CampaignContent, extra: Json) -> Json:
    """Return the body of a request for the API."""
    template = {name: value for name in _CONTENT_FIELDS if (value := getattr(content, name)) is not UNSET}
    trigger: Json = {}
    if isinstance(content.list_id, int):
        trigger["contact_list_id"] = content.list_id
    if isinstance(content.segment_id, int):
        trigger["segment_id"] = content.segment_id
    body = {name: value for name, value in extra.items() if value is not UNSET}
    if template:
        body["template_attributes"] = template
    if trigger:
        body["trigger_attributes"] = trigger
    return body


async def _show_draft(campaign: Json) -> Draft:
    template = campaign["template"]
    texts = {name: template[name] or "" for name in _CONTENT_FIELDS if name != "design"}
    return pick(
        Draft, campaign, **texts, has_design=bool(template["design"]), template_id=template["id"],
        url=f"/campaigns/{campaign['id']}",
    )  # fmt: skip


async def _draft_campaign(call: ToolCall, wanted: DraftCampaign) -> ToolResult:
    campaign = await call.post("/campaigns", _build_body(wanted, {"name": wanted.name, "channel": wanted.channel}))
    return ToolResult(f"Draft {campaign['id']} was created. Nothing is sent.", await _show_draft(campaign))


async def _require_draft(call: ToolCall, campaign_id: int) -> Json:
    """Return a campaign that is a draft. Raises ToolFailed for any other."""
    campaign: Json = await call.get(f"/campaigns/{campaign_id}")
    if campaign["phase"] != "draft":
        raise ToolFailed(
            f"Campaign {campaign_id} is {campaign['phase']}, not a draft. Draft a new one with draft_campaign, or "
            "propose the change to a person."
        )
    return campaign


async def _edit_draft(call: ToolCall, wanted: EditDraft) -> ToolResult:
    await _require_draft(call, wanted.campaign_id)
    body = _build_body(wanted, {"name": wanted.name, "updated_at": wanted.updated_at})
    campaign = await call.patch(f"/campaigns/{wanted.campaign_id}", body)
    return ToolResult(f"Draft {wanted.campaign_id} was changed. Nothing is sent.", await _show_draft(campaign))


class PreviewAs(Struct, forbid_unknown_fields=True):
    """The campaign, and the contact whose values it shows; without one it shows sample values."""

    campaign_id: Id
    contact_id: Annotated[Id, Meta(description="needs contacts:read")] | UnsetType = UNSET
    language: Annotated[str, Meta(max_length=35, description="such as de or pt-BR")] | UnsetType = UNSET
    html: Annotated[bool, Meta(description="whether to return the HTML, too")] = False


class PreviewOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """A message as a contact would get it."""

    subject: str = ""
    text: str
    html: str = ""
    bytes: Annotated[int, Meta(description="size of the HTML")] = 0
    sms: Json = {}
    warnings: list[Json] = []


async def _preview(call: ToolCall, wanted: PreviewAs) -> ToolResult:
    campaign = await call.get_unmasked(f"/campaigns/{wanted.campaign_id}")
    template = campaign["template"]
    preview = await call.post(
        "/templates/preview",
        {
            "document": template["design"],
            **{name: template[name] for name in ("subject", "preheader", "from_name", "body") if template[name]},
            "channel": campaign["channel"],
            "contact_id": wanted.contact_id,
            "language": wanted.language,
        },
    )
    value = PreviewOutput(
        subject=clean_text(template["subject"] or ""),
        text=preview["text"],
        html=preview["html"] if wanted.html else "",
        bytes=preview["bytes"],
        sms=preview["sms"] or {},
        warnings=preview["warnings"],
        cut=[SAMPLE_VALUES] if call.masker is not None and isinstance(wanted.contact_id, int) else [],
    )
    return ToolResult(f"Preview of campaign {wanted.campaign_id} with {len(value.warnings)} warnings.", value)


class PreflightOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """Whether a campaign can be sent."""

    ok: bool
    blockers: Annotated[list[Json], Meta(description="must be solved before it can be sent")]
    warnings: list[Json]
    facts: Annotated[Json, Meta(description="audience, who is left out and why, transport, size, SMS parts")]


async def _preflight(call: ToolCall, wanted: WhichCampaign) -> ToolResult:
    checked = await call.get(f"/campaigns/{wanted.campaign_id}/preflight")
    value = pick(PreflightOutput, checked)
    summary = (
        f"{len(value.blockers)} blockers, {len(value.warnings)} warnings; {value.facts['sendable']} contacts get it."
    )
    return ToolResult(summary, value)


class SendTest(Struct, forbid_unknown_fields=True):
    """The campaign to test and the addresses that get it; without addresses, those of the account's settings."""

    campaign_id: Id
    emails: Annotated[list[Line], Meta(max_length=_MAX_TEST_ADDRESSES)] | UnsetType = UNSET
    phones: Annotated[list[Line], Meta(max_length=_MAX_TEST_ADDRESSES)] | UnsetType = UNSET
    contact_id: Annotated[Id, Meta(description="whose values it shows; needs contacts:read")] | UnsetType = UNSET


class TestOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """The results of a test, by recipient."""

    sent: int
    results: list[Json]
    warnings: list[Json] = []


async def _send_test(call: ToolCall, wanted: SendTest) -> ToolResult:
    campaign = await call.get(f"/campaigns/{wanted.campaign_id}")
    body: dict[str, Any] = {"emails": wanted.emails, "phones": wanted.phones, "contact_id": wanted.contact_id}
    sent = await call.post(f"/templates/{campaign['template']['id']}/send_test", body)
    value = pick(TestOutput, sent)
    return ToolResult(f"{value.sent} of {len(value.results)} test messages were queued.", value)


TOOLS = (
    Tool(
        "draft_campaign",
        "Draft a campaign",
        "Create a draft of a campaign with its content and audience. Nothing is sent: a person sends it, or approves a "
        "proposal. Read campanero://spec/designs for designs and campanero://guide/email-editor for merge tags.",
        DraftCampaign,
        Draft,
        _draft_campaign,
        ("POST /campaigns",),
        is_read_only=False,
        is_idempotent=False,
    ),
    Tool(
        "edit_draft",
        "Edit a draft",
        "Change content, audience or name of a campaign that is still a draft. What is left out keeps its value.",
        EditDraft,
        Draft,
        _edit_draft,
        ("GET /campaigns/{id}", "PATCH /campaigns/{id}"),
        is_read_only=False,
        is_destructive=True,
    ),
    Tool(
        "preview_as",
        "Preview as a contact",
        "The message of a campaign as a contact would get it, or with sample values: subject, text, warnings and, if "
        "wanted, HTML.",
        PreviewAs,
        PreviewOutput,
        _preview,
        ("GET /campaigns/{id}", "POST /templates/preview"),
    ),
    Tool(
        "preflight",
        "Preflight",
        "Check a campaign before it is sent: blockers, warnings, exact audience, who is left out and why, SMS parts.",
        WhichCampaign,
        PreflightOutput,
        _preflight,
        ("GET /campaigns/{id}/preflight",),
    ),
    Tool(
        "send_test",
        "Send a test",
        "Send the message of a campaign to test addresses, never to its audience.",
        SendTest,
        TestOutput,
        _send_test,
        ("GET /campaigns/{id}", "POST /templates/{id}/send_test"),
        is_read_only=False,
        is_idempotent=False,
        reaches_outside=True,
    ),
)
