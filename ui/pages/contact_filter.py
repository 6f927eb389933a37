"""Rules for the table of people, in the rows of a segment: looked through, or kept as a segment."""

from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.segments import people as crowd
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import crowds, filter_look, rights, tables, view, words
from ui.filters import Rows
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_contact_filter", url_prefix="/contacts/filter")


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The rows as they are in force; asked to go on, the table of those whom they let through."""
    posted: dict[str, list[str]] = {name: list(values) for name, values in request.args.items()}
    state = {name: tables.asked(request, name) for name in ("search", *crowds.FILTERS) if request.args.get(name)}
    if "rows" not in posted:
        return await _page(
            request, visit, Form(), await call(_stored, visit.account_id, state.get("filters", "")), state, 200
        )
    found = Rows.posted(posted)
    if found.act(posted) or "go" not in posted:
        return await _page(request, visit, Form(), found, state, 200)
    try:
        await call(crowd.nodes, visit.account_id, found.filters())
    except errors.Invalid as refused:
        return await _page(request, visit, Form(), found, state, 422, refused)
    state["filters"] = msgspec.json.encode(found.filters()).decode() if found.filters() else ""
    return view.go(request, f"/contacts{words.query(state)}")


@pages.post("/", name="keep", strict_slashes=False)
@signed_in
async def keep(request: Request, visit: Visit) -> HTTPResponse:
    """Keep the rules as a segment, and show its people."""
    form = Form.of(request)
    found = Rows.posted(form.lists)
    form.need("name", "Give the segment a name, for example Regulars in Berlin.")
    try:
        if form.errors:
            raise errors.Invalid({})
        raw = {"name": form["name"], "filters": found.filters()}
        made = await commit(segments.create, visit.account_id, fields.read(SegmentCreate, raw))
    except errors.Invalid as refused:
        if "has already been taken" in refused.fields.get("name", []):
            form.wrong("name", "Another segment has this name.")
        return await _page(request, visit, form, found, {}, 422, refused)
    view.say(request, f"The segment {made.name} is ready. It keeps itself up to date.")
    return view.go(request, f"/contacts?segment_id={made.id}")


def _stored(account_id: int, text: str) -> Rows:
    """Return the rows of filters in force; those that cannot be read are begun anew."""
    try:
        rules = crowds.rules(text)
        crowd.nodes(account_id, rules)
    except errors.Invalid:
        rules = []
    return Rows.of(rules) if rules else Rows.blank()


async def _page(
    request: Request, visit: Visit, form: Form, found: Rows, state: dict[str, Any], status: int,
    refused: errors.Invalid | None = None,
) -> HTTPResponse:  # fmt: skip
    shown = await filter_look.shown(visit.account_id, found)
    if refused is not None:
        # Where each row stands among the filters is known once they are made
        found.filters()
        found.take(refused)
    state = {name: value for name, value in state.items() if name != "filters"}
    return view.page(
        request, "contacts/filter.html", status, form=form, shown=shown, state=state,
        may_keep=rights.may(visit.user.role, "POST", "/contacts/filter"),
    )  # fmt: skip
