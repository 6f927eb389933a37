"""The command `doctor`: checks of an installation, one line each, with advice. Nothing is changed.

Only the optional test message (`seed`) writes: one message to a reserved address, which never leaves this machine.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec

from appliance.accounts import settings
from appliance.core import data_dir
from appliance.core.errors import ConfigError
from appliance.ops.doctor import accounts, connections, installation, seed
from appliance.ops.doctor.installation import CheckAborted, Finding
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage.database import scalar

_INSTALLATION_CHECKS = (
    installation.check_disk_space,
    installation.check_backups,
    installation.check_clock,
    installation.check_service,
    connections.check_listeners,
    connections.check_certificates,
    installation.check_queue,
    accounts.check_event_cursors,
    connections.check_email_transport,
    connections.check_sms_transport,
    connections.check_base_url,
)
_ACCOUNT_CHECKS = (
    installation.check_sending_stopped,
    connections.check_domains,
    connections.check_senders,
    installation.check_ledger,
    accounts.check_flow_counts,
    accounts.check_flow_runs,
    accounts.check_webhooks,
    accounts.check_sms_limits,
    accounts.check_unseen_refusals,
)


def run_checks(
    load: Callable[[dict[str, object] | None], LoadedConfig], with_seed: bool = False, account_id: int | None = None
) -> Iterator[Finding]:
    """Yield the findings of all checks; `load` loads the configuration with the given page settings.

    With `account_id` the checks of accounts cover only this account.
    """
    try:
        loaded = load(None)
    except ConfigError as error:
        yield Finding("fail", "configuration", str(error))
        return
    yield from installation.check_configuration(loaded)
    directory = Path(loaded.config.data_dir)
    try:
        yield from installation.check_data_directory(directory)
        yield from installation.check_database(directory)
        if account_id is not None and scalar("SELECT 1 FROM account WHERE id = ?", (account_id,)) is None:
            yield Finding("fail", "account", f"account {account_id} does not exist")
        loaded = load(settings.load())
        # The service may listen on an address from its command line.
        listen = data_dir.read_listen_address(directory) or loaded.config.listen
        config.set_current(msgspec.structs.replace(loaded.config, listen=listen))
        for check in _INSTALLATION_CHECKS:
            yield from check(directory)
        for check_account in (*_ACCOUNT_CHECKS, *((seed.check_test_message,) if with_seed else ())):
            yield from check_account(directory, account_id)
    except CheckAborted:
        return
    except apsw.CorruptError as error:
        # The damage was reported before, and prevents further checks.
        yield Finding("fail", "database", f"cannot be read further: {error}")
