"""A database that is only pretended: this thread reads the real one, and writes into tables of its own beside it.

The real file is opened for reading alone, at one moment. Tables of which something could be written lie before it as
temporary ones of the same name, with the same columns and indexes, holding the rows that were asked for and no others:
SQLite looks for an unqualified name among the temporary tables first, so the same statements find them, raw ones and
Peewee's. A table that nobody shadowed can be read and not written. Nothing of it outlives the block, what verbs want
done after their commit is dropped, and no bell is heard.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import apsw
import peewee

from appliance.core import wake_ups
from appliance.storage.open import database
from appliance.storage.writer import state

# Ids of what is only pretended: below what a signed link can carry, and above all that will ever be real. So whatever
# is remembered by such an id (a plan, a compiled message, a link) is never taken for something real.
FIRST = 1 << 47
_ROOM = 1 << 24
# After some million rehearsals of one process the first ones are forgotten
_blocks = itertools.cycle(range(1 << 22))
_TABLE = re.compile(r"^CREATE (VIRTUAL )?TABLE ")
_INDEX = re.compile(r"^CREATE (UNIQUE )?INDEX ")


class Rows(NamedTuple):
    """Which rows of a table are seen: a condition over its columns, with parameters; none of them by default."""

    where: str = "0"
    parameters: Mapping[str, Any] = {}


NONE = Rows()
ALL = Rows("1")


class Pretended(RuntimeError):
    """Something would have been written to the real database, or handed to who writes there."""


def is_shadowed() -> bool:
    """Return whether this thread only pretends."""
    return state.pretends


@contextmanager
def shadowed(tables: Mapping[str, Rows]) -> Iterator[None]:
    """Let this thread write into shadows of these tables, and into nothing else, until the block ends."""
    if state.pretends or state.inside:
        raise RuntimeError("a shadow lies over the real database alone, and not inside of a writing verb")
    here = _opened()
    # Peewee asks its own state for the connection of this thread; raw statements ask Peewee
    own = database._state
    before = (own.conn, own.closed, own.ctx, own.transactions, own.commit_callbacks)
    try:
        _fill(here, tables)
        own.set_connection(here)
        state.pretends = True
        with wake_ups.unheard():
            yield
    except (apsw.ReadOnlyError, peewee.OperationalError) as error:
        if isinstance(error, apsw.ReadOnlyError) or isinstance(
            error.__cause__ or error.__context__, apsw.ReadOnlyError
        ):
            raise Pretended(f"a table without a shadow would be written: {error}") from error
        raise
    finally:
        state.pretends = False
        own.conn, own.closed, own.ctx, own.transactions, own.commit_callbacks = before
        here.close()


def _opened() -> Any:
    here = apsw.Connection(database.database, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        database._add_conn_hooks(here)
        # References would be looked for among the shadows, where not everything is; nothing is deleted in a rehearsal
        here.execute("PRAGMA foreign_keys = 0").fetchall()
    except BaseException:
        here.close()
        raise
    return here


def _fill(here: Any, tables: Mapping[str, Rows]) -> None:
    """Make the shadows: tables, their rows, and then the indexes, which are quicker made over rows that are there."""
    here.execute("BEGIN")  # all that is read is of one moment
    found = here.execute("SELECT type, tbl_name, sql FROM main.sqlite_schema WHERE sql NOT NULL").fetchall()
    made = {table: sql for kind, table, sql in found if kind == "table"}
    for table, wanted in tables.items():
        here.execute(_TABLE.sub(r"CREATE \1TABLE temp.", made[table]))
        if wanted.where != "0":
            here.execute(f"INSERT INTO temp.{table} SELECT * FROM main.{table} WHERE {wanted.where}",
                         dict(wanted.parameters))  # fmt: skip
    for kind, table, sql in found:
        if kind == "index" and table in tables:
            here.execute(_INDEX.sub(r"CREATE \1INDEX temp.", sql))
    first = FIRST + next(_blocks) * _ROOM
    numbered = [table for table in tables if "AUTOINCREMENT" in made[table]]
    if not numbered:
        return
    here.execute("DELETE FROM temp.sqlite_sequence")
    here.executemany("INSERT INTO temp.sqlite_sequence (name, seq) VALUES (?, ?)", [(one, first) for one in numbered])
