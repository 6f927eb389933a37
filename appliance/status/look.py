"""Looks at a data directory, and asks the service that runs on it whether it is ready; nothing is written."""

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from appliance import VERSION, clock, datadir
from appliance.db import disk_guard
from appliance.db.open import rows, scalar
from appliance.messages import queue_depth
from appliance.metrics.machine import sizes
from appliance.settings import Config
from appliance.status import asking, tasks
from appliance.status.shape import Day, Queue, Service, Status, Storage

_MINUTE_MS = 60_000
_TODAY = ("sent", "delivered", "bounced", "failed", "complained", "opened", "clicked", "unsubscribed")
# What is told by another name of the event, or by several
_EVENTS = {"bounced": ("bounced", "soft_bounced"), "unsubscribed": ("unsubscribed", "stopped")}


def look(config: Config) -> Status:
    """Return how a service stands."""
    directory = Path(config.data_dir)
    process = datadir.holder(directory)
    since = _midnight()
    accounts = [row[0] for row in rows("SELECT id FROM account ORDER BY id")]
    return Status(
        VERSION, clock.iso(clock.now_ms()) or "", str(directory.absolute()), _service(config, process),
        _stopped(directory), tasks.under_way(directory, process),
        [_queue(channel, accounts) for channel in queue_depth.CHANNELS], clock.iso(since) or "",
        [_day(channel, accounts, since) for channel in queue_depth.CHANNELS], _storage(directory),
    )  # fmt: skip


def _service(config: Config, process: int | None) -> Service:
    listen = datadir.listens(Path(config.data_dir)) or config.listen
    if process is None:
        return Service(False, None, listen, "not running")
    return Service(True, process, listen, asking.readiness(listen))


def _stopped(directory: Path) -> list[str]:
    """Return what stops sending: a file, or people of an account."""
    found = ["the file STOP in the data directory stops all sending"] if datadir.is_stopped(directory) else []
    for name, reason in rows("SELECT name, stop_reason FROM account WHERE sending_stopped = 1 ORDER BY id"):
        found.append(f"sending is switched off for {name}{f': {reason}' if reason else ''}")
    return found


def _queue(channel: str, accounts: list[int]) -> Queue:
    found = queue_depth.of(channel)
    lately = _count(accounts, f"{channel}_sent", clock.now_ms() - _MINUTE_MS)
    return Queue(channel, found.due, found.later, found.paused, found.in_hand, found.oldest_seconds, lately)


def _day(channel: str, accounts: list[int], since: int) -> Day:
    def number(name: str) -> int:
        return sum(_count(accounts, f"{channel}_{one}", since) for one in _EVENTS.get(name, (name,)))

    return Day(channel, *(number(name) for name in _TODAY))


def _count(accounts: list[int], event: str, since: int) -> int:
    """Count events since a moment, over the index that names them; tests are nobody's mail."""
    words = "SELECT count(*) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? AND test = 0"
    return sum(int(scalar(words, (one, event, since))) for one in accounts)


def _midnight() -> int:
    """Return when the day began where the first account is."""
    zone = ZoneInfo(str(scalar("SELECT time_zone FROM account ORDER BY id LIMIT 1") or "UTC"))
    now = datetime.fromtimestamp(clock.now_ms() / 1000, zone)
    begun = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return int((begun if begun <= now else begun - timedelta(days=1)).timestamp() * 1000)


def _storage(directory: Path) -> Storage:
    base, log = sizes(directory)
    free, least = disk_guard.room(directory)
    return Storage(base, log, free, int(least))
