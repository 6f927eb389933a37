"""Works on imports one after the other: reads the file in a child process, then writes chunk by chunk.

The tables hold how far it is: a process that dies is followed by one that goes on behind the last transaction. The
reading is done anew, the writing never twice.
"""

import logging
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.core import clock, tokens
from appliance.core.errors import Unavailable
from appliance.core.subprocesses import child
from appliance.imports import bulk_insert, existing_contacts, stage, staging, store, undo
from appliance.imports.bulk_insert import Made, Rows
from appliance.imports.chunk import CREATED, SKIPPED, Chunk, Outcome, Plan
from appliance.imports.contact_states import Arriving
from appliance.imports.existing_contacts import Known, Memory
from appliance.imports.people import Person
from appliance.imports.stage import Task
from appliance.imports.staging import Staged
from appliance.imports.undo import Before
from appliance.storage import sql, work
from appliance.storage.models import Import
from appliance.storage.open import fetch_one, rows, run, scalar
from appliance.storage.work import writing

# One transaction of an import of addresses that must not be written to.

_encode = msgspec.json.Encoder().encode
_BY = {"manual": "operator", "complaint": "recipient"}


class SuppressionChunk:
    """The work on some addresses, done when it is made (see `chunk.Chunk`)."""

    def __init__(
        self, plan: Plan, people: list[Person], made: Made | None = None, memory: Memory | None = None
    ) -> None:  # fmt: skip
        self.plan, self.now = plan, clock.now_ms() if made is None else made.at
        self.known = Known(plan.account_id, people, memory)
        self.rows = Rows(plan.account_id, plan.actor, plan.words, self.now)
        self.before = Before(self.now, made)
        self.outcomes = [self._person(person) for person in people]
        rows = zip(people, self.outcomes, strict=True)
        self.warned = sum(person.warnings is not None and one.result == CREATED for person, one in rows)
        if memory is None:
            self._channels()
            self.rows.flush()

    def _person(self, person: Person) -> Outcome:
        key, reason = (person.kind, person.key), person.suppression or "manual"
        hashed = self.known.hash_of(key)
        have = self.known.channels.get(key)
        contact_id = have.contact_id if have else None
        if reason in self.known.reasons(person.kind, hashed):
            return Outcome(person.line, SKIPPED, contact_id, "the address is suppressed for this reason already")
        self.known.suppress(person.kind, hashed, reason)
        self.before.suppressed(person.kind, hashed, reason)
        self.rows.suppression(
            (
                self.plan.account_id,
                person.kind,
                hashed,
                person.value,
                reason,
                person.source or self.plan.words,
                self.now,
            )
        )
        note = _encode({"import_id": self.plan.import_id, "reason": reason}).decode()
        self.rows.consent(contact_id, person.kind, hashed, "suppressed", _BY.get(reason, "service"), note)
        if have is not None:
            standing = have.standing._replace(
                suppression=existing_contacts.gravest(self.known.reasons(person.kind, hashed))
            )
            done = existing_contacts.outcome(self.now, standing, reason, False)
            if done.act is not None:
                self.rows.consent(contact_id, person.kind, hashed, done.act, done.by, note)
            have.change(done.standing, have.verified_at)
        elif reason == "complaint" and (person.kind, hashed) not in self.known.opt_outs:
            self.rows.remember((self.plan.account_id, person.kind, hashed, "recipient", self.now))
        return Outcome(person.line, CREATED, contact_id)

    def _channels(self) -> None:
        for have in self.known.touched():
            one = have.standing
            assert have.id is not None
            self.before.channel(have.id, have.original, have.verified_before, have.updated_at)
            self.rows.channel_update(
                (one.subscribed, one.opted_out_by, one.opt_out_at, one.opt_in_at, one.suppression, have.verified_at,
                 self.now, have.id)
            )  # fmt: skip


# The writing verbs of an import's job; each is one transaction that takes the job one step on, or does not happen.

_pack = msgspec.msgpack.Encoder().encode
_KINDS: dict[str, Any] = {"contacts": Chunk, "suppressions": SuppressionChunk}


class Part(NamedTuple):
    """Which positions of the staging file a transaction is about, and which contacts the plain among them became."""

    after: int
    last: int
    first_id: int
    made: int


class Stopped(Exception):
    """Somebody cancelled the import."""


def plan(job: Import) -> Plan:
    """Return what every chunk of an import needs to know."""
    asked = store.options(job)
    return Plan(
        job.id, job.account_id, job.actor, asked.consent_source, tuple(dict.fromkeys(asked.list_ids)), asked.opt_in,
        asked.on_conflict == "skip", asked.trigger_flows,
    )  # fmt: skip


def start(import_id: int, phase: str) -> Import:
    """Begin a phase; raises Stopped."""
    writing()
    _go_on(import_id)
    run(
        "UPDATE import SET status = 'processing', phase = ?, updated_at = ? WHERE id = ?",
        (phase, clock.now_ms(), import_id),
    )
    return Import.get_by_id(import_id)


def fresh(import_id: int, left: int = 200) -> bool:
    """Forget some outcomes of an earlier run and all its numbers; returns whether any are left to forget."""
    writing()
    run(
        "DELETE FROM import_chunk WHERE id IN (SELECT id FROM import_chunk WHERE import_job_id = ? LIMIT ?)",
        (import_id, left),
    )
    run(
        "UPDATE import SET total = 0, processed = 0, created = 0, updated = 0, skipped = 0, failed = 0, warnings = 0, "
        "arriving = '{}', cursor = '[]' WHERE id = ?",
        (import_id,),
    )
    return fetch_one("SELECT 1 FROM import_chunk WHERE import_job_id = ? LIMIT 1", (import_id,)) is not None


def read(import_id: int, count: int) -> None:
    """Show how many rows were read so far; raises Stopped."""
    writing()
    _go_on(import_id)
    run("UPDATE import SET total = ?, updated_at = ? WHERE id = ?", (count, clock.now_ms(), import_id))


def staged(import_id: int, total: int, failed: int, dates: dict[str, str]) -> Import:
    """Take over what came of the reading, with how the `dates` of columns are written, and go on to applying."""
    writing()
    _go_on(import_id)
    run(
        "UPDATE import SET phase = 'applying', total = ?, failed = ?, processed = ?, updated_at = ? WHERE id = ?",
        (total, failed, failed, clock.now_ms(), import_id),
    )
    job = Import.get_by_id(import_id)
    job.columns = [{**column, "dates": dates.get(column["name"])} for column in job.columns]
    run("UPDATE import SET columns = ? WHERE id = ?", (msgspec.json.encode(job.columns).decode(), import_id))
    return job


def apply(asked: Plan, resource: str, after: int, last: int, arriving: Arriving) -> None:
    """Write the people behind a position of the attached file up to another, with all that belongs to them, their
    outcomes, and how far the import is; raises Stopped.
    """
    writing()
    _go_on(asked.import_id)
    now = clock.now_ms()
    made = bulk_insert.make(asked, after, last, now) if resource == "contacts" else bulk_insert.nobody(now)
    special = staging.attached_people(after, last) if made.number < last - after else []
    done = _KINDS[resource](asked, special, made)
    grown = arriving.changes(done.outcomes)
    if made.number:
        grown["subscribed" if asked.opt_in else "unsubscribed:not_opted_in"] += made.number
    part = Part(after, last, made.first, made.number)
    _keep(asked.import_id, part, done.outcomes, done.before.packed(), done.warned + bulk_insert.warned(made), grown)
    arriving.take(done.outcomes)


class Checked(NamedTuple):
    """What applying some people would do: the outcome of each, and on how many lines something is left out."""

    outcomes: list[Outcome]
    warned: int


def check(asked: Plan, resource: str, people: list[Person], memory: Memory) -> Checked:
    """Return what applying some people would do now, after the parts of the file in `memory`; reads only."""
    done = _KINDS[resource](asked, people, memory=memory)
    return Checked(done.outcomes, done.warned)


def checked(import_id: int, part: Part, done: Checked, arriving: Arriving) -> None:
    """Keep what applying some people would do; contacts from `part.first_id` on are not there yet. Raises Stopped."""
    writing()
    _go_on(import_id)
    grown = arriving.changes(done.outcomes)
    told = [one._replace(contact_id=None) if (one.contact_id or 0) >= part.first_id else one for one in done.outcomes]
    _keep(import_id, part, told, None, done.warned, grown)
    arriving.take(done.outcomes)


def _go_on(import_id: int) -> None:
    asked = fetch_one("SELECT cancel_asked_at FROM import WHERE id = ?", (import_id,))
    if asked is None or asked[0] is not None:
        raise Stopped


def _keep(
    import_id: int, part: Part, outcomes: list[Outcome], before: bytes | None, warned: int, grown: Counter[str]
) -> None:  # fmt: skip
    counts = {"created": part.made, "updated": 0, "skipped": 0, "failed": 0}
    for outcome in outcomes:
        counts[outcome.result] += 1
    now = clock.now_ms()
    run(
        "INSERT INTO import_chunk (import_job_id, number, outcomes, before, created_at) VALUES (?, ?, ?, ?, ?)",
        (import_id, part.last, _pack([tuple(part), [tuple(one) for one in outcomes]]), before, now),
    )
    arriving = Counter(msgspec.json.decode(scalar("SELECT arriving FROM import WHERE id = ?", (import_id,)) or "{}"))
    arriving.update(grown)
    run(
        "UPDATE import SET created = created + ?, updated = updated + ?, skipped = skipped + ?, failed = failed + ?, "
        "processed = processed + ?, warnings = warnings + ?, arriving = ?, cursor = ?, updated_at = ? WHERE id = ?",
        (
            *counts.values(), part.last - part.after, warned, msgspec.json.encode(arriving).decode(),
            msgspec.json.encode([part.last]).decode(), now, import_id,
        ),
    )  # fmt: skip


def finish(import_id: int, status: str, error: str | None = None) -> None:
    """End an import; from here on it can be undone for a day, unless it wrote nothing."""
    writing()
    now = clock.now_ms()
    found = Import.get_or_none(Import.id == import_id)
    if found is None:
        return
    wrote = not found.dry_run and found.phase == "applying"
    run(
        "UPDATE import SET status = ?, phase = NULL, error = ?, completed_at = ?, undo_until = ?, updated_at = ? "
        "WHERE id = ?",
        (status, error, now, now + store.UNDO_MS if wrote else None, now, import_id),
    )


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
                work.write(finish, job.id, "complete")
        except Stopped:
            work.write(finish, job.id, "cancelled")
        except _Halted:
            return
        except Unavailable:
            raise
        except stage.Unreadable as fault:
            work.write(finish, job.id, "failed", str(fault))
        except Exception:
            log.exception("import %s failed", job.id)
            work.write(finish, job.id, "failed", "something went wrong on our side; the log says what")

    def _read(self, job: Import, home: Path) -> Import:
        """Make the staging file; raises Stopped, Halted, Unreadable."""
        work.write(start, job.id, "staging")
        while work.write(fresh, job.id):
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
        return work.write(staged, job.id, done["total"], done["failed"], done["dates"])

    def _child(self, import_id: int, task: Task) -> dict[str, Any]:
        with child("read-import", task) as lines:
            for said in lines:
                if "done" in said:
                    if "unreadable" in said["done"]:
                        raise stage.Unreadable(said["done"]["unreadable"])
                    return dict(said["done"])
                if self.stopping.is_set():
                    break
                work.write(read, import_id, said["rows"])
        raise _Halted

    def _apply(self, job: Import, home: Path) -> bool:
        """Write everybody behind the cursor; returns False if the service is ending first."""
        asked = plan(job)
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
        arriving, memory, next_id = Arriving(job.id), Memory(), sql.last_number("contact") + 1
        while after < count and not self.stopping.is_set():
            last = min(after + size, count)
            if job.dry_run:
                done = check(asked, job.resource, staged.people(after, last), memory)
                time.sleep(0.0005)  # looking lines up is all processor time; requests go first
                work.write(checked, asked.import_id, Part(after, last, next_id, 0), done, arriving)
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
    apply(asked, resource, after, last, arriving)
    return time.perf_counter() - begun


def sweep() -> None:
    """Remove the files of imports that nobody can apply, undo or ask about any more."""
    for home in store.directory().iterdir():
        number = home.name if home.name.isdecimal() else "0"
        found = fetch_one("SELECT status, created_at FROM import WHERE id = ?", (number,))
        old = found is None or (found[0] not in store.OPEN and found[1] < clock.now_ms() - _KEPT_MS)
        try:
            if old and home.stat().st_mtime < time.time() - _HOUR_SECONDS:
                shutil.rmtree(home, ignore_errors=True) if home.is_dir() else home.unlink()
        except FileNotFoundError:
            continue  # a file that was handed in has become an import meanwhile
