"""Checks of accounts: flows, webhooks, SMS limits and SMS to review; and of the consumers of the event log.

The argument `account_id` of a check limits the check to one account; None checks all accounts.
"""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock
from appliance.ops.doctor import installation
from appliance.ops.doctor.installation import MAX_SHOWN, Finding
from appliance.sending.messages import sms_rules
from appliance.settings import config
from appliance.storage import database
from appliance.storage.database import rows
from appliance.webhooks import subscriptions
from appliance.webhooks.subscriptions import EncryptedSecrets

_LATE_MS = 15 * 60_000
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
    "have no time at which they continue": "r.due_at IS NULL",
    "belong to deleted contacts": "r.contact_id IS NULL",
    "are in a step that their flow version does not have": (
        "r.action_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM step s WHERE s.flow_id = r.flow_id "
        "AND s.version = r.version AND s.action_id = r.action_id)"
    ),
    "are counted in a different step than they are in": (
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
                problems.append(f"flow {flow_id}: the counter of {name} runs is {counter}, but there are {actual}")
    for words, condition in _STUCK_CONDITIONS.items():
        problems += [
            f"flow {flow_id}: {count} runs {words}"
            for flow_id, count in rows(f"{_STUCK_RUNS_SQL}{condition}) GROUP BY 1", parameters)
        ]
    problems += [
        f"flow {flow_id}: {count} contacts are counted in a step that they have left"
        for flow_id, count in rows(_OPEN_VISITS_SQL, parameters)
    ]
    for words in problems[:MAX_SHOWN]:
        yield Finding("fail", "flows", words)
    if len(problems) > MAX_SHOWN:
        yield Finding("fail", "flows", f"{len(problems) - MAX_SHOWN} more like these")
    if not problems:
        yield Finding(
            "ok",
            "flows",
            "the counters of 1 flow are correct"
            if len(flows) == 1
            else f"the counters of {len(flows)} flows are correct",
        )


def check_flow_runs(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Warn of runs of active flows that have been due for 15 minutes although the service runs."""
    if not installation.describe_process(directory):
        return
    now = clock.now_ms()
    for flow_id, count, since in rows(_LATE_RUNS_SQL, {"account": account_id, "late": now - _LATE_MS}):
        words = f"flow {flow_id}: {count} runs have been due for {(now - since) // 60_000} minutes and do not continue"
        yield Finding("warn", "flows", f"{words}; see the log")


def check_event_cursors(directory: Path) -> Iterator[Finding]:
    """Check that the consumers of the event log (flows and webhooks) keep up with the log.

    A consumer whose position is beyond the last event is a failure. While the service runs, an event that a consumer
    has not processed within 15 minutes is a warning.
    """
    now = clock.now_ms()
    last_event_id = database.last_id("event")
    for name, event_id in rows(_AHEAD_CURSORS_SQL, (last_event_id,)):
        words = f"{name} is at event {event_id}, but the last event is {last_event_id}: an older database was restored"
        yield Finding("fail", "events", words)
    if installation.describe_process(directory):
        for name, count, since in rows(_BEHIND_CURSORS_SQL, (now - _LATE_MS,)):
            words = f"{name} has not processed {count} events for {(now - since) // 60_000} minutes"
            yield Finding("warn", "events", f"{words}; see the log")


_WEBHOOKS_SQL = (
    "SELECT id, account_id, url, secret, enabled, failing_since, disabled_at, disabled_reason, (SELECT count(*) "
    "FROM webhook_delivery WHERE webhook_id = webhook.id AND status = 'pending') FROM webhook "
    "WHERE deleted_at IS NULL AND (?1 IS NULL OR account_id = ?1) ORDER BY id"
)


def check_webhooks(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Find webhooks that keep failing, were disabled, or whose secret cannot be read. No request is sent."""
    problems = list(_find_webhook_faults(account_id))
    yield from problems[:MAX_SHOWN]
    if len(problems) > MAX_SHOWN:
        yield Finding("warn", "webhooks", f"{len(problems) - MAX_SHOWN} more like these")
    count = len(rows(_WEBHOOKS_SQL, (account_id,)))
    if count and not problems:
        yield Finding("ok", "webhooks", "1 webhook" if count == 1 else f"{count} webhooks")


def _find_webhook_faults(account_id: int | None) -> Iterator[Finding]:
    for webhook_id, account, url, encrypted_secret, enabled, failing_since, disabled_at, reason, pending in rows(
        _WEBHOOKS_SQL, (account_id,)
    ):
        words = f"webhook {webhook_id} to {subscriptions.url_host(url)}"
        if not subscriptions.decrypt_secrets(EncryptedSecrets(account, encrypted_secret)):
            yield Finding(
                "fail", "webhooks", f"{words}: its secret cannot be read",
                "restore the secret.key of this database, or POST "
                f"/v1/my/webhooks/{webhook_id}/rotate_secret",
            )  # fmt: skip
        elif reason is not None:
            since = clock.iso(disabled_at)
            yield Finding(
                "warn", "webhooks", f"{words} was disabled ({reason}) at {since}; {pending} deliveries are pending",
                f'fix the receiver, then PATCH /v1/my/webhooks/{webhook_id} {{"enabled": true}}',
            )  # fmt: skip
        elif enabled and failing_since is not None:
            words += f" has accepted nothing since {clock.iso(failing_since)}; {pending} deliveries are pending"
            yield Finding("warn", "webhooks", words)


_UNSEEN_REFUSALS_SQL = (
    "SELECT account_id, count(*), min(created_at) FROM incoming INDEXED BY incoming_refusals "
    "WHERE kind = 'refusal' AND seen_at IS NULL AND opted_out = 0 AND (?1 IS NULL OR account_id = ?1) "
    "GROUP BY account_id"
)


def check_unseen_refusals(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Warn of each account with incoming SMS that may be opt-outs and that no user has reviewed."""
    for row_account_id, count, since in rows(_UNSEEN_REFUSALS_SQL, (account_id,)):
        words = (
            f"account {row_account_id}: {count} SMS may be opt-outs and have waited for review since {clock.iso(since)}"
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
            words = (
                f"account {row_account_id} has used its {settings.parts_per_day} SMS parts for today; "
                f"SMS wait until {clock.iso(until)}"
            )
            problems.append(Finding("warn", "SMS", words, "raise sms.parts_per_day if the limit is too low"))
        for block in sms_rules.list_full_blocks(row_account_id):
            words = (
                f"account {row_account_id}: {block.messages} single SMS went to unknown numbers beginning "
                f"with {block.prefix} within an hour; more are rejected"
            )
            problems.append(
                Finding("warn", "SMS", words, "check who requests these messages: this may be SMS pumping fraud")
            )
    yield from problems[:MAX_SHOWN]
    if len(problems) > MAX_SHOWN:
        yield Finding("warn", "SMS", f"{len(problems) - MAX_SHOWN} more like these")
