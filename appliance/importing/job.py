"""Works on imports one after the other: reads the file in a child process, then writes chunk by chunk.

The tables hold how far it is: a process that dies is followed by one that goes on behind the last transaction. The
reading is done anew, the writing never twice.
"""

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import msgspec

from appliance import clock
from appliance.db import work
from appliance.db.open import one, rows
from appliance.errors import Unavailable
from appliance.importing import stage, steps, store, undo
from appliance.importing.chunk import Group, Outcome, Plan
from appliance.importing.stage import Task
from appliance.importing.staging import Staged
from appliance.tables import Import

log = logging.getLogger("campanero.imports")

_MOST, _LEAST = 500, 25
_CHUNK_SECONDS = 0.02
# Rows of a kind that cost more than usual begin small and grow
_FIRST = 100
# Below this a child process costs more than the reading
_SMALL = 131_072
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
        task = Task(str(home / "upload"), str(home / "staging.db"), job.resource, {**goes, **store.options(job).map})
        small = job.bytes <= _SMALL
        done = stage.run(task, lambda count: None) if small else self._child(job.id, task)
        return work.write(steps.staged, job.id, done["total"], done["failed"])

    def _child(self, import_id: int, task: Task) -> dict[str, int]:
        with _start() as child:
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(msgspec.json.encode(task) + b"\n")
                child.stdin.close()
                for line in child.stdout:
                    said = msgspec.json.decode(line)
                    if "done" in said:
                        if "unreadable" in said["done"]:
                            raise stage.Unreadable(said["done"]["unreadable"])
                        return dict(said["done"])
                    if self.stopping.is_set():
                        raise _Halted
                    work.write(steps.read, import_id, said["rows"])
            finally:
                child.kill()
        raise RuntimeError(f"the process that reads the file ended with {child.returncode}")

    def _apply(self, job: Import, home: Path) -> bool:
        """Write everybody behind the cursor; answers False if the service is ending first."""
        asked = steps.plan(job)
        staged = Staged(home / "staging.db")
        try:
            after = tuple(job.cursor) if job.cursor else ("", "")
            return self._parts(asked, job, steps.groups(staged.people(after)))
        finally:
            staged.close()

    def _parts(self, asked: Plan, job: Import, groups: Iterator[Group]) -> bool:
        """Take groups in parts that fit a short transaction, as the last one's time teaches, and write each.

        The next part is fetched while one is written; never are two in hand, so the cursor is always right.
        """
        size, part, weight = _FIRST, [], 0
        writing: tuple[Future[float], int] | None = None
        for group in groups:
            part.append(group)
            weight += 1 + len(group.again)
            if weight >= size:
                if writing is not None:
                    size = _size(writing[0].result(), writing[1])
                if self.stopping.is_set():
                    return False
                writing = self._part(asked, job, part), weight
                part, weight = [], 0
        if writing is not None:
            writing[0].result()
        if part and not self.stopping.is_set():
            self._part(asked, job, part).result()
            part = []
        return not part

    def _part(self, asked: Plan, job: Import, part: list[Group]) -> "Future[float]":
        if not job.dry_run:
            return work.submit(_timed, asked, job.resource, part)
        outcomes = steps.check(asked, job.resource, part)
        time.sleep(0.0005)  # looking lines up is all processor time; requests go first
        return work.submit(_kept, asked.import_id, part, outcomes)


def _size(taken: float, weight: int) -> int:
    """Answer how many lines the next part may have, so that nobody waits long for its transaction."""
    return max(_LEAST, min(_MOST, int(weight * min(2.0, _CHUNK_SECONDS / max(taken, 0.001)))))


def _kept(import_id: int, part: list[Group], outcomes: list[Outcome]) -> float:
    steps.checked(import_id, part, outcomes)
    return 0.0


class _Halted(Exception):
    """The service is ending; the next one goes on."""


def _timed(asked: Plan, resource: str, part: list[Group]) -> float:
    begun = time.perf_counter()
    steps.apply(asked, resource, part)
    return time.perf_counter() - begun


def _start() -> "subprocess.Popen[bytes]":
    """Run this very program once more, found where this one was found, for the reading of one file."""
    frozen = getattr(sys, "frozen", False)
    words = [sys.executable, "read-import"] if frozen else [sys.executable, "-P", "-m", "appliance", "read-import"]
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ if frozen else {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)  # noqa: S603 - no word of it comes from outside


def sweep() -> None:
    """Remove the files of imports that nobody can apply, undo or ask about any more."""
    for home in store.directory().iterdir():
        number = home.name if home.name.isdecimal() else "0"
        found = one("SELECT status, created_at FROM import WHERE id = ?", (number,))
        old = found is None or (found[0] not in store.OPEN and found[1] < clock.now_ms() - _KEPT_MS)
        if old and home.stat().st_mtime < time.time() - 3600:
            shutil.rmtree(home, ignore_errors=True) if home.is_dir() else home.unlink(missing_ok=True)
