"""A database file beside the one of this connection: a finished one, never written to, or one in the making."""

import os
from pathlib import Path
from urllib.parse import quote

from appliance.db.open import connection, scalar


def attach(path: Path, name: str) -> None:
    """Put a file beside the database of this connection under a name; outside of a transaction."""
    detach(name)
    # Nobody writes to it any more, and a file that cannot be written to takes no part in transactions
    connection().execute(f"ATTACH ? AS {name}", (f"file:{quote(str(path))}?immutable=1",)).fetchall()


def make(path: Path, name: str) -> None:
    """Put an empty file, which this connection fills, beside its database: half-written it is worth nothing."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection().execute(f"ATTACH ? AS {name}", (str(path),)).fetchall()
    connection().execute(f"PRAGMA {name}.journal_mode = off; PRAGMA {name}.synchronous = off").fetchall()


def detach(name: str) -> None:
    """Take it away again, if it is there."""
    if scalar("SELECT 1 FROM pragma_database_list WHERE name = ?", (name,)):
        connection().execute(f"DETACH {name}").fetchall()
