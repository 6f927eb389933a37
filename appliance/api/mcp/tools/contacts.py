"""Tools about single contacts: find them, see what is known of one, and why one did not get a message."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.api.mcp.tools.base import (
    Id,
    Json,
    Limit,
    OptionalId,
    Page,
    Tool,
    ToolCall,
    ToolFailed,
    ToolOutput,
    ToolResult,
    pick,
    read_paging,
)

_MAX_HISTORY_ENTRIES = 15


class FindContacts(Struct, forbid_unknown_fields=True):
    """Which contacts to find."""

    search: Annotated[
        str, Meta(max_length=200, description="part of a name, email address or phone number")
    ] | UnsetType = UNSET  # fmt: skip
    list_id: OptionalId = UNSET
    segment_id: OptionalId = UNSET
    tag: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    status: Literal["subscribed", "unsubscribed", "not_subscribed", "suppressed"] | UnsetType = UNSET
    sendable_email: Annotated[bool, Meta(description="only contacts that can get marketing email")] | UnsetType = UNSET
    sendable_phone: Annotated[bool, Meta(description="only contacts that can get marketing SMS")] | UnsetType = UNSET
    created_after: Annotated[str, Meta(max_length=40, description="day or time in ISO 8601")] | UnsetType = UNSET
    page: Page = 1
    limit: Limit = 20


class ContactRow(Struct, omit_defaults=True):
    """A contact in a list."""

    id: int
    sendable_email: bool
    sendable_phone: bool
    created_at: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    phone: str = ""
    last_interacted_at: str = ""
    list_ids: list[int] = []


class FoundContacts(ToolOutput, kw_only=True, omit_defaults=True):
    """A page of contacts."""

    total: int
    contacts: list[ContactRow]
    next_page: int | None = None


def make_row(contact: Json) -> ContactRow:
    """Return a contact of the API as a row, with its first email address and phone number."""
    addresses = {channel["kind"]: channel["value"] for channel in reversed(contact["channels"])}
    return pick(ContactRow, contact, email=addresses.get("email", ""), phone=addresses.get("phone", ""))


async def _find_contacts(call: ToolCall, wanted: FindContacts) -> ToolResult:
    query = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    reply = await call.call("GET", "/contacts", query)
    paging = read_paging(reply)
    rows = [make_row(contact) for contact in reply.value]
    cut = [f"{len(rows)} of {paging.total} contacts; page {paging.next_page} has more"] if paging.next_page else []
    matches = FoundContacts(total=paging.total, contacts=rows, next_page=paging.next_page, cut=cut)
    return ToolResult(f"{paging.total} contacts match; {len(rows)} are on this page.", matches)


class WhichContact(Struct, forbid_unknown_fields=True):
    """The contact: by its id, or by its whole email address or phone number."""

    contact_id: OptionalId = UNSET
    address: Annotated[str, Meta(max_length=320, description="email address or phone number")] | UnsetType = UNSET


class HistoryEntry(Struct, omit_defaults=True):
    """An event or a message of a contact."""

    type: str
    created_at: str
    event: str = ""
    data: Json = {}
    message_id: int | None = None
    status: str = ""
    subject: str = ""
    skip_reason: str = ""


class ContactOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """What is known of a contact."""

    contact: Annotated[Json, Meta(description="names, addresses with their consent, lists, custom data")]
    history: Annotated[list[HistoryEntry], Meta(description="latest events and messages, the newest first")]
    consents: Annotated[list[Json], Meta(description="latest consent records, the newest first")]
    runs: Annotated[list[Json], Meta(description="latest runs of flows; needs flows:read")] = []


async def find_contact(call: ToolCall, wanted: WhichContact) -> Json:
    """Return the one contact that is meant. Raises ToolFailed if there is none, or more than one."""
    if isinstance(wanted.contact_id, int):
        contact: Json = await call.get(f"/contacts/{wanted.contact_id}")
        return contact
    if not isinstance(wanted.address, str):
        raise ToolFailed("Give contact_id or address.")
    reply = await call.call("GET", "/contacts", {"search": wanted.address, "limit": 2})
    if len(reply.value) != 1:
        raise ToolFailed(
            f"{read_paging(reply).total} contacts match this address; use find_contacts and give contact_id."
        )
    match: Json = reply.value[0]
    return match


def _read_entry(entry: Any) -> HistoryEntry:
    event, message = entry["event"], entry["message"]
    if event is not None:
        return HistoryEntry("event", entry["created_at"], event["event"], event["data"])
    return HistoryEntry(
        "message", entry["created_at"], message_id=message["id"], status=message["status"],
        subject=message["subject"] or "", skip_reason=message["skip_reason"] or "",
    )  # fmt: skip


async def _get_contact(call: ToolCall, wanted: WhichContact) -> ToolResult:
    contact = await find_contact(call, wanted)
    path = f"/contacts/{contact['id']}"
    timeline = await call.call("GET", f"{path}/timeline", {"limit": _MAX_HISTORY_ENTRIES})
    consents = await call.call("GET", f"{path}/consents", {"limit": _MAX_HISTORY_ENTRIES})
    runs = (
        await call.get(f"{path}/runs", limit=_MAX_HISTORY_ENTRIES) if call.can_call("GET /contacts/{id}/runs") else []
    )
    cut = [
        f"{name} shows the latest {_MAX_HISTORY_ENTRIES} of {read_paging(reply).total}; "
        f"api_call GET {path}/{part} has all"
        for name, part, reply in (("history", "timeline", timeline), ("consents", "consents", consents))
        if read_paging(reply).next_page
    ]
    value = ContactOutput(
        contact=contact, history=[_read_entry(entry) for entry in timeline.value], consents=consents.value, runs=runs,
        cut=cut,
    )  # fmt: skip
    ways = [name for name in ("email", "phone") if contact[f"sendable_{name}"]]
    summary = f"Contact {contact['id']}; marketing can be sent by {' and '.join(ways) or 'no channel'}."
    return ToolResult(summary, value)


class WhyNot(Struct, forbid_unknown_fields=True):
    """The contact, and the campaign or flow whose message it did not get; without these, messages in general."""

    contact_id: Id
    campaign_id: OptionalId = UNSET
    flow_id: OptionalId = UNSET


class Reasons(ToolOutput, kw_only=True, omit_defaults=True):
    """Why a contact did not get a message, or would not."""

    contact_id: int
    reasons: Annotated[list[str], Meta(description="in plain words; empty if nothing speaks against a message")]
    campaign: Annotated[Json, Meta(description="whether the contact is in its audience, and each part of it")] = {}
    runs: Annotated[list[Json], Meta(description="runs of the contact in the flow, with the reason of an exit")] = []
    messages: Annotated[list[Json], Meta(description="latest messages to the contact; needs messages:read")] = []


def _list_channel_reasons(contact: Json) -> list[str]:
    reasons = []
    for channel in contact["channels"]:
        kind = "Email address" if channel["kind"] == "email" else "Phone number"
        name = f"{kind} {channel['value']}"
        if channel["suppression_reason"]:
            reasons.append(f"{name} is on the suppression list: {channel['suppression_reason']}.")
        if channel["opt_out_at"]:
            reasons.append(f"{name} was opted out at {channel['opt_out_at']} by the {channel['opted_out_by']}.")
        elif not channel["subscribed"]:
            reasons.append(f"{name} has not opted in to marketing.")
    if not contact["channels"]:
        reasons.append("The contact has no email address and no phone number.")
    return reasons


_MESSAGE_FIELDS = (
    "id",
    "status",
    "channel",
    "source_type",
    "campaign_id",
    "flow_id",
    "skip_reason",
    "error",
    "created_at",
)


async def _explain(call: ToolCall, wanted: WhyNot) -> ToolResult:
    contact = await call.get(f"/contacts/{wanted.contact_id}")
    reasons = _list_channel_reasons(contact)
    value = Reasons(contact_id=wanted.contact_id, reasons=reasons)
    if isinstance(wanted.campaign_id, int):
        value.campaign = await call.get(f"/campaigns/{wanted.campaign_id}/explain", contact_id=wanted.contact_id)
        reasons.insert(0, value.campaign["sentence"])
    if isinstance(wanted.flow_id, int):
        if not call.can_call("GET /flows/{id}"):
            raise ToolFailed("flow_id is not available: this key may not read flows.")
        await call.get(f"/flows/{wanted.flow_id}")
        runs = await call.get(f"/contacts/{wanted.contact_id}/runs", limit=50)
        value.runs = [run for run in runs if run["flow_id"] == wanted.flow_id]
        if not value.runs:
            reasons.insert(0, "The contact is not among the latest runs of this flow: it has not entered it.")
    if call.can_call("GET /messages"):
        messages = await call.get(
            "/messages", contact_id=wanted.contact_id, campaign_id=wanted.campaign_id, flow_id=wanted.flow_id, limit=10
        )
        value.messages = [{name: message[name] for name in _MESSAGE_FIELDS} for message in messages]
    return ToolResult(f"{len(reasons)} reasons for contact {wanted.contact_id}.", value)


TOOLS = (
    Tool(
        "find_contacts",
        "Find contacts",
        "Find contacts by name, address, list, segment, tag or subscription. Returns a page of rows and the total; use "
        "contact for everything about one, and describe_audience to count by conditions.",
        FindContacts,
        FoundContacts,
        _find_contacts,
        ("GET /contacts",),
    ),
    Tool(
        "contact",
        "Contact",
        "Everything known of one contact: addresses with their consent, lists, custom data, latest events and "
        "messages, "
        "consent records and runs of flows.",
        WhichContact,
        ContactOutput,
        _get_contact,
        ("GET /contacts", "GET /contacts/{id}/timeline", "GET /contacts/{id}/consents"),
    ),
    Tool(
        "why_not",
        "Why a contact got no message",
        "Why a contact did not get, or would not get, the message of a campaign or flow, or marketing at all: consent, "
        "suppression, audience, limits, errors of delivery.",
        WhyNot,
        Reasons,
        _explain,
        ("GET /contacts/{id}", "GET /campaigns/{id}/explain"),
    ),
)
