"""Looks an installation over: one line for each check, and what to do about what is not well. It changes nothing.

Only a test of the whole way (`seed`) writes: one message to nobody, which never leaves this machine.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec

from appliance.accounts import settings
from appliance.core import data_dir
from appliance.core.errors import ConfigError
from appliance.ops.doctor import (
    automations,
    copies,
    encryption,
    flow,
    ground,
    names,
    refusals,
    seed,
    spending,
    texting,
    ways,
    webhooks,
)
from appliance.ops.doctor.findings import Line, Over
from appliance.settings import config
from appliance.settings.config import Loaded
from appliance.storage.open import scalar

__all__ = ["Line", "look"]
# Of the whole installation, and of its accounts: all of them, or the one that was asked about
_OF_ALL = (
    ground.room,
    copies.scheduled,
    flow.clocks,
    ground.process,
    ways.doors,
    encryption.own,
    flow.queue,
    automations.cursors,
    ways.way_out,
    texting.way_out,
    ways.links,
)
_OF_ACCOUNTS = (
    ground.stopped,
    names.domains,
    names.senders,
    ground.books,
    automations.books,
    automations.moving,
    webhooks.heard,
    spending.of_sms,
    refusals.unseen,
)


def look(
    load: Callable[[dict[str, object] | None], Loaded], with_seed: bool = False, account_id: int | None = None
) -> Iterator[Line]:
    """Yield what each check finds; `load` reads the configuration, given what is set on pages.

    Of other accounts than `account_id`, if there is one, nothing is told.
    """
    try:
        loaded = load(None)
    except ConfigError as error:
        yield Line("fail", "configuration", str(error))
        return
    yield from ground.warnings(loaded)
    directory = Path(loaded.config.data_dir)
    try:
        yield from ground.files(directory)
        yield from ground.database(directory)
        if account_id is not None and scalar("SELECT 1 FROM account WHERE id = ?", (account_id,)) is None:
            yield Line("fail", "account", f"there is no account {account_id}")
        loaded = load(settings.read())
        # An option of its own command line may have said where it listens
        listen = data_dir.listens(directory) or loaded.config.listen
        config.use(msgspec.structs.replace(loaded.config, listen=listen))
        for check in _OF_ALL:
            yield from check(directory)
        for one in (*_OF_ACCOUNTS, *((seed.send,) if with_seed else ())):
            yield from one(directory, account_id)
    except Over:
        return
    except apsw.CorruptError as error:
        # It was said before that it is damaged; here is where that begins to matter
        yield Line("fail", "database", f"cannot be read any further: {error}")
