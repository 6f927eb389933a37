"""The command `doctor`: checks of an installation, which report findings, each with a fix if there is one.

A check is a function that yields its findings. It takes the data directory; a check of accounts also takes an account
id, or None for all accounts. The checks of accounts are here, the others in the modules beside this one. The checks
change nothing, except for the optional test message (`seed`), which is queued to a reserved address and never leaves
this machine.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from appliance.accounts import settings
from appliance.campaigns import ledger_check, store
from appliance.core import clock, data_dir
from appliance.core.errors import ConfigError
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.ops.doctor import account_addresses, certificates, checks, connections, replication, seed
from appliance.ops.doctor.checks import LATE_MS, MAX_SHOWN, CheckAborted, Finding, describe_process
from appliance.ops.standby import place
from appliance.sending.messages import sms_rules
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage.database import rows, scalar
from appliance.storage.models import Campaign
from appliance.webhooks import subscriptions
from appliance.webhooks.subscriptions import EncryptedSecrets


def check_sending_stopped(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Report the file STOP and the accounts whose sending is stopped, or that nothing stops sending."""
    if data_dir.has_stop_file(directory):
        yield Finding(
            "warn",
            "sending",
            gettext("the file %(path)s stops all sending; remove it to resume", path=directory / data_dir.STOP_FILE),
            meaning=gettext(
                "Your administrator has stopped all sending. Messages wait until your administrator resumes it."
            ),
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


def _report(problems: list[Finding], if_none: Finding | None) -> Iterator[Finding]:
    """Yield the first `MAX_SHOWN` problems of a check and how many more there are, or `if_none` if there are none."""
    yield from problems[:MAX_SHOWN]
    if len(problems) > MAX_SHOWN:
        yield problems[0]._replace(
            words=gettext("%(count)s more like these", count=len(problems) - MAX_SHOWN), fix="",
        )  # fmt: skip
    if not problems and if_none is not None:
        yield if_none


def check_ledger(_: Path, account_id: int | None) -> Iterator[Finding]:
    """Compare the counters of every started campaign and of contacts with the messages in the ledger."""
    problems: list[Finding] = []
    query = Campaign.select().where(Campaign.started_at.is_null(False)).order_by(Campaign.id)
    campaigns = list(query if account_id is None else query.where(Campaign.account == account_id))
    for campaign in campaigns:
        fresh_campaign = store.find_with_sums(campaign.id)
        if fresh_campaign is None:
            continue
        campaign_problems = ledger_check.check_quickly(fresh_campaign) + [
            message for part in ledger_check.check_thoroughly(fresh_campaign) for message in part
        ]
        problems += [
            Finding("fail", "ledger", gettext("campaign %(id)s: %(problem)s", id=campaign.id, problem=message))
            for message in campaign_problems
        ]
    text = ngettext(
        "recipient totals add up for %(num)s campaign", "recipient totals add up for %(num)s campaigns", len(campaigns)
    )
    yield from _report(problems, Finding("ok", "ledger", text))
    for (row_account_id,) in rows("SELECT id FROM account WHERE id = coalesce(?, id) ORDER BY id", (account_id,)):
        for message in ledger_check.check_contacts(row_account_id):
            yield Finding("warn", "ledger", message)


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


def check_flow_counts(_: Path, account_id: int | None) -> Iterator[Finding]:
    """Compare the counters of every flow with its runs, and find live runs whose current step is inconsistent."""
    parameters = {"account": account_id}
    problems, flows = [], rows(_FLOW_COUNTS_SQL, parameters)
    for flow_id, *counts in flows:
        for name, counter, actual in zip(("entered", "completed", "exited"), counts[:3], counts[3:], strict=True):
            if counter != actual:
                message = gettext(
                    "flow %(flow)s: the counter of %(name)s runs is %(counter)s, but there are %(actual)s",
                    flow=flow_id, name=name, counter=counter, actual=actual,
                )  # fmt: skip
                problems.append(message)
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
    text = ngettext("the counters of %(num)s flow are correct", "the counters of %(num)s flows are correct", len(flows))
    yield from _report([Finding("fail", "flows", message) for message in problems], Finding("ok", "flows", text))


def check_flow_runs(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Warn of runs of active flows that have been due for 15 minutes although the service runs."""
    if not describe_process(directory):
        return
    now = clock.now_ms()
    for flow_id, count, since in rows(_LATE_RUNS_SQL, {"account": account_id, "late": now - LATE_MS}):
        message = ngettext(
            "flow %(flow)s: %(num)s run has been due for %(minutes)s minutes and does not continue; see the log",
            "flow %(flow)s: %(num)s runs have been due for %(minutes)s minutes and do not continue; see the log",
            count,
            flow=flow_id,
            minutes=(now - since) // 60_000,
        )
        yield Finding("warn", "flows", message)


_WEBHOOKS_SQL = (
    "SELECT id, account_id, url, secret, enabled, failing_since, disabled_at, disabled_reason, (SELECT count(*) "
    "FROM webhook_delivery WHERE webhook_id = webhook.id AND status = 'pending') FROM webhook "
    "WHERE deleted_at IS NULL AND (?1 IS NULL OR account_id = ?1) ORDER BY id"
)


def check_webhooks(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Find webhooks that keep failing, were disabled, or whose secret cannot be read. No request is sent."""
    webhooks = rows(_WEBHOOKS_SQL, (account_id,))
    text = ngettext("%(num)s webhook", "%(num)s webhooks", len(webhooks))
    yield from _report(list(_find_webhook_faults(webhooks)), Finding("ok", "webhooks", text) if webhooks else None)


def _find_webhook_faults(webhooks: list[Any]) -> Iterator[Finding]:
    """Yield the problems of webhooks; `webhooks` are rows of `_WEBHOOKS_SQL`."""
    for webhook_id, account, url, encrypted_secret, enabled, failing_since, disabled_at, reason, pending in webhooks:
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
                gettext(
                    "Another program is no longer told what happens in your account, because it did not accept it. "
                    "Have that program checked, then turn the webhook on again under Settings, Webhooks."
                ),
            )  # fmt: skip
        elif enabled and failing_since is not None:
            message = gettext(
                "webhook %(id)s to %(host)s has accepted nothing since %(since)s; %(pending)s deliveries are pending",
                since=clock.iso(failing_since), **values,
            )  # fmt: skip
            yield Finding("warn", "webhooks", message)


_UNSEEN_REFUSALS_SQL = (
    "SELECT account_id, count(*), min(created_at) FROM incoming INDEXED BY incoming_refusals "
    "WHERE kind = 'refusal' AND seen_at IS NULL AND opted_out = 0 AND (?1 IS NULL OR account_id = ?1) "
    "GROUP BY account_id"
)


def check_unseen_refusals(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Warn of each account with incoming SMS that may be opt-outs and that no user has reviewed."""
    for row_account_id, count, since in rows(_UNSEEN_REFUSALS_SQL, (account_id,)):
        message = gettext(
            "account %(account)s: %(count)s SMS may be opt-outs and have waited for review since %(since)s",
            account=row_account_id,
            count=count,
            since=clock.iso(since),
        )
        meaning = gettext(
            "Some replies to your SMS may be opt-outs that Campanero did not recognise. Read them under Activity, "
            "SMS replies, and unsubscribe who asked for it."
        )
        fix = "GET /v1/my/incoming?unseen=true, then POST /v1/my/incoming/{id}/seen"
        yield Finding("warn", "SMS", message, fix, meaning)


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
            message = gettext(
                "account %(account)s has used its %(parts_per_day)s SMS parts for today; SMS wait until %(until)s",
                account=row_account_id,
                parts_per_day=settings.parts_per_day,
                until=clock.iso(until),
            )
            problems.append(Finding("warn", "SMS", message, "raise sms.parts_per_day if the limit is too low"))
        for block in sms_rules.list_full_blocks(row_account_id):
            message = gettext(
                "account %(account)s: %(messages)s single SMS went to unknown numbers beginning with "
                "%(prefix)s within an hour; more are rejected",
                account=row_account_id,
                messages=block.messages,
                prefix=block.prefix,
            )
            problems.append(
                Finding(
                    "warn",
                    "SMS",
                    message,
                    "check who requests these messages: this may be SMS pumping fraud",
                    gettext(
                        "Unusually many SMS went to unknown numbers, so further ones are rejected. Somebody may be "
                        "abusing a form of yours at your cost: ask your administrator to look at it."
                    ),
                )
            )
    yield from _report(problems, None)


_INSTALLATION_CHECKS = (
    checks.check_disk_space,
    checks.check_backups,
    checks.check_new_version,
    replication.check_litestream,
    replication.check_lease,
    replication.check_copies,
    checks.check_clock,
    checks.check_service,
    connections.check_listeners,
    certificates.check_certificates,
    checks.check_queue,
    checks.check_event_cursors,
    connections.check_email_transport,
    connections.check_outgoing_ports,
    connections.check_consent,
    connections.check_sms_transport,
    connections.check_base_url,
)
_ACCOUNT_CHECKS = (
    check_sending_stopped,
    account_addresses.check_addresses,
    connections.check_domains,
    connections.check_senders,
    check_ledger,
    check_flow_counts,
    check_flow_runs,
    check_webhooks,
    check_sms_limits,
    check_unseen_refusals,
)


def run_checks(
    load: Callable[[dict[str, object] | None], LoadedConfig],
    with_seed: bool = False,
    account_id: int | None = None,
    is_tenant: bool = False,
) -> Iterator[Finding]:
    """Run all checks and yield their findings. Stop at a finding that makes further checks impossible.

    Call it in a process of its own, because it opens the database, leaves it open, and sets the configuration of the
    process. `load` loads the configuration; its argument is the settings saved on pages, or None before the database is
    open. `with_seed` adds the test message. `account_id` limits the checks of accounts to one account. `is_tenant` is
    for an account that does not manage the installation: of the checks of the installation, it only learns which
    failed.
    """
    of_installation = _hide_details if is_tenant else iter
    try:
        loaded = load(None)
    except ConfigError as error:
        yield from of_installation([Finding("fail", "configuration", str(error))])
        return
    yield from of_installation(checks.check_configuration(loaded))
    directory = Path(loaded.config.data_dir)
    try:
        yield from of_installation(checks.check_data_directory(directory))
        if place.load_source(directory) is not None:
            yield from of_installation(replication.check_standby(directory))
            return
        yield from of_installation(checks.check_database(directory))
        if account_id is not None and scalar("SELECT 1 FROM account WHERE id = ?", (account_id,)) is None:
            yield Finding("fail", "account", gettext("account %(account_id)s does not exist", account_id=account_id))
        loaded = load(settings.load())
        # The service may have been started with `--listen`, so the address that it recorded at its start has priority.
        listen = data_dir.read_listen_address(directory) or loaded.config.listen
        config.set_current(msgspec.structs.replace(loaded.config, listen=listen))
        for check in _INSTALLATION_CHECKS:
            yield from of_installation(check(directory))
        for check_account in (*_ACCOUNT_CHECKS, *((seed.check_test_message,) if with_seed else ())):
            yield from check_account(directory, account_id)
    except CheckAborted:
        return
    except apsw.CorruptError as error:
        # `check_database` has already reported the damage, but a later check could not read the damaged part.
        yield Finding("fail", "database", gettext("cannot be read further: %(error)s", error=error))


def _hide_details(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield only which checks have failed, without paths, addresses and settings of the installation."""
    for finding in findings:
        if finding.level == "fail":
            words = gettext("has a problem, which the health check of the first account describes")
            yield Finding("fail", finding.check, words)
