"""Checks of the installation: configuration, files, database, disk, process, backups, clock, queue and ledger."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import apsw
import peewee

from appliance.campaigns import ledger_check as bookkeeping
from appliance.campaigns import store
from appliance.core import clock, crypto, data_dir
from appliance.ops.backups import create
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage import database as sql
from appliance.storage import disk_guard, journal, migrations
from appliance.storage.database import SqliteTooOld, check_version, fetch_one, open_database, rows, scalar
from appliance.storage.migrations import MIGRATIONS
from appliance.storage.models import Campaign

MAX_SHOWN = 10


class Finding(NamedTuple):
    """A result of a check.

    `check` names what was checked, `words` says what was found. `fix` is a command, setting or DNS record to paste, or
    a page to open; it is empty if there is none. The level `note` is advice: nothing is wrong, but something is missing
    that will be needed.
    """

    level: Literal["ok", "note", "warn", "fail"]
    check: str
    words: str
    fix: str = ""


class CheckAborted(Exception):
    """No further check is possible; the reason was yielded as a finding."""


def check_configuration(loaded: LoadedConfig) -> Iterator[Finding]:
    """Report the warnings of the loaded configuration, or that the configuration is valid."""
    for words in loaded.warnings:
        yield Finding("warn", "configuration", words)
    if not loaded.warnings:
        yield Finding("ok", "configuration", "valid")


def check_data_directory(directory: Path) -> Iterator[Finding]:
    """Check the kinds and permissions of the files in the data directory, and load its key.

    Raises CheckAborted if the directory does not exist or the key cannot be loaded.
    """
    if not directory.is_dir():
        yield Finding("fail", "data directory", f"{directory} does not exist: run campanero serve or campanero setup")
        raise CheckAborted
    wrong_kinds = data_dir.find_wrong_kinds(directory)
    for words in wrong_kinds:
        yield Finding("fail", "data directory", words)
    journal_error = None if wrong_kinds else _find_journal_error(directory)
    if journal_error is not None:
        words = f"{journal_error.filename} cannot be written: {journal_error.strerror}"
        yield Finding("fail", "data directory", words)
    accessible = [name for name in (directory, *sorted(directory.iterdir())) if _is_accessible_to_others(name)]
    if accessible:
        words = f"other users can read {', '.join(map(str, accessible[:MAX_SHOWN]))}: chmod go-rwx"
        yield Finding("fail", "data directory", words)
    elif not os.access(directory, os.W_OK):
        yield Finding("fail", "data directory", f"{directory} cannot be written by this user")
    elif not wrong_kinds and journal_error is None:
        yield Finding("ok", "data directory", f"{directory}, private")
    try:
        crypto.load_key(directory)
    except (crypto.WrongKey, OSError) as error:
        yield Finding("fail", "key file", str(error))
        raise CheckAborted from None
    yield Finding("ok", "key file", "readable; keep a copy of it separate from backups")


def _find_journal_error(directory: Path) -> OSError | None:
    try:
        journal.require_writable(directory)
    except OSError as error:
        return error
    return None


def _is_accessible_to_others(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False  # The running service deleted the file after the directory was listed.
    return bool(stat.S_IMODE(mode) & 0o077) and path.name != data_dir.STOP_FILE


def check_database(directory: Path) -> Iterator[Finding]:
    """Open the database, and check its key, integrity and schema version.

    Raises CheckAborted if the database cannot be opened or has another schema version than this program.
    """
    path = directory / "campanero.db"
    try:
        check_version()
        facts = migrations.NEW_DATABASE if migrations.is_missing_or_empty(path) else migrations.inspect_database(path)
        if facts.schema == 0:
            state = "is empty" if path.exists() else "does not exist"
            raise migrations.UnusableDatabase(f"{path} {state}: restore a backup (campanero restore FILE)")
        open_database(path)
        damage = sql.quick_check(MAX_SHOWN)
        schema, expected_schema = facts.schema, len(MIGRATIONS)
    except (SqliteTooOld, migrations.UnusableDatabase, apsw.Error, peewee.PeeweeException) as error:
        yield Finding("fail", "database", str(error))
        raise CheckAborted from None
    if facts.key_fingerprint is not None:
        try:
            crypto.check_key(facts.key_fingerprint, directory / crypto.KEY_FILE)
        except crypto.WrongKey as error:
            yield Finding("fail", "key file", str(error))
    yield Finding("ok", "SQLite", apsw.sqlite_lib_version())
    if damage:
        yield Finding("fail", "database", f"is damaged: {'; '.join(damage)}")
    else:
        yield Finding("ok", "database", f"{path.stat().st_size / 1e6:.0f} MB, intact{_describe_spare_space()}")
    if schema > expected_schema:
        yield Finding("fail", "schema", f"{schema}, but this program supports {expected_schema}: use a newer version")
        raise CheckAborted
    if schema < expected_schema:
        yield Finding("warn", "schema", f"{schema}; the next start migrates it to {expected_schema}")
        raise CheckAborted
    yield Finding("ok", "schema", f"version {schema}, up to date")


def _describe_spare_space() -> str:
    """Return a clause on the unused space in the database, or an empty string if it is at most 1 MB."""
    spare = sql.count_free_bytes()
    return f"; {spare / 1e6:.0f} MB of it are unused" if spare > 1e6 else ""


def check_disk_space(directory: Path) -> Iterator[Finding]:
    """Check the free disk space: below the limit where sending stops is a failure, below twice the limit a warning."""
    free, min_free = disk_guard.measure_free_space(directory)
    words = f"{free / 1e6:.0f} MB free"
    if free < min_free:
        yield Finding("fail", "disk", f"{words}; nothing is sent below {min_free / 1e6:.0f} MB")
    elif free < 2 * min_free:
        yield Finding("warn", "disk", f"{words}; sending stops below {min_free / 1e6:.0f} MB")
    else:
        yield Finding("ok", "disk", words)


def check_sending_stopped(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Report the file STOP and the accounts whose sending is stopped, or that nothing stops sending."""
    if data_dir.has_stop_file(directory):
        yield Finding(
            "warn", "sending", f"the file {directory / data_dir.STOP_FILE} stops all sending; remove it to resume"
        )
    stopped_accounts = rows(
        "SELECT name, stop_reason FROM account WHERE sending_stopped = 1 AND id = coalesce(?, id) ORDER BY id",
        (account_id,),
    )
    for name, reason in stopped_accounts:
        yield Finding("warn", "sending", f"stopped for {name}{f' ({reason})' if reason else ''}")
    if not stopped_accounts and not data_dir.has_stop_file(directory):
        yield Finding("ok", "sending", "not stopped")


def describe_process(directory: Path) -> str:
    """Return a text with the process id of the running service, or an empty string if it is not running."""
    process_id = data_dir.find_service_pid(directory)
    return f"runs as process {process_id}" if process_id is not None else ""


def check_service(directory: Path) -> Iterator[Finding]:
    """Report whether the service runs. If not, warn of messages that were being sent when the service ended."""
    words = describe_process(directory)
    yield Finding("ok", "service", words or "not running")
    if not words:
        (in_hand,) = rows("SELECT count(*) FROM message WHERE status = 'sending'")[0]
        if in_hand:
            words = f"{in_hand} messages were being sent when the service ended; the next start handles them"
            yield Finding("warn", "service", words)


def check_ledger(_: Path, account_id: int | None) -> Iterator[Finding]:
    """Compare the counters of every started campaign and of contacts with the messages in the ledger."""
    problems: list[str] = []
    query = Campaign.select().where(Campaign.started_at.is_null(False)).order_by(Campaign.id)
    campaigns = list(query if account_id is None else query.where(Campaign.account == account_id))
    for campaign in campaigns:
        fresh_campaign = store.find_with_sums(campaign.id)
        if fresh_campaign is None:
            continue
        campaign_problems = bookkeeping.check_quickly(fresh_campaign) + [
            words for part in bookkeeping.check_thoroughly(fresh_campaign) for words in part
        ]
        problems += [f"campaign {campaign.id}: {words}" for words in campaign_problems]
    for words in problems[:MAX_SHOWN]:
        yield Finding("fail", "ledger", words)
    if len(problems) > MAX_SHOWN:
        yield Finding("fail", "ledger", f"{len(problems) - MAX_SHOWN} more like these")
    if not problems:
        yield Finding(
            "ok", "ledger", "1 campaign balances" if len(campaigns) == 1 else f"{len(campaigns)} campaigns balance"
        )
    for (row_account_id,) in rows("SELECT id FROM account WHERE id = coalesce(?, id) ORDER BY id", (account_id,)):
        for words in bookkeeping.check_contacts(row_account_id):
            yield Finding("warn", "ledger", words)


_HOUR_MS = 3_600_000
# A backup is reported as missing after twice the interval of the schedule.
_LATE_FACTOR = 2


def check_backups(directory: Path) -> Iterator[Finding]:
    """Warn if the last scheduled backup, or without a backup the first account, is older than twice the interval."""
    every = config.parse_seconds(config.current().backup.every) * 1000
    scheduled = [backup for backup in create.list_backups(directory) if backup.is_scheduled]
    if not every:
        yield Finding("note", "backups", "automatic backups are off (backup.every is 0)")
        return
    first_account_at = scalar("SELECT min(created_at) FROM account")
    since = scheduled[0].created_at if scheduled else first_account_at
    if since is None:
        return
    age = clock.now_ms() - since
    last = f"the last is {age / _HOUR_MS:.0f} hours old" if scheduled else "there is no backup yet"
    if age > _LATE_FACTOR * every:
        yield Finding("warn", "backups", f"{last}, but one is due every {every / _HOUR_MS:g} hours: see the log")
    else:
        words = f"{len(scheduled)} in {directory / create.BACKUP_DIRECTORY}, {last}"
        yield Finding("ok" if scheduled else "note", "backups", words if scheduled else last)


_CLOCK_TOLERANCE_MS = 2 * 60_000
_LATE_MS = 15 * 60_000
# Due messages that have not changed for some time although nothing stops them: their account may send, and their
# campaign or flow, if any, is active.
_DUE_MESSAGES_SQL = (
    "SELECT count(*), min(m.due_at) FROM message m JOIN account a ON a.id = m.account_id "
    "LEFT JOIN campaign c ON c.id = m.campaign_id WHERE m.status IN ('queued', 'held') AND m.due_at <= ? "
    "AND a.sending_stopped = 0 AND (c.id IS NULL OR c.status = 'active') AND m.updated_at <= ? AND (m.run_id IS NULL "
    "OR EXISTS (SELECT 1 FROM flow f WHERE f.id = m.flow_id AND f.status = 'active' AND f.deleted_at IS NULL))"
)


def check_clock(_: Path) -> Iterator[Finding]:
    """Check that no entry of the database is more than two minutes in the future. No time server is asked."""
    now = clock.now_ms()
    latest = max((row[0] or 0) for row in rows(
        "SELECT max(created_at) FROM event UNION ALL SELECT max(updated_at) FROM account UNION ALL "
        "SELECT max(updated_at) FROM message"
    ))  # fmt: skip
    if latest > now + _CLOCK_TOLERANCE_MS:
        words = f"it is {clock.iso(now)}, but the database has entries of {clock.iso(latest)}: the clock went back"
        yield Finding("fail", "clock", words, "timedatectl set-ntp true")
    else:
        yield Finding(
            "ok", "clock", f"{clock.iso(now)}, later than all entries of the database (no time server was asked)"
        )


def check_queue(directory: Path) -> Iterator[Finding]:
    """Warn of due messages that have not changed for 15 minutes, and of uncertain messages.

    Also warn of messages that have been in progress for 15 minutes. While the service is stopped, or a file STOP stops
    all sending, due messages are only counted.
    """
    now = clock.now_ms()
    count, oldest = fetch_one(_DUE_MESSAGES_SQL, (now, now - _LATE_MS)) or (0, None)
    in_hand = fetch_one("SELECT count(*) FROM message WHERE status = 'sending' AND updated_at <= ?", (now - _LATE_MS,))
    uncertain = fetch_one("SELECT count(*) FROM message WHERE status = 'uncertain'")
    if data_dir.has_stop_file(directory) or not describe_process(directory):
        yield Finding("ok", "queue", f"{count} messages wait until sending resumes")
    elif count:
        since = (now - max(oldest or 0, 1)) // 60_000 if oldest and oldest > 1 else None
        words = f"{count} messages are overdue{f' by {since} minutes' if since else ''}"
        yield Finding("warn", "queue", f"{words}: see /delivery/status for the reason")
    else:
        yield Finding("ok", "queue", "no message is overdue")
    if in_hand and in_hand[0] and describe_process(directory):
        yield Finding(
            "warn",
            "queue",
            f"{in_hand[0]} messages have been in progress for more than 15 minutes: a server may be slow",
        )
    if uncertain and uncertain[0]:
        yield Finding("warn", "queue", f"{uncertain[0]} messages are unconfirmed: decide on their page")
