"""Looks at a data directory, and asks the service that runs on it whether it is ready; nothing is written."""

import http.client
import json
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from appliance import VERSION
from appliance.core import clock, data_dir
from appliance.exports import going
from appliance.ops.metrics.machine import sizes
from appliance.sending.messages import queue_order
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage import disk_guard
from appliance.storage.open import fetch_one, rows, scalar

# Asks a service that runs on this machine whether it is ready.

_SECONDS = 2.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def readiness(listen: str) -> str:
    """Return `ready`, or in a few words what keeps it from that."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        here = _connection(_ANY.get(host, host), int(port))
        try:
            here.request("GET", "/readyz")
            answer = here.getresponse()
            said = json.loads(answer.read(10_000))
        finally:
            here.close()
        if answer.status == 200:
            return "ready"
        return str(said["message"]).removeprefix("the service is ")
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"does not answer on {listen}"


def _connection(host: str, port: int) -> http.client.HTTPConnection:
    if not config.current().tls.certificate:
        return http.client.HTTPConnection(host, port, timeout=_SECONDS)
    # It is asked by its address on this machine, which no certificate names
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=trusting)


# What is told of a service, as `campanero status --json` prints it.


class Task(Struct):
    """Something that is under way: how much of how much is done, how fast it goes, and how long it still takes.

    `state` is one word; `words` says more where there is more to say. Null is what cannot be known yet.
    """

    kind: str  # send, import, export, act
    id: int | None
    account_id: int
    name: str
    state: str
    words: str
    done: int
    total: int | None
    per_second: float | None
    left_seconds: float | None


class Queue(Struct):
    """What waits in a channel, and how many left in the last minute."""

    channel: str
    due: int
    later: int
    paused: int
    in_hand: int
    oldest_due_seconds: float
    last_minute: int


class Day(Struct):
    """What happened in a channel since midnight."""

    channel: str
    sent: int
    delivered: int
    bounced: int
    failed: int
    complained: int
    opened: int
    clicked: int
    unsubscribed: int


class Storage(Struct):
    """How large it all is, and how much room there is."""

    database_bytes: int
    wal_bytes: int
    free_bytes: int
    least_free_bytes: int


class Service(Struct):
    """Whether the service runs, and what it says of itself: ready, or what it lacks."""

    running: bool
    process: int | None
    listen: str
    state: str


class Status(Struct):
    """All of it, at one moment."""

    version: str
    at: str
    data_dir: str
    service: Service
    stopped: list[str]
    tasks: list[Task]
    queue: list[Queue]
    since: str
    today: list[Day]
    storage: Storage


# What is under way: sends, imports, exports, and what is done with many people at once.

_MINUTE_MS = 60_000
_LIVE = (
    "SELECT id, account_id, name, channel, phase, audience_count, hold_until, pause_reason, started_at, "
    "freezing IS NOT NULL FROM campaign WHERE phase IN ('holding', 'sending', 'paused') AND deleted_at IS NULL "
    "ORDER BY id"
)
# Newest first are read over the index of what happened, so only the last minute is
_LATELY = (
    "SELECT count(*) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? "
    "AND json_extract(data, '$.campaign_id') = ?"
)
_IMPORTS = (
    "SELECT id, account_id, filename, status, phase, dry_run, total, processed, created + updated, restored "
    "FROM import WHERE status IN ('pending', 'processing') OR phase = 'undoing' ORDER BY id"
)
_ACTS = {
    "list_add": "add to a list", "list_remove": "take off a list", "tag_add": "tag", "tag_remove": "take off a tag",
    "unsubscribe": "unsubscribe", "delete": "delete",
}  # fmt: skip


def under_way(directory: Path, process: int | None) -> list[Task]:
    """Return all of it; what only the running process knows is told by that."""
    exports = _exports(directory, process) if process is not None else ()
    found = [*_sends(), *_imports(), *exports, *_acts()]
    if process is None:
        # Nothing goes on until the service is started
        found = [structs.replace(one, per_second=None, left_seconds=None) for one in found]
    return found


def _task(
    kind: str, number: int | None, account_id: int, name: str, state: str, words: str, done: int, total: int | None,
    speed: float | None,
) -> Task:  # fmt: skip
    left = (total - done) / speed if total is not None and speed else None
    return Task(kind, number, account_id, name, state, words, done, total, speed, left)


def _sends() -> Iterator[Task]:
    now = clock.now_ms()
    for number, account_id, name, channel, phase, audience, hold, why, started, is_drawn in rows(_LIVE):
        counted = dict(rows("SELECT status, count(*) FROM message WHERE campaign_id = ? GROUP BY status", (number,)))
        open_rows = sum(counted.get(status, 0) for status in ("queued", "held", "sending"))
        done, total = sum(counted.values()) - open_rows, max(audience or 0, sum(counted.values()))
        span = min(_MINUTE_MS, max(now - (started or now), 1))
        lately = scalar(_LATELY, (account_id, f"{channel}_sent", now - span, number))
        speed = lately / span * 1000 if lately and phase == "sending" else None
        words = "the audience is being written" if is_drawn else ""
        if phase == "holding" and hold:
            words = f"held until {clock.iso(hold)}"
        yield _task("send", number, account_id, name, phase, (why or words) if phase == "paused" else words,
                    done, total, speed)  # fmt: skip


def _imports() -> Iterator[Task]:
    for number, account_id, name, status, phase, is_dry, total, done, wrote, restored in rows(_IMPORTS):
        if phase == "undoing":
            yield _task("import", number, account_id, name, "undoing", "", restored, wrote or None, None)
        elif status == "pending":
            yield _task("import", number, account_id, name, "waiting", "waits for its turn", 0, None, None)
        elif phase != "applying":
            words = f"{total:,} lines read" if total else "is being read"
            yield _task("import", number, account_id, name, "reading", words, 0, None, None)
        else:
            state = "checking" if is_dry else "writing"
            yield _task("import", number, account_id, name, state, "", done, total, _speed(number, done))


def _speed(import_id: int, done: int) -> float | None:
    begun = scalar("SELECT created_at FROM import_chunk WHERE import_job_id = ? ORDER BY number LIMIT 1", (import_id,))
    if begun is None or not done:
        return None
    return done / max((clock.now_ms() - int(begun)) / 1000, 0.5)


def _exports(directory: Path, process: int) -> Iterator[Task]:
    for found in going.told(directory, process):
        took = max((clock.now_ms() - found.begun_at) / 1000, 0.5)
        speed = found.rows / took if found.rows else None
        yield _task("export", None, found.account_id, found.name, "sending", "", found.rows, found.total, speed)


def _acts() -> Iterator[Task]:
    found = "SELECT id, account_id, act, number, changed, skipped FROM crowd_act WHERE state = 'working' ORDER BY id"
    parts = "SELECT count(*), total(done) FROM crowd_part WHERE act_id = ?"
    for number, account_id, act, people, *_ in rows(found):
        many, ended = fetch_one(parts, (number,)) or (0, 0)
        done = int(people * ended / many) if many else 0
        yield _task("act", number, account_id, _ACTS.get(act, act), "working", "", done, people, None)


_TODAY = ("sent", "delivered", "bounced", "failed", "complained", "opened", "clicked", "unsubscribed")
# What is told by another name of the event, or by several
_EVENTS = {"bounced": ("bounced", "soft_bounced"), "unsubscribed": ("unsubscribed", "stopped")}


def look(config: Config) -> Status:
    """Return how a service stands."""
    directory = Path(config.data_dir)
    process = data_dir.holder(directory)
    since = _midnight()
    accounts = [row[0] for row in rows("SELECT id FROM account ORDER BY id")]
    return Status(
        VERSION, clock.iso(clock.now_ms()) or "", str(directory.absolute()), _service(config, process),
        _stopped(directory), under_way(directory, process),
        [_queue(channel, accounts) for channel in queue_order.CHANNELS], clock.iso(since) or "",
        [_day(channel, accounts, since) for channel in queue_order.CHANNELS], _storage(directory),
    )  # fmt: skip


def _service(config: Config, process: int | None) -> Service:
    listen = data_dir.listens(Path(config.data_dir)) or config.listen
    if process is None:
        return Service(False, None, listen, "not running")
    return Service(True, process, listen, readiness(listen))


def _stopped(directory: Path) -> list[str]:
    """Return what stops sending: a file, or people of an account."""
    found = ["the file STOP in the data directory stops all sending"] if data_dir.is_stopped(directory) else []
    for name, reason in rows("SELECT name, stop_reason FROM account WHERE sending_stopped = 1 ORDER BY id"):
        found.append(f"sending is switched off for {name}{f': {reason}' if reason else ''}")
    return found


def _queue(channel: str, accounts: list[int]) -> Queue:
    found = queue_order.depth_of(channel)
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
