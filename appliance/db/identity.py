"""Looks at a database file before it is used: whether it is one of Campanero, whole enough to open, and whose it is."""

from pathlib import Path
from typing import NamedTuple

import apsw

from appliance import datadir

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
        return path.stat().st_size == 0 and not datadir.other_kind(path)
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:
        return False  # `inspect` says why


def inspect(path: Path, advice: str = _RESTORE) -> Identity:
    """Return what a database says of itself, and change nothing; raises Unusable where it is none of ours."""
    try:
        if kind := datadir.other_kind(path):
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
