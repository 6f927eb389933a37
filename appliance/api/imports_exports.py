"""Endpoints of imports and exports."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, defstruct
from msgspec.structs import fields as struct_fields

from appliance.accounts import audit
from appliance.accounts.access import EXPORT_SCOPE, FULL_SCOPE
from appliance.api import http as api_http
from appliance.api.auth import require_scope
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes
from appliance.api.http import page_headers
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.store import ContactQuery
from appliance.core import validation
from appliance.core.clock import iso
from appliance.core.errors import Faults, Invalid
from appliance.core.validation import PageQuery
from appliance.events import log
from appliance.events.listing import Moment
from appliance.events.log import EventQuery
from appliance.exports import records, streaming
from appliance.flows import runs
from appliance.flows.runs import RunQuery
from appliance.imports import outcome_counts, results, store
from appliance.imports.file_reader import FilePreview
from appliance.imports.store import DryRunQuery, ImportForm, ImportOptions, ImportQuery, Upload
from appliance.sending.messages import ledger
from appliance.sending.messages.ledger import MessageQuery
from appliance.settings import config
from appliance.storage import models
from appliance.storage.database import Page
from appliance.storage.transactions import commit, fetch, scan

ROUTES = Routes()


class ImportColumn(Struct):
    """A column of the file: the field to which it is mapped, sample values, and the format of dates or numbers."""

    name: str
    target: Annotated[str, Meta(description="field to which the column is mapped; empty if it is not imported")]
    samples: Annotated[list[str], Meta(description="values of the first rows")]
    dates: (
        Annotated[
            Literal["clear", "dmy", "mdy", "ambiguous", "mixed"],
            Meta(
                description="date format of the column: unambiguous (`clear`), day first (`dmy`), month first "
                "(`mdy`), either (`ambiguous`), or both (`mixed`); null if it holds no dates. "
                "Ambiguous and mixed dates are stored as text, others as ISO 8601"
            ),
        ]
        | None
    ) = None
    numbers: (
        Annotated[
            Literal["clear", ",", ".", "ambiguous", "mixed"],
            Meta(
                description="decimal mark of a column of numbers that are converted, such as `1.234,50 €`: comma, "
                "point, none needed (`clear`), either (`ambiguous`), or both (`mixed`); null if no value needs it"
            ),
        ]
        | None
    ) = None
    unstated: Annotated[
        int, Meta(description="in a column of consent: rows that say neither yes nor no in any such column")
    ] = 0


class ImportArriving(Struct):
    """How many contacts of the file are subscribed, unsubscribed or suppressed after the import, and why."""

    subscribed: Annotated[int, Meta(description="contacts whose address is subscribed")]
    unsubscribed: Annotated[int, Meta(description="contacts whose address is not subscribed")]
    suppressed: Annotated[int, Meta(description="contacts whose address is suppressed")]
    reasons: Annotated[
        dict[str, int],
        Meta(
            description="why contacts are not subscribed: the `file` opts them out, they opted out `before`, the file "
            "only says that they are not subscribed (`inactive`), it says neither yes nor no (`unstated`), the import "
            "opts in nobody (`not_opted_in`) or no phone numbers (`sms_not_opted_in`, contacts without an email "
            "address), or the reason of the suppression"
        ),
    ]


class ImportLeftInPlace(Struct):
    """How many contacts that the import created were kept when it was undone, by reason."""

    changed: Annotated[
        int,
        Meta(
            description="contacts that were changed, named by another import or used for events since; for "
            "suppressions: addresses that were suppressed again since"
        ),
    ]
    messaged: Annotated[int, Meta(description="contacts that were sent a message since")]
    in_another_list: Annotated[int, Meta(description="contacts that were added to another list since")]


class Import(Struct):
    """An import of a file and its result."""

    id: int
    account_id: int
    resource: Annotated[Literal["contacts", "suppressions"], Meta(description="kind of objects to import")]
    status: Annotated[Literal["pending", "processing", "complete", "failed", "cancelled"], Meta(description="progress")]
    phase: Annotated[str, Meta(description="current phase; null if there is none")] | None
    dry_run: Annotated[bool, Meta(description="whether the import only reports what it would do")]
    filename: Annotated[str, Meta(description="file name")]
    bytes: Annotated[int, Meta(description="size in bytes")]
    format: Annotated[Literal["csv", "jsonl"], Meta(description="detected file format")]
    product: (
        Annotated[str, Meta(description="product from which the file appears to be exported; null if unknown")] | None
    )
    columns: Annotated[list[ImportColumn], Meta(description="columns of the file")]
    options: Annotated[ImportOptions, Meta(description="options of the import")]
    total: Annotated[int, Meta(description="total number of rows")]
    processed: Annotated[int, Meta(description="number of processed rows")]
    created: Annotated[int, Meta(description="number of created contacts")]
    updated: Annotated[int, Meta(description="number of rows that updated a contact, including `repeated`")]
    repeated: Annotated[
        int, Meta(description="number of rows that updated a contact of an earlier row of the same file")
    ]
    skipped: Annotated[int, Meta(description="number of unchanged contacts")]
    failed: Annotated[int, Meta(description="number of rows with errors; `results.csv` lists them")]
    warnings: Annotated[
        int,
        Meta(
            description="rows that were imported without one of their values, or with a date stored as text; "
            "`results.csv` lists them with the reason"
        ),
    ]
    arriving: Annotated[ImportArriving, Meta(description="state of the contacts after the import, each counted once")]
    restored: Annotated[int, Meta(description="number of contacts that `undo` removed or restored")]
    removed: Annotated[
        int, Meta(description="those of them that `undo` removed; for suppressions, addresses no longer suppressed")
    ]
    left_in_place: Annotated[ImportLeftInPlace, Meta(description="contacts that `undo` did not remove")]
    progress: Annotated[float, Meta(description="progress, from 0 to 1")]
    error: Annotated[str, Meta(description="why the whole import failed; null if it did not")] | None
    undo_until: Annotated[Moment, Meta(description="until when the import can be undone; null if it cannot")] | None
    undone_at: Annotated[Moment, Meta(description="when the import was undone; null if it was not")] | None
    completed_at: Annotated[Moment, Meta(description="when the import was completed")] | None
    created_at: Moment
    updated_at: Moment


def serialize_import(row: models.Import) -> Import:
    """Return the API representation of an import.

    The progress is 1 once the import has ended, 0 while the file is being read, and else the share of processed rows.
    """
    values: dict[str, Any] = {}
    for name in Import.__struct_fields__:
        if name not in ("progress", "repeated", "columns", "options", "arriving", "left_in_place"):
            value = getattr(row, name)
            values[name] = iso(value) if name in ("undo_until",) or name.endswith("_at") else value
    is_done = row.status not in store.OPEN_STATUSES
    progress = 1.0 if is_done else min(1.0, row.processed / row.total) if row.total and row.phase == "applying" else 0.0
    return Import(
        **values,
        repeated=outcome_counts.count_repeated(row),
        progress=round(progress, 4),
        columns=msgspec.convert(row.columns, list[ImportColumn]),
        options=store.get_options(row),
        arriving=ImportArriving(**outcome_counts.count_arriving(row), reasons=outcome_counts.count_reasons(row)),
        left_in_place=ImportLeftInPlace(**{name: row.left_in_place.get(name, 0) for name in store.KEEP_REASONS}),
    )


@ROUTES.add(
    "GET",
    "/imports",
    scope="contacts:read",
    query_type=ImportQuery,
    response_type=Import,
    returns_list=True,
    user_scope=FULL_SCOPE,
)
async def list_imports(request: ApiRequest) -> ApiResponse:
    """List imports, newest first."""
    page = await fetch(store.fetch_page, request.account_id, request.query)
    return ApiResponse([serialize_import(row) for row in page.rows], headers=page_headers(page))


@asynccontextmanager
async def _receive_import(request: ApiRequest) -> AsyncIterator[tuple[Upload, FilePreview]]:
    """Receive the file of an import into a temporary file, and yield it with its preview.

    The file is deleted when the block ends. Raises Invalid with all errors of the file and of the form's fields.
    """
    target = await asyncio.to_thread(store.import_directory) / f"incoming-{secrets.token_hex(8)}"
    try:
        form = await api_http.receive_file(request, target, config.current().limits.import_bytes, "An import")
        faults, texts = Faults(), form.texts
        read = validation.read_partial(ImportForm, texts)
        faults.merge(read.faults.fields)
        options = _parse_options(read.value, faults)
        dry_run = request.query is not None and request.query.dry_run
        upload = Upload(str(target), form.filename or "", form.size, read.value.resource, options, dry_run)
        yield upload, await fetch(_inspect_upload, request.account_id, upload, form.filename is not None, faults)
    finally:
        target.unlink(missing_ok=True)


def _inspect_upload(account_id: int, upload: Upload, has_file: bool, faults: Faults) -> FilePreview:
    """Return the preview of a received file. Raises Invalid with `faults` and the errors found here, if any."""
    inspection = faults.collect(store.preview, upload) if has_file else None
    if not has_file:
        faults.add("file", "can't be blank")
    faults.collect(store.check_options, account_id, upload.options)
    faults.check()
    assert inspection is not None  # `check` raises unless a file was received and could be inspected.
    return inspection


async def _validate_import(request: ApiRequest) -> dict[str, list[str]]:
    try:
        async with _receive_import(request):
            return {}
    except Invalid as error:
        return error.fields


def _parse_options(form: ImportForm, faults: Faults) -> ImportOptions:
    """Parse the JSON options of a form. Return the valid options, and add the errors of invalid options to `faults`."""
    if form.options is UNSET or not form.options.strip():
        return ImportOptions()
    try:
        raw = msgspec.json.decode(form.options)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        faults.add("options", "must be valid JSON")
        return ImportOptions()
    read = validation.read_partial(ImportOptions, raw, "options")
    faults.merge(read.faults.fields)
    return ImportOptions() if read.value is UNSET else read.value


@ROUTES.add(
    "POST", "/imports", scope="contacts:write", form_type=ImportForm, query_type=DryRunQuery, response_type=Import,
    status=201, validate=_validate_import,
)  # fmt: skip
async def create_import(request: ApiRequest) -> ApiResponse:
    """Import a file of contacts or suppressions (CSV or JSON lines); `dry_run` only reports the effects."""
    async with _receive_import(request) as (upload, inspection):
        data = {"resource": upload.resource, "dry_run": upload.dry_run}
        args = (request.account_id, upload, inspection, request.actor)
        import_row = await commit(audit.run_and_record, request.caller, "import_create", store.create, *args, data=data)
    return ApiResponse(serialize_import(import_row))


@ROUTES.add("GET", "/imports/{id}", scope="contacts:read", response_type=Import, user_scope=FULL_SCOPE)
async def get_import(request: ApiRequest) -> ApiResponse:
    """Get an import with its progress."""
    return ApiResponse(serialize_import(await fetch(store.get, request.account_id, request.id)))


@ROUTES.add(
    "GET",
    "/imports/{id}/results.csv",
    scope="contacts:read",
    media="text/csv",
    has_conflicts=True,
    user_scope=FULL_SCOPE,
)
async def export_import_results_csv(request: ApiRequest) -> ApiResponse:
    """Get the result of each line of the file with its reason.

    Results are kept for 7 days. While the file is still being read, the response is 409.
    """
    row = await fetch(store.get, request.account_id, request.id)
    await audit.record_export(request.caller, request.account_id, f"import-{request.id}-results.csv", (), row.total)
    name = f'attachment; filename="import-{request.id}-results.csv"'
    return ApiResponse(results.stream_results(request.account_id, request.id), headers={"Content-Disposition": name})


@ROUTES.add("POST", "/imports/{id}/cancel", scope="contacts:write", response_type=Import)
async def cancel_import(request: ApiRequest) -> ApiResponse:
    """Cancel an import; imported rows stay until the import is undone."""
    return ApiResponse(
        serialize_import(
            await commit(
                audit.run_and_record, request.caller, "import_cancel", store.cancel, request.account_id, request.id
            )
        )
    )


@ROUTES.add("POST", "/imports/{id}/undo", scope="contacts:write", response_type=Import)
async def undo_import(request: ApiRequest) -> ApiResponse:
    """Undo an import within 24 hours; rows that have been changed since then are kept."""
    return ApiResponse(
        serialize_import(
            await commit(
                audit.run_and_record, request.caller, "import_undo", store.undo, request.account_id, request.id
            )
        )
    )


CSV, JSONL = "text/csv", "application/jsonl"
_BOM = b"\xef\xbb\xbf"


def _export_query(kind: type[PageQuery], name: str) -> type[Struct]:
    """Return a query Struct for an export: the filters of the list query `kind` without paging, and `bom`."""
    pages = {info.name for info in struct_fields(PageQuery)}
    filters = [(info.name, info.type, UNSET) for info in struct_fields(kind) if info.name not in pages]
    extra_annotations = {"text": ContactQuery.text} if kind is ContactQuery else {}
    return defstruct(
        name,
        [
            *filters,
            ("bom", Annotated[bool, Meta(description="whether a CSV file begins with a byte order mark")], False),
        ],
        namespace=extra_annotations,
    )


_ContactExportQuery = _export_query(ContactQuery, "ContactExportQuery")
_EventExportQuery = _export_query(EventQuery, "EventExportQuery")
_MessageExportQuery = _export_query(MessageQuery, "MessageExportQuery")
_RunExportQuery = _export_query(RunQuery, "RunExportQuery")


async def _export_response(
    request: ApiRequest, name: str, kind: type[PageQuery], page: Callable[..., Page], lines: Any
) -> ApiResponse:
    filters = {field_name: value for field_name in request.query.__struct_fields__
             if field_name != "bom" and (value := getattr(request.query, field_name)) is not UNSET}  # fmt: skip
    total = (await scan(page, request.account_id, kind(**filters, limit=1))).total
    await audit.record_export(request.caller, request.account_id, name, filters, total)
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    pieces = _encode_chunks(lines, _BOM if request.query.bom else b"")
    body = streaming.track_progress(request.account_id, name, total, pieces, lines=name.endswith(".jsonl"))
    return ApiResponse(body, headers=headers)


def _encode_chunks(lines: Iterator[Any], prefix: bytes) -> Iterator[bytes]:
    """Yield the lines of an export as bytes, the first one after `prefix` (a byte order mark or nothing).

    The prefix is not a chunk of its own, because an error after the first chunk can no longer change the response.
    """
    for line in lines:
        yield prefix + (line.encode() if isinstance(line, str) else line)
        prefix = b""


@ROUTES.add(
    "GET",
    "/exports/contacts.csv",
    scope="contacts:read",
    query_type=_ContactExportQuery,
    media=CSV,
    user_scope=EXPORT_SCOPE,
)
async def export_contacts_csv(request: ApiRequest) -> ApiResponse:
    """Export contacts as CSV that can be imported again without loss."""
    return await _export_response(
        request,
        "contacts.csv",
        ContactQuery,
        contacts.fetch_page,
        records.write_contacts_csv(request.account_id, request.query),
    )


@ROUTES.add(
    "GET",
    "/exports/contacts.jsonl",
    scope="contacts:read",
    query_type=_ContactExportQuery,
    media=JSONL,
    user_scope=EXPORT_SCOPE,
)
async def export_contacts_jsonl(request: ApiRequest) -> ApiResponse:
    """Export contacts as JSON lines."""
    return await _export_response(
        request,
        "contacts.jsonl",
        ContactQuery,
        contacts.fetch_page,
        records.write_contacts_jsonl(request.account_id, request.query),
    )


@ROUTES.add(
    "GET", "/exports/events.csv", scope="events:read", query_type=_EventExportQuery, media=CSV, user_scope=EXPORT_SCOPE
)
async def export_events_csv(request: ApiRequest) -> ApiResponse:
    """Export events as CSV."""
    lines = records.write_csv(records.EVENTS, request.account_id, request.query)
    return await _export_response(request, "events.csv", EventQuery, log.list_events, lines)


@ROUTES.add(
    "GET",
    "/exports/events.jsonl",
    scope="events:read",
    query_type=_EventExportQuery,
    media=JSONL,
    user_scope=EXPORT_SCOPE,
)
async def export_events_jsonl(request: ApiRequest) -> ApiResponse:
    """Export events as JSON lines."""
    lines = records.write_jsonl(records.EVENTS, request.account_id, request.query)
    return await _export_response(request, "events.jsonl", EventQuery, log.list_events, lines)


def _get_message_export(request: ApiRequest) -> records.ExportKind:
    """Return the export of messages that the caller may read."""
    return records.MESSAGES if request.credential.has_scope("contacts:read") else records.MESSAGES_AS_SUBMITTED


@ROUTES.add(
    "GET",
    "/exports/messages.csv",
    scope="messages:read",
    query_type=_MessageExportQuery,
    media=CSV,
    user_scope=EXPORT_SCOPE,
)
async def export_messages_csv(request: ApiRequest) -> ApiResponse:
    """Export messages as CSV."""
    lines = records.write_csv(_get_message_export(request), request.account_id, request.query)
    return await _export_response(request, "messages.csv", MessageQuery, ledger.list_messages, lines)


@ROUTES.add(
    "GET",
    "/exports/messages.jsonl",
    scope="messages:read",
    query_type=_MessageExportQuery,
    media=JSONL,
    user_scope=EXPORT_SCOPE,
)
async def export_messages_jsonl(request: ApiRequest) -> ApiResponse:
    """Export messages as JSON lines."""
    lines = records.write_jsonl(_get_message_export(request), request.account_id, request.query)
    return await _export_response(request, "messages.jsonl", MessageQuery, ledger.list_messages, lines)


@ROUTES.add(
    "GET", "/flows/{id}/runs.csv", scope="flows:read", query_type=_RunExportQuery, media=CSV, user_scope=EXPORT_SCOPE
)
async def export_flow_runs_csv(request: ApiRequest) -> ApiResponse:
    """Export the runs of a flow as CSV. Also requires `contacts:read`."""
    require_scope(request.credential, "contacts:read")

    def page(account_id: int, query: RunQuery) -> Page:
        return runs.list_runs(account_id, request.id, query)

    lines = records.write_runs_csv(request.account_id, request.id, request.query)
    return await _export_response(request, f"flow-{request.id}.csv", RunQuery, page, lines)
