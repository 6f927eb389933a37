"""What the API answers about flows."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import tables
from appliance.api import shaping
from appliance.api.shapes import Design, Json, Moment, Template
from appliance.clock import iso
from appliance.fields import named
from appliance.flows import contents, document
from appliance.flows.figures import FlowStats
from appliance.flows.scripts import ScriptResult
from appliance.flows.steps import BY_TYPE


class FlowTrigger(Struct):
    """What starts a flow, and for whom."""

    event: str
    segment_id: int | None
    contact_list_id: int | None
    data: Json


class FlowStep(Struct):
    """A step: the keys of the response form always, those of its kind beside them; sending it back changes nothing."""

    id: int
    type: Annotated[str, Meta(extra_json_schema={"enum": [*BY_TYPE]})]
    subject: str
    body: str
    preheader: str
    duration: Annotated[int, Meta(description="seconds")]
    filters: list[Annotated[Json, named("Filter")]]
    yes: "list[FlowStep]"
    no: "list[FlowStep]"
    event_name: str
    forward_event_data: bool
    template_id: int | None
    from_name: str | UnsetType = UNSET
    from_email: str | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    design: Design | UnsetType = UNSET
    transactional: bool | UnsetType = UNSET
    event_data: Json | UnsetType = UNSET
    contact_list_id: int | UnsetType = UNSET
    data_merge: Json | UnsetType = UNSET


class Flow(Struct):
    """An automation: what starts it, and the steps that people take."""

    id: int
    account_id: int
    status: Literal["draft", "active", "paused", "archived"]
    approval_state: Literal["pending_review", "approved", "rejected"]
    approval_note: str | None
    asked_at: Moment | None
    name: str
    goal: str | None
    data: Json
    test: bool
    version: int
    trigger: FlowTrigger
    triggered_count: int
    last_triggered_at: Moment | None
    steps: list[FlowStep]
    sent_count: int
    stats: FlowStats
    paused_at: Moment | None
    created_at: Moment
    updated_at: Moment
    templates: list[Template]
    unpublished_changes: Annotated[
        bool, Meta(description="people changed it in a browser and have not published that: it is shown as it is live")
    ]


class FlowChanged(Flow):
    """A flow just changed; `scripts` says of the rehearsals that are kept with it which come out as expected now."""

    scripts: list[ScriptResult]


class FlowStarter(Struct):
    """A flow to begin from; `POST /flows` takes its key as `starter`, or its parts."""

    key: str
    label: str
    description: str
    name: str
    trigger: Annotated[Json, named("FlowTriggerWrite")]
    steps: list[Annotated[Json, named("FlowStepWrite")]]


class FlowStarters(Struct):
    """The flows to begin from."""

    starters: list[FlowStarter]


class StepField(Struct):
    """One thing that is set about a step."""

    name: str
    label: str
    type: str
    required: bool
    help: str


class StepKind(Struct):
    """A kind of step: the keys that make a step one of its kind, and all that it takes."""

    type: str
    label: str
    icon: str
    claims: list[str]
    keys: list[str]
    branches: list[str]
    fields: list[StepField]


class KnownEvent(Struct):
    """An event that may start a flow."""

    name: str
    group: str
    words: str


class FlowSpec(Struct):
    """Everything that flows can be made of."""

    steps: list[StepKind]
    events: list[KnownEvent]
    trigger: Json
    limits: dict[str, int]


def flow(row: tables.Flow, stats: FlowStats) -> Flow:
    """Shape a flow loaded with its trigger and templates (`store.dress`)."""
    started = row.started_by
    # As they are, for a kind of step may have keys that nobody thought of here
    steps: Any = document.shown(row.steps, contents.words(row.written))
    status: Any = row.status
    approval: Any = row.approval_state
    return Flow(
        id=row.id, account_id=row.account_id, status=status, approval_state=approval,
        approval_note=row.approval_note, asked_at=iso(row.asked_at), name=row.name, goal=row.goal,
        data=row.data, test=row.test,
        version=row.version,
        trigger=FlowTrigger(started.event, started.segment_id, started.contact_list_id, started.data),
        triggered_count=started.triggered_count, last_triggered_at=iso(started.last_triggered_at),
        steps=steps, sent_count=row.sent_count, stats=stats,
        paused_at=iso(row.paused_at), created_at=iso(row.created_at) or "", updated_at=iso(row.updated_at) or "",
        templates=[shaping.template(one) for one in row.written], unpublished_changes=row.draft is not None,
    )  # fmt: skip
