"""Restoring a backup: all or nothing, with sending stopped, and with later opt-outs kept (docs/promises.md, P11)."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import apsw
import peewee

from appliance import VERSION
from appliance.accounts import accounts
from appliance.audience.segments import query_plan
from appliance.core import clock, crypto, data_dir
from appliance.flows import lifecycle
from appliance.ops.backups import archive, replay_sends
from appliance.ops.backups import create as backups
from appliance.ops.backups.archive import DATABASE, KEY, Manifest
from appliance.ops.backups.replay import REFUSALS, Replayed, replay_journal
from appliance.sending.messages import queue, restored_sends
from appliance.storage import database as sql
from appliance.storage import disk_guard, journal, migrations, models, sandbox, transactions
from appliance.storage.database import close_database, connection, fetch_one, open_database, rows, run
from appliance.storage.journal import JournalLine, Sent, UnknownLine, UnusableJournal
from appliance.storage.migrations import MIGRATIONS, migrate
from appliance.storage.models import Account, Flow, Restoration, TeamMember, User
from appliance.storage.transactions import require_write_transaction

# A message that is queued in the backup may have been sent after the backup was created. So a restore stops the sending
# of every account until a user has decided about its queued messages.

HELD_REASON = accounts.RESTORED
_OPEN_SQL = "status IN ('queued', 'held', 'sending')"


class HeldCampaign(NamedTuple):
    """A campaign that is scheduled, being sent or paused."""

    campaign_id: int
    name: str
    phase: str
    scheduled_at: int | None  # milliseconds
    open_count: int  # messages that would still be sent
    sent_count: int  # messages that were sent before the backup, whatever was reported of them since
    # Messages sent after the backup, by the journal, including those whose rows the campaign has yet to create.
    sent_since_count: int


class HeldFlow(NamedTuple):
    """A flow that the restore paused."""

    flow_id: int
    name: str
    run_count: int  # live runs
    sent_since_count: int  # messages that were sent after the backup and whose rows it has yet to create


class HeldSending(NamedTuple):
    """Everything that an account would send if its sending were resumed.

    `restoration` is the record of the last restore, or None.
    """

    restoration: Restoration | None
    campaigns: list[HeldCampaign]
    flows: list[HeldFlow]
    flow_message_count: int  # open messages of flows
    other_message_count: int  # open messages that belong neither to a campaign nor to a flow

    @property
    def is_empty(self) -> bool:
        """Return whether the account has nothing to send."""
        return not (self.campaigns or self.flows or self.flow_message_count or self.other_message_count)


def is_account_held(account: Account) -> bool:
    """Return whether a restore stopped the account's sending, and no user has resumed it."""
    return bool(account.sending_stopped) and account.stop_reason == HELD_REASON


def get_last_restoration() -> Restoration | None:
    """Return the record of the last restore of this installation, or None."""
    restoration: Restoration | None = Restoration.select().order_by(Restoration.id.desc()).first()
    return restoration


def find_held_sending(account_id: int) -> HeldSending:
    """Return the campaigns, paused flows and open messages that an account would send if its sending were resumed."""
    restoration = get_last_restoration()
    campaigns = [
        HeldCampaign(*row)
        for row in rows(
            "SELECT c.id, c.name, c.phase, c.scheduled_at, "
            f"(SELECT count(*) FROM message m WHERE m.campaign_id = c.id AND m.{_OPEN_SQL}), "
            "(SELECT count(*) FROM message m WHERE m.campaign_id = c.id AND m.sent_at IS NOT NULL) - n.since, "
            "n.since + (SELECT count(*) FROM restored_send r WHERE r.campaign_id = c.id AND r.is_doubtful = 0) "
            "FROM campaign c JOIN (SELECT x.id, (SELECT count(*) FROM message m WHERE m.campaign_id = x.id "
            f"AND {restored_sends.SENT_SINCE_BACKUP.format('m')}) AS since FROM campaign x) n ON n.id = c.id "
            "WHERE c.account_id = ? AND c.phase IN ('scheduled', 'holding', 'sending', 'paused') "
            "AND c.deleted_at IS NULL ORDER BY c.id DESC",
            (account_id,),
        )
    ]
    return HeldSending(
        restoration, campaigns, _find_paused_flows(account_id, restoration), *_count_other_messages(account_id)
    )


def _find_paused_flows(account_id: int, restoration: Restoration | None) -> list[HeldFlow]:
    if restoration is None:
        return []
    return [
        HeldFlow(*row)
        for row in rows(
            "SELECT f.id, f.name, (SELECT count(*) FROM run r WHERE r.flow_id = f.id AND r.status = 'live'), "
            "(SELECT count(*) FROM restored_send s WHERE s.flow_id = f.id AND s.is_doubtful = 0) "
            "FROM flow f WHERE f.account_id = ? AND f.status = 'paused' AND f.hidden = 0 "
            "AND f.id IN (SELECT value FROM json_each(?)) ORDER BY f.id",
            (account_id, Restoration.paused.db_value(restoration.paused)),
        )
    ]


def _count_other_messages(account_id: int) -> tuple[int, int]:
    row = fetch_one(
        "SELECT count(*) FILTER (WHERE run_id IS NOT NULL), count(*) FILTER (WHERE run_id IS NULL) FROM message "
        f"WHERE account_id = ? AND campaign_id IS NULL AND {_OPEN_SQL}",
        (account_id,),
    )
    return (row[0], row[1]) if row else (0, 0)


# The schema version of the first version that writes sent messages to the journal.
FIRST_SCHEMA_WITH_SENDS = migrations.MIGRATIONS.index(migrations.restored_sends) + 1
# If the position in the manifest does not belong to the current journal, the lines to replay are selected by time,
# beginning this long before the backup.
_JOURNAL_MARGIN_MS = 60_000


class RestoreFailed(Exception):
    """The restore failed before anything was replaced; the current data is unchanged."""


class RestoreIncomplete(Exception):
    """The database was replaced, but other files were not moved into place; the next start of the service does that."""


class RestoreResult(NamedTuple):
    """The result of a restore."""

    manifest: Manifest
    replayed: Replayed
    # The backup of the previous data, or a directory with the database files if the database could not be read; None if
    # there was no database.
    previous_data_path: Path | None
    readmitted: list[str]  # the addresses of the users who could not sign in before the restore, and now can


class Source(Protocol):
    """A backup that can be restored; `name` is its path or URL for messages."""

    name: str
    manifest: Manifest

    def unpack(self, into: Path) -> None:
        """Write the files into an empty directory, with all checksums verified. Raises archive.DamagedArchive."""
        ...

    def authenticate(self) -> None:
        """Raise archive.DamagedArchive unless the files were made by the installation whose key is loaded."""
        ...


class _ArchiveSource:
    """A backup file."""

    def __init__(self, path: Path) -> None:
        self.name, self.manifest, self._path = str(path), archive.read_manifest(path), path
        self._sums: archive.SignedSums | None = None

    def unpack(self, into: Path) -> None:
        self._sums = archive.unpack_archive(self._path, into)

    def authenticate(self) -> None:
        assert self._sums is not None, "unpacked before"
        archive.require_signature(self._path, self._sums)


def describe_replay(restored: RestoreResult) -> list[str]:
    """Return sentences about the changes since the backup that were applied to the restored data."""
    replayed = restored.replayed
    refusals = {
        name.replace("_", " "): number for name, number in replayed._asdict().items() if name in REFUSALS and number
    }
    words = ", ".join(f"{number} {name}" for name, number in refusals.items())
    if words:
        sentences = [f"Opt-outs since then were replayed: {words}."]
    elif replayed.has_journal:
        sentences = ["There were no opt-outs since then."]
    else:
        sentences = ["Opt-outs since then are unknown, because the data directory had no journal (optouts.jsonl)."]
    if replayed.sent or replayed.expected or replayed.uncertain:
        sentences.append(
            f"Sent after this backup, and not sent again: {replayed.sent + replayed.expected} messages; "
            f"unconfirmed, for you to decide: {replayed.uncertain}."
        )
    elif replayed.is_complete:
        sentences.append("No message of this backup was sent after it.")
    if replayed.unknown:
        sentences.append(f"Sent after this backup by what it does not contain: {replayed.unknown} messages.")
    if not replayed.is_complete:
        sentences.append("The journal does not name all messages that were sent after this backup.")
    elif not replayed.is_end_known:
        sentences.append("Messages that were being sent when the replaced data was lost are not known.")
    return sentences


def restore_backup(directory: Path, source: Path, force: bool, report: Callable[[str], None]) -> RestoreResult:
    """Restore a backup file, as `restore_from` does."""
    return restore_from(directory, _ArchiveSource(source), force, report)


def restore_from(directory: Path, source: Source, force: bool, report: Callable[[str], None]) -> RestoreResult:
    """Restore a backup into a data directory that the caller has locked, and open the restored database.

    `force` allows replacing existing data, which is backed up first. `report` gets a message before each slow step. The
    data is unpacked and prepared in a staging directory, and one rename replaces the database, so a killed process
    leaves either the old or the new data. Raises RestoreFailed, RestoreIncomplete, archive.DamagedArchive, or WrongKey
    for an unusable key file.
    """
    manifest = source.manifest
    if manifest.schema > len(MIGRATIONS):
        raise RestoreFailed(f"{source.name} has schema {manifest.schema}, this program knows {len(MIGRATIONS)}: "
                          f"use {manifest.version} or newer")  # fmt: skip
    database = directory / DATABASE
    exists = os.path.lexists(database)
    if exists and (kind := data_dir.irregular_kind(database)):
        raise RestoreFailed(f"{database} is {kind}, not a database: move it away first")
    if exists and not force:
        raise RestoreFailed(f"{directory} holds data: --force puts the backup in its place, after backing it up")
    _require_usable_journal(directory)
    if (directory / archive.STAGING_DIRECTORY).is_symlink():
        raise RestoreFailed(f"{directory / archive.STAGING_DIRECTORY} is a link: remove it first")
    if folder := archive.find_shared_folder(directory):
        raise RestoreFailed(f"{directory / folder} is replaced by a restore, but other data is at the same place: "
                            "give it a place of its own first")  # fmt: skip
    # A restore that was killed after it replaced the database may have left the journal in the staging directory.
    archive.finish_installation(directory)
    staging = directory / archive.STAGING_DIRECTORY
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        report(f"unpacking the backup of {clock.iso(manifest.taken_at)}")
        source.unpack(staging)
        _load_key(directory, staging, manifest)
        _require_usable_journal(directory)  # now that the key is known
        source.authenticate()
        saved_path = _preserve_current_data(directory, manifest, report) if exists else None
        report("checking the database")
        try:
            replayed, readmitted = _prepare_database(directory, staging, manifest, report)
        except (apsw.Error, peewee.PeeweeException) as error:
            if disk_guard.to_storage_error(error) is not None and not disk_guard.is_damage_error(error):
                raise
            raise RestoreFailed(f"the database in the backup cannot be used: {error}") from None
        _checkpoint_current_database(directory / DATABASE)
        _install(directory)
    finally:
        close_database()
        archive.discard_staging(directory)
    open_database(directory / DATABASE)
    return RestoreResult(manifest, replayed, saved_path, readmitted)


def _require_usable_journal(directory: Path) -> None:
    """Raise RestoreFailed for a journal that only a newer version knows, or that belongs to another installation."""
    try:
        journal.find_end(directory / journal.JOURNAL_FILE)
    except UnusableJournal as error:
        raise RestoreFailed(str(error)) from None


def _install(directory: Path) -> None:
    """Replace the current data. Raises RestoreIncomplete if that fails after the database was replaced."""
    try:
        archive.install_restored_data(directory)
    except OSError as error:
        if not archive.is_installing(directory):
            raise
        raise RestoreIncomplete(
            f"the database was restored, but not all files: {error}. Remove the cause; `campanero restore` or the next "
            "start of the service then moves the other files into place"
        ) from None


def _load_key(directory: Path, staging: Path, manifest: Manifest) -> None:
    """Load the key file of the data directory, or the key file of the backup if the directory has none.

    Raises RestoreFailed if neither has a key file, or if the manifest names another key.
    """
    key_path, backup_key_path = directory / KEY, staging / KEY
    has_key = os.path.lexists(key_path)
    if not has_key and not backup_key_path.exists():
        raise RestoreFailed(f"the key is missing: put the {KEY} that belongs to this backup into {directory} first "
                          "(without it, opt-outs and suppressions cannot be recognised)")  # fmt: skip
    crypto.load_key(directory if has_key else staging)
    if crypto.key_fingerprint() != manifest.key:
        description = key_path if has_key else f"the {KEY} in the backup"
        is_replaceable = has_key and backup_key_path.exists()
        advice = f", or restore into an empty directory: the backup contains its {KEY}" if is_replaceable else ""
        raise RestoreFailed(
            f"{description} is the key of another installation: put the one that belongs to this backup there{advice}"
        )


def _preserve_current_data(directory: Path, manifest: Manifest, report: Callable[[str], None]) -> Path:
    """Back up the current data and return the path of the backup.

    If the database cannot be read, copy its files, and return the directory with these. Raises RestoreFailed if the
    backup fails for another reason.
    """
    folder = directory / backups.BACKUP_DIRECTORY
    folder.mkdir(mode=0o700, exist_ok=True)
    name = _find_free_name(folder)
    report("backing up what is there")
    try:
        target = folder / f"{name}.tar.gz"
        backups.create_backup(directory, target)
    except backups.UnusableSource as error:
        report(f"{error}; its files are kept as they are")
        target = folder / name
        target.mkdir(mode=0o700)
        for path in (directory / DATABASE, *(directory / f"{DATABASE}{end}" for end in archive.LOG_SUFFIXES)):
            if path.exists():
                shutil.copyfile(path, target / path.name)
    except backups.BackupFailed as error:
        raise RestoreFailed(f"what is there could not be backed up: {error}") from None
    return target


def _find_free_name(folder: Path) -> str:
    """Return a name with the current time that does not exist in the folder.

    The time alone is not unique, because a killed restore may be repeated within a second.
    """
    base = f"before-restore-{backups.format_timestamp(clock.now_ms())}"
    names = (base, *(f"{base}-{number}" for number in range(2, 1_000)))
    return next(name for name in names if not any((folder / f"{name}{end}").exists() for end in ("", ".tar.gz")))


def _prepare_database(
    directory: Path, staging: Path, manifest: Manifest, report: Callable[[str], None]
) -> tuple[Replayed, list[str]]:
    """Check and migrate the unpacked database, stop all sending, and replay the journal.

    Return how many lines of the journal changed the database, by kind, and `RestoreResult.readmitted`. Only the journal
    of the data directory is replayed; without one, the journal of the backup is kept but not replayed. Raises
    RestoreFailed if the database is damaged or unusable.
    """
    _require_usable_database(staging / DATABASE, manifest)
    open_database(staging / DATABASE)
    damage = sql.integrity_check(3)
    if damage:
        raise RestoreFailed(f"the database in the backup is damaged: {'; '.join(damage)}")
    _reject_triggers()
    migrate()
    _require_tables()
    migrations.bind_key()
    journal_path = directory / journal.JOURNAL_FILE
    current = _read_current_data(directory / DATABASE)
    # Only the replaced database contains them, so they are written to the journal for another restore.
    journal.append_to_file(journal_path, current.unsettled)
    if journal_path.exists():
        (staging / journal.JOURNAL_FILE).unlink(missing_ok=True)
    damaged_lines: list[int] = []
    lines = _read_journal(journal_path, manifest, report, damaged_lines)
    transactions.write(queue.settle_log)
    transactions.write(_skip_used_ids, current.last_ids)
    transactions.write(_end_access, current.revoked_keys)
    readmitted = _find_readmitted(current.disabled_users)
    paused = transactions.write(_hold_sending)
    replayed = replay_journal(lines)._replace(
        # A damaged line may have named a message that was sent.
        is_complete=_names_all_sends(journal_path, manifest) and not damaged_lines, is_end_known=current.was_read,
        has_journal=journal_path.exists(),
    )  # fmt: skip
    transactions.write(_record_restoration, manifest, replayed, paused)
    sql.truncate_wal(connection())
    close_database()
    data_dir.sync_to_disk(staging / DATABASE)
    return replayed, readmitted


def _names_all_sends(path: Path, manifest: Manifest) -> bool:
    """Return whether the journal names all messages that were sent since the backup.

    It does not if it is the journal of another machine, if a version that did not write such lines sent some of the
    messages, or if lines of that time were removed.
    """
    if manifest.schema < FIRST_SCHEMA_WITH_SENDS or not path.exists():
        return False
    with path.open("rb") as file:
        header = journal.read_header(file)
    return (
        header is not None
        and header.line.sent_since <= manifest.taken_at
        and (manifest.journal is None or manifest.journal.journal == header.journal)
    )


def _read_journal(
    path: Path, manifest: Manifest, report: Callable[[str], None], damaged_lines: list[int]
) -> Iterator[JournalLine]:
    """Yield the lines of the journal that are newer than the backup.

    At the end, report how many are damaged, and append that number to `damaged_lines`, unless it is zero.
    """
    damaged_count = unknown_count = 0
    for line in journal.read_since(path, manifest.journal, manifest.taken_at - _JOURNAL_MARGIN_MS):
        if isinstance(line, JournalLine):
            yield line
        elif isinstance(line, UnknownLine):
            unknown_count += 1
        else:
            damaged_count += 1
    if damaged_count:
        damaged_lines.append(damaged_count)
        report(f"warning: damaged lines in {path} were skipped, and opt-outs in them are lost: {damaged_count}")
    if unknown_count:
        report(f"warning: lines of a newer version in {path} were kept, but not applied: {unknown_count}")


def _require_tables() -> None:
    """Raise RestoreFailed if the open database lacks a table or a column of the current schema."""
    if missing := migrations.find_missing_columns():
        raise RestoreFailed(f"the database in the backup lacks {', '.join(missing[:5])}")


def _reject_triggers() -> None:
    """Raise RestoreFailed if the open database has triggers or views that are not ours.

    A trigger could change data later, for example resume the stopped sending. Our own triggers belong to the indexes of
    custom data, which are dropped here first; the service creates them again when they are needed.
    """
    query_plan.drop_indexes()
    if names := migrations.find_foreign_objects(connection()):
        raise RestoreFailed(
            f"the database in the backup has triggers or views that are not ours: {', '.join(names[:3])}"
        )


def _require_usable_database(path: Path, manifest: Manifest) -> None:
    """Raise RestoreFailed unless the unpacked database can be read and has the manifest's schema version.

    If the database has a key fingerprint, it must equal that of the manifest.
    """
    try:
        facts = migrations.inspect_database(path, "take another backup")
    except migrations.UnusableDatabase as error:
        raise RestoreFailed(f"the database in the backup cannot be used: {error}") from None
    if facts.schema == 0 or facts.schema != manifest.schema:
        raise RestoreFailed(f"the database in the backup has schema {facts.schema}, not {manifest.schema} as it says")
    if facts.key_fingerprint not in (None, manifest.key):
        raise RestoreFailed("the database in the backup does not belong to the key that the backup names")


def _hold_sending() -> list[int]:
    """Stop the sending of all accounts, pause all active flows, and return the ids of those flows."""
    require_write_transaction()
    run("UPDATE account SET sending_stopped = 1, stop_reason = ?", (HELD_REASON,))
    active_flows = list(Flow.select().where(Flow.status == "active"))
    for flow in active_flows:
        lifecycle.pause(flow)
        flow.save()
    return [flow.id for flow in active_flows]


# The ids of these tables are published: in links, Message-IDs and return paths, and in webhooks.
_PUBLISHED_TABLES = ("message", "confirmation", "event", "webhook_delivery")


class _CurrentData(NamedTuple):
    """What a restore takes over from the current database; empty if there is none or it cannot be read."""

    last_ids: dict[str, int] = {}  # the highest id that each table has given to a row
    revoked_keys: list[str] = []  # the hashes of revoked API keys
    disabled_users: list[tuple[str, int]] = []  # (address, account id) of disabled users
    unsettled: list[Sent] = []  # messages that were being sent when the service ended
    was_read: bool = False


def _read_current_data(path: Path) -> _CurrentData:
    if not path.exists():
        return _CurrentData()
    try:
        database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            last_ids: Any = database.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
            revoked_keys: Any = database.execute("SELECT key_hash FROM api_key WHERE revoked_at NOT NULL").fetchall()
            # An earlier version of the program stored one account of a user, in the row of the user.
            has_members: Any = database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'team_member'").fetchall()
            members = "user u JOIN team_member m ON m.user_id = u.id" if has_members else "user m"
            disabled_users: Any = database.execute(
                f"SELECT email, m.account_id FROM {members} WHERE m.disabled_at NOT NULL"
            ).fetchall()
            keys = [key_hash for (key_hash,) in revoked_keys]
            return _CurrentData(dict(last_ids), keys, disabled_users, _read_unsettled(database), True)
        finally:
            database.close()
    except apsw.Error:
        return _CurrentData()  # The database is unreadable, and `_preserve_current_data` has copied its files.


def _read_unsettled(database: apsw.Connection) -> list[Sent]:
    try:
        return replay_sends.list_unsettled(database)
    except apsw.SQLError:
        return []  # The database is of an older schema, or has lost a table.


def _skip_used_ids(last_ids: dict[str, int]) -> None:
    """Reserve the ids that rows may have got after the backup; `last_ids` has those of the current database.

    Otherwise a link in an email that was sent after the backup would belong to the next message with its id, and so to
    another recipient. The ids of `_PUBLISHED_TABLES` continue at the current time in milliseconds, which exceeds all
    ids in use, because no installation creates a thousand rows a second all the time. So this also works if the current
    database cannot be read, and for a backup that is restored twice.
    """
    require_write_transaction()
    moment = min(clock.now_ms(), sandbox.FIRST_SANDBOX_ID // 2)
    for table in (model._meta.table_name for model in models.ALL):
        last_id = max(last_ids.get(table, 0), moment if table in _PUBLISHED_TABLES else 0)
        sql.reserve_ids(table, max(0, last_id - sql.last_id(table)))


def _end_access(revoked_keys: list[str]) -> None:
    """Delete all sessions and invitations, and revoke the API keys that were revoked in the current data.

    Access that was ended after the backup must not become valid again.
    """
    require_write_transaction()
    run("DELETE FROM session WHERE 1")
    run("DELETE FROM invitation WHERE 1")
    for key_hash in revoked_keys:
        run("UPDATE api_key SET revoked_at = coalesce(revoked_at, ?) WHERE key_hash = ?", (clock.now_ms(), key_hash))


def _find_readmitted(disabled_users: list[tuple[str, int]]) -> list[str]:
    """Return the addresses of users who are enabled in the restored data but were disabled since, in the same account.

    They are not disabled again, because the restore may serve to undo that an intruder disabled them.
    """
    enabled = TeamMember.select(TeamMember, User).join(User).where(TeamMember.disabled_at.is_null())
    disabled = set(disabled_users)
    return sorted({row.user.email for row in enabled if (row.user.email, row.account_id) in disabled})


def _record_restoration(manifest: Manifest, replayed: Replayed, paused: list[int]) -> None:
    require_write_transaction()
    Restoration.create(
        taken_at=manifest.taken_at, restored_at=clock.now_ms(), taken_by=manifest.version, restored_by=VERSION,
        replayed=replayed._asdict(), paused=paused,
    )  # fmt: skip


def _checkpoint_current_database(path: Path) -> None:
    """Write the write-ahead log of the current database into it, and truncate the log.

    SQLite would apply a remaining log to the restored database.
    """
    if not path.exists():
        return
    try:
        database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            sql.truncate_wal(database)
        finally:
            database.close()
    except apsw.Error:
        return  # The database is unreadable, and `_preserve_current_data` has copied its files.
