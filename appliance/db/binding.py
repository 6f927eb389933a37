"""Binds a database to the key file that it was first used with."""

from pathlib import Path

from appliance import clock, tokens
from appliance.db import work
from appliance.db.identity import Identity
from appliance.db.open import run, scalar
from appliance.db.work import writing


def check_key(directory: Path, found: Identity) -> None:
    """Load the key and hold it against what was stored with the database; raises WrongKey."""
    tokens.load_key(directory)
    if found.key_fingerprint is not None:
        tokens.check_key(found.key_fingerprint, directory / tokens.FILE)


def bind() -> str:
    """Store the fingerprint of the key that is loaded with the open database; return the one that is stored then."""
    work.write(_bind)
    return str(scalar("SELECT key_fingerprint FROM installation"))


def _bind() -> None:
    writing()
    run(
        "INSERT INTO installation (id, key_fingerprint, created_at) VALUES (1, ?, ?) ON CONFLICT DO NOTHING",
        (tokens.fingerprint(), clock.now_ms()),
    )
