"""The table of contacts, its filters, and the form of a contact."""

from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup, escape
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience import consent, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal, statuses, store, write
from appliance.audience.contacts.search import ORDERS, Order
from appliance.audience.filters import personal
from appliance.audience.segments import explain
from appliance.audience.segments import members as segment_people
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.core import errors, validation
from appliance.core.domain_typos import suggest_address
from appliance.core.i18n import gettext, gettext_noop, pgettext
from appliance.imports import store as imports
from appliance.storage.transactions import commit, fetch, scan
from ui import formats, forms, view
from ui.forms import IS_INVALID, IS_TAKEN, Form, FormPart, has_message, is_message, lookups, typed_values
from ui.forms.filter_rows import FilterRows
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.widgets import filter_builder, tables
from ui.widgets.tables import ActiveFilter, Chip, Column, Table

pages = Pages("ui_contacts", url_prefix="/contacts")


TABLE_FILTERS = ("show", "list_id", "tag", "segment_id", "source", "filters")
LISTS_COLUMN = Column(gettext_noop("Lists"))
TABLE_COLUMNS = (
    Column(gettext_noop("Contact"), "name", ""), Column(gettext_noop("Status")), LISTS_COLUMN,
    Column(gettext_noop("Last active"), "seen"), Column(gettext_noop("Updated"), "updated"),
    Column(gettext_noop("Added"), "created", is_visible=False),
)  # fmt: skip
# The labels of the states of `ContactQuery.status`, which the filter `show` selects
STATUS_LABELS = {
    "subscribed": gettext_noop("Subscribed"), "unsubscribed": gettext_noop("Unsubscribed"),
    "not_subscribed": gettext_noop("Not subscribed"), "suppressed": gettext_noop("Suppressed"),
}  # fmt: skip
SHOW_VALUES = ("", *STATUS_LABELS)


class ContactSearch(NamedTuple):
    """The query of a table of contacts, and its other filters as the API represents them (`rules`)."""

    query: store.ContactQuery
    rules: list[Any]


def read_search(state: dict[str, str], **more: Any) -> ContactSearch:
    """Return the search for the state of a table's filters; `more` are further values of the query.

    Raises Invalid, also for an unknown value of the filter `show`, so that such a filter is not ignored.
    """
    if state.get("show", "") not in SHOW_VALUES:
        raise errors.Invalid({"show": [gettext("is not included in the list")]})
    raw: dict[str, Any] = {**({"status": state["show"]} if state.get("show") else {}), **more}
    for name in ("list_id", "segment_id"):
        if state.get(name):
            raw[name] = int(state[name]) if state[name].isdecimal() and len(state[name]) < 19 else 0
    if state.get("of_list", "").isdecimal():
        raw["list_id"] = int(state["of_list"][:18])
    for name in ("search", "tag", "source"):
        if state.get(name):
            raw[name] = state[name]
    return ContactSearch(validation.read(store.ContactQuery, raw), parse_rules(state.get("filters", "")))


def parse_rules(text: str) -> list[Any]:
    """Parse the JSON list of filters in a URL. Raises Invalid if it is not such a list, else as `require_allowed`."""
    if not text:
        return []
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError:
        data = None
    if not isinstance(data, list):
        raise errors.Invalid({"filters": [gettext("is invalid")]})
    personal.require_allowed(data)
    return data


def _table_order(table: Table) -> Order:
    """Return the order in which a table of contacts is sorted."""
    order = ORDERS[table.sort.removeprefix("-")]
    return order._replace(is_descending=table.sort.startswith("-"))


def fill_table(account_id: int, table: Table, **more: Any) -> dict[int, Any]:
    """Set the rows, chips and filter labels of a table of contacts; return the account's lists by id.

    `more` are further values of the query, such as `list_id` on the page of a list. A filter for a deleted list or
    segment matches no contact, and the user can remove it.
    """
    all_lists = {row.id: row for row in lookups.list_contact_lists(account_id)}
    table.active_filters = describe_filters(account_id, table.state, all_lists)
    table.chips = status_chips() if more else status_chips(statuses.count_contacts(account_id))
    try:
        search = read_search(table.filter_params, **table.list_params, **more)
        table.results = store.fetch_page(account_id, search.query, _table_order(table), search.rules)
    except errors.Invalid:
        table.results = table.results._replace(rows=[], total=0)
    return all_lists


def status_chips(counts: statuses.StatusCounts | None = None) -> list[Chip]:
    """Return the chips of a table of contacts, with the number of contacts in each state if `counts` is given."""
    return [
        Chip("", pgettext("contacts", "All"), counts.total if counts else None),
        *(
            Chip(status, gettext(label), getattr(counts, status) if counts else None)
            for status, label in STATUS_LABELS.items()
        ),
    ]


def describe_filters(account_id: int, state: dict[str, str], all_lists: dict[int, Any]) -> list[ActiveFilter]:
    """Return the active filters that are not chips (quick filters) of the table, each with its query parameters."""
    filters = []
    if state.get("list_id"):
        filters.append(ActiveFilter(_list_filter_label(account_id, state["list_id"], all_lists), ("list_id",)))
    if state.get("segment_id"):
        filters.append(ActiveFilter(_segment_filter_label(account_id, state["segment_id"]), ("segment_id",)))
    if state.get("tag"):
        filters.append(ActiveFilter(gettext("Tag: %(tag)s", tag=state["tag"]), ("tag",)))
    if state.get("source"):
        filters.append(ActiveFilter(gettext("Source: %(source)s", source=state["source"]), ("source",)))
    if state.get("filters"):
        filters.append(ActiveFilter(_describe_rules(account_id, state["filters"]), ("filters",)))
    return filters


def _list_filter_label(account_id: int, text: str, all_lists: dict[int, Any]) -> str:
    number = int(text) if text.isdecimal() and len(text) < 19 else 0
    try:
        name = (all_lists.get(number) or lists.get(account_id, number)).name
    except errors.NotFound:
        return gettext("Deleted list")
    return gettext("List: %(name)s", name=name)


def _segment_filter_label(account_id: int, text: str) -> str:
    try:
        name = segments.get(account_id, int(text) if text.isdecimal() and len(text) < 19 else 0).name
    except errors.NotFound:
        return gettext("Deleted segment")
    return gettext("Segment: %(name)s", name=name)


def _describe_rules(account_id: int, text: str) -> str:
    """Return filters as a sentence, or a text that says that they cannot be read; `text` is their JSON from the URL."""
    try:
        return explain.describe_filters(
            account_id,
            segment_people.parse_filters(account_id, parse_rules(text)),
            segment_people.build_scope(account_id),
        )
    except errors.Invalid:
        return gettext("Invalid conditions")


_TEXT_FIELDS = ("first_name", "last_name", "country_code", "language")
_LISTS_PART = gettext_noop("Lists")
FORM_PARTS = typed_values.CustomDataParts(
    FormPart(gettext_noop("First name"), ("first_name",)), FormPart(gettext_noop("Last name"), ("last_name",)),
    FormPart(gettext_noop("Email"), ("email",)), FormPart(gettext_noop("Phone"), ("phone",)),
    FormPart(gettext_noop("Country"), ("country_code",)), FormPart(gettext_noop("Language"), ("language",)),
    FormPart(_LISTS_PART, ("list_ids",), True),
)  # fmt: skip


@pages.get("/", strict_slashes=False)
@signed_in("contacts:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of contacts."""
    table = tables.Table(
        request, "/contacts", formats.count_contacts, TABLE_COLUMNS, "-updated", TABLE_FILTERS
    )  # fmt: skip
    table.bulk_action_url = "/contacts/acts" if visit.can("contacts:write") else ""
    contact_lists = await scan(fill_table, visit.account_id, table)
    return tables.render_table(request, "contacts/index.html", table, lists=contact_lists)


@pages.get("/new")
@signed_in("contacts:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new contact. The query can contain a name or email address, and lists to select."""
    search = (request.args.get("like") or "").strip()
    form = Form({"email" if "@" in search else "first_name": search})
    form.lists["list_ids"] = request.args.getlist("list") or []
    return await _render_form(request, visit, form, None, 200)


@pages.post("/typo")
@signed_in("contacts:write")
async def show_typo(request: Request, visit: Visit) -> HTTPResponse:
    """Show the address that the user probably meant to type, if the domain of the typed one is a known typo."""
    suggestion = await fetch(suggest_address, Form.from_request(request)["email"])
    return view.render(request, "contacts/_typo.html", suggestion=suggestion)


@pages.post("/", strict_slashes=False)
@signed_in("contacts:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a contact; if another contact has the address, the error names that contact."""
    form = Form.from_request(request)
    if form["more"] or form["drop"]:
        return await _render_form(request, visit, form, None, 200)
    raw = _read_fields(form)
    raw["data"] = typed_values.parse_rows(form, typed_values.read_rows(form)) or None
    _complete_form_phone(visit, form)
    raw["email"], raw["phone"], raw["opt_in"] = form.text("email"), form.text("phone"), False
    consents = _read_consents(visit, form)
    if not (form["email"] or form["phone"] or form["first_name"] or form["last_name"]):
        form.add_error("email", gettext("Enter an email address, a phone number or a name."))
    try:
        raw = {name: value for name, value in raw.items() if value is not None}
        if form.errors:
            # Nothing is written, but the other errors are shown too.
            await fetch(_parse_contact, visit.account_id, raw)
            raise errors.Invalid({})
        created = await commit(_add_contact, visit.account_id, raw, visit.evidence(), consents, form["new_list"])
    except errors.Invalid as error:
        form = await _add_errors(visit, form, error, {"name": "new_list"})
        return await _render_form(request, visit, form, None, 422)
    view.flash(request, _added_message(created, bool(consents)))
    return view.redirect(request, f"/contacts/{created.contact.id}")


def _read_consents(visit: Visit, form: Form) -> dict[str, Evidence]:
    """Return the proof of consent for each kind of address, `email` and `phone`, that the form opts in.

    A missing address or proof is an error of the form.
    """
    consents = {}
    missing_address = {
        "email": gettext("Enter the email address that the contact agreed to be contacted at."),
        "phone": gettext("Enter the phone number that the contact agreed to be contacted at."),
    }
    for kind, message in missing_address.items():
        if form[f"opt_in_{kind}"] != "yes":
            continue
        form.require(kind, message)
        form.require(f"agreed_{kind}", gettext("Enter how the contact agreed. It is stored as proof of consent."))
        consents[kind] = visit.evidence()
        consents[kind].text = form[f"agreed_{kind}"][:1000] or None
    return consents


def _added_message(result: write.WriteResult, is_opt_in: bool) -> str:
    """Return the notice about a new contact, which says whether the contact is subscribed."""
    name = formats.contact_name(result.contact)
    if not result.contact.channels:
        return gettext("“%(name)s” was added.", name=name)
    if any(channel.subscribed for channel in result.contact.channels):
        if is_opt_in:
            return gettext("“%(name)s” was added and subscribed.", name=name)
        return gettext("“%(name)s” was added.", name=name)
    return gettext("“%(name)s” was added but is not subscribed, so campaigns skip this contact.", name=name)


def _parse_contact(account_id: int, raw: dict[str, Any]) -> store.ContactWrite:
    """Return the request for a new contact with the fields `raw`.

    Raises Invalid with all errors, also if another contact has one of the addresses.
    """
    faults = errors.Faults()
    used = [kind for kind in ("email", "phone") if raw.get(kind) and _has_owner(account_id, kind, raw[kind])]
    faults.merge({kind: [gettext("has already been taken")] for kind in used})
    body: store.ContactWrite | None = faults.collect(validation.read, store.ContactWrite, raw)
    if body is None:
        raise errors.Invalid(faults.fields)
    faults.collect(write.check, account_id, body)
    faults.check()
    return body


def _add_contact(
    account_id: int, raw: dict[str, Any], evidence: Evidence, consents: dict[str, Evidence], new_list: str
) -> write.WriteResult:
    """Create a contact, and a list for it if `new_list` is a name; both or neither.

    The addresses of the kinds in `consents` are opted in, each with its own evidence. Raises Invalid, also if another
    contact has one of the addresses, so that no contact is overwritten.
    """
    body = _parse_contact(account_id, raw)
    if new_list:
        created = lists.create(account_id, validation.read(lists.ListCreate, {"name": new_list}))
        body.list_ids = [*(body.list_ids or []), created.id]
    result = write.upsert(account_id, body, evidence)
    for channel in result.contact.channels:
        if channel.kind in consents:
            consent.apply_operator_choice(channel, True, consents[channel.kind])
    return result


def _has_owner(account_id: int, kind: str, text: str) -> bool:
    try:
        return lookups.find_owner(account_id, kind, text) is not None
    except ValueError:
        return False  # an invalid address is refused when the contact is created


@pages.get("/<contact_id:int>/edit")
@signed_in("contacts:write")
async def edit(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Show the form of a contact with the stored values."""
    contact = await fetch(store.get, visit.account_id, contact_id)
    form = _build_form(contact, await fetch(lookups.list_contact_lists, visit.account_id))
    return await _render_form(request, visit, forms.open_form(form, FORM_PARTS), contact, 200)


@pages.post("/<contact_id:int>")
@signed_in("contacts:write")
@forms.retry_on_change
async def update(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Save the form of a contact; if an address was changed, its channel is updated and not replaced."""
    form = Form.from_request(request)
    contact = await fetch(store.get, visit.account_id, contact_id)
    if form["more"] or form["drop"]:
        return await _render_form(request, visit, form, contact, 200)
    offered = await fetch(lookups.list_contact_lists, visit.account_id)
    forms.merge_form(
        form,
        FORM_PARTS,
        _build_form(contact, offered),
        {_LISTS_PART: {str(option.id): option.name for option in offered}},
    )
    if form.conflicts:
        return await _render_form(request, visit, form, contact, 409)
    if form["phone"] not in [channel.value for channel in contact.channels]:
        _complete_form_phone(visit, form)
    changed = _changed_channels(contact, form)
    raw = {**_read_fields(form), "channels_attributes": [body for _, body in changed]}
    # The form offers a limited number of lists; memberships of other lists are kept.
    raw["list_ids"] += await fetch(_unlisted_list_ids, contact, offered)
    # A form that does not show custom data leaves it unchanged. Fields added since the form was opened are kept.
    if "data_shown" in form.values:
        shown_keys = set(form["data_shown"].split("\n"))
        stored = {key: value for key, value in contact.data.items() if key not in shown_keys or key == "tags"}
        raw["data"] = stored | typed_values.parse_rows(form, typed_values.read_rows(form))
    try:
        if form.errors:
            raise errors.Invalid({})
        body = validation.read(store.ContactPatch, raw)
        args = (write.update, visit.account_id, contact_id, body, visit.evidence())
        await commit(
            forms.write_if_unchanged,
            form,
            FORM_PARTS,
            lambda: _build_form(store.get(*args[1:3]), offered),
            *args,
        )
    except errors.Invalid as error:
        at = {f"channels_attributes[{index}].value": kind for index, (kind, _) in enumerate(changed)}
        return await _render_form(request, visit, await _add_errors(visit, form, error, at), contact, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/contacts/{contact_id}")


@pages.get("/<contact_id:int>/delete")
@signed_in("contacts:write")
async def confirm_delete(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Show the page on which deleting a contact is confirmed."""
    contact = await fetch(store.get, visit.account_id, contact_id)
    return view.render(request, "contacts/delete.html", contact=contact)


@pages.post("/<contact_id:int>/delete")
@signed_in("contacts:write")
async def delete(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Delete a contact permanently; an opt-out is kept as a hash of the address."""
    deleted = await commit(
        audit.run_and_record, visit.actor, "contact_delete", removal.delete, visit.account_id, contact_id
    )
    view.flash(request, gettext("“%(name)s” was deleted.", name=formats.contact_name(deleted)))
    return view.redirect(request, "/contacts")


@pages.post("/<contact_id:int>/erase")
@signed_in("contacts:write")
async def erase_person(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Erase a contact and all its data; only a suppression with a hash of each address remains."""
    contact = await fetch(store.get, visit.account_id, contact_id)
    args = (removal.erase, visit.account_id, contact_id, visit.evidence())
    await commit(audit.run_and_record, visit.actor, "contact_erase", *args)
    view.flash(request, gettext("“%(name)s” was permanently deleted.", name=formats.contact_name(contact)))
    return view.redirect(request, "/contacts")


def _build_form(contact: Any, offered: list[Any]) -> Form:
    """Return the form with the stored values of a contact; `offered` are the lists of the form.

    Lists that mirror a segment are left out, since contacts cannot be added to them.
    """
    form = Form({name: getattr(contact, name) or "" for name in _TEXT_FIELDS} | {"email": "", "phone": ""})
    for kind in ("email", "phone"):
        form.values[kind] = next((channel.value for channel in contact.channels if channel.kind == kind), "")
    choices = {option.id for option in offered if option.segment_id is None}
    form.lists["list_ids"] = [str(id_) for id_ in contact.list_ids if id_ in choices]
    for row in typed_values.build_rows(contact.data):
        for name, value in zip(typed_values.FIELD_NAMES, row, strict=True):
            form.lists.setdefault(name, []).append(value)
    return form


def _unlisted_list_ids(contact: Any, offered: list[Any]) -> list[int]:
    """Return the ids of the contact's lists that the form does not offer, without mirrors of segments."""
    unlisted_ids = set(contact.list_ids) - {option.id for option in offered}
    return [list_id for list_id in unlisted_ids if lists.get(contact.account_id, list_id).segment_id is None]


def _complete_form_phone(visit: Visit, form: Form) -> None:
    """Rewrite the phone number of a form in E.164; without a country code it belongs to the country of the form."""
    form.values["phone"] = lookups.complete_phone(visit, form["phone"], form["country_code"])


def _read_fields(form: Form) -> dict[str, Any]:
    raw: dict[str, Any] = {name: form.text(name) for name in _TEXT_FIELDS}
    return {**raw, "list_ids": form.ids("list_ids")}


def _changed_channels(contact: Any, form: Form) -> list[tuple[str, dict[str, Any]]]:
    """Return the changes of the first email address and phone number as (kind, `channels_attributes` item)."""
    changes: list[tuple[str, dict[str, Any]]] = []
    for kind in ("email", "phone"):
        present = next((channel for channel in contact.channels if channel.kind == kind), None)
        if present and not form[kind]:
            changes.append((kind, {"id": present.id, "_destroy": True}))
        elif present and form[kind] != present.value:
            changes.append((kind, {"id": present.id, "value": form[kind]}))
        elif not present and form[kind]:
            # An added address has no consent yet. It can be subscribed on the contact's page.
            changes.append((kind, {"value": form[kind], "kind": kind, "subscribed": False}))
    return changes


async def _render_form(request: Request, visit: Visit, form: Form, contact: Any, status: int) -> HTTPResponse:
    contact_lists = await fetch(lookups.list_contact_lists, visit.account_id)
    data = typed_values.read_rows(form) + ([typed_values.DataRow("", "text", "")] if form["more"] else [])
    shown_keys = "\n".join(key for key in contact.data if key != "tags") if contact else ""
    shown_keys = form.values.get("data_shown", shown_keys)
    return view.render(
        request, "contacts/form.html", status, form=form,
        suggestion=await fetch(suggest_address, form["email"]), contact=contact, lists=contact_lists, data=data,
        shown_keys=shown_keys, headings=await fetch(imports.list_data_labels, visit.account_id),
        kinds=typed_values.VALUE_KINDS, is_date=typed_values.is_date,
        country=dict(lookups.country_names()).get(visit.account.country_code or ""),
        countries=lookups.country_options(gettext("No country"), form["country_code"]),
        languages=lookups.language_options(gettext("Unknown"), form["language"]),
    )  # fmt: skip


async def _add_errors(visit: Visit, form: Form, error: errors.Invalid, names: dict[str, str]) -> Form:
    """Add the errors of an Invalid to the form, and return the form.

    The error of a taken address links to the contact that has it.
    """
    for path, messages in error.fields.items():
        kind = names.get(path, path)
        if (
            kind == "phone"
            and is_message(messages[0], IS_INVALID)
            and (fault := lookups.find_phone_error(visit, form["phone"], form["country_code"]))
        ):
            form.add_error(kind, fault)
        if kind not in ("email", "phone") or not is_message(messages[0], IS_TAKEN):
            continue
        if owner := await fetch(lookups.find_owner, visit.account_id, kind, form[kind]):
            form.add_error(kind, _taken_message(kind, owner))
    return form.add_errors(error, names) if error.fields else form


def _taken_message(kind: str, owner: Any) -> Markup:
    name = escape(formats.contact_name(owner))
    text = (
        gettext("This email address already belongs to %(name)s.", name=name)
        if kind == "email"
        else gettext("This phone number already belongs to %(name)s.", name=name)
    )
    return Markup('{} <a href="/contacts/{}">{}</a>').format(Markup(text), owner.id, gettext("View contact"))  # noqa: S704 - the name is escaped


# Advanced filters of the table, edited with the rows of the filter builder.


@pages.get("/filter", strict_slashes=False)
@signed_in("contacts:read")
async def edit_filter(request: Request, visit: Visit) -> HTTPResponse:
    """Show the active rules of the table in the filter builder; the Apply button redirects to the filtered table."""
    posted: dict[str, list[str]] = {name: list(values) for name, values in request.args.items()}
    state = {name: tables.query_text(request, name) for name in ("search", *TABLE_FILTERS) if request.args.get(name)}
    if "rows" not in posted:
        return await _render_filter(
            request, visit, Form(), await fetch(_load_rows, visit.account_id, state.get("filters", "")), state, 200
        )
    rows = FilterRows.from_form(posted)
    if rows.apply_action(posted) or "go" not in posted:
        return await _render_filter(request, visit, Form(), rows, state, 200)
    try:
        await fetch(segment_people.parse_filters, visit.account_id, rows.to_filters())
    except errors.Invalid as error:
        return await _render_filter(request, visit, Form(), rows, state, 422, error)
    state["filters"] = msgspec.json.encode(rows.to_filters()).decode() if rows.to_filters() else ""
    return view.redirect(request, f"/contacts{formats.query_string(state)}")


@pages.post("/filter", strict_slashes=False)
@signed_in("contacts:write")
async def save_as_segment(request: Request, visit: Visit) -> HTTPResponse:
    """Save the rules of the filter builder as a segment, and redirect to its contacts."""
    form = Form.from_request(request)
    rows = FilterRows.from_form(form.lists)
    form.require("name", gettext("Enter a name for the segment, for example Regulars in Berlin."))
    try:
        if form.errors:
            raise errors.Invalid({})
        raw = {"name": form["name"], "filters": rows.to_filters()}
        created = await commit(segments.create, visit.account_id, validation.read(SegmentCreate, raw))
    except errors.Invalid as error:
        if has_message(error, "name", IS_TAKEN):
            form.add_error("name", gettext("Another segment has this name."))
        return await _render_filter(request, visit, form, rows, {}, 422, error)
    view.flash(request, gettext("Segment “%(name)s” created. It updates automatically.", name=created.name))
    return view.redirect(request, f"/contacts?segment_id={created.id}")


def _load_rows(account_id: int, text: str) -> FilterRows:
    """Return the rows of filters in a URL, or one blank row if the URL has no filters or invalid ones."""
    try:
        rules = parse_rules(text)
        segment_people.parse_filters(account_id, rules)
    except errors.Invalid:
        rules = []
    return FilterRows.from_filters(rules) if rules else FilterRows.blank()


async def _render_filter(
    request: Request, visit: Visit, form: Form, rows: FilterRows, state: dict[str, Any], status: int,
    error: errors.Invalid | None = None,
) -> HTTPResponse:  # fmt: skip
    filter_view = await filter_builder.load_view(visit.account_id, rows)
    if error is not None:
        # `to_filters` sets the error paths of the rows.
        rows.to_filters()
        rows.add_errors(error)
    state = {name: value for name, value in state.items() if name != "filters"}
    return view.render(
        request, "contacts/filter.html", status, form=form, filter_view=filter_view, state=state,
        may_keep=visit.can("contacts:write"),
    )  # fmt: skip
