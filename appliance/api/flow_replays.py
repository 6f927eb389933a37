"""Endpoints of replays of flows: start, progress and result, cancellation, and the CSV file of contacts."""

from typing import Annotated, cast

from msgspec import Meta, Struct

from appliance.accounts import audit
from appliance.accounts.access import EXPORT_SCOPE
from appliance.api.auth import require_contacts_scope, require_scope
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.schemas import Moment
from appliance.core.clock import iso
from appliance.core.errors import NotAllowed
from appliance.core.i18n import gettext, gettext_noop
from appliance.exports import records, streaming
from appliance.flows import replays
from appliance.flows.replay_result import ReplayResult
from appliance.flows.replays import ReplayRequest, State
from appliance.storage import models
from appliance.storage.transactions import commit, fetch, render

ROUTES = Routes()

_OTHERS_REPLAY = gettext_noop("An agent cancels only a replay that it started.")


class FlowReplay(Struct):
    """A replay of a flow against the events of the past: its progress, and its result once it is complete."""

    id: int
    flow_id: Annotated[int, Meta(description="id of the flow")]
    state: Annotated[State, Meta(description="`waiting` while another replay runs first; `none` if there was none")]
    progress: Annotated[float, Meta(description="share that is done, from 0 to 1")]
    days: Annotated[int, Meta(description="number of past days that are replayed")]
    until: Annotated[Moment, Meta(description="end of the replayed time")] | None
    seed: Annotated[int, Meta(description="decides random splits and the sample")]
    order_event: (
        Annotated[str, Meta(description="event that counts as an order; null: each event with an amount")] | None
    )
    sms_price: Annotated[float, Meta(description="price of a part of an SMS")] | None
    error: (
        Annotated[
            str,
            Meta(description="why it failed: `conditions_too_slow`, `too_long` or `failed`; null if it did not"),
        ]
        | None
    )
    result: Annotated[ReplayResult, Meta(description="null until the replay is complete")] | None
    started_at: Annotated[Moment, Meta(description="when it started")] | None
    ended_at: Annotated[Moment, Meta(description="when it ended")] | None
    created_at: Annotated[Moment, Meta(description="when it was asked for")] | None


def _serialize(row: models.FlowReplay) -> FlowReplay:
    return FlowReplay(
        row.id, row.flow_id, cast(State, row.state), replays.get_progress(row), row.days,
        iso(row.until) or "", row.seed, row.order_event, row.sms_price,
        row.error, replays.read_result(row), iso(row.started_at), iso(row.ended_at), iso(row.created_at) or "",
    )  # fmt: skip


def _build_none(flow_id: int) -> FlowReplay:
    return FlowReplay(0, flow_id, "none", 0.0, 0, None, 0, None, None, None, None, None, None, None)


def _require_access(request: ApiRequest) -> None:
    """Raise a 403 error unless the credential may read contacts and events, with which a flow is replayed."""
    require_contacts_scope(request)
    require_scope(request.credential, "events:read")


@ROUTES.add(
    "POST", "/flows/{id}/replay", scope="flows:write", agent_scope="flows:write",
    body_type=ReplayRequest, body_required=False,
    response_type=FlowReplay, status=202, rate="renders", has_conflicts=True,
    validate=validator(replays.check_request, run=render, access=_require_access),
)  # fmt: skip
async def start_replay(request: ApiRequest) -> ApiResponse:
    """Start a replay: run a flow and its live version against the events of the last days; nothing is sent.

    The flow is replayed with its unpublished changes, or with `steps`. It takes up to a minute; read it with GET. The
    result is kept for 14 days, or until the next replay of the flow. Also requires `contacts:read` and `events:read`.
    """
    _require_access(request)
    prepared = await render(replays.prepare, request.account_id, request.id, request.body)

    def write() -> models.FlowReplay:
        if request.caller.is_agent:
            audit.record(request.caller, request.account_id, "flow_replay", f"flow:{request.id}")
        return replays.start(prepared, request.caller.name)

    return ApiResponse(_serialize(await commit(write)))


@ROUTES.add("GET", "/flows/{id}/replay", scope="flows:read", agent_scope="flows:read", response_type=FlowReplay)
async def get_replay(request: ApiRequest) -> ApiResponse:
    """Get the last replay of a flow, with the state `none` if there is none.

    Also requires `contacts:read` and `events:read`.
    """
    _require_access(request)

    def read() -> FlowReplay:
        row = replays.find(request.account_id, request.id)
        return _build_none(request.id) if row is None else _serialize(row)

    return ApiResponse(await fetch(read))


@ROUTES.add("DELETE", "/flows/{id}/replay", scope="flows:write", agent_scope="flows:write", response_type=FlowReplay)
async def cancel_replay(request: ApiRequest) -> ApiResponse:
    """Cancel a replay that waits or runs; one that has ended is not changed.

    An agent cancels only its own. Also requires `contacts:read` and `events:read`.
    """
    _require_access(request)

    def write() -> models.FlowReplay:
        if request.caller.is_agent:
            if replays.get(request.account_id, request.id).requested_by != request.caller.name:
                raise NotAllowed(gettext(_OTHERS_REPLAY), reason="agent_drafts_only")
            audit.record(request.caller, request.account_id, "flow_replay_cancel", f"flow:{request.id}")
        return replays.cancel(request.account_id, request.id)

    return ApiResponse(_serialize(await commit(write)))


@ROUTES.add("GET", "/flows/{id}/replay.csv", scope="flows:read", media="text/csv", user_scope=EXPORT_SCOPE)
async def export_replay_csv(request: ApiRequest) -> ApiResponse:
    """Export which contacts would have got which messages when, as CSV. Requires `contacts:read` and `events:read`."""
    _require_access(request)
    people = await fetch(replays.get_people, request.account_id, request.id)
    name = f"flow-{request.id}-replay.csv"
    await audit.record_export(request.caller, request.account_id, name, (), len(people))
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    pieces = (lines.encode() for lines in records.write_replay_csv(request.account_id, people))
    return ApiResponse(streaming.track_progress(request.account_id, name, len(people), pieces), headers=headers)
