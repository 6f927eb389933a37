"""Checks of the installation: configuration, files, database, disk, process, backups, clock, queue and event log.

The checks of its accounts are in `ops/doctor/__init__.py`.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import apsw
import peewee

from appliance import VERSION
from appliance.core import clock, crypto, data_dir
from appliance.core.i18n import format_size, gettext
from appliance.ops import updates
from appliance.ops.backups import create as backups
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage import database, disk_guard, journal, migrations
from appliance.storage import database as sql
from appliance.storage.database import SqliteTooOld, check_version, fetch_one, open_database, rows, scalar
from appliance.storage.migrations import MIGRATIONS

MAX_SHOWN = 10


class Finding(NamedTuple):
    """A result of a check.

    `check` is the name of the check, and `words` describes the result for the administrator. `fix` is a command,
    setting or DNS record to paste, or empty. The level `note` is advice: nothing is wrong yet, but something is missing
    that will be needed. `meaning` explains the result in full sentences to users who write campaigns; if it is empty,
    `explanations.py` has the text for the check and level.
    """

    level: Literal["ok", "note", "warn", "fail"]
    check: str
    words: str
    fix: str = ""
    meaning: str = ""


class CheckAborted(Exception):
    """No further check is possible; the reason was yielded as a finding."""


def check_configuration(loaded: LoadedConfig) -> Iterator[Finding]:
    """Report the warnings of the loaded configuration, or that the configuration is valid."""
    for words in loaded.warnings:
        yield Finding("warn", "configuration", words)
    if not loaded.warnings:
        yield Finding("ok", "configuration", gettext("valid"))


def check_data_directory(directory: Path) -> Iterator[Finding]:
    """Check the kinds and permissions of the files in the data directory, and load its key.

    Raises CheckAborted if the directory does not exist or the key cannot be loaded.
    """
    if not directory.is_dir():
        yield Finding(
            "fail",
            "data directory",
            gettext("%(directory)s does not exist: run campanero serve or campanero setup", directory=directory),
        )
        raise CheckAborted
    if _is_unused(directory):
        yield Finding(
            "fail",
            "data directory",
            gettext(
                "%(directory)s has no installation yet: run campanero serve or campanero setup", directory=directory
            ),
            meaning=gettext("Campanero was not started here yet."),
        )
        raise CheckAborted
    wrong_kinds = data_dir.find_wrong_kinds(directory)
    for words in wrong_kinds:
        yield Finding("fail", "data directory", words)
    journal_error = None if wrong_kinds else _find_journal_error(directory)
    if journal_error is not None:
        yield Finding("fail", "data directory", journal_error)
    accessible = [name for name in (directory, *sorted(directory.iterdir())) if _is_accessible_to_others(name)]
    if accessible:
        names = ", ".join(map(str, accessible[:MAX_SHOWN]))
        words = gettext("other users can read %(names)s: chmod go-rwx", names=names)
        meaning = gettext(
            "Other users of the server can read your contacts and campaigns. Ask your administrator to correct this "
            "now."
        )
        yield Finding("fail", "data directory", words, meaning=meaning)
    elif not os.access(directory, os.W_OK):
        yield Finding(
            "fail", "data directory", gettext("%(directory)s cannot be written by this user", directory=directory)
        )
    elif not wrong_kinds and journal_error is None:
        yield Finding("ok", "data directory", gettext("%(directory)s, private", directory=directory))
    try:
        crypto.load_key(directory)
    except (crypto.WrongKey, OSError) as error:
        yield Finding("fail", "key file", str(error))
        raise CheckAborted from None
    yield Finding("ok", "key file", gettext("readable; keep a copy of it separate from backups"))


def _is_unused(directory: Path) -> bool:
    """Return whether the service was never started in a directory: no key, no database, no files of an installation."""
    if any(os.path.lexists(directory / name) for name in (crypto.KEY_FILE, "campanero.db")):
        return False
    return not data_dir.list_traces(directory)


def _find_journal_error(directory: Path) -> str | None:
    try:
        journal.require_writable(directory)
    except OSError as error:
        return gettext("%(filename)s cannot be written: %(strerror)s", filename=error.filename, strerror=error.strerror)
    except journal.UnusableJournal as error:
        return str(error)
    return None


def _is_accessible_to_others(path: Path) -> bool:
    try:
        mode = path.stat().st_mode  # A link has no mode of its own: that of its target counts.
    except OSError:
        return False  # The running service deleted the file after the directory was listed, or its target is missing.
    return bool(stat.S_IMODE(mode) & 0o077) and path.name != data_dir.STOP_FILE


def check_database(directory: Path) -> Iterator[Finding]:
    """Open the database, and check its key, integrity and schema version.

    Raises CheckAborted if the database cannot be opened or its schema version differs from this program's.
    """
    path = directory / "campanero.db"
    try:
        check_version()
        facts = migrations.NEW_DATABASE if migrations.is_missing_or_empty(path) else migrations.inspect_database(path)
        if facts.schema == 0:
            text = (
                gettext("%(path)s is empty: restore a backup (campanero restore FILE)", path=path)
                if path.exists()
                else gettext("%(path)s does not exist: restore a backup (campanero restore FILE)", path=path)
            )
            raise migrations.UnusableDatabase(text)
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
        yield Finding("fail", "database", gettext("is damaged: %(damage)s", damage="; ".join(damage)))
    else:
        yield Finding(
            "ok",
            "database",
            _describe_size(path),
        )
    if schema > expected_schema:
        yield Finding(
            "fail",
            "schema",
            gettext(
                "%(schema)s, but this program supports %(supported)s: use a newer version",
                schema=schema,
                supported=expected_schema,
            ),
        )
        raise CheckAborted
    if schema < expected_schema:
        yield Finding(
            "warn",
            "schema",
            gettext(
                "%(schema)s; the next start migrates it to %(supported)s",
                schema=schema,
                supported=expected_schema,
            ),
        )
        raise CheckAborted
    yield Finding("ok", "schema", gettext("version %(schema)s, up to date", schema=schema))


def _describe_size(path: Path) -> str:
    """Return the size of the database, and its unused space if that is more than 1 MB."""
    size, spare = format_size(path.stat().st_size), sql.count_free_bytes()
    if spare <= 1e6:
        return gettext("%(size)s, intact", size=size)
    return gettext("%(size)s, intact; %(spare)s of it are unused", size=size, spare=format_size(spare))


def check_disk_space(directory: Path) -> Iterator[Finding]:
    """Check the free disk space: below the limit where sending stops is a failure, below twice the limit a warning."""
    free, min_free = disk_guard.measure_free_space(directory)
    size, limit = format_size(free), format_size(min_free)
    if free < min_free:
        words = gettext("%(size)s free; nothing is sent below %(limit)s", size=size, limit=limit)
        yield Finding("fail", "disk", words)
    elif free < 2 * min_free:
        words = gettext("%(size)s free; sending stops below %(limit)s", size=size, limit=limit)
        yield Finding("warn", "disk", words)
    else:
        yield Finding("ok", "disk", gettext("%(size)s free", size=size))


def describe_process(directory: Path) -> str:
    """Return a text with the process id of the running service, or an empty string if it is not running."""
    process_id = data_dir.find_service_pid(directory)
    return gettext("runs as process %(process_id)s", process_id=process_id) if process_id is not None else ""


def check_service(directory: Path) -> Iterator[Finding]:
    """Report whether the service runs. If not, warn of messages that were being sent when the service ended."""
    words = describe_process(directory)
    not_running = gettext("Campanero is not running, so nothing is sent. Ask your administrator to start it.")
    yield Finding("ok", "service", words or gettext("not running"), meaning="" if words else not_running)
    if not words:
        (in_hand,) = rows(
            "SELECT (SELECT count(*) FROM message WHERE status = 'sending') + (SELECT count(*) FROM send_log l "
            "JOIN message m ON m.id = l.message_id WHERE l.sent_at IS NULL AND m.status <> 'sending')"
        )[0]
        if in_hand:
            words = gettext(
                "%(count)s messages were being sent when the service ended; the next start handles them", count=in_hand
            )
            yield Finding("warn", "service", words)


_HOUR_MS = 3_600_000
# A backup is reported as missing after twice the interval of the schedule.
_LATE_FACTOR = 2


def check_backups(directory: Path) -> Iterator[Finding]:
    """Warn if the last scheduled backup is older than twice the interval; without one, if the first account is."""
    every = config.parse_seconds(config.current().backup.every) * 1000
    scheduled = [backup for backup in backups.list_backups(directory) if backup.is_scheduled]
    if not every:
        meaning = gettext(
            "Your data is not backed up automatically. Ask your administrator to turn on backups, or create one "
            "regularly under Settings, Backups."
        )
        yield Finding("note", "backups", gettext("automatic backups are off (backup.every is 0)"), meaning=meaning)
        return
    first_account_at = scalar("SELECT min(created_at) FROM account")
    since = scheduled[0].created_at if scheduled else first_account_at
    if since is None:
        return
    age = clock.now_ms() - since
    last = (
        gettext("the last is %(age)s hours old", age=f"{age / _HOUR_MS:.0f}")
        if scheduled
        else gettext("there is no backup yet")
    )
    if age > _LATE_FACTOR * every:
        yield Finding(
            "warn",
            "backups",
            gettext(
                "%(last)s, but one is due every %(every)s hours: see the log", last=last, every=f"{every / _HOUR_MS:g}"
            ),
        )
    else:
        words = gettext(
            "%(count)s in %(directory)s, %(last)s",
            count=len(scheduled), directory=directory / backups.BACKUP_DIRECTORY, last=last,
        )  # fmt: skip
        yield Finding("ok" if scheduled else "note", "backups", words if scheduled else last)


_CLOCK_TOLERANCE_MS = 2 * 60_000
LATE_MS = 15 * 60_000
# Due messages that have not changed for some time although nothing stops them: their account may send, and their
# campaign or flow, if any, is active.
_DUE_MESSAGES_SQL = (
    "SELECT count(*), min(m.due_at) FROM message m JOIN account a ON a.id = m.account_id "
    "LEFT JOIN campaign c ON c.id = m.campaign_id WHERE m.status IN ('queued', 'held') AND m.due_at <= ? "
    "AND a.sending_stopped = 0 AND (c.id IS NULL OR c.status = 'active') AND m.updated_at <= ? AND (m.run_id IS NULL "
    "OR EXISTS (SELECT 1 FROM flow f WHERE f.id = m.flow_id AND f.status = 'active' AND f.deleted_at IS NULL))"
)


def check_new_version(_: Path) -> Iterator[Finding]:
    """Report a newer version, if `updates.url` is set and names one."""
    if (new := updates.find_new_version()) is not None:
        words = gettext("%(version)s is available, this is %(current)s", version=new.version, current=VERSION)
        yield Finding("note", "version", words, new.url)


def check_clock(_: Path) -> Iterator[Finding]:
    """Check that no event, account or message has a time more than two minutes ahead. No time server is queried."""
    now = clock.now_ms()
    latest = max((row[0] or 0) for row in rows(
        "SELECT max(created_at) FROM event UNION ALL SELECT max(updated_at) FROM account UNION ALL "
        "SELECT max(updated_at) FROM message"
    ))  # fmt: skip
    if latest > now + _CLOCK_TOLERANCE_MS:
        words = gettext(
            "it is %(now)s, but the database has entries of %(latest)s: the clock went back",
            now=_format_time(now),
            latest=_format_time(latest),
        )
        yield Finding("fail", "clock", words, "timedatectl set-ntp true")
    else:
        yield Finding(
            "ok",
            "clock",
            gettext(
                "%(now)s, later than all entries of the database (no time server was asked)", now=_format_time(now)
            ),
        )


def _format_time(at_ms: int) -> str:
    """Return a time as `2026-11-27 08:32 UTC`."""
    return f"{clock.iso(at_ms):.16} UTC".replace("T", " ", 1)


def check_queue(directory: Path) -> Iterator[Finding]:
    """Warn of due messages that have not changed for 15 minutes, and of uncertain messages.

    Also warn of messages that have been in progress for 15 minutes. While the service is stopped, or a file STOP stops
    all sending, due messages are only counted.
    """
    now = clock.now_ms()
    count, oldest = fetch_one(_DUE_MESSAGES_SQL, (now, now - LATE_MS)) or (0, None)
    in_hand = fetch_one("SELECT count(*) FROM message WHERE status = 'sending' AND updated_at <= ?", (now - LATE_MS,))
    uncertain = fetch_one("SELECT count(*) FROM message WHERE status = 'uncertain'")
    if data_dir.has_stop_file(directory) or not describe_process(directory):
        meaning = gettext("Nothing is sent at the moment. Messages wait and go out once sending resumes.")
        words = gettext("%(count)s messages wait until sending resumes", count=count)
        yield Finding("ok", "queue", words, meaning=meaning)
    elif count:
        since = (now - max(oldest or 0, 1)) // 60_000 if oldest and oldest > 1 else None
        words = (
            gettext(
                "%(count)s messages are overdue by %(minutes)s minutes: see /delivery/status for the reason",
                count=count,
                minutes=since,
            )
            if since
            else gettext("%(count)s messages are overdue: see /delivery/status for the reason", count=count)
        )
        yield Finding("warn", "queue", words)
    else:
        yield Finding("ok", "queue", gettext("no message is overdue"))
    if in_hand and in_hand[0] and describe_process(directory):
        yield Finding(
            "warn",
            "queue",
            gettext(
                "%(count)s messages have been in progress for more than 15 minutes: a server may be slow",
                count=in_hand[0],
            ),
            meaning=gettext(
                "Some messages take unusually long to send. This usually passes; tell your administrator if it does "
                "not."
            ),
        )
    if uncertain and uncertain[0]:
        yield Finding(
            "warn",
            "queue",
            gettext("%(count)s messages are unconfirmed: review them in the Outbox", count=uncertain[0]),
            meaning=gettext(
                "Nobody knows whether some messages were sent. Decide in the outbox whether to send them again."
            ),
        )


_BEHIND_CURSORS_SQL = (
    "SELECT c.name, count(e.id), min(e.updated_at) FROM cursor c JOIN event e ON e.id > c.event_id "
    "WHERE e.updated_at <= ? GROUP BY 1 ORDER BY 1"
)
_AHEAD_CURSORS_SQL = "SELECT name, event_id FROM cursor WHERE event_id > ? ORDER BY name"


def check_event_cursors(directory: Path) -> Iterator[Finding]:
    """Check that the consumers of the event log (flows and webhooks) keep up with the log.

    A consumer whose position is beyond the last event is a failure. While the service runs, an event that a consumer
    has not processed within 15 minutes is a warning.
    """
    now = clock.now_ms()
    last_event_id = database.last_id("event")
    for name, event_id in rows(_AHEAD_CURSORS_SQL, (last_event_id,)):
        words = gettext(
            "%(name)s is at event %(event)s, but the last event is %(last)s: an older database was restored",
            name=name,
            event=event_id,
            last=last_event_id,
        )
        yield Finding("fail", "events", words)
    if describe_process(directory):
        for name, count, since in rows(_BEHIND_CURSORS_SQL, (now - LATE_MS,)):
            words = gettext(
                "%(name)s has not processed %(count)s events for %(minutes)s minutes; see the log",
                name=name,
                count=count,
                minutes=(now - since) // 60_000,
            )
            yield Finding("warn", "events", words)
