"""Checks of what makes a second machine ready: Litestream, the lease, and the copy of a machine that follows."""

import time
from collections.abc import Iterator
from pathlib import Path

from appliance.core import data_dir
from appliance.core.i18n import gettext
from appliance.ops import litestream, stores
from appliance.ops.doctor.checks import Finding
from appliance.ops.fencing import record as records
from appliance.ops.standby import follow, place
from appliance.ops.stores.base import StoreError
from appliance.settings import config

# Litestream looks at the database each second, and copies what has changed.
MAX_LAG_SECONDS = 30.0


def check_litestream(directory: Path) -> Iterator[Finding]:
    """Check that Litestream runs and has copied the database in the last seconds, if it is configured.

    What it does not do is a finding too: Litestream 0.5 has no encryption of its own.
    """
    if not litestream.is_used():
        return
    try:
        last_sync = litestream.read_last_sync(directory / "campanero.db")
    except litestream.LitestreamDown as error:
        yield Finding(
            "fail",
            "Litestream",
            gettext("does not copy the database: %(reason)s", reason=error),
            "systemctl status campanero-litestream",
        )
        return
    lag = max(0.0, time.time() - last_sync)
    seconds = f"{lag:.1f}"
    if lag > MAX_LAG_SECONDS:
        words = gettext("has not copied the database for %(seconds)s s", seconds=seconds)
        yield Finding("fail", "Litestream", words, "journalctl -u campanero-litestream")
    else:
        yield Finding("ok", "Litestream", gettext("copied the database %(seconds)s s ago", seconds=seconds))
    yield Finding("note", "Litestream", gettext("does not encrypt or sign its replica"))


def check_standby(directory: Path) -> Iterator[Finding]:
    """Report how far a machine that follows another one is behind; the other checks are those of the other machine."""
    database = place.find_database(directory)
    lag = follow.measure_lag(database) if database is not None else None
    if data_dir.find_service_pid(directory) is None:
        words = gettext("campanero follow is not running")
        yield Finding("fail", "standby", words, "systemctl start campanero-follow")
    elif database is None:
        yield Finding("warn", "standby", gettext("the copy of the database is not complete yet"))
    elif lag is None or lag > follow.LATE_SECONDS:
        words = follow.describe_lag(database)
        yield Finding("warn", "standby", gettext("follows, but late: %(state)s", state=words))
    else:
        yield Finding("ok", "standby", gettext("follows: %(state)s", state=follow.describe_lag(database)))


def check_lease(directory: Path) -> Iterator[Finding]:
    """Check that this machine holds the lease, if one is configured."""
    settings = config.current()
    if not settings.lease.store:
        return
    try:
        store = stores.open_store(settings.lease.store, settings.copies)
        try:
            fetched = records.fetch_lease(store)
        finally:
            store.close()
        node = records.find_node(directory)
    except StoreError as error:
        yield Finding("fail", "lease", gettext("its storage cannot be used: %(reason)s", reason=error))
        return
    if fetched is None:
        yield Finding("note", "lease", gettext("nobody has taken it yet; the next start does"))
    elif node is None or fetched.record.node != node.node:
        words = gettext("%(host)s holds it, so this machine sends nothing", host=fetched.record.host)
        yield Finding("fail", "lease", words, "campanero promote")
    elif fetched.record.is_released and data_dir.find_service_pid(directory) is not None:
        yield Finding("warn", "lease", gettext("it was given back, although the service runs"))
    else:
        yield Finding("ok", "lease", gettext("held by this machine, epoch %(epoch)s", epoch=fetched.record.epoch))
