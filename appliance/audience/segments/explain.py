"""Says of one person, filter by filter, whether a segment holds and what was found."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from appliance.audience.filters import compile, words
from appliance.audience.filters.read import Group, Lived, Node
from appliance.audience.filters.scope import Scope
from appliance.audience.segments import people, store
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.storage.open import rows, scalar

NOTHING: Mapping[str, Any] = {}
_CALLED = {
    "list": "SELECT name FROM contact_list WHERE account_id = ? AND id = ?",
    "segment": "SELECT name FROM segment WHERE account_id = ? AND id = ?",
    "flow": "SELECT name FROM flow WHERE account_id = ? AND id = ?",
    "campaign": "SELECT name FROM campaign WHERE account_id = ? AND id = ?",
}


class Row(Struct):
    """One filter, as sent, with what it found in the person; `rows` are the filters of a group."""

    name: str
    predicate: str
    value: Any
    sentence: str
    matches: bool
    actual: Any
    rows: "list[Row]"


class Explained(Struct):
    """Whether a person is in a segment, and why."""

    segment_id: int
    contact_id: int
    matches: bool
    sentence: str
    rows: list[Row]


def explain(account_id: int, segment_id: int, contact_id: int) -> Explained:
    """Explain one person's membership; raises NotFound, or Invalid for a contact that is not there."""
    segment = store.get(account_id, segment_id)
    if not rows("SELECT 1 FROM contact WHERE account_id = ? AND id = ?", (account_id, contact_id)):
        raise Invalid({"contact_id": ["must exist"]})
    here = people.scope(account_id)
    nodes = people.nodes(account_id, segment.filters)
    told = [row(node, here, contact_id) for node in nodes]
    return Explained(
        segment_id, contact_id, holds(nodes, here, contact_id), sentence(account_id, nodes, here), told
    )  # fmt: skip


def holds(nodes: list[Node], here: Scope, contact_id: int, more: Mapping[str, Any] = NOTHING) -> bool:
    """Return whether a person is in: the SQL of the segment, asked about one; `more` are parameters of its scope."""
    asked = compile.condition(nodes, here)
    return _one(asked.sql, {**asked.parameters, **more}, contact_id)


def sentence(account_id: int, nodes: list[Node], here: Scope) -> str:
    """Say in words whom filters mean."""
    return words.sentence(nodes, here, lambda kind, number: called(account_id, kind, number))


def called(account_id: int, kind: str, number: int) -> str:
    """Return what a list, segment, flow or campaign is called."""
    return str(scalar(_CALLED[kind], (account_id, number)) or f"{kind} {number}")


def _one(sql: str, parameters: dict[str, Any], contact_id: int) -> bool:
    found = rows(f"SELECT ({sql}) IS TRUE FROM contact c WHERE c.id = :one", {**parameters, "one": contact_id})
    return bool(found and found[0][0])


def row(node: Node, here: Scope, contact_id: int, more: Mapping[str, Any] = NOTHING) -> Row:
    """Explain one filter; `more` are parameters of its scope."""
    asked = compile.single(node, here, "f")
    parts = [row(part, here, contact_id, more) for part in node.parts] if isinstance(node, Group) else []
    return Row(
        node.raw["name"], node.raw["predicate"], node.raw.get("value"),
        words.clause(node, here, lambda kind, number: called(here.account_id, kind, number)),
        _one(asked.sql, {**asked.parameters, **more}, contact_id), actual(node, here, contact_id, more), parts,
    )  # fmt: skip


def actual(node: Node, here: Scope, contact_id: int, more: Mapping[str, Any] = NOTHING) -> Any:
    """Return the person's own value: times written out, ids as arrays, events counted."""
    if isinstance(node, Group):
        return None
    if not isinstance(node, Lived) and node.field.of == "segment":
        wanted = node.value if isinstance(node.value, list) else [node.value]
        return [number for number in wanted if holds(here.segment(number) or [], here, contact_id)]
    asked = compile.shown(node, here, "v")
    found = rows(
        f"SELECT {asked.sql} FROM contact c WHERE c.id = :one", {**asked.parameters, **more, "one": contact_id}
    )
    text = found[0][0] if found else None
    value: Any = None if text is None else msgspec.json.decode(str(text))
    if isinstance(node, Lived):
        return {"count": value["count"], "last_at": clock.iso(value["last_at"])}
    return clock.iso(value) if node.field.type == "time" else value
