"""Tools about flows: draft one, simulate it, and read its report. None of them activates a flow."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.api.mcp.tools.base import (
    SAMPLE_VALUES,
    Id,
    Json,
    OptionalId,
    Tool,
    ToolCall,
    ToolFailed,
    ToolOutput,
    ToolResult,
    pick,
)

_MAX_DAYS = 365

Steps = Annotated[
    Any,
    Meta(
        description="steps as of the resource campanero://spec/flows",
        extra_json_schema={"type": "array", "items": {"type": "object"}},
    ),
]
Trigger = Annotated[
    Any,
    Meta(
        description="event that starts the flow, with conditions, as of campanero://spec/flows",
        extra_json_schema={"type": "object"},
    ),
]


class DraftFlow(Struct, forbid_unknown_fields=True):
    """A flow to draft, or to change if `flow_id` is given and the flow is still a draft."""

    name: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    goal: Annotated[str, Meta(max_length=200, description="event that ends the run of a contact")] | UnsetType = UNSET
    trigger: Trigger | UnsetType = UNSET
    steps: Steps | UnsetType = UNSET
    starter: (
        Annotated[str, Meta(max_length=100, description="ready-made flow to begin with; api_call GET /flows/starters")]
        | UnsetType
    ) = UNSET
    flow_id: OptionalId = UNSET


class FlowOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """A flow as it is stored."""

    id: int
    name: str
    status: str
    updated_at: str
    goal: str = ""
    trigger: Json = {}
    steps: list[Json] = []
    scripts: Annotated[list[Json], Meta(description="results of the flow's own tests")] = []
    url: Annotated[str, Meta(description="page where people see the flow")] = ""


async def _draft_flow(call: ToolCall, wanted: DraftFlow) -> ToolResult:
    body = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "flow_id"}
    if isinstance(wanted.flow_id, int):
        if wanted.starter is not UNSET:
            raise ToolFailed("starter is only for a new flow.")
        before = await call.get(f"/flows/{wanted.flow_id}")
        if before["status"] != "draft":
            raise ToolFailed(
                f"Flow {wanted.flow_id} is {before['status']}, not a draft. Draft a new one, or propose the change to "
                "a person."
            )
        flow = await call.patch(f"/flows/{wanted.flow_id}", {**body, "updated_at": before["updated_at"]})
    else:
        flow = await call.post("/flows", body)
    value = pick(FlowOutput, flow, url=f"/flows/{flow['id']}")
    return ToolResult(f"Flow {value.id} is a draft. Nothing is sent.", value)


class SimulateFlow(Struct, forbid_unknown_fields=True):
    """The flow, and the contact that goes through it; without one, all contacts of the last days."""

    flow_id: Id
    contact_id: Annotated[Id, Meta(description="needs contacts:read")] | UnsetType = UNSET
    event: (
        Annotated[Json, Meta(description="data of the event that starts the flow, for a single contact")] | UnsetType
    ) = UNSET
    days: (
        Annotated[int, Meta(ge=1, le=_MAX_DAYS, description="how many of the last days, without contact_id")]
        | UnsetType
    ) = UNSET


class SimulationOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """What would happen; nothing is sent and nothing is stored."""

    flow_id: int
    text: Annotated[str, Meta(description="the course in words")] = ""
    end: Annotated[Json, Meta(description="how the run of the contact ends")] = {}
    timeline: Annotated[list[Json], Meta(description="what happens to the contact, with times and messages")] = []
    met: Annotated[int, Meta(description="contacts that would have entered")] | None = None
    completed: int | None = None
    exited: int | None = None
    live: Annotated[int, Meta(description="contacts still in the flow")] | None = None
    reasons: Annotated[Json, Meta(description="why contacts did not enter")] = {}
    steps: Annotated[list[Json], Meta(description="contacts and messages by step")] = []
    notes: list[str] = []


async def _simulate(call: ToolCall, wanted: SimulateFlow) -> ToolResult:
    path = f"/flows/{wanted.flow_id}"
    if isinstance(wanted.contact_id, int):
        body = {"contact_id": wanted.contact_id, "event": wanted.event}
        cut = [SAMPLE_VALUES] if call.masker is not None else []
        value = pick(SimulationOutput, await call.post(f"{path}/simulate", body), cut=cut)
        return ToolResult(f"{len(value.timeline)} entries for contact {wanted.contact_id}. Nothing was sent.", value)
    if wanted.event is not UNSET:
        raise ToolFailed("event is only for the simulation of one contact: give contact_id.")
    value = pick(SimulationOutput, await call.post(f"{path}/simulate_all", {"days": wanted.days}))
    return ToolResult(f"{value.met} contacts would have entered. Nothing was sent.", value)


class WhichFlow(Struct, forbid_unknown_fields=True):
    """The flow, and the period of its report."""

    flow_id: Id
    range: Literal["all", "30d", "7d"] = "30d"


class FlowReportOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """The report of a flow."""

    flow_id: int
    name: str
    status: str
    range: str
    since: str = ""
    stats: Annotated[Json, Meta(description="numbers of runs and messages")] = {}
    runs: Annotated[Json, Meta(description="entered, active, completed, exited, did not enter, with reasons")] = {}
    steps: list[Json] = []
    holdout: Json = {}


async def _get_report(call: ToolCall, wanted: WhichFlow) -> ToolResult:
    flow = await call.get(f"/flows/{wanted.flow_id}")
    report = await call.get(f"/flows/{wanted.flow_id}/report", range=wanted.range)
    value = pick(FlowReportOutput, report, name=flow["name"], status=flow["status"])
    return ToolResult(f"Flow {value.flow_id} is {value.status}; {value.stats['entered']} contacts entered.", value)


TOOLS = (
    Tool(
        "draft_flow",
        "Draft a flow",
        "Create the draft of a flow (automation) from a trigger and steps, or from a ready-made one, or change a "
        "draft by "
        "flow_id. It starts only when a person activates it. Simulate it afterwards.",
        DraftFlow,
        FlowOutput,
        _draft_flow,
        ("GET /flows/{id}", "POST /flows", "PATCH /flows/{id}"),
        is_read_only=False,
        is_destructive=True,
        is_idempotent=False,
    ),
    Tool(
        "simulate_flow",
        "Simulate a flow",
        "What a flow would do: for one contact step by step with the rendered messages, or for all contacts of the "
        "last "
        "days in numbers. Nothing is sent or stored.",
        SimulateFlow,
        SimulationOutput,
        _simulate,
        ("POST /flows/{id}/simulate", "POST /flows/{id}/simulate_all"),
    ),
    Tool(
        "flow_report",
        "Flow report",
        "The report of a flow: runs by state and reason, and for each step entered, waiting, sent and its messages.",
        WhichFlow,
        FlowReportOutput,
        _get_report,
        ("GET /flows/{id}", "GET /flows/{id}/report"),
    ),
)
