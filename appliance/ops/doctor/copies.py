"""Backups: whether the last one is as young as the schedule says."""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock
from appliance.ops.backups import files
from appliance.ops.doctor.findings import Line
from appliance.settings import config
from appliance.storage.open import scalar

_HOUR_MS = 3_600_000
# One that is late by as much again did not come
_LATE = 2


def scheduled(directory: Path) -> Iterator[Line]:
    """Return how old the last scheduled backup is."""
    every = config.seconds(config.current().backup.every) * 1000
    own = [one for one in files.kept(directory) if one.is_own]
    if not every:
        yield Line("ok", "backups", "none are made by themselves (backup.every is 0)")
        return
    born = scalar("SELECT min(created_at) FROM account")
    since = own[0].made_at if own else born
    if since is None:
        return
    age = clock.now_ms() - since
    last = f"the last is {age / _HOUR_MS:.0f} hours old" if own else "there is none yet"
    if age > _LATE * every:
        yield Line("warn", "backups", f"{last}, and one is due every {every / _HOUR_MS:g} hours: look into the log")
    else:
        yield Line("ok", "backups", f"{len(own)} in {directory / files.FOLDER}, {last}")
