"""Tools about groups of contacts: lists, segments, and how many contacts match conditions."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.api.mcp.tools.base import (
    Json,
    OptionalId,
    Tool,
    ToolCall,
    ToolFailed,
    ToolOutput,
    ToolResult,
    pick_all,
    read_paging,
)
from appliance.api.mcp.tools.contacts import ContactRow, make_row

_MAX_GROUPS, _MAX_SAMPLE = 50, 5

Filters = Annotated[
    Any,
    Meta(
        description="conditions as of the resource campanero://spec/filters: a list of objects with name, predicate "
        "and value, all of which must hold",
        extra_json_schema={"type": "array", "items": {"type": "object"}},
    ),
]


class DescribeAudience(Struct, forbid_unknown_fields=True):
    """Which group to describe; without any, all lists and segments are named."""

    filters: Filters | UnsetType = UNSET
    segment_id: OptionalId = UNSET
    list_id: OptionalId = UNSET


class Group(Struct, omit_defaults=True):
    """A list or a segment."""

    id: int
    name: str
    contacts_count: int | None = None
    sendable_count: Json = {}
    sentence: str = ""


class Audience(ToolOutput, kw_only=True, omit_defaults=True):
    """A group of contacts, or all lists and segments."""

    count: Annotated[int, Meta(description="contacts that match")] | None = None
    sentence: Annotated[str, Meta(description="the conditions in words")] = ""
    filters: list[Json] = []
    shares: Annotated[list[Json], Meta(description="how many match each condition by itself")] = []
    sample: Annotated[list[ContactRow], Meta(description="a few of the contacts that match")] = []
    chosen_list: Group | None = None
    lists: list[Group] = []
    segments: list[Group] = []


async def _describe_audience(call: ToolCall, wanted: DescribeAudience) -> ToolResult:
    given = [name for name in wanted.__struct_fields__ if getattr(wanted, name) is not UNSET]
    if len(given) > 1:
        raise ToolFailed(f"Give only one of {', '.join(given)}.")
    if isinstance(wanted.list_id, int):
        group = pick_all(Group, [await call.get(f"/lists/{wanted.list_id}")])[0]
        return ToolResult(
            f"The list has {group.contacts_count} contacts.", Audience(count=group.contacts_count, chosen_list=group)
        )
    if not given:
        return await _list_groups(call)
    filters = wanted.filters
    if isinstance(wanted.segment_id, int):
        filters = (await call.get(f"/segments/{wanted.segment_id}"))["filters"]
    counted = await call.post("/segments/count", {"filters": filters})
    value = Audience(
        count=counted["count"],
        sentence=counted["sentence"],
        filters=filters if isinstance(filters, list) else [],
        shares=counted["rows"],
        sample=[make_row(contact) for contact in counted["sample"][:_MAX_SAMPLE]],
    )
    return ToolResult(f"{counted['count']} contacts match.", value)


async def _list_groups(call: ToolCall) -> ToolResult:
    lists = await call.call("GET", "/lists", {"limit": _MAX_GROUPS})
    segments = await call.call("GET", "/segments", {"limit": _MAX_GROUPS})
    cut = [
        f"{name} shows {_MAX_GROUPS} of {read_paging(reply).total}; api_call GET /{name} has all"
        for name, reply in (("lists", lists), ("segments", segments))
        if read_paging(reply).next_page
    ]
    value = Audience(lists=pick_all(Group, lists.value), segments=pick_all(Group, segments.value), cut=cut)
    total = read_paging(lists).total, read_paging(segments).total
    return ToolResult(f"Lists: {total[0]}, segments: {total[1]}.", value)


class SaveSegment(Struct, forbid_unknown_fields=True):
    """A segment to create, or to change if `segment_id` is given."""

    name: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    filters: Filters | UnsetType = UNSET
    segment_id: OptionalId = UNSET


class SavedSegment(ToolOutput, kw_only=True, omit_defaults=True):
    """The segment as it is stored."""

    id: int
    name: str
    sentence: str
    filters: list[Json]


async def _save_segment(call: ToolCall, wanted: SaveSegment) -> ToolResult:
    body = {"name": wanted.name, "filters": wanted.filters}
    if isinstance(wanted.segment_id, int):
        segment = await call.patch(f"/segments/{wanted.segment_id}", body)
    else:
        segment = await call.post("/segments", body)
    saved = SavedSegment(
        id=segment["id"], name=segment["name"], sentence=segment["sentence"], filters=segment["filters"]
    )  # fmt: skip
    return ToolResult(f"Segment {saved.id} is saved.", saved)


TOOLS = (
    Tool(
        "describe_audience",
        "Describe an audience",
        "How many contacts match conditions, a segment or a list, with the conditions in words and a few examples. "
        "Without "
        "arguments it names all lists and segments. Read campanero://spec/filters for the conditions.",
        DescribeAudience,
        Audience,
        _describe_audience,
        ("GET /lists", "GET /segments", "POST /segments/count"),
    ),
    Tool(
        "save_segment",
        "Save a segment",
        "Create a segment with a name and conditions, or change one by segment_id. Count with describe_audience first.",
        SaveSegment,
        SavedSegment,
        _save_segment,
        ("POST /segments", "PATCH /segments/{id}"),
        is_read_only=False,
        is_idempotent=False,
    ),
)
