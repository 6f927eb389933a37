"""Looks an installation over: one line for each check, and what to do about what is not well. It changes nothing."""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import apsw
import peewee

from appliance import config, datadir, tokens
from appliance.account import settings
from appliance.campaigns import books, store
from appliance.config import Loaded
from appliance.db import storage
from appliance.db.migrations import MIGRATIONS, current
from appliance.db.open import TooOld, check_version, open_database, rows
from appliance.delivery import providers, self_check
from appliance.delivery.routing import DIRECT
from appliance.errors import ConfigError, DeliveryError
from appliance.tables import Campaign

_ANSWER_SECONDS = 15
_MOST_SHOWN = 10


class Line(NamedTuple):
    """What a check found."""

    level: Literal["ok", "warn", "fail"]
    check: str
    words: str


class _Over(Exception):
    """Nothing more can be checked."""


def look(load: Callable[[dict[str, object] | None], Loaded]) -> Iterator[Line]:
    """Yield what each check finds; `load` reads the configuration, given what is set on pages."""
    try:
        loaded = load(None)
    except ConfigError as error:
        yield Line("fail", "configuration", str(error))
        return
    yield from _warnings(loaded)
    directory = Path(loaded.config.data_dir)
    try:
        yield from _files(directory)
        yield from _database(directory)
        loaded = load(settings.read())
        config.use(loaded.config)
        for check in (_room, _stopped, _process, _way_out, _books):
            yield from check(directory)
    except _Over:
        return


def _warnings(loaded: Loaded) -> Iterator[Line]:
    for words in loaded.warnings:
        yield Line("warn", "configuration", words)
    if not loaded.warnings:
        yield Line("ok", "configuration", "valid")


def _files(directory: Path) -> Iterator[Line]:
    if not directory.is_dir():
        yield Line("fail", "data directory", f"{directory} is not there: start with campanero serve or setup")
        raise _Over
    open_to = [name for name in (directory, *sorted(directory.iterdir())) if _is_open(name)]
    if open_to:
        words = f"others can read {', '.join(map(str, open_to[:_MOST_SHOWN]))}: chmod go-rwx"
        yield Line("fail", "data directory", words)
    elif not os.access(directory, os.W_OK):
        yield Line("fail", "data directory", f"{directory} cannot be written by this user")
    else:
        yield Line("ok", "data directory", f"{directory}, private")
    key = directory / "secret.key"
    if not key.exists():
        yield Line("fail", "key file", f"{key} is not there: put back the one that belongs to this database")
        raise _Over
    try:
        tokens.load_key(directory)
    except (tokens.WrongKey, OSError) as error:
        yield Line("fail", "key file", str(error))
    else:
        yield Line("ok", "key file", "readable; keep a copy of it apart from backups")


def _is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.lstat().st_mode) & 0o077) and path.name != datadir.STOP_FILE


def _database(directory: Path) -> Iterator[Line]:
    path = directory / "campanero.db"
    if not path.exists():
        yield Line("fail", "database", f"{path} is not there")
        raise _Over
    try:
        check_version()
        open_database(path)
        found = rows(f"PRAGMA quick_check({_MOST_SHOWN})")
        have, want = current(), len(MIGRATIONS)
    except (TooOld, apsw.Error, peewee.PeeweeException) as error:
        yield Line("fail", "database", str(error))
        raise _Over from None
    yield Line("ok", "SQLite", apsw.sqlite_lib_version())
    if found != [("ok",)]:
        yield Line("fail", "database", f"is damaged: {'; '.join(str(one[0]) for one in found)}")
    else:
        yield Line("ok", "database", f"{path.stat().st_size / 1e6:.0f} MB, whole")
    if have > want:
        yield Line("fail", "schema", f"{have}, this program knows {want}: use the newer program")
        raise _Over
    if have < want:
        yield Line("warn", "schema", f"{have}, the next start brings it to {want}")
        raise _Over
    yield Line("ok", "schema", str(have))


def _room(directory: Path) -> Iterator[Line]:
    free, least = storage.room(directory)
    words = f"{free / 1e6:.0f} MB are free"
    if free < least:
        yield Line("fail", "disk", f"{words}; nothing is sent below {least / 1e6:.0f} MB")
    elif free < 2 * least:
        yield Line("warn", "disk", f"{words}; sending stops below {least / 1e6:.0f} MB")
    else:
        yield Line("ok", "disk", words)


def _stopped(directory: Path) -> Iterator[Line]:
    if datadir.is_stopped(directory):
        yield Line("warn", "sending", f"the file {directory / datadir.STOP_FILE} stops all of it; remove it to go on")
    found = rows("SELECT name, stop_reason FROM account WHERE sending_stopped = 1 ORDER BY id")
    for name, reason in found:
        yield Line("warn", "sending", f"is switched off for {name}{f' ({reason})' if reason else ''}")
    if not found and not datadir.is_stopped(directory):
        yield Line("ok", "sending", "not stopped")


def _process(directory: Path) -> Iterator[Line]:
    try:
        number = int((directory / "serve.lock").read_text().strip() or 0)
        os.kill(number, 0)
    except PermissionError:
        yield Line("ok", "service", "runs as another user")
    except (OSError, ValueError):
        yield Line("ok", "service", "not running")
        (in_hand,) = rows("SELECT count(*) FROM message WHERE status = 'sending'")[0]
        if in_hand:
            words = f"{in_hand} messages were in hand when the service ended; the next start decides about them"
            yield Line("warn", "service", words)
    else:
        yield Line("ok", "service", f"runs as process {number}")


def _way_out(_: Path) -> Iterator[Line]:
    name = config.current().email.transport
    if name == "capture":
        yield Line("ok", "way out", "capture: what is sent stays in the built-in inbox")
        return
    if name == DIRECT:
        words = asyncio.run(self_check.nothing_answers())
        yield Line("fail", "way out", words) if words else Line("ok", "way out", "direct: mail servers can be reached")
        for found in self_check.greeting():
            yield Line(found.level, "own name", f"{found.words}{f'; the record: {found.record}' * bool(found.record)}")
        return
    try:
        asyncio.run(asyncio.wait_for(_greet(name), _ANSWER_SECONDS))
    except (DeliveryError, OSError, TimeoutError) as error:
        yield Line("fail", "way out", f"{name}: {error or 'no answer'}")
    else:
        yield Line("ok", "way out", f"{name}: answers and lets us in")


async def _greet(name: str) -> None:
    await (await providers.connect(name)).close()


def _books(_: Path) -> Iterator[Line]:
    found: list[str] = []
    sent = list(Campaign.select().where(Campaign.started_at.is_null(False)).order_by(Campaign.id))
    for campaign in sent:
        fresh = store.summed(campaign.id)
        if fresh is None:
            continue
        wrong = books.quick(fresh) + [words for part in books.thorough(fresh) for words in part]
        found += [f"campaign {campaign.id}: {words}" for words in wrong]
    for words in found[:_MOST_SHOWN]:
        yield Line("fail", "books", words)
    if len(found) > _MOST_SHOWN:
        yield Line("fail", "books", f"{len(found) - _MOST_SHOWN} more like these")
    if not found:
        yield Line("ok", "books", f"{len(sent)} campaigns balance")
    for (account_id,) in rows("SELECT id FROM account ORDER BY id"):
        for words in books.of_people(account_id):
            yield Line("warn", "books", words)
