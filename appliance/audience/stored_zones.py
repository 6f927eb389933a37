"""The time zones of contacts as they are stored, so that fixing a large audience computes none.

A zone follows from the contact's data, phone numbers and country (`time_zones`). A trigger marks the row of a contact
when one of them changes (`storage/triggers.py`), and a job computes marked and missing rows, in batches. Until then
their zone is computed where it is needed, so that a stored zone is never another one than the rule gives. The zone of
the account is stored as null: it may change. If the rule itself changes, with new data of time zones or phone numbers,
all rows are computed again.
"""

import json
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from appliance.audience.time_zones import SOURCE_AND_ZONE_SQL, SOURCES, ZONE_SQL, ZoneSource, split_source
from appliance.core import clock, time_zones
from appliance.storage import transactions
from appliance.storage.database import rows, run, run_set, scalar
from appliance.storage.transactions import require_write_transaction

# Joins the row of contact `c` if its zone is stored. `:known_to` is the result of `find_known_to`.
JOIN_STORED = "LEFT JOIN contact_zone z ON z.contact_id = c.id AND z.contact_id <= :known_to AND NOT z.is_stale"
# The number of the zone of contact `c`, with that join: 0 for that of the account.
NUMBER_SQL = (
    "CASE WHEN z.contact_id NOT NULL THEN coalesce(z.time_zone_id, 0) "
    f"ELSE (SELECT n.id FROM time_zone n WHERE n.name = {ZONE_SQL}) END"
)
# The stored number and source of the zone of contact `c`, with that join, as one integer (`read_stored`).
_SOURCE_BITS = 2
_ACCOUNT = SOURCES.index("account")
STORED_SQL = f"(coalesce(z.time_zone_id, 0) << {_SOURCE_BITS} | coalesce(z.source, {_ACCOUNT}))"
_SETTING = "contact_zones"
_SAVE_STATE = (
    "INSERT INTO setting (name, value, updated_at) VALUES (?1, ?2, ?3) "
    "ON CONFLICT (name) DO UPDATE SET value = ?2, updated_at = ?3"
)
_LIST_STALE = "SELECT contact_id FROM contact_zone WHERE is_stale LIMIT ?"
_LIST_NEW = "SELECT id FROM contact WHERE id > ? ORDER BY id LIMIT ?"
_COMPUTE = f"SELECT c.id, {SOURCE_AND_ZONE_SQL} FROM contact c WHERE c.id IN (SELECT value FROM json_each(:items))"
_STORE = (
    "INSERT OR REPLACE INTO contact_zone (contact_id, time_zone_id, source, is_stale) "
    "SELECT value ->> 0, value ->> 1, value ->> 2, 0 FROM json_each(:items)"
)
_ADD_NAMES = "INSERT OR IGNORE INTO time_zone (name) SELECT value FROM json_each(:items)"
_BATCH = 400
# A batch is followed by a pause of this many times as long, because other writes are more urgent.
_PAUSE_FACTOR = 3


class ZoneState(NamedTuple):
    """Which zones are stored: by which rules (`time_zones.fingerprint_rules`), and up to which contact id."""

    rules: str
    known_to: int


_UNKNOWN = ZoneState("", 0)


def _load() -> ZoneState:
    text = scalar("SELECT value FROM setting WHERE name = ?", (_SETTING,))
    return _UNKNOWN if text is None else msgspec.json.decode(text, type=ZoneState)


def find_known_to() -> int:
    """Return the contact id up to which zones are stored by the present rules; 0 if the rules have changed."""
    state = _load()
    return state.known_to if state.rules == time_zones.fingerprint_rules() else 0


def is_due() -> bool:
    """Return whether any zone is marked or missing. New rules are noticed by `fill` only."""
    return bool(rows(_LIST_STALE, (1,)) or rows(_LIST_NEW, (_load().known_to, 1)))


def fill(stopping: threading.Event) -> None:
    """Compute all zones that are marked, missing or from other rules; `stopping` ends it after the current batch."""
    if not rows(_LIST_NEW, (0, 1)):
        return
    rules = time_zones.fingerprint_rules()
    while not stopping.is_set():
        started = time.perf_counter()
        if not transactions.write(fill_batch, rules):
            return
        stopping.wait(_PAUSE_FACTOR * (time.perf_counter() - started))


def fill_batch(rules: str, size: int = _BATCH) -> int:
    """Compute the zones of up to `size` contacts by the rules with this fingerprint; return how many there were."""
    require_write_transaction()
    state = _load()
    known_to = state.known_to if state.rules == rules else 0
    ids = [row[0] for row in rows(_LIST_STALE, (size,))]
    new_ids = [row[0] for row in rows(_LIST_NEW, (known_to, size - len(ids)))] if len(ids) < size else []
    if not ids and not new_ids:
        return 0
    numbers, values = load_numbers(), {"items": json.dumps(ids + new_ids), "account_zone": None}
    zones = []
    for contact_id, text in rows(_COMPUTE, values):
        source, zone = split_source(text) if text is not None else ("account", "")
        is_own = source != "account"
        zones.append((contact_id, numbers[zone] if is_own else None, SOURCES.index(source) if is_own else None))
    run_set(_STORE, zones)
    state_text = msgspec.json.encode(ZoneState(rules, new_ids[-1] if new_ids else known_to)).decode()
    run(_SAVE_STATE, (_SETTING, state_text, clock.now_ms()))
    return len(ids) + len(new_ids)


def read_stored(value: int, names: Mapping[int, str], account_zone: str) -> tuple[ZoneSource, str]:
    """Return source and name of a zone in a value of `STORED_SQL`; `names` are those of zones by number."""
    number, source = value >> _SOURCE_BITS, SOURCES[value % (1 << _SOURCE_BITS)]
    return source, names[number] if number else account_zone


def load_names() -> dict[int, str]:
    """Return the names of time zones by their number."""
    return dict(rows("SELECT id, name FROM time_zone"))


def load_numbers() -> dict[str, int]:
    """Return the number of each time zone by name; names that are new get one, in the current write."""
    require_write_transaction()
    numbers = {name: number for number, name in rows("SELECT id, name FROM time_zone")}
    if not numbers.keys() >= time_zones.list_zones():
        run_set(_ADD_NAMES, sorted(time_zones.list_zones() - numbers.keys()))
        numbers = {name: number for number, name in rows("SELECT id, name FROM time_zone")}
    return numbers
