"""The pages of imports: upload, column mapping, check, apply and undo."""

import asyncio
import secrets
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit
from appliance.core import addresses, clock, errors, uploads, validation
from appliance.core.i18n import gettext, gettext_noop
from appliance.imports import columns, detection, outcome_counts, removal, results, store
from appliance.imports.store import ImportForm, ImportOptions, ImportQuery, Upload
from appliance.settings import config
from appliance.storage.models import Import
from appliance.storage.transactions import commit, fetch
from ui import formats, view
from ui.forms import Form, list_params, lookups
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_imports", url_prefix="/contacts/imports")


CUSTOM_FIELD = "own"
# The targets of custom fields, with the type in `ImportOptions.column_types`; "": by the values of the column
CUSTOM_TYPES = {CUSTOM_FIELD: "", "own-number": "number", "own-date": "date", "own-text": "text"}
# The targets that a column can have, with their labels, by group; they are translated on the page.
TARGET_GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (gettext_noop("Addresses"), (("email", gettext_noop("Email")), ("phone", gettext_noop("Phone")))),
    (gettext_noop("Contact"), (
        ("name", gettext_noop("Full name")), ("first_name", gettext_noop("First name")),
        ("last_name", gettext_noop("Last name")), ("country_code", gettext_noop("Country")),
        ("language", gettext_noop("Language")),
        ("source", gettext_noop("Source")), ("tags", gettext_noop("Tags")), ("lists", gettext_noop("Lists (names)")),
    )),
    (gettext_noop("Consent"), (
        ("subscribed_email", gettext_noop("Subscribed to email (yes or no)")),
        ("subscribed_phone", gettext_noop("Subscribed to SMS (yes or no)")),
        ("status", gettext_noop("Status (subscribed, unsubscribed …)")),
        ("unsubscribed", gettext_noop("Unsubscribed (yes or date)")),
        ("bounced", gettext_noop("Bounced (yes or date)")), ("opt_in_at", gettext_noop("Subscribed on (date)")),
        ("opt_out_at", gettext_noop("Unsubscribed on (date)")),
        ("verified", gettext_noop("Address confirmed (yes or no)")),
        ("tracking", gettext_noop("Tracking (full, aggregate or none)")),
        ("opted_out_by", gettext_noop("Unsubscribed by")),
    )),
    (gettext_noop("Other"), (
        (CUSTOM_FIELD, gettext_noop("Custom field")), ("own-number", gettext_noop("Custom field (number)")),
        ("own-date", gettext_noop("Custom field (date)")), ("own-text", gettext_noop("Custom field (text)")),
        ("data", gettext_noop("Several custom fields (JSON)")), ("channels", gettext_noop("Addresses (JSON)")),
    )),
)  # fmt: skip
SUPPRESSION_TARGET_GROUPS = (
    (gettext_noop("Addresses"), (("email", gettext_noop("Email")), ("phone", gettext_noop("Phone")))),
    (gettext_noop("Details"), (
        ("reason", gettext_noop("Reason (bounced, complaint, manual …)")), ("note", gettext_noop("Note")),
    )),
)  # fmt: skip
# Targets that several columns of a file may have.
_REPEATABLE_TARGETS = ("phone", "tags", "unsubscribed", "bounced", "")


class ImportColumn(NamedTuple):
    """A column of the mapping form: its name, sample values, target, and the name of the custom field it goes to.

    `full_names` has a few values as (text, how it is split if the column has full names). `day_numbers` has the sample
    values that are day numbers of a spreadsheet as (text, date in ISO 8601).
    """

    name: str
    samples: list[str]
    to: str
    key: str
    full_names: list[tuple[str, detection.SplitName]]
    day_numbers: list[tuple[str, str]]


def build_columns(job: Import, form: Form) -> list[ImportColumn]:
    """Return the columns of the mapping form; targets in a posted form take precedence over the stored ones."""
    items = []
    options = store.get_options(job)
    types, mapped = options.column_types, options.map
    for index, column in enumerate(job.columns):
        target = str(column["target"])
        own = (
            target[5:]
            if target.startswith("data.")
            else columns.normalize_name(column["name"]) or f"column_{index + 1}"
        )
        to = target
        if target.startswith("data."):
            type_ = types.get(column["name"], "")
            to = f"{CUSTOM_FIELD}-{type_}" if type_ else CUSTOM_FIELD
        samples = [*dict.fromkeys(sample for sample in column["samples"] if sample.strip())]
        if f"to-{index}" in form.values:
            to, own = form[f"to-{index}"], form[f"key-{index}"] or own
        elif job.phase == store.MAPPING and not samples and to in CUSTOM_TYPES and column["name"] not in mapped:
            to = ""  # A column without values would become an empty custom field.
        elif job.phase == store.MAPPING and to == CUSTOM_FIELD and columns.has_day_numbers(column["name"], samples):
            to = "own-date"
        full_names = [(text, detection.split_name(text)) for text in column.get("full_names", samples)]
        dates = [(text, moment) for text in samples if (moment := columns.convert_day_number(text.strip()))]
        items.append(ImportColumn(column["name"], samples, to, own, full_names, dates))
    return items


def _read_mapping(job: Import, form: Form) -> dict[str, str]:
    """Return the target of each column by the column's name.

    Adds errors to the form for duplicate targets, and if no column has addresses.
    """
    mapping: dict[str, str] = {}
    used: dict[str, str] = {}
    for index, column in enumerate(job.columns):
        to, name = form[f"to-{index}"], column["name"]
        if to in CUSTOM_TYPES:
            key = form[f"key-{index}"] or columns.normalize_name(name) or f"column_{index + 1}"
            mapping[name] = f"data.{key}"
            if mapping[name] in used:
                form.add_error(
                    f"to-{index}",
                    gettext(
                        "“%(column)s” already has this custom field. Enter another name.", column=used[mapping[name]]
                    ),
                )
        else:
            mapping[name] = to
            if to in used and to not in _REPEATABLE_TARGETS:
                form.add_error(
                    f"to-{index}",
                    gettext("“%(column)s” is already mapped to this field. Select one of the two.", column=used[to]),
                )
        used.setdefault(mapping[name], name)
    if not {"email", "phone", "channels"} & set(mapping.values()):
        form.add_error("columns", gettext("Select the column with the email addresses or phone numbers."))
    return mapping


def _read_types(job: Import, form: Form) -> dict[str, str]:
    """Return the chosen types of columns that go to custom fields, by the column's name."""
    return {
        column["name"]: type_
        for index, column in enumerate(job.columns)
        if (type_ := CUSTOM_TYPES.get(form[f"to-{index}"]))
    }


def read_options(job: Import, form: Form) -> dict[str, Any]:
    """Return the import options of a posted form; adds errors to the form for missing options."""
    if job.resource == "suppressions":
        return {"map": _read_mapping(job, form)}
    form.require("consent_source", gettext("Enter where these contacts come from. It is stored as proof of consent."))
    form.require("opt_in", gettext("Select whether these contacts are subscribed."))
    new = form.text("new_list")
    mapping = _read_mapping(job, form)
    opt_in_phone = None
    if form["opt_in"] == "yes" and "phone" in mapping.values():
        form.require("opt_in_phone", gettext("Select whether the phone numbers are subscribed to SMS."))
        opt_in_phone = form["opt_in_phone"] == "yes"
    return {
        "map": mapping, "opt_in_phone": opt_in_phone,
        "opt_in_unstated": form["opt_in_unstated"] == "yes",
        "list_ids": form.ids("list_ids"), "list_names": [new] if new else [],
        "on_conflict": "skip" if form["on_conflict"] == "skip" else "merge", "opt_in": form["opt_in"] != "no",
        "consent_source": form["consent_source"][:1000], "trigger_flows": form["trigger_flows"] == "yes",
        "default_country": form.text("default_country"), "date_order": form.text("date_order"),
        "decimal_mark": form.text("decimal_mark"), "column_types": _read_types(job, form),
    }  # fmt: skip


def build_options_form(job: Import, country: str) -> Form:
    """Return the form with the options of an import; a new one proposes `country` as the default for phone numbers."""
    options: ImportOptions = store.get_options(job)
    is_new = job.phase == store.MAPPING
    form = Form(
        {
            # Whether the contacts are subscribed is not preselected, so that it is a deliberate choice.
            "on_conflict": options.on_conflict, "opt_in": "" if is_new else "yes" if options.opt_in else "no",
            "opt_in_phone": "" if is_new or options.opt_in_phone is None else "yes" if options.opt_in_phone else "no",
            "opt_in_unstated": "yes" if options.opt_in_unstated and not is_new else "no",
            "consent_source": options.consent_source or "", "trigger_flows": "yes" if options.trigger_flows else "",
            "new_list": ", ".join(options.list_names[:1]), "date_order": options.date_order or "",
            "decimal_mark": options.decimal_mark or "",
            "default_country": options.default_country or (country if is_new else ""),
        }
    )  # fmt: skip
    form.lists["list_ids"] = [str(id_) for id_ in options.list_ids]
    return form


def has_ambiguous_dates(job: Import) -> bool:
    """Return whether a column has dates that can be read as day-month or as month-day, as far as its samples show."""
    return any(
        column.get("dates") in ("ambiguous", "mixed")
        or any((date := columns.parse_date(sample)) is not None and not date.is_clear for sample in column["samples"])
        for column in job.columns
    )


# The country of the example if neither the import nor the account nor the file has one
_EXAMPLE_COUNTRY = "GB"


# Shorter ones, such as extensions and mistakes, are not examples of phone numbers.
_MIN_LOCAL_DIGITS = 7


def _find_local_phone(columns_shown: list[ImportColumn], country: str) -> str:
    """Return a phone number of the file without a country code, or an example of one.

    The example is from `country` (two letters or empty), else from the country of a phone number of the file.
    """
    samples = [sample.strip() for column in columns_shown if column.to == "phone" for sample in column.samples]
    for sample in samples:
        is_long = sum(character.isdecimal() for character in sample) >= _MIN_LOCAL_DIGITS
        if is_long and sample.lstrip("(")[:1].isdecimal() and not sample.startswith("00"):
            return sample
    countries = [country, *(addresses.country_of_phone(sample) for sample in samples), _EXAMPLE_COUNTRY]
    return next(example for code in countries if code and (example := addresses.example_phone(code)))


class NumberReading(NamedTuple):
    """An example of how a column of numbers is read: its position and name, a value, and the number that it becomes."""

    position: int
    name: str
    text: str
    number: int | float


def build_number_readings(job: Import) -> list[NumberReading]:
    """Return an example of how each column of numbers is read.

    Columns without an example that can be converted are left out.
    """
    readings = []
    for index, column in enumerate(job.columns):
        if column.get("numbers"):
            number, _ = detection.convert_number(column["number_example"], column["numbers"])
            if number is not None:
                readings.append(NumberReading(index, column["name"], column["number_example"], number))
    return readings


# A file that is too large is read up to this multiple of the limit, because a browser that is cut off while sending
# shows no error page.
_MAX_DRAIN_FACTOR = 2
# The reviews of the last `_MAX_REVIEWS` files, by import id and time of the check.
_reviews: dict[tuple[int, int], tuple[results.FileReview, results.OutcomeReview]] = {}
_MAX_REVIEWS = 8


@pages.get("/", name="index", strict_slashes=False)
@signed_in(access.FULL_SCOPE)
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show all imports, newest first."""
    raw, _ = list_params(request, 50)
    raw.pop("search", None)
    page = await fetch(store.fetch_page, visit.account_id, validation.read(ImportQuery, raw))
    repeats = {row.id: outcome_counts.count_repeated(row) for row in page.rows}
    return view.render(request, "imports/index.html", page=page, repeats=repeats, may_write=_can_edit(visit))


@pages.get("/new", name="new")
@signed_in(access.FULL_SCOPE)
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the upload form of a new import."""
    return _render_new(request, visit, Form({"resource": request.args.get("of") or "contacts"}), 200)


@pages.post("/", name="create", strict_slashes=False, stream=True)
@signed_in("contacts:write")
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Receive a file, create an import from it, and redirect to the mapping of its columns."""
    target = await asyncio.to_thread(store.import_directory) / f"incoming-{secrets.token_hex(8)}"
    form = Form({"resource": "contacts"})
    try:
        upload = await _receive_file(request, target, form)
        preview = await asyncio.to_thread(store.preview, upload, mapped=False)
        created = await commit(store.create_unmapped, visit.account_id, upload, preview, visit.actor_id)
    except errors.Invalid as error:
        form.add_error("file", formats.sentence(next(iter(error.fields.values()))[0]))
        return _render_new(request, visit, form, 422)
    finally:
        await asyncio.to_thread(target.unlink, missing_ok=True)
    return view.redirect(request, f"/contacts/imports/{created.id}")


@pages.get("/<import_id:int>", name="show")
@signed_in(access.FULL_SCOPE)
async def show(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Show an import at its stage: column mapping, check, progress or result."""
    return await _render_import(request, visit, import_id, None, 200)


@pages.post("/<import_id:int>", name="check")
@signed_in("contacts:write")
async def check_file(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Check the file of an import with the options of the form; nothing is imported."""
    row = await fetch(store.get, visit.account_id, import_id)
    form = Form.from_request(request)
    raw = read_options(row, form)
    try:
        if form.errors:
            raise errors.Invalid({})
        await _read_again(visit, import_id, validation.read(ImportOptions, raw), store.check)
    except errors.Invalid as error:
        if error.fields:
            form.add_errors(error, {"list_names[0]": "new_list"})
        return await _render_import(request, visit, import_id, form, 422)
    return view.redirect(request, f"/contacts/imports/{import_id}")


@pages.post("/<import_id:int>/dates", name="dates")
@signed_in("contacts:write")
async def set_date_order(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Check the file of an import again with the date order that the user chose."""
    return await _check_with(request, visit, import_id, date_order=Form.from_request(request).text("date_order"))


@pages.post("/<import_id:int>/numbers", name="numbers")
@signed_in("contacts:write")
async def set_decimal_mark(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Check the file of an import again with the decimal mark that the user chose."""
    return await _check_with(request, visit, import_id, decimal_mark=Form.from_request(request).text("decimal_mark"))


@pages.post("/<import_id:int>/columns/<column:int>/type", name="column_type")
@signed_in("contacts:write")
async def set_column_type(request: Request, visit: Visit, import_id: int, column: int) -> HTTPResponse:
    """Check the file of an import again with the type that the user chose for a column.

    `column` is the position of the column from 0. Raises NotFound if the file has no such column.
    """
    row = await fetch(store.get, visit.account_id, import_id)
    if column >= len(row.columns):
        raise errors.NotFound
    name = row.columns[column]["name"]
    types: dict[str, str] = {**store.get_options(row).column_types}
    types.pop(name, None)
    if type_ := Form.from_request(request).text("type"):
        types[name] = type_
    return await _check_with(request, visit, import_id, column_types=types)


async def _check_with(request: Request, visit: Visit, import_id: int, **changes: Any) -> HTTPResponse:
    """Check the file of an import again with some changed options, and redirect to it."""
    row = await fetch(store.get, visit.account_id, import_id)
    raw = msgspec.to_builtins(store.get_options(row)) | changes
    return await _run_and_show(
        request, import_id, _read_again(visit, import_id, validation.read(ImportOptions, raw), store.check)
    )


@pages.post("/<import_id:int>/apply", name="apply")
@signed_in("contacts:write")
async def apply_import(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Apply an import that was checked. Raises Invalid if its columns are not mapped yet."""
    row = await fetch(store.get, visit.account_id, import_id)
    if row.phase == store.MAPPING:
        raise errors.Invalid({}, message=gettext("Map the columns of the file first."))
    return await _run_and_show(request, import_id, _read_again(visit, import_id, store.get_options(row), store.apply))


@pages.post("/<import_id:int>/stop", name="stop")
@signed_in("contacts:write")
async def stop_import(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Cancel an import; contacts that it has written already stay until the import is undone."""
    return await _run_and_show(
        request,
        import_id,
        commit(audit.run_and_record, visit.actor, "import_cancel", store.cancel, visit.account_id, import_id),
    )


@pages.post("/<import_id:int>/undo", name="undo")
@signed_in("contacts:write")
async def undo_import(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Undo an import."""
    return await _run_and_show(
        request,
        import_id,
        commit(audit.run_and_record, visit.actor, "import_undo", store.undo, visit.account_id, import_id),
    )


@pages.post("/<import_id:int>/discard", name="discard")
@signed_in("contacts:write")
async def discard(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Delete an import that has not written anything, and its file."""
    deleted = await commit(store.discard, visit.account_id, import_id)
    if deleted.filename:
        view.flash(request, gettext("“%(name)s” was discarded. Nothing was imported.", name=deleted.filename))
    else:
        view.flash(request, gettext("The file was discarded. Nothing was imported."))
    return view.redirect(request, "/contacts/imports")


@pages.get("/<import_id:int>/results", name="results")
@signed_in(access.FULL_SCOPE)
async def download_results(request: Request, visit: Visit, import_id: int) -> HTTPResponse | None:
    """Download the result of each line of an import as CSV.

    The query's `only` is a key of `results.LINE_FILTERS`, such as `problems`, and selects lines.
    """
    row = await fetch(store.get, visit.account_id, import_id)
    only = request.args.get("only")
    only = only if only in results.LINE_FILTERS else None
    lines = results.stream_results(visit.account_id, import_id, only)
    name = f"import-{import_id}-{only or 'results'}.csv"
    await audit.record_export(visit.actor, visit.account_id, name, (), await _count_lines(row, only))
    return await view.stream_file(request, name, "text/csv; charset=utf-8", lines)


async def _run_and_show(request: Request, import_id: int, act: Awaitable[Any]) -> HTTPResponse:
    """Await an action and redirect to the import; if its state no longer allows the action, a notice says so."""
    try:
        await act
    except errors.Invalid as error:
        if error.reason != "invalid_transition":
            raise
        view.flash(request, gettext("The import has changed in the meantime. This is its current state."))
    return view.redirect(request, f"/contacts/imports/{import_id}")


async def _count_lines(job: Import, only: str | None) -> int:
    """Return the number of lines that a key of `results.LINE_FILTERS` selects, all lines for None."""
    if only is None:
        return int(job.total)
    file_review, outcome_review = await _load_review(job)
    counted: dict[str, Any] = {"problems": job.failed, "warnings": job.warnings}
    if file_review is not None and outcome_review is not None:
        counted |= {"repeats": file_review.doubles.number, "roles": file_review.roles.number}
        counted["typos"] = file_review.typos.number
        counted |= {
            group: lines.number
            for group, lines in outcome_review._asdict().items()
            if isinstance(lines, results.CountedLines)
        }
    return int(counted.get(only, 0))


def _can_edit(visit: Visit) -> bool:
    return visit.can("contacts:write")


def _render_new(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    limit = config.current().limits.import_bytes
    return view.render(request, "imports/new.html", status, form=form, max_bytes=limit, may_write=_can_edit(visit))


async def _read_again(visit: Visit, import_id: int, body: ImportOptions, verb: Any) -> None:
    upload, preview = await fetch(store.preview_again, visit.account_id, import_id, body)
    args = (verb, visit.account_id, import_id, upload, preview, visit.actor_id)
    await (commit(audit.run_and_record, visit.actor, "import_create", *args) if verb is store.apply else commit(*args))


async def _receive_file(request: Request, target: Path, form: Form) -> Upload:
    """Write the uploaded file of a form to `target`; raises Invalid at `file`.

    The resource (contacts or suppressions) is set in `form`, so that a refused form shows it again.
    """
    stream: Any = request.stream
    limit = config.current().limits.import_bytes
    try:
        upload = await uploads.receive(request.headers, stream, target, limit)
    except uploads.NotAForm:
        raise errors.Invalid({"file": [gettext("Select a file.")]}) from None
    except uploads.MalformedForm:
        raise errors.Invalid({"file": [gettext("The upload was interrupted. Try again.")]}) from None
    except uploads.TooLarge:
        remaining_bytes = _MAX_DRAIN_FACTOR * limit
        while remaining_bytes > 0 and (piece := await stream.read()):
            remaining_bytes -= len(piece)
        message = gettext("This file is larger than %(size)s. Split it into parts.", size=formats.size(limit))
        raise errors.Invalid({"file": [message]}) from None
    form.values["resource"] = upload.texts.get("resource", "contacts")
    if not upload.filename and not upload.size:
        raise errors.Invalid({"file": [gettext("Select a file.")]})
    kind = validation.read(ImportForm, {"resource": form["resource"]}).resource
    return Upload(str(target), upload.filename or "", upload.size, kind, ImportOptions(), True)


async def _render_import(
    request: Request, visit: Visit, import_id: int, form: Form | None, status: int
) -> HTTPResponse:
    row = await fetch(store.get, visit.account_id, import_id)
    state = _page_state(row, form is not None or request.args.get("columns") == "yes")
    stored = await asyncio.to_thread(store.has_file, import_id)
    context: dict[str, Any] = {"lists": [], "file_review": None, "outcome_review": None, "countries": []}
    context["undo"] = await fetch(removal.forecast_undo, row) if state == "done" and _can_be_undone(row) else None
    country = visit.account.country_code or clock.country_of_time_zone(visit.account.time_zone) or ""
    form = form or build_options_form(row, country)
    if state == "columns":
        context["countries"] = await asyncio.to_thread(
            lookups.country_options, gettext("None: do not import these numbers")
        )
    if state in ("columns", "checked", "done", "undone"):
        context["lists"] = await fetch(lookups.list_contact_lists, visit.account_id)
    if state in ("checked", "done"):
        context["file_review"], context["outcome_review"] = await _load_review(row)
    shown_columns = build_columns(row, form)
    return view.render(
        request, "imports/show.html", status, job=row, state=state, has_file=stored, form=form,
        options=store.get_options(row),
        columns=shown_columns, local_phone=_find_local_phone(shown_columns, form["default_country"] or country),
        groups=SUPPRESSION_TARGET_GROUPS if _is_suppression_import(row) else TARGET_GROUPS,
        may_write=_can_edit(visit), needs_date_order=has_ambiguous_dates(row),
        number_readings=build_number_readings(row), read_day_number=columns.convert_day_number,
        arriving=outcome_counts.count_page_states(row),
        repeats=outcome_counts.count_repeated(row), why=outcome_counts.count_reasons(row), **context,
    )  # fmt: skip


def _can_be_undone(job: Import) -> bool:
    """Return whether the page of a finished import offers to undo it."""
    return bool(job.undo_until and job.created + job.updated)


def _is_suppression_import(job: Import) -> bool:
    return bool(job.resource == "suppressions")


def _page_state(job: Import, wants_columns: bool) -> str:
    """Return the stage of an import, which selects what its page shows; `wants_columns` returns to the mapping."""
    if job.phase in ("undoing", "undone"):
        return str(job.phase)
    if job.status in store.OPEN_STATUSES:
        return "checking" if job.dry_run else "importing"
    if not job.dry_run:
        return "failed" if job.status == "failed" else "done"
    if job.status == "failed" and not wants_columns:
        return "failed"
    return "checked" if job.status == "complete" and job.phase is None and not wants_columns else "columns"


async def _load_review(job: Import) -> tuple[results.FileReview | None, results.OutcomeReview | None]:
    """Return the reviews of a checked file and of its outcome, cached for each check; (None, None) without its file."""
    key = (job.id, job.completed_at or 0)
    if key not in _reviews:
        path = store.import_directory(job.id) / "staging.db"
        review = await asyncio.to_thread(results.review_file, path)
        if review is None:
            return None, None
        reviewer = results.OutcomeReviewer(job.id)
        while await fetch(reviewer.load_next):
            pass
        summary = await asyncio.to_thread(reviewer.build_review, job, path)
        while len(_reviews) >= _MAX_REVIEWS:
            _reviews.pop(next(iter(_reviews)))
        _reviews[key] = review, summary
    return _reviews[key]
