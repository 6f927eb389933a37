"""Checks of other machines' data: Litestream, the lease, a machine that follows this one, and encrypted copies."""

import time
from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock, data_dir
from appliance.core.i18n import gettext
from appliance.ops import litestream, stores
from appliance.ops.copy_jobs import history, schedule
from appliance.ops.doctor.checks import Finding
from appliance.ops.fencing import record as records
from appliance.ops.fencing.record import LeaseRecord
from appliance.ops.standby import follow, place
from appliance.ops.stores.base import StoreError
from appliance.settings import config
from appliance.storage.models import CopyRun

# Litestream checks the database each second, and copies the changes.
MAX_LAG_SECONDS = 30.0
_COPIES = "copies"
_HOUR_MS = 3_600_000
_DAMAGE_CODES = ("damaged", "missing", "incomplete", "books", "older")


def check_litestream(directory: Path) -> Iterator[Finding]:
    """Check that Litestream runs and has copied the database in the last seconds, if it is configured.

    Also warn of a limit of Litestream 0.5: it does not encrypt.
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
    """Report how far a machine that follows another one is behind; that other machine has the other checks."""
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
        yield Finding("fail", "lease", words, f"{config.base_url(settings)}/docs/guides/second-machine#go-back")
    elif data_dir.find_service_pid(directory) is not None:
        yield _check_renewal(fetched.record)
    else:
        yield Finding("ok", "lease", gettext("held by this machine, epoch %(epoch)s", epoch=fetched.record.epoch))


def _check_renewal(record: LeaseRecord) -> Finding:
    """Check that the service of this machine, which runs, renews the lease that names it.

    The object may be readable, but not writable. A holder renews it four times in its duration, and stops at its end.
    `renewed_at` is by the clock of this machine.
    """
    seconds = (clock.now_ms() - record.renewed_at) // 1000
    if record.is_released:
        return Finding("warn", "lease", gettext("it was given back, although the service runs"))
    if seconds > record.seconds / 2 and record.renewed_at:
        words = gettext("not renewed for %(seconds)s s; at its end this machine stops sending", seconds=seconds)
        return Finding("fail", "lease", words, "journalctl -u campanero")
    return Finding("ok", "lease", gettext("held by this machine, epoch %(epoch)s", epoch=record.epoch))


def check_copies(_: Path) -> Iterator[Finding]:
    """Report whether encrypted copies are set up, the age of the last good one, and a failed copy or test restore."""
    copies = config.current().copies
    if not copies.store:
        yield Finding("note", _COPIES, gettext("no copies on another machine (copies.store is empty)"))
        return
    if not schedule.is_set_up(copies):
        words = gettext("no copies are made: they could not be read without a recovery passphrase or a public key")
        yield Finding("warn", _COPIES, words, "campanero copies passphrase", gettext(
            "No copy of your data leaves the server yet. Make a recovery passphrase under Settings, Backups."
        ))  # fmt: skip
        return
    lateness, last = schedule.measure_lateness(copies), history.find_last("copy")
    words = (
        gettext("there is no copy yet")
        if lateness.age is None
        else gettext("the last copy is %(age)s hours old", age=lateness.age // _HOUR_MS)
    )
    if last is not None and last.state == "failed":
        words = gettext("%(words)s; the last attempt failed: %(reason)s", words=words, reason=last.error)
    if lateness.is_late:
        yield Finding("fail", _COPIES, words)
    elif last is not None and last.state == "failed":
        yield Finding("warn", _COPIES, words)
    else:
        soon = gettext("The first copy on another machine will be made soon.")
        is_any = lateness.age is not None
        yield Finding("ok" if is_any else "note", _COPIES, words, meaning="" if is_any else soon)
    yield from _check_proof(history.find_last("proof", "succeeded", "failed"))


def _check_proof(proof: CopyRun | None) -> Iterator[Finding]:
    if proof is None:
        return
    if proof.state == "failed":
        words = gettext("the test restore of the newest copy failed: %(reason)s", reason=proof.error)
        yield Finding("fail" if proof.error_code in _DAMAGE_CODES else "warn", "test restore", words)
    else:
        words = gettext("the copy of %(taken_at)s was restored for a test at %(proven_at)s",
                        taken_at=clock.iso(proof.taken_at), proven_at=clock.iso(proof.ended_at))  # fmt: skip
        yield Finding("ok", "test restore", words)
