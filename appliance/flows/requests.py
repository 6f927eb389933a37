"""What may be written about a flow, and how flows are asked for."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.fields import Data, EventName, Line, Name, PageQuery, Short, When
from appliance.flows.document import MOST

_STEP = {
    "type": "object",
    "description": "What a step is follows from its keys, or from `type`; see `/flows/spec`. Null counts as absent.",
    "properties": {
        "id": {"type": ["integer", "null"]}, "type": {"type": ["string", "null"]},
        "subject": {"type": ["string", "null"]}, "body": {"type": ["string", "null"]},
        "preheader": {"type": ["string", "null"]}, "from_name": {"type": ["string", "null"]},
        "from_email": {"type": ["string", "null"]}, "reply_to": {"type": ["string", "null"]},
        "design": {"type": ["object", "null"]}, "transactional": {"type": ["boolean", "null"]},
        "template_id": {"type": ["integer", "null"]},
        "duration": {"type": ["integer", "null"], "description": "seconds"},
        "filters": {"type": ["array", "null"], "items": {"type": "object"}},
        "yes": {"type": ["array", "null"], "items": {"type": "object"}},
        "no": {"type": ["array", "null"], "items": {"type": "object"}},
        "event_name": {"type": ["string", "null"]}, "event_data": {"type": ["object", "null"]},
        "forward_event_data": {"type": ["boolean", "null"]}, "contact_list_id": {"type": ["integer", "null"]},
        "data_merge": {"type": ["object", "null"]},
    },
    "additionalProperties": False,
}  # fmt: skip
_TRIGGER = {
    "type": "object",
    "properties": {
        "event": {"type": ["string", "null"]}, "segment_id": {"type": ["integer", "null"]},
        "contact_list_id": {"type": ["integer", "null"]}, "data": {"type": ["object", "null"]},
    },
    "additionalProperties": False,
}  # fmt: skip
# Both read by readers of their own, which know every path inside
Steps = Annotated[Any, Meta(extra_json_schema={"type": "array", "maxItems": MOST, "items": _STEP})]
Start = Annotated[Any, Meta(extra_json_schema=_TRIGGER)]
StatusWord = Literal["draft", "active", "paused", "archived", "live"]


class FlowCreate(Struct):
    """A new flow; nothing is needed. A `starter` is one to begin from, the other keys stand over it."""

    name: Name | UnsetType = UNSET
    goal: Line | None | UnsetType = UNSET
    trigger: Start | None | UnsetType = UNSET
    steps: Steps | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    status: Literal["draft", "active", "live"] | UnsetType = UNSET
    starter: Short | UnsetType = UNSET


class FlowPatch(Struct):
    """A change of a flow; `steps` replaces them all, `updated_at` of what was read guards against overwriting."""

    name: Name | UnsetType = UNSET
    goal: Line | None | UnsetType = UNSET
    trigger: Start | None | UnsetType = UNSET
    steps: Steps | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    status: StatusWord | UnsetType = UNSET
    updated_at: When | UnsetType = UNSET


class Activate(Struct):
    """How a flow that was paused goes on: messages that were due longer ago than this are dropped."""

    skip_overdue_seconds: Annotated[int, Meta(ge=0, le=31_622_400)] | None | UnsetType = UNSET


class Archive(Struct):
    """What becomes of those who are inside: they stay where they are, or leave."""

    take_out: bool | UnsetType = UNSET


class Reject(Struct):
    """Why a flow may not go live as it is."""

    note: Annotated[str, Meta(max_length=1_000)] | None | UnsetType = UNSET


class FlowQuery(PageQuery):
    """Filters of the flow list."""

    status: StatusWord | UnsetType = UNSET
    event: EventName | UnsetType = UNSET
    search: Short | UnsetType = UNSET
