"""Looks at a database file before it is used: whether it is one of Campanero, whole enough to open, and whose it is."""

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw

from appliance.core import clock, data_dir, tokens
from appliance.storage import work
from appliance.storage.open import connection, run, scalar
from appliance.storage.work import writing

# "CAMP": the header of every database of ours says it
APPLICATION_ID = 0x43414D50
# Those made before the header said so have at least these tables
_OLDEST_TABLES = {"account", "contact", "message"}
_RESTORE = "restore a backup (campanero restore FILE --force)"
_BUSY_MS = 10_000
# A log that a kill left is held against the whole database up to this size, which takes half a second
_MAX_CHECKED_BYTES = 100_000_000


class Unusable(Exception):
    """The database file cannot be used, and why: one line that says what to do."""


class Identity(NamedTuple):
    """What a database says of itself."""

    schema: int  # migrations it has had; 0: it is empty
    key_fingerprint: str | None  # of the key that belongs to it, once one was used with it
    has_accounts: bool


NEW = Identity(0, None, False)


def is_empty(path: Path) -> bool:
    """Return whether there is no database at a path, or one of no bytes, which SQLite takes for a new one."""
    try:
        return path.stat().st_size == 0 and not data_dir.other_kind(path)
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:
        return False  # `inspect` says why


def inspect(path: Path, advice: str = _RESTORE) -> Identity:
    """Return what a database says of itself, and change nothing; raises Unusable where it is none of ours."""
    try:
        if kind := data_dir.other_kind(path):
            raise Unusable(f"{path} is {kind}, not a database: move it away, then {advice}")
    except OSError as error:
        raise Unusable(f"{path} cannot be opened ({error.strerror}): {advice}") from None
    try:
        here = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            here.set_busy_timeout(_BUSY_MS)
            # A log that may belong to another database must not be written into this one by looking at it
            here.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            found = _identity(here, path, advice)
            if _has_log(path) and path.stat().st_size <= _MAX_CHECKED_BYTES:
                _check_log(here)
            return found
        finally:
            here.close()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        words = f", or {path.name}-wal beside it belongs to another database" if _has_log(path) else ""
        raise Unusable(f"{path} is damaged{words} ({error}): {advice}") from error
    except apsw.Error as error:
        raise Unusable(f"{path} cannot be read ({error})") from error


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _check_log(here: apsw.Connection) -> None:
    """Raise CorruptError where what a log says does not fit its database: one that was put there by hand, perhaps."""
    faults = here.execute("PRAGMA quick_check(1)").fetchall()
    if faults != [("ok",)]:
        raise apsw.CorruptError(str(faults[0][0]))


def _identity(here: apsw.Connection, path: Path, advice: str) -> Identity:
    tables = {name for (name,) in here.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    application = here.execute("PRAGMA application_id").get
    schema = int(here.execute("PRAGMA user_version").get)
    if not tables and application in (0, APPLICATION_ID) and schema == 0:
        return NEW
    if application != APPLICATION_ID and (application or not tables >= _OLDEST_TABLES or schema <= 0):
        raise Unusable(f"{path} is the database of another program: move it away, then {advice}")
    fingerprint = None
    if "installation" in tables:
        fingerprint = here.execute("SELECT key_fingerprint FROM installation").get
    has_accounts = bool(here.execute("SELECT EXISTS (SELECT 1 FROM account)").get)
    return Identity(schema, fingerprint, has_accounts)


# Binds a database to the key file that it was first used with.


def check_key(directory: Path, found: Identity) -> None:
    """Load the key and hold it against what was stored with the database; raises WrongKey."""
    tokens.load_key(directory)
    if found.key_fingerprint is not None:
        tokens.check_key(found.key_fingerprint, directory / tokens.FILE)


def bind_key() -> str:
    """Store the fingerprint of the key that is loaded with the open database; return the one that is stored then."""
    work.write(_bind)
    return str(scalar("SELECT key_fingerprint FROM installation"))


def _bind() -> None:
    writing()
    run(
        "INSERT INTO installation (id, key_fingerprint, created_at) VALUES (1, ?, ?) ON CONFLICT DO NOTHING",
        (tokens.fingerprint(), clock.now_ms()),
    )


# A database file beside the one of this connection: a finished one, never written to, or one in the making.


def attach_file(path: Path, name: str) -> None:
    """Put a file beside the database of this connection under a name; outside of a transaction."""
    detach_file(name)
    # Nobody writes to it any more, and a file that cannot be written to takes no part in transactions
    connection().execute(f"ATTACH ? AS {name}", (f"file:{quote(str(path))}?immutable=1",)).fetchall()


def make_file(path: Path, name: str) -> None:
    """Put an empty file, which this connection fills, beside its database: half-written it is worth nothing."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection().execute(f"ATTACH ? AS {name}", (str(path),)).fetchall()
    connection().execute(f"PRAGMA {name}.journal_mode = off; PRAGMA {name}.synchronous = off").fetchall()


def detach_file(name: str) -> None:
    """Take it away again, if it is there."""
    if scalar("SELECT 1 FROM pragma_database_list WHERE name = ?", (name,)):
        connection().execute(f"DETACH {name}").fetchall()
