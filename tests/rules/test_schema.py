"""Migrations create the schema of the models, and unsuitable databases are rejected."""

import contextlib
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

# Each runs in its own process, because the database object is global
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


def create_database(script: str, path: Path) -> apsw.Connection:
    """Run a script that creates a database, and open the database."""
    subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=True, timeout=60)
    return apsw.Connection(str(path))


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    """Yield a database created by the migrations."""
    connection = create_database(MIGRATED, tmp_path_factory.mktemp("migrated") / "campanero.db")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    """Yield a database created from the models."""
    connection = create_database(DESCRIBED, tmp_path_factory.mktemp("described") / "campanero.db")
    yield connection
    connection.close()


def select_all(database: apsw.Connection, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return database.execute(sql).fetchall()


def tables(database: apsw.Connection) -> dict[str, tuple[Any, ...]]:
    """Return every table with its kind, number of columns, WITHOUT ROWID and STRICT."""
    return {row[1]: row[2:] for row in select_all(database, "PRAGMA table_list") if row[0] == "main"}


def columns(database: apsw.Connection, table: str) -> dict[str, tuple[Any, ...]]:
    """Return a table's columns: type, NOT NULL, default, place in the primary key, hidden."""
    return {row[1]: (row[2].upper(), *row[3:]) for row in select_all(database, f'PRAGMA table_xinfo("{table}")')}


def indexes(database: apsw.Connection, table: str) -> dict[str, Any]:
    """Return a table's indexes: unique, origin, partial, columns with order, and the condition."""
    results = {}
    for _, name, unique, origin, partial in select_all(database, f'PRAGMA index_list("{table}")'):
        parts = tuple((row[2], row[3], row[4], row[5]) for row in select_all(database, f'PRAGMA index_xinfo("{name}")'))
        condition = None
        if partial:
            sql = select_all(database, f"SELECT sql FROM sqlite_master WHERE name = '{name}'")[0][0]
            condition = " ".join(re.split(r"(?i)\bwhere\b", sql)[1].split())
        results[name] = (unique, origin, partial, parts, condition)
    return results


def foreign_keys(database: apsw.Connection, table: str) -> set[tuple[Any, ...]]:
    """Return a table's foreign keys: target, columns, and actions."""
    return {row[2:] for row in select_all(database, f'PRAGMA foreign_key_list("{table}")')}


def test_migrations_create_the_tables_of_the_models(migrated: apsw.Connection, described: apsw.Connection) -> None:
    """Both databases have the same tables of the same kind."""
    assert tables(migrated) == tables(described)
    assert len(tables(migrated)) > 30


@pytest.mark.parametrize("aspect", [columns, indexes, foreign_keys])
def test_migrations_create_the_columns_of_the_models(
    aspect: Any, migrated: apsw.Connection, described: apsw.Connection
) -> None:
    """Columns, indexes and foreign keys agree in every table."""
    for table in tables(described):
        assert aspect(migrated, table) == aspect(described, table), table


def test_ids_are_never_reused(migrated: apsw.Connection, described: apsw.Connection) -> None:
    """The same tables use AUTOINCREMENT, and the search index is the same."""
    results = []
    for database in (migrated, described):
        created = select_all(
            database, "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        search = next(" ".join(sql.split()) for name, sql in created if name == "contact_search")
        rules = select_all(database, "SELECT k, v FROM contact_search_config ORDER BY k")
        results.append((sorted(name for name, sql in created if "AUTOINCREMENT" in sql.upper()), search, rules))
    assert results[0] == results[1]
    assert {"contact", "message", "campaign", "event"} <= set(results[0][0])
    # Without it a change of one name may merge the whole search index (half a second for 100,000 contacts)
    assert ("deletemerge", 0) in results[0][2]


def test_every_foreign_key_is_indexed(migrated: apsw.Connection) -> None:
    """Columns whose target can be deleted have an index, so that no deletion scans a table."""
    slow = []
    for table in tables(migrated):
        first = {index[3][0][0] for index in indexes(migrated, table).values() if index[3]}
        for target, column, *_, on_delete, _match in foreign_keys(migrated, table):
            if on_delete != "NO ACTION" and column not in first:
                slow.append(f"{table}.{column} -> {target}")
    # Users are never deleted
    assert slow == ["template_revision.user_id -> user"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """Yield the path of a file that is opened as this process's database."""
    path = tmp_path / "campanero.db"
    open_database(path)
    yield path
    close_database()


def test_migrating_twice_changes_nothing(database: Path) -> None:
    """The first run applies all migrations, the second none, and the schema stays the same."""
    assert migrate() == len(MIGRATIONS)
    with apsw.Connection(str(database)) as connection:
        before = select_all(connection, "SELECT * FROM sqlite_master") + select_all(connection, "PRAGMA schema_version")
    assert migrate() == 0
    with apsw.Connection(str(database)) as connection:
        assert (
            select_all(connection, "SELECT * FROM sqlite_master") + select_all(connection, "PRAGMA schema_version")
            == before
        )


def test_a_newer_database_is_rejected(database: Path) -> None:
    """A database of a newer version is rejected and unchanged (P12)."""
    newer = len(MIGRATIONS) + 1
    with apsw.Connection(str(database)) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    with pytest.raises(SchemaTooNew, match=f"schema {newer}"):
        migrate()
    with apsw.Connection(str(database)) as connection:
        assert select_all(connection, "PRAGMA user_version") == [(newer,)]
        assert select_all(connection, "SELECT count(*) FROM sqlite_master") == [(0,)]


def test_a_failed_migration_changes_nothing(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that fails half-way leaves schema and version as they were."""

    def broken(database: Any) -> None:
        database.execute("CREATE TABLE half (id INTEGER)")
        raise RuntimeError("power cut")

    migrate()
    monkeypatch.setattr("appliance.storage.migrations.MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(RuntimeError, match="power cut"):
        migrate()
    with apsw.Connection(str(database)) as connection:
        assert select_all(connection, "PRAGMA user_version") == [(len(MIGRATIONS),)]
        assert select_all(connection, "SELECT name FROM sqlite_master WHERE name = 'half'") == []


@pytest.mark.parametrize("version", ["3.51.2", "3.50.99", "3.9.0", "2.99.99"])
def test_an_old_sqlite_is_rejected(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the minimum version no database is opened or created, because it can lose commits."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    with pytest.raises(SqliteTooOld, match=re.escape(version)):
        open_database(tmp_path / "campanero.db")
    assert not (tmp_path / "campanero.db").exists()


@pytest.mark.parametrize("version", [".".join(map(str, MIN_SQLITE_VERSION)), "3.51.10", "3.100.0", "4.0.0"])
def test_new_sqlite_versions_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The minimum and newer versions are accepted, compared as numbers."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    check_version()


def test_database_file_mode_and_pragmas(database: Path) -> None:
    """Only the owner can read the file, and connections sync each commit and check foreign keys."""
    migrate()
    assert database.stat().st_mode & 0o777 == 0o600
    results = {name: opening.scalar(f"PRAGMA {name}") for name in ("journal_mode", "synchronous", "foreign_keys")}
    assert results == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_a_database_with_columns_for_two_branches_is_migrated(tmp_path: Path) -> None:
    """The first steps of Yes and No are kept by their keys, also those of empty branches."""
    path = tmp_path / "campanero.db"
    with contextlib.closing(create_database(MIGRATED, path)) as connection:
        connection.execute(
            "ALTER TABLE step ADD COLUMN yes_action INTEGER; ALTER TABLE step ADD COLUMN no_action INTEGER; "
            "ALTER TABLE step DROP COLUMN branches; DROP INDEX message_run_step; "
            "ALTER TABLE message DROP COLUMN round; "
            "CREATE UNIQUE INDEX message_run_step ON message (run_id, step_id) WHERE run_id NOT NULL; "
            "PRAGMA foreign_keys = 0; PRAGMA user_version = 6"
        )
        connection.executemany(
            "INSERT INTO step (flow_id, version, action_id, kind, data, yes_action, no_action, position) "
            "VALUES (1, 1, ?, ?, ?, ?, ?, ?)",
            [(1, "split", "{}", 2, None, 0), (2, "wait", "{}", None, None, 1),
             (3, "wait_until", '{"until":"time"}', None, None, 2), (4, "wait_until", '{"until":"date"}', 5, 6, 3)],
        )  # fmt: skip
    with contextlib.closing(create_database(MIGRATED, path)) as connection:
        assert select_all(connection, "SELECT action_id, branches FROM step ORDER BY position") == [
            (1, '{"yes":2,"no":null}'), (2, "{}"), (3, "{}"), (4, '{"yes":5,"no":6}'),
        ]  # fmt: skip
        assert "yes_action" not in columns(connection, "step")
        assert columns(connection, "message")["round"] == ("INTEGER", 1, "0", 0, 0)
        assert len(indexes(connection, "message")["message_run_step"][3]) > 3


# The tables of before `team_member`: a user belonged to one account.
_OLD_USERS = """
PRAGMA foreign_keys = 0;
DROP TABLE team_member; DROP TABLE user; DROP TABLE session;
CREATE TABLE "user" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "account_id" INTEGER NOT NULL,
    "email" TEXT NOT NULL, "name" TEXT NOT NULL, "role" TEXT NOT NULL, "password_hash" TEXT NOT NULL,
    "otp_secret" TEXT, "otp_step" INTEGER, "otp_codes" TEXT NOT NULL, "theme" TEXT NOT NULL,
    "preferences" TEXT NOT NULL, "disabled_at" INTEGER, "last_login_at" INTEGER, "created_at" INTEGER NOT NULL,
    "updated_at" INTEGER NOT NULL, FOREIGN KEY ("account_id") REFERENCES "account" ("id"));
CREATE INDEX "user_account_id" ON "user" ("account_id");
CREATE UNIQUE INDEX "user_email" ON "user" ("email");
CREATE TABLE "session" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "token_hash" TEXT NOT NULL,
    "kind" TEXT NOT NULL, "user_id" INTEGER NOT NULL, "ip" TEXT, "user_agent" TEXT, "created_at" INTEGER NOT NULL,
    "last_seen_at" INTEGER NOT NULL, "expires_at" INTEGER NOT NULL,
    FOREIGN KEY ("user_id") REFERENCES "user" ("id") ON DELETE CASCADE);
CREATE UNIQUE INDEX "session_token_hash" ON "session" ("token_hash");
CREATE INDEX "session_user_id" ON "session" ("user_id");
CREATE INDEX "session_expires_at" ON "session" ("expires_at");
DROP TABLE app_code;
CREATE TABLE "app_code" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "user_id" INTEGER NOT NULL);
INSERT INTO account (id, name, time_zone, locale, test_email_recipients, approval_required, approval_by_another,
    block_on_missing_variable, transactional_allowed, sending_stopped, sms_opt_out_hints, privacy_ip, created_at,
    updated_at, password_sign_in)
    VALUES (1, 'One', 'UTC', 'en', '[]', 0, 0, 0, 1, 0, '{}', 'full', 1, 1, 1),
    (7, 'Seven', 'UTC', 'en', '[]', 0, 0, 0, 1, 0, '{}', 'full', 1, 1, 1);
INSERT INTO user VALUES (1, 1, 'a@example.org', 'A', 'owner', 'x', NULL, NULL, '[]', '', '{}', NULL, NULL, 5, 6),
    (2, 7, 'b@example.org', 'B', 'viewer', 'x', NULL, NULL, '[]', '', '{}', 9, NULL, 7, 8);
INSERT INTO session VALUES (1, 't', 'browser', 2, NULL, NULL, 1, 1, 1);
"""


def test_users_of_one_account_become_members_of_it(tmp_path: Path, migrated: apsw.Connection) -> None:
    """Role, access and times of each user are kept, and a session has the account of its user open."""
    path = tmp_path / "campanero.db"
    number = [migration.__name__ for migration in MIGRATIONS].index("_team_members")
    with contextlib.closing(create_database(MIGRATED, path)) as connection:
        connection.execute(f"{_OLD_USERS} PRAGMA user_version = {number}")
    with contextlib.closing(create_database(MIGRATED, path)) as connection:
        assert select_all(
            connection, "SELECT user_id, account_id, role, disabled_at, created_at, updated_at FROM team_member"
        ) == [(1, 1, "owner", None, 5, 6), (2, 7, "viewer", 9, 7, 8)]
        assert select_all(connection, "SELECT id, last_account_id FROM user") == [(1, 1), (2, 7)]
        assert select_all(connection, "SELECT id, account_id FROM session") == [(1, 7)]
        for table in ("user", "session", "team_member"):
            assert columns(connection, table) == columns(migrated, table)
            assert indexes(connection, table) == indexes(migrated, table)
