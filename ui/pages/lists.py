"""Lists: the table, making and naming, and the people of one."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.contacts import lists, requests, store
from appliance.db.work import call, commit
from ui import view, words
from ui.forms import Form, listing
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_lists", url_prefix="/lists")
_LIMIT = 50


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table of lists."""
    raw, search = listing(request, _LIMIT)
    found = await call(lists.page, visit.account_id, fields.read(lists.ListQuery, raw))
    return view.page(request, "lists/index.html", found=found, search=search)


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty form."""
    return view.page(request, "lists/form.html", form=Form(), row=None)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a list."""
    form = Form.of(request)
    form.need("name", "Give the list a name, for example Newsletter.")
    try:
        if form.errors:
            raise errors.Invalid({})
        made = await commit(lists.create, visit.account_id, fields.read(lists.ListCreate, _said(form)))
    except errors.Invalid as refused:
        return view.page(request, "lists/form.html", 422, form=_named(form, refused), row=None)
    view.say(request, f"{made.name} is ready. Now bring people in.")
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
    return view.page(request, "lists/form.html", form=Form(_shown(row)), row=row)


@pages.post("/<list_id:int>", name="update")
@signed_in
async def update(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Keep its name and rules."""
    form = Form.of(request)
    form.need("name", "A list needs a name.")
    row = await call(lists.get, visit.account_id, list_id)
    try:
        if form.errors:
            raise errors.Invalid({})
        await commit(lists.update, visit.account_id, list_id, fields.read(lists.ListPatch, _said(form)))
    except errors.Invalid as refused:
        return view.page(request, "lists/form.html", 422, form=_named(form, refused), row=row)
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
        gone = await commit(lists.delete, visit.account_id, list_id)
    except errors.Invalid:
        form = Form()
        form.wrong("base", "A campaign that is scheduled or sending uses this list. Stop it first.")
        return await _show(request, visit, list_id, 422, form)
    view.say(request, f"The list {gone.name} is deleted. Its people are still in Contacts.")
    return view.go(request, "/lists")


_RULES = ("public", "double_opt_in")


def _said(form: Form) -> dict[str, Any]:
    return {"name": form["name"], **{name: form[name] == "yes" for name in _RULES}}


def _shown(row: Any) -> dict[str, str]:
    return {"name": row.name, **{name: "yes" if getattr(row, name) else "" for name in _RULES}}


def _join(account_id: int, list_id: int, contact_ids: list[int]) -> lists.Joined:
    """Join people who exist; a stale page may name some who do not."""
    there = [contact.id for contact in store.by_ids(contact_ids) if contact.account_id == account_id]
    return lists.join(account_id, list_id, there)


def _named(form: Form, refused: errors.Invalid) -> Form:
    if "has already been taken" in refused.fields.get("name", []):
        form.wrong("name", "Another list has this name. Choose one that tells them apart.")
    return form.take(refused) if refused.fields else form


async def _show(request: Request, visit: Visit, list_id: int, status: int, form: Form | None = None) -> HTTPResponse:
    row = await call(lists.get, visit.account_id, list_id)
    raw, search = listing(request, _LIMIT)
    raw |= {"list_id": list_id}
    found = await call(store.page, visit.account_id, fields.read(requests.ContactQuery, raw))
    sendable = await call(lists.sendable, list_id)
    return view.page(
        request, "lists/show.html", status, row=row, found=found, search=search, sendable=sendable["email"],
        form=form or Form(),
    )  # fmt: skip
