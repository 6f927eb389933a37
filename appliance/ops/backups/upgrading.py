"""Brings a database to this program's schema, and keeps it as it was before (P12)."""

from collections.abc import Callable
from pathlib import Path

from appliance.ops.backups import files as backups_files
from appliance.storage import migrations


class NotUpgraded(Exception):
    """The database is as it was, and why."""


def upgrade(directory: Path, tell: Callable[[str], None]) -> int:
    """Migrate the open database and answer how many steps that took; a backup of the old one is made first.

    Where one of this very state was made before (a start that was killed), it is not made again. Raises
    migrations.TooNew, or NotUpgraded where there is no room for a backup.
    """
    have, want = migrations.current(), len(migrations.MIGRATIONS)
    if 0 < have < want:
        target = directory / backups_files.FOLDER / f"before-schema-{want}.tar.gz"
        if not _is_of_now(directory, target):
            tell(f"the database has schema {have}, this program {want}: backing it up as {target} first")
            _back_up(directory, target)
    return migrations.migrate()


def _is_of_now(directory: Path, target: Path) -> bool:
    """Return whether a backup is younger than all that was written since."""
    if not target.exists():
        return False
    files = [directory / f"campanero.db{end}" for end in ("", "-wal")]
    return all(target.stat().st_mtime > path.stat().st_mtime for path in files if path.exists())


def _back_up(directory: Path, target: Path) -> None:
    from appliance.ops.backups import take

    target.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = target.with_name(f"{target.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        take.backup(directory, fresh)
    except take.NotTaken as error:
        raise NotUpgraded(f"nothing was upgraded, for there is no backup: {error}") from None
    fresh.replace(target)
