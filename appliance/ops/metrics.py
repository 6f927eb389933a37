"""Metrics in the Prometheus text format: counters of this process, numbers from the database, process and storage.

We do not use prometheus_client: its registry has one set of values per process, while a scrape of this endpoint returns
the metrics of either the whole installation or one account. Writing the text format takes twenty lines.
"""

import collections
import math
import os
import platform
import re
import resource
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import apsw

from appliance import VERSION
from appliance.core import clock, data_dir, metrics
from appliance.core.cache import CostAwareCache
from appliance.core.errors import Unavailable
from appliance.core.metrics import Counter, Family, Gauge, Histogram, Labels, gauge_family
from appliance.ops import litestream
from appliance.sending.messages import delivery_status
from appliance.sending.messages.delivery_status import CHANNELS
from appliance.settings import config
from appliance.storage import disk_guard, send_lease
from appliance.storage.database import fetch_one, rows, scalar

_start_time = 0.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM_PATH, _FD_DIRECTORY = Path("/proc/self/statm"), Path("/proc/self/fd")


def set_start_time() -> None:
    """Record the current time as the start time of the service."""
    global _start_time
    _start_time = time.time()


def collect_machine_metrics() -> Iterator[Family]:
    """Yield the metrics that belong to no account: version, start time, process, database files and disk."""
    versions = {"version": VERSION, "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    yield gauge_family("build_info", "Always 1; the labels hold the versions.", [(versions, 1)])
    yield gauge_family(
        "process_start_time_seconds", "Start time of the service in seconds since 1970.", [({}, _start_time)]
    )
    yield from _collect_process_metrics()
    yield from _collect_storage_metrics()
    if litestream.is_used():
        yield from _collect_replication_metrics()


def _collect_process_metrics() -> Iterator[Family]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = gauge_family(
        "process_cpu_seconds_total", "Processor time of this process.", [({}, usage.ru_utime + usage.ru_stime)]
    )
    yield cpu._replace(kind="counter")
    yield gauge_family(
        "process_resident_memory_bytes", "Memory of this process.", [({}, _read_resident_bytes(usage.ru_maxrss))]
    )
    max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield gauge_family("process_max_fds", "Maximum number of open file descriptors.", [({}, max_files)])
    if _FD_DIRECTORY.is_dir():
        yield gauge_family(
            "process_open_fds", "Number of open file descriptors.", [({}, sum(1 for _ in _FD_DIRECTORY.iterdir()))]
        )


def _read_resident_bytes(peak_kib: int) -> int:
    """Return the resident memory of this process in bytes; without /proc, `peak_kib` (its peak in KiB) in bytes."""
    try:
        return int(_STATM_PATH.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return peak_kib * 1024


def measure_database(directory: Path) -> tuple[int, int]:
    """Return the sizes of the database and of its write-ahead log in bytes, 0 for a file that cannot be read."""
    sizes = []
    for name in ("campanero.db", "campanero.db-wal"):
        try:
            sizes.append((directory / name).stat().st_size)
        except OSError:
            sizes.append(0)
    return sizes[0], sizes[1]


def _collect_replication_metrics() -> Iterator[Family]:
    """Yield whether Litestream answers, and if so the seconds since it had copied all changes."""
    try:
        lag = max(0.0, time.time() - litestream.read_last_sync(Path(config.current().data_dir) / "campanero.db"))
    except litestream.LitestreamDown:
        yield gauge_family("litestream_up", "1 if Litestream copies the database, else 0.", [({}, 0)])
        return
    yield gauge_family("litestream_up", "1 if Litestream copies the database, else 0.", [({}, 1)])
    yield gauge_family("litestream_lag_seconds", "Seconds since Litestream had copied everything.", [({}, lag)])


def _collect_storage_metrics() -> Iterator[Family]:
    directory = Path(config.current().data_dir)
    database_bytes, wal_bytes = measure_database(directory)
    yield gauge_family("database_bytes", "Size of the database file.", [({}, database_bytes)])
    yield gauge_family("database_wal_bytes", "Size of the database's write-ahead log.", [({}, wal_bytes)])
    try:
        free, min_free = disk_guard.measure_free_space(directory)
    except OSError:
        free, min_free = 0, 0.0
    yield gauge_family("disk_free_bytes", "Free space on the disk of the data directory.", [({}, free)])
    yield gauge_family("disk_least_free_bytes", "Sending stops below this free space.", [({}, min_free)])
    yield gauge_family("storage_trouble", "1 while sending is stopped because the database cannot be written, else 0.",
                [({}, int(disk_guard.send_blocker() is not None))])  # fmt: skip
    yield gauge_family("send_lease_held", "0 while sending is stopped because this machine has no lease, else 1.",
                [({}, int(send_lease.is_held()))])  # fmt: skip
    yield gauge_family("stop_file", "1 while a file STOP in the data directory stops all sending, else 0.",
                [({}, int(data_dir.has_stop_file(directory)))])  # fmt: skip


# Counting a queue of a million messages takes a third of a second. The result is cached for 20 times the duration of
# the count, in this case about six seconds.
_table_metrics: CostAwareCache[list[Family]] = CostAwareCache(cost_factor=20, min_cost_seconds=0.01)
_IMPORT_STATES = {"waiting": "status = 'pending'", "running": "status = 'processing'", "failed": "status = 'failed'"}


def collect_table_metrics(account_id: int | None) -> list[Family]:
    """Return the metrics of queue, campaigns, imports, flows and webhooks, of one account or (None) of all.

    The result is cached for 20 times as long as it took to collect, or not at all if it took less than 10 ms.
    """
    return _table_metrics.get(
        account_id,
        lambda: [
            *_collect_queue_metrics(account_id),
            *_collect_work_metrics(account_id),
            *_collect_webhook_metrics(account_id),
        ],
    )


def _collect_queue_metrics(account_id: int | None) -> Iterator[Family]:
    depths = {channel: delivery_status.measure_depth(channel, account_id) for channel in CHANNELS}
    states = [
        ({"channel": channel, "state": state}, number)
        for channel, depth in depths.items()
        for state, number in (
            ("due", depth.due), ("later", depth.later), ("paused", depth.paused), ("in_hand", depth.sending)
        )
    ]  # fmt: skip
    help_text = "Queued messages: due, scheduled for later, of paused campaigns, or being sent."
    yield gauge_family("queue_messages", help_text, states)
    ages = [({"channel": channel}, depth.oldest_seconds) for channel, depth in depths.items()]
    yield gauge_family("queue_oldest_due_seconds", "Age of the oldest due message.", ages)
    live = "SELECT channel, count(*) FROM campaign WHERE account_id = coalesce(?, account_id) AND phase IN " \
           "('holding', 'sending') AND deleted_at IS NULL GROUP BY channel"  # fmt: skip
    sending = dict(rows(live, (account_id,)))
    numbers = [({"channel": channel}, sending.get(channel, 0)) for channel in CHANNELS]
    yield gauge_family("campaigns_sending", "Campaigns that are being sent.", numbers)


def _collect_work_metrics(account_id: int | None) -> Iterator[Family]:
    account_condition = "AND +account_id = coalesce(?, account_id)"
    states = [
        ({"state": state}, scalar(f"SELECT count(*) FROM import WHERE {condition} {account_condition}", (account_id,)))
        for state, condition in _IMPORT_STATES.items()
    ]
    yield gauge_family("imports", "Imports by state; failed imports until they are deleted.", states)
    active = "FROM flow WHERE status = 'active' AND hidden = 0 AND deleted_at IS NULL"
    flows = f"SELECT count(*) {active} {account_condition}"
    yield gauge_family("flows_active", "Active flows.", [({}, scalar(flows, (account_id,)))])
    due = (
        f"SELECT count(*) FROM run WHERE status = 'live' AND due_at <= ? AND flow_id IN (SELECT id {active} "
        "AND account_id = coalesce(?, account_id))"
    )
    due_runs = scalar(due, (clock.now_ms(), account_id))
    yield gauge_family("flow_runs_due", "Flow runs whose next step is due.", [({}, due_runs)])


def _collect_webhook_metrics(account_id: int | None) -> Iterator[Family]:
    waiting, oldest, now = 0, [], clock.now_ms()
    hooks = rows("SELECT id, failing_since FROM webhook WHERE enabled AND deleted_at IS NULL "
                 "AND account_id = coalesce(?, account_id)", (account_id,))  # fmt: skip
    for number, _ in hooks:
        row = fetch_one("SELECT count(*), min(next_attempt_at) FROM webhook_delivery WHERE webhook_id = ? "
                    "AND status = 'pending'", (number,)) or (0, None)  # fmt: skip
        waiting += row[0]
        oldest += [row[1]] if row[1] is not None else []
    yield gauge_family("webhook_deliveries_waiting", "Webhook deliveries that are pending.", [({}, waiting)])
    age_seconds = max(0, now - min(oldest, default=now)) / 1000
    yield gauge_family("webhook_oldest_due_seconds", "Age of the oldest due webhook delivery.", [({}, age_seconds)])
    failing = sum(since is not None for _, since in hooks)
    yield gauge_family("webhooks_failing", "Webhooks whose last attempts all failed.", [({}, failing)])


CONTENT_TYPE = "text/plain; version=0.0.4"
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_VALUE_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def format_metrics(families: Iterable[Family]) -> str:
    """Return metric families in the text format 0.0.4 of Prometheus. Families without samples are left out."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}", f"# TYPE {family.name} {family.kind}"]
        for suffix, labels, value in family.samples:
            named = ",".join(f'{name}="{value.translate(_VALUE_ESCAPES)}"' for name, value in labels)
            lines.append(f"{family.name}{suffix}{f'{{{named}}}' if named else ''} {_format_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _format_number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def render_metrics(account_id: int | None) -> str:
    """Return the metrics of one account, or of the whole installation if `account_id` is None, in the text format.

    For an account, the metrics of process and storage are left out, because the growth of the database would show how
    much other accounts send. The metrics of the database are left out while it cannot be read.
    """
    families: list[Family] = metrics.collect(account_id)
    # Without the database, the other metrics show the cause (`storage_trouble`).
    try:
        families += collect_table_metrics(account_id)
    except Exception as error:
        if disk_guard.to_storage_error(error) is None and not isinstance(error, Unavailable):
            raise
    families += [] if account_id is not None else collect_machine_metrics()
    return format_metrics(sorted(families, key=lambda family: family.name))


_REQUEST_SECONDS = Histogram(
    "http_request_seconds",
    "Time from a request to the start of its response, by path pattern and status class.",
    ("method", "route", "status"),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PATH_PARAMETER = re.compile(r"<(\w+)(?::[^<>]*)?>")


def record_request(method: str, route: str | None, status: int, seconds: float) -> None:
    """Record a request and the seconds until its response started.

    `route` is the path pattern in Sanic's syntax, such as `v1/my/contacts/<number>`, or None if no route matched.
    """
    _REQUEST_SECONDS.observe(
        seconds, method if method in _METHODS else "other", _label_route(route), f"{status // 100}xx"
    )


@cache
def _label_route(route: str | None) -> str:
    if route is None:
        return "unknown"
    return "/" + _PATH_PARAMETER.sub(r"{\1}", route.strip("/")).replace("{number}", "{id}")


_JOB_COUNTS = Gauge("jobs", "Background jobs by name and state: waiting for a thread, or running.", ("job", "state"))
_FAILURES = Counter("job_failures_total", "Failed background jobs by name.", ("job",))


class JobMetrics:
    """The metrics of background jobs: for each name, how many are waiting and running, and how many runs failed.

    `waiting` returns the names of the jobs that wait for a thread.
    """

    def __init__(self, waiting: Callable[[], Collection[str]]) -> None:
        self._waiting = waiting
        self._running: collections.Counter[str] = collections.Counter()
        self._names: set[str] = set()
        self._lock = threading.Lock()
        _JOB_COUNTS.set_function(self._collect_states)

    def register(self, name: str) -> None:
        """Add a job, so that the metrics contain it even before its first run."""
        self._names.add(name)

    @contextmanager
    def track_run(self, name: str) -> Iterator[None]:
        """Count a job as running during the block, and count an error other than Unavailable as a failure."""
        with self._lock:
            self._running[name] += 1
        try:
            yield
        except Unavailable:
            raise
        except Exception:
            _FAILURES.increment(name)
            raise
        finally:
            with self._lock:
                self._running[name] -= 1

    def _collect_states(self) -> Iterator[tuple[Labels, float]]:
        waiting = frozenset(self._waiting())
        with self._lock:
            running = dict(self._running)
        for name in self._names:
            yield (name, "waiting"), int(name in waiting)
            yield (name, "running"), running.get(name, 0)
