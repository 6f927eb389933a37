"""Says of a person at a branch which filters let them through, which did not, and what was found."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from appliance.audience.filters.read import Group, Lived, Node
from appliance.audience.filters.scope import Scope
from appliance.audience.segments import explain
from appliance.audience.segments.explain import Row
from appliance.core import clock


class Reason(Struct):
    """One filter at a branch: what it asks, whether it holds, and what it found; `rows` are those of a group.

    `decided` says that it is one of those that made the answer what it is: where all must hold, the ones that do not.
    """

    name: str
    predicate: str
    value: Any
    sentence: str
    holds: bool
    decided: bool
    actual: Any
    found: str
    rows: "list[Reason]"


def reasons(nodes: Sequence[Node], here: Scope, contact_id: int, event_data: Any, started_at: int) -> list[Reason]:
    """Explain each filter of a branch for one run, as it is at this moment."""
    more = {"event_data": msgspec.json.encode(event_data).decode(), "flow_start": started_at}
    told = [_reason(node, explain.row(node, here, contact_id, more), here) for node in nodes]
    _decide(told, "all")
    return told


def _reason(node: Node, row: Row, here: Scope) -> Reason:
    parts = node.parts if isinstance(node, Group) else []
    below = [_reason(part, one, here) for part, one in zip(parts, row.rows, strict=True)]
    return Reason(
        row.name, row.predicate, row.value, row.sentence, row.matches, False, row.actual,
        _found(node, row, here), below,
    )  # fmt: skip


def _decide(rows: Sequence[Reason], mode: str) -> None:
    """Mark the filters that made the answer, by how they are joined: `all`, `any` or `none`."""
    holding = [row for row in rows if row.holds]
    missing = [row for row in rows if not row.holds]
    decisive = (missing or holding) if mode == "all" else (holding or missing)
    for row in decisive:
        row.decided = True
        if row.rows:
            _decide(row.rows, row.predicate)


def _found(node: Node, row: Row, here: Scope) -> str:
    """Return what was found about the person, in words."""
    if isinstance(node, Group):
        held = sum(part.matches for part in row.rows)
        return f"{held} of {len(row.rows)} hold"
    if isinstance(node, Lived):
        return _times(row.actual, here)
    if node.field.type == "time":
        return "never" if row.actual is None else spoken(clock.parse(row.actual), here.zone)
    if node.field.type == "boolean":
        return "yes" if row.actual is True else "no"
    if node.field.type == "id":
        names = [explain.called(here.account_id, node.field.of, number) for number in row.actual or []]
        return _listed([f"“{name}”" for name in names])
    return _value(row.actual)


def _times(actual: Any, here: Scope) -> str:
    if not actual["count"]:
        return "never"
    count = {1: "once", 2: "twice"}.get(actual["count"], f"{actual['count']} times")
    return f"{count}, last {spoken(clock.parse(actual['last_at']), here.zone)}"


def _value(value: Any) -> str:
    if value is None or value == []:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _listed([_value(one) for one in value])
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()[:200]
    return f"“{value}”" if isinstance(value, str) else str(value)


def _listed(parts: list[str]) -> str:
    more = f" and {len(parts) - 10} more" if len(parts) > 10 else ""
    return ", ".join(parts[:10]) + more or "none"


def spoken(ms: int, zone: str) -> str:
    """Say a moment as people of a time zone do: `Tue 24 Nov 2026, 10:00`."""
    return f"{day(ms, zone)}, {hour(ms, zone)}"


def day(ms: int, zone: str) -> str:
    """Say the day of a moment in a time zone: `Tue 24 Nov 2026`."""
    moment = datetime.fromtimestamp(ms / 1000, ZoneInfo(zone))
    return f"{moment:%a} {moment.day} {moment:%b %Y}"


def hour(ms: int, zone: str) -> str:
    """Say the time of day of a moment in a time zone: `10:00`, with seconds where there are any."""
    moment = datetime.fromtimestamp(ms / 1000, ZoneInfo(zone))
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
