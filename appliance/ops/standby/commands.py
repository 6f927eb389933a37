"""The commands `follow` and `promote`, for a second machine."""

import argparse
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.core import crypto, data_dir, logs
from appliance.ops.standby import place
from appliance.ops.standby.place import Source, StandbyFailed
from appliance.settings.config import LoadedConfig

Loader = Callable[[argparse.Namespace], LoadedConfig]


def add_standby_commands(
    top: Any, command: Callable[..., Any], load: Loader, connect_signals: Callable[[], None]
) -> None:
    """Add the commands `follow` and `promote` to the subparsers `top`.

    `command` adds one command, as `_add_command` of the command line does; `load` loads the configuration, and
    `connect_signals` is the function of `appliance.app`.
    """
    words = "keep a copy of another machine's data up to date, from the replica that its Litestream writes"
    parser = command(top, "follow", lambda options: _follow(options, load), words)
    parser.add_argument("source", metavar="SOURCE", help="URL of the replica, such as s3://BUCKET/campanero/replica")
    parser.add_argument("--litestream", metavar="PROGRAM", help="path of Litestream (default: litestream in PATH)")
    words = "make this machine, which follows another one, the one that sends; holds what may have left meanwhile"
    parser = command(top, "promote", lambda options: _promote(options, load, connect_signals), words)
    parser.add_argument(
        "--lease-only", action="store_true",
        help="only take the lease, for a machine that follows no other and has the current data",
    )  # fmt: skip
    parser.add_argument(
        "--old-machine-is-off", action="store_true",
        help="without a lease: you have made sure that the other machine is off and will not start again",
    )  # fmt: skip


def _follow(options: argparse.Namespace, load: Loader) -> None:
    from appliance.ops.standby import follow

    loaded = load(options)
    directory = data_dir.create(Path(loaded.config.data_dir))
    program = follow.find_litestream(options.litestream)
    with data_dir.lock(directory):
        logs.configure(loaded.config.log.level, loaded.config.log.format, None)
        _require_followable(directory, options.source)
        place.save_source(directory, Source(options.source))
        follower = follow.Follower(directory, options.source, program)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: follower.stop())
        logging.getLogger("campanero.standby").warning("standby: restoring source=%s", options.source)
        follower.run()


def _require_followable(directory: Path, source: str) -> None:
    """Raise StandbyFailed unless a data directory has the key, and no data other than a copy of this source.

    A copy of another source is deleted.
    """
    if not (directory / crypto.KEY_FILE).exists():
        raise StandbyFailed(
            f"put {crypto.KEY_FILE} of the other machine into {directory} first: without it, its data is of no use"
        )
    crypto.load_key(directory)
    present = place.load_source(directory)
    if present is not None and (present.is_promoting or present.lease is not None):
        raise StandbyFailed(f"{directory} is being promoted: campanero promote continues that")
    place.require_no_database(directory)
    if present is not None and present.source != source:
        place.remove_restores(place.list_restores(directory))


def _promote(options: argparse.Namespace, load: Loader, connect_signals: Callable[[], None]) -> None:
    from appliance.ops.standby import promote

    directory = Path(load(options).config.data_dir)

    def report(words: str) -> None:
        print(words, flush=True)

    if options.lease_only:
        if options.old_machine_is_off:
            raise StandbyFailed("--lease-only takes a lease; --old-machine-is-off is for a promotion without one")
        place.require_not_following(directory)
        with data_dir.lock(directory):
            print(f"This machine may send, epoch {promote.take_back(directory, report)}. Start the service.")
        return
    connect_signals()
    print(*promote.promote(directory, options.old_machine_is_off, report), sep="\n")
