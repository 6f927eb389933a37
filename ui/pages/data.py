"""The data of the account: how much, where, and its backups; and what a restored account would send."""

from pathlib import Path

from sanic import Request
from sanic.response import HTTPResponse

from appliance import VERSION
from appliance.accounts import accounts, audit
from appliance.core import errors
from appliance.ops.backups import files, restore, take
from appliance.settings import config
from appliance.storage.work import call, commit
from ui import view, words
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_data")
_FIRST_ACCOUNT = 1
_SHOWN = 12


@pages.get("/settings/data", name="show")
@signed_in
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """How much there is, where it lies, how long it is kept, its backups, and the files to take it away in."""
    here = config.current()
    directory = Path(here.data_dir)
    counts = await call(accounts.counts, visit.account_id)
    rules = _rules(visit)
    size = await call(_size, directory) if rules else 0
    kept = (await call(files.kept, directory))[:_SHOWN] if rules else []
    return view.page(
        request, "settings/data.html", counts=counts, size=size, where=str(here.data_dir) if rules else "",
        keep=config.seconds(here.events.keep) // 86_400, version=VERSION, kept=kept, state=take.schedule_state(),
        every=_every(config.seconds(here.backup.every)), most=here.backup.keep,
    )  # fmt: skip


@pages.post("/settings/data/backup", name="back_up")
@signed_in
async def back_up(request: Request, visit: Visit) -> HTTPResponse:
    """Make a backup now."""
    if not _rules(visit):
        raise errors.NotAllowed("owners and admins of the first account make backups: they are of all of them")
    await commit(audit.note, visit.by, visit.account_id, "backup", None)
    take.request_backup()
    return view.go(request, "/settings/data#backups")


@pages.get("/restored", name="restored")
@signed_in
async def restored(request: Request, visit: Visit) -> HTTPResponse:
    """What would go out if sending went on, after a backup was put in the place of what was there."""
    held = restore.is_held(visit.account)
    found = await call(restore.of_account, visit.account_id) if held else None
    return view.page(request, "settings/restored.html", held=found)


def _rules(visit: Visit) -> bool:
    """The directory holds what all accounts have: it is for those who look after the machine."""
    return visit.user.role in ("owner", "admin") and visit.account_id == _FIRST_ACCOUNT


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*") if path.is_file())


def _every(seconds: float) -> str:
    """Return how often, as `every day`; nothing for never."""
    whole = int(seconds)
    for span, one, many in ((86_400, "day", "days"), (3_600, "hour", "hours"), (60, "minute", "minutes")):
        if whole and whole % span == 0:
            return f"every {one}" if whole == span else f"every {words.count(whole // span, one, many)}"
    return f"every {whole} seconds" if whole else ""
