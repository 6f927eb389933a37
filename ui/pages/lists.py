"""Lists: the table, making and naming, and the people of one."""

import asyncio
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import lists, requests, store
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.core import errors, fields
from appliance.core.rested import Rested
from appliance.storage.work import call, commit
from ui import crowds, people, rights, tables, together, view, words
from ui.forms import Form, listing
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.tables import Column, Selection, Table
from ui.together import Part, Parts

pages = Pages("ui_lists", url_prefix="/lists")
_LARGE = 5_000
_PATIENCE_SECONDS = 0.03
_counted: Rested[dict[str, int]] = Rested()
_COLUMNS = (
    Column("List", "name", ""), Column("People", "people", number=True), Column("Changed", "updated"),
    Column("Made", "created", shown=False),
)  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table of lists."""
    table = Table(request, "/lists", ("list", "lists"), _COLUMNS, "-updated")
    table.acts = "/lists/acts" if rights.may(visit.user.role, "POST", "/lists/acts") else ""
    asked = fields.read(lists.ListQuery, table.raw)
    table.found = await call(lists.page, visit.account_id, asked, table.sort)
    named = await call(_segments, visit.account_id)
    return tables.answer(request, "lists/index.html", table, segments=named)


@pages.post("/acts", name="acts")
@signed_in
async def act(request: Request, visit: Visit) -> HTTPResponse:
    """Delete the chosen lists, after a question; what a campaign or a flow needs stays."""
    form = Form.of(request)
    chosen = Selection.of(request, form)
    rows = await call(_chosen, visit.account_id, chosen)
    if not rows or form["act"] != "delete":
        view.say(request, "Nothing was chosen.")
        return view.go(request, chosen.back("/lists"))
    if form["expected"] != str(len(rows)):
        return view.page(
            request, "lists/sure.html", form=form, rows=rows, fields=[("act", "delete"), *chosen.fields],
            back=chosen.back("/lists"),
        )  # fmt: skip
    gone, needed = 0, []
    for row in rows:
        try:
            await commit(audit.noting, visit.by, "list_delete", lists.delete, visit.account_id, row.id)
            gone += 1
        except errors.Invalid:
            needed.append(row.name)
    kept = f" Kept: {words.listed(needed)}, which a campaign or a flow needs." if needed else ""
    view.say(request, f"{words.count(gone, 'list', 'lists')} deleted.{kept}")
    return view.go(request, chosen.back("/lists"))


def _chosen(account_id: int, chosen: Selection) -> list[Any]:
    """Return the lists meant: by their ids, or all that match."""
    asked = lists.ListQuery(search=chosen.state["search"]) if chosen.state.get("search") else lists.ListQuery()
    found: list[Any] = []
    if not chosen.is_all:
        return [row for one in chosen.ids[:500] if (row := _there(account_id, one)) is not None]
    while len(found) < 500:
        asked.page, asked.limit = len(found) // 100 + 1, 100
        page = lists.page(account_id, asked)
        found += page.rows
        if page.page >= page.pages:
            break
    return found


def _there(account_id: int, list_id: int) -> Any:
    try:
        return lists.get(account_id, list_id)
    except errors.NotFound:
        return None


def _segments(account_id: int) -> dict[int, str]:
    """Return the names of segments by their ids, enough of them to choose from."""
    found = segments.page(account_id, SegmentQuery(limit=people.MAX_CONTACTS)).rows
    return {row.id: row.name for row in sorted(found, key=lambda row: row.name.casefold())}


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty form."""
    return await _form(request, visit, Form({"segment_id": request.args.get("segment") or ""}), None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a list."""
    form = Form.of(request)
    form.need("name", "Give the list a name, for example Newsletter.")
    try:
        if form.errors:
            raise errors.Invalid({})
        made = await commit(lists.create, visit.account_id, fields.read(lists.ListCreate, _said(form)))
    except errors.Invalid as refused:
        return await _form(request, visit, _named(form, refused), None, 422)
    view.say(request, f"{made.name} is ready." + ("" if made.segment_id else " Now bring people in."))
    return view.go(request, f"/lists/{made.id}")


@pages.get("/<list_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """The people of a list."""
    return await _show(request, visit, list_id, 200)


@pages.get("/<list_id:int>/edit", name="edit")
@signed_in
async def edit(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """The form with its name and rules."""
    row = await call(lists.get, visit.account_id, list_id)
    return await _form(request, visit, together.opened(Form(_shown(row)), _PARTS), row, 200)


@pages.post("/<list_id:int>", name="update")
@signed_in
@together.meeting
async def update(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Keep its name and rules."""
    form = Form.of(request)
    row = await call(lists.get, visit.account_id, list_id)
    named = {str(one): name for one, name in (await call(_segments, visit.account_id)).items()}
    together.meet(form, _PARTS, Form(_shown(row)), {"Who is in it": named})
    if form.met:
        return await _form(request, visit, form, row, 409)
    form.need("name", "A list needs a name.")
    try:
        if form.errors:
            raise errors.Invalid({})
        args = (lists.update, visit.account_id, list_id, fields.read(lists.ListPatch, _said(form)), visit.by)
        await commit(together.still, form, _PARTS, lambda: Form(_shown(lists.get(visit.account_id, list_id))), *args)
    except errors.Invalid as refused:
        return await _form(request, visit, _named(form, refused), row, 422)
    view.say(request, "Saved.")
    return view.go(request, f"/lists/{list_id}")


@pages.get("/<list_id:int>/add", name="add")
@signed_in
async def add(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """People to choose from, searched as one types; who is in the list already is marked."""
    row = await call(lists.get, visit.account_id, list_id)
    raw, search = listing(request, 30)
    found = await call(store.page, visit.account_id, fields.read(requests.ContactQuery, raw))
    return view.page(request, "lists/add.html", row=row, found=found, search=search)


@pages.post("/<list_id:int>/people", name="join")
@signed_in
async def join(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Put the chosen people into the list."""
    chosen = Form.of(request).ids("contact_ids")
    done = await commit(_join, visit.account_id, list_id, chosen)
    kept = " Who had left it by their own act stays out." if done.kept else ""
    view.say(request, f"{words.people(done[0])} added.{kept}" if chosen else "Nobody was chosen.")
    return view.go(request, f"/lists/{list_id}")


@pages.post("/<list_id:int>/people/remove", name="leave")
@signed_in
async def leave(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Take people out of the list; the message offers to undo it."""
    chosen = Form.of(request).ids("contact_ids")
    done = await commit(lists.leave, visit.account_id, list_id, chosen)
    undo = (f"/lists/{list_id}/people", {"contact_ids": str(chosen[0])}) if len(chosen) == 1 else None
    view.say(request, f"{words.people(done[0])} taken out of the list.", undo)
    return view.go(request, f"/lists/{list_id}")


@pages.post("/<list_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Delete a list; its people stay."""
    try:
        gone = await commit(audit.noting, visit.by, "list_delete", lists.delete, visit.account_id, list_id)
    except errors.Invalid:
        form = Form()
        form.wrong("base", "A campaign that is scheduled or sending uses this list. Stop it first.")
        return await _show(request, visit, list_id, 422, form)
    view.say(request, f"The list {gone.name} is deleted. Its people are still in Contacts.")
    return view.go(request, "/lists")


_RULES = ("public", "double_opt_in")
_PARTS = Parts(
    Part("Name", ("name",)), Part("Who is in it", ("segment_id",)),
    Part("People may choose it themselves", ("public",), True),
    Part("Only for confirmed addresses", ("double_opt_in",), True),
)  # fmt: skip


def _said(form: Form) -> dict[str, Any]:
    chosen = form["segment_id"]
    segment = int(chosen) if chosen.isdecimal() and len(chosen) < 19 else None
    return {"name": form["name"], "segment_id": segment, **{name: form[name] == "yes" for name in _RULES}}


def _shown(row: Any) -> dict[str, str]:
    here = {"name": row.name, "segment_id": str(row.segment_id or "")}
    return {**here, **{name: "yes" if getattr(row, name) else "" for name in _RULES}}


def _join(account_id: int, list_id: int, contact_ids: list[int]) -> lists.Joined:
    """Join people who exist; a stale page may name some who do not."""
    there = [contact.id for contact in store.by_ids(contact_ids) if contact.account_id == account_id]
    return lists.join(account_id, list_id, there)


def _named(form: Form, refused: errors.Invalid) -> Form:
    if "has already been taken" in refused.fields.get("name", []):
        form.wrong("name", "Another list has this name. Choose one that tells them apart.")
    return form.take(refused) if refused.fields else form


async def _form(request: Request, visit: Visit, form: Form, row: Any, status: int) -> HTTPResponse:
    named = await call(_segments, visit.account_id)
    choices = [(one, f"Everyone in the segment {name}") for one, name in named.items()]
    return view.page(request, "lists/form.html", status, form=form, row=row, choices=choices)


async def _show(request: Request, visit: Visit, list_id: int, status: int, form: Form | None = None) -> HTTPResponse:
    row = await call(lists.get, visit.account_id, list_id)
    here = f"/lists/{list_id}"
    table = Table(request, here, ("person", "people"), crowds.COLUMNS, "-updated", ("show", "tag"))
    table.fixed = {"of_list": str(list_id)}
    table.acts = "/contacts/acts" if rights.may(visit.user.role, "POST", "/contacts/acts") else ""
    all_lists = await call(crowds.fill, visit.account_id, table, list_id=list_id)
    sendable = await _reached(row)
    segment = await call(_segment, visit.account_id, row.segment_id)
    return tables.answer(
        request, "lists/show.html", table, status, row=row, sendable=sendable, form=form or Form(), lists=all_lists,
        segment=segment, is_view=row.segment_id is not None,
    )  # fmt: skip


async def _reached(row: Any) -> dict[str, int] | None:
    """Count whom marketing may go to, of a large list as of a moment ago, unless somebody came or left.

    None while that takes longer than a page may wait: it asks again.
    """
    if row.contacts_count < _LARGE:
        return await call(lists.sendable, row.id)
    key = (row.id, row.updated_at, row.contacts_count)
    counting = asyncio.ensure_future(call(_counted.get, key, lambda: lists.sendable(row.id)))
    await asyncio.wait({counting}, timeout=_PATIENCE_SECONDS)
    return counting.result() if counting.done() else _counted.last(key)


def _segment(account_id: int, segment_id: int | None) -> Any:
    return segments.get(account_id, segment_id) if segment_id else None
