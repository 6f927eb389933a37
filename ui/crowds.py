"""The people of a table: the filters of its address as the middle asks for them, and as words with a way out."""

from typing import Any, NamedTuple

import msgspec

from appliance.audience.contacts import lists, requests, store
from appliance.audience.contacts.paging import ORDERS, Order
from appliance.audience.segments import explain
from appliance.audience.segments import people as crowd
from appliance.audience.segments import store as segments
from appliance.core import errors, fields
from ui import people
from ui.tables import Active, Chip, Column, Table

FILTERS = ("show", "list_id", "tag", "segment_id", "source", "filters")
COLUMNS = (
    Column("Person", "name", ""), Column("May get"), Column("Lists"), Column("Last seen", "seen"),
    Column("Changed", "updated"), Column("Added", "created", shown=False),
)  # fmt: skip
_SHOWN: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "subscribed": ({"subscribed_email": True}, []),
    "not": ({"subscribed_email": False}, []),
    "blocked": ({}, [{"name": "contact_suppressed", "predicate": "true", "value": True}]),
}


# Of a part of the people it is not said how many each has
PLAIN_CHIPS = (Chip("", "Everyone"), Chip("subscribed", "Subscribed"), Chip("not", "Not subscribed"))


SHOWN = ("", *_SHOWN)


class Asked(NamedTuple):
    """Whom a table asks for."""

    query: requests.ContactQuery
    rules: list[Any]


def asked(state: dict[str, str], **more: Any) -> Asked:
    """Read what decides who is in a table; raises Invalid. What is misspelt asks for nobody rather than for all."""
    show = state.get("show", "")
    if show and show not in _SHOWN:
        raise errors.Invalid({"show": ["is not included in the list"]})
    shown, also = _SHOWN.get(show, ({}, []))
    raw: dict[str, Any] = {**shown, **more}
    for name in ("list_id", "segment_id"):
        if state.get(name):
            raw[name] = int(state[name]) if state[name].isdecimal() and len(state[name]) < 19 else 0
    if state.get("of_list", "").isdecimal():
        raw["list_id"] = int(state["of_list"][:18])
    for name in ("search", "tag", "source"):
        if state.get(name):
            raw[name] = state[name]
    return Asked(fields.read(requests.ContactQuery, raw), [*also, *rules(state.get("filters", ""))])


def rules(text: str) -> list[Any]:
    """Read the rules of an address; raises Invalid."""
    if not text:
        return []
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, list):
        raise errors.Invalid({"filters": ["is invalid"]})
    return found


def order(table: Table) -> Order:
    """Return the order of a table of people."""
    found = ORDERS[table.sort.removeprefix("-")]
    return found._replace(down=table.sort.startswith("-"))


def fill(account_id: int, table: Table, **more: Any) -> dict[int, Any]:
    """Put people into a table, with its chips and filters in words, and answer the lists by their ids.

    A filter that names what is gone shows nobody, and can be removed.
    """
    all_lists = {row.id: row for row in people.all_lists(account_id)}
    table.active = active(account_id, table.state, all_lists)
    table.chips = PLAIN_CHIPS if more else chips(account_id)
    try:
        asks = asked(table.matching, **table.raw, **more)
        table.found = store.page(account_id, asks.query, order(table), asks.rules)
    except errors.Invalid:
        table.found = table.found._replace(rows=[], total=0)
    return all_lists


def chips(account_id: int) -> tuple[Chip, ...]:
    """Return the filters most people use, with how many each shows."""
    found = store.tallies(account_id)
    return (
        Chip("", "Everyone", found.everybody),
        Chip("subscribed", "Subscribed", found.subscribed),
        Chip("not", "Not subscribed", found.everybody - found.subscribed),
        Chip("blocked", "Suppressed", found.suppressed),
    )


def active(account_id: int, state: dict[str, str], all_lists: dict[int, Any]) -> list[Active]:
    """Say the filters in force that are no chips."""
    found = []
    if state.get("list_id"):
        found.append(Active(f"In {_list(account_id, state['list_id'], all_lists)}", ("list_id",)))
    if state.get("segment_id"):
        found.append(Active(f"In the segment {_segment(account_id, state['segment_id'])}", ("segment_id",)))
    if state.get("tag"):
        found.append(Active(f"With the tag {state['tag']}", ("tag",)))
    if state.get("source"):
        found.append(Active(f"Added from {state['source']}", ("source",)))
    if state.get("filters"):
        found.append(Active(_sentence(account_id, state["filters"]), ("filters",)))
    return found


def _list(account_id: int, text: str, all_lists: dict[int, Any]) -> str:
    number = int(text) if text.isdecimal() and len(text) < 19 else 0
    if number in all_lists:
        return str(all_lists[number].name)
    try:
        return str(lists.get(account_id, number).name)
    except errors.NotFound:
        return "a list that is gone"


def _segment(account_id: int, text: str) -> str:
    try:
        return str(segments.get(account_id, int(text) if text.isdecimal() and len(text) < 19 else 0).name)
    except errors.NotFound:
        return "that is gone"


def _sentence(account_id: int, text: str) -> str:
    """Say rules as a person would; rules that cannot be read are said to be so."""
    try:
        return explain.sentence(account_id, crowd.nodes(account_id, rules(text)), crowd.scope(account_id))
    except errors.Invalid:
        return "Rules that cannot be read"
