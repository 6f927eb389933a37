"""Content as files: the export of lists, segments, templates, forms and flows as a ZIP file, and its import.

An upload is checked first: the page says what would be created and changed, and only then it is applied.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import IO, Any, Literal, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access
from appliance.accounts.access import Credential
from appliance.api.content_connection import InProcessConnection
from appliance.content import media
from appliance.core import clock, errors, uploads
from appliance.core.i18n import gettext, gettext_noop
from appliance.remote import content_archive
from appliance.remote.content_account import PlannedFile, export_content, import_content
from appliance.remote.errors import CommandError
from appliance.storage.transactions import fetch
from ui import formats, session, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_content_files", url_prefix="/settings/content")
log = logging.getLogger("campanero.content")

T = TypeVar("T")
State = Literal["checking", "checked", "importing", "done", "failed"]
# A check that is not applied expires after this time.
_MAX_AGE_MS = 60 * 60 * 1000
_MAX_JOBS = 20
_BLOCK_BYTES = 1_048_576
# Housekeeping removes what a killed process left under such names.
_DIRECTORY_PREFIX = f"{media.UPLOAD_DIR_PREFIX}content-"
_DRAIN_FACTOR = 2
# The page shows the first of the faults, which may repeat most of the uploaded file.
_MAX_ERROR_CHARACTERS = 5_000
_IMPORT_SCOPES = ("contacts:write", "templates:write", "flows:write")
# The labels of the folders of files.
_KIND_LABELS = {
    "lists": gettext_noop("List"), "segments": gettext_noop("Segment"), "templates": gettext_noop("Template"),
    "forms": gettext_noop("Form"), "flows": gettext_noop("Flow"),
}  # fmt: skip


class ImportJob(Struct, eq=False):
    """The check or import of an uploaded file; `share` of it is done, and `error` is why it failed."""

    token: str
    user_id: int
    directory: TemporaryDirectory[str]
    started_at: int
    state: State = "checking"
    share: float = 0.0
    file_count: int = 0
    plan: list[PlannedFile] = []
    error: str = ""

    @property
    def is_running(self) -> bool:
        """Return whether the page has to ask for the progress."""
        return self.state in ("checking", "importing")


# The last check or import of each account. After a restart the file has to be uploaded again.
_jobs: dict[int, ImportJob] = {}
_tasks: set[asyncio.Task[None]] = set()
# The API that exports and imports wait for needs the threads of `asyncio.to_thread` itself, so they have their own.
_threads = ThreadPoolExecutor(4, thread_name_prefix="content")
_locks: "WeakValueDictionary[int, asyncio.Lock]" = WeakValueDictionary()


async def run_in_thread(account_id: int, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of an export or import of an account in a thread; those of one account run one by one."""
    lock = _locks.setdefault(account_id, asyncio.Lock())
    async with lock:
        run = partial(copy_context().run, function, *arguments)
        work = asyncio.get_running_loop().run_in_executor(_threads, run)
        try:
            return await asyncio.shield(work)
        finally:
            await asyncio.wait((work,))  # The thread goes on when the client has left.


@pages.get("/", strict_slashes=False)
@signed_in("flows:read")
async def show_content(request: Request, visit: Visit) -> HTTPResponse:
    """Show the export, and the import with its check, progress and result. Raises NotAllowed as `_require_access`."""
    _require_access(visit)
    return _render(request, visit, Form(), 200)


def _require_access(visit: Visit, *scopes: str) -> None:
    """Raise NotAllowed for a role that lacks a scope, or sees masked contact data: conditions would be lost."""
    if not all(map(visit.can, (access.FULL_SCOPE, "contacts:read", "templates:read", *scopes))):
        raise errors.NotAllowed("")


def _render(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    job = _jobs.get(visit.account_id)
    may_import = all(map(visit.can, _IMPORT_SCOPES))
    rows = [] if job is None else [(gettext(_KIND_LABELS[kind]), name, row.action) for row in job.plan
                                   for kind, _, name in [row.file.partition("/")]]  # fmt: skip
    return view.render(
        request, "settings/content.html", status, form=form, job=job, may_import=may_import, rows=rows,
        max_bytes=content_archive.MAX_ARCHIVE_BYTES,
        created=sum(row.action == "create" for row in job.plan) if job is not None else 0,
    )  # fmt: skip


def _connect(request: Request, visit: Visit) -> InProcessConnection:
    credential = Credential(
        visit.account_id, visit.rights.scopes, False, visit.actor_id, visit.user.id, visit.user.role,
        is_masked=visit.rights.is_masked,
    )  # fmt: skip
    return InProcessConnection(request, credential, visit.actor)


@pages.get("/export", name="export")
@signed_in("flows:read")
async def export_files(request: Request, visit: Visit) -> HTTPResponse | None:
    """Download the content of the account as a ZIP file. Raises NotAllowed as `_require_access`."""
    _require_access(visit)
    file: IO[bytes] = SpooledTemporaryFile(max_size=_BLOCK_BYTES)  # noqa: SIM115 - it is closed once it is sent
    try:
        work = _connect(request, visit), file, _watch_access(request)
        await run_in_thread(visit.account_id, _write_archive, *work)
    except CommandError as error:
        file.close()
        view.flash(request, formats.sentence(str(error)))
        return view.redirect(request, "/settings/content")
    name = "campanero-content-{}.zip".format((clock.iso(clock.now_ms()) or "")[:10])
    return await view.stream_file(request, name, "application/zip", _read_blocks(file))


def _watch_access(request: Request) -> Callable[[], None]:
    """Return a function for threads that raises CommandError once the user of a request lost a right or signed out."""
    loop = asyncio.get_running_loop()

    def require_access() -> None:
        if not asyncio.run_coroutine_threadsafe(fetch(session.has_access, request), loop).result():
            raise CommandError(gettext("You were signed out, or your role has changed."))

    return require_access


def _write_archive(connection: InProcessConnection, file: IO[bytes], require_access: Callable[[], None]) -> None:
    with TemporaryDirectory(prefix=_DIRECTORY_PREFIX) as name:
        directory = Path(name)
        export_content(connection, directory, lambda _name, _share: require_access())
        content_archive.pack(directory, file)
    file.seek(0)


def _read_blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK_BYTES):
            yield block


@pages.post("/check", name="check", stream=True)
@signed_in("flows:write")
async def check_file(request: Request, visit: Visit) -> HTTPResponse:
    """Begin the check of an uploaded ZIP file, and redirect to its progress. Raises NotAllowed."""
    _require_access(visit, *_IMPORT_SCOPES)
    form = Form()
    if _is_running(visit.account_id):
        return _refuse_second(request)
    directory = await asyncio.to_thread(TemporaryDirectory, prefix=_DIRECTORY_PREFIX)
    try:
        await _receive_file(request, Path(directory.name))
    except errors.Invalid as error:
        await asyncio.to_thread(directory.cleanup)
        form.add_error("file", error.fields["file"][0])
        return _render(request, visit, form, 422)
    await asyncio.to_thread(_forget, visit.account_id)
    if _is_running(visit.account_id):  # begun while this file was received
        await asyncio.to_thread(directory.cleanup)
        return _refuse_second(request)
    job = _jobs[visit.account_id] = ImportJob(secrets.token_urlsafe(16), visit.user.id, directory, clock.now_ms())
    _start(request, visit, job, is_dry_run=True)
    return view.redirect(request, "/settings/content")


def _is_running(account_id: int) -> bool:
    job = _jobs.get(account_id)
    return job is not None and job.is_running


def _refuse_second(request: Request) -> HTTPResponse:
    view.flash(request, gettext("An import is running. Wait until it is done."))
    return view.redirect(request, "/settings/content")


async def _receive_file(request: Request, directory: Path) -> None:
    """Write the content files of the uploaded ZIP file into a directory. Raises Invalid at `file`."""
    stream: Any = request.stream
    archive, limit = directory / ".upload.zip", content_archive.MAX_ARCHIVE_BYTES
    try:
        upload = await uploads.receive(request.headers, stream, archive, limit)
        if not upload.size:
            raise errors.Invalid({"file": [gettext("Select a file.")]})
        await asyncio.to_thread(content_archive.unpack, archive, directory)
    except uploads.NotAForm:
        raise errors.Invalid({"file": [gettext("Select a file.")]}) from None
    except uploads.MalformedForm:
        raise errors.Invalid({"file": [gettext("The upload was interrupted. Try again.")]}) from None
    except uploads.TooLarge:
        remaining_bytes = _DRAIN_FACTOR * limit
        while remaining_bytes > 0 and (piece := await stream.read()):
            remaining_bytes -= len(piece)
        message = gettext("This file is larger than %(size)s.", size=formats.size(limit))
        raise errors.Invalid({"file": [message]}) from None
    except CommandError as error:
        raise errors.Invalid({"file": [formats.sentence(str(error))]}) from None
    await asyncio.to_thread(archive.unlink)


def _forget(account_id: int) -> None:
    """Delete the files of the account's last check, and of checks that are too old."""
    for key, job in list(_jobs.items()):
        is_old = clock.now_ms() - job.started_at > _MAX_AGE_MS or len(_jobs) > _MAX_JOBS
        if not job.is_running and (key == account_id or is_old):
            _jobs.pop(key, None)
            job.directory.cleanup()


@pages.post("/apply", name="apply")
@signed_in("flows:write")
async def apply_file(request: Request, visit: Visit) -> HTTPResponse:
    """Import the file that was checked, and redirect to the progress. Raises NotAllowed."""
    _require_access(visit, *_IMPORT_SCOPES)
    job = _jobs.get(visit.account_id)
    if job is None or job.state != "checked" or job.token != Form.from_request(request)["token"]:
        view.flash(request, gettext("The file was checked too long ago. Upload it again."))
        return view.redirect(request, "/settings/content")
    job.state, job.share = "importing", 0.0
    _start(request, visit, job, is_dry_run=False)
    return view.redirect(request, "/settings/content")


def _start(request: Request, visit: Visit, job: ImportJob, is_dry_run: bool) -> None:
    """Run the check or the import of a job in a thread, as long as the user keeps the rights."""
    run = _run(_connect(request, visit), visit.account_id, job, is_dry_run, _watch_access(request))
    task = asyncio.get_running_loop().create_task(run)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _run(
    connection: InProcessConnection, account_id: int, job: ImportJob, is_dry_run: bool,
    require_access: Callable[[], None],
) -> None:  # fmt: skip
    def show(_name: str, share: float) -> None:
        job.share = share
        require_access()

    path = Path(job.directory.name)
    try:
        result = await run_in_thread(account_id, import_content, connection, path, show, is_dry_run, True)
        job.file_count, job.plan = result
        job.state = "checked" if is_dry_run else "done"
    except CommandError as error:
        job.state, job.error = "failed", str(error).replace(f"{path}/", "")[:_MAX_ERROR_CHARACTERS]
    except Exception:
        job.state, job.error = "failed", gettext("The import failed. The log of the service says why.")
        log.exception("content: import failed")
    if job.state != "checked":
        await asyncio.to_thread(job.directory.cleanup)
