"""Imports over the API."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from appliance.accounts import audit
from appliance.api import receiving
from appliance.api.declare import Answer, Call, Routes
from appliance.api.reply import page_headers
from appliance.core import fields
from appliance.core.clock import iso
from appliance.core.errors import Faults, Invalid
from appliance.events.shape import Moment
from appliance.imports import results, store
from appliance.imports.stage import Look
from appliance.imports.store import DryRunQuery, ImportForm, ImportOptions, ImportQuery, Upload
from appliance.settings import config
from appliance.storage.models import Import as Row
from appliance.storage.work import call, commit

ROUTES = Routes()


class ImportColumn(Struct):
    """A column of the file, where it goes ("" = nowhere), what is in its first rows, and how its dates are written."""

    name: str
    target: str
    samples: list[str]
    dates: Literal["clear", "dmy", "mdy", "ambiguous", "mixed"] | None = None


class ImportArriving(Struct):
    """How many contacts of the file are subscribed, unsubscribed and suppressed after it, and why they are not."""

    subscribed: int
    unsubscribed: int
    suppressed: int
    reasons: dict[str, int]


class ImportLeftInPlace(Struct):
    """How many contacts that the import made an undo left, by the reason."""

    changed: int
    messaged: int
    in_another_list: int


class Import(Struct):
    """A file of people, and what came of it."""

    id: int
    account_id: int
    resource: Literal["contacts", "suppressions"]
    status: Literal["pending", "processing", "complete", "failed", "cancelled"]
    phase: str | None
    dry_run: bool
    filename: str
    bytes: int
    format: Literal["csv", "jsonl"]
    product: str | None
    columns: list[ImportColumn]
    options: ImportOptions
    total: int
    processed: int
    created: int
    updated: int
    skipped: int
    failed: int
    warnings: int
    arriving: ImportArriving
    restored: int
    left_in_place: ImportLeftInPlace
    progress: float
    error: str | None
    undo_until: Moment | None
    undone_at: Moment | None
    completed_at: Moment | None
    created_at: Moment
    updated_at: Moment


def shaped(row: Row) -> Import:
    """Shape an import."""
    values: dict[str, Any] = {}
    for name in Import.__struct_fields__:
        if name not in ("progress", "columns", "options", "arriving", "left_in_place"):
            value = getattr(row, name)
            values[name] = iso(value) if name in ("undo_until",) or name.endswith("_at") else value
    done = row.status not in store.OPEN
    progress = 1.0 if done else min(1.0, row.processed / row.total) if row.total and row.phase == "applying" else 0.0
    return Import(
        **values, progress=round(progress, 4), columns=msgspec.convert(row.columns, list[ImportColumn]),
        options=store.options(row), arriving=ImportArriving(**store.arriving(row), reasons=store.reasons(row)),
        left_in_place=ImportLeftInPlace(**{name: row.left_in_place.get(name, 0) for name in store.LEFT}),
    )  # fmt: skip


@ROUTES.add("GET", "/imports", scope="contacts:read", query=ImportQuery, returns=Import, many=True)
async def index(request: Call) -> Answer:
    """List imports, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([shaped(row) for row in page.rows], headers=page_headers(page))


@asynccontextmanager
async def _received(request: Call) -> AsyncIterator[tuple[Upload, Look]]:
    """Receive a file and look at it; it is gone in the end. Raises Invalid with all that is wrong with the form."""
    target = await asyncio.to_thread(store.directory) / f"incoming-{secrets.token_hex(8)}"
    try:
        form = await receiving.file(request, target, config.current().limits.import_bytes, "an import")
        faults, texts = Faults(), form.texts
        read = fields.read_sound(ImportForm, texts)
        faults.merge(read.faults.fields)
        options = _options(read.value, faults)
        dry_run = request.query is not None and request.query.dry_run
        upload = Upload(str(target), form.filename or "", form.size, read.value.resource, options, dry_run)
        yield upload, await call(_looked_at, request.account_id, upload, form.filename is not None, faults)
    finally:
        target.unlink(missing_ok=True)


def _looked_at(account_id: int, upload: Upload, is_there: bool, faults: Faults) -> Look:
    """Look at what was received; raises Invalid with what was found before and what is found now."""
    seen = faults.of(store.look, upload) if is_there else None
    if not is_there:
        faults.add("file", "can't be blank")
    faults.of(store.check_lists, account_id, upload.options)
    faults.check()
    assert seen is not None  # without faults there is a file
    return seen


async def _inside(request: Call) -> dict[str, list[str]]:
    try:
        async with _received(request):
            return {}
    except Invalid as refused:
        return refused.fields


def _options(form: ImportForm, faults: Faults) -> ImportOptions:
    """Read what is asked of an import; notes what is wrong with it, and returns the rest."""
    if form.options is UNSET or not form.options.strip():
        return ImportOptions()
    try:
        raw = msgspec.json.decode(form.options)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        faults.add("options", "is not JSON")
        return ImportOptions()
    read = fields.read_sound(ImportOptions, raw, "options")
    faults.merge(read.faults.fields)
    return ImportOptions() if read.value is UNSET else read.value


@ROUTES.add(
    "POST", "/imports", scope="contacts:write", form=ImportForm, query=DryRunQuery, returns=Import, status=201,
    inside=_inside,
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Import a file of contacts or suppressions (CSV or JSON lines); `dry_run` only reports what it would do."""
    async with _received(request) as (upload, seen):
        told = {"resource": upload.resource, "dry_run": upload.dry_run}
        args = (request.account_id, upload, seen, request.actor)
        made = await commit(audit.noting, request.by, "import_create", store.create, *args, data=told)
    return Answer(shaped(made))


@ROUTES.add("GET", "/imports/{id}", scope="contacts:read", returns=Import)
async def show(request: Call) -> Answer:
    """Get an import, with its progress."""
    return Answer(shaped(await call(store.get, request.account_id, request.id)))


@ROUTES.add("GET", "/imports/{id}/results.csv", scope="contacts:read", media="text/csv")
async def outcome(request: Call) -> Answer:
    """Get what came of each line of the file, with the reason; kept for 7 days."""
    row = await call(store.get, request.account_id, request.id)
    await audit.exported(request.by, request.account_id, f"import-{request.id}-results.csv", (), row.total)
    name = f'attachment; filename="import-{request.id}-results.csv"'
    return Answer(results.pieces(request.account_id, request.id), headers={"Content-Disposition": name})


@ROUTES.add("POST", "/imports/{id}/cancel", scope="contacts:write", returns=Import)
async def cancel(request: Call) -> Answer:
    """Stop an import; what it wrote stays until it is undone."""
    return Answer(
        shaped(await commit(audit.noting, request.by, "import_cancel", store.cancel, request.account_id, request.id))
    )


@ROUTES.add("POST", "/imports/{id}/undo", scope="contacts:write", returns=Import)
async def undo(request: Call) -> Answer:
    """Take an import back within 24 hours: what nothing else changed since returns to what it was."""
    return Answer(
        shaped(await commit(audit.noting, request.by, "import_undo", store.undo, request.account_id, request.id))
    )
