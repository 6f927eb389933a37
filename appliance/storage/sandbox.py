"""A sandbox for simulations: a thread reads the real database and writes to temporary copies of tables.

The real file is opened read-only, and all reads see one snapshot. Each table that may be written has a temporary copy
with the same name, columns and indexes, which holds only the requested rows. SQLite resolves an unqualified name to the
temporary table first, so that all statements, raw or by Peewee, use the copies. A table without a copy can be read but
not written. Nothing remains after the block: functions of `after_commit` are dropped, and wake-ups are muted.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import apsw
import peewee

from appliance.core import signals
from appliance.storage import masking
from appliance.storage.database import database, write_state

# The ids of rows that a sandbox creates begin here: above every real id, and below 2^48, the limit of signed links. An
# entry of a cache with such an id (a plan, a compiled message, a link) is therefore never confused with an entry of a
# real id.
FIRST_SANDBOX_ID = 1 << 47
_IDS_PER_SANDBOX = 1 << 24
# Each sandbox has its own block of ids. Blocks are reused after four million sandboxes of one process, when no cache
# holds entries of the first sandboxes any more.
_id_blocks = itertools.cycle(range(1 << 22))
_CREATE_TABLE = re.compile(r"^CREATE (VIRTUAL )?TABLE ")
_CREATE_INDEX = re.compile(r"^CREATE (UNIQUE )?INDEX ")


class TableRows(NamedTuple):
    """The rows of a table to copy into a sandbox: an SQL condition with its named parameters; by default no rows.

    The copy has the indexes with these names only, or all if `indexes` is None: each costs time with every write.
    """

    condition: str = "0"
    parameters: Mapping[str, Any] = {}
    indexes: frozenset[str] | None = None


NO_ROWS = TableRows()
ALL_ROWS = TableRows("1")


class WriteOutsideSandbox(RuntimeError):
    """An attempt inside a sandbox to write to a table without a copy."""


@contextmanager
def sandbox(tables: Mapping[str, TableRows]) -> Iterator[None]:
    """Direct all writes of this thread in the block into temporary copies of tables.

    `tables` maps the name of each table to the rows that are copied. Raises WriteOutsideSandbox for a write to another
    table, RuntimeError inside a sandbox or a write transaction.
    """
    if write_state.is_sandboxed or write_state.is_writing:
        raise RuntimeError("a sandbox cannot be opened inside another sandbox or inside a write transaction")
    temporary = _open_read_only()
    # Peewee keeps the connection of this thread in `_state`, and raw statements get it from Peewee, so a new connection
    # there redirects both.
    state = database._state
    previous = (state.conn, state.closed, state.ctx, state.transactions, state.commit_callbacks)
    try:
        _create_copies(temporary, tables)
        if masking.is_active():
            masking.mask_copies(temporary, tables)
        state.set_connection(temporary)
        write_state.is_sandboxed = True
        with signals.muted(), masking.masked(False):
            yield
    except (apsw.ReadOnlyError, peewee.OperationalError) as error:
        if isinstance(error, apsw.ReadOnlyError) or isinstance(
            error.__cause__ or error.__context__, apsw.ReadOnlyError
        ):
            raise WriteOutsideSandbox(f"a table without a copy would be written: {error}") from error
        raise
    finally:
        write_state.is_sandboxed = False
        state.conn, state.closed, state.ctx, state.transactions, state.commit_callbacks = previous
        temporary.close()


def _open_read_only() -> Any:
    handle = apsw.Connection(database.database, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        database._add_conn_hooks(handle)
        # SQLite would check foreign keys against the copies, which lack most rows. Cascades are not needed, because a
        # simulation deletes no rows.
        handle.execute("PRAGMA foreign_keys = 0").fetchall()
    except BaseException:
        handle.close()
        raise
    return handle


def _create_copies(handle: Any, tables: Mapping[str, TableRows]) -> None:
    """Create the temporary tables, insert their rows, and then create their indexes, which is faster in this order."""
    handle.execute("BEGIN")  # All reads of the sandbox see one snapshot.
    objects = handle.execute("SELECT type, tbl_name, sql, name FROM main.sqlite_schema WHERE sql NOT NULL").fetchall()
    create_statements = {table: sql for kind, table, sql, _ in objects if kind == "table"}
    for table, selection in tables.items():
        handle.execute(_CREATE_TABLE.sub(r"CREATE \1TABLE temp.", create_statements[table]))
        if selection.condition != "0":
            handle.execute(f"INSERT INTO temp.{table} SELECT * FROM main.{table} WHERE {selection.condition}",
                         dict(selection.parameters))  # fmt: skip
    for kind, table, sql, name in objects:
        if kind == "index" and table in tables and ((indexes := tables[table].indexes) is None or name in indexes):
            handle.execute(_CREATE_INDEX.sub(r"CREATE \1INDEX temp.", sql))
    first_id = FIRST_SANDBOX_ID + next(_id_blocks) * _IDS_PER_SANDBOX
    autoincrement_tables = [table for table in tables if "AUTOINCREMENT" in create_statements[table]]
    if not autoincrement_tables:
        return
    handle.execute("DELETE FROM temp.sqlite_sequence")
    handle.executemany(
        "INSERT INTO temp.sqlite_sequence (name, seq) VALUES (?, ?)",
        [(table_name, first_id) for table_name in autoincrement_tables],
    )
