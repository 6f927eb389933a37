"""Imports: a file is dropped, its columns are named, it is checked, applied, and taken back if that was wrong."""

import asyncio
import secrets
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.core import errors, fields, multipart
from appliance.imports import results, store
from appliance.imports.store import ImportForm, ImportOptions, ImportQuery, Upload
from appliance.sending.sms import numbers as sms_numbers
from appliance.settings import config
from appliance.storage.models import Import
from appliance.storage.work import call, commit
from ui import columns, countries, exports, people, rights, view, words
from ui.forms import Form, listing
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_imports", url_prefix="/contacts/imports")
# Read on past a file that is too large: a browser that is cut off while it sends shows no words of ours
_PAST_READING = 2
# What was seen of the last few files, by import and the moment of its check
_seen: dict[tuple[int, int], tuple[results.Review, results.Told]] = {}
_MAX_SEEN = 8


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """All files that were brought in, newest first."""
    raw, _ = listing(request, 50)
    raw.pop("search", None)
    found = await call(store.page, visit.account_id, fields.read(ImportQuery, raw))
    return view.page(request, "imports/index.html", found=found, may_write=_may(visit))


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """The place to drop a file."""
    return _new(request, visit, Form({"resource": request.args.get("of") or "contacts"}), 200)


@pages.post("/", name="create", strict_slashes=False, stream=True)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Take a file, and go on to its columns."""
    target = await asyncio.to_thread(store.directory) / f"incoming-{secrets.token_hex(8)}"
    form = Form({"resource": "contacts"})
    try:
        upload = await _receive(request, target, form)
        seen = await asyncio.to_thread(store.look, upload, mapped=False)
        made = await commit(store.hold, visit.account_id, upload, seen, visit.actor)
    except errors.Invalid as refused:
        form.wrong("file", words.sentence(next(iter(refused.fields.values()))[0]))
        return _new(request, visit, form, 422)
    finally:
        await asyncio.to_thread(target.unlink, missing_ok=True)
    return view.go(request, f"/contacts/imports/{made.id}")


@pages.get("/<import_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """One file, wherever it stands: its columns, its check, its progress, what came of it."""
    return await _show(request, visit, import_id, None, 200)


@pages.post("/<import_id:int>", name="check")
@signed_in
async def check(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Check the file with what is said of it now."""
    found = await call(store.get, visit.account_id, import_id)
    form = Form.of(request)
    raw = columns.options(found, form)
    try:
        if form.errors:
            raise errors.Invalid({})
        await _again(visit, import_id, fields.read(ImportOptions, raw), store.check)
    except errors.Invalid as refused:
        if refused.fields:
            form.take(refused, {"list_names[0]": "new_list"})
        return await _show(request, visit, import_id, form, 422)
    return view.go(request, f"/contacts/imports/{import_id}")


@pages.post("/<import_id:int>/dates", name="dates")
@signed_in
async def dates(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Check the file again with the order of its dates that the check asked for."""
    found = await call(store.get, visit.account_id, import_id)
    raw = msgspec.to_builtins(store.options(found)) | {"date_order": Form.of(request).text("date_order")}
    return await _done(request, import_id, _again(visit, import_id, fields.read(ImportOptions, raw), store.check))


@pages.post("/<import_id:int>/apply", name="apply")
@signed_in
async def apply(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Import what was checked."""
    found = await call(store.get, visit.account_id, import_id)
    if found.phase == store.MAPPING:
        raise errors.Invalid({"base": ["say first what its columns are"]})
    return await _done(request, import_id, _again(visit, import_id, store.options(found), store.apply))


@pages.post("/<import_id:int>/stop", name="stop")
@signed_in
async def stop(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Stop reading, checking or importing; what was written stays until it is taken back."""
    return await _done(
        request, import_id, commit(audit.noting, visit.by, "import_cancel", store.cancel, visit.account_id, import_id)
    )


@pages.post("/<import_id:int>/undo", name="undo")
@signed_in
async def undo(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Take an import back."""
    return await _done(
        request, import_id, commit(audit.noting, visit.by, "import_undo", store.undo, visit.account_id, import_id)
    )


@pages.post("/<import_id:int>/discard", name="discard")
@signed_in
async def discard(request: Request, visit: Visit, import_id: int) -> HTTPResponse:
    """Forget a file that wrote nothing."""
    gone = await commit(store.discard, visit.account_id, import_id)
    view.say(request, f"{gone.filename or 'The file'} is discarded. Nothing of it was imported.")
    return view.go(request, "/contacts/imports")


@pages.get("/<import_id:int>/results", name="results")
@signed_in
async def outcome(request: Request, visit: Visit, import_id: int) -> HTTPResponse | None:
    """What came of each line, or only the lines that are wrong, as a file."""
    row = await call(store.get, visit.account_id, import_id)
    only = request.args.get("only")
    only = only if only in results.ONLY else None
    lines = results.pieces(visit.account_id, import_id, only)
    name = f"import-{import_id}-{only or 'results'}.csv"
    numbers = {"problems": row.failed, "warnings": row.warnings, **store.arriving(row)}
    await audit.exported(visit.by, visit.account_id, name, (), numbers[only] if only else row.total)
    return await exports.send_file(request, name, "text/csv; charset=utf-8", lines)


async def _done(request: Request, import_id: int, act: Awaitable[Any]) -> HTTPResponse:
    """Do an act and show what became of it; who pressed twice, or too late, sees where the import stands now."""
    try:
        await act
    except errors.Invalid as refused:
        if refused.reason != "invalid_transition":
            raise
        view.say(request, "It has moved on meanwhile: this is how it stands.")
    return view.go(request, f"/contacts/imports/{import_id}")


def _may(visit: Visit) -> bool:
    return rights.may(visit.user.role, "POST", "/contacts/imports")


def _new(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    most = config.current().limits.import_bytes
    return view.page(request, "imports/new.html", status, form=form, most=most, may_write=_may(visit))


async def _again(visit: Visit, import_id: int, asked: ImportOptions, verb: Any) -> None:
    upload, seen = await call(store.look_again, visit.account_id, import_id, asked)
    args = (verb, visit.account_id, import_id, upload, seen, visit.actor)
    await (commit(audit.noting, visit.by, "import_create", *args) if verb is store.apply else commit(*args))


async def _receive(request: Request, target: Path, form: Form) -> Upload:
    """Write the file of a form to disk; raises Invalid in words about the file."""
    stream: Any = request.stream
    most = config.current().limits.import_bytes
    try:
        taken = await multipart.receive(request.headers, stream, target, most)
    except multipart.OtherType:
        raise errors.Invalid({"file": ["choose a file"]}) from None
    except multipart.Malformed:
        raise errors.Invalid({"file": ["the upload broke off: try again"]}) from None
    except multipart.TooLarge:
        left = _PAST_READING * most
        while left > 0 and (piece := await stream.read()):
            left -= len(piece)
        words_ = f"this file is larger than {words.size(most)}: split it into parts"
        raise errors.Invalid({"file": [words_]}) from None
    form.values["resource"] = taken.texts.get("resource", "contacts")
    if not taken.filename and not taken.size:
        raise errors.Invalid({"file": ["choose a file"]})
    kind = fields.read(ImportForm, {"resource": form["resource"]}).resource
    return Upload(str(target), taken.filename or "", taken.size, kind, ImportOptions(), True)


async def _show(request: Request, visit: Visit, import_id: int, form: Form | None, status: int) -> HTTPResponse:
    found = await call(store.get, visit.account_id, import_id)
    state = _state(found, form is not None or request.args.get("columns") == "yes")
    kept = await asyncio.to_thread(store.is_kept, import_id)
    context: dict[str, Any] = {"lists": [], "seen": None, "told": None, "countries": []}
    form = form or columns.form_of(
        found, visit.account.country_code or sms_numbers.country_of(visit.account.time_zone) or ""
    )
    if state == "columns":
        context["countries"] = await asyncio.to_thread(countries.choices, "None: leave these numbers out")
    if state in ("columns", "checked", "done", "undone"):
        context["lists"] = await call(people.all_lists, visit.account_id)
    if state in ("checked", "done"):
        context["seen"], context["told"] = await _look(found)
    return view.page(
        request, "imports/show.html", status, job=found, state=state, kept=kept, form=form, asked=store.options(found),
        columns=columns.shown(found, form), groups=columns.BLOCKING if _blocks(found) else columns.GROUPS,
        may_write=_may(visit), asks_order=columns.asks_order(found), arriving=store.arriving(found),
        why=store.reasons(found), **context,
    )  # fmt: skip


def _blocks(found: Import) -> bool:
    return bool(found.resource == "suppressions")


def _state(found: Import, wants_columns: bool) -> str:
    """Return where a file stands, which is what its page shows."""
    if found.phase in ("undoing", "undone"):
        return str(found.phase)
    if found.status in store.OPEN:
        return "checking" if found.dry_run else "importing"
    if not found.dry_run:
        return "failed" if found.status == "failed" else "done"
    if found.status == "failed" and not wants_columns:
        return "failed"
    return "checked" if found.status == "complete" and found.phase is None and not wants_columns else "columns"


async def _look(found: Import) -> tuple[results.Review | None, results.Told | None]:
    """Return what is worth a look in a file, and in what comes of it; once for each check."""
    key = (found.id, found.completed_at or 0)
    if key not in _seen:
        path = store.directory(found.id) / "staging.db"
        seen = await asyncio.to_thread(results.of_file, path)
        if seen is None:
            return None, None
        gathering = results.Gathering(found.id)
        while await call(gathering.more):
            pass
        told = await asyncio.to_thread(gathering.told, found, path)
        while len(_seen) >= _MAX_SEEN:
            _seen.pop(next(iter(_seen)))
        _seen[key] = seen, told
    return _seen[key]
