"""A finished database file beside the one of this connection: read by SQLite itself, and never written to."""

from pathlib import Path
from urllib.parse import quote

from appliance.db.open import connection, scalar


def attach(path: Path, name: str) -> None:
    """Put a file beside the database of this connection under a name; outside of a transaction."""
    detach(name)
    # Nobody writes to it any more, and a file that cannot be written to takes no part in transactions
    connection().execute(f"ATTACH ? AS {name}", (f"file:{quote(str(path))}?immutable=1",)).fetchall()


def detach(name: str) -> None:
    """Take it away again, if it is there."""
    if scalar("SELECT 1 FROM pragma_database_list WHERE name = ?", (name,)):
        connection().execute(f"DETACH {name}").fetchall()
