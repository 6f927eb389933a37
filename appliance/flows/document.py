"""The steps of a flow as a document: read as they are sent, with every fault at its path, and shown as they are stored.

What a step is follows from its keys where it does not say so (docs/decisions.md#12). Stored, each has `id` and `type`,
what its kind keeps, and its branches where it has any.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.content.designs import merge
from appliance.content.designs.document import strings
from appliance.core.errors import Faults
from appliance.flows.steps import BY_TYPE, KINDS
from appliance.flows.steps.kind import Kind, Node, Reading
from appliance.storage.models import Step as tables_Step
from appliance.storage.open import connection, rows
from appliance.storage.work import after_commit, is_writing, writing

# The compiled form of a flow: a row for each step of a version, kept in memory once read, for it never changes.

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


def write_plan(flow_id: int, version: int, nodes: Sequence[Node], messages: dict[int, dict[str, Any]]) -> None:
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


def load_plan(flow_id: int, version: int) -> Plan:
    """Return a version of a flow; it is kept once it is certain that it was committed, for a number may be given again
    where it was not."""
    key = (flow_id, version)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = read_plan(flow_id, version)
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


def read_plan(flow_id: int, version: int) -> Plan:
    """Read a version of a flow, also one that is not committed."""
    found = (
        tables_Step.select()
        .where(tables_Step.flow == flow_id, tables_Step.version == version)
        .order_by(tables_Step.position)
    )
    nodes = {
        row.action_id: Node(row.action_id, row.kind, row.data, row.next_action, row.yes_action, row.no_action)
        for row in found
    }
    return Plan(flow_id, version, next(iter(nodes), None), nodes)


def forget_plans() -> None:
    """Let every plan be read again; for a process whose database was changed under it, and for rehearsals."""
    with _lock:
        _kept.clear()


def versions(flow_id: int) -> list[int]:
    """Return the versions that a flow ever had live, oldest first."""
    return [row[0] for row in rows("SELECT DISTINCT version FROM step WHERE flow_id = ? ORDER BY version", (flow_id,))]


MAX_STEPS = 200
MAX_DEPTH = 10
# Of the merge tags of all its messages together, outside of quotes (`merge.code_fault`): it is published in one piece
MAX_TAG_CODE = 65_536
BRANCHES = ("yes", "no")
# What every step answers, whatever it is
NEUTRAL: dict[str, Any] = {
    "subject": "", "body": "", "preheader": "", "duration": 0, "filters": [], "yes": [], "no": [], "event_name": "",
    "forward_event_data": False, "template_id": None,
}  # fmt: skip
KEYS = FRAME.union(*(kind.keys for kind in KINDS))
_MAX_KEY_CHARACTERS = 100

Step = dict[str, Any]


class Steps(NamedTuple):
    """Steps as they were read; those that send hold their words under `content` until they stand in a template."""

    steps: list[Step]
    last_action: int


def read(
    account_id: int, raw: Any, faults: Faults, before: Sequence[Step] = (), last_action: int = 0, path: str = "steps"
) -> Steps:
    """Read the steps of a flow and note every fault; a step with the `id` of one that is there `before` is that one.

    All others get new ids: none is ever given twice.
    """
    if raw is None:
        return Steps([], last_action)
    reader = _Reader(account_id, faults, {step["id"]: step for _, step in walk(before)}, last_action)
    # Absent is only null: what an empty object means in place of all steps, nobody knows
    words = size_fault(raw) or merge.code_fault(strings(raw), MAX_TAG_CODE) if isinstance(raw, list) else "is invalid"
    if words:
        faults.add(path, words)
        return Steps([], last_action)
    steps = reader.all(raw, path)
    return Steps(steps, reader.last_action)


def walk(steps: Sequence[Step], path: str = "steps") -> Iterator[tuple[str, Step]]:
    """Return every step with its path, in the order in which they stand."""
    for index, step in enumerate(steps):
        here = f"{path}[{index}]"
        yield here, step
        for branch in BRANCHES:
            yield from walk(step.get(branch) or (), f"{here}.{branch}")


def kept(step: Step) -> dict[str, Any]:
    """Return what the kind of a stored step keeps of it."""
    return {key: value for key, value in step.items() if key not in FRAME}


def shown(steps: Sequence[Step], said: Mapping[int, Mapping[str, Any]]) -> list[Step]:
    """Return stored steps as the interface shows them; `said` are the words of their templates by template id."""
    found = []
    for step in steps:
        props = kept(step)
        if "template_id" in props:
            props["content"] = said.get(props["template_id"], {})
        dumped = {key: value for key, value in BY_TYPE[step["type"]].dump(props).items() if value is not None}
        branches = {branch: shown(step.get(branch) or (), said) for branch in BRANCHES}
        found.append({"id": step["id"], "type": step["type"], **NEUTRAL, **dumped, **branches})
    return found


def is_neutral(value: Any) -> bool:
    """Return whether a value counts as absent in a step: null, "", [], {}, false, 0."""
    return value is None or (isinstance(value, str | list | dict | bool | int | float) and not value)


def size_fault(raw: Any) -> str | None:
    """Return whether there are more steps, or deeper ones, than any flow has; before anything else looks at them."""
    count, depth, level = 0, 0, [raw]
    while level:
        depth += 1
        steps = [step for branch in level if isinstance(branch, list) for step in branch]
        count += len(steps)
        if count > MAX_STEPS:
            return f"is too long (maximum is {MAX_STEPS} steps)"
        if steps and depth > MAX_DEPTH:
            return f"is nested too deeply (maximum is {MAX_DEPTH} levels)"
        level = [step.get(branch) for step in steps if isinstance(step, dict) for branch in BRANCHES]
    return None


class _Reader:
    def __init__(self, account_id: int, faults: Faults, before: dict[int, Step], last_action: int) -> None:
        self.account_id = account_id
        self.faults = faults
        self.before = before
        self.taken: set[int] = set()
        self.last_action = last_action

    def all(self, raw: Any, path: str) -> list[Step]:
        if is_neutral(raw):
            return []
        if not isinstance(raw, list):
            self.faults.add(path, "is invalid")
            return []
        found = [self.one(step, f"{path}[{index}]") for index, step in enumerate(raw)]
        return [step for step in found if step is not None]

    def one(self, raw: Any, path: str) -> Step | None:
        if not isinstance(raw, dict):
            self.faults.add(path, "is invalid")
            return None
        for key in raw:
            if key not in KEYS:
                self.faults.add(f"{path}.{_writable(key)}", "is not a known field")
        known = self._known(raw, path)
        kind = self._kind(raw, path, known)
        if kind is None:
            # What stands in its branches is told all the same
            for branch in BRANCHES:
                self.all(raw.get(branch), f"{path}.{branch}")
            return None
        step: Step = {"id": self._id(known), "type": kind.type}
        step |= kind.parse(_sent(raw, kind, known), Reading(self.account_id, path, self.faults))
        if kind.branches:
            step |= {branch: self.all(raw.get(branch), f"{path}.{branch}") for branch in BRANCHES}
        return step

    def _id(self, known: Step | None) -> int:
        if known is not None:
            return int(known["id"])
        self.last_action += 1
        return self.last_action

    def _known(self, raw: Step, path: str) -> Step | None:
        """Return the step that this one was until now."""
        number = raw.get("id")
        if is_neutral(number):
            return None
        if type(number) is not int or not 0 < number < 2**63:
            self.faults.add(f"{path}.id", "is invalid")
            return None
        known = self.before.get(number)
        if known is not None and number in self.taken:
            self.faults.add(f"{path}.id", "has already been taken")
        self.taken.add(number)
        return known

    def _kind(self, raw: Step, path: str, known: Step | None) -> Kind | None:
        sent = {key for key, value in raw.items() if key in KEYS and not is_neutral(value)} - {"id", "type"}
        said = raw.get("type")
        if not is_neutral(said) and (not isinstance(said, str) or said not in BY_TYPE):
            self.faults.add(f"{path}.type", "is not included in the list")
            return None
        kind = BY_TYPE[said] if isinstance(said, str) and said else _inferred(raw, sent, known)
        if kind is None:
            self.faults.add(path, "can't be blank")
            return None
        if known is not None and known["type"] != kind.type:
            self.faults.add(path, f"cannot change from {known['type']} to {kind.type}: leave out its id")
            return None
        others = sent - kind.keys - (FRAME if kind.branches else frozenset())
        if others:
            self.faults.add(path, f"is of the kind {kind.type}, which has no {', '.join(sorted(others))}")
            return None
        return kind


def _inferred(raw: Step, sent: set[str], known: Step | None) -> Kind | None:
    """Return the kind that a step without `type` has by its keys; the first one that any of them claims."""
    claiming = next((kind for kind in KINDS if kind.claims & sent), None)
    if known is not None and (claiming is None or not sent - BY_TYPE[known["type"]].keys - FRAME):
        return BY_TYPE[known["type"]]
    if claiming is not None:
        return claiming
    if "template_id" in sent:
        return BY_TYPE["email"]
    is_wait = not sent and type(raw.get("duration")) is int
    return BY_TYPE["wait"] if is_wait else None


def _sent(raw: Step, kind: Kind, known: Step | None) -> Step:
    """Return what a kind reads: its own keys, those that count as absent as null."""
    found = {
        key: None if is_neutral(value) and not (key == "duration" and type(value) is int) else value
        for key, value in raw.items() if key in kind.keys
    }  # fmt: skip
    if known is not None and "template_id" in known:
        if "transactional" not in raw:
            found["transactional"] = known["transactional"] or None
        if found.get("template_id") == known["template_id"]:
            # Its own, from which nothing is to be copied
            found["template_id"] = None
    return found


def _writable(key: str) -> str:
    """Make a key fit for a path in an answer."""
    return key.encode("utf-8", "replace").decode().replace("\x00", "?")[:_MAX_KEY_CHARACTERS]
