"""The backups page: backups on this machine, copies on another machine, and the result of their test restore.

The set-up of copies, with the recovery passphrase, is in `backup_store.py`. All of it is for those who manage the
installation: owners and admins of the first account.
"""

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, accounts, audit
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.ops.backups import create as backups
from appliance.ops.copy_jobs import history, recovery, schedule
from appliance.ops.copy_jobs.history import Kind, StoredCopy
from appliance.settings import config
from appliance.settings.copies import Copies
from appliance.storage.models import CopyRun
from appliance.storage.transactions import commit, fetch
from ui import view
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_backups", url_prefix="/settings/backups")
URL = "/settings/backups"
_MAX_BACKUPS = 12
_MAX_RUNS = 10
# The explanations of failures for users, by code. The page shows the text of the error after it.
_FAILURES = {
    "unreachable": gettext_noop("The backup storage cannot be reached. Campanero tries again."),
    "refused": gettext_noop("The backup storage rejected the login, or the login may not do this. Check its keys."),
    "store_full": gettext_noop("The backup storage is full. Make room there, or keep fewer copies."),
    "missing": gettext_noop("The bucket, the folder or a file in it is missing."),
    "no_space": gettext_noop("This server does not have enough free disk space for it."),
    "damaged": gettext_noop("The copy is damaged and cannot be restored. Make a new copy."),
    "incomplete": gettext_noop("Data is missing from the copy. Make a new copy."),
    "older": gettext_noop("The newest copy is good, but older ones are damaged. See the reason."),
    "books": gettext_noop("The data in the copy contradicts itself. Run the health check."),
    "no_key": gettext_noop("This server cannot read the newest copy. Make a new copy, which can be tested."),
    "stalled": gettext_noop("The transfer stopped making progress, and was ended. Campanero tries again."),
}


class CopiesView(NamedTuple):
    """What the page shows about copies. Times are in milliseconds, None if there is none."""

    settings: Copies
    place: str  # the store as people name it, such as `bucket/folder`
    is_set_up: bool
    has_passphrase: bool
    running: CopyRun | None
    proving: CopyRun | None
    last: CopyRun | None
    last_good: CopyRun | None
    lateness: schedule.Lateness
    next_at: int | None
    failure_count: int
    proof: CopyRun | None
    next_proof_at: int | None
    stored: list[StoredCopy]
    runs: list[CopyRun]


@pages.get("/", strict_slashes=False)
@signed_in("account:write")
async def show_backups(request: Request, visit: Visit) -> HTTPResponse:
    """Show the backups on this machine, the copies on another one, their state and their history."""
    require_installation_manager(visit)
    loaded = config.current()
    stored = (await fetch(backups.list_backups, Path(loaded.data_dir)))[:_MAX_BACKUPS]
    return view.render(
        request, "settings/backups.html", copies=await fetch(_collect, loaded.copies), backups=stored,
        state=backups.get_schedule_state(), schedule=_describe_schedule(config.parse_seconds(loaded.backup.every)),
        max_backups=loaded.backup.keep, explain=explain_failure, step=describe_step,
        kinds=KIND_LABELS, counted=COUNTED,
    )  # fmt: skip


@pages.post("/create")
@signed_in("account:write")
async def back_up(request: Request, visit: Visit) -> HTTPResponse:
    """Request a backup of the installation on this machine, which is created in the background."""
    require_installation_manager(visit)
    await commit(audit.record, visit.actor, visit.account_id, "backup", None)
    backups.request_backup()
    return view.redirect(request, f"{URL}#backups")


@pages.post("/copy")
@signed_in("account:write")
async def copy_now(request: Request, visit: Visit) -> HTTPResponse:
    """Request a copy on another machine now."""
    await _request(visit, "copy", "copy_requested")
    return view.redirect(request, f"{URL}#copies")


@pages.post("/proof")
@signed_in("account:write")
async def prove_now(request: Request, visit: Visit) -> HTTPResponse:
    """Request a test restore of the newest copy now."""
    await _request(visit, "proof", "copy_proof_requested")
    return view.redirect(request, f"{URL}#copies")


async def _request(visit: Visit, kind: Kind, action: str) -> None:
    require_installation_manager(visit)
    if not schedule.is_set_up(config.current().copies):
        raise errors.Conflict(gettext("Set up copies on another machine first."))

    def write() -> None:
        audit.record(visit.actor, visit.account_id, action, None)
        schedule.request(kind, visit.actor.name)

    await commit(write)


def require_installation_manager(visit: Visit) -> None:
    """Raise NotAllowed unless the user is an owner or admin of the first account, which manages all accounts' data."""
    # A role of the account's own never manages the data of the installation, whatever it may change in the account.
    if visit.account_id != accounts.FIRST_ACCOUNT_ID or not visit.can(access.ADMIN_SCOPE):
        raise errors.NotAllowed(gettext("Only owners and admins of the first account can manage backups."))


def explain_failure(run: CopyRun) -> str:
    """Return what the failure of a run means, in plain words; empty if its code is unknown."""
    words = _FAILURES.get(run.error_code or "")
    return gettext(words) if words else ""


def name_store(copies: Copies) -> str:
    """Return the place of a store as people name it: its bucket or host, with the folder."""
    parts = urlsplit(copies.store)
    return f"{parts.hostname or ''}{parts.path}" if parts.scheme != "file" else parts.path


def _collect(copies: Copies) -> CopiesView:
    plan, proof_plan = schedule.get_schedule("copy", copies), schedule.get_schedule("proof", copies)
    return CopiesView(
        settings=copies, place=name_store(copies), is_set_up=schedule.is_set_up(copies),
        has_passphrase=recovery.is_set(Path(config.current().data_dir)), running=history.find_open("copy"),
        proving=history.find_open("proof"), last=history.find_last("copy"),
        last_good=history.find_last("copy", "succeeded"), lateness=schedule.measure_lateness(copies),
        next_at=plan.next_at or None, failure_count=plan.failure_count,
        proof=history.find_last("proof", "succeeded", "failed"), next_proof_at=proof_plan.next_at or None,
        stored=history.list_stored(), runs=history.list_runs(_MAX_RUNS),
    )  # fmt: skip


def _describe_schedule(seconds: float) -> str:
    """Return how often a backup is created as a sentence; empty if never (0 seconds)."""
    total_seconds = int(seconds)
    if not total_seconds:
        return ""
    if total_seconds % 86_400 == 0:
        days = total_seconds // 86_400
        return ngettext("A backup is created every day.", "A backup is created every %(num)s days.", days)
    if total_seconds % 3_600 == 0:
        hours = total_seconds // 3_600
        return ngettext("A backup is created every hour.", "A backup is created every %(num)s hours.", hours)
    if total_seconds % 60 == 0:
        minutes = total_seconds // 60
        return ngettext("A backup is created every minute.", "A backup is created every %(num)s minutes.", minutes)
    return ngettext("A backup is created every second.", "A backup is created every %(num)s seconds.", total_seconds)


# The tables whose rows a test restore counts.
COUNTED: dict[str, str] = {
    "contact": gettext_noop("Contacts"), "campaign": gettext_noop("Campaigns"), "flow": gettext_noop("Flows"),
    "template": gettext_noop("Templates"), "message": gettext_noop("Messages"), "event": gettext_noop("Events"),
}  # fmt: skip
KIND_LABELS: dict[str, str] = {"copy": gettext_noop("Copy"), "proof": gettext_noop("Test restore")}
# The steps that the child process reports, as the page shows them.
_STEPS: dict[str, Any] = {
    "copying_the_database": gettext_noop("Copying the database"),
    "checking_the_copy": gettext_noop("Checking the copy"),
    "looking_for_the_newest_copy": gettext_noop("Looking for the newest copy"),
    "checking_the_database": gettext_noop("Checking the database"),
    "checking_the_books": gettext_noop("Checking that all numbers add up"),
    "uploading": gettext_noop("Uploading"),
    "downloading": gettext_noop("Downloading"),
    "encrypting": gettext_noop("Encrypting"),
    "comparing": gettext_noop("Looking for changes"),
}


def describe_step(run: CopyRun) -> str:
    """Return the current step of a waiting or running copy or test restore, with its progress."""
    progress = history.get_progress(run)
    if run.state == "waiting" or not progress.step:
        return gettext("Starting…")
    label = _STEPS.get(progress.step)
    step = gettext(label) if label else progress.step.replace("_", " ").capitalize()
    return gettext("%(step)s: %(percent)s %%", step=step, percent=round(progress.share * 100))
