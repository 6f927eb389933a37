"""The status of an installation, which the command `status` prints.

The status is read from the data directory, in which nothing is written, and from `/readyz` of the running service.
"""

import http.client
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from appliance import VERSION
from appliance.accounts import accounts
from appliance.core import clock, data_dir, untrusted_json
from appliance.exports import streaming
from appliance.ops.copy_jobs import history, schedule
from appliance.ops.metrics import measure_database
from appliance.sending.messages import delivery_status
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage import disk_guard
from appliance.storage.database import fetch_one, rows, scalar

_TIMEOUT_SECONDS, _MAX_BODY_BYTES = 2.0, 10_000
_LOOPBACK_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def fetch_readiness(listen: str) -> str:
    """Return `ready`, or why the service at this address is not ready or does not answer."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        connection = _open_connection(_LOOPBACK_ADDRESSES.get(host, host), int(port))
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            body = untrusted_json.decode(response.read(_MAX_BODY_BYTES), dict[str, object], _MAX_BODY_BYTES)
        finally:
            connection.close()
        if response.status == 200:
            return "ready"
        return str(body["message"]).removeprefix("The service is ").removesuffix(".")
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return f"does not answer on {listen}"


def _open_connection(host: str, port: int) -> http.client.HTTPConnection:
    if not config.current().tls.certificate:
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    # The certificate is not verified, because no certificate is issued for the local address.
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=trusting)


class Task(Struct):
    """A send, import, export, bulk action, copy or test restore that is not finished, with its progress and speed.

    `state` is one word, and `words` adds details. `done`, `total` and `per_second` count messages of a send, contacts
    of a bulk action, and rows of an import or export. None means unknown.
    """

    kind: str  # send, import, export, act for a bulk action, copy, proof for a test restore of a copy
    id: int | None  # None for an export
    account_id: int
    name: str
    state: str
    words: str
    done: int
    total: int | None
    per_second: float | None
    left_seconds: float | None


class Queue(Struct):
    """The numbers of queued messages of a channel by their state, and of its messages sent in the last minute.

    A queued message is due, scheduled for later, of a paused campaign, or being sent (`in_hand`).
    """

    channel: str
    due: int
    later: int
    paused: int
    in_hand: int
    oldest_due_seconds: float
    last_minute: int


class Day(Struct):
    """The numbers of events of a channel since midnight in the time zone of the first account, without tests.

    `bounced` includes soft bounces, and `unsubscribed` the opt-outs by SMS.
    """

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
    """The sizes of the database and its write-ahead log, and the free disk space.

    Sending stops while `free_bytes` is below `least_free_bytes`.
    """

    database_bytes: int
    wal_bytes: int
    free_bytes: int
    least_free_bytes: int


class Submission(Struct):
    """The listen addresses of SMTP submission (empty if off), and the number of emails submitted since midnight."""

    listen: list[str]
    today: int


class Copies(Struct):
    """The copies on another machine: the time of the data in the last good copy, and how the last runs ended.

    Times are ISO times, None if there is none. `failure` is the reason of the last copy if it failed, else "". `proof`
    is `succeeded`, or why the last test restore failed, or "" without a test restore.
    """

    configured: bool
    last_at: str | None
    age_seconds: float | None
    late: bool
    next_at: str | None
    failure: str
    proof: str
    proven_at: str | None


class Service(Struct):
    """Whether the service runs, its process id and address, and its state: `ready`, or why the service is not ready."""

    running: bool
    process: int | None
    listen: str
    state: str


class Status(Struct):
    """The status of an installation at one moment.

    `at` is that moment, and `since` is the midnight from which `today` is counted, both as ISO times. `stopped` are the
    reasons why sending is stopped. `queue` and `today` have one entry for each channel.
    """

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
    submission: Submission
    copies: Copies


_MINUTE_MS = 60_000
_ACTIVE_CAMPAIGNS_SQL = (
    "SELECT id, account_id, name, channel, phase, audience_count, hold_until, pause_reason, started_at, "
    "pending_snapshot IS NOT NULL FROM campaign WHERE phase IN ('holding', 'sending', 'paused') AND deleted_at IS NULL "
    "ORDER BY id"
)
# There is no index on the campaign of an event, but the index on (account_id, created_at) limits this query to the
# events of the last minute.
_RECENTLY_SENT_SQL = (
    "SELECT count(*) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? "
    "AND json_extract(data, '$.campaign_id') = ?"
)
_ACTIVE_IMPORTS_SQL = (
    "SELECT id, account_id, filename, status, phase, dry_run, total, processed, created + updated, restored "
    "FROM import WHERE status IN ('pending', 'processing') OR phase = 'undoing' ORDER BY id"
)
_ACTION_NAMES = {
    "list_add": "add to a list", "list_remove": "remove from a list", "tag_add": "add a tag",
    "tag_remove": "remove a tag", "unsubscribe": "unsubscribe", "delete": "delete",
}  # fmt: skip


def collect_tasks(directory: Path, process: int | None) -> list[Task]:
    """Return the sends, imports, exports, bulk actions and copies that are not finished.

    `process` is the process id of the running service. If it is None, exports and copies are left out: their progress
    belongs to a running process, and no task has a speed.
    """
    exports = _collect_exports(directory, process) if process is not None else ()
    copies = _collect_copies() if process is not None else ()
    tasks = [*_collect_sends(), *_collect_imports(), *exports, *_collect_bulk_actions(), *copies]
    if process is None:
        # Tasks do not progress while the service is stopped.
        tasks = [structs.replace(task, per_second=None, left_seconds=None) for task in tasks]
    return tasks


def _build_task(
    kind: str, number: int | None, account_id: int, name: str, state: str, words: str, done: int, total: int | None,
    speed: float | None,
) -> Task:  # fmt: skip
    seconds_left = (total - done) / speed if total is not None and speed else None
    return Task(kind, number, account_id, name, state, words, done, total, speed, seconds_left)


def _collect_sends() -> Iterator[Task]:
    now = clock.now_ms()
    for number, account_id, name, channel, phase, audience, hold, pause_reason, started, is_snapshot_pending in rows(
        _ACTIVE_CAMPAIGNS_SQL
    ):
        counted = dict(rows("SELECT status, count(*) FROM message WHERE campaign_id = ? GROUP BY status", (number,)))
        open_rows = sum(counted.get(status, 0) for status in ("queued", "held", "sending"))
        done, total = sum(counted.values()) - open_rows, max(audience or 0, sum(counted.values()))
        span = min(_MINUTE_MS, max(now - (started or now), 1))
        sent_recently = scalar(_RECENTLY_SENT_SQL, (account_id, f"{channel}_sent", now - span, number))
        speed = sent_recently / span * 1000 if sent_recently and phase == "sending" else None
        words = "the audience is being stored" if is_snapshot_pending else ""
        if phase == "holding" and hold:
            words = f"held until {clock.iso(hold)}"
        yield _build_task(
            "send",
            number,
            account_id,
            name,
            phase,
            (pause_reason or words) if phase == "paused" else words,
            done,
            total,
            speed,
        )


def _collect_imports() -> Iterator[Task]:
    for number, account_id, name, status, phase, is_dry, total, done, written, restored in rows(_ACTIVE_IMPORTS_SQL):
        if phase == "undoing":
            yield _build_task("import", number, account_id, name, "undoing", "", restored, written or None, None)
        elif status == "pending":
            yield _build_task("import", number, account_id, name, "waiting", "waiting for other imports", 0, None, None)
        elif phase != "applying":
            words = f"{total:,} lines read" if total else "is being read"
            yield _build_task("import", number, account_id, name, "reading", words, 0, None, None)
        else:
            state = "checking" if is_dry else "writing"
            yield _build_task(
                "import", number, account_id, name, state, "", done, total, _measure_import_speed(number, done)
            )


def _measure_import_speed(import_id: int, done: int) -> float | None:
    started_at = scalar(
        "SELECT created_at FROM import_chunk WHERE import_job_id = ? ORDER BY number LIMIT 1", (import_id,)
    )
    if started_at is None or not done:
        return None
    return done / max((clock.now_ms() - int(started_at)) / 1000, 0.5)


def _collect_exports(directory: Path, process: int) -> Iterator[Task]:
    for export in streaming.read_progress(directory, process):
        seconds = max((clock.now_ms() - export.begun_at) / 1000, 0.5)
        speed = export.rows / seconds if export.rows else None
        yield _build_task(
            "export", None, export.account_id, export.name, "sending", "", export.rows, export.total, speed
        )


def _collect_bulk_actions() -> Iterator[Task]:
    actions_sql = "SELECT id, account_id, action, contact_count FROM bulk_action WHERE state = 'working' ORDER BY id"
    parts_sql = "SELECT count(*), total(done) FROM bulk_action_part WHERE bulk_action_id = ?"
    for number, account_id, act, people in rows(actions_sql):
        part_count, parts_done = fetch_one(parts_sql, (number,)) or (0, 0)
        done = int(people * parts_done / part_count) if part_count else 0
        yield _build_task("act", number, account_id, _ACTION_NAMES.get(act, act), "working", "", done, people, None)


def _collect_copies() -> Iterator[Task]:
    for kind, name in (("copy", "copy"), ("proof", "test restore")):
        row = history.find_open("copy" if kind == "copy" else "proof")
        if row is None:
            continue
        progress = history.get_progress(row)
        state = "waiting" if row.state == "waiting" else progress.step.replace("_", " ") or "starting"
        words = f"{progress.share:.0%}" if progress.step else ""
        yield _build_task(kind, row.id, accounts.FIRST_ACCOUNT_ID, name, state, words, 0, None, None)


def _describe_copies(settings: Config) -> Copies:
    copies = settings.copies
    good, last = history.find_last("copy", "succeeded"), history.find_last("copy")
    proof, proven = history.find_last("proof", "succeeded", "failed"), history.find_last("proof", "succeeded")
    lateness = schedule.measure_lateness(copies)
    return Copies(
        schedule.is_set_up(copies), None if good is None else clock.iso(good.taken_at),
        None if lateness.age is None else lateness.age / 1000, lateness.is_late,
        clock.iso(schedule.get_schedule("copy", copies).next_at or None),
        str(last.error) if last is not None and last.state == "failed" else "",
        "" if proof is None else "succeeded" if proof.state == "succeeded" else str(proof.error),
        None if proven is None else clock.iso(proven.ended_at),
    )  # fmt: skip


_DAY_COUNTERS = ("sent", "delivered", "bounced", "failed", "complained", "opened", "clicked", "unsubscribed")
# The event names, without the channel, of the counters that have another name than their event.
_EVENT_NAMES = {"bounced": ("bounced", "soft_bounced"), "unsubscribed": ("unsubscribed", "stopped")}


def collect_status(config: Config) -> Status:
    """Return the status of the installation, whose database must be open."""
    directory = Path(config.data_dir)
    process = data_dir.find_service_pid(directory)
    since = _find_midnight()
    account_ids = [row[0] for row in rows("SELECT id FROM account ORDER BY id")]
    return Status(
        VERSION, clock.iso(clock.now_ms()) or "", str(directory.absolute()), _describe_service(config, process),
        _list_stop_reasons(directory), collect_tasks(directory, process),
        [_measure_queue(channel, account_ids) for channel in delivery_status.CHANNELS], clock.iso(since) or "",
        [_count_day(channel, account_ids, since) for channel in delivery_status.CHANNELS], _measure_storage(directory),
        _count_submissions(config, since), _describe_copies(config),
    )  # fmt: skip


def _describe_service(config: Config, process: int | None) -> Service:
    listen = data_dir.read_listen_address(Path(config.data_dir)) or config.listen
    if process is None:
        return Service(False, None, listen, "not running")
    return Service(True, process, listen, fetch_readiness(listen))


def _count_submissions(config: Config, since: int) -> Submission:
    addresses = [address for address in (config.submission.listen, config.submission.listen_tls) if address]
    sql = "SELECT count(*) FROM api_key k JOIN raw_message r ON r.api_key_id = k.id WHERE r.created_at >= ?"
    return Submission(addresses, int(scalar(sql, (since,))))


def _list_stop_reasons(directory: Path) -> list[str]:
    """Return a sentence for the file STOP, if it exists, and for each account whose sending is stopped."""
    reasons = ["the file STOP in the data directory stops all sending"] if data_dir.has_stop_file(directory) else []
    for name, reason in rows("SELECT name, stop_reason FROM account WHERE sending_stopped = 1 ORDER BY id"):
        reasons.append(f"sending is stopped for {name}{f': {reason}' if reason else ''}")
    return reasons


def _measure_queue(channel: str, account_ids: list[int]) -> Queue:
    depth = delivery_status.measure_depth(channel)
    sent_recently = _count_events(account_ids, f"{channel}_sent", clock.now_ms() - _MINUTE_MS)
    return Queue(channel, depth.due, depth.later, depth.paused, depth.sending, depth.oldest_seconds, sent_recently)


def _count_day(channel: str, account_ids: list[int], since: int) -> Day:
    def number(name: str) -> int:
        return sum(
            _count_events(account_ids, f"{channel}_{event_name}", since)
            for event_name in _EVENT_NAMES.get(name, (name,))
        )

    return Day(channel, *(number(name) for name in _DAY_COUNTERS))


def _count_events(account_ids: list[int], event: str, since: int) -> int:
    """Return the number of events with this name since a time in ms, without tests.

    The accounts are counted one by one, because the index on events begins with the account.
    """
    query = "SELECT count(*) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? AND test = 0"
    return sum(int(scalar(query, (account_id, event, since))) for account_id in account_ids)


def _find_midnight() -> int:
    """Return the last midnight in the time zone of the first account, in milliseconds."""
    zone = ZoneInfo(str(scalar("SELECT time_zone FROM account ORDER BY id LIMIT 1") or "UTC"))
    now = datetime.fromtimestamp(clock.now_ms() / 1000, zone)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return int((midnight if midnight <= now else midnight - timedelta(days=1)).timestamp() * 1000)


def _measure_storage(directory: Path) -> Storage:
    database_bytes, wal_bytes = measure_database(directory)
    free, min_free = disk_guard.measure_free_space(directory)
    return Storage(database_bytes, wal_bytes, free, int(min_free))
