"""The table of segments, the filter builder with live counts, and bulk actions."""

import json
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.filters import compiler as filter_parser
from appliance.audience.segments import explain, members, store
from appliance.audience.segments.store import SegmentCreate, SegmentPatch, SegmentQuery
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext
from appliance.storage.models import Segment
from appliance.storage.transactions import commit, fetch, scan, scan_for
from ui import formats, forms, view
from ui.forms import Form, FormPart, FormParts
from ui.forms.filter_rows import PREFIX, FilterRows
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.widgets import filter_builder, tables
from ui.widgets.filter_builder import BRANCH, SEGMENT, ContactCheck, FilterView
from ui.widgets.tables import Chip, Column, Selection

pages = Pages("ui_segments", url_prefix="/segments")

# Filter rows of any form, while the user edits them.


def _read_prefix(text: str | None) -> str:
    return text if text and text.isalnum() and text.isascii() and len(text) < 20 else PREFIX


@pages.post("/rows")
@signed_in("contacts:read")
async def update_rows(request: Request, visit: Visit) -> HTTPResponse:
    """Show the filter rows of a form after a change, with suggestions, sentence and count; nothing is saved.

    On the page of a segment (`panels`) the sample and the checked contact are updated too.
    """
    form = Form.from_request(request)
    rows = FilterRows.from_form(form.lists, _read_prefix(form["rows"]))
    rows.apply_action(form.lists)
    place = BRANCH if form[f"{rows.prefix}.place"] == BRANCH else SEGMENT
    filter_view = await filter_builder.load_view(visit.account_id, rows, place)
    panels = form["panels"] == "yes"
    sample = await scan(filter_builder.load_sample, visit.account_id, filter_view) if panels else None
    contact_check = await load_contact_check(visit, form, rows) if panels else None
    return view.render_fragment(
        request, "segments/_rows.html", filter_view=filter_view, sample=sample, checked=contact_check
    )


@pages.get("/count/<count_key:str>")
@signed_in("contacts:read")
async def show_count(request: Request, visit: Visit, count_key: str) -> HTTPResponse:
    """Show the progress of a count; the response polls again until the count is done."""
    rows = FilterRows([], _read_prefix(request.args.get("prefix")))
    rows.count_key = count_key[:40]
    under_way = members.find_count(visit.account_id, rows.count_key)
    note = "" if under_way else gettext("Change a condition to count again.")
    filter_view = FilterView(rows, running_count=under_way, note=note)
    ended = under_way is not None and under_way.is_done and request.args.get("panels") == "yes"
    sample = await scan(filter_builder.load_sample, visit.account_id, filter_view) if ended else None
    return view.render_fragment(request, "segments/_count.html", filter_view=filter_view, sample=sample)


@pages.post("/check")
@signed_in("contacts:read")
async def check_contact(request: Request, visit: Visit) -> HTTPResponse:
    """Show whether one contact matches the rules in the form, or search results to choose a contact from."""
    form = Form.from_request(request)
    rows = FilterRows.from_form(form.lists)
    return view.render_fragment(request, "segments/_check.html", checked=await load_contact_check(visit, form, rows))


async def load_contact_check(visit: Visit, form: Form, rows: FilterRows) -> ContactCheck:
    """Return the check of the contact that the form names against the filter rows of the form.

    If the rows are invalid, the check is empty, because the rows show their errors themselves.
    """
    person = next(iter(form.ids("pick") + form.ids("person")), None)
    try:
        return await scan(filter_builder.check_contact, visit.account_id, rows, form["who"], person)
    except errors.Invalid:
        # The rows show their errors.
        return ContactCheck(form["who"], [])


_CONDITIONS_PART = gettext_noop("Conditions")
_FORM_PARTS = FormParts(FormPart(gettext_noop("Name"), ("name",)), FormPart(_CONDITIONS_PART, ("rules",)))
_COLUMNS = (
    Column(gettext_noop("Segment"), "name", ""), Column(gettext_noop("Contacts"), is_numeric=True),
    Column(gettext_noop("Updated"), "updated"), Column(gettext_noop("Created"), "created", is_visible=False),
)  # fmt: skip


def _count_segments(number: int) -> str:
    return ngettext("%(num)s segment", "%(num)s segments", number)


@pages.get("/", strict_slashes=False)
@signed_in("contacts:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of segments, each with its rules as a sentence and its count."""
    table = tables.Table(request, "/segments", _count_segments, _COLUMNS, "-updated", ("show",))
    table.bulk_action_url = "/segments/acts" if visit.can("contacts:write") else ""

    def read() -> dict[str, Any]:
        every = store.fetch_ids(visit.account_id)
        used = store.find_segments_in_use(visit.account_id) & every
        group = {"used": used, "unused": every - used}
        names = {"used": gettext("In use"), "unused": gettext("Not in use")}
        table.chips = [
            Chip("", pgettext("segments", "All"), len(every)),
            *(Chip(key, names[key], len(ids)) for key, ids in group.items()),
        ]
        only = group.get(table.state["show"])
        table.results = store.fetch_page(
            visit.account_id, validation.read(SegmentQuery, table.list_params), table.sort, only
        )
        return {"used": used, **_load_counts(visit.account_id, [*table.results.rows])}

    return tables.render_table(
        request, "segments/index.html", table, starters=store.STARTERS, **await scan_for(visit.account_id, read)
    )


def _load_counts(account_id: int, rows: list[Any]) -> dict[str, Any]:
    """Return the sentences and the counts of segments by id, and the number of contacts, for the template.

    A count that is not known yet is None and is computed in the background.
    """
    scope = members.build_scope(account_id)
    sentences = {
        row.id: explain.describe_filters(account_id, filter_parser.parse_filters(row.filters, scope), scope)
        for row in rows
    }
    counts = members.count_segments(account_id, rows, timeout_seconds=0)
    members.refresh_counts(account_id, rows)
    return {"counts": counts, "sentences": sentences, "contact_total": members.count_contacts(account_id)}


@pages.get("/new")
@signed_in("contacts:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the filter builder for a new segment, with one blank row."""
    return await _render_builder(request, visit, Form(), FilterRows.blank(), None, 200)


@pages.post("/", strict_slashes=False)
@signed_in("contacts:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a segment from the form of the filter builder, or a ready-made one if the form names it."""
    if starter := Form.from_request(request)["starter"]:
        created = await commit(store.create, visit.account_id, store.find_starter(starter).build())
        view.flash(request, gettext("Segment “%(name)s” created. It updates automatically.", name=created.name))
        return view.redirect(request, f"/segments/{created.id}")
    return await _save(request, visit, None)


@pages.get("/<segment_id:int>")
@signed_in("contacts:read")
async def show(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Show the filter builder with the rules of a segment."""
    row = await fetch(store.get, visit.account_id, segment_id)
    return await _render_builder(
        request,
        visit,
        forms.open_form(_build_form(row), _FORM_PARTS),
        FilterRows.from_filters(row.filters),
        row,
        200,
    )


@pages.post("/<segment_id:int>")
@signed_in("contacts:write")
@forms.retry_on_change
async def update(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Save the name and the rules of a segment; only show them again if a button of the rows was pressed."""
    return await _save(request, visit, await fetch(store.get, visit.account_id, segment_id))


@pages.post("/<segment_id:int>/preview")
@signed_in("contacts:read")
async def preview(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Show the page of a segment with changed rules, which are not saved.

    Users who may not save a segment can try rules with it. It also works without JavaScript.
    """
    row = await fetch(store.get, visit.account_id, segment_id)
    form = Form.from_request(request)
    rows = FilterRows.from_form(form.lists)
    rows.apply_action(form.lists)
    return await _render_builder(request, visit, form, rows, row, 200)


async def _save(request: Request, visit: Visit, row: Any) -> HTTPResponse:
    form = Form.from_request(request)
    rows = FilterRows.from_form(form.lists)
    if rows.apply_action(form.lists) or form["look"] or form["pick"]:
        return await _render_builder(request, visit, form, rows, row, 200)
    if row is not None:
        form.values["rules"] = _serialize_rules(rows)
        forms.merge_form(
            form,
            _FORM_PARTS,
            _build_form(row),
            {_CONDITIONS_PART: await fetch(_describe_rules, visit.account_id, rows, row)},
        )
        if form["rules"] == _serialize_rules(FilterRows.from_filters(row.filters)):
            rows = FilterRows.from_filters(row.filters)
    if form.conflicts:
        return await _render_builder(request, visit, form, rows, row, 409)
    form.require("name", gettext("Enter a name for the segment, for example Regulars in Berlin."))
    try:
        if form.errors:
            raise errors.Invalid({})
        raw = {"name": form["name"], "filters": rows.to_filters()}
        if row is None:
            stored = await commit(store.create, visit.account_id, validation.read(SegmentCreate, raw))
        else:
            args = (store.update, visit.account_id, row.id, validation.read(SegmentPatch, raw), visit.actor)
            stored = await commit(
                forms.write_if_unchanged, form, _FORM_PARTS, lambda: _build_form(store.get(*args[1:3])), *args
            )
    except errors.Invalid as error:
        return await _render_builder(request, visit, form, rows, row, 422, error)
    view.flash(
        request,
        gettext("Saved.")
        if row
        else gettext("Segment “%(name)s” created. It updates automatically.", name=stored.name),
    )
    return view.redirect(request, f"/segments/{stored.id}")


def _build_form(row: Any) -> Form:
    """Return the form with the name and the rules of a segment; the rules are one value, as JSON."""
    return Form({"name": row.name, "rules": _serialize_rules(FilterRows.from_filters(row.filters))})


def _serialize_rules(rows: FilterRows) -> str:
    return json.dumps(rows.to_filters(), sort_keys=True)


def _describe_rules(account_id: int, rows: FilterRows, row: Any) -> dict[str, str]:
    """Return the sentences of the form's rules and of the stored rules, by their JSON."""
    row_sets = (rows, FilterRows.from_filters(row.filters))
    sentences = (
        (_serialize_rules(row_set), filter_builder.build_view(account_id, row_set, counted=False).sentence)
        for row_set in row_sets
    )
    return {rules: sentence or gettext("no conditions yet") for rules, sentence in sentences}


async def _render_builder(
    request: Request, visit: Visit, form: Form, rows: FilterRows, row: Any, status: int,
    error: errors.Invalid | None = None,
) -> HTTPResponse:  # fmt: skip
    """Render the filter builder.

    The errors of a rejected save (`error`) are added to the rows and to the name; a row with an error keeps its own.
    """
    filter_view = await filter_builder.load_view(visit.account_id, rows)
    if error is not None:
        rows.to_filters()
        rows.add_errors(error)
        if "name" in error.fields:
            form.add_errors(errors.Invalid({"name": error.fields["name"]}))
    sample = await scan(filter_builder.load_sample, visit.account_id, filter_view)
    checked = await load_contact_check(visit, form, rows)
    used = await fetch(store.find_usage, visit.account_id, row.id) if row else []
    drafts = await fetch(store.find_drafts_using, visit.account_id, row.id) if row else []
    return view.render(
        request, "segments/show.html", status, form=form, filter_view=filter_view, row=row, sample=sample,
        checked=checked, used=used, drafts=drafts, writes=visit.can("contacts:write"),
        starters=() if row else store.STARTERS,
    )  # fmt: skip


# Bulk actions.

# The largest number of rows in one bulk action.
_MAX_IDS = 500
_KIND_PATHS = {"campaign_id": "campaigns", "flow_id": "flows", "list_id": "lists", "segment_id": "segments"}


class SelectedSegment(NamedTuple):
    """A segment to delete, with the objects whose use prevents the deletion, and the drafts that use it.

    Objects and drafts are (name, URL).
    """

    row: Segment
    used: list[tuple[str, str]]
    drafts: list[tuple[str, str]]


@pages.post("/<segment_id:int>/copy")
@signed_in("contacts:write")
async def copy(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Create a copy of a segment, and redirect to it."""
    row = await fetch(store.get, visit.account_id, segment_id)
    created = await commit(store.create, visit.account_id, _copy_segment(row))
    view.flash(request, gettext("This is a copy of “%(name)s”.", name=row.name))
    return view.redirect(request, f"/segments/{created.id}")


@pages.post("/acts")
@signed_in("contacts:write")
async def run_bulk_action(request: Request, visit: Visit) -> HTTPResponse:
    """Copy or delete the selected segments; deletion is confirmed first if any of them is used, even by a draft."""
    form = Form.from_request(request)
    selection = Selection.from_request(request, form)
    return_url = selection.table_url("/segments")
    rows = await fetch(_selected_segments, visit.account_id, selection)
    if not rows:
        view.flash(request, gettext("No segments selected."))
    elif form["act"] == "duplicate":
        for selected in reversed(rows):
            await commit(store.create, visit.account_id, _copy_segment(selected.row))
        view.flash(request, ngettext("%(num)s copy created.", "%(num)s copies created.", len(rows)))
    elif (
        form["act"] == "delete"
        and form["expected"] != _confirmation_token(rows)
        and any(segment.used + segment.drafts for segment in rows)
    ):
        return view.render(
            request, "segments/sure.html", selected=rows,
            deletable=[segment.row for segment in rows if not segment.used], expected=_confirmation_token(rows),
            fields=[("act", "delete"), *selection.fields], back=return_url,
        )  # fmt: skip
    elif form["act"] == "delete":
        await _delete_segments(request, visit, rows)
    return view.redirect(request, return_url)


async def _delete_segments(request: Request, visit: Visit, rows: list[SelectedSegment]) -> None:
    """Delete the segments that are not in use; the notice names the others and offers to undo the deletion."""
    deleted, stored = [], []
    for selected in rows:
        try:
            args = (store.delete, visit.account_id, selected.row.id)
            deleted.append(await commit(audit.run_and_record, visit.actor, "segment_delete", *args))
        except errors.Invalid:
            stored.append(selected.row.name)
    explanation = gettext("Not deleted because in use: %(names)s.", names=formats.join_names(stored)) if stored else ""
    if not deleted:
        view.flash(request, explanation)
        return
    notice = (
        gettext("Segment “%(name)s” deleted. Its contacts are still in Contacts.", name=deleted[0].name)
        if len(deleted) == 1
        else ngettext(
            "%(num)s segment deleted. The contacts are still in Contacts.",
            "%(num)s segments deleted. The contacts are still in Contacts.",
            len(deleted),
        )
    )
    again = json.dumps([{"name": row.name, "filters": row.filters} for row in deleted])
    view.flash(request, f"{notice} {explanation}".strip(), ("/segments/restore", {"gone": again}))


def _selected_segments(account_id: int, selection: Selection) -> list[SelectedSegment]:
    """Return the selected segments that still exist, or all that match the table's filters, at most `_MAX_IDS`."""
    if selection.is_all:
        search = selection.state.get("search", "")[:254]
        query = SegmentQuery(search=search) if search else SegmentQuery()
        every, used = store.fetch_ids(account_id), store.find_segments_in_use(account_id)
        only = {"used": used, "unused": every - used}.get(selection.state.get("show", ""))
        rows = list(store.select_matching(account_id, query, only).order_by(Segment.id.desc()).limit(_MAX_IDS))
    else:
        rows = list(
            store.select_matching(account_id, SegmentQuery(), selection.ids[:_MAX_IDS]).order_by(Segment.id.desc())
        )
    return [SelectedSegment(row, _list_usages(store.find_usage(account_id, row.id)),
        _list_usages(store.find_drafts_using(account_id, row.id)))
            for row in rows]  # fmt: skip


def _list_usages(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return (name, URL) of each object in the result of `store.find_usage` or `store.find_drafts_using`."""
    return [
        (usage["name"], f"/{base}/{usage[key]}") for usage in rows for key, base in _KIND_PATHS.items() if key in usage
    ]


def _confirmation_token(rows: list[SelectedSegment]) -> str:
    """Return a token of what the confirmation shows; if the token has changed, the confirmation is shown again."""
    return f"{sum(not segment.used for segment in rows)}-{sum(len(segment.drafts) for segment in rows)}"


def _copy_segment(row: Segment) -> SegmentCreate:
    return validation.read(
        SegmentCreate, {"name": gettext("%(name)s, copy", name=row.name[:240]), "filters": row.filters}
    )


@pages.post("/restore")
@signed_in("contacts:write")
async def restore(request: Request, visit: Visit) -> HTTPResponse:
    """Create segments again from the values that the notice's undo button sends.

    Raises NotFound if the form has no such values, Invalid if they are not values of segments.
    """
    try:
        deleted = json.loads(Form.from_request(request).raw("gone") or "[]")
    except ValueError:
        deleted = None
    if not isinstance(deleted, list) or not deleted or validation.is_too_deep(deleted):
        raise errors.NotFound
    body = [validation.read(SegmentCreate, raw) for raw in deleted[:_MAX_IDS]]
    restored = [await commit(store.create, visit.account_id, segment) for segment in body]
    only = len(restored) == 1
    view.flash(
        request,
        gettext("Segment “%(name)s” restored.", name=restored[0].name)
        if only
        else ngettext("%(num)s segment restored.", "%(num)s segments restored.", len(restored)),
    )
    return view.redirect(request, f"/segments/{restored[0].id}" if only else "/segments")
