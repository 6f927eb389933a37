"""The compiled form of a flow: a row for each step of a version, kept in memory once read, for it never changes."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.db.open import connection, rows
from appliance.db.work import after_commit, is_writing, writing
from appliance.flows.steps.kind import Node
from appliance.tables import Step

_MAX_KEPT = 200
_INSERT = (
    "INSERT INTO step (flow_id, version, action_id, kind, template_id, content_id, pinned, data, next_action, "
    "yes_action, no_action, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# What a step is in the document beside what its kind takes
FRAME = frozenset({"id", "type", "yes", "no"})


class Plan(NamedTuple):
    """All steps of one version of a flow; without any, a run ends as it begins."""

    flow_id: int
    version: int
    first: int | None
    nodes: dict[int, Node]


def compiled(steps: Sequence[dict[str, Any]]) -> list[Node]:
    """Compile a nested document, each step with its `id` and `type`; in the order in which they stand."""
    return list(_compiled(steps, None))


def _compiled(steps: Sequence[dict[str, Any]], after: int | None) -> Iterator[Node]:
    """Compile siblings, the last of which leads to `after`; branches re-join behind their split."""
    for index, step in enumerate(steps):
        following = steps[index + 1]["id"] if index + 1 < len(steps) else after
        props = {key: value for key, value in step.items() if key not in FRAME}
        if "yes" not in step and "no" not in step:
            yield Node(step["id"], step["type"], props, following)
            continue
        yes, no = step.get("yes") or [], step.get("no") or []
        ways = (yes[0]["id"] if yes else following, no[0]["id"] if no else following)
        yield Node(step["id"], step["type"], props, following, *ways)
        yield from _compiled(yes, following)
        yield from _compiled(no, following)


def write(flow_id: int, version: int, nodes: Sequence[Node], messages: dict[int, dict[str, Any]]) -> None:
    """Keep a version; `messages` are by step the `template`, `content` and `pinned` columns of those that send."""
    writing()
    encode = msgspec.json.encode
    values = []
    for position, node in enumerate(nodes):
        said = messages.get(node.id, {})
        pinned = said.get("pinned")
        values.append(
            (
                flow_id, version, node.id, node.kind, said.get("template"), said.get("content"),
                None if pinned is None else encode(pinned).decode(), encode(node.props).decode(), node.next, node.yes,
                node.no, position,
            )
        )  # fmt: skip
    connection().executemany(_INSERT, values)


_kept: "OrderedDict[tuple[int, int], Plan]" = OrderedDict()
_lock = threading.Lock()


def load(flow_id: int, version: int) -> Plan:
    """Return a version of a flow; it is kept once it is certain that it was committed, for a number may be given again
    where it was not."""
    key = (flow_id, version)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = read(flow_id, version)
    if is_writing():
        after_commit(lambda: _keep(key, found))
    else:
        _keep(key, found)
    return found


def _keep(key: tuple[int, int], found: Plan) -> None:
    with _lock:
        _kept[key] = found
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)


def read(flow_id: int, version: int) -> Plan:
    """Read a version of a flow, also one that is not committed."""
    found = Step.select().where(Step.flow == flow_id, Step.version == version).order_by(Step.position)
    nodes = {
        row.action_id: Node(row.action_id, row.kind, row.data, row.next_action, row.yes_action, row.no_action)
        for row in found
    }
    return Plan(flow_id, version, next(iter(nodes), None), nodes)


def forget() -> None:
    """Let every plan be read again; for a process whose database was changed under it, and for rehearsals."""
    with _lock:
        _kept.clear()


def versions(flow_id: int) -> list[int]:
    """Return the versions that a flow ever had live, oldest first."""
    return [row[0] for row in rows("SELECT DISTINCT version FROM step WHERE flow_id = ? ORDER BY version", (flow_id,))]
