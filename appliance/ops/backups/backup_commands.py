"""The commands `backup` and `restore`."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.core import data_dir, tokens
from appliance.core.errors import Refused
from appliance.settings.config import Loaded

if TYPE_CHECKING:
    from appliance.ops.backups import restore


Load = Callable[[argparse.Namespace], Loaded]
# The service sends meanwhile, and comes first
_NICE = 10


class Failed(Refused):
    """A backup or its way back that did not come to pass, and why."""

    code = "not_done"


def mount(top: Any, command: Callable[..., Any], load: Load) -> None:
    """Add both."""
    words = "write a backup of everything into a new file, also while the service runs"
    made = command(top, "backup", lambda options: _backup(options, load), words)
    made.add_argument("file", metavar="FILE", type=Path, help="a file that is not there yet, such as monday.tar.gz")
    made.add_argument(
        "--with-key", action="store_true",
        help="put secret.key into it too: whoever has the file can then read every secret in it",
    )  # fmt: skip
    words = "put a backup in the place of what is there; nothing is sent until a person lets it, account by account"
    back = command(top, "restore", lambda options: _restore(options, load), words)
    back.add_argument("file", metavar="FILE", type=Path, help="what campanero backup wrote")
    back.add_argument("--force", action="store_true", help="replace the data that is there, after backing it up")


def _backup(options: argparse.Namespace, load: Load) -> None:
    from appliance.ops.backups import archive, take

    directory = Path(load(options).config.data_dir)
    if not os.path.lexists(directory / archive.DATABASE):
        raise Failed(f"{directory} holds no data")
    os.nice(_NICE)
    tokens.load_key(directory)
    target = options.file.absolute()
    said = _Progress()
    try:
        take.backup(directory, target, options.with_key, said.tell)
    except take.NotTaken as error:
        raise Failed(str(error)) from None
    finally:
        said.end()
    print(f"{options.file}: {target.stat().st_size / 1e6:.1f} MB, whole", flush=True)
    if not options.with_key:
        print(f"Keep a copy of {directory / archive.KEY} too, in another place: without it nobody can restore this.")


class _Progress:
    """One line that is written over on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = ""

    def tell(self, words: str, part: float) -> None:
        line = f"{words} {part:4.0%}"
        if sys.stderr.isatty() and line != self._shown:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._shown = line

    def end(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _restore(options: argparse.Namespace, load: Load) -> None:
    from appliance.ops.backups import archive, restore

    if not options.file.is_file():
        raise Failed(f"{options.file} is not there")
    directory = data_dir.make(Path(load(options).config.data_dir))
    with data_dir.locked(directory):
        try:
            done = restore.restore(directory, options.file, options.force, lambda words: print(words, flush=True))
        except (restore.NotRestored, archive.Damaged) as error:
            raise Failed(str(error)) from None
        _report(done)


def _report(done: "restore.Restored") -> None:
    from appliance.core import clock
    from appliance.ops.backups import restore
    from appliance.storage.open import rows

    print(f"Restored to {clock.iso(done.manifest.taken_at)}.")
    if done.kept is not None:
        print(f"What was there is kept in {done.kept}.")
    told = {name.replace("_", " "): number for name, number in done.replayed._asdict().items() if number}
    words = ", ".join(f"{number} {name}" for name, number in told.items())
    print(f"Who left since then stays out: {words}." if words else "Nobody is known to have left since then.")
    for account_id, name in rows("SELECT id, name FROM account ORDER BY id"):
        held = restore.of_account(account_id)
        print(f"{name}: sending is stopped." + ("" if held.is_empty else " It would go on with:"))
        for one in held.campaigns:
            called = one.name or "without a name"
            print(f"  campaign {one.campaign_id}, {called}: {one.open} waiting, {one.sent} sent by then")
        for flow in held.flows:
            print(f"  flow {flow.flow_id}, {flow.name or 'without a name'}: paused, {flow.inside} inside")
        if held.of_flows or held.single:
            print(f"  {held.of_flows} messages of flows, {held.single} single ones")
    print("Start the service and open /restored: what may have gone out since the backup is decided there.")
