"""Backups by the clock: made by a child of this program that yields to everything else, so many of them kept."""

import logging
import threading
from pathlib import Path
from typing import NamedTuple

from appliance import children, clock, config
from appliance.backups import files
from appliance.db.open import scalar
from appliance.work import wake_ups

log = logging.getLogger("campanero.backups")
# One that failed, for want of room perhaps, is tried again after so long
_AGAIN_MS = 3600 * 1000


class State(NamedTuple):
    """How it stands with them."""

    is_running: bool
    failure: str  # words of the last one, if it failed


class _Known:
    """What this process knows; all else lies in the directory."""

    def __init__(self) -> None:
        self.asked = self.running = False
        self.failure = ""
        self.not_before = 0
        self.latest: int | None = None


_known = _Known()
_working = threading.Lock()


def state() -> State:
    """Return whether one is made now, and what became of the last."""
    return State(_known.running or _known.asked, _known.failure)


def ask() -> None:
    """Let one be made now, whatever the schedule says."""
    _known.asked = True
    wake_ups.ring("backups")


def is_due() -> bool:
    """Return whether one is to be made: asked for, or so long after the last; the first, so long after the account."""
    if _known.asked:
        return True
    every = config.seconds(config.current().backup.every) * 1000
    now = clock.now_ms()
    if not every or now < _known.not_before:
        return False
    if _known.latest is None:
        _known.latest = _latest()
    return _known.latest is not None and now - _known.latest >= every


def _latest() -> int | None:
    """Return when the last scheduled one was made, or since when there could have been one."""
    own = [one.made_at for one in files.kept(_directory()) if one.is_own]
    born = own[0] if own else scalar("SELECT min(created_at) FROM account")
    return int(born) if born is not None else None


def _directory() -> Path:
    return Path(config.current().data_dir)


def tend(is_stopping: threading.Event) -> None:
    """Make the one that is due, and delete those that are too many."""
    if not _working.acquire(blocking=False):
        return
    try:
        if is_due():
            _known.asked, _known.running = False, True
            _make(_directory(), is_stopping)
    finally:
        _known.running = False
        _working.release()


def _make(directory: Path, is_stopping: threading.Event) -> None:
    now = clock.now_ms()
    target = directory / files.FOLDER / files.name(now)
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        code, said = 1, f"{error.strerror}: {error.filename}"
    else:
        code, said = children.run("backup", str(target), "--data", str(directory), is_stopping=is_stopping)
    if is_stopping.is_set():
        return
    if code == 0:
        _known.failure, _known.latest = "", now
        gone = files.prune(directory, config.current().backup.keep)
        log.info("backed up to %s%s", target, f"; {gone} older ones are deleted" if gone else "")
    else:
        _known.failure, _known.not_before = said.removeprefix("campanero: ") or f"exit code {code}", now + _AGAIN_MS
        log.error("no backup was made: %s", _known.failure)
