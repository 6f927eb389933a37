"""Opens a data directory: its database, and the key that belongs to it.

The first time both meet, the key's fingerprint is stored with the database. From then on neither is used without the
other: another key answers 404 to every link in mail that was sent, and no longer knows who must not be written to.
"""

from collections.abc import Callable
from pathlib import Path

from appliance import tokens
from appliance.backups import files, placing, upgrading
from appliance.db import binding, identity, journal, migrations
from appliance.db.identity import Unusable
from appliance.db.open import check_version, open_database

DATABASE = "campanero.db"


def open_installation(directory: Path, tell: Callable[[str], None]) -> None:
    """Open the database with its schema and its key; a directory without data becomes a new installation.

    Raises identity.Unusable, tokens.WrongKey, or what `upgrading.upgrade` raises. `tell` hears what takes its time.
    """
    check_version()
    path = directory / DATABASE
    # Before the database is looked at: who makes an installation at this moment makes the database first
    traces = _traces(directory)
    found = identity.NEW if identity.is_empty(path) else identity.inspect(path)
    is_new = found.schema == 0
    if is_new and traces:
        state = "is empty" if path.exists() else "is missing"
        raise Unusable(
            f"{path} {state}, but {', '.join(traces)} beside it show that this is not a new installation: restore a "
            f"backup (campanero restore FILE{' --force' if path.exists() else ''}), or begin anew in an empty "
            "directory (--data)"
        )
    # A first start that was killed: no key was used with it yet
    is_unbound = found.key_fingerprint is None and not found.has_accounts
    try:
        binding.check_key(directory, found)
    except tokens.KeyMissing:
        if not is_unbound:
            raise
    open_database(path)
    journal.use(directory)
    if is_unbound:
        migrations.migrate()  # it holds nothing yet that a backup would keep
        tokens.create_key(directory)
    else:
        upgrading.upgrade(directory, tell)
    if found.key_fingerprint is None:
        tokens.check_key(binding.bind(), directory / tokens.FILE)


def must_exist(directory: Path) -> None:
    """Raise Unusable where nothing is yet: only `serve` and `setup` begin an installation."""
    if identity.is_empty(directory / DATABASE) and not _traces(directory):
        raise Unusable(f"there is nothing in {directory} yet: start with campanero serve, or name another by --data")


def _traces(directory: Path) -> list[str]:
    """Return the names of what only an installation that was used leaves beside its database."""
    single = [name for name in (tokens.FILE, journal.FILE) if (directory / name).exists()]
    folders = [name for name in (*placing.FOLDERS, files.FOLDER) if any((directory / name).glob("*"))]
    return single + folders
