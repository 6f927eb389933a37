"""Segments: the table, the builder, and what may be done with one."""

import json
from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.db.work import call, commit
from appliance.filters import read
from appliance.segments import counting, explain, people, store
from appliance.segments.requests import SegmentCreate, SegmentPatch, SegmentQuery
from ui import filter_look, filter_people, view
from ui.filters import Rows
from ui.forms import Form, listing
from ui.guard import signed_in
from ui.pages import segment_rows
from ui.session import Visit

pages = Blueprint("ui_segments", url_prefix="/segments")
_LIMIT = 50


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table of segments, each as a sentence with its number."""
    raw, search = listing(request, _LIMIT)
    found = await call(store.page, visit.account_id, fields.read(SegmentQuery, raw))
    said = await call(_said, visit.account_id, found.rows)
    return view.page(request, "segments/index.html", found=found, search=search, **said)


def _said(account_id: int, rows: list[Any]) -> dict[str, Any]:
    """Answer sentence and number of each; where there are very many people, numbers follow as they are counted."""
    here = people.scope(account_id)
    sentences = {row.id: explain.sentence(account_id, read.filters(row.filters, here), here) for row in rows}
    counts = store.counts(account_id, rows, patience=0)
    counting.refresh(account_id, rows)
    return {"counts": counts, "sentences": sentences, "everybody": people.total(account_id)}


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty builder with one row to begin with."""
    return await _builder(request, visit, Form(), Rows.blank(), None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a segment."""
    return await _save(request, visit, None)


@pages.get("/<segment_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """The builder with the rules of a segment."""
    row = await call(store.get, visit.account_id, segment_id)
    found = Rows.of(row.filters)
    return await _builder(request, visit, Form({"name": row.name}), found, row, 200)


@pages.post("/<segment_id:int>", name="update")
@signed_in
async def update(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Keep name and rules."""
    return await _save(request, visit, await call(store.get, visit.account_id, segment_id))


@pages.post("/<segment_id:int>/copy", name="copy")
@signed_in
async def copy(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Make another one with the same rules."""
    row = await call(store.get, visit.account_id, segment_id)
    raw = {"name": f"{row.name[:240]}, copy", "filters": row.filters}
    made = await commit(store.create, visit.account_id, fields.read(SegmentCreate, raw))
    view.say(request, f"This is a copy of {row.name}. Change what should differ.")
    return view.go(request, f"/segments/{made.id}")


@pages.post("/<segment_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Delete a segment that nothing needs; the message offers to make it again."""
    row = await call(store.get, visit.account_id, segment_id)
    try:
        await commit(store.delete, visit.account_id, segment_id)
    except errors.Invalid:
        form = Form({"name": row.name})
        form.wrong("base", "This segment is in use, as the page says. Take it out there first.")
        return await _builder(request, visit, form, Rows.of(row.filters), row, 422)
    undo = ("/segments/restore", {"name": row.name, "filters": json.dumps(row.filters)})
    view.say(request, f"The segment {row.name} is deleted. Its people are still in Contacts.", undo)
    return view.go(request, "/segments")


@pages.post("/restore", name="restore")
@signed_in
async def restore(request: Request, visit: Visit) -> HTTPResponse:
    """Make a deleted segment again."""
    form = Form.of(request)
    try:
        filters = json.loads(form.exact("filters") or "[]")
    except ValueError:
        filters = None
    asked = fields.read(SegmentCreate, {"name": form["name"], "filters": filters})
    made = await commit(store.create, visit.account_id, asked)
    view.say(request, f"{made.name} is back.")
    return view.go(request, f"/segments/{made.id}")


async def _save(request: Request, visit: Visit, row: Any) -> HTTPResponse:
    form = Form.of(request)
    found = Rows.posted(form.lists)
    if found.act(form.lists) or form["look"] or form["pick"]:
        return await _builder(request, visit, form, found, row, 200)
    form.need("name", "Give the segment a name, for example Regulars in Berlin.")
    try:
        if form.errors:
            raise errors.Invalid({})
        raw = {"name": form["name"], "filters": found.filters()}
        if row is None:
            kept = await commit(store.create, visit.account_id, fields.read(SegmentCreate, raw))
        else:
            kept = await commit(store.update, visit.account_id, row.id, fields.read(SegmentPatch, raw))
    except errors.Invalid as refused:
        return await _builder(request, visit, form, found, row, 422, refused)
    view.say(request, "Saved." if row else f"{kept.name} is ready. It keeps itself up to date.")
    return view.go(request, f"/segments/{kept.id}")


async def _builder(
    request: Request, visit: Visit, form: Form, found: Rows, row: Any, status: int,
    refused: errors.Invalid | None = None,
) -> HTTPResponse:  # fmt: skip
    """Answer the whole builder; what the rules refuse is said at the rows, over what is said of those still open."""
    shown = await filter_look.shown(visit.account_id, found)
    if refused is not None:
        found.filters()
        found.take(refused)
        if "name" in refused.fields:
            form.take(errors.Invalid({"name": refused.fields["name"]}))
    sample = await call(filter_people.sample, visit.account_id, shown)
    checked = await segment_rows.checked(visit, form, found)
    used = await call(store.used_by, visit.account_id, row.id) if row else []
    drafts = await call(store.drafts, visit.account_id, row.id) if row else []
    return view.page(
        request, "segments/show.html", status, form=form, shown=shown, row=row, sample=sample, checked=checked,
        used=used, drafts=drafts, writes=visit.user.role != "viewer",
    )  # fmt: skip
