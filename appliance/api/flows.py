"""Flows over the API."""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance import brand as brands
from appliance import tables
from appliance.account import audit, roles
from appliance.account.approving import Reject
from appliance.account.buckets import Rate
from appliance.api import flow_shapes
from appliance.api.auth import require
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.api.reply import Fault, page_headers
from appliance.db.work import call, commit, render
from appliance.designs.theme import Look
from appliance.flows import report, scripts, spec, starters, states, store
from appliance.flows.requests import Activate, Archive, FlowCreate, FlowPatch, FlowQuery
from appliance.flows.simulation_queue import rehearse
from appliance.flows.simulation_request import SCRIPTS

ROUTES = Routes()
# What a status that is written means as an act
_MOVED = {"active": "activate", "paused": "pause", "archived": "archive", "draft": "revive"}


def _shaped(rows: list[tables.Flow]) -> list[flow_shapes.Flow]:
    stats = report.stats(rows)
    return [flow_shapes.flow(row, stats[row.id]) for row in rows]


async def _shown(row: tables.Flow) -> Answer:
    return Answer((await call(_shaped, [row]))[0])


def _require_send(request: Call) -> None:
    """Raise 403 for a credential that may write flows and not let them send."""
    require(request.credential, "campaigns:send")


def _may_move(request: Call, row: tables.Flow) -> None:
    """Raise 403 for a test key that would move, change or delete what was live for real, and for an author."""
    role = request.credential.role
    if row.version > 0 and role is not None and not roles.starts(role):
        raise Fault(
            403, "forbidden", "what was live once is moved by those who may send", required_scope="campaigns:send"
        )
    if request.credential.test and row.version > 0 and not row.test:
        raise Fault(403, "forbidden", "a test key moves only what test keys have activated")


@ROUTES.add("GET", "/flows", scope="flows:read", query=FlowQuery, returns=flow_shapes.Flow, many=True)
async def index(request: Call) -> Answer:
    """List flows, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer(await call(_shaped, page.rows), headers=page_headers(page))


@ROUTES.add(
    "POST", "/flows", scope="flows:write", reads=FlowCreate, returns=flow_shapes.Flow, status=201,
    inside=checked(store.check, parses=True),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a flow; as a draft unless `status` says otherwise."""
    live = request.body.status in ("active", "live")
    if live:
        _require_send(request)
    body, draft = await render(store.prepare, request.account_id, request.body, live)
    return await _shown(await commit(store.create, request.account_id, body, draft, request.by))


@ROUTES.add("GET", "/flows/spec", scope="flows:read", returns=flow_shapes.FlowSpec)
async def describe(request: Call) -> Answer:
    """Get the kinds of steps with what they take, and the events that start flows."""
    return Answer(msgspec.convert(spec.spec(), flow_shapes.FlowSpec))


@ROUTES.add("GET", "/flows/starters", scope="flows:read", returns=flow_shapes.FlowStarters)
async def begin(request: Call) -> Answer:
    """Get flows to begin from, in the colours of the account."""
    made = starters.made(Look(*brands.look(await call(brands.get, request.account_id))))
    return Answer(flow_shapes.FlowStarters([flow_shapes.FlowStarter(*one) for one in made]))


@ROUTES.add("GET", "/flows/{id}", scope="flows:read", returns=flow_shapes.Flow)
async def show(request: Call) -> Answer:
    """Get a flow."""
    return await _shown(await call(store.get, request.account_id, request.id))


@ROUTES.add(
    "PATCH", "/flows/{id}", scope="flows:write", reads=FlowPatch, returns=flow_shapes.FlowChanged,
    inside=checked(store.check, parses=True),
)  # fmt: skip
async def update(request: Call) -> Answer:
    """Update a flow; `steps` replaces them all, `status` moves it."""
    before = await call(store.get, request.account_id, request.id)
    wanted = store.LIVE.get(str(request.body.status), request.body.status)
    moves = isinstance(wanted, str) and wanted != before.status
    if moves or before.status == "active":  # each change of a live one goes live
        _may_move(request, before)
    if moves and wanted == "active":
        _require_send(request)
    is_live = "active" in (wanted, before.status)
    draft = await render(store.prepare_change, request.account_id, request.body, request.id, is_live)
    args = (store.update, request.account_id, request.id, request.body, draft, request.by)
    if moves or before.status == "active":
        row = await commit(audit.noting, request.by, f"flow_{_MOVED[str(wanted)] if moves else 'publish'}", *args)
    else:
        row = await commit(*args)
    shown = (await call(_shaped, [row]))[0]
    sees = request.credential.reaches("contacts:read")
    played = await rehearse(scripts.results, row, sees, refuses=False) if SCRIPTS in row.data else []
    return Answer(flow_shapes.FlowChanged(**msgspec.structs.asdict(shown), scripts=played))


@ROUTES.add("DELETE", "/flows/{id}", scope="flows:write", returns=flow_shapes.Flow)
async def delete(request: Call) -> Answer:
    """Delete a flow: its runs exit, open messages are cancelled, the ledger and its events stay."""
    row = await call(store.get, request.account_id, request.id)
    _may_move(request, row)
    before = await _shown(row)
    await commit(audit.noting, request.by, "flow_delete", store.delete, request.account_id, request.id)
    return before


def _move(
    name: str, scope: str, reads: type[msgspec.Struct] | None, summary: str, verb: Callable[[Call], tuple[Any, ...]],
    rate: Rate = "requests",
) -> None:  # fmt: skip
    async def handler(request: Call) -> Answer:
        _may_move(request, await call(store.get, request.account_id, request.id))
        if name == "activate":
            await render(store.warm, request.account_id, None, request.id)
        told = (request.by, f"flow_{name}", store.moved, request.account_id, request.id)
        return await _shown(await commit(audit.noting, *told, *verb(request)))

    handler.__doc__ = summary
    path = f"/flows/{{id}}/{name}"
    ROUTES.add(
        "POST", path, scope=scope, reads=reads, body_required=False, returns=flow_shapes.Flow, rate=rate,
        starts=scope == "flows:write" and name != "ask_approval",
    )(handler)  # fmt: skip


def _skipped(request: Call) -> int | None:
    said = request.body.skip_overdue_seconds
    return said if isinstance(said, int) else None


_move("activate", "campaigns:send", Activate, "Let a flow take people in; a paused one goes on.",
      lambda request: (states.activate, request.by, _skipped(request)), "sends")  # fmt: skip
_move("pause", "flows:write", None, "Let nobody in, and keep everybody where they are.", lambda _: (states.pause,))
_move("archive", "flows:write", Archive, "Put a flow aside; those inside stay, or leave with `take_out`.",
      lambda request: (states.archive, request.body.take_out is True))  # fmt: skip
_move("ask_approval", "flows:write", None, "Let a flow wait for somebody to approve of it.",
      lambda request: (states.ask, request.by))  # fmt: skip
_move(
    "approve", "campaigns:approve", None, "Let a flow go live as it is.", lambda request: (states.approve, request.by)
)
_move("reject", "campaigns:approve", Reject, "Keep a flow from going live as it is; a live one is paused.",
      lambda request: (states.reject, request.body.note or None))  # fmt: skip
