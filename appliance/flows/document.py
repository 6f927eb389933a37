"""The nested steps of a flow: parsing a request, output for the API, search, and rearranging.

The keys of a step determine its type if the request does not name it (docs/decisions.md#12). A stored step has `id` and
`type`, the props of its kind, and its branches if it has any. Functions that rearrange steps return new lists and leave
their arguments unchanged. `versions` compiles a document into the rows of a version.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from appliance.content.designs import merge, merge_limits, utm
from appliance.core.errors import Faults
from appliance.core.i18n import gettext
from appliance.events import log
from appliance.flows import branches, jumps
from appliance.flows.branches import list_branches, map_branches
from appliance.flows.steps import BY_TYPE, KINDS
from appliance.flows.steps.base import ParseContext, StepKind
from appliance.flows.steps.wait import MAX_SECONDS

# The keys of a step that do not depend on its kind.
FRAME_KEYS = frozenset({"id", "type", *branches.BRANCH_KEYS})


MAX_STEPS = 200
MAX_DEPTH = 10
# The limit of merge tag code in all messages of a flow together, in characters outside of quotes
# (`find_code_error`). All messages are compiled in the transaction that publishes the flow.
MAX_TAG_CODE = 65_536
# Fields that the API shows for steps of every kind.
EMPTY_STEP: dict[str, Any] = {
    "subject": "", "body": "", "preheader": "", "duration": 0, "filters": [], "yes": [], "no": [], "event_name": "",
    "forward_event_data": False, "template_id": None,
}  # fmt: skip
STEP_KEYS = FRAME_KEYS.union(*(kind.keys for kind in KINDS))
_MAX_KEY_CHARACTERS = 100

Step = dict[str, Any]


class ParsedSteps(NamedTuple):
    """Parsed steps, and the highest step id that was ever used in the flow (`last_action`).

    Steps that send have their content under `content` until it is saved in a template.
    """

    steps: list[Step]
    last_action: int


def parse_steps(
    account_id: int, raw: Any, faults: Faults, previous: Sequence[Step] = (), last_action: int = 0, path: str = "steps"
) -> ParsedSteps:
    """Parse the steps of a request and add every error to `faults`, each at its path below `path`.

    A step with the `id` of a step in `previous` keeps that id. All others get new ids above `last_action`, because an
    id is never used twice; a `go_to` may name an id as it was sent. With errors, the returned steps are incomplete.
    """
    if raw is None:
        return ParsedSteps([], last_action)
    parser = _StepParser(account_id, faults, {step["id"]: step for _, step in walk(previous)}, last_action)
    # For `steps` itself only null counts as absent; within a step, other values do, too (`is_absent`).
    error = (
        check_size(raw) or merge_limits.find_code_error(merge.iterate_strings(raw), MAX_TAG_CODE)
        if isinstance(raw, list)
        else "is invalid"
    )
    if error:
        faults.add(path, error)
        return ParsedSteps([], last_action)
    steps = [jumps.renumber(step, parser.new_ids) for step in parser.parse_all(raw, path)]
    if not faults.fields:
        for fault_path, message in jumps.find_faults(steps, dict(walk(steps, path))):
            faults.add(fault_path, message)
    return ParsedSteps(steps, parser.last_action)


def walk(steps: Sequence[Step], path: str = "steps") -> Iterator[tuple[str, Step]]:
    """Yield every step with its path, depth first, in document order."""
    for index, step in enumerate(steps):
        step_path = f"{path}[{index}]"
        yield step_path, step
        for branch in list_branches(step):
            yield from walk(branch.steps, f"{step_path}{branch.path}")


def dump_steps(steps: Sequence[Step], contents: Mapping[int, Mapping[str, Any]]) -> list[Step]:
    """Return stored steps as the API shows them.

    `contents` holds the content of the templates (see `versions.get_contents`) by template id.
    """
    dumped_steps = []
    for step in steps:
        props = branches.get_props(step)
        if "template_id" in props:
            props["content"] = contents.get(props["template_id"], {})
        dumped = {key: value for key, value in BY_TYPE[step["type"]].dump(props).items() if value is not None}
        nested = {branch.key: dump_steps(branch.steps, contents) for branch in list_branches(step)}
        dumped_steps.append(
            {"id": step["id"], "type": step["type"], **EMPTY_STEP, **branches.join_branches(dumped, nested)}
        )
    return dumped_steps


def is_absent(value: Any) -> bool:
    """Return whether a value counts as absent in a step: null, "", [], {}, false, 0."""
    return value is None or (isinstance(value, str | list | dict | bool | int | float) and not value)


def check_size(raw: Any) -> str | None:
    """Return an error if there are more than `MAX_STEPS` steps or `MAX_DEPTH` levels, else None.

    It accepts any JSON, because it is called before the steps are parsed.
    """
    count, depth, level = 0, 0, [raw]
    while level:
        depth += 1
        steps = [step for branch in level if isinstance(branch, list) for step in branch]
        count += len(steps)
        if count > MAX_STEPS:
            return f"is too long (maximum is {MAX_STEPS} steps)"
        if steps and depth > MAX_DEPTH:
            return f"is nested too deeply (maximum is {MAX_DEPTH} levels)"
        level = [nested for step in steps if isinstance(step, dict) for _, nested in branches.iterate_raw(step)]
    return None


class _StepParser:
    def __init__(self, account_id: int, faults: Faults, previous: dict[int, Step], last_action: int) -> None:
        self.account_id = account_id
        self.faults = faults
        self.previous = previous
        self.used_ids: set[int] = set()
        # The new ids of steps by the ids that were sent.
        self.new_ids: dict[int, int] = {}
        self.last_action = last_action

    def parse_all(self, raw: Any, path: str) -> list[Step]:
        if is_absent(raw):
            return []
        if not isinstance(raw, list):
            self.faults.add(path, gettext("is invalid"))
            return []
        steps = [self.parse_one(step, f"{path}[{index}]") for index, step in enumerate(raw)]
        return [step for step in steps if step is not None]

    def parse_one(self, raw: Any, path: str) -> Step | None:
        if not isinstance(raw, dict):
            self.faults.add(path, gettext("is invalid"))
            return None
        for key in raw:
            if key not in STEP_KEYS:
                self.faults.add(f"{path}.{_make_printable(key)}", gettext("is not a known field"))
        previous_step = self._match_previous(raw, path)
        kind = self._resolve_kind(raw, path, previous_step)
        if kind is None:
            # Errors inside the branches are reported too.
            for branch_path, nested in branches.iterate_raw(raw):
                self.parse_all(nested, f"{path}{branch_path}")
            return None
        step: Step = {"id": self._assign_id(previous_step), "type": kind.type}
        if type(raw.get("id")) is int:
            self.new_ids[raw["id"]] = step["id"]
        context = ParseContext(self.account_id, path, self.faults, self._get_new_id, previous_step)
        props = kind.parse(_select_keys(raw, kind, previous_step), context)
        for key, value in props.items():
            key_path = f"{path}.{key}"
            is_known = any(fault_path.startswith(key_path) for fault_path in self.faults.fields)
            if not is_known and not _is_storable(value):
                self.faults.add(key_path, gettext("is invalid"))
        return step | self._parse_branches(kind, props, raw, path)

    def _parse_branches(self, kind: StepKind, props: Step, raw: Step, path: str) -> Step:
        """Return the props of a step with the parsed steps of its branches; its props decide which branches it has.

        Add an error for each other branch that has steps, such as one of a wait for an hour.
        """
        keys = kind.list_branches(props)
        # Invalid items of `branches` are not among the props, but the errors in their steps are reported too.
        listed = [item["key"] for item in props.get(branches.LISTED_KEY, ())]
        nested: dict[str, list[Step]] = {key: [] for key in keys}
        for branch_path, raw_steps in branches.iterate_raw(raw):
            is_listed = branch_path.startswith(f".{branches.LISTED_KEY}")
            if not is_listed and branch_path[1:] not in kind.branch_keys:
                continue
            steps = self.parse_all(raw_steps, f"{path}{branch_path}")
            key = (listed.pop(0) if listed else "") if is_listed else branch_path[1:]
            if key in nested:
                nested[key] = steps
            elif steps and not is_listed:
                self.faults.add(f"{path}{branch_path}", gettext("must be empty: this step has no branches"))
        return branches.join_branches(props, nested)

    def _assign_id(self, previous_step: Step | None) -> int:
        if previous_step is not None:
            return int(previous_step["id"])
        return self._get_new_id()

    def _get_new_id(self) -> int:
        self.last_action += 1
        return self.last_action

    def _match_previous(self, raw: Step, path: str) -> Step | None:
        """Return the stored step with the id of a raw step, or None; add an error for an invalid or repeated id."""
        step_id = raw.get("id")
        if is_absent(step_id):
            return None
        if type(step_id) is not int or not 0 < step_id < 2**63:
            self.faults.add(f"{path}.id", gettext("is invalid"))
            return None
        previous_step = self.previous.get(step_id)
        if previous_step is not None and step_id in self.used_ids:
            self.faults.add(f"{path}.id", gettext("has already been taken"))
        self.used_ids.add(step_id)
        return previous_step

    def _resolve_kind(self, raw: Step, path: str, previous_step: Step | None) -> StepKind | None:
        sent_keys = {key for key, value in raw.items() if key in STEP_KEYS and not is_absent(value)} - {"id", "type"}
        type_name = raw.get("type")
        if not is_absent(type_name) and (not isinstance(type_name, str) or type_name not in BY_TYPE):
            self.faults.add(f"{path}.type", gettext("is not included in the list"))
            return None
        kind = (
            BY_TYPE[type_name]
            if isinstance(type_name, str) and type_name
            else _infer_kind(raw, sent_keys, previous_step)
        )
        if kind is None:
            self.faults.add(path, gettext("can't be blank"))
            return None
        if previous_step is not None and previous_step["type"] != kind.type:
            self.faults.add(
                path,
                gettext(
                    "cannot change from %(previous_step)s to %(type)s: leave out its id",
                    previous_step=previous_step["type"],
                    type=kind.type,
                ),
            )
            return None
        unknown = sent_keys - kind.keys - set(kind.branch_keys)
        if unknown:
            self.faults.add(
                path,
                gettext(
                    "is a step of type %(type)s, which has no %(value)s",
                    type=kind.type,
                    value=", ".join(sorted(unknown)),
                ),
            )
            return None
        return kind


def _infer_kind(raw: Step, sent_keys: set[str], previous_step: Step | None) -> StepKind | None:
    """Return the kind of a step without `type`, from its keys, or None if they do not determine it.

    A stored step keeps its kind unless it has a key of another kind. Any other step is of the first kind that claims
    one of its keys. A step with only `template_id` is an email, and one with only a number as `duration` is a wait.
    """
    claiming = next((kind for kind in KINDS if kind.claims & sent_keys), None)
    if previous_step is not None and (
        claiming is None or not sent_keys - BY_TYPE[previous_step["type"]].keys - FRAME_KEYS
    ):
        return BY_TYPE[previous_step["type"]]
    if claiming is not None:
        return claiming
    if "template_id" in sent_keys:
        return BY_TYPE["email"]
    is_wait = not sent_keys and type(raw.get("duration")) is int
    return BY_TYPE["wait"] if is_wait else None


def _is_storable(value: Any) -> bool:
    """Return whether a property of a step can be stored: it has no lone surrogate and is not nested too deeply."""
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, RecursionError):
        return False
    return True


def _select_keys(raw: Step, kind: StepKind, previous_step: Step | None) -> Step:
    """Return the values of a raw step that belong to its kind, with None for absent ones.

    A duration of 0 is not absent. A stored step keeps `transactional`, `channel` and `utm` if the raw step lacks these
    keys. `template_id` is None if it names the step's own template, because then nothing is to be copied.
    """
    values = {
        key: None if is_absent(value) and not (key == "duration" and type(value) is int) else value
        for key, value in raw.items() if key in kind.keys or key in kind.branch_keys
    }  # fmt: skip
    if previous_step is not None and "channel" in previous_step and "channel" not in raw:
        values["channel"] = previous_step["channel"]
    if previous_step is not None and "utm" in previous_step and "utm" not in raw and "utm" in kind.keys:
        values["utm"] = {name: previous_step["utm"].get(name) for name in utm.NAMES}
    if previous_step is not None and "template_id" in previous_step:
        if "transactional" not in raw:
            values["transactional"] = previous_step["transactional"] or None
        if values.get("template_id") == previous_step["template_id"]:
            # The step names its own template, so there is nothing to copy.
            values["template_id"] = None
    return values


def _make_printable(key: str) -> str:
    """Return a key of a request, truncated and cleaned so that it can be part of the path of an error."""
    return key.encode("utf-8", "replace").decode().replace("\x00", "?")[:_MAX_KEY_CHARACTERS]


_STEP = {"$ref": "#/components/schemas/FlowStepWrite"}
# The type is `Any` because `parse_steps` validates the steps, with a path for each error.
StepsWrite = Annotated[Any, Meta(extra_json_schema={"type": "array", "maxItems": MAX_STEPS, "items": _STEP})]


START, AFTER = "start", "after"


class Position(NamedTuple):
    """A position for a step: `start` of the flow, `after` a step, or first in the branch of a step with a key."""

    placement: str
    id: int = 0

    def __str__(self) -> str:
        return self.placement if self.placement == START else f"{self.placement}-{self.id}"


class StepLocation(NamedTuple):
    """Where a step is: a copy of the list that contains it, its index there, and the step and branch above.

    At the top level `parent` is None and `branch` is empty.
    """

    siblings: list[Step]
    at: int
    parent: Step | None
    branch: str


def parse_position(text: str) -> Position | None:
    """Parse a position in the form that `str` returns, such as `start` or `after-7`; return None for any other text."""
    how, _, number = text.partition("-")
    if text == START:
        return Position(START)
    if (how == AFTER or branches.is_branch_key(how)) and number.isdecimal() and len(number) < 10:
        return Position(how, int(number))
    return None


def locate_step(steps: Sequence[Step], step_id: int) -> StepLocation | None:
    """Return the location of a step, or None if it is not in the document."""
    return _locate_step(steps, step_id, None, "")


def _locate_step(steps: Sequence[Step], step_id: int, parent: Step | None, branch: str) -> StepLocation | None:
    for index, step in enumerate(steps):
        if step["id"] == step_id:
            return StepLocation(list(steps), index, parent, branch)
        for nested in list_branches(step):
            location = _locate_step(nested.steps, step_id, step, nested.key)
            if location is not None:
                return location
    return None


def find_step(steps: Sequence[Step], step_id: int) -> Step | None:
    """Return the step with an id, at any level, or None."""
    return next((step for _, step in walk(steps) if step["id"] == step_id), None)


def list_descendants(step: Step) -> list[Step]:
    """Return all steps in the branches of a step, at any level."""
    return [descendant for branch in list_branches(step) for _, descendant in walk(branch.steps)]


def list_predecessors(steps: Sequence[Step], step_id: int) -> list[Step]:
    """Return the steps that every contact passes before a step, in order.

    They are its earlier siblings, the steps whose branches contain it, and the earlier siblings of these.
    """
    location = locate_step(steps, step_id)
    if location is None:
        return []
    earlier_siblings = location.siblings[: location.at]
    return (
        [*list_predecessors(steps, location.parent["id"]), location.parent, *earlier_siblings]
        if location.parent is not None
        else earlier_siblings
    )


def insert_step(steps: Sequence[Step], where: Position, step: Step) -> list[Step] | None:
    """Return the steps with a step inserted, or None if the position does not exist."""
    if where.placement == START:
        return [deepcopy(step), *deepcopy(list(steps))]
    inserted = False

    def visit(level: Sequence[Step]) -> list[Step]:
        nonlocal inserted
        siblings: list[Step] = []
        for sibling in level:
            copied = map_branches(sibling, visit)
            branch = branches.get_branch(copied, where.placement) if sibling["id"] == where.id else None
            if branch is not None:
                copied = branches.set_branch(copied, where.placement, [deepcopy(step), *branch])
                inserted = True
            siblings.append(copied)
            if sibling["id"] == where.id and where.placement == AFTER:
                siblings.append(deepcopy(step))
                inserted = True
        return siblings

    changed = visit(steps)
    return changed if inserted else None


def remove_step(steps: Sequence[Step], step_id: int) -> list[Step]:
    """Return the steps without a step and everything in its branches."""
    return [
        map_branches(sibling, lambda nested: remove_step(nested, step_id))
        for sibling in steps
        if sibling["id"] != step_id
    ]


def replace_step(steps: Sequence[Step], step: Step) -> list[Step]:
    """Return the steps with `step` in place of the step that has the same id."""
    return [
        deepcopy(step)
        if sibling["id"] == step["id"]
        else map_branches(sibling, lambda nested: replace_step(nested, step))
        for sibling in steps
    ]


def move_step(steps: Sequence[Step], step_id: int, where: Position) -> list[Step] | None:
    """Return the steps with a step, and everything in its branches, moved to a position.

    Return None if the step or the position does not exist, or if the position is relative to the step itself or inside
    it.
    """
    step = find_step(steps, step_id)
    if step is None or where.id in {step_id, *(descendant["id"] for descendant in list_descendants(step))}:
        return None
    return insert_step(remove_step(steps, step_id), where, step)


def shift_step(steps: Sequence[Step], step_id: int, by: int) -> list[Step] | None:
    """Return the steps with a step moved by `by` places among its siblings (negative: up).

    Return None if the step does not exist, or would move before the first or after the last sibling.
    """
    location = locate_step(steps, step_id)
    if location is None or not 0 <= location.at + by < len(location.siblings):
        return None
    others = [sibling for sibling in location.siblings if sibling["id"] != step_id]
    index = location.at + by
    if index > 0:
        return move_step(steps, step_id, Position(AFTER, others[index - 1]["id"]))
    return move_step(
        steps, step_id, Position(location.branch, location.parent["id"]) if location.parent else Position(START)
    )


class MoveTarget(NamedTuple):
    """A position to which a step may be moved, the step to which it is relative, and its nesting depth."""

    position: Position
    step: Step | None
    depth: int


def list_move_targets(steps: Sequence[Step], step_id: int) -> list[MoveTarget]:
    """Return the positions to which a step may be moved, in document order, without its current position."""
    step = find_step(steps, step_id)
    if step is None:
        return []
    remaining_steps = remove_step(steps, step_id)
    return [
        target
        for target in (MoveTarget(Position(START), None, 0), *_list_targets(remaining_steps, 0))
        if move_step(steps, step_id, target.position) != steps
    ]


def _list_targets(steps: Sequence[Step], depth: int) -> Iterator[MoveTarget]:
    for step in steps:
        for branch in list_branches(step):
            yield MoveTarget(Position(branch.key, step["id"]), step, depth + 1)
            yield from _list_targets(branch.steps, depth + 1)
        yield MoveTarget(Position(AFTER, step["id"]), step, depth)


def copy_step(step: Step, next_id: Callable[[], int]) -> Step:
    """Return a copy of a step with everything in its branches; `next_id` returns a new id for each copied step.

    If a copied `go_to` leads to a step that is copied, too, it leads to the copy of that step.
    """
    ids: dict[int, int] = {}

    def copy(original: Step) -> Step:
        ids[original["id"]] = next_id()
        copied = {**deepcopy(original), "id": ids[original["id"]]}
        return map_branches(copied, lambda nested: [copy(child) for child in nested])

    return jumps.renumber(copy(step), ids)


# Usual names of events that clients submit (docs/decisions.md#13); an event with any other name can start a flow too.
_CLIENT_EVENTS = (
    "product_view", "checkout", "cart_add", "cart_remove", "cart_abandoned", "browse_abandoned", "order_paid",
    "order_shipped", "password_reset",
)  # fmt: skip


def build_spec() -> dict[str, Any]:
    """Return the response of `GET /flows/spec`: kinds of steps, events and keys of triggers, and limits."""
    return {
        "steps": [_describe_kind(kind) for kind in KINDS],
        "events": [
            *({"name": kind.name, "group": kind.group, "words": kind.description} for kind in log.EVENT_KINDS),
            *({"name": name, "group": "client", "words": log.describe(name)} for name in _CLIENT_EVENTS),
        ],
        "trigger": {
            "frequency": ["once", "every_time", {"min_gap_seconds": 86_400}],
            "data": [
                "frequency",
                "where",
                "keywords",
                "tag",
                "path",
                "yearly",
                "offset_days",
                "at",
                "max_per_hour",
                "holdout",
                "holdout_event",
                "respect_control_group",
            ],
        },
        "limits": {"steps": MAX_STEPS, "depth": MAX_DEPTH, "wait_seconds": MAX_SECONDS},
    }


def _describe_kind(kind: StepKind) -> dict[str, Any]:
    return {
        "type": kind.type, "label": kind.label, "icon": kind.icon, "claims": sorted(kind.claims),
        "keys": sorted(kind.keys), "branches": list(kind.branch_keys),
        "fields": [field._asdict() for field in kind.fields],
    }  # fmt: skip
