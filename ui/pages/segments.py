"""Segments: the table, and the builder."""

import json
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.filters import read as filters_read
from appliance.audience.segments import counting, dependencies, explain, people, store
from appliance.audience.segments.store import SegmentCreate, SegmentPatch, SegmentQuery
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import filter_look, filter_people, rights, tables, together, view
from ui.filters import Rows
from ui.forms import Form
from ui.guard import signed_in
from ui.pages import segment_rows
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.tables import Chip, Column
from ui.together import Part, Parts

pages = Pages("ui_segments", url_prefix="/segments")
_PARTS = Parts(Part("Name", ("name",)), Part("Rules", ("rules",)))
_COLUMNS = (
    Column("Segment", "name", ""), Column("People", number=True), Column("Changed", "updated"),
    Column("Made", "created", shown=False),
)  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table of segments, each as a sentence with its number; chips tell those that something needs."""
    table = tables.Table(request, "/segments", ("segment", "segments"), _COLUMNS, "-updated", ("show",))
    table.acts = "/segments/acts" if rights.may(visit.user.role, "POST", "/segments/acts") else ""

    def read() -> dict[str, Any]:
        every = store.ids(visit.account_id)
        used = dependencies.segments_in_use(visit.account_id) & every
        some = {"used": used, "unused": every - used}
        names = {"used": "In use", "unused": "Not used"}
        table.chips = [Chip("", "All", len(every)), *(Chip(key, names[key], len(ids)) for key, ids in some.items())]
        only = some.get(table.state["show"])
        table.found = store.page(visit.account_id, fields.read(SegmentQuery, table.raw), table.sort, only)
        return {"used": used, **_said(visit.account_id, [*table.found.rows])}

    return tables.answer(request, "segments/index.html", table, **await call(read))


def _said(account_id: int, rows: list[Any]) -> dict[str, Any]:
    """Return sentence and number of each; where there are very many people, numbers follow as they are counted."""
    here = people.scope(account_id)
    sentences = {row.id: explain.sentence(account_id, filters_read.filters(row.filters, here), here) for row in rows}
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
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a segment."""
    return await _save(request, visit, None)


@pages.get("/<segment_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """The builder with the rules of a segment."""
    row = await call(store.get, visit.account_id, segment_id)
    return await _builder(request, visit, together.opened(_kept(row), _PARTS), Rows.of(row.filters), row, 200)


@pages.post("/<segment_id:int>", name="update")
@signed_in
@together.meeting
async def update(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Keep name and rules."""
    return await _save(request, visit, await call(store.get, visit.account_id, segment_id))


async def _save(request: Request, visit: Visit, row: Any) -> HTTPResponse:
    form = Form.of(request)
    found = Rows.posted(form.lists)
    if found.act(form.lists) or form["look"] or form["pick"]:
        return await _builder(request, visit, form, found, row, 200)
    if row is not None:
        form.values["rules"] = _rules(found)
        together.meet(form, _PARTS, _kept(row), {"Rules": await call(_sentences, visit.account_id, found, row)})
        if form["rules"] == _rules(Rows.of(row.filters)):
            found = Rows.of(row.filters)
    if form.met:
        return await _builder(request, visit, form, found, row, 409)
    form.need("name", "Give the segment a name, for example Regulars in Berlin.")
    try:
        if form.errors:
            raise errors.Invalid({})
        raw = {"name": form["name"], "filters": found.filters()}
        if row is None:
            kept = await commit(store.create, visit.account_id, fields.read(SegmentCreate, raw))
        else:
            args = (store.update, visit.account_id, row.id, fields.read(SegmentPatch, raw), visit.by)
            kept = await commit(together.still, form, _PARTS, lambda: _kept(store.get(*args[1:3])), *args)
    except errors.Invalid as refused:
        return await _builder(request, visit, form, found, row, 422, refused)
    view.say(request, "Saved." if row else f"{kept.name} is ready. It keeps itself up to date.")
    return view.go(request, f"/segments/{kept.id}")


def _kept(row: Any) -> Form:
    """Return the form that shows what is kept of a segment; its rules as one value."""
    return Form({"name": row.name, "rules": _rules(Rows.of(row.filters))})


def _rules(found: Rows) -> str:
    return json.dumps(found.filters(), sort_keys=True)


def _sentences(account_id: int, found: Rows, row: Any) -> dict[str, str]:
    """Return the rules of a form and those that are kept in words."""
    both = (found, Rows.of(row.filters))
    said = ((_rules(one), filter_look.look(account_id, one, counted=False).sentence) for one in both)
    return {rules: sentence or "nobody is chosen yet" for rules, sentence in said}


async def _builder(
    request: Request, visit: Visit, form: Form, found: Rows, row: Any, status: int,
    refused: errors.Invalid | None = None,
) -> HTTPResponse:  # fmt: skip
    """Return the whole builder; what the rules refuse is said at the rows, over what is said of those still open."""
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
