"""The table of contact lists, the form of a list, and the contacts of a list."""

import asyncio
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience import lists, mirrors
from appliance.audience.contacts import store
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.core import errors, validation
from appliance.core.cache import CostAwareCache
from appliance.core.i18n import fold, gettext, gettext_noop, ngettext
from appliance.storage.transactions import commit, fetch, scan
from ui import formats, forms, view
from ui.forms import IS_TAKEN, Form, FormPart, FormParts, has_message, list_params, lookups
from ui.guard import ignore_double_submit, signed_in
from ui.pages import contacts
from ui.session import Pages, Visit
from ui.widgets import tables
from ui.widgets.tables import Column, Selection, Table

pages = Pages("ui_lists", url_prefix="/lists")

_LARGE_LIST_SIZE = 5_000
_COUNT_TIMEOUT_SECONDS = 0.03
_sendable_counts: CostAwareCache[dict[str, int]] = CostAwareCache()
_COLUMNS = (
    Column(gettext_noop("List"), "name", ""), Column(gettext_noop("Contacts"), "people", is_numeric=True),
    Column(gettext_noop("Updated"), "updated"), Column(gettext_noop("Created"), "created", is_visible=False),
)  # fmt: skip


# The lists of a contact without the list that the page shows.
_CONTACT_COLUMNS = tuple(
    column._replace(label=gettext_noop("Other lists")) if column is contacts.LISTS_COLUMN else column
    for column in contacts.TABLE_COLUMNS
)


def _count_lists(number: int) -> str:
    return ngettext("%(num)s list", "%(num)s lists", number)


@pages.get("/", name="index", strict_slashes=False)
@signed_in("contacts:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of contact lists."""
    table = Table(request, "/lists", _count_lists, _COLUMNS, "-updated")
    table.bulk_action_url = "/lists/acts" if visit.can("contacts:write") else ""
    query = validation.read(lists.ListQuery, table.list_params)
    table.results = await fetch(lists.fetch_page, visit.account_id, query, table.sort)
    segment_names = await fetch(_segment_names, visit.account_id)
    return tables.render_table(request, "lists/index.html", table, segments=segment_names)


@pages.post("/acts", name="acts")
@signed_in("contacts:write")
async def run_bulk_action(request: Request, visit: Visit) -> HTTPResponse:
    """Delete the selected lists after a confirmation; lists that a campaign or flow needs are kept."""
    form = Form.from_request(request)
    selection = Selection.from_request(request, form)
    rows = await fetch(_selected_lists, visit.account_id, selection)
    if not rows or form["act"] != "delete":
        view.flash(request, gettext("No lists selected."))
        return view.redirect(request, selection.table_url("/lists"))
    if form["expected"] != str(len(rows)):
        return view.render(
            request, "lists/sure.html", form=form, rows=rows, fields=[("act", "delete"), *selection.fields],
            back=selection.table_url("/lists"),
        )  # fmt: skip
    deleted, needed = 0, []
    for row in rows:
        try:
            await commit(audit.run_and_record, visit.actor, "list_delete", lists.delete, visit.account_id, row.id)
            deleted += 1
        except errors.Invalid:
            needed.append(row.name)
    notice = ngettext("%(num)s list deleted.", "%(num)s lists deleted.", deleted)
    if needed:
        explanation = gettext(
            "Not deleted because a campaign or flow uses them: %(names)s.", names=formats.join_names(needed)
        )
        notice = f"{notice} {explanation}"
    view.flash(request, notice)
    return view.redirect(request, selection.table_url("/lists"))


def _selected_lists(account_id: int, selection: Selection) -> list[Any]:
    """Return the selected lists, or all that match the table's search; at most 500."""
    query = lists.ListQuery(search=selection.state["search"]) if selection.state.get("search") else lists.ListQuery()
    rows: list[Any] = []
    if not selection.is_all:
        return [row for id_ in selection.ids[:500] if (row := _find_list(account_id, id_)) is not None]
    while len(rows) < 500:
        query.page, query.limit = len(rows) // 100 + 1, 100
        page = lists.fetch_page(account_id, query)
        rows += page.rows
        if page.page >= page.pages:
            break
    return rows


def _find_list(account_id: int, list_id: int) -> Any:
    try:
        return lists.get(account_id, list_id)
    except errors.NotFound:
        return None


def _segment_names(account_id: int) -> dict[int, str]:
    """Return the names of up to MAX_OPTIONS segments by id, sorted by name."""
    rows = segments.fetch_page(account_id, SegmentQuery(limit=lookups.MAX_OPTIONS)).rows
    return {row.id: row.name for row in sorted(rows, key=lambda row: fold(row.name))}


@pages.get("/new", name="new")
@signed_in("contacts:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new list, with the segment of the query selected."""
    return await _render_form(request, visit, Form({"segment_id": request.args.get("segment") or ""}), None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in("contacts:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a list, and redirect to it."""
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name for the list, for example Newsletter."))
    try:
        if form.errors:
            raise errors.Invalid({})
        created = await commit(lists.create, visit.account_id, validation.read(lists.ListCreate, _read_fields(form)))
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), None, 422)
    view.flash(
        request,
        gettext("List “%(name)s” created.", name=created.name)
        if created.segment_id
        else gettext("List “%(name)s” created. Add contacts to it now.", name=created.name),
    )
    return view.redirect(request, f"/lists/{created.id}")


@pages.get("/<list_id:int>", name="show")
@signed_in("contacts:read")
async def show(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Show the contacts of a contact list, as a table."""
    return await _render_list(request, visit, list_id, 200)


@pages.get("/<list_id:int>/edit", name="edit")
@signed_in("contacts:write")
async def edit(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Show the form with the stored name and settings of a list."""
    row = await fetch(lists.get, visit.account_id, list_id)
    return await _render_form(request, visit, forms.open_form(Form(_form_values(row)), _FORM_PARTS), row, 200)


@pages.post("/<list_id:int>", name="update")
@signed_in("contacts:write")
@forms.retry_on_change
async def update(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Save the form with the name and settings of a list."""
    form = Form.from_request(request)
    row = await fetch(lists.get, visit.account_id, list_id)
    segment_names = {str(item): name for item, name in (await fetch(_segment_names, visit.account_id)).items()}
    forms.merge_form(form, _FORM_PARTS, Form(_form_values(row)), {_SOURCE_PART: segment_names})
    if form.conflicts:
        return await _render_form(request, visit, form, row, 409)
    form.require("name", gettext("Enter a name for the list."))
    try:
        if form.errors:
            raise errors.Invalid({})
        args = (
            lists.update,
            visit.account_id,
            list_id,
            validation.read(lists.ListPatch, _read_fields(form)),
            visit.actor,
        )
        await commit(
            forms.write_if_unchanged,
            form,
            _FORM_PARTS,
            lambda: Form(_form_values(lists.get(visit.account_id, list_id))),
            *args,
        )
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), row, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/lists/{list_id}")


@pages.get("/<list_id:int>/add", name="add")
@signed_in("contacts:write")
async def choose_contacts(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Show contacts to add to a list, with a search; contacts that are in the list are marked."""
    row = await fetch(lists.get, visit.account_id, list_id)
    raw, search = list_params(request, 30)
    page = await scan(store.fetch_page, visit.account_id, validation.read(store.ContactQuery, raw))
    return view.render(request, "lists/add.html", row=row, page=page, search=search)


@pages.post("/<list_id:int>/people", name="join")
@signed_in("contacts:write")
async def add_contacts(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Add the selected contacts to the list.

    Contacts who left the list themselves are not added, and the notice says so.
    """
    contact_ids = Form.from_request(request).ids("contact_ids")
    addition = await commit(_add_existing, visit.account_id, list_id, contact_ids)
    notice = ngettext("%(num)s contact added.", "%(num)s contacts added.", addition[0])
    if addition.kept_opt_outs:
        kept_out = gettext("Contacts who left the list themselves were not added.")
        notice = f"{notice} {kept_out}"
    view.flash(request, notice if contact_ids else gettext("No contacts selected."))
    return view.redirect(request, f"/lists/{list_id}")


@pages.post("/<list_id:int>/people/remove", name="leave")
@signed_in("contacts:write")
async def remove_contacts(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Remove contacts from the list; for a single contact the notice offers to undo it."""
    contact_ids = Form.from_request(request).ids("contact_ids")
    removal = await commit(lists.remove_members, visit.account_id, list_id, contact_ids)
    undo = (f"/lists/{list_id}/people", {"contact_ids": str(contact_ids[0])}) if len(contact_ids) == 1 else None
    view.flash(
        request,
        ngettext("%(num)s contact removed from the list.", "%(num)s contacts removed from the list.", removal[0]),
        undo,
    )
    return view.redirect(request, f"/lists/{list_id}")


@pages.post("/<list_id:int>/delete", name="delete")
@signed_in("contacts:write")
async def delete(request: Request, visit: Visit, list_id: int) -> HTTPResponse:
    """Delete a list; its contacts are kept. If a campaign or flow uses the list, show an error."""
    try:
        deleted = await commit(
            audit.run_and_record, visit.actor, "list_delete", lists.delete, visit.account_id, list_id
        )
    except errors.Invalid:
        form = Form()
        form.add_error(
            "base",
            gettext(
                "A campaign or flow uses this list. Cancel or unschedule the campaign, or remove the "
                "list from the flow, first."
            ),
        )
        return await _render_list(request, visit, list_id, 422, form)
    view.flash(request, gettext("List “%(name)s” deleted. Its contacts are still in Contacts.", name=deleted.name))
    return view.redirect(request, "/lists")


_SWITCHES = ("public", "double_opt_in")
_SOURCE_PART = gettext_noop("Contacts in this list")
_FORM_PARTS = FormParts(
    FormPart(gettext_noop("Name"), ("name",)), FormPart(_SOURCE_PART, ("segment_id",)),
    FormPart(gettext_noop("Show on the preference page"), ("public",), True),
    FormPart(gettext_noop("Require double opt-in"), ("double_opt_in",), True),
)  # fmt: skip


def _read_fields(form: Form) -> dict[str, Any]:
    segment_id = form["segment_id"]
    segment = int(segment_id) if segment_id.isdecimal() and len(segment_id) < 19 else None
    return {"name": form["name"], "segment_id": segment, **{name: form[name] == "yes" for name in _SWITCHES}}


def _form_values(row: Any) -> dict[str, str]:
    current = {"name": row.name, "segment_id": str(row.segment_id or "")}
    return {**current, **{name: "yes" if getattr(row, name) else "" for name in _SWITCHES}}


def _add_existing(account_id: int, list_id: int, contact_ids: list[int]) -> lists.MembershipChange:
    """Add those contacts that still exist in the account to a list; the page may be older than a deletion."""
    ids = [contact.id for contact in store.fetch_by_ids(contact_ids) if contact.account_id == account_id]
    return lists.add_members(account_id, list_id, ids)


def _add_errors(form: Form, error: errors.Invalid) -> Form:
    if has_message(error, "name", IS_TAKEN):
        form.add_error("name", gettext("Another list has this name. Enter a different name."))
    return form.add_errors(error) if error.fields else form


async def _render_form(request: Request, visit: Visit, form: Form, row: Any, status: int) -> HTTPResponse:
    segment_names = await fetch(_segment_names, visit.account_id)
    choices = [(item, gettext("Segment: %(name)s", name=name)) for item, name in segment_names.items()]
    return view.render(request, "lists/form.html", status, form=form, row=row, choices=choices)


async def _render_list(
    request: Request, visit: Visit, list_id: int, status: int, form: Form | None = None
) -> HTTPResponse:
    row = await fetch(lists.get, visit.account_id, list_id)
    url = f"/lists/{list_id}"
    table = Table(request, url, formats.count_contacts, _CONTACT_COLUMNS, "-updated", ("show", "tag"))
    table.extra_filters = {"of_list": str(list_id)}
    table.bulk_action_url = "/contacts/acts" if visit.can("contacts:write") else ""
    all_lists = await scan(contacts.fill_table, visit.account_id, table, list_id=list_id)
    sendable = await _count_sendable(row)
    segment = await fetch(_find_segment, visit.account_id, row.segment_id)
    return tables.render_table(
        request, "lists/show.html", table, status, row=row, sendable=sendable, form=form or Form(), lists=all_lists,
        segment=segment, is_view=row.segment_id is not None, is_postponed=mirrors.is_postponed(list_id),
    )  # fmt: skip


async def _count_sendable(row: Any) -> dict[str, int] | None:
    """Return how many contacts of a list can be sent marketing, by channel; None while the count takes too long.

    The count of a large list is cached until the list changes. The page polls while the result is None.
    """
    if row.contacts_count < _LARGE_LIST_SIZE:
        return await fetch(lists.count_sendable, row.id)
    key = (row.id, row.updated_at, row.contacts_count)
    counting = asyncio.ensure_future(fetch(_sendable_counts.get, key, lambda: lists.count_sendable(row.id)))
    await asyncio.wait({counting}, timeout=_COUNT_TIMEOUT_SECONDS)
    return counting.result() if counting.done() else _sendable_counts.peek(key)


def _find_segment(account_id: int, segment_id: int | None) -> Any:
    return segments.get(account_id, segment_id) if segment_id else None
