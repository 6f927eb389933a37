"""Endpoints of backups: those on this machine, copies on another one, and their test restores.

Only credentials of the first account, which manages the installation, may use the endpoints. The store and its login
are set on the settings page or in the configuration; no endpoint returns or changes them.
"""

from pathlib import Path
from typing import Annotated, cast

from msgspec import Meta, Struct

from appliance.accounts import accounts, audit
from appliance.api import schemas
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes
from appliance.core.clock import iso
from appliance.core.errors import Conflict, NotAllowed
from appliance.ops.backups import create as backups
from appliance.ops.copy_jobs import history, schedule
from appliance.ops.copy_jobs.history import Kind, State
from appliance.settings import config
from appliance.storage import models
from appliance.storage.transactions import commit, fetch

ROUTES = Routes()
_MAX_RUNS = 20


class BackupFile(Struct):
    """A backup on this machine."""

    name: Annotated[str, Meta(description="name of the file in the directory `backups`")]
    created_at: schemas.Moment
    size: Annotated[int, Meta(description="size in bytes")]
    scheduled: Annotated[bool, Meta(description="whether the service created it, and deletes it when it is old")]


class CopyRun(Struct):
    """A copy on another machine that was made or attempted, or a test restore of the newest copy."""

    id: int
    kind: Annotated[Kind, Meta(description="`proof` is a test restore")]
    state: Annotated[
        State,
        Meta(description="`interrupted` if the service ended meanwhile; it is repeated by itself"),
    ]
    step: Annotated[str, Meta(description="what is being done while it runs; empty otherwise")]
    progress: Annotated[float, Meta(description="how much of the step is done, from 0 to 1")]
    copy: Annotated[str, Meta(description="name of the copy; null if it is not known")] | None
    taken_at: Annotated[schemas.Moment, Meta(description="moment that the data in the copy has")] | None
    size: Annotated[int, Meta(description="size of the copy in bytes")] | None
    error_code: Annotated[str, Meta(description="kind of failure, such as `unreachable` or `damaged`")] | None
    error: Annotated[str, Meta(description="reason of a failure; null without one")] | None
    started_at: Annotated[schemas.Moment, Meta(description="when it was begun, or asked for while it waits")]
    ended_at: Annotated[schemas.Moment, Meta(description="when it ended; null while it waits or runs")] | None


class StoredCopy(Struct):
    """A copy in the store."""

    name: Annotated[str, Meta(description="name of the copy, for `campanero restore`")]
    taken_at: Annotated[schemas.Moment, Meta(description="moment that the data in the copy has")]
    size: Annotated[int, Meta(description="size in bytes")]
    full: Annotated[bool, Meta(description="false if it has only what changed since the full copy before it")]


class CopiesState(Struct):
    """The state of copies on another machine."""

    configured: Annotated[bool, Meta(description="whether there is a store, and a key or passphrase that reads copies")]
    last_at: Annotated[schemas.Moment, Meta(description="moment that the data in the last good copy has")] | None
    late: Annotated[bool, Meta(description="whether the last good copy is older than twice the interval")]
    next_at: Annotated[schemas.Moment, Meta(description="when the next copy is due; null if none is planned")] | None
    proven: Annotated[bool, Meta(description="whether the last test restore succeeded; null if there was none")] | None
    proven_at: Annotated[schemas.Moment, Meta(description="when a test restore succeeded last")] | None
    stored: Annotated[list[StoredCopy], Meta(description="copies in the store after the last good one, newest first")]
    runs: Annotated[list[CopyRun], Meta(description="latest copies and test restores, newest first")]


class Backups(Struct):
    """The backups of the installation."""

    running: Annotated[bool, Meta(description="whether a backup on this machine is being created")]
    error: Annotated[str, Meta(description="why the last backup on this machine failed; null if it did not")] | None
    files: Annotated[list[BackupFile], Meta(description="backups on this machine, newest first")]
    copies: Annotated[CopiesState, Meta(description="copies on another machine")]


@ROUTES.add("GET", "/backups", scope="account:write", response_type=Backups)
async def get_backups(request: ApiRequest) -> ApiResponse:
    """Get the backups on this machine, and the state of copies on another machine.

    Only for the first account of the installation.
    """
    _require_first_account(request)
    return ApiResponse(await fetch(_collect))


@ROUTES.add("POST", "/backups", scope="account:write", response_type=Backups, status=202)
async def create_backup(request: ApiRequest) -> ApiResponse:
    """Create a backup on this machine, in the background. Only for the first account of the installation."""
    _require_first_account(request)
    await commit(audit.record, request.caller, request.account_id, "backup", None)
    backups.request_backup()
    return ApiResponse(await fetch(_collect))


@ROUTES.add("POST", "/backups/copies", scope="account:write", response_type=CopyRun, status=202, has_conflicts=True)
async def create_copy(request: ApiRequest) -> ApiResponse:
    """Make a copy on another machine now, in the background; return the one that is already running, if there is one.

    Only for the first account of the installation. 409 if copies are not set up.
    """
    return await _request(request, "copy", "copy_requested")


@ROUTES.add("POST", "/backups/proofs", scope="account:write", response_type=CopyRun, status=202, has_conflicts=True)
async def create_proof(request: ApiRequest) -> ApiResponse:
    """Restore the newest copy for a test, in the background; return the test that is already running, if there is one.

    The copy is fetched, decrypted, unpacked beside the data and checked, and then deleted again. Only for the first
    account of the installation. 409 if copies are not set up.
    """
    return await _request(request, "proof", "copy_proof_requested")


async def _request(request: ApiRequest, kind: Kind, action: str) -> ApiResponse:
    _require_first_account(request)
    if not schedule.is_set_up(config.current().copies):
        raise Conflict("Copies on another machine are not set up.")

    def write() -> models.CopyRun:
        audit.record(request.caller, request.account_id, action, None)
        return schedule.request(kind, request.actor)

    return ApiResponse(_serialize_run(await commit(write)))


def _require_first_account(request: ApiRequest) -> None:
    """Raise NotAllowed unless the credential is of the first account, which manages the data of all accounts."""
    if request.account_id != accounts.FIRST_ACCOUNT_ID:
        raise NotAllowed("Only the first account of this installation can manage backups.")


def _collect() -> Backups:
    loaded, state = config.current(), backups.get_schedule_state()
    files = [
        BackupFile(file.path.name, iso(file.created_at) or "", file.size, file.is_scheduled)
        for file in backups.list_backups(Path(loaded.data_dir))
    ]
    return Backups(state.is_running, state.failure or None, files, _collect_copies())


def _collect_copies() -> CopiesState:
    copies = config.current().copies
    good = history.find_last("copy", "succeeded")
    proof, proven = history.find_last("proof", "succeeded", "failed"), history.find_last("proof", "succeeded")
    return CopiesState(
        configured=schedule.is_set_up(copies), last_at=None if good is None else iso(good.taken_at),
        late=schedule.measure_lateness(copies).is_late,
        next_at=iso(schedule.get_schedule("copy", copies).next_at or None),
        proven=None if proof is None else proof.state == "succeeded",
        proven_at=None if proven is None else iso(proven.ended_at),
        stored=[StoredCopy(copy.name, iso(copy.taken_at) or "", copy.size, copy.is_full)
                for copy in history.list_stored()],
        runs=[_serialize_run(row) for row in history.list_runs(_MAX_RUNS)],
    )  # fmt: skip


def _serialize_run(row: models.CopyRun) -> CopyRun:
    progress = history.get_progress(row) if row.state == "running" else history.Progress("", 0.0)
    return CopyRun(
        id=row.id, kind=cast("Kind", row.kind), state=cast("State", row.state), step=progress.step,
        progress=progress.share, copy=row.copy, taken_at=iso(row.taken_at), size=row.size,
        error_code=row.error_code, error=row.error, started_at=iso(row.started_at) or "", ended_at=iso(row.ended_at),
    )  # fmt: skip
