"""Contacts as CSV or JSON lines, such that importing the file again loses nothing.

Names of columns are those the import knows. Values of `data` that read back the same stand in columns of their own
(`data.city`); what does not (parts within parts, text that looks like a number) stands in the column `data` as JSON.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from appliance.audience.contacts import store
from appliance.exports import cells, walk
from appliance.storage.open import rows

_PLAIN = ("id", "uuid", "first_name", "last_name", "source", "country_code", "tracking")
_TIMES = ("last_interacted_at", "created_at", "updated_at")
_COLUMNS = ", ".join(f"c.{name}" for name in (*_PLAIN, *_TIMES, "data"))
HEAD = (
    "id", "uuid", "email", "phone", "first_name", "last_name", "source", "country_code", "tracking", "tags", "lists",
    "status", "subscribed_email", "subscribed_phone", "opted_out_by", "verified", "suppression_reason", "opt_in_at",
    "opt_out_at", "last_interacted_at", "created_at", "updated_at", "channels", "data",
)  # fmt: skip
# The import takes 200 columns
_MAX_KEYS = 150
_CHANNEL = ("kind", "value", "subscribed", "verified_at", "opt_in_at", "opt_out_at", "opted_out_by", "suppression")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def csv(account_id: int, query: Any, rules: Sequence[Any] = ()) -> Iterator[str]:
    """Yield the lines of the people that a query names, newest first, some at a time.

    `rules` are filters as those of a segment; who is exported passes them too.
    """
    way = _way(account_id, query, rules)
    keys = _keys(way)
    yield cells.line([*HEAD, *(f"data.{key}" for key in keys)])
    names: dict[int, str] = {}
    for part in way.pages():
        yield "".join([_line(one, keys) for one in _people(account_id, part, names)])


def jsonl(account_id: int, query: Any, rules: Sequence[Any] = ()) -> Iterator[bytes]:
    """Yield the people that a query names, and rules let through, as JSON lines, newest first, some at a time."""
    names: dict[int, str] = {}
    for part in _way(account_id, query, rules).pages():
        yield b"".join([_encode(one) + b"\n" for one in _people(account_id, part, names)])


def _way(account_id: int, query: Any, rules: Sequence[Any]) -> walk.Way:
    where, parameters = store.where(account_id, query, rules)
    sql = f"SELECT {_COLUMNS} FROM contact c NOT INDEXED WHERE {where}"
    collected = store.filters(query) & {"list_id", "segment_id", "search"}
    if collected or rules:
        return walk.Collected(
            f"SELECT c.id FROM contact c WHERE {where} ORDER BY c.id DESC", parameters,
            f"SELECT {_COLUMNS} FROM contact c WHERE c.id IN ({{ids}}) ORDER BY c.id DESC",
        )  # fmt: skip
    return walk.Keyset(f"{sql} AND c.id < :last ORDER BY c.id DESC", parameters, "last", 0)


def _keys(way: walk.Way) -> list[str]:
    """Choose the keys of data that get columns, by a look at people from all over; the others lose nothing either."""
    counted: Counter[str] = Counter()
    for row in way.sample():
        counted.update(key for key, value in _decode(row[-1]).items() if key != "tags" and cells.is_plain(value))
    good = [key for key, _ in counted.most_common(_MAX_KEYS) if key.isprintable() and key == key.strip() and key]
    return sorted(good)


def _people(account_id: int, part: Sequence[tuple[Any, ...]], names: dict[int, str]) -> Iterator[dict[str, Any]]:
    ids = [row[0] for row in part]
    marks = ",".join("?" * len(ids))
    channels: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(
        f"SELECT contact_id, {', '.join(_CHANNEL)} FROM channel WHERE contact_id IN ({marks}) ORDER BY id", ids
    ):
        channels[row[0]].append(dict(zip(_CHANNEL, row[1:], strict=True)))
    lists: dict[int, list[int]] = defaultdict(list)
    for contact_id, list_id in rows(
        f"SELECT contact_id, contact_list_id FROM membership WHERE contact_id IN ({marks})", ids
    ):
        lists[contact_id].append(list_id)
    if any(list_id not in names for found in lists.values() for list_id in found):
        names.update(rows("SELECT id, name FROM contact_list WHERE account_id = ?", (account_id,)))
    for row in part:
        yield _person(row, channels[row[0]], [names[one] for one in lists[row[0]] if one in names])


def _person(row: tuple[Any, ...], channels: list[dict[str, Any]], lists: list[str]) -> dict[str, Any]:
    for channel in channels:
        channel["subscribed"] = bool(channel["subscribed"])
        for name in ("verified_at", "opt_in_at", "opt_out_at"):
            channel[name] = cells.moment(channel[name])
    email = next((one for one in channels if one["kind"] == "email"), None)
    phone = next((one for one in channels if one["kind"] == "phone"), None)
    main: dict[str, Any] = email or phone or {}
    found: dict[str, Any] = dict(zip(_PLAIN, row[: len(_PLAIN)], strict=True))
    for name, value in zip(_TIMES, row[len(_PLAIN) :], strict=False):
        found[name] = cells.moment(value)
    out = main.get("opt_out_at") is not None and not main["subscribed"]
    return found | {
        "email": email["value"] if email else None,
        "phone": phone["value"] if phone else None,
        "lists": lists,
        "status": main.get("suppression") or ("unsubscribed" if out and main["opted_out_by"] == "recipient" else None),
        "subscribed_email": email["subscribed"] if email else None,
        "subscribed_phone": phone["subscribed"] if phone else None,
        "opted_out_by": main.get("opted_out_by"),
        "verified": main.get("verified_at") is not None if main else None,
        "suppression_reason": main.get("suppression"),
        "opt_in_at": main.get("opt_in_at"),
        "opt_out_at": main.get("opt_out_at"),
        "channels": channels,
        "data": _decode(row[-1]),
    }


def _line(one: dict[str, Any], keys: list[str]) -> str:
    data: dict[str, Any] = one["data"]
    rest = {key: value for key, value in data.items() if key != "tags"}
    own = []
    for key in keys:
        value = rest.get(key)
        if value is not None and cells.is_plain(value):
            del rest[key]
            own.append(cells.cell(value))
        else:
            own.append("")
    values = {
        **one,
        "tags": data.get("tags") or None,
        "lists": one["lists"] or None,
        # One address is told by the columns before; more of them only here
        "channels": one["channels"] if len(one["channels"]) > 1 else None,
        "data": rest or None,
    }
    text = [cells.phone(one["phone"]) if name == "phone" else cells.cell(values[name]) for name in HEAD]
    return cells.line([*text, *own])
