"""Mirrors: lists whose members follow a segment.

Soon after contacts change, a mirror is compared with its segment, and the difference is written in small batches. The
accounts take turns, and what comparing a mirror may cost is limited: a little in the thread of ordinary mirrors, more
in the thread of slow ones. A mirror that costs too much there, too, is put off, each time for longer; its members stay.
"""

import json
import logging
import threading
import time
from typing import NamedTuple

from appliance.audience.filters import compiler
from appliance.audience.lists import set_staleness
from appliance.audience.segments import members
from appliance.audience.segments.condition_budget import MAX_SEGMENT, ConditionsTooSlow, Cost, limit_statement
from appliance.core import clock, signals
from appliance.core.limited_process import FairShares
from appliance.storage import database as storage_sql
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run, scalar
from appliance.storage.models import ContactList, Segment
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.mirrors")
_CHUNK = 500
# The pause before a stale mirror is populated again is `_SHARE` times the duration of the last refresh, but at least
# `_SOON` and at most `_LATEST` seconds.
_SOON, _SHARE, _LATEST = 1.0, 10, 45.0
# What comparing a mirror may cost in the thread of ordinary mirrors, so that another account waits no longer, and in
# the thread of slow mirrors.
MAX_ORDINARY, MAX_SLOW = Cost(50_000_000, 2.0), MAX_SEGMENT
# How long a mirror that costs too much is put off the first time, and at most; each time twice as long.
_FIRST_REST_SECONDS, _MAX_REST_SECONDS = 120.0, 3600.0


class _Refresh(NamedTuple):
    at: float
    took: float
    version: int


class _Postponement(NamedTuple):
    """Until when a mirror is put off (`time.monotonic`), how long that is, and the state of its account's segments.

    After an edit of a segment it is tried again at once.
    """

    until: float
    seconds: float
    segments_changed_at: int


class _Pending(NamedTuple):
    """A mirror to populate: its account, and the data version (`PRAGMA data_version`) that the check saw.

    Versions can be compared only on the same connection.
    """

    account_id: int
    version: int


_last_refreshes: dict[int, _Refresh] = {}
_postponed: dict[int, _Postponement] = {}
_pending: dict[int, _Pending] = {}
# The mirrors that are compared in the thread of slow ones.
_slow: set[int] = set()


class _Lane:
    """The mirrors that one thread compares, either the ordinary or the slow ones; their accounts take turns."""

    def __init__(self, is_slow: bool) -> None:
        self._is_slow = is_slow
        self._lock = threading.Lock()
        self._shares = FairShares()

    def has_pending(self) -> bool:
        """Return whether there are mirrors to populate."""
        return any((list_id in _slow) == self._is_slow for list_id in list(_pending))

    def refresh(self) -> None:
        """Populate the mirrors that `find_stale_mirrors` selected for this lane, in turns of their accounts.

        Return at once if another thread is doing so. A mirror that costs too much is moved to the lane of slow mirrors
        or put off.
        """
        if not self._lock.acquire(blocking=False):
            return
        was_stopped_at_start = transactions.is_stopped()
        try:
            while (turn := self._take_next()) is not None:
                if transactions.is_stopped() and not was_stopped_at_start:
                    return
                list_id, account_id = turn
                started_at = time.monotonic()
                try:
                    self._refresh_mirror(list_id)
                finally:
                    self._shares.charge(account_id, time.monotonic() - started_at)
        finally:
            self._lock.release()

    def _take_next(self) -> tuple[int, int] | None:
        """Return (list id, account id) of the next mirror, or None."""
        first_mirrors: dict[int, int] = {}
        for list_id, pending in list(_pending.items()):
            if (list_id in _slow) == self._is_slow:
                first_mirrors.setdefault(pending.account_id, list_id)
        if not first_mirrors:
            return None
        account_id = self._shares.next(first_mirrors)
        return first_mirrors[account_id], account_id

    def _refresh_mirror(self, list_id: int) -> None:
        """Populate a mirror, and set when it is due again and in which lane."""
        started_at, version = time.monotonic(), _pending[list_id].version
        try:
            refresh_mirror(list_id, MAX_SLOW if self._is_slow else MAX_ORDINARY)
            _postponed.pop(list_id, None)
            if self._is_slow and time.monotonic() - started_at < MAX_ORDINARY.seconds / 2:
                _slow.discard(list_id)
        except ConditionsTooSlow:
            if self._is_slow:
                _postpone(list_id)
            _slow.add(list_id)
        finally:
            _last_refreshes[list_id] = _Refresh(time.monotonic(), time.monotonic() - started_at, version)
            if self._is_slow or list_id not in _slow:
                _pending.pop(list_id, None)


_ordinary_lane, _slow_lane = _Lane(is_slow=False), _Lane(is_slow=True)


def find_stale_mirrors() -> tuple[bool, bool]:
    """Select the mirrors that should be populated now; return whether there are ordinary ones and slow ones.

    Call it always from the same thread (a job does so once a second), because data versions differ between connections.
    """
    mirrors = list(ContactList.select().where(ContactList.segment.is_null(False)).order_by(ContactList.id))
    existing = {mirror.id for mirror in mirrors}
    for memory in (_last_refreshes, _postponed):
        for list_id in memory.keys() - existing - _pending.keys():
            memory.pop(list_id, None)
    for list_id in _slow - existing - _pending.keys():
        _slow.discard(list_id)
    for mirror in mirrors:
        version = storage_sql.data_version()
        if mirror.id not in _pending and _needs_refresh(mirror, version):
            _pending[mirror.id] = _Pending(mirror.account_id, version)
    return _ordinary_lane.has_pending(), _slow_lane.has_pending()


def refresh_ordinary_mirrors() -> None:
    """Populate the ordinary mirrors that `find_stale_mirrors` selected, and find out which ones are slow."""
    _ordinary_lane.refresh()
    if _slow_lane.has_pending():
        signals.wake("slow_mirrors")


def refresh_slow_mirrors() -> None:
    """Populate the slow mirrors that `find_stale_mirrors` selected."""
    _slow_lane.refresh()


def is_postponed(list_id: int) -> bool:
    """Return whether a mirror is put off, because comparing it with its segment costs too much."""
    return list_id in _postponed


def _needs_refresh(mirror: ContactList, version: int) -> bool:
    last_refresh, postponement = _last_refreshes.get(mirror.id), _postponed.get(mirror.id)
    if postponement is not None:
        return (
            time.monotonic() > postponement.until
            or _segments_changed_at(mirror.account_id) != postponement.segments_changed_at
        )
    if last_refresh is None:
        return True
    passed = time.monotonic() - last_refresh.at
    if set_staleness(mirror).stale:
        return passed > min(max(_SOON, last_refresh.took * _SHARE), _LATEST)
    # Some changes set no timestamp and record no event. With relative time windows, members change without any write.
    return passed > _LATEST and (last_refresh.version != version or _depends_on_time(mirror.account_id))


def _postpone(list_id: int) -> None:
    """Put a mirror off, for twice as long as the last time."""
    last, account_id = _postponed.get(list_id), _pending[list_id].account_id
    changed_at = _segments_changed_at(account_id)
    seconds = _FIRST_REST_SECONDS
    if last is not None and last.segments_changed_at == changed_at:
        seconds = min(2 * last.seconds, _MAX_REST_SECONDS)
    _postponed[list_id] = _Postponement(time.monotonic() + seconds, seconds, changed_at)
    log.warning("mirrors: put off, its segment costs too much list=%s account=%s", list_id, account_id)


def _depends_on_time(account_id: int) -> bool:
    return bool(rows("SELECT 1 FROM segment WHERE account_id = ? AND filters LIKE '%within_days%' LIMIT 1",
                     (account_id,)))  # fmt: skip


def refresh_mirror(list_id: int, limit: Cost = MAX_SLOW) -> None:
    """Make the members of a mirror equal to its segment, in write transactions of up to `_CHUNK` contacts.

    Contacts who have left the list are not added. Call it outside of a write transaction. Raises ConditionsTooSlow, and
    changes nothing, if comparing them costs more than `limit`.
    """
    mirror = ContactList.get_or_none(ContactList.id == list_id)
    if mirror is None or mirror.segment_id is None:
        return
    stale = set_staleness(mirror).stale
    now, event_id = clock.now_ms(), int(scalar("SELECT max(id) FROM event") or 0)
    changed_at = _segments_changed_at(mirror.account_id)
    with limit_statement(limit):
        joining, leaving = _find_difference(mirror)
    for ids, verb in ((joining, _add_mirrored), (leaving, _remove_mirrored)):
        for start in range(0, len(ids), _CHUNK):
            transactions.write(verb, list_id, mirror.segment_id, ids[start : start + _CHUNK])
    if stale or joining or leaving or mirror.last_populated_at is None:
        transactions.write(_mark_populated, mirror, now, event_id, changed_at)


def _segments_changed_at(account_id: int) -> int:
    return int(scalar("SELECT max(updated_at) FROM segment WHERE account_id = ?", (account_id,)) or 0)


def _find_difference(mirror: ContactList) -> tuple[list[int], list[int]]:
    scope = members.build_scope(mirror.account_id)
    nodes = compiler.parse_filters(Segment.get_by_id(mirror.segment_id).filters, scope)
    selection = members.select_members(mirror.account_id, nodes, scope)
    joining = rows(
        f"SELECT c.id {selection.sql} "
        "AND NOT EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = :list AND m.contact_id = c.id) "
        "AND NOT EXISTS (SELECT 1 FROM list_opt_out r WHERE r.contact_list_id = :list AND r.contact_id = c.id)",
        {**selection.parameters, "list": mirror.id},
    )
    exact = compiler.compile_filters(nodes, scope)
    leaving = rows(
        f"SELECT m.contact_id FROM membership m CROSS JOIN contact c ON c.id = m.contact_id "
        f"WHERE m.contact_list_id = :list AND ({exact.sql}) IS NOT TRUE",
        {**exact.parameters, "list": mirror.id},
    )
    return [row[0] for row in joining], [row[0] for row in leaving]


def _add_mirrored(list_id: int, segment_id: int, contact_ids: list[int]) -> None:
    # A contact may have been deleted since the difference was computed.
    _change_mirror(
        list_id, segment_id, 1,
        "INSERT INTO membership SELECT :list, c.id, :now FROM contact c "
        "WHERE c.id IN (SELECT value FROM json_each(:ids)) ON CONFLICT DO NOTHING",
        {"list": list_id, "ids": json.dumps(contact_ids), "now": clock.now_ms()},
    )  # fmt: skip


def _remove_mirrored(list_id: int, segment_id: int, contact_ids: list[int]) -> None:
    _change_mirror(
        list_id, segment_id, -1,
        "DELETE FROM membership WHERE contact_list_id = :list AND contact_id IN (SELECT value FROM json_each(:ids))",
        {"list": list_id, "ids": json.dumps(contact_ids)},
    )  # fmt: skip


def _change_mirror(list_id: int, segment_id: int, sign: int, sql: str, parameters: dict[str, object]) -> None:
    require_write_transaction()
    # The list may have become static, or got another segment, since the difference was computed.
    if scalar("SELECT segment_id FROM contact_list WHERE id = ?", (list_id,)) != segment_id:
        return
    number = run(sql, parameters)
    connection().execute(
        "UPDATE contact_list SET contacts_count = contacts_count + ? WHERE id = ?", (sign * number, list_id)
    )


def _mark_populated(mirror: ContactList, now: int, event_id: int, changed_at: int) -> None:
    require_write_transaction()
    still_stale = _segments_changed_at(mirror.account_id) != changed_at
    connection().execute(
        "UPDATE contact_list SET stale = ?, last_populated_at = ?, seen_event_id = ? WHERE id = ? AND segment_id = ?",
        (still_stale, now, event_id, mirror.id, mirror.segment_id),
    )
