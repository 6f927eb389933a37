"""Checks of the installation and of its accounts.

Of the installation: configuration, files, database, disk, process, backups, clock, queue, ledger and the consumers of
the event log. Of accounts: flows, webhooks, SMS limits and SMS to review; their argument `account_id` limits a check to
one account, and None checks all accounts.
"""

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
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.ops.backups import create
from appliance.sending.messages import sms_rules
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage import database, disk_guard, journal, migrations
from appliance.storage import database as sql
from appliance.storage.database import SqliteTooOld, check_version, fetch_one, open_database, rows, scalar
from appliance.storage.migrations import MIGRATIONS
from appliance.storage.models import Campaign
from appliance.webhooks import subscriptions
from appliance.webhooks.subscriptions import EncryptedSecrets

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
    wrong_kinds = data_dir.find_wrong_kinds(directory)
    for words in wrong_kinds:
        yield Finding("fail", "data directory", words)
    journal_error = None if wrong_kinds else _find_journal_error(directory)
    if journal_error is not None:
        words = gettext(
            "%(filename)s cannot be written: %(strerror)s",
            filename=journal_error.filename,
            strerror=journal_error.strerror,
        )
        yield Finding("fail", "data directory", words)
    accessible = [name for name in (directory, *sorted(directory.iterdir())) if _is_accessible_to_others(name)]
    if accessible:
        words = f"other users can read {', '.join(map(str, accessible[:MAX_SHOWN]))}: chmod go-rwx"
        yield Finding("fail", "data directory", words)
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
    size, spare = f"{path.stat().st_size / 1e6:.0f}", sql.count_free_bytes()
    if spare <= 1e6:
        return gettext("%(size)s MB, intact", size=size)
    return gettext("%(size)s MB, intact; %(spare)s MB of it are unused", size=size, spare=f"{spare / 1e6:.0f}")


def check_disk_space(directory: Path) -> Iterator[Finding]:
    """Check the free disk space: below the limit where sending stops is a failure, below twice the limit a warning."""
    free, min_free = disk_guard.measure_free_space(directory)
    size, limit = f"{free / 1e6:.0f}", f"{min_free / 1e6:.0f}"
    if free < min_free:
        words = gettext("%(size)s MB free; nothing is sent below %(limit)s MB", size=size, limit=limit)
        yield Finding("fail", "disk", words)
    elif free < 2 * min_free:
        words = gettext("%(size)s MB free; sending stops below %(limit)s MB", size=size, limit=limit)
        yield Finding("warn", "disk", words)
    else:
        yield Finding("ok", "disk", gettext("%(size)s MB free", size=size))


def check_sending_stopped(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Report the file STOP and the accounts whose sending is stopped, or that nothing stops sending."""
    if data_dir.has_stop_file(directory):
        yield Finding(
            "warn",
            "sending",
            gettext("the file %(path)s stops all sending; remove it to resume", path=directory / data_dir.STOP_FILE),
        )
    stopped_accounts = rows(
        "SELECT name, stop_reason FROM account WHERE sending_stopped = 1 AND id = coalesce(?, id) ORDER BY id",
        (account_id,),
    )
    for name, reason in stopped_accounts:
        yield Finding(
            "warn",
            "sending",
            gettext("stopped for %(name)s (%(reason)s)", name=name, reason=reason)
            if reason
            else gettext("stopped for %(name)s", name=name),
        )
    if not stopped_accounts and not data_dir.has_stop_file(directory):
        yield Finding("ok", "sending", gettext("not stopped"))


def describe_process(directory: Path) -> str:
    """Return a text with the process id of the running service, or an empty string if it is not running."""
    process_id = data_dir.find_service_pid(directory)
    return gettext("runs as process %(process_id)s", process_id=process_id) if process_id is not None else ""


def check_service(directory: Path) -> Iterator[Finding]:
    """Report whether the service runs. If not, warn of messages that were being sent when the service ended."""
    words = describe_process(directory)
    yield Finding("ok", "service", words or gettext("not running"))
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


def _show_first(problems: list[Finding]) -> Iterator[Finding]:
    """Yield the first `MAX_SHOWN` findings of a check, and how many more there are."""
    yield from problems[:MAX_SHOWN]
    if len(problems) > MAX_SHOWN:
        yield Finding(
            problems[0].level,
            problems[0].check,
            gettext("%(count)s more like these", count=len(problems) - MAX_SHOWN),
        )


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
    yield from _show_first([Finding("fail", "ledger", words) for words in problems])
    if not problems:
        yield Finding(
            "ok",
            "ledger",
            ngettext(
                "recipient totals add up for %(num)s campaign",
                "recipient totals add up for %(num)s campaigns",
                len(campaigns),
            ),
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
        yield Finding("note", "backups", gettext("automatic backups are off (backup.every is 0)"))
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
        words = gettext(
            "it is %(now)s, but the database has entries of %(latest)s: the clock went back",
            now=clock.iso(now),
            latest=clock.iso(latest),
        )
        yield Finding("fail", "clock", words, "timedatectl set-ntp true")
    else:
        yield Finding(
            "ok",
            "clock",
            gettext("%(now)s, later than all entries of the database (no time server was asked)", now=clock.iso(now)),
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
        yield Finding("ok", "queue", gettext("%(count)s messages wait until sending resumes", count=count))
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
        )
    if uncertain and uncertain[0]:
        yield Finding(
            "warn",
            "queue",
            gettext("%(count)s messages are unconfirmed: review them in the Outbox", count=uncertain[0]),
        )


_FLOW_SCOPE_SQL = "f.hidden = 0 AND f.account_id = coalesce(:account, f.account_id)"
_FLOW_COUNTS_SQL = (
    "SELECT f.id, f.entered_count, f.completed_count, f.exited_count, coalesce(r.entered, 0), "
    "coalesce(r.completed, 0), coalesce(r.exited, 0) FROM flow f LEFT JOIN (SELECT flow_id, "
    "count(*) FILTER (WHERE status <> 'ignored') AS entered, count(*) FILTER (WHERE status = 'completed') "
    "AS completed, count(*) FILTER (WHERE status = 'exited') AS exited "
    f"FROM run INDEXED BY run_ended WHERE test = 0 GROUP BY flow_id) r ON r.flow_id = f.id WHERE {_FLOW_SCOPE_SQL} "
    "ORDER BY f.id"
)
# Conditions of live runs that will never continue, or whose current step is inconsistent, by their description.
_STUCK_CONDITIONS = {
    gettext_noop("flow %(flow)s: %(count)s runs have no time at which they continue"): "r.due_at IS NULL",
    gettext_noop("flow %(flow)s: %(count)s runs belong to deleted contacts"): "r.contact_id IS NULL",
    gettext_noop("flow %(flow)s: %(count)s runs are in a step that their flow version does not have"): (
        "r.action_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM step s WHERE s.flow_id = r.flow_id "
        "AND s.version = r.version AND s.action_id = r.action_id)"
    ),
    gettext_noop("flow %(flow)s: %(count)s runs are counted in a different step than they are in"): (
        "r.step_visit_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM step_visit p WHERE p.id = r.step_visit_id "
        "AND p.run_id = r.id AND p.action_id = r.action_id AND p.outcome IS NULL)"
    ),
}
_STUCK_RUNS_SQL = (
    "SELECT f.id, count(*) FROM flow f JOIN run r ON r.flow_id = f.id AND r.status = 'live' "
    f"WHERE {_FLOW_SCOPE_SQL} AND ("
)
_OPEN_VISITS_SQL = (
    "SELECT f.id, count(*) FROM flow f JOIN step_visit p ON p.flow_id = f.id JOIN run r ON r.id = p.run_id "
    f"WHERE {_FLOW_SCOPE_SQL} AND p.outcome IS NULL "
    "AND (r.status <> 'live' OR r.step_visit_id IS DISTINCT FROM p.id) GROUP BY 1"
)
_LATE_RUNS_SQL = (
    "SELECT f.id, count(*), min(r.due_at) FROM flow f JOIN run r ON r.flow_id = f.id AND r.status = 'live' "
    f"WHERE {_FLOW_SCOPE_SQL} AND f.status = 'active' AND f.deleted_at IS NULL "
    "AND r.due_at <= :late AND r.updated_at <= :late "
    "GROUP BY 1"
)
_BEHIND_CURSORS_SQL = (
    "SELECT c.name, count(e.id), min(e.updated_at) FROM cursor c JOIN event e ON e.id > c.event_id "
    "WHERE e.updated_at <= ? GROUP BY 1 ORDER BY 1"
)
_AHEAD_CURSORS_SQL = "SELECT name, event_id FROM cursor WHERE event_id > ? ORDER BY name"


def check_flow_counts(_: Path, account_id: int | None) -> Iterator[Finding]:
    """Compare the counters of every flow with its runs, and find live runs whose current step is inconsistent."""
    parameters = {"account": account_id}
    problems, flows = [], rows(_FLOW_COUNTS_SQL, parameters)
    for flow_id, *counts in flows:
        for name, counter, actual in zip(("entered", "completed", "exited"), counts[:3], counts[3:], strict=True):
            if counter != actual:
                words = gettext(
                    "flow %(flow)s: the counter of %(name)s runs is %(counter)s, but there are %(actual)s",
                    flow=flow_id, name=name, counter=counter, actual=actual,
                )  # fmt: skip
                problems.append(words)
    for text, condition in _STUCK_CONDITIONS.items():
        problems += [
            gettext(text, flow=flow_id, count=count)
            for flow_id, count in rows(f"{_STUCK_RUNS_SQL}{condition}) GROUP BY 1", parameters)
        ]
    problems += [
        gettext(
            "flow %(flow)s: %(count)s contacts are counted in a step that they have left", flow=flow_id, count=count
        )
        for flow_id, count in rows(_OPEN_VISITS_SQL, parameters)
    ]
    yield from _show_first([Finding("fail", "flows", words) for words in problems])
    if not problems:
        yield Finding(
            "ok",
            "flows",
            ngettext(
                "the counters of %(num)s flow are correct", "the counters of %(num)s flows are correct", len(flows)
            ),
        )


def check_flow_runs(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Warn of runs of active flows that have been due for 15 minutes although the service runs."""
    if not describe_process(directory):
        return
    now = clock.now_ms()
    for flow_id, count, since in rows(_LATE_RUNS_SQL, {"account": account_id, "late": now - _LATE_MS}):
        words = gettext(
            "flow %(flow)s: %(count)s runs have been due for %(minutes)s minutes and do not continue; see the log",
            flow=flow_id,
            count=count,
            minutes=(now - since) // 60_000,
        )
        yield Finding("warn", "flows", words)


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
        for name, count, since in rows(_BEHIND_CURSORS_SQL, (now - _LATE_MS,)):
            words = gettext(
                "%(name)s has not processed %(count)s events for %(minutes)s minutes; see the log",
                name=name,
                count=count,
                minutes=(now - since) // 60_000,
            )
            yield Finding("warn", "events", words)


_WEBHOOKS_SQL = (
    "SELECT id, account_id, url, secret, enabled, failing_since, disabled_at, disabled_reason, (SELECT count(*) "
    "FROM webhook_delivery WHERE webhook_id = webhook.id AND status = 'pending') FROM webhook "
    "WHERE deleted_at IS NULL AND (?1 IS NULL OR account_id = ?1) ORDER BY id"
)


def check_webhooks(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Find webhooks that keep failing, were disabled, or whose secret cannot be read. No request is sent."""
    problems = list(_find_webhook_faults(account_id))
    yield from _show_first(problems)
    count = len(rows(_WEBHOOKS_SQL, (account_id,)))
    if count and not problems:
        yield Finding("ok", "webhooks", ngettext("%(num)s webhook", "%(num)s webhooks", count))


def _find_webhook_faults(account_id: int | None) -> Iterator[Finding]:
    for webhook_id, account, url, encrypted_secret, enabled, failing_since, disabled_at, reason, pending in rows(
        _WEBHOOKS_SQL, (account_id,)
    ):
        values = {"id": webhook_id, "host": subscriptions.url_host(url), "pending": pending}
        if not subscriptions.decrypt_secrets(EncryptedSecrets(account, encrypted_secret)):
            yield Finding(
                "fail", "webhooks", gettext("webhook %(id)s to %(host)s: its secret cannot be read", **values),
                "restore the secret.key of this database, or POST "
                f"/v1/my/webhooks/{webhook_id}/rotate_secret",
            )  # fmt: skip
        elif reason is not None:
            since = clock.iso(disabled_at)
            yield Finding(
                "warn",
                "webhooks",
                gettext(
                    "webhook %(id)s to %(host)s was disabled (%(reason)s) at %(since)s; %(pending)s deliveries are "
                    "pending",
                    reason=reason, since=since, **values,
                ),
                f'fix the receiver, then PATCH /v1/my/webhooks/{webhook_id} {{"enabled": true}}',
            )  # fmt: skip
        elif enabled and failing_since is not None:
            words = gettext(
                "webhook %(id)s to %(host)s has accepted nothing since %(since)s; %(pending)s deliveries are pending",
                since=clock.iso(failing_since), **values,
            )  # fmt: skip
            yield Finding("warn", "webhooks", words)


_UNSEEN_REFUSALS_SQL = (
    "SELECT account_id, count(*), min(created_at) FROM incoming INDEXED BY incoming_refusals "
    "WHERE kind = 'refusal' AND seen_at IS NULL AND opted_out = 0 AND (?1 IS NULL OR account_id = ?1) "
    "GROUP BY account_id"
)


def check_unseen_refusals(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Warn of each account with incoming SMS that may be opt-outs and that no user has reviewed."""
    for row_account_id, count, since in rows(_UNSEEN_REFUSALS_SQL, (account_id,)):
        words = gettext(
            "account %(account)s: %(count)s SMS may be opt-outs and have waited for review since %(since)s",
            account=row_account_id,
            count=count,
            since=clock.iso(since),
        )
        yield Finding("warn", "SMS", words, "GET /v1/my/incoming?unseen=true, then POST /v1/my/incoming/{id}/seen")


def check_sms_limits(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Warn of each account at its limit of SMS parts a day, or of SMS an hour to unknown numbers of one prefix."""
    settings = config.current().sms
    if settings.transport == "capture":
        return
    now, problems = clock.now_ms(), []
    for row_account_id, zone in rows(
        "SELECT id, time_zone FROM account WHERE ?1 IS NULL OR id = ?1 ORDER BY id", (account_id,)
    ):
        until = sms_rules.get_parts_limit_end(row_account_id, zone, now)
        if until is not None:
            words = gettext(
                "account %(account)s has used its %(parts_per_day)s SMS parts for today; SMS wait until %(until)s",
                account=row_account_id,
                parts_per_day=settings.parts_per_day,
                until=clock.iso(until),
            )
            problems.append(Finding("warn", "SMS", words, "raise sms.parts_per_day if the limit is too low"))
        for block in sms_rules.list_full_blocks(row_account_id):
            words = gettext(
                "account %(account)s: %(messages)s single SMS went to unknown numbers beginning with "
                "%(prefix)s within an hour; more are rejected",
                account=row_account_id,
                messages=block.messages,
                prefix=block.prefix,
            )
            problems.append(
                Finding("warn", "SMS", words, "check who requests these messages: this may be SMS pumping fraud")
            )
    yield from _show_first(problems)
