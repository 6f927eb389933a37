"""Puts a backup in the place of what is there: whole or not at all, held, and with the refusals made since (P11)."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw
import peewee

from appliance import VERSION
from appliance.audience.contacts import consent, erase
from appliance.audience.contacts.consent import Evidence
from appliance.audience.segments import indexes
from appliance.core import clock, data_dir, tokens
from appliance.core.errors import NotFound
from appliance.flows import states
from appliance.ops.backups import archive, files, placing, take
from appliance.ops.backups.archive import DATABASE, KEY, Manifest
from appliance.storage import disk_guard, identity, journal, sql, work
from appliance.storage.migrations import MIGRATIONS, migrate
from appliance.storage.models import Account, Channel, Flow, Restoration
from appliance.storage.open import close_database, connection, fetch_one, open_database, rows, run
from appliance.storage.work import writing

# Tells a restored database who left since its backup: what the journal of refusals says, done once more.
#
# Only refusals: what people agreed to since is gone with all else that is newer than the backup, what they refused
# is not. Doing it again where it is known already changes nothing.

_EVIDENCE = Evidence("restore", "system")
_CHUNK = 500


class Replayed(NamedTuple):
    """How many refusals were told to a database, by what they were."""

    opt_outs: int = 0
    suppressions: int = 0
    lists_left: int = 0
    tracking: int = 0
    erased: int = 0


def replay_journal(lines: Iterable[dict[str, Any]]) -> Replayed:
    """Do what the lines of a journal say, in their order, and answer how much of it was new here."""
    known, found, part = _Known(), Counter[str](), list[dict[str, Any]]()
    for line in lines:
        part.append(line)
        if len(part) == _CHUNK:
            found += work.write(_some, known, part)
            part = []
    found += work.write(_some, known, part)
    return Replayed(found["opt_out"], found["suppressed"], found["list_left"], found["tracking"], found["erased"])


class _Known:
    """Whose an address is: hashes tell nothing, so those of all channels are made once."""

    def __init__(self) -> None:
        hashed = tokens.address_hasher()
        self._ids = {
            (account, kind, hashed(kind, key)): number
            for number, account, kind, key in rows("SELECT id, account_id, kind, key FROM channel")
        }

    def channel(self, account_id: int, kind: str, hashed: bytes) -> Channel | None:
        """Return the channel that has an address, as it is now."""
        number = self._ids.get((account_id, kind, hashed))
        return Channel.get_or_none(Channel.id == number) if number is not None else None


def _some(known: _Known, lines: list[dict[str, Any]]) -> Counter[str]:
    writing()
    found = Counter[str]()
    for line in lines:
        account = line["account"]
        if fetch_one("SELECT 1 FROM account WHERE id = ?", (account,)) is None:
            continue  # it was made after the backup, and is gone with all it had
        if line["act"] == "erased":
            found["erased"] += _erased(account, line["contact"])
        elif act := _ACTS.get(line["act"]):
            hashed = bytes.fromhex(line["hash"])
            found[line["act"]] += act(line, hashed, known.channel(account, line["kind"], hashed))
    return found


def _erased(account_id: int, contact_id: int) -> bool:
    try:
        erase.erase(account_id, contact_id, _EVIDENCE)
    except NotFound:
        return False
    return True


def _opt_out(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    by: Literal["recipient", "operator"] = "operator" if line["by"] == "operator" else "recipient"
    if channel is not None:
        return consent.opt_out(channel, by, _EVIDENCE)
    if consent.remembered(line["account"], line["kind"], hashed) is not None:
        return False
    consent.remember_hash(line["account"], line["kind"], hashed, by, line["at"])
    return True


def _suppressed(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    account, kind, reason = line["account"], line["kind"], line["reason"]
    expires = line.get("expires_at")
    if expires is not None and expires <= clock.now_ms():
        return False
    made = run(
        "INSERT INTO suppression (account_id, kind, address_hash, address, reason, source, created_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, 'restore', ?, ?) ON CONFLICT DO NOTHING",
        (account, kind, hashed, channel.value if channel and reason != "erased" else None, reason, line["at"], expires),
    )
    if channel is not None:
        channel.suppression = consent.in_force(channel)
        run("UPDATE channel SET suppression = ? WHERE id = ?", (channel.suppression, channel.id))
    if made:
        contact = channel.contact_id if channel is not None else None
        consent.record(account, (kind, hashed), "suppressed", line["by"], _EVIDENCE, contact, {"reason": reason})
    return bool(made)


def _list_left(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    number = line.get("list")
    if channel is None or number is None:
        return False
    refused = consent.is_refused(channel.contact_id, [number])
    return not refused and consent.leave_list(channel, number, _EVIDENCE)


def _tracking(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    return channel is not None and consent.set_tracking(channel, line["tracking"], _EVIDENCE)


_ACTS = {"opt_out": _opt_out, "suppressed": _suppressed, "list_left": _list_left, "tracking": _tracking}


# What a restored account would send once it is let: all of it may have gone out between the backup and now.

HELD = "restored"  # the `stop_reason` of accounts until a person lets them send
_OPEN = "status IN ('queued', 'held', 'sending')"


class Wave(NamedTuple):
    """A campaign that is not over, and how many of its people are still to get it."""

    campaign_id: int
    name: str
    phase: str
    scheduled_at: int | None
    open: int
    sent: int


class Paused(NamedTuple):
    """A flow that was live, and how many people are inside."""

    flow_id: int
    name: str
    inside: int


class Waiting(NamedTuple):
    """All of it, for one account."""

    restoration: Restoration | None
    campaigns: list[Wave]
    flows: list[Paused]
    of_flows: int  # messages of flows
    single: int  # and of nobody's campaign or flow

    @property
    def is_empty(self) -> bool:
        """Whether nothing would go out."""
        return not (self.campaigns or self.flows or self.of_flows or self.single)


def is_held(account: Account) -> bool:
    """Return whether an account was restored and nobody has let it send since."""
    return bool(account.sending_stopped) and account.stop_reason == HELD


def last_restoration() -> Restoration | None:
    """Return the last restoration of this installation, or None."""
    found: Restoration | None = Restoration.select().order_by(Restoration.id.desc()).first()
    return found


def of_account(account_id: int) -> Waiting:
    """Return what an account would send."""
    found = last_restoration()
    campaigns = [
        Wave(*row)
        for row in rows(
            "SELECT c.id, c.name, c.phase, c.scheduled_at, "
            f"(SELECT count(*) FROM message m WHERE m.campaign_id = c.id AND m.{_OPEN}), "
            "(SELECT count(*) FROM message m WHERE m.campaign_id = c.id AND m.status = 'sent') FROM campaign c "
            "WHERE c.account_id = ? AND c.phase IN ('scheduled', 'holding', 'sending', 'paused') "
            "AND c.deleted_at IS NULL ORDER BY c.id DESC",
            (account_id,),
        )
    ]
    return Waiting(found, campaigns, _paused(account_id, found), *_loose(account_id))


def _paused(account_id: int, found: Restoration | None) -> list[Paused]:
    if found is None:
        return []
    return [
        Paused(*row)
        for row in rows(
            "SELECT f.id, f.name, (SELECT count(*) FROM run r WHERE r.flow_id = f.id AND r.status = 'live') "
            "FROM flow f WHERE f.account_id = ? AND f.status = 'paused' AND f.hidden = 0 "
            "AND f.id IN (SELECT value FROM json_each(?)) ORDER BY f.id",
            (account_id, Restoration.paused.db_value(found.paused)),
        )
    ]


def _loose(account_id: int) -> tuple[int, int]:
    row = fetch_one(
        "SELECT count(*) FILTER (WHERE run_id IS NOT NULL), count(*) FILTER (WHERE run_id IS NULL) FROM message "
        f"WHERE account_id = ? AND campaign_id IS NULL AND {_OPEN}",
        (account_id,),
    )
    return (row[0], row[1]) if row else (0, 0)


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
    if there and (kind := data_dir.other_kind(database)):
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
    found = sql.thorough_damage(3)
    if found:
        raise NotRestored(f"the database in the backup is damaged: {'; '.join(found)}")
    _refuse_code()
    migrate()
    identity.bind_key()
    ours = directory / journal.FILE
    if ours.exists():
        (made / journal.FILE).unlink(missing_ok=True)
    lines = journal.since(ours, manifest.journal, manifest.taken_at - _MARGIN_MS)
    paused = work.write(_hold)
    replayed = replay_journal(lines)
    work.write(_note, manifest, replayed, paused)
    sql.empty_log(connection())
    close_database()
    data_dir.settle(made / DATABASE)
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
    run("UPDATE account SET sending_stopped = 1, stop_reason = ?", (HELD,))
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
            sql.empty_log(here)
        finally:
            here.close()
    except apsw.Error:
        return  # it cannot be read; its files were kept
