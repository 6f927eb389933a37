"""Members of segments: their SQL over the contact alias `c`, their number (also in the background), and samples."""

import random
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from appliance.audience.filters import compiler
from appliance.audience.filters.compiler import Node
from appliance.audience.filters.fields import Compiled, Scope
from appliance.audience.segments import query_plan
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.storage import database as storage_sql
from appliance.storage import transactions
from appliance.storage.database import close_database, connection, fetch_one, rows, scalar
from appliance.storage.models import Segment

_MAX_SECONDS = 20
_PROGRESS_STEPS = 200_000
# Up to this number of contacts, the matches of each filter are counted; above it, they are estimated from a sample.
EXACT_BELOW = 20_000
_SAMPLE_CONTACTS = 2_000
_EXISTS = {
    "list": "SELECT 1 FROM contact_list WHERE account_id = ? AND id = ?",
    "segment": "SELECT 1 FROM segment WHERE account_id = ? AND id = ?",
    "flow": "SELECT 1 FROM flow WHERE account_id = ? AND hidden = 0 AND deleted_at IS NULL AND id = ?",
    "campaign": "SELECT 1 FROM campaign WHERE account_id = ? AND id = ?",
}


class Share(Struct):
    """The number of contacts that match one filter by itself, and whether it is estimated from a sample."""

    count: int
    estimated: bool


def build_scope(account_id: int, writing: bool = False) -> Scope:
    """Return the scope in which the filters of an account are read and compiled now.

    With `writing`, ids in filters must refer to existing objects; without it, stored filters may refer to deleted ones.
    """
    # Only this column: a model of all columns costs a millisecond, and flows read a scope for each batch.
    zone = str(scalar("SELECT time_zone FROM account WHERE id = ?", (account_id,)))
    parsed_segments: dict[int, list[Node] | None] = {}
    existing: dict[tuple[str, int], bool] = {}

    def exists(kind: str, number: int) -> bool:
        if (kind, number) not in existing:
            existing[kind, number] = fetch_one(_EXISTS[kind], (account_id, number)) is not None
        return existing[kind, number]

    def segment(number: int) -> list[Node] | None:
        if number not in parsed_segments:
            row = Segment.get_or_none(Segment.account == account_id, Segment.id == number)
            parsed_segments[number] = compiler.parse_filters(row.filters, scope._replace(exists=None)) if row else None
        return parsed_segments[number]

    scope = Scope(account_id, zone, clock.now_ms(), exists=exists if writing else None, segment=segment)
    return scope


def parse_filters(account_id: int, filters: Any, writing: bool = False) -> list[Node]:
    """Parse filters of an account into nodes; raises Invalid with all errors. `writing` is as in `build_scope`."""
    return compiler.parse_filters(filters, build_scope(account_id, writing))


def compile_condition(account_id: int, filters: Any, prefix: str = "f") -> Compiled:
    """Compile stored filters of an account into a condition on the contact alias `c`.

    Raises Invalid if the filters cannot be parsed or have too many conditions.
    """
    scope = build_scope(account_id)
    return compiler.compile_filters(compiler.parse_filters(filters, scope), scope, prefix)


def compile_segment(account_id: int, segment_id: int, prefix: str) -> Compiled:
    """Compile the filters of a segment into a condition on `c`, which is false if the segment does not exist.

    Raises the errors of `compile_condition`.
    """
    segment = Segment.get_or_none(Segment.account == account_id, Segment.id == segment_id)
    return Compiled("0", {}) if segment is None else compile_condition(account_id, segment.filters, prefix)


def select_members(account_id: int, filters: Sequence[Node], scope: Scope, prefix: str = "f") -> Compiled:
    """Return FROM and WHERE of a query of all contacts `c` that match filters, planned for many contacts."""
    return _select_members(account_id, filters, scope, prefix)[1]


def _select_members(account_id: int, filters: Sequence[Node], scope: Scope, prefix: str) -> tuple[bool, Compiled]:
    """Return (whether the query starts from an index, FROM and WHERE of the query); see `select_members`."""
    start, remainder = query_plan.plan_query(filters, scope, prefix)
    parameters = {**remainder.parameters, f"{prefix}_account": account_id, **(start.parameters if start else {})}
    first_clause = [f"c.id IN ({start.sql})"] if start else []
    clauses = [contacts_source(f":{prefix}_account", start is not None), *first_clause, remainder.sql]
    return start is not None, Compiled(f"FROM {' AND '.join(clauses)}", parameters)


def contacts_source(placeholder: str, narrowed: bool = False) -> str:
    """Return FROM and the beginning of WHERE of a query of an account's contacts as `c`.

    The index on the account is not used if another condition already narrows the query to contacts from an index
    (`narrowed`), or if the installation has only one account. The table is then read in the order of its ids, so that
    events and addresses are looked up in their own order.
    """
    is_unindexed = narrowed or _is_only_account()
    return f"contact c {'NOT INDEXED ' if is_unindexed else ''}WHERE c.account_id = {placeholder}"


def _is_only_account() -> bool:
    """Return whether the installation has no second account."""
    return fetch_one("SELECT 1 FROM account LIMIT 1 OFFSET 1") is None


@contextmanager
def time_limit(is_cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Interrupt SQL statements in the `with` block after `_MAX_SECONDS`, or when `is_cancelled` returns True.

    An interrupted statement raises Invalid. The limit applies only to the database connection of this thread.
    """
    db = connection()
    deadline = clock.now() + _MAX_SECONDS
    db.set_progress_handler(lambda: clock.now() > deadline or is_cancelled(), _PROGRESS_STEPS)
    try:
        yield
    except apsw.InterruptError:
        raise Invalid({"filters": [gettext("takes too long to count: ask for less")]}) from None
    finally:
        db.set_progress_handler(None)


def count_contacts(account_id: int) -> int:
    """Return the number of contacts of an account, cached until the next write.

    Raises Invalid if counting takes too long.
    """
    if _is_only_account():
        # SQLite counts all rows of a table from the sizes of the pages of its smallest index, without reading the rows.
        return cached_count("SELECT count(*) FROM contact", {})
    # SQLite would choose the index by name, which is several times as large.
    sql = "SELECT count(*) FROM contact INDEXED BY contact_account_id_updated_at WHERE account_id = :account"
    return cached_count(sql, {"account": account_id})


def cached_count(sql: str, parameters: dict[str, Any]) -> int:
    """Return the count that a query selects, cached until the next write by any connection.

    Raises Invalid if counting takes too long.
    """
    with time_limit():
        return int(storage_sql.cached_rows(sql, parameters)[0][0])


def count_members(account_id: int, filters: Sequence[Node], scope: Scope) -> int:
    """Return the number of contacts that match filters; raises Invalid if counting takes too long."""
    if not filters:
        return count_contacts(account_id)
    selection = select_members(account_id, filters, scope)
    with time_limit():
        return int(scalar(f"SELECT count(*) {selection.sql}", selection.parameters))


def fetch_some(account_id: int, filters: Sequence[Node], scope: Scope, limit: int = 5) -> list[int]:
    """Return the ids of up to `limit` contacts that match filters; raises Invalid if the query takes too long."""
    selection = select_members(account_id, filters, scope)
    with time_limit():
        return [row[0] for row in rows(f"SELECT c.id {selection.sql} LIMIT {int(limit)}", selection.parameters)]


def count_and_fetch_some(
    account_id: int, filters: Sequence[Node], scope: Scope, limit: int = 5
) -> tuple[int, list[int]]:
    """Return the number of contacts that match filters, and the ids of up to `limit` of them.

    Raises Invalid if the query takes too long.
    """
    if not filters:
        return count_contacts(account_id), fetch_some(account_id, filters, scope, limit)
    uses_index, selection = _select_members(account_id, filters, scope, "f")
    with time_limit():
        if uses_index:
            # The index is read once for both results.
            matches = rows(
                f"WITH hit AS MATERIALIZED (SELECT c.id AS id {selection.sql}) SELECT (SELECT count(*) FROM hit), "
                f"(SELECT json_group_array(id) FROM (SELECT id FROM hit LIMIT {int(limit)}))",
                selection.parameters,
            )[0]
            return int(matches[0]), msgspec.json.decode(matches[1], type=list[int])
        first_ids = [row[0] for row in rows(f"SELECT c.id {selection.sql} LIMIT {int(limit)}", selection.parameters)]
        if len(first_ids) < limit:
            return len(first_ids), first_ids
        return int(scalar(f"SELECT count(*) {selection.sql}", selection.parameters)), first_ids


def count_each(
    account_id: int,
    filters: Sequence[Node],
    scope: Scope,
    exact_below: int = EXACT_BELOW,
    sampled: int = _SAMPLE_CONTACTS,
) -> list[Share]:
    """Return for each filter the number of contacts that match it by itself, in the order of the filters.

    In an account with more than `exact_below` contacts, the numbers are estimated from about `sampled` contacts. Raises
    Invalid if counting takes too long.
    """
    if not filters:
        return []
    total = count_contacts(account_id)
    with time_limit():
        if total > exact_below:
            shares = query_plan.estimate_shares(filters, scope, sampled)
            if shares:
                return [Share(round(shares[id(node)] * total), True) for node in filters]
        return [Share(number, False) for number in query_plan.count_matching(filters, scope)[1]]


# Each background count runs on its own thread and connection, so that neither pages nor the writer wait for it. A newer
# count for the same client replaces the older one. While it runs, a count shows the number of matches so far and a
# random sample of them, which depends on the seed.

# The number of counts that are kept. A page whose count is no longer kept starts it again.
_MAX_BACKGROUND_COUNTS = 200
_running = threading.BoundedSemaphore(2)
# An account has one count at a time, so that it does not delay the counts of the others.
_account_turns: weakref.WeakValueDictionary[int, threading.Lock] = weakref.WeakValueDictionary()
_latest_counts: "OrderedDict[tuple[int, str], BackgroundCount]" = OrderedDict()
_refreshing: set[int] = set()
_lock = threading.Lock()
# A refresh must not fall back to older counts, so its timeout is practically unlimited.
_BACKGROUND_TIMEOUT_SECONDS = 3600.0
SAMPLE_SIZE = 8


class BackgroundCount:
    """A count in the background: `match_count` grows until `is_done`.

    `sample` holds the ids of up to `SAMPLE_SIZE` matches, and `contact_count` the number of all contacts of the
    account. Set `is_stale` to stop a running count. `error` is the error that ended the count, or None.
    """

    def __init__(self, account_id: int, filters: Any, seed: int) -> None:
        self.account_id = account_id
        self.filters = filters
        self.seed = seed
        self.match_count = 0
        self.contact_count = 0
        self.sample: list[int] = []
        self.error: Invalid | None = None
        self.is_stale = False
        self._done = threading.Event()
        self._was_stopped_at_start = transactions.is_stopped()

    @property
    def is_done(self) -> bool:
        """Return whether the count has ended, by an error or a cancellation too."""
        return self._done.is_set()

    @property
    def floor(self) -> int:
        """Return the matches so far, rounded down to the largest unit of 1,000, 10,000 or 100,000; 0 below 1,000."""
        step = next((step for step in (100_000, 10_000, 1_000) if self.match_count >= step), 0)
        return self.match_count // step * step if step else 0

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the count to end, and return whether it has ended."""
        return self._done.wait(seconds)

    def run(self) -> None:
        """Run the count on the current thread, and close the thread's database connection afterwards."""
        try:
            with _lock:
                turn = _account_turns.setdefault(self.account_id, threading.Lock())
            with turn, _running:
                if not self._is_cancelled():
                    self._count()
        except Invalid as error:
            self.error = error
        finally:
            close_database()
            self._done.set()

    def _is_cancelled(self) -> bool:
        return self.is_stale or (transactions.is_stopped() and not self._was_stopped_at_start)

    def _count(self) -> None:
        rng = random.Random(self.seed)
        self.contact_count = count_contacts(self.account_id)
        nodes = parse_filters(self.account_id, self.filters)
        if not nodes:
            self.sample = _sample_contacts(self.account_id, rng)
            self.match_count = self.contact_count
            return
        selection = select_members(self.account_id, nodes, build_scope(self.account_id))
        with time_limit(self._is_cancelled):
            cursor = connection().execute(f"SELECT c.id {selection.sql}", selection.parameters)
            try:
                for (contact_id,) in cursor:
                    self._add_match(contact_id, rng)
            finally:
                cursor.close(True)

    def _add_match(self, contact_id: int, rng: random.Random) -> None:
        """Count a match and sample it so that each match has the same chance (reservoir sampling)."""
        self.match_count += 1
        if len(self.sample) < SAMPLE_SIZE:
            self.sample.append(contact_id)
            return
        position = int(rng.random() * self.match_count)
        if position < SAMPLE_SIZE:
            self.sample[position] = contact_id


def start_count(account_id: int, client: str, filters: Any, seed: int = 0) -> BackgroundCount:
    """Start a count in the background, and cancel the previous count of the same client.

    If the client's previous count has the same filters and seed and is still running, that one is returned.
    """
    count = BackgroundCount(account_id, filters, seed)
    with _lock:
        previous = _latest_counts.pop((account_id, client), None)
        if previous is not None and not previous.is_done and (previous.filters, previous.seed) == (filters, seed):
            count = previous
        elif previous is not None:
            previous.is_stale = True
        _latest_counts[account_id, client] = count
        if len(_latest_counts) > _MAX_BACKGROUND_COUNTS:
            _latest_counts.popitem(last=False)[1].is_stale = True
    if count is not previous:
        threading.Thread(target=count.run, name="counter", daemon=True).start()
    return count


def find_count(account_id: int, client: str) -> BackgroundCount | None:
    """Return the latest background count that a client started, or None if newer counts have displaced it."""
    with _lock:
        return _latest_counts.get((account_id, client))


def refresh_counts(account_id: int, segments: list[Segment]) -> None:
    """Count segments on a background thread, so that `count_segments` has fresh numbers.

    Does nothing if all counts are fresh, or if a refresh for this account is running.
    """
    with _lock:
        if are_fresh(segments) or account_id in _refreshing:
            return
        _refreshing.add(account_id)
    threading.Thread(target=_refresh_counts, args=(account_id, segments), name="counter", daemon=True).start()


def _refresh_counts(account_id: int, segments: list[Segment]) -> None:
    was_stopped_at_start = transactions.is_stopped()
    try:
        for segment in segments:
            if transactions.is_stopped() and not was_stopped_at_start:
                return
            with suppress(Invalid):
                count_segments(account_id, [segment], timeout_seconds=_BACKGROUND_TIMEOUT_SECONDS)
    finally:
        close_database()
        with _lock:
            _refreshing.discard(account_id)


def _sample_contacts(account_id: int, rng: random.Random) -> list[int]:
    """Return the ids of up to `SAMPLE_SIZE` random contacts of an account, without reading all contacts."""
    min_id, max_id = rows("SELECT min(id), max(id) FROM contact WHERE account_id = ?", (account_id,))[0]
    if min_id is None:
        return []
    random_ids = ",".join(str(rng.randint(min_id, max_id)) for _ in range(SAMPLE_SIZE * 8))
    ids = [
        row[0] for row in rows(f"SELECT id FROM contact WHERE account_id = ? AND id IN ({random_ids})", (account_id,))
    ]
    if len(ids) < SAMPLE_SIZE:
        ids = [row[0] for row in rows("SELECT id FROM contact WHERE account_id = ? LIMIT 500", (account_id,))]
    rng.shuffle(ids)
    return ids[:SAMPLE_SIZE]


# If the highest contact id is at most this, counts of segments are always current; otherwise they may be a minute old.
_MAX_EXACT_CONTACTS = 20_000

_FRESH_MS = 60_000

_COUNT_TIMEOUT_SECONDS = 1.5

# By segment id: (`updated_at` of the segment when it was counted, time of the count, count).
_cached_counts: dict[int, tuple[int, int, int]] = {}


def are_fresh(segments: list[Segment]) -> bool:
    """Return whether each segment was counted within the last minute and has not been changed since."""
    counted = [(_cached_counts.get(segment.id), segment) for segment in segments]
    return all(
        cached and cached[0] == counted_segment.updated_at and clock.now_ms() - cached[1] < _FRESH_MS
        for cached, counted_segment in counted
    )


def count_segments(
    account_id: int, segments: list[Segment], timeout_seconds: float = _COUNT_TIMEOUT_SECONDS
) -> dict[int, int | None]:  # fmt: skip
    """Return the number of members of each segment by its id; raises Invalid if counting takes too long.

    In an installation with more than `_MAX_EXACT_CONTACTS` contacts, a count may be a minute old, and no count is
    started after `timeout_seconds`: the remaining segments get an older count, or None if they were never counted.
    """
    started = time.monotonic()
    is_large = int(scalar("SELECT coalesce(max(id), 0) FROM contact")) > _MAX_EXACT_CONTACTS
    counts: dict[int, int | None] = {}
    for segment in segments:
        cached = _cached_counts.get(segment.id)
        is_fresh = cached is not None and cached[0] == segment.updated_at and clock.now_ms() - cached[1] < _FRESH_MS
        if is_large and cached is not None and (is_fresh or time.monotonic() - started >= timeout_seconds):
            counts[segment.id] = cached[2]
        elif is_large and time.monotonic() - started >= timeout_seconds:
            counts[segment.id] = None
        else:
            scope = build_scope(account_id)
            number = count_members(account_id, parse_filters(account_id, segment.filters), scope)
            _cached_counts[segment.id] = (segment.updated_at, clock.now_ms(), number)
            counts[segment.id] = number
    return counts
