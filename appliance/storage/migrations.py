"""The ordered list of schema changes (migrations), and the opening of an installation with its key.

The database stores the number of applied migrations (`PRAGMA user_version`). Each migration runs in one transaction
together with the change of that number, so that a kill at any moment leaves the old or the new schema. Until 0.1.0 is
released, the first migration creates the tables from the models; at the release it is replaced by fixed SQL, which is
never edited again. To change a table after that, change its model in `models/` and append a function to `MIGRATIONS`;
`tests/rules/test_schema.py` compares the result with the models.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from appliance.core import clock, crypto, data_dir
from appliance.storage import journal, models, transactions
from appliance.storage.database import check_version, connection, database, list_columns, open_database, run, scalar
from appliance.storage.transactions import require_write_transaction

# "CAMP" in ASCII: the application id in the header of every Campanero database.
APPLICATION_ID = 0x43414D50
# Databases that were created before the application id was introduced have at least these tables.
_OLDEST_TABLES = {"account", "contact", "message"}
_DATABASE = "campanero.db"
_RESTORE = "restore a backup (campanero restore FILE --force)"
_BUSY_MS = 10_000
# If a kill left a write-ahead log, databases of up to this size are checked completely, which takes half a second.
_MAX_CHECKED_BYTES = 100_000_000
_INDEX_TRIGGER = re.compile(r"contact_data_[0-9a-f]{16}_(added|changed|gone)")


class UnusableDatabase(Exception):
    """The database file cannot be used; the message is one line with the reason and the remedy."""


class Identity(NamedTuple):
    """The properties of a database file that decide how the program may use it."""

    schema: int  # the number of applied migrations; 0 for an empty database
    key_fingerprint: str | None  # the fingerprint of the key that it belongs to; None before `bind_key`
    has_accounts: bool


NEW_DATABASE = Identity(0, None, False)


def is_missing_or_empty(path: Path) -> bool:
    """Return whether a path has no file or an empty file, which SQLite treats as a new database.

    Returns False for a broken link, and if the path cannot be examined.
    """
    try:
        return path.stat().st_size == 0 and not data_dir.irregular_kind(path)
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:
        return False  # `inspect_database` reports the reason.


def inspect_database(path: Path, advice: str = _RESTORE) -> Identity:
    """Return the identity of a database without changing it; `advice` is the remedy that errors name.

    Raises UnusableDatabase if the file cannot be read, is damaged, or belongs to another program.
    """
    try:
        if kind := data_dir.irregular_kind(path):
            raise UnusableDatabase(f"{path} is {kind}, not a database: move it away, then {advice}")
    except OSError as error:
        raise UnusableDatabase(f"{path} cannot be opened ({error.strerror}): {advice}") from None
    try:
        handle = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            handle.set_busy_timeout(_BUSY_MS)
            # The write-ahead log may belong to another database, so closing must not copy it into this one.
            handle.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            identity = _identity(handle, path, advice)
            if _has_log(path) and path.stat().st_size <= _MAX_CHECKED_BYTES:
                _check_log(handle)
            return identity
        finally:
            handle.close()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        suspicion = f", or {path.name}-wal beside it belongs to another database" if _has_log(path) else ""
        raise UnusableDatabase(f"{path} is damaged{suspicion} ({error}): {advice}") from error
    except apsw.Error as error:
        raise UnusableDatabase(f"{path} cannot be read ({error})") from error


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _check_log(handle: apsw.Connection) -> None:
    """Raise CorruptError if the database and its log do not fit together, for example because only one was copied."""
    faults = handle.execute("PRAGMA quick_check(1)").fetchall()
    if faults != [("ok",)]:
        raise apsw.CorruptError(str(faults[0][0]))


def _identity(handle: apsw.Connection, path: Path, advice: str) -> Identity:
    tables = {name for (name,) in handle.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    application = handle.execute("PRAGMA application_id").get
    schema = int(handle.execute("PRAGMA user_version").get)
    if not tables and application in (0, APPLICATION_ID) and schema == 0:
        return NEW_DATABASE
    if application != APPLICATION_ID and (application or not tables >= _OLDEST_TABLES or schema <= 0):
        raise UnusableDatabase(f"{path} is the database of another program: move it away, then {advice}")
    fingerprint = None
    if "installation" in tables:
        fingerprint = handle.execute("SELECT key_fingerprint FROM installation").get
    has_accounts = bool(handle.execute("SELECT EXISTS (SELECT 1 FROM account)").get)
    return Identity(schema, fingerprint, has_accounts)


def check_key(directory: Path, identity: Identity) -> None:
    """Load the key of the data directory. Raises WrongKey if that fails, or if the database has another key."""
    crypto.load_key(directory)
    if identity.key_fingerprint is not None:
        crypto.check_key(identity.key_fingerprint, directory / crypto.KEY_FILE)


def bind_key() -> str:
    """Store the fingerprint of the loaded key in the open database, and return the stored fingerprint.

    A fingerprint that the database already has stays.
    """
    transactions.write(_bind)
    return str(scalar("SELECT key_fingerprint FROM installation"))


def _bind() -> None:
    require_write_transaction()
    run(
        "INSERT INTO installation (id, key_fingerprint, created_at) VALUES (1, ?, ?) ON CONFLICT DO NOTHING",
        (crypto.key_fingerprint(), clock.now_ms()),
    )


class SchemaTooNew(Exception):
    """The database was written by a newer version of the program."""


def _create_first_schema(handle: Any) -> None:
    later_models = (models.Restoration, models.Installation, models.SendLog)
    database.create_tables([model for model in models.ALL if model not in later_models], safe=False)
    for statement in models.SEARCH_SQL:
        handle.execute(statement)


def _restorations(handle: Any) -> None:
    handle.execute(
        "CREATE TABLE restoration (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, taken_at INTEGER NOT NULL, "
        "restored_at INTEGER NOT NULL, taken_by TEXT NOT NULL, restored_by TEXT NOT NULL, replayed TEXT NOT NULL, "
        "paused TEXT NOT NULL)"
    )


def _installation(handle: Any) -> None:
    handle.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    handle.execute(
        "CREATE TABLE installation (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, key_fingerprint TEXT NOT NULL, "
        "created_at INTEGER NOT NULL)"
    )


def _send_log(handle: Any) -> None:
    handle.execute(
        "CREATE TABLE send_log (message_id INTEGER NOT NULL PRIMARY KEY, batch INTEGER, process TEXT, "
        "first_attempt_at INTEGER, body_hash INTEGER, sent_at INTEGER, subject TEXT, sender TEXT, "
        "internet_message_id TEXT)"
    )


def _send_log_provider(handle: Any) -> None:
    handle.execute("ALTER TABLE send_log ADD COLUMN provider TEXT")


def _contact_name_order(handle: Any) -> None:
    """Sort names without regard to accents: an older database has an index by the code points."""
    handle.execute("DROP INDEX contact_name_order")
    handle.execute(models.CONTACT_NAME_INDEX)


def _experiments(handle: Any) -> None:
    """Add the tests of campaigns: an older database has neither their tables nor their columns."""
    if database.table_exists("experiment"):
        return
    database.create_tables([models.Experiment, models.Variant], safe=False)
    for column in ("variant", "variant_batch"):
        handle.execute(f"ALTER TABLE message ADD COLUMN {column} INTEGER")
    handle.execute("ALTER TABLE account ADD COLUMN control_share REAL")
    handle.execute("ALTER TABLE account ADD COLUMN control_seed INTEGER")
    for statement in models.VARIANT_INDEXES:
        handle.execute(statement)


def _step_branches(handle: Any) -> None:
    """Store the branches of a step by their keys: an older database has two columns, for Yes and No."""
    columns = {row[1] for row in handle.execute("PRAGMA table_info(step)").fetchall()}
    if "branches" in columns:
        return
    handle.execute("ALTER TABLE step ADD COLUMN branches TEXT NOT NULL DEFAULT '{}'")
    handle.execute(
        "UPDATE step SET branches = json_object('yes', yes_action, 'no', no_action) WHERE kind = 'split' "
        "OR (kind = 'wait_until' AND json_extract(data, '$.until') <> 'time')"
    )
    handle.execute("ALTER TABLE step DROP COLUMN yes_action")
    handle.execute("ALTER TABLE step DROP COLUMN no_action")


def _message_rounds(handle: Any) -> None:
    """Allow a run that comes to a step again another message: an older database allows one for each step."""
    columns = {row[1] for row in handle.execute("PRAGMA table_info(message)").fetchall()}
    if "round" in columns:
        return
    handle.execute("ALTER TABLE message ADD COLUMN round INTEGER NOT NULL DEFAULT 0")
    handle.execute("DROP INDEX message_run_step")
    handle.execute("CREATE UNIQUE INDEX message_run_step ON message (run_id, step_id, round) WHERE run_id NOT NULL")


def _flow_pause_reason(handle: Any) -> None:
    """Add the reason of a pause of a flow, and the last waiting run that was checked for events of the pause."""
    columns = {row[1] for row in handle.execute("PRAGMA table_info(flow)").fetchall()}
    for column in ("pause_reason", "waits_checked"):
        if column not in columns:
            handle.execute(f"ALTER TABLE flow ADD COLUMN {column} TEXT")


def _entry_places(handle: Any) -> None:
    columns = {row[1] for row in handle.execute("PRAGMA table_info(trigger)").fetchall()}
    if "entry_places" not in columns:
        handle.execute("ALTER TABLE trigger ADD COLUMN entry_places TEXT")


def _send_times(handle: Any) -> None:
    """Add the local times of campaigns: an older database has neither their table nor their columns."""
    if database.table_exists("send_time"):
        return
    database.create_tables([models.SendTime], safe=False)
    handle.execute("ALTER TABLE campaign ADD COLUMN local_time TEXT")
    handle.execute("ALTER TABLE message ADD COLUMN send_time_id INTEGER")


def _flow_requests(handle: Any) -> None:
    """Add the requests of flows: an older database has no such table."""
    if not database.table_exists("flow_request"):
        database.create_tables([models.FlowRequest], safe=False)


def _flow_replays(handle: Any) -> None:
    """Add the replays of flows: an older database has no table for them."""
    if not database.table_exists("flow_replay"):
        database.create_tables([models.FlowReplay], safe=False)


def _utm(handle: Any) -> None:
    for table in ("account", "campaign"):
        columns = {row[1] for row in handle.execute(f"PRAGMA table_info({table})").fetchall()}
        if "utm" not in columns:
            handle.execute(f"ALTER TABLE {table} ADD COLUMN utm TEXT")


def _split_tests(handle: Any) -> None:
    """Add the tests of flows: an older database has no such table."""
    if not database.table_exists("split_test"):
        database.create_tables([models.SplitTest], safe=False)


def _flow_holdouts(handle: Any) -> None:
    columns = {row[1] for row in handle.execute("PRAGMA table_info(trigger)").fetchall()}
    if "held_since" not in columns:
        handle.execute("ALTER TABLE trigger ADD COLUMN held_since INTEGER")


def _marketing_calendar(handle: Any) -> None:
    columns = {row[1] for row in handle.execute("PRAGMA table_info(account)").fetchall()}
    if "marketing_calendar" not in columns:
        handle.execute("ALTER TABLE account ADD COLUMN marketing_calendar TEXT")


def _series(handle: Any) -> None:
    if not database.table_exists("series"):
        database.create_tables([models.Series, models.Occurrence], safe=False)


def _agents(handle: Any) -> None:
    """Add agents and their proposals: an older database has neither the columns nor the table."""
    flag = "agent INTEGER NOT NULL DEFAULT 0"
    for table, column in (("api_key", flag), ("template", flag), ("account", "agents_stopped_at INTEGER")):
        if column.partition(" ")[0] not in {row[1] for row in handle.execute(f"PRAGMA table_info({table})").fetchall()}:
            handle.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    if not database.table_exists("proposal"):
        database.create_tables([models.Proposal], safe=False)


def _connected_apps(handle: Any) -> None:
    """Add the tables of connected apps (OAuth 2.1): an older database has none of them."""
    if not database.table_exists("app_grant"):
        database.create_tables([models.AppClient, models.AppGrant, models.AppCode, models.AppToken], safe=False)


def _best_hours(handle: Any) -> None:
    """Add the best hours of contacts, and the hour to the times of campaigns that are sent by local time."""
    if not database.table_exists("click_hour"):
        database.create_tables([models.ClickHour], safe=False)
    columns = {row[1] for row in handle.execute("PRAGMA table_info(campaign)").fetchall()}
    if "best_hour_until" not in columns:
        handle.execute("ALTER TABLE campaign ADD COLUMN best_hour_until INTEGER")
    columns = {row[1] for row in handle.execute("PRAGMA table_info(send_time)").fetchall()}
    if "hour" not in columns:
        handle.execute("ALTER TABLE send_time ADD COLUMN hour INTEGER NOT NULL DEFAULT 0")
        handle.execute("DROP INDEX send_time_campaign_id_time_zone")
        handle.execute(
            "CREATE UNIQUE INDEX send_time_campaign_id_time_zone_hour ON send_time (campaign_id, time_zone, hour)"
        )
        # The local time of a campaign, such as `2026-12-01T09:00`, has the hour of its rows.
        handle.execute(
            "UPDATE send_time SET hour = coalesce((SELECT CAST(substr(c.local_time, 12, 2) AS INTEGER) "
            "FROM campaign c WHERE c.id = send_time.campaign_id), 0)"
        )


def _team_members(handle: Any) -> None:
    """Let a user belong to several accounts: role and access become those of a row of `team_member`."""
    if not database.table_exists("team_member"):
        database.create_tables([models.TeamMember], safe=False)
    if "account_id" not in {row[1] for row in handle.execute("PRAGMA table_info(user)").fetchall()}:
        return
    handle.execute(
        "INSERT INTO team_member (user_id, account_id, role, disabled_at, created_at, updated_at) "
        "SELECT id, account_id, role, disabled_at, created_at, updated_at FROM user ORDER BY id"
    )
    for table in ("session", "app_code"):
        if "account_id" in {row[1] for row in handle.execute(f"PRAGMA table_info({table})").fetchall()}:
            continue  # The migration that adds the table has created it from the present model.
        handle.execute(f"ALTER TABLE {table} ADD COLUMN account_id INTEGER REFERENCES account (id)")
        handle.execute(f"UPDATE {table} SET account_id = (SELECT account_id FROM user WHERE id = {table}.user_id)")
        handle.execute(f"CREATE INDEX {table}_account_id ON {table} (account_id)")
    handle.execute("DROP INDEX user_account_id")
    handle.execute("ALTER TABLE user RENAME COLUMN account_id TO last_account_id")
    handle.execute("CREATE INDEX user_last_account_id ON user (last_account_id)")
    handle.execute("ALTER TABLE user DROP COLUMN role")
    handle.execute("ALTER TABLE user DROP COLUMN disabled_at")


def _passkeys(handle: Any) -> None:
    """Add passkeys, and the devices of sessions: an older database has neither."""
    if not database.table_exists("passkey"):
        database.create_tables([models.Passkey, models.Device], safe=False)
    columns = {row[1] for row in handle.execute("PRAGMA table_info(user)").fetchall()}
    if "passkey_count" not in columns:
        handle.execute("ALTER TABLE user ADD COLUMN passkey_count INTEGER NOT NULL DEFAULT 0")
    columns = {row[1] for row in handle.execute("PRAGMA table_info(session)").fetchall()}
    if "device_id" not in columns:
        for column in ("last_ip TEXT", "method TEXT", "device_id INTEGER REFERENCES device (id) ON DELETE SET NULL"):
            handle.execute(f"ALTER TABLE session ADD COLUMN {column}")
        handle.execute("CREATE INDEX session_device_id ON session (device_id)")


def _sign_in_providers(handle: Any) -> None:
    """Add sign-in with OpenID Connect: an older database has neither the tables nor the columns."""
    columns = {row[1] for row in handle.execute("PRAGMA table_info(account)").fetchall()}
    if "password_sign_in" not in columns:
        handle.execute("ALTER TABLE account ADD COLUMN password_sign_in INTEGER NOT NULL DEFAULT 1")
    if not database.table_exists("identity"):
        database.create_tables([models.SignInProvider, models.Identity], safe=False)
    columns = {row[1] for row in handle.execute("PRAGMA table_info(session)").fetchall()}
    if "identity_id" not in columns:
        handle.execute("ALTER TABLE session ADD COLUMN identity_id INTEGER REFERENCES identity (id) ON DELETE CASCADE")
        handle.execute("CREATE INDEX session_identity_id ON session (identity_id)")


def restored_sends(handle: Any) -> None:
    """Add the messages that were sent after a restored backup: an older database has no such table.

    Databases of schema 10 and before may also lack the consents of mailboxes, which came without a migration.
    """
    for model in (models.RestoredSend, models.MailboxGrant):
        if not database.table_exists(model._meta.table_name):
            database.create_tables([model], safe=False)


def _copies(handle: Any) -> None:
    """Add the history of copies on other machines: an older database has no such table."""
    if not database.table_exists("copy_run"):
        database.create_tables([models.CopyRun], safe=False)


def _account_limits(handle: Any) -> None:
    """Add limits and closing to accounts."""
    columns = {row[1] for row in handle.execute("PRAGMA table_info(account)").fetchall()}
    for column in ("limits TEXT", "limit_notices TEXT", "closed_at INTEGER"):
        if column.partition(" ")[0] not in columns:
            handle.execute(f"ALTER TABLE account ADD COLUMN {column}")


def _roles(handle: Any) -> None:
    """Add the table of own roles: an older database has built-in roles only."""
    if not database.table_exists("role"):
        database.create_tables([models.Role], safe=False)


def _contact_zones(handle: Any) -> None:
    """Add the stored time zones of contacts, which a job fills, and the batches of tests in flows."""
    if not database.table_exists("contact_zone"):
        database.create_tables([models.TimeZone, models.ContactZone], safe=False)
    if "batches" not in {row[1] for row in handle.execute("PRAGMA table_info(split_test)").fetchall()}:
        handle.execute("ALTER TABLE split_test ADD COLUMN batches TEXT NOT NULL DEFAULT '[]'")


def _public_urls(handle: Any) -> None:
    """Add public addresses to accounts: in an older database, all accounts use the base URL of the installation."""
    if "public_url" not in {row[1] for row in handle.execute("PRAGMA table_info(account)").fetchall()}:
        handle.execute("ALTER TABLE account ADD COLUMN public_url TEXT")
    if not database.table_exists("account_host"):
        database.create_tables([models.AccountHost], safe=False)


def _attribution_days(handle: Any) -> None:
    """Add the attribution window of an account: before, it was always a week."""
    columns = {row[1] for row in handle.execute("PRAGMA table_info(account)").fetchall()}
    if "attribution_days" not in columns:
        handle.execute("ALTER TABLE account ADD COLUMN attribution_days INTEGER NOT NULL DEFAULT 7")


def _due_index(handle: Any) -> None:
    """Make the index of open messages of campaigns smaller: before, it also had the channel, and single messages."""
    if scalar("SELECT sql FROM sqlite_schema WHERE name = 'message_due'") != models.DUE_INDEX:
        handle.execute("DROP INDEX message_due")
        handle.execute(models.DUE_INDEX)


MIGRATIONS: tuple[Callable[[Any], None], ...] = (
    _create_first_schema, _restorations, _installation, _send_log, _send_log_provider,
    _contact_name_order, _experiments, _step_branches, _message_rounds, _flow_pause_reason, _entry_places,
    _send_times,
    _flow_requests,
    _flow_replays,
    _utm,
    _split_tests,
    _flow_holdouts,
    _marketing_calendar,
    _series,
    _agents,
    _connected_apps,
    _best_hours,
    _team_members,
    _passkeys,
    _sign_in_providers,
    restored_sends,
    _copies,
    _account_limits,
    _roles,
    _contact_zones,
    _public_urls,
    _attribution_days,
    _due_index,
)  # fmt: skip


def schema_version() -> int:
    """Return the number of migrations that were applied to the open database."""
    return int(scalar("PRAGMA user_version"))


def migrate() -> int:
    """Apply all missing migrations to the open database and return their number.

    Raises SchemaTooNew if a newer version of the program has written the database.
    """
    current, latest = schema_version(), len(MIGRATIONS)
    if current > latest:
        raise SchemaTooNew(f"the database has schema {current}, this program knows {latest}: use the newer program")
    handle = connection()
    for number in range(current, latest):
        handle.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have applied the migration while this one waited for the lock.
            if schema_version() == number:
                MIGRATIONS[number](handle)
                handle.execute(f"PRAGMA user_version = {number + 1}")
            handle.execute("COMMIT")
        except BaseException:
            if handle.in_transaction:
                handle.execute("ROLLBACK")
            raise
    return latest - current


# The first start stores the fingerprint of the key in the database. From then on the database opens only with this key:
# with another key, links in sent mail would be invalid and suppressed addresses would not be recognized.


def open_installation(directory: Path, upgrade: Callable[[], object]) -> None:
    """Open and migrate the database, and load its key. In an empty directory, create a new installation.

    `upgrade` migrates the open database of an existing installation, for example after a backup. Raises SqliteTooOld,
    UnusableDatabase, WrongKey, and the errors of `upgrade`.
    """
    check_version()
    path = directory / _DATABASE
    # The other files of an installation (its traces) are listed before the database is read: a first start in another
    # process creates the database first, so the opposite order could find its files without a database.
    traces = data_dir.list_traces(directory)
    identity = NEW_DATABASE if is_missing_or_empty(path) else inspect_database(path)
    is_new = identity.schema == 0
    if is_new and traces:
        state, verb = "is empty" if path.exists() else "is missing", "shows" if len(traces) == 1 else "show"
        raise UnusableDatabase(
            f"{path} {state}, but {', '.join(traces)} beside it {verb} that this is not a new installation: restore a "
            f"backup (campanero restore FILE{' --force' if path.exists() else ''}), or start in an empty "
            "directory (--data)"
        )
    # A first start that was killed may have left a database without a key fingerprint.
    is_unbound = identity.key_fingerprint is None and not identity.has_accounts
    try:
        check_key(directory, identity)
    except crypto.MissingKey:
        if not is_unbound:
            raise
    open_database(path)
    journal.open_journal(directory)
    if is_unbound:
        migrate()  # A new database needs no backup.
        crypto.create_key(directory)
    else:
        upgrade()
    if identity.key_fingerprint is None:
        crypto.check_key(bind_key(), directory / crypto.KEY_FILE)


def require_installation(directory: Path) -> None:
    """Raise UnusableDatabase if the directory contains no installation; only `serve` and `setup` create one."""
    if is_missing_or_empty(directory / _DATABASE) and not data_dir.list_traces(directory):
        raise UnusableDatabase(f"{directory} contains no installation: start with campanero serve, or use --data")


def find_foreign_objects(handle: Any, *, with_indexes: bool = False) -> list[str]:
    """Return the names of the triggers and views in the database of an apsw connection.

    A restored backup and a promoted copy come from places that others may write to. A trigger in them could change data
    later, and for example resume sending that was stopped.

    SQLite reads types in any case, so a trigger may have the type `TRIGGER`; only the exact types of tables and indexes
    are ours. With `with_indexes` the result lacks the triggers of indexes on custom data: `query_plan.drop_indexes`
    drops them.
    """
    names = handle.execute("SELECT name FROM sqlite_schema WHERE type IS NULL OR type NOT IN ('table', 'index')")
    return [str(name) for (name,) in names.fetchall() if not (with_indexes and _INDEX_TRIGGER.fullmatch(str(name)))]


def find_missing_columns() -> list[str]:
    """Return the columns of the current schema that the open database lacks, as `table.column`."""
    columns = list_columns(connection())
    return [
        f"{model._meta.table_name}.{column}"
        for model in models.ALL
        for column in model._meta.columns
        if column not in columns.get(model._meta.table_name, ())
    ]
