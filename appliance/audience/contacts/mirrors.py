"""Lists that mirror a segment: populated by the difference, in small chunks, soon after people change."""

import json
import threading
import time
from typing import NamedTuple

from appliance.audience.contacts import lists
from appliance.audience.filters import compile, read
from appliance.audience.segments import people
from appliance.core import clock
from appliance.storage import sql as storage_sql
from appliance.storage import work
from appliance.storage.models import ContactList, Segment
from appliance.storage.open import connection, rows, run, scalar
from appliance.storage.work import writing

_CHUNK = 500
# A stale mirror is populated again after so many seconds, and a large one not more than a tenth of the time
_SOON, _SHARE, _LATEST = 1.0, 10, 45.0


class _Look(NamedTuple):
    at: float
    took: float
    version: int


_looked: dict[int, _Look] = {}
# Found due by the pulse, with the version its connection saw: other connections count in numbers of their own
_pending: dict[int, int] = {}
_one_at_a_time = threading.Lock()


def is_due() -> bool:
    """Return whether some mirror should be populated now; called once a second, always from the same thread."""
    for mirror in ContactList.select().where(ContactList.segment.is_null(False)).order_by(ContactList.id):
        version = storage_sql.changes_elsewhere()
        if mirror.id not in _pending and _is_due(mirror, version):
            _pending[mirror.id] = version
    return bool(_pending)


def refresh_due() -> None:
    """Populate the mirrors that were found due; a second caller leaves at once."""
    if not _one_at_a_time.acquire(blocking=False):
        return
    try:
        for list_id, version in list(_pending.items()):
            started = time.monotonic()
            try:
                refresh(list_id)
            finally:
                _looked[list_id] = _Look(time.monotonic(), time.monotonic() - started, version)
                _pending.pop(list_id, None)
    finally:
        _one_at_a_time.release()


def _is_due(mirror: ContactList, version: int) -> bool:
    look = _looked.get(mirror.id)
    if look is None:
        return True
    passed = time.monotonic() - look.at
    if lists.dress(mirror).stale:
        return passed > min(max(_SOON, look.took * _SHARE), _LATEST)
    # What leaves no trace in time stamps or events, and time itself: windows move while nobody writes
    return passed > _LATEST and (look.version != version or _moves(mirror.account_id))


def _moves(account_id: int) -> bool:
    return bool(rows("SELECT 1 FROM segment WHERE account_id = ? AND filters LIKE '%within_days%' LIMIT 1",
                     (account_id,)))  # fmt: skip


def refresh(list_id: int) -> None:
    """Make a mirror's members those of its segment now; who left the list by their own act stays out."""
    mirror = ContactList.get_or_none(ContactList.id == list_id)
    if mirror is None or mirror.segment_id is None:
        return
    stale = lists.dress(mirror).stale
    now, event_id = clock.now_ms(), int(scalar("SELECT max(id) FROM event") or 0)
    changed_at = _changed_at(mirror.account_id)
    joining, leaving = _difference(mirror)
    for ids, verb in ((joining, _join), (leaving, _leave)):
        for start in range(0, len(ids), _CHUNK):
            work.write(verb, list_id, mirror.segment_id, ids[start : start + _CHUNK])
    if stale or joining or leaving or mirror.last_populated_at is None:
        work.write(_populated, mirror, now, event_id, changed_at)


def _changed_at(account_id: int) -> int:
    return int(scalar("SELECT max(updated_at) FROM segment WHERE account_id = ?", (account_id,)) or 0)


def _difference(mirror: ContactList) -> tuple[list[int], list[int]]:
    here = people.scope(mirror.account_id)
    nodes = read.filters(Segment.get_by_id(mirror.segment_id).filters, here)
    chosen = people.select(mirror.account_id, nodes, here)
    joining = rows(
        f"SELECT c.id {chosen.sql} "
        "AND NOT EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = :list AND m.contact_id = c.id) "
        "AND NOT EXISTS (SELECT 1 FROM list_refusal r WHERE r.contact_list_id = :list AND r.contact_id = c.id)",
        {**chosen.parameters, "list": mirror.id},
    )
    exact = compile.condition(nodes, here)
    leaving = rows(
        f"SELECT m.contact_id FROM membership m CROSS JOIN contact c ON c.id = m.contact_id "
        f"WHERE m.contact_list_id = :list AND ({exact.sql}) IS NOT TRUE",
        {**exact.parameters, "list": mirror.id},
    )
    return [row[0] for row in joining], [row[0] for row in leaving]


def _join(list_id: int, segment_id: int, contact_ids: list[int]) -> None:
    # Whoever was deleted meanwhile does not come back as a member
    _change(
        list_id, segment_id, 1,
        "INSERT INTO membership SELECT :list, c.id, :now FROM contact c "
        "WHERE c.id IN (SELECT value FROM json_each(:ids)) ON CONFLICT DO NOTHING",
        {"list": list_id, "ids": json.dumps(contact_ids), "now": clock.now_ms()},
    )  # fmt: skip


def _leave(list_id: int, segment_id: int, contact_ids: list[int]) -> None:
    _change(
        list_id, segment_id, -1,
        "DELETE FROM membership WHERE contact_list_id = :list AND contact_id IN (SELECT value FROM json_each(:ids))",
        {"list": list_id, "ids": json.dumps(contact_ids)},
    )  # fmt: skip


def _change(list_id: int, segment_id: int, sign: int, sql: str, parameters: dict[str, object]) -> None:
    writing()
    # Frozen, or given another segment, while this was being worked out
    if scalar("SELECT segment_id FROM contact_list WHERE id = ?", (list_id,)) != segment_id:
        return
    number = run(sql, parameters)
    connection().execute(
        "UPDATE contact_list SET contacts_count = contacts_count + ? WHERE id = ?", (sign * number, list_id)
    )


def _populated(mirror: ContactList, now: int, event_id: int, changed_at: int) -> None:
    writing()
    still_stale = _changed_at(mirror.account_id) != changed_at
    connection().execute(
        "UPDATE contact_list SET stale = ?, last_populated_at = ?, seen_event_id = ? WHERE id = ? AND segment_id = ?",
        (still_stale, now, event_id, mirror.id, mirror.segment_id),
    )
