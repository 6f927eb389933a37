"""Ask Litestream over its control socket when it last copied the database (https://litestream.io/reference/config/)."""

import http.client
import shutil
import socket
import time
from datetime import datetime
from pathlib import Path

import msgspec

from appliance.core import untrusted_json
from appliance.core.untrusted_json import InvalidJson
from appliance.settings import config

_TIMEOUT_SECONDS = 3.0
_MAX_RESPONSE_BYTES = 1 << 20
_ASK_SECONDS, _LATE_SECONDS = 2.0, 3.0
_MAX_READ_DELAY_SECONDS = 2.0
HEARTBEAT_SECONDS = 5.0


class LitestreamDown(Exception):
    """Litestream does not answer, or does not copy this database; the message is the reason."""


class _Databases(msgspec.Struct):
    """The response of Litestream that lists its databases."""

    databases: list[dict[str, object]] | None


class _SocketConnection(http.client.HTTPConnection):
    """An HTTP connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT_SECONDS)
        self.sock.connect(self._path)


def is_used() -> bool:
    """Return whether Litestream copies the database of this installation (`litestream.socket`)."""
    return bool(config.current().litestream.socket)


class HeartbeatTimer:
    """A timer that is due every five seconds on a machine without a lease, which then writes its heartbeat.

    From the heartbeat, a machine that follows this one computes how far it is behind, and whether this one still runs.
    With a lease, each renewal writes the heartbeat.
    """

    def __init__(self) -> None:
        self._due_at = 0.0

    def is_due(self) -> bool:
        """Return whether the heartbeat is due; if it is, start the next interval."""
        now = time.monotonic()
        if now < self._due_at or not is_used() or config.current().lease.store:
            return False
        self._due_at = now + HEARTBEAT_SECONDS
        return True


class CheckpointGuard:
    """Decides whether this process must checkpoint although Litestream is used; ask it about once a second.

    Litestream reads the log file itself. If a process is killed during a commit, the log may contain frames that
    Litestream has copied and that the next process overwrites. Litestream then copies the whole database file again,
    and fails as long as pages are only in the log. So while Litestream copies nothing, or does not run, this process
    checkpoints, without waiting for readers.
    """

    def __init__(self) -> None:
        self._asked_at, self._is_late = 0.0, False

    def should_checkpoint(self, database: Path) -> bool:
        """Return whether Litestream is not used, does not answer, or has copied nothing for `_LATE_SECONDS`."""
        if not is_used():
            return True
        now = time.monotonic()
        if now >= self._asked_at + _ASK_SECONDS:
            self._asked_at = now
            try:
                self._is_late = time.time() - read_last_sync(database) > _LATE_SECONDS
            except LitestreamDown:
                self._is_late = True
        return self._is_late


def read_last_sync(database: Path) -> float:
    """Return when Litestream had last copied all changes of a database, in seconds since 1970.

    The time advances each second even if the database does not change. Raises LitestreamDown.
    """
    path = config.current().litestream.socket
    for entry in _list_databases(path):
        if Path(str(entry.get("path"))).resolve() == database.resolve():
            if "last_sync_at" not in entry:
                status = entry.get("status")
                raise LitestreamDown(
                    f"it has copied nothing since it was started, and its log says why (status: {status})"
                )
            last_sync = datetime.fromisoformat(str(entry["last_sync_at"])).timestamp()
            return min(last_sync, _find_last_read(database) or last_sync)
    raise LitestreamDown(f"{database} is not in its configuration")


def _find_last_read(database: Path) -> float | None:
    """Return when Litestream last read the log, in seconds since 1970, if the log was changed some seconds after that.

    None otherwise. Litestream also reports a sync while it cannot read the log. The time is that of the newest file in
    which it stores what it has read.
    """
    folder = _get_state_folder(database) / "ltx" / "0"
    try:
        read_at = max(folder.iterdir()).stat().st_mtime
        changed_at = Path(f"{database}-wal").stat().st_mtime
    except (OSError, ValueError):
        return None
    return read_at if changed_at - read_at > _MAX_READ_DELAY_SECONDS else None


def _get_state_folder(database: Path) -> Path:
    """Return the folder beside a database in which Litestream stores its state and the changes it has read."""
    return database.parent / f".{database.name}-litestream"


def forget_state(database: Path) -> None:
    """Delete Litestream's state of a database file that is about to be replaced; Litestream must not run.

    With the old state it would expect files of the former database, and would not copy to a new replica.
    """
    folder = _get_state_folder(database)
    if folder.exists():
        shutil.rmtree(folder)


def _list_databases(path: str) -> list[dict[str, object]]:
    connection = _SocketConnection(path)
    try:
        connection.request("GET", "/list")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise LitestreamDown(f"{path} answered with status {response.status}")
        content = response.read(_MAX_RESPONSE_BYTES)
        return untrusted_json.decode(content, _Databases, _MAX_RESPONSE_BYTES).databases or []
    except OSError as error:
        raise LitestreamDown(f"{path} does not answer: {error.strerror or error}") from None
    except (http.client.HTTPException, InvalidJson) as error:
        raise LitestreamDown(f"{path} is not the control socket of Litestream: {error}") from None
    finally:
        connection.close()
