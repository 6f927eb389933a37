"""Puts a backup in the place of what is there: whole or not at all, held, and with the refusals made since (P11)."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import apsw
import peewee

from appliance import VERSION, clock, datadir, tokens
from appliance.backups import archive, files, placing, replay, take, waiting
from appliance.backups.archive import DATABASE, KEY, Manifest
from appliance.backups.replay import Replayed
from appliance.db import binding, disk_guard, identity, journal, work
from appliance.db.dialect import catalogue
from appliance.db.migrations import MIGRATIONS, migrate
from appliance.db.open import close_database, connection, open_database, rows, run
from appliance.db.work import writing
from appliance.flows import states
from appliance.segments import indexes
from appliance.tables import Flow, Restoration

# Where the place in the journal is not known, lines of that much before the backup are read too
_MARGIN_MS = 60_000


class NotRestored(Exception):
    """Nothing was restored, and why; what was there is as it was."""


class Restored(NamedTuple):
    """What stands now."""

    manifest: Manifest
    replayed: Replayed
    kept: Path | None  # where that is which was there before


def restore(directory: Path, source: Path, force: bool, tell: Callable[[str], None]) -> Restored:
    """Restore a backup into a data directory that is locked; raises NotRestored or archive.Damaged.

    A kill leaves what was there or what is restored, never half of it: all is made ready beside, one rename decides.
    """
    manifest = archive.manifest_of(source)
    if manifest.schema > len(MIGRATIONS):
        raise NotRestored(f"{source} has schema {manifest.schema}, this program knows {len(MIGRATIONS)}: "
                          f"use {manifest.version} or newer")  # fmt: skip
    database = directory / DATABASE
    there = os.path.lexists(database)
    if there and (kind := datadir.other_kind(database)):
        raise NotRestored(f"{database} is {kind}, not a database: move it away first")
    if there and not force:
        raise NotRestored(f"{directory} holds data: --force puts the backup in its place, after backing it up")
    # Of one that was killed behind its rename the journal of refusals may still lie there
    placing.finish(directory)
    made = directory / placing.ON_ITS_WAY
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(mode=0o700)
    try:
        tell(f"unpacking the backup of {clock.iso(manifest.taken_at)}")
        archive.unpack(source, made)
        _use_key(directory, made, manifest)
        kept = _set_aside(directory, manifest, tell) if there else None
        tell("looking it over")
        try:
            replayed = _ready(directory, made, manifest)
        except (apsw.Error, peewee.PeeweeException) as error:
            if disk_guard.storage_error(error) is not None and not disk_guard.is_damage(error):
                raise
            raise NotRestored(f"the database in the backup cannot be used: {error}") from None
        _rest(directory / DATABASE)
        placing.put(directory)
    finally:
        close_database()
        shutil.rmtree(made, ignore_errors=True)
    open_database(directory / DATABASE)
    return Restored(manifest, replayed, kept)


def _use_key(directory: Path, made: Path, manifest: Manifest) -> None:
    """Load the key that belongs to the backup: the one that is there, or its own; none is ever made here."""
    here, own = directory / KEY, made / KEY
    is_here = os.path.lexists(here)
    if not is_here and not own.exists():
        raise NotRestored(f"the key is missing: put the {KEY} that belongs to this backup into {directory} first "
                          "(without it nobody knows whom it must not write to)")  # fmt: skip
    tokens.load_key(directory if is_here else made)
    if tokens.fingerprint() != manifest.key:
        whose = here if is_here else f"the {KEY} in the backup"
        raise NotRestored(f"{whose} is the key of another installation: put the one that belongs to this backup there")


def _set_aside(directory: Path, manifest: Manifest, tell: Callable[[str], None]) -> Path:
    """Keep what is there: as a backup, or, where it cannot be read, as its files; and answer where."""
    folder = directory / files.FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    name = _free_name(folder)
    tell("backing up what is there")
    try:
        target = folder / f"{name}.tar.gz"
        take.backup(directory, target)
    except take.UnusableSource as error:
        tell(f"{error}; its files are kept as they are")
        target = folder / name
        target.mkdir(mode=0o700)
        for path in (directory / DATABASE, *(directory / f"{DATABASE}{end}" for end in placing.LOGS)):
            if path.exists():
                shutil.copyfile(path, target / path.name)
    except take.NotTaken as error:
        raise NotRestored(f"what is there could not be backed up: {error}") from None
    return target


def _free_name(folder: Path) -> str:
    """Return a name that nothing has there yet: a restoration may be killed and begun again within a second."""
    base = f"before-restore-{files.stamp(clock.now_ms())}"
    names = (base, *(f"{base}-{number}" for number in range(2, 1_000)))
    return next(name for name in names if not any((folder / f"{name}{end}").exists() for end in ("", ".tar.gz")))


def _ready(directory: Path, made: Path, manifest: Manifest) -> Replayed:
    """Bring the unpacked database to this program's schema, hold it, and tell it who left since."""
    _must_be_usable(made / DATABASE, manifest)
    open_database(made / DATABASE)
    found = catalogue.thorough_damage(3)
    if found:
        raise NotRestored(f"the database in the backup is damaged: {'; '.join(found)}")
    _refuse_code()
    migrate()
    binding.bind()
    ours = directory / journal.FILE
    if ours.exists():
        (made / journal.FILE).unlink(missing_ok=True)
    lines = journal.since(ours, manifest.journal, manifest.taken_at - _MARGIN_MS)
    paused = work.write(_hold)
    replayed = replay.replay(lines)
    work.write(_note, manifest, replayed, paused)
    catalogue.empty_log(connection())
    close_database()
    datadir.settle(made / DATABASE)
    return replayed


def _refuse_code() -> None:
    """Raise NotRestored for triggers and views: they would act later, and one could undo the hold.

    Ours belong to indexes, which are dropped here and made again when they are needed.
    """
    indexes.drop_all()
    names = [name for (name,) in rows("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view')")]
    if names:
        raise NotRestored(f"the database in the backup has triggers or views that are not ours: {', '.join(names[:3])}")


def _must_be_usable(path: Path, manifest: Manifest) -> None:
    """Raise NotRestored unless the unpacked database is what the backup says it is."""
    try:
        found = identity.inspect(path, "take another backup")
    except identity.Unusable as error:
        raise NotRestored(f"the database in the backup cannot be used: {error}") from None
    if found.schema == 0 or found.schema != manifest.schema:
        raise NotRestored(f"the database in the backup has schema {found.schema}, not {manifest.schema} as it says")
    if found.key_fingerprint not in (None, manifest.key):
        raise NotRestored("the database in the backup belongs to another key than the backup says")


def _hold() -> list[int]:
    """Stop all sending, and pause what goes on by itself; returns those flows."""
    writing()
    run("UPDATE account SET sending_stopped = 1, stop_reason = ?", (waiting.HELD,))
    # Whoever was signed in then, and out since, is not let in again by an old cookie
    run("DELETE FROM session WHERE 1")
    active = list(Flow.select().where(Flow.status == "active"))
    for flow in active:
        states.pause(flow)
        flow.save()
    return [flow.id for flow in active]


def _note(manifest: Manifest, replayed: Replayed, paused: list[int]) -> None:
    writing()
    Restoration.create(
        taken_at=manifest.taken_at, restored_at=clock.now_ms(), taken_by=manifest.version, restored_by=VERSION,
        replayed=replayed._asdict(), paused=paused,
    )  # fmt: skip


def _rest(path: Path) -> None:
    """Bring the database that is there to rest, so that no log of it is left beside the one that comes."""
    if not path.exists():
        return
    try:
        here = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            catalogue.empty_log(here)
        finally:
            here.close()
    except apsw.Error:
        return  # it cannot be read; its files were kept
