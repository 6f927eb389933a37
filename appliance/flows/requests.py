"""What may be written about a flow, and how flows are asked for."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.core.fields import Data, EventName, Line, Name, PageQuery, Short, When, default, named
from appliance.flows.document import MAX_STEPS

_STEP = {"$ref": "#/components/schemas/FlowStepWrite"}
# Both read by readers of their own, which know every path inside
Steps = Annotated[Any, Meta(extra_json_schema={"type": "array", "maxItems": MAX_STEPS, "items": _STEP})]
Start = Annotated[Any, named("FlowTriggerWrite")]
StatusWord = Literal["draft", "active", "paused", "archived", "live"]


class FlowCreate(Struct):
    """A new flow; nothing is needed. A `starter` is one to begin from, the other keys stand over it."""

    name: Annotated[Name, default("Untitled flow")] | UnsetType = UNSET
    goal: Line | None | UnsetType = UNSET
    trigger: Start | None | UnsetType = UNSET
    steps: Steps | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    status: Annotated[Literal["draft", "active", "live"], default("draft")] | UnsetType = UNSET
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

    take_out: Annotated[bool, default(False)] | UnsetType = UNSET


class FlowQuery(PageQuery):
    """Filters of the flow list."""

    status: StatusWord | UnsetType = UNSET
    event: EventName | UnsetType = UNSET
    search: Short | UnsetType = UNSET
