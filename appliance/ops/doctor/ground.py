"""The ground everything stands on: configuration, files, database, disk, the process."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import apsw
import peewee

from appliance.campaigns import ledger_check as bookkeeping
from appliance.campaigns import store
from appliance.core import data_dir, tokens
from appliance.ops.doctor.findings import MAX_SHOWN, Line, Over
from appliance.settings.config import Loaded
from appliance.storage import disk_guard, identity, sql
from appliance.storage.migrations import MIGRATIONS
from appliance.storage.models import Campaign
from appliance.storage.open import TooOld, check_version, open_database, rows


def warnings(loaded: Loaded) -> Iterator[Line]:
    """Return what is odd in the configuration."""
    for words in loaded.warnings:
        yield Line("warn", "configuration", words)
    if not loaded.warnings:
        yield Line("ok", "configuration", "valid")


def files(directory: Path) -> Iterator[Line]:
    """Check the data directory and its key."""
    if not directory.is_dir():
        yield Line("fail", "data directory", f"{directory} is not there: start with campanero serve or setup")
        raise Over
    open_to = [name for name in (directory, *sorted(directory.iterdir())) if _is_open(name)]
    if open_to:
        words = f"others can read {', '.join(map(str, open_to[:MAX_SHOWN]))}: chmod go-rwx"
        yield Line("fail", "data directory", words)
    elif not os.access(directory, os.W_OK):
        yield Line("fail", "data directory", f"{directory} cannot be written by this user")
    else:
        yield Line("ok", "data directory", f"{directory}, private")
    try:
        tokens.load_key(directory)
    except (tokens.WrongKey, OSError) as error:
        yield Line("fail", "key file", str(error))
        raise Over from None
    yield Line("ok", "key file", "readable; keep a copy of it apart from backups")


def _is_open(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False  # the service that runs has removed it since its name was read
    return bool(stat.S_IMODE(mode) & 0o077) and path.name != data_dir.STOP_FILE


def database(directory: Path) -> Iterator[Line]:
    """Open the database and look through all of it."""
    path = directory / "campanero.db"
    try:
        check_version()
        its = identity.NEW if identity.is_empty(path) else identity.inspect(path)
        if its.schema == 0:
            state = "is empty" if path.exists() else "is not there"
            raise identity.Unusable(f"{path} {state}: restore a backup (campanero restore FILE)")
        open_database(path)
        found = sql.damage(MAX_SHOWN)
        have, want = its.schema, len(MIGRATIONS)
    except (TooOld, identity.Unusable, apsw.Error, peewee.PeeweeException) as error:
        yield Line("fail", "database", str(error))
        raise Over from None
    if its.key_fingerprint is not None:
        try:
            tokens.check_key(its.key_fingerprint, directory / tokens.FILE)
        except tokens.WrongKey as error:
            yield Line("fail", "key file", str(error))
    yield Line("ok", "SQLite", apsw.sqlite_lib_version())
    if found:
        yield Line("fail", "database", f"is damaged: {'; '.join(found)}")
    else:
        yield Line("ok", "database", f"{path.stat().st_size / 1e6:.0f} MB, whole{_spare()}")
    if have > want:
        yield Line("fail", "schema", f"{have}, this program knows {want}: use the newer program")
        raise Over
    if have < want:
        yield Line("warn", "schema", f"{have}, the next start brings it to {want}")
        raise Over
    yield Line("ok", "schema", str(have))


def _spare() -> str:
    """Return how much of the database holds nothing now, where that is worth a word."""
    spare = sql.spare_bytes()
    return f"; {spare / 1e6:.0f} MB of it are free for what comes" if spare > 1e6 else ""


def room(directory: Path) -> Iterator[Line]:
    """Check the room on the disk."""
    free, least = disk_guard.room(directory)
    words = f"{free / 1e6:.0f} MB are free"
    if free < least:
        yield Line("fail", "disk", f"{words}; nothing is sent below {least / 1e6:.0f} MB")
    elif free < 2 * least:
        yield Line("warn", "disk", f"{words}; sending stops below {least / 1e6:.0f} MB")
    else:
        yield Line("ok", "disk", words)


def stopped(directory: Path, account_id: int | None) -> Iterator[Line]:
    """Return what stops all sending."""
    if data_dir.is_stopped(directory):
        yield Line("warn", "sending", f"the file {directory / data_dir.STOP_FILE} stops all of it; remove it to go on")
    found = rows(
        "SELECT name, stop_reason FROM account WHERE sending_stopped = 1 AND id = coalesce(?, id) ORDER BY id",
        (account_id,),
    )
    for name, reason in found:
        yield Line("warn", "sending", f"is switched off for {name}{f' ({reason})' if reason else ''}")
    if not found and not data_dir.is_stopped(directory):
        yield Line("ok", "sending", "not stopped")


def runs(directory: Path) -> str:
    """Say in words as what the service runs on a data directory; nothing if it does not."""
    found = data_dir.holder(directory)
    return f"runs as process {found}" if found is not None else ""


def process(directory: Path) -> Iterator[Line]:
    """Return whether the service runs."""
    words = runs(directory)
    yield Line("ok", "service", words or "not running")
    if not words:
        (in_hand,) = rows("SELECT count(*) FROM message WHERE status = 'sending'")[0]
        if in_hand:
            words = f"{in_hand} messages were in hand when the service ended; the next start decides about them"
            yield Line("warn", "service", words)


def books(_: Path, account_id: int | None) -> Iterator[Line]:
    """Hold every campaign's sums against its rows."""
    found: list[str] = []
    started = Campaign.select().where(Campaign.started_at.is_null(False)).order_by(Campaign.id)
    sent = list(started if account_id is None else started.where(Campaign.account == account_id))
    for campaign in sent:
        fresh = store.summed(campaign.id)
        if fresh is None:
            continue
        wrong = bookkeeping.quick(fresh) + [words for part in bookkeeping.thorough(fresh) for words in part]
        found += [f"campaign {campaign.id}: {words}" for words in wrong]
    for words in found[:MAX_SHOWN]:
        yield Line("fail", "books", words)
    if len(found) > MAX_SHOWN:
        yield Line("fail", "books", f"{len(found) - MAX_SHOWN} more like these")
    if not found:
        yield Line("ok", "books", "1 campaign balances" if len(sent) == 1 else f"{len(sent)} campaigns balance")
    for (number,) in rows("SELECT id FROM account WHERE id = coalesce(?, id) ORDER BY id", (account_id,)):
        for words in bookkeeping.of_people(number):
            yield Line("warn", "books", words)
