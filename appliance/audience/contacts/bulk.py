"""Many people into and out of a list at once, named by id or by e-mail address."""

import json
from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience.contacts import lists
from appliance.core import addresses
from appliance.core.errors import Faults
from appliance.storage.open import rows

CHUNK = 500
_MAX_CONTACTS = 10_000
_NAMED = {"type": "array", "maxItems": _MAX_CONTACTS, "items": {"type": ["integer", "string"]}}
Named = Annotated[Any, Meta(extra_json_schema=_NAMED)]


class BulkWrite(Struct):
    """Who shall join and who shall leave, by id or e-mail address."""

    add: Named | UnsetType = UNSET
    remove: Named | UnsetType = UNSET


class BulkDone(Struct):
    """What became of adding and removing many; `unknown` repeats what names nobody."""

    added: int
    removed: int
    unknown: list[int | str]
    kept_opt_out: list[str]


class Plan(NamedTuple):
    """Contacts to add and to remove, and what was sent that names nobody."""

    add: list[int]
    remove: list[int]
    unknown: list[int | str]


def plan(account_id: int, list_id: int, request: BulkWrite) -> Plan:
    """Find the people meant; raises NotFound, or Invalid for what names nobody by its form, and for a mirror."""
    found = lists.get(account_id, list_id)
    faults = Faults()
    sent: dict[str, list[int | str]] = {}
    for name in ("add", "remove"):
        sent[name] = _read(name, getattr(request, name), faults)
    if found.segment_id is not None:
        faults.add("base", lists.VIEW)
    faults.check()
    unknown: list[int | str] = []
    add, remove = (_people(account_id, sent[name], unknown) for name in ("add", "remove"))
    return Plan(add, remove, list(dict.fromkeys(unknown)))


def _read(name: str, raw: Any, faults: Faults) -> list[int | str]:
    if raw is UNSET or raw is None:
        return []
    if not isinstance(raw, list):
        faults.add(name, "is invalid")
        return []
    if len(raw) > _MAX_CONTACTS:
        faults.add(name, f"is too long (maximum is {_MAX_CONTACTS} entries)")
        return []
    for index, one in enumerate(raw):
        if isinstance(one, bool) or not isinstance(one, int | str) or (isinstance(one, str) and not _writable(one)):
            faults.add(f"{name}[{index}]", "is invalid")
    return raw


def _writable(text: str) -> bool:
    return 0 < len(text) <= 254 and text.isprintable()


def _people(account_id: int, sent: list[int | str], unknown: list[int | str]) -> list[int]:
    numbers = [one for one in sent if isinstance(one, int) and 0 < one < 2**63]
    keys = {one: _key(one) for one in sent if isinstance(one, str)}
    known = {row[0]: row[0] for row in rows(
        "SELECT id FROM contact WHERE account_id = ? AND id IN (SELECT value FROM json_each(?))",
        (account_id, json.dumps(numbers)),
    )}  # fmt: skip
    owners = dict(
        rows(
            "SELECT key, contact_id FROM channel WHERE account_id = ? AND kind = 'email' AND key IN "
            "(SELECT value FROM json_each(?))",
            (account_id, json.dumps([key for key in keys.values() if key])),
        )
    )
    found = []
    for one in sent:
        owner = known.get(one) if isinstance(one, int) else owners.get(keys[one])
        if owner is None:
            unknown.append(one)
        else:
            found.append(owner)
    return list(dict.fromkeys(found))


def _key(text: str) -> str | None:
    try:
        return addresses.email(text).key
    except ValueError:
        return None
