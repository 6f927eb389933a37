"""Flows: the table, starters, and the page of one: its tree, the step that is chosen, and what moves it."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.core import errors, fields
from appliance.flows import draft_edits, publishing, report, requests, starters, states, store
from appliance.storage.work import call, commit, render
from ui import flow_page, flow_tree, rights, tables, unfinished, view
from ui.flow_page import facts, findings
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.tables import Chip, Column

pages = Pages("ui_flows", url_prefix="/flows")
CHIPS = {"": "All", "active": "Live", "paused": "Paused", "draft": "Drafts", "archived": "Archived"}
_COLUMNS = (
    Column("Flow", "name", ""), Column("Status"), Column("Entered", "entered", number=True),
    Column("Inside", number=True), Column("Completed", number=True), Column("Handed over", number=True),
    Column("Changed", "updated"), Column("Made", "created", shown=False),
)  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table with chips for the states; without any flow, what one may begin from."""
    table = tables.Table(request, "/flows", ("flow", "flows"), _COLUMNS, "-updated", ("status",))
    table.chip_name = "status"
    table.acts = "/flows/acts" if rights.may(visit.user.role, "POST", "/flows/acts") else ""
    status = table.state["status"]
    raw = table.raw | ({"status": status} if status and status in CHIPS else {})

    def read() -> dict[str, Any]:
        counted = store.counted(visit.account_id)
        for key, label in CHIPS.items():
            many = counted.get(key, 0) if key else sum(counted.values())
            if many or key in ("", status):
                table.chips = [*table.chips, Chip(key, label, many)]
        table.found = store.page(visit.account_id, fields.read(requests.FlowQuery, raw), table.sort)
        rows = list(table.found.rows)
        drawn = {row.id: draft_edits.seen(row) for row in rows}
        starts = {row.id: flow_tree.start_words(visit.account_id, drawn[row.id].start) for row in rows}
        return {"stats": report.stats(rows), "starts": starts}

    seen = await call(read)
    offers = await call(_starters, visit) if not table.chips[0].number else []
    may_send = rights.may(visit.user.role, "POST", "/flows/0/pause")
    return tables.answer(request, "flows/index.html", table, starters=offers, may_send=may_send, **seen)


def _starters(visit: Visit) -> list[Any]:
    return [*starters.of(visit.account_id)]


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """What a flow may begin from."""
    return view.page(request, "flows/new.html", starters=await call(_starters, visit))


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a draft from a starter, or a blank one."""
    form = Form.of(request)
    raw = {"starter": form["starter"]} if form["starter"] else {"name": form["name"] or store.UNTITLED}
    body, draft = await render(store.prepare, visit.account_id, fields.read(requests.FlowCreate, raw))
    made = await commit(store.create, visit.account_id, body, draft, visit.by)
    return view.go(request, f"/flows/{made.id}")


@pages.get("/<flow_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """The tree of a flow, with the form of what is chosen beside it."""
    return view.page(request, "flows/show.html", also=("tree",), **await call(facts, visit, flow_id, request.args))


@pages.post("/<flow_id:int>", name="update")
@signed_in
async def update(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Give a flow another name."""
    form = Form.of(request)
    name = form["name"][:255]
    await call(store.get, visit.account_id, flow_id)
    if not name:
        view.say(request, "A flow needs a name.")
    else:
        read = fields.read(requests.FlowPatch, {"name": name})
        draft = await render(store.read, visit.account_id, read, flow_id)
        await commit(store.update, visit.account_id, flow_id, read, draft, visit.by)
    return view.go(request, f"/flows/{flow_id}")


@pages.get("/<flow_id:int>/publish", name="review")
@signed_in
async def review(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """What is otherwise than live, and what becomes of those who wait."""
    return await _review(request, visit, flow_id, Form({"time": "keep"}), 200)


@pages.post("/<flow_id:int>/publish", name="publish")
@signed_in
async def publish(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Let the changes be what is live, and give those who wait their new time if that is wanted."""
    form = Form.of(request)
    changes = await call(publishing.differences, visit.account_id, flow_id)
    if not unfinished.is_confirmed(form, await call(_unfinished, visit, flow_id)):
        return await _review(request, visit, flow_id, form, 422)
    try:
        await render(publishing.warm, visit.account_id, flow_id)
        await commit(audit.noting, visit.by, "flow_publish", publishing.publish, visit.account_id, flow_id, visit.by)
    except errors.Invalid:
        return await _review(request, visit, flow_id, form, 422)
    if form["time"] == "new":
        for one in changes:
            after: int | None = 0
            while one.seconds is not None and one.step_id is not None and after is not None:
                after = await commit(publishing.retime, flow_id, one.step_id, one.seconds, after)
    view.say(request, "Published. People who come from now on take the new way.")
    return view.go(request, f"/flows/{flow_id}")


async def _review(request: Request, visit: Visit, flow_id: int, form: Form, status: int) -> HTTPResponse:
    def read() -> dict[str, Any]:
        drawn = draft_edits.of(visit.account_id, flow_id)
        return {
            "flow": drawn.flow, "changes": publishing.differences(visit.account_id, flow_id),
            "inside": sum(publishing.inside(flow_id).values()),
            "findings": findings(drawn, draft_edits.blockers(drawn, visit.by), draft_edits.said(drawn.steps)),
            "unfinished": flow_page.unfinished(drawn, draft_edits.said(drawn.steps)),
        }  # fmt: skip

    return view.page(request, "flows/publish.html", status, form=form, **await call(read))


def _unfinished(visit: Visit, flow_id: int) -> list[Any]:
    """Return what is unfinished in a flow that nothing else keeps from going live."""
    drawn = draft_edits.of(visit.account_id, flow_id)
    return [] if draft_edits.blockers(drawn, visit.by) else flow_page.unfinished(drawn, draft_edits.said(drawn.steps))


@pages.post("/<flow_id:int>/discard", name="discard")
@signed_in
async def discard(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Drop what was changed; what is live was never touched."""
    await commit(publishing.discard, visit.account_id, flow_id, visit.by)
    view.say(request, "Changes dropped. The flow is as it is live.")
    return view.go(request, f"/flows/{flow_id}")


@pages.post("/<flow_id:int>/activate", name="activate")
@signed_in
async def activate(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Let a flow take people in, as it was changed; a paused one goes on."""
    form = Form.of(request)
    skip = number(form["skip"], 0) * 3600 if form["overdue"] == "skip" else None
    before = await call(store.get, visit.account_id, flow_id)
    if not unfinished.is_confirmed(form, await call(_unfinished, visit, flow_id)):
        found = await call(facts, visit, flow_id, request.args) | {"wants_start": True, "form_errors": form.errors}
        return view.page(request, "flows/show.html", 422, **found)
    try:
        await render(publishing.warm, visit.account_id, flow_id)
        args = (publishing.start, visit.account_id, flow_id, visit.by, skip)
        await commit(audit.noting, visit.by, "flow_activate", *args)
    except errors.Invalid as refused:
        if refused.reason == "invalid_transition":
            view.say(request, "It has moved on meanwhile. This is how it stands.")
            return view.go(request, f"/flows/{flow_id}")
        found = await call(facts, visit, flow_id, request.args) | {"wants_start": True}
        return view.page(request, "flows/show.html", 422, **found)
    view.say(request, "Going on." if before.status == "paused" else "The flow is live.")
    return view.go(request, f"/flows/{flow_id}")


def _action(name: str, done: str, verb: Any) -> None:
    """Register a button that moves a flow, and comes back to it."""

    @pages.post(f"/<flow_id:int>/{name}", name=name)
    @signed_in
    async def act(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
        try:
            args = (store.moved, visit.account_id, flow_id, *verb(Form.of(request)))
            await commit(audit.noting, visit.by, f"flow_{name}", *args)
        except errors.Invalid as refused:
            if refused.reason != "invalid_transition":
                raise
            view.say(request, "It has moved on meanwhile. This is how it stands.")
        else:
            view.say(request, done)
        return view.go(request, f"/flows/{flow_id}")


_action("pause", "Paused. Everybody stays where they are.", lambda _: (states.pause,))
_action("revive", "It is a draft again.", lambda _: (states.revive,))
