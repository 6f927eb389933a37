"""Segments: the table, and the builder with its count."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.db.work import call, commit
from appliance.segments import explain, people, store
from appliance.segments.requests import SegmentCreate, SegmentPatch, SegmentQuery
from ui import filter_look, view
from ui.filter_offers import BRANCH, SEGMENT
from ui.filters import Rows
from ui.forms import Form, listing
from ui.guard import signed_in
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
    here = people.scope(account_id)
    sentences = {
        row.id: explain.sentence(account_id, people.nodes(account_id, row.filters), here) for row in rows
    }  # fmt: skip
    return {"counts": store.counts(account_id, rows), "sentences": sentences, "everybody": people.total(account_id)}


@pages.post("/rows", name="rows")
@signed_in
async def rows(request: Request, visit: Visit) -> HTTPResponse:
    """The rows of any form as they are now: what a button of theirs did, what fits the chosen field, who is meant.

    Nothing is kept: the form around them does that.
    """
    form = Form.of(request)
    found = Rows.posted(form.lists, form["rows"][:40] or "f")
    found.act(form.lists)
    place = BRANCH if form[f"{found.prefix}.place"] == BRANCH else SEGMENT
    shown = await call(filter_look.look, visit.account_id, found, place)
    return view.fragment(request, "segments/_rows.html", shown=shown)


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty builder with one row to begin with."""
    return await _builder(request, visit, Form(), Rows.of([]), None, 200)


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
    return await _builder(request, visit, Form({"name": row.name}), Rows.of(row.filters), row, 200)


@pages.post("/<segment_id:int>", name="update")
@signed_in
async def update(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Keep name and rules."""
    return await _save(request, visit, await call(store.get, visit.account_id, segment_id))


async def _save(request: Request, visit: Visit, row: Any) -> HTTPResponse:
    form = Form.of(request)
    found = Rows.posted(form.lists)
    if found.act(form.lists):
        return await _builder(request, visit, form, found, row, 200)
    form.need("name", "Give the segment a name, for example Regulars in Berlin.")
    try:
        if form.errors:
            raise errors.Invalid({})
        raw = {"name": form["name"], "filters": found.filters()}
        if row is None:
            row = await commit(store.create, visit.account_id, fields.read(SegmentCreate, raw))
        else:
            await commit(store.update, visit.account_id, row.id, fields.read(SegmentPatch, raw))
    except errors.Invalid as refused:
        found.take(refused)
        return await _builder(request, visit, form, found, row, 422)
    view.say(request, "Saved.")
    return view.go(request, f"/segments/{row.id}")


async def _builder(request: Request, visit: Visit, form: Form, found: Rows, row: Any, status: int) -> HTTPResponse:
    shown = await call(filter_look.look, visit.account_id, found)
    return view.page(request, "segments/show.html", status, form=form, shown=shown, row=row)
