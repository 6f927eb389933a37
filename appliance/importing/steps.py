"""The writing verbs of an import's job; each is one transaction that takes the job one step on, or does not happen."""

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from appliance import clock
from appliance.db.open import one, run, scalar
from appliance.db.work import writing
from appliance.importing import bulk_insert, staging, store
from appliance.importing.chunk import Chunk, Outcome, Plan
from appliance.importing.contact_states import Arriving
from appliance.importing.existing_contacts import Memory
from appliance.importing.people import Person
from appliance.importing.suppression_chunk import SuppressionChunk
from appliance.tables import Import

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
    return one("SELECT 1 FROM import_chunk WHERE import_job_id = ? LIMIT 1", (import_id,)) is not None


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
    asked = one("SELECT cancel_asked_at FROM import WHERE id = ?", (import_id,))
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
