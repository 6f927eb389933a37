"""Export contacts as CSV or JSON lines, which can be imported again without loss.

The columns have the names that imports use. In CSV, custom data has one column for each key (`data.city`). A value that
an import would not read back as it is, such as an object or a text that looks like a number, is in the column `data`
as JSON.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from appliance.audience.contacts import store
from appliance.exports import streaming
from appliance.storage.database import rows

_PLAIN_COLUMNS = ("id", "uuid", "first_name", "last_name", "source", "country_code", "tracking")
_TIME_COLUMNS = ("last_interacted_at", "created_at", "updated_at")
_SELECTED_COLUMNS = ", ".join(f"c.{name}" for name in (*_PLAIN_COLUMNS, *_TIME_COLUMNS, "data"))
COLUMNS = (
    "id", "uuid", "email", "phone", "first_name", "last_name", "source", "country_code", "tracking", "tags", "lists",
    "status", "subscribed_email", "subscribed_phone", "opted_out_by", "verified", "suppression_reason", "opt_in_at",
    "opt_out_at", "last_interacted_at", "created_at", "updated_at", "channels", "data",
)  # fmt: skip
# An import accepts 200 columns (`file_reader.MAX_COLUMNS`), including COLUMNS.
_MAX_DATA_COLUMNS = 150
_CHANNEL_COLUMNS = (
    "kind",
    "value",
    "subscribed",
    "verified_at",
    "opt_in_at",
    "opt_out_at",
    "opted_out_by",
    "suppression",
)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def write_contacts_csv(account_id: int, query: Any, rules: Sequence[Any] = ()) -> Iterator[str]:
    """Yield the CSV header, then the lines of the contacts that match a query, newest first.

    Each further piece has the lines of one page of contacts. `rules` are filters like those of a segment, which the
    contacts must match too.
    """
    pages = _select_pages(account_id, query, rules)
    keys = _choose_data_keys(pages)
    yield streaming.format_line([*COLUMNS, *(f"data.{key}" for key in keys)])
    names: dict[int, str] = {}
    for page in pages.pages():
        yield "".join([_format_contact(contact, keys) for contact in _load_contacts(account_id, page, names)])


def write_contacts_jsonl(account_id: int, query: Any, rules: Sequence[Any] = ()) -> Iterator[bytes]:
    """Yield the JSON lines of the contacts that match a query and rules (see `write_contacts_csv`), newest first."""
    names: dict[int, str] = {}
    for page in _select_pages(account_id, query, rules).pages():
        yield b"".join([_encode(contact) + b"\n" for contact in _load_contacts(account_id, page, names)])


def _select_pages(account_id: int, query: Any, rules: Sequence[Any]) -> streaming.PagedRows:
    where, parameters = store.build_condition(account_id, query, rules)
    sql = f"SELECT {_SELECTED_COLUMNS} FROM contact c NOT INDEXED WHERE {where}"
    collected = store.used_filters(query) & {"list_id", "segment_id", "search"}
    if collected or rules:
        return streaming.IdListRows(
            f"SELECT c.id FROM contact c WHERE {where} ORDER BY c.id DESC", parameters,
            f"SELECT {_SELECTED_COLUMNS} FROM contact c WHERE c.id IN ({{ids}}) ORDER BY c.id DESC",
        )  # fmt: skip
    return streaming.KeysetRows(f"{sql} AND c.id < :last ORDER BY c.id DESC", parameters, "last", 0)


def _choose_data_keys(pages: streaming.PagedRows) -> list[str]:
    """Return the keys of custom data that get a column, sorted: the `_MAX_DATA_COLUMNS` most frequent keys in a sample.

    Values of other keys are in the column `data`.
    """
    counted: Counter[str] = Counter()
    for row in pages.sample():
        counted.update(
            key for key, value in _decode(row[-1]).items() if key != "tags" and streaming.survives_round_trip(value)
        )
    keys = [
        key for key, _ in counted.most_common(_MAX_DATA_COLUMNS) if key.isprintable() and key == key.strip() and key
    ]
    return sorted(keys)


def _load_contacts(account_id: int, page: Sequence[tuple[Any, ...]], names: dict[int, str]) -> Iterator[dict[str, Any]]:
    ids = [row[0] for row in page]
    marks = ",".join("?" * len(ids))
    channels: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(
        f"SELECT contact_id, {', '.join(_CHANNEL_COLUMNS)} FROM channel WHERE contact_id IN ({marks}) ORDER BY id", ids
    ):
        channels[row[0]].append(dict(zip(_CHANNEL_COLUMNS, row[1:], strict=True)))
    lists: dict[int, list[int]] = defaultdict(list)
    for contact_id, list_id in rows(
        f"SELECT contact_id, contact_list_id FROM membership WHERE contact_id IN ({marks})", ids
    ):
        lists[contact_id].append(list_id)
    if any(list_id not in names for list_ids in lists.values() for list_id in list_ids):
        names.update(rows("SELECT id, name FROM contact_list WHERE account_id = ?", (account_id,)))
    for row in page:
        yield _build_contact(row, channels[row[0]], [names[one] for one in lists[row[0]] if one in names])


def _build_contact(row: tuple[Any, ...], channels: list[dict[str, Any]], lists: list[str]) -> dict[str, Any]:
    for channel in channels:
        channel["subscribed"] = bool(channel["subscribed"])
        for name in ("verified_at", "opt_in_at", "opt_out_at"):
            channel[name] = streaming.format_time(channel[name])
    email = next((one for one in channels if one["kind"] == "email"), None)
    phone = next((one for one in channels if one["kind"] == "phone"), None)
    main: dict[str, Any] = email or phone or {}
    contact: dict[str, Any] = dict(zip(_PLAIN_COLUMNS, row[: len(_PLAIN_COLUMNS)], strict=True))
    for name, value in zip(_TIME_COLUMNS, row[len(_PLAIN_COLUMNS) :], strict=False):
        contact[name] = streaming.format_time(value)
    is_opted_out = main.get("opt_out_at") is not None and not main["subscribed"]
    return contact | {
        "email": email["value"] if email else None,
        "phone": phone["value"] if phone else None,
        "lists": lists,
        "status": main.get("suppression")
        or ("unsubscribed" if is_opted_out and main["opted_out_by"] == "recipient" else None),
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


def _format_contact(contact: dict[str, Any], keys: list[str]) -> str:
    data: dict[str, Any] = contact["data"]
    remaining = {key: value for key, value in data.items() if key != "tags"}
    data_cells = []
    for key in keys:
        value = remaining.get(key)
        if value is not None and streaming.survives_round_trip(value):
            del remaining[key]
            data_cells.append(streaming.format_cell(value))
        else:
            data_cells.append("")
    values = {
        **contact,
        "tags": data.get("tags") or None,
        "lists": contact["lists"] or None,
        # The other columns have all values of a single address, so `channels` is only needed for several addresses.
        "channels": contact["channels"] if len(contact["channels"]) > 1 else None,
        "data": remaining or None,
    }
    cells = [
        streaming.format_phone(contact["phone"]) if name == "phone" else streaming.format_cell(values[name])
        for name in COLUMNS
    ]
    return streaming.format_line([*cells, *data_cells])
