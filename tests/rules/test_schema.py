"""The schema that migrations make is the one that the tables describe, and a database is never opened by mistake."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from appliance.storage import database as opening
from appliance.storage.database import MIN_SQLITE_VERSION, SqliteTooOld, check_version, close_database, open_database
from appliance.storage.migrations import MIGRATIONS, SchemaTooNew, migrate
from tests.kit.server import ROOT

# Both in processes of their own: the database object belongs to the process
MIGRATED = """
import sys
from appliance.storage.migrations import migrate
from appliance.storage.database import close_database, open_database
open_database(sys.argv[1])
migrate()
close_database()
"""
DESCRIBED = """
import sys
from appliance.storage import models as tables
from appliance.storage.database import close_database, database, open_database
open_database(sys.argv[1])
database.create_tables(tables.ALL)
for statement in tables.SEARCH_SQL:
    database.execute_sql(statement)
close_database()
"""


def make(script: str, path: Path) -> apsw.Connection:
    """Run a script that makes a database, and open what it made."""
    subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=True, timeout=60)
    return apsw.Connection(str(path))


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    """A database made by the migrations."""
    connection = make(MIGRATED, tmp_path_factory.mktemp("migrated") / "campanero.db")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    """A database made from the tables as Python describes them."""
    connection = make(DESCRIBED, tmp_path_factory.mktemp("described") / "campanero.db")
    yield connection
    connection.close()


def ask(here: apsw.Connection, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement."""
    return here.execute(sql).fetchall()


def tables(here: apsw.Connection) -> dict[str, tuple[Any, ...]]:
    """Return every table with its kind, number of columns, WITHOUT ROWID and STRICT."""
    return {row[1]: row[2:] for row in ask(here, "PRAGMA table_list") if row[0] == "main"}


def columns(here: apsw.Connection, table: str) -> dict[str, tuple[Any, ...]]:
    """Return a table's columns: type, NOT NULL, default, place in the primary key, hidden."""
    return {row[1]: (row[2].upper(), *row[3:]) for row in ask(here, f'PRAGMA table_xinfo("{table}")')}


def indexes(here: apsw.Connection, table: str) -> dict[str, Any]:
    """Return a table's indexes: unique, origin, partial, columns with their order, the condition of partial ones."""
    found = {}
    for _, name, unique, origin, partial in ask(here, f'PRAGMA index_list("{table}")'):
        parts = tuple((row[2], row[3], row[4], row[5]) for row in ask(here, f'PRAGMA index_xinfo("{name}")'))
        condition = None
        if partial:
            sql = ask(here, f"SELECT sql FROM sqlite_master WHERE name = '{name}'")[0][0]
            condition = " ".join(re.split(r"(?i)\bwhere\b", sql)[1].split())
        found[name] = (unique, origin, partial, parts, condition)
    return found


def foreign_keys(here: apsw.Connection, table: str) -> set[tuple[Any, ...]]:
    """Return a table's foreign keys: column, target, and what a delete does."""
    return {row[2:] for row in ask(here, f'PRAGMA foreign_key_list("{table}")')}


def test_the_same_tables(migrated: apsw.Connection, described: apsw.Connection) -> None:
    """Both databases have the same tables of the same kind."""
    assert tables(migrated) == tables(described)
    assert len(tables(migrated)) > 30


@pytest.mark.parametrize("aspect", [columns, indexes, foreign_keys])
def test_the_same_in_every_table(aspect: Any, migrated: apsw.Connection, described: apsw.Connection) -> None:
    """Columns with type, nullability and default, indexes and foreign keys agree in every table."""
    for table in tables(described):
        assert aspect(migrated, table) == aspect(described, table), table


def test_ids_are_never_reused(migrated: apsw.Connection, described: apsw.Connection) -> None:
    """The same tables count their ids up for ever (AUTOINCREMENT), and the search index is the same."""
    found = []
    for here in (migrated, described):
        made = ask(here, "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        search = next(" ".join(sql.split()) for name, sql in made if name == "contact_search")
        rules = ask(here, "SELECT k, v FROM contact_search_config ORDER BY k")
        found.append((sorted(name for name, sql in made if "AUTOINCREMENT" in sql.upper()), search, rules))
    assert found[0] == found[1]
    assert {"contact", "message", "campaign", "event"} <= set(found[0][0])
    # Without it a change of one person's name may merge the words of all (half a second for 100,000)
    assert ("deletemerge", 0) in found[0][2]


def test_every_foreign_key_is_indexed(migrated: apsw.Connection) -> None:
    """Deleting a row never reads a whole table: columns whose target may be deleted begin an index."""
    slow = []
    for table in tables(migrated):
        first = {found[3][0][0] for found in indexes(migrated, table).values() if found[3]}
        for target, column, *_, on_delete, _match in foreign_keys(migrated, table):
            if on_delete != "NO ACTION" and column not in first:
                slow.append(f"{table}.{column} -> {target}")
    # No door deletes people who sign in
    assert slow == ["template_revision.user_id -> user"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """A file that this process's database points at."""
    path = tmp_path / "campanero.db"
    open_database(path)
    yield path
    close_database()


def test_migrating_twice_changes_nothing(database: Path) -> None:
    """The first migration takes every step, the second none, and not a byte of the schema differs."""
    assert migrate() == len(MIGRATIONS)
    with apsw.Connection(str(database)) as here:
        before = ask(here, "SELECT * FROM sqlite_master") + ask(here, "PRAGMA schema_version")
    assert migrate() == 0
    with apsw.Connection(str(database)) as here:
        assert ask(here, "SELECT * FROM sqlite_master") + ask(here, "PRAGMA schema_version") == before


def test_a_newer_database_is_refused(database: Path) -> None:
    """A database of a newer program is refused and left as it is (P12)."""
    newer = len(MIGRATIONS) + 1
    with apsw.Connection(str(database)) as here:
        here.execute(f"PRAGMA user_version = {newer}")
    with pytest.raises(SchemaTooNew, match=f"schema {newer}"):
        migrate()
    with apsw.Connection(str(database)) as here:
        assert ask(here, "PRAGMA user_version") == [(newer,)]
        assert ask(here, "SELECT count(*) FROM sqlite_master") == [(0,)]


def test_a_step_that_fails_leaves_the_old_schema(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that breaks half-way leaves schema and number as they were, and the next try begins there."""

    def broken(here: Any) -> None:
        here.execute("CREATE TABLE half (id INTEGER)")
        raise RuntimeError("power cut")

    migrate()
    monkeypatch.setattr("appliance.storage.migrations.MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(RuntimeError, match="power cut"):
        migrate()
    with apsw.Connection(str(database)) as here:
        assert ask(here, "PRAGMA user_version") == [(len(MIGRATIONS),)]
        assert ask(here, "SELECT name FROM sqlite_master WHERE name = 'half'") == []


@pytest.mark.parametrize("version", ["3.51.2", "3.50.99", "3.9.0", "2.99.99"])
def test_an_old_sqlite_is_refused(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the floor nothing is opened or made: such a library can lose committed work."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    with pytest.raises(SqliteTooOld, match=re.escape(version)):
        open_database(tmp_path / "campanero.db")
    assert not (tmp_path / "campanero.db").exists()


@pytest.mark.parametrize("version", [".".join(map(str, MIN_SQLITE_VERSION)), "3.51.10", "3.100.0", "4.0.0"])
def test_the_floor_and_above_are_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The floor itself and everything newer is taken, compared by number and not by letter."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    check_version()


def test_the_file_is_private_and_durable(database: Path) -> None:
    """The database file is its owner's alone, and every connection syncs each commit and checks foreign keys."""
    migrate()
    assert database.stat().st_mode & 0o777 == 0o600
    found = {name: opening.scalar(f"PRAGMA {name}") for name in ("journal_mode", "synchronous", "foreign_keys")}
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
