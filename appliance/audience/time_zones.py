"""The time zone of a contact, with the source that it was taken from, and the stored zones of all contacts.

The time zone of a contact is the first of these that is known: the custom field `time_zone`, the zone of the phone
number, the zone of the country, the account's. A number or country with several zones, such as a number of the United
States without an area, is skipped.

The zones are stored, so that the snapshot of a large audience computes none. A trigger marks the row of a contact when
its data, phone numbers or country change (`storage/writer.py`), and a job computes marked and missing rows, in batches.
Until then their zone is computed where it is needed, so that a stored zone is always the one that the rule gives. The
zone of the account is stored as null: it may change. If the rule itself changes, with new data of time zones or phone
numbers, all rows are computed again.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, cast
from zoneinfo import ZoneInfo

import msgspec

from appliance.core import clock
from appliance.core.time_zones import fingerprint_rules, list_zones
from appliance.storage import transactions
from appliance.storage.database import rows, run, run_set, scalar
from appliance.storage.transactions import require_write_transaction

ZoneSource = Literal["data", "phone", "country", "account"]
SOURCES: tuple[ZoneSource, ...] = ("data", "phone", "country", "account")
_DATA_ZONE = "named_zone(c.data ->> '$.time_zone')"
_PHONE_ZONE = (
    "phone_zone((SELECT z.key FROM channel z WHERE z.contact_id = c.id AND z.kind = 'phone' "
    "ORDER BY z.subscribed DESC, z.id LIMIT 1))"
)
_COUNTRY_ZONE = "country_zone(c.country_code)"
# The zone of contact `c` as SQL. `coalesce` computes no more values than it needs.
ZONE_SQL = f"coalesce({_DATA_ZONE}, {_PHONE_ZONE}, {_COUNTRY_ZONE}, :account_zone)"
# The source and the zone of contact `c` as SQL, with a space between them.
SOURCE_AND_ZONE_SQL = (
    f"coalesce('data ' || {_DATA_ZONE}, 'phone ' || {_PHONE_ZONE}, 'country ' || {_COUNTRY_ZONE}, "
    "'account ' || :account_zone)"
)
_SELECT_ZONES = f"SELECT c.id, {SOURCE_AND_ZONE_SQL} FROM contact c WHERE c.id IN (SELECT value FROM json_each(:ids))"
# Joins the row of contact `c` if its zone is stored. `:known_to` is the result of `find_known_to`.
JOIN_STORED = "LEFT JOIN contact_zone z ON z.contact_id = c.id AND z.contact_id <= :known_to AND NOT z.is_stale"
# SQL for the number of the zone of contact `c`, 0 for the account's zone; the query needs `JOIN_STORED`.
NUMBER_SQL = (
    "CASE WHEN z.contact_id NOT NULL THEN coalesce(z.time_zone_id, 0) "
    f"ELSE (SELECT n.id FROM time_zone n WHERE n.name = {ZONE_SQL}) END"
)
# SQL for the stored number and source of the zone of contact `c`, as one integer (`read_stored`); the query needs
# `JOIN_STORED`.
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


class LocalZone(NamedTuple):
    """The time zone of a contact, and where it comes from."""

    zone: ZoneInfo
    source: ZoneSource


def get_account_zone(account_id: int) -> LocalZone:
    """Return the time zone of an account."""
    return LocalZone(ZoneInfo(str(scalar("SELECT time_zone FROM account WHERE id = ?", (account_id,)))), "account")


def split_source(text: str) -> tuple[ZoneSource, str]:
    """Return the source and the name of the zone in a value of `SOURCE_AND_ZONE_SQL`."""
    source, _, name = text.partition(" ")
    return cast(ZoneSource, source), name


def find_zones(account_id: int, contact_ids: Sequence[int]) -> dict[int, LocalZone]:
    """Return the time zone of each contact that exists, by id."""
    values = {"account_zone": get_account_zone(account_id).zone.key, "ids": json.dumps(list(contact_ids))}
    zones = {}
    for contact_id, text in rows(_SELECT_ZONES, values):
        source, name = split_source(text)
        zones[contact_id] = LocalZone(ZoneInfo(name), source)
    return zones


class ZoneState(NamedTuple):
    """Which zones are stored: by which rules (`fingerprint_rules`), and up to which contact id."""

    rules: str
    known_to: int


_UNKNOWN = ZoneState("", 0)


def _load() -> ZoneState:
    text = scalar("SELECT value FROM setting WHERE name = ?", (_SETTING,))
    return _UNKNOWN if text is None else msgspec.json.decode(text, type=ZoneState)


def find_known_to() -> int:
    """Return the contact id up to which zones are stored by the present rules; 0 if the rules have changed."""
    state = _load()
    return state.known_to if state.rules == fingerprint_rules() else 0


def is_due() -> bool:
    """Return whether any zone is marked or missing. New rules are noticed by `fill` only."""
    return bool(rows(_LIST_STALE, (1,)) or rows(_LIST_NEW, (_load().known_to, 1)))


def fill(stopping: threading.Event) -> None:
    """Compute all zones that are marked, missing or from other rules; `stopping` ends it after the current batch."""
    if not rows(_LIST_NEW, (0, 1)):
        return
    rules = fingerprint_rules()
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
    """Return (source, name) of a zone from a value of `STORED_SQL`; `names` has the names of zones by number."""
    number, source = value >> _SOURCE_BITS, SOURCES[value % (1 << _SOURCE_BITS)]
    return source, names[number] if number else account_zone


def load_names() -> dict[int, str]:
    """Return the names of time zones by their number."""
    return dict(rows("SELECT id, name FROM time_zone"))


def load_numbers() -> dict[str, int]:
    """Return the number of each time zone by name; names that are new get one, in the current write."""
    require_write_transaction()
    numbers = {name: number for number, name in rows("SELECT id, name FROM time_zone")}
    if not numbers.keys() >= list_zones():
        run_set(_ADD_NAMES, sorted(list_zones() - numbers.keys()))
        numbers = {name: number for number, name in rows("SELECT id, name FROM time_zone")}
    return numbers
