"""Puts a database that was made ready in the place of another: the one rename that a restoration is."""

import os
import shutil
from pathlib import Path

from appliance.core import tokens
from appliance.core.data_dir import settle

ON_ITS_WAY = ".restoring"
LOGS = ("-wal", "-shm")
_READY, _DATABASE, _JOURNAL = "ready", "campanero.db", "optouts.jsonl"
# Directories of files that rows speak of: what imports read, and audiences that are being written down
FOLDERS = ("imports", "audiences")


def put(directory: Path) -> None:
    """Put what lies ready into its place; a database that was there has to be at rest."""
    made = directory / ON_ITS_WAY
    key = made / tokens.FILE
    if key.exists() and not os.path.lexists(directory / tokens.FILE):
        settle(key)
        key.rename(directory / tokens.FILE)
    for end in LOGS:
        (directory / f"{_DATABASE}{end}").unlink(missing_ok=True)
    (made / _READY).touch()
    settle(made)
    (made / _DATABASE).replace(directory / _DATABASE)
    settle(directory)
    finish(directory)


def finish(directory: Path) -> None:
    """Move what belongs to a restored database to its place, also where a kill came between; else do nothing."""
    made = directory / ON_ITS_WAY
    if not (made / _READY).exists() or (made / _DATABASE).exists():
        return
    for folder in FOLDERS:
        if (made / folder).exists():
            shutil.rmtree(directory / folder, ignore_errors=True)
            (made / folder).rename(directory / folder)
    if (made / _JOURNAL).exists():
        (made / _JOURNAL).rename(directory / _JOURNAL)
    settle(directory)
    shutil.rmtree(made)
