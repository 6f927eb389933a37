"""The command `doctor`: checks of an installation, which report findings, each with a fix if there is one.

A check is a function that yields its findings. It takes the data directory; a check of accounts also takes an account
id, or None for all accounts. The checks change nothing, except for the optional test message (`seed`), which is
queued to a reserved address and never leaves this machine.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import apsw
import msgspec

from appliance.accounts import settings
from appliance.core import data_dir
from appliance.core.errors import ConfigError
from appliance.core.i18n import gettext
from appliance.ops.doctor import account_checks, checks, connections, seed
from appliance.ops.doctor.checks import CheckAborted, Finding
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage.database import scalar

_INSTALLATION_CHECKS = (
    checks.check_disk_space,
    checks.check_backups,
    checks.check_clock,
    checks.check_service,
    connections.check_listeners,
    connections.check_certificates,
    checks.check_queue,
    checks.check_event_cursors,
    connections.check_email_transport,
    connections.check_sms_transport,
    connections.check_base_url,
)
_ACCOUNT_CHECKS = (
    account_checks.check_sending_stopped,
    connections.check_domains,
    connections.check_senders,
    account_checks.check_ledger,
    account_checks.check_flow_counts,
    account_checks.check_flow_runs,
    account_checks.check_webhooks,
    account_checks.check_sms_limits,
    account_checks.check_unseen_refusals,
)


def run_checks(
    load: Callable[[dict[str, object] | None], LoadedConfig],
    with_seed: bool = False,
    account_id: int | None = None,
    is_tenant: bool = False,
) -> Iterator[Finding]:
    """Run all checks and yield their findings. Stop at a finding that makes further checks impossible.

    `load` loads the configuration; its argument is the settings saved on pages, or None before the database is open.
    `with_seed` adds the test message. `account_id` limits the checks of accounts to one account. `is_tenant` leaves out
    what concerns the installation, for users of an account that does not manage it.
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
