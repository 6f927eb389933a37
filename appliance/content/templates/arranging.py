"""Sections added, moved, duplicated and taken out; and the entries of their lists."""

import copy
import secrets
from typing import Any

from msgspec import Struct

from appliance.content.designs import document
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import Kind
from appliance.content.designs.sections import BY_NAME
from appliance.content.templates.editing import Make
from appliance.core.errors import Invalid, NotFound

# What a new section of a kind begins with, where its own defaults leave it without anything to see
BEGINNINGS: dict[str, dict[str, Any]] = {
    "header": {"layout": "left"},
    "hero": {"title": "Say it in five words", "subtitle": "One sentence about what it is and for whom.",
             "cta_text": "Learn more"},
    "heading": {"text": "Heading", "level": "2"},
    "text": {"content": "<p>Write something here.</p>"},
    "list": {"items": [{"title": "First"}, {"title": "Second"}, {"title": "Third"}]},
    "quote": {"text": "What somebody said about you.", "author": "Their name"},
    "button": {"text": "Learn more"},
    "split": {"title": "A title", "text": "<p>A few words beside the picture.</p>"},
    "product": {"name": "A product", "price": "€ 20"},
    "product_grid": {"items": [{"name": "One product", "price": "€ 20"}, {"name": "Another product", "price": "€ 30"}]},
    "gallery": {"items": [{}, {}]},
    "columns": {"preset": "1:1", "columns": [
        {"sections": [{"type": "text", "props": {"content": "<p>Left</p>"}}]},
        {"sections": [{"type": "text", "props": {"content": "<p>Right</p>"}}]},
    ]},
    "coupon": {"code": "WELCOME10", "text": "<p>10 % off your next order</p>"},
}  # fmt: skip


class Spot(Struct):
    """Where a section goes: before or behind another, else last in a column, or in the mail; each by its key."""

    before: str | None = None
    behind: str | None = None
    parent: str | None = None
    column: int = 0


def add(kind: str, spot: Spot) -> Make:
    """Return what adds a section of a kind; it raises NotFound for a kind that is none, Invalid where it cannot stand.

    What does not stand in columns goes behind the columns instead; the footer stays last.
    """

    def make(design: dict[str, Any], found: list[Entry]) -> tuple[str, str | None]:
        known = BY_NAME.get(kind)
        if known is None:
            raise NotFound
        raw = _named({"type": kind, "props": copy.deepcopy(BEGINNINGS.get(kind, {}))})
        _put(design, found, raw, known, spot, lenient=True)
        return f"{known.label} added", str(raw["id"])

    return make


def move(key: str, spot: Spot) -> Make:
    """Return what moves a section; it raises NotFound, or Invalid where it cannot stand."""

    def make(design: dict[str, Any], found: list[Entry]) -> tuple[str, str | None]:
        one = _known(found, key)
        targets = [target for target in (spot.before, spot.behind, spot.parent) if target]
        if any(target == key or _is_within(found, target, key) for target in targets):
            raise Invalid({"base": ["a section cannot stand in itself"]})
        # A place of its own is left where it was until it stands in the other, so that the other does not move
        mark: dict[str, Any] = {}
        one.siblings[one.position] = mark
        _put(design, found, one.raw, one.section.kind, spot)
        _take_out(one.siblings, mark)
        return f"{one.label} moved", _key_of(design, one.raw)

    return make


def step(key: str, by: int) -> Make:
    """Return what moves a section up (-1) or down (1) among its neighbours; at the end it stays where it is."""

    def make(design: dict[str, Any], found: list[Entry]) -> tuple[str, str | None]:
        one = _known(found, key)
        to = max(0, min(len(one.siblings) - 1, one.position + by))
        one.siblings.insert(to, one.siblings.pop(one.position))
        return f"{one.label} moved {'up' if by < 0 else 'down'}", _key_of(design, one.raw)

    return make


def duplicate(key: str) -> Make:
    """Return what puts a copy of a section behind it; it raises NotFound."""

    def make(design: dict[str, Any], found: list[Entry]) -> tuple[str, str | None]:
        one = _known(found, key)
        made = _named(copy.deepcopy(one.raw), anew=True)
        one.siblings.insert(one.position + 1, made)
        return f"{one.label} duplicated", _key_of(design, made)

    return make


def remove(key: str) -> Make:
    """Return what takes a section out, and looks at its neighbour next; it raises NotFound."""

    def make(design: dict[str, Any], found: list[Entry]) -> tuple[str, str | None]:
        one = _known(found, key)
        neighbours = [other for other in found if other.siblings is one.siblings and other.key != key]
        near = min(neighbours, key=lambda other: abs(other.position - one.position), default=None)
        del one.siblings[one.position]
        return f"{one.label} removed", _key_of(design, near.raw) if near is not None else (one.parent or None)

    return make


def item(key: str, name: str, act: str, at: int = 0) -> Make:
    """Return what adds an entry to a list of a section, takes one out, or moves it up or down.

    It raises NotFound, or Invalid past the least and the most.
    """

    def make(design: dict[str, Any], found: list[Entry]) -> tuple[str, str | None]:
        one = _known(found, key)
        prop = next((each for each in (one.section.kind.props if one.section.kind else ())
                     if each.name == name and each.kind == "items"), None)  # fmt: skip
        if prop is None or act not in ("add", "remove", "up", "down"):
            raise NotFound
        own = one.raw.setdefault("props", {})
        entries = list(prop.of(own) or [])
        if act != "add" and not 0 <= at < len(entries):
            raise NotFound
        if act == "add":
            if len(entries) >= prop.most:
                raise Invalid({"base": [f"there can be {prop.most:g} at most"]})
            entries.append({"sections": []} if name == "columns" else {})
        elif act == "remove":
            if len(entries) <= prop.least:
                raise Invalid({"base": [f"there must be {prop.least:g} at least"]})
            del entries[at]
        else:
            to = max(0, min(len(entries) - 1, at + (-1 if act == "up" else 1)))
            entries.insert(to, entries.pop(at))
        for alias in prop.aliases:
            own.pop(alias, None)
        own[name] = entries
        if name == "columns" and own.get("preset") and act in ("add", "remove"):
            own.pop("preset")
        words = {"add": "one more", "remove": "one removed"}.get(act, "order changed")
        return f"{one.label}: {prop.label.lower()}, {words}", key

    return make


def _known(found: list[Entry], key: str) -> Entry:
    one = document.find_section(found, key)
    if one is None:
        raise NotFound
    return one


def _is_within(found: list[Entry], key: str, around: str) -> bool:
    one = document.find_section(found, key)
    while one is not None and one.parent:
        if one.parent == around:
            return True
        one = document.find_section(found, one.parent)
    return False


def _put(
    design: dict[str, Any], found: list[Entry], raw: dict[str, Any], kind: Kind | None, spot: Spot,
    lenient: bool = False,
) -> None:  # fmt: skip
    beside = spot.before or spot.behind
    if beside:
        one = _known(found, beside)
        behind = spot.behind is not None and not spot.before
        while one.parent and lenient and not _fits(kind, one.level):
            one, behind = _known(found, one.parent), True
        if one.parent and not _fits(kind, one.level):
            raise Invalid({"base": ["this cannot stand in a column"]})
        place = next(index for index, other in enumerate(one.siblings) if other is one.raw) + behind
        one.siblings.insert(place, raw)
        if lenient and not one.parent:
            _before_footer(one.siblings, raw, kind)
        return
    if spot.parent:
        around = _known(found, spot.parent)
        columns = document.columns(around.raw)
        if not 0 <= spot.column < len(columns) or not isinstance(columns[spot.column], dict):
            raise NotFound
        if not _fits(kind, around.level + 1):
            raise Invalid({"base": ["this cannot stand in a column"]})
        inner = columns[spot.column].setdefault("sections", [])
        if not isinstance(inner, list):
            inner = columns[spot.column]["sections"] = []
        inner.append(raw)
        return
    design["sections"].append(raw)
    if lenient:
        _before_footer(design["sections"], raw, kind)


def _fits(kind: Kind | None, level: int) -> bool:
    """Return whether a kind stands in a column, and in one within another."""
    if kind is None or not kind.in_columns:
        return False
    return level <= document.MAX_LEVELS and (kind.name != "columns" or level < document.MAX_LEVELS)


def _before_footer(siblings: list[Any], raw: dict[str, Any], kind: Kind | None) -> None:
    """Leave the footer last where something new came behind it."""
    place = next(index for index, one in enumerate(siblings) if one is raw)
    before = siblings[place - 1] if place else None
    is_last = place == len(siblings) - 1
    if kind is not None and kind.name != "footer" and is_last and isinstance(before, dict):
        found = document.section(before, "")
        if found.kind is not None and found.kind.name == "footer":
            siblings[place - 1], siblings[place] = raw, before


def _take_out(siblings: list[Any], mark: dict[str, Any]) -> None:
    del siblings[next(index for index, one in enumerate(siblings) if one is mark)]


def _key_of(design: dict[str, Any], raw: dict[str, Any]) -> str | None:
    return next((one.key for one in document.entries(design) if one.raw is raw), None)


def _named(raw: dict[str, Any], anew: bool = False) -> dict[str, Any]:
    """Give a section, and those in it, an id that no other has."""
    if anew or raw.get("id") is None:
        raw["id"] = f"s{secrets.token_hex(4)}"
    for column in document.columns(raw):
        inner = column.get("sections") if isinstance(column, dict) else None
        for one in inner if isinstance(inner, list) else []:
            if isinstance(one, dict):
                _named(one, anew)
    return raw
