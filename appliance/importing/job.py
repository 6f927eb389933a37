"""Works on imports one after the other: reads the file in a child process, then writes chunk by chunk.

The tables hold how far it is: a process that dies is followed by one that goes on behind the last transaction. The
reading is done anew, the writing never twice.
"""

import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from appliance import clock, tokens
from appliance.children import child
from appliance.db import work
from appliance.db.dialect import catalogue
from appliance.db.open import one, rows
from appliance.errors import Unavailable
from appliance.importing import stage, staging, steps, store, undo
from appliance.importing.chunk import Plan
from appliance.importing.contact_states import Arriving
from appliance.importing.existing_contacts import Memory
from appliance.importing.stage import Task
from appliance.importing.staging import Staged
from appliance.tables import Import

log = logging.getLogger("campanero.imports")

_MAX_ROWS, _MIN_ROWS = 1000, 25
_CHUNK_SECONDS = 0.02
# Rows of a kind that cost more than usual begin small and grow
_FIRST = 100
# Below this a child process costs more than the reading
_SMALL = 131_072
# A request that hands a file in does not take as long
_HOUR_SECONDS = 3600
_KEPT_MS = 7 * 24 * 3600 * 1000


class Importer:
    """The one worker on imports of a process."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._busy = threading.Lock()

    def tend(self) -> None:
        """Work until no import waits; a second call meanwhile does nothing."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            while not self.stopping.is_set() and (found := self._next()) is not None:
                self._work(found)
            if not self.stopping.is_set():
                sweep()
        finally:
            self._busy.release()

    def _next(self) -> Import | None:
        found = rows(
            "SELECT id FROM import WHERE status = 'processing' OR phase = 'undoing' OR status = 'pending' "
            "ORDER BY status = 'pending', id LIMIT 1"
        )
        return Import.get_by_id(found[0][0]) if found else None

    def _work(self, job: Import) -> None:
        try:
            if job.phase == "undoing":
                undo.run(job, self.stopping)
                return
            home = store.directory(job.id)
            resumed = job.phase == "applying" and not job.dry_run and (home / "staging.db").exists()
            if not resumed:
                job = self._read(job, home)
            if self._apply(job, home):
                work.write(steps.finish, job.id, "complete")
        except steps.Stopped:
            work.write(steps.finish, job.id, "cancelled")
        except _Halted:
            return
        except Unavailable:
            raise
        except stage.Unreadable as fault:
            work.write(steps.finish, job.id, "failed", str(fault))
        except Exception:
            log.exception("import %s failed", job.id)
            work.write(steps.finish, job.id, "failed", "something went wrong on our side; the log says what")

    def _read(self, job: Import, home: Path) -> Import:
        """Make the staging file; raises Stopped, Halted, Unreadable."""
        work.write(steps.start, job.id, "staging")
        while work.write(steps.fresh, job.id):
            pass
        goes = {column["name"]: column["target"] for column in job.columns} if job.format == "csv" else {}
        options = store.options(job)
        country = options.default_country if isinstance(options.default_country, str) else None
        task = Task(
            str(home / "upload"), str(home / "staging.db"), job.resource, {**goes, **options.map},
            tokens.loaded_key(), country, options.date_order,
        )  # fmt: skip
        small = job.bytes <= _SMALL
        done = stage.run(task, lambda count: None) if small else self._child(job.id, task)
        return work.write(steps.staged, job.id, done["total"], done["failed"], done["dates"])

    def _child(self, import_id: int, task: Task) -> dict[str, Any]:
        with child("read-import", task) as lines:
            for said in lines:
                if "done" in said:
                    if "unreadable" in said["done"]:
                        raise stage.Unreadable(said["done"]["unreadable"])
                    return dict(said["done"])
                if self.stopping.is_set():
                    break
                work.write(steps.read, import_id, said["rows"])
        raise _Halted

    def _apply(self, job: Import, home: Path) -> bool:
        """Write everybody behind the cursor; returns False if the service is ending first."""
        asked = steps.plan(job)
        staged = Staged(home / "staging.db")
        try:
            if not job.dry_run:
                work.between(staging.attach, home / "staging.db")
            return self._parts(asked, job, staged)
        finally:
            staged.close()
            if not job.dry_run and not work.is_stopped():
                work.between(staging.detach)

    def _parts(self, asked: Plan, job: Import, staged: Staged) -> bool:
        """Take people in parts that fit a short transaction, as the last one's time teaches, and write each."""
        after, count, size = (job.cursor or [0])[0], staged.count(), _FIRST
        arriving, memory, next_id = Arriving(job.id), Memory(), catalogue.last_number("contact") + 1
        while after < count and not self.stopping.is_set():
            last = min(after + size, count)
            if job.dry_run:
                done = steps.check(asked, job.resource, staged.people(after, last), memory)
                time.sleep(0.0005)  # looking lines up is all processor time; requests go first
                work.write(steps.checked, asked.import_id, steps.Part(after, last, next_id, 0), done, arriving)
            else:
                size = _size(work.write(_timed, asked, job.resource, after, last, arriving), last - after)
            after = last
        return bool(after == count)


def _size(taken: float, weight: int) -> int:
    """Return how many lines the next part may have, so that nobody waits long for its transaction."""
    return max(_MIN_ROWS, min(_MAX_ROWS, int(weight * min(2.0, _CHUNK_SECONDS / max(taken, 0.001)))))


class _Halted(Exception):
    """The service is ending; the next one goes on."""


def _timed(asked: Plan, resource: str, after: int, last: int, arriving: Arriving) -> float:
    begun = time.perf_counter()
    steps.apply(asked, resource, after, last, arriving)
    return time.perf_counter() - begun


def sweep() -> None:
    """Remove the files of imports that nobody can apply, undo or ask about any more."""
    for home in store.directory().iterdir():
        number = home.name if home.name.isdecimal() else "0"
        found = one("SELECT status, created_at FROM import WHERE id = ?", (number,))
        old = found is None or (found[0] not in store.OPEN and found[1] < clock.now_ms() - _KEPT_MS)
        try:
            if old and home.stat().st_mtime < time.time() - _HOUR_SECONDS:
                shutil.rmtree(home, ignore_errors=True) if home.is_dir() else home.unlink()
        except FileNotFoundError:
            continue  # a file that was handed in has become an import meanwhile
