"""What no template may hold, told all at once; and the form in which its fields are kept."""

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from appliance.audience.filters import read
from appliance.audience.segments import people
from appliance.content.designs import document, merge
from appliance.content.designs import variables as designs
from appliance.content.templates.requests import Content
from appliance.core.errors import Faults, Invalid
from appliance.sending.sms import gsm
from appliance.storage.models.content import EMPTY_DESIGN

# Which merge context each text stands in
MERGED: dict[str, merge.Context] = {"subject": "header", "preheader": "header", "from_name": "header", "body": "html"}
# As many texts as a flow has steps are looked at before the writer has to; what is kept of each is little
_MAX_KEPT = 512
# All that variables stand in: a template with another name or sender has the same ones
_VARIED = (*designs.FIELDS, "design")
_Found = tuple[tuple[str, str], ...]


def check(account_id: int, request: Content, prefix: str, faults: Faults, channel: str = "email") -> None:
    """Note merge tags that cannot be parsed, and everything that no design and no SMS may hold."""
    for name, context in MERGED.items():
        text = getattr(request, name)
        if isinstance(text, str):
            is_sms = channel == "sms" and name == "body"
            found = gsm.length_fault(text) if is_sms else merge.fault(text, context)
            if found:
                faults.add(prefix + name, found)
    if isinstance(request.design, dict):
        check_design(account_id, request.design, f"{prefix}design.", faults)


def check_design(account_id: int, design: dict[str, Any], prefix: str, faults: Faults) -> None:
    """Note everything that no design may hold, at paths such as `design.sections[2].props.href`."""
    found = _design_faults(_Text(design))
    for path, words in found:
        faults.add(prefix + path, words)
    if "sections" in (path for path, _ in found):
        return
    scope = None
    for path, raw in _conditions(design):
        scope = scope or people.scope(account_id, writing=True)
        try:
            read.filters(raw, scope, prefix + path)
        except Invalid as refused:
            faults.merge(refused.fields)


class _Text:
    """A design, or all of a template, by what it is known by: looked at once, however often it is asked about."""

    __slots__ = ("design", "digest")

    def __init__(self, design: dict[str, Any]) -> None:
        self.design = design
        self.digest = hashlib.blake2b(json.dumps(design, sort_keys=True).encode(), digest_size=16).digest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and self.digest == other.digest


@lru_cache(maxsize=_MAX_KEPT)
def _design_faults(text: _Text) -> _Found:
    if words := merge.code_fault(document.strings(text.design)):
        return (("sections", words),)
    found: list[tuple[str, str]] = []
    document.check(text.design, lambda path, words: found.append((path, words)))
    # What is kept is the answer alone
    text.design = {}
    return tuple(found)


def variables(said: dict[str, Any], channel: str = "email") -> dict[str, Any]:
    """Return the merge variables of a template's fields, each with default, sample and whether it is required."""
    return dict(_variables(_Text({name: said.get(name) for name in _VARIED}), channel))


@lru_cache(maxsize=_MAX_KEPT)
def _variables(text: _Text, channel: str) -> dict[str, Any]:
    found = designs.of(text.design, channel)
    text.design = {}
    return found


def _conditions(design: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for found in document.walk(design):
        if found.kind is not None and found.props.get("show_if") is not None:
            yield f"{found.path}.props.show_if", found.props["show_if"]


def kept(name: str, value: Any) -> Any:
    """Return a field as it is stored: lines without spaces around them, sections with `id` and `type`."""
    if name == "design":
        return named(value) if value is not None else dict(EMPTY_DESIGN)
    return value.strip() or None if isinstance(value, str) and name != "body" else value


def named(design: dict[str, Any]) -> dict[str, Any]:
    """Return a design in which every section has an `id`, and a `type` where one can be told; nothing else changes.

    An id follows from what the section holds, so that the same design written again has the same ones.
    """
    taken = {str(one["id"]): 0 for one in _sections(design) if one.get("id") is not None}
    return design | {"sections": _named(design["sections"], "sections", 0, taken)} if "sections" in design else design


def _sections(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every section as it came, those in columns too."""
    for one in document.sections(value):
        if isinstance(one, dict):
            yield one
            columns = one["props"].get("columns") if isinstance(one.get("props"), dict) else None
            for column in columns if isinstance(columns, list) else []:
                yield from _sections(column)


def _named(raw: Any, path: str, level: int, taken: dict[str, int]) -> Any:
    if not isinstance(raw, list):
        return raw
    return [_name(one, f"{path}[{index}]", level, taken) if isinstance(one, dict) else one
            for index, one in enumerate(raw)]  # fmt: skip


def _name(raw: dict[str, Any], path: str, level: int, taken: dict[str, int]) -> dict[str, Any]:
    found = document.section(raw, path)
    added: dict[str, Any] = {}
    if raw.get("id") is None:
        added["id"] = _id(raw, taken)
    if raw.get("type") is None and found.type:
        added["type"] = found.type
    columns = raw["props"].get("columns") if isinstance(raw.get("props"), dict) else None
    is_columns = found.kind is not None and found.kind.name == "columns" and level < document.MAX_LEVELS
    if is_columns and isinstance(columns, list):
        inner = [
            column | {"sections": _named(column["sections"], f"{path}.props.columns[{number}].sections", level + 1,
                                         taken)}
            if isinstance(column, dict) and "sections" in column else column
            for number, column in enumerate(columns)
        ]  # fmt: skip
        added["props"] = raw["props"] | {"columns": inner}
    return raw | added


def _id(raw: dict[str, Any], taken: dict[str, int]) -> str:
    text = json.dumps({key: value for key, value in raw.items() if key not in ("id", "type")}, sort_keys=True)
    # Where the last section that says the same left off: thousands of them would ask for each other's numbers
    same = f"={text}"
    number = taken.get(same, 0)
    while True:
        found = "s" + hashlib.blake2b(f"{number}{text}".encode(), digest_size=4).hexdigest()
        number += 1
        if found not in taken:
            taken |= {found: 0, same: number}
            return found
