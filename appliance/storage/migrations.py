"""The ordered list of schema changes; the database remembers how many it has had (`PRAGMA user_version`).

Each runs in one transaction together with its number: a kill at any moment leaves the old or the new schema. To change
a table: change its columns in `tables/`, append a function here; a test holds the result against the tables.
"""

from collections.abc import Callable
from typing import Any

from appliance.storage import first_schema
from appliance.storage.identity import APPLICATION_ID
from appliance.storage.open import connection, scalar


class TooNew(Exception):
    """The database was written by a newer version of the program."""


def _first(here: Any) -> None:
    here.execute(first_schema.SQL).fetchall()


def _restorations(here: Any) -> None:
    here.execute(
        "CREATE TABLE restoration (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, taken_at INTEGER NOT NULL, "
        "restored_at INTEGER NOT NULL, taken_by TEXT NOT NULL, restored_by TEXT NOT NULL, replayed TEXT NOT NULL, "
        "paused TEXT NOT NULL)"
    )


def _installation(here: Any) -> None:
    here.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    here.execute(
        "CREATE TABLE installation (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, key_fingerprint TEXT NOT NULL, "
        "created_at INTEGER NOT NULL)"
    )


MIGRATIONS: tuple[Callable[[Any], None], ...] = (_first, _restorations, _installation)


def current() -> int:
    """Return how many migrations this database has had."""
    return int(scalar("PRAGMA user_version"))


def migrate() -> int:
    """Bring the database to this program's schema and answer how many steps that took; raises TooNew."""
    have, want = current(), len(MIGRATIONS)
    if have > want:
        raise TooNew(f"the database has schema {have}, this program knows {want}: use the newer program")
    here = connection()
    for number in range(have, want):
        here.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been first while we waited for the lock.
            if current() == number:
                MIGRATIONS[number](here)
                here.execute(f"PRAGMA user_version = {number + 1}")
            here.execute("COMMIT")
        except BaseException:
            if here.in_transaction:
                here.execute("ROLLBACK")
            raise
    return want - have
