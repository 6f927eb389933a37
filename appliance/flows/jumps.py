"""The targets of `go_to` steps: finding them, and rejecting loops without a wait."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from appliance.core.i18n import gettext
from appliance.flows.branches import get_props, list_branches, map_branches
from appliance.flows.steps.wait_until import MIN_TIMEOUT_SECONDS

Step = dict[str, Any]

KIND = "go_to"
# The minimum duration of a wait that counts in a loop, so that a run cannot pass the loop twice at once.
MIN_LOOP_SECONDS = 60


def find_faults(document: Sequence[Step], paths: Mapping[str, Step]) -> Iterator[tuple[str, str]]:
    """Yield (path, message) for each `go_to` that leads to no other step, or into a loop without a wait.

    `paths` are all steps of the document, at all levels, by path.
    """
    if all(step["type"] != KIND for step in paths.values()):
        return
    steps = {step["id"]: step for step in paths.values()}
    exits = _list_exits(document)
    for path, step in paths.items():
        if step["type"] != KIND:
            continue
        if step["step_id"] not in steps or step["step_id"] == step["id"]:
            yield f"{path}.step_id", gettext("must be the id of another step of the flow")
        elif _has_loop(step["id"], steps, exits):
            yield (
                f"{path}.step_id",
                gettext("leads into a loop without a wait: add a wait of at least a minute, or one for an event"),
            )


def link_targets(steps: Sequence[Step], targets: Mapping[int, Step] | None = None) -> list[Step]:
    """Return copies of steps in which each `go_to` has its target step as `target`, without the target's branches.

    A missing target, and one that is a `go_to` itself, is left out.
    """
    known = targets if targets is not None else {step["id"]: step for step in _walk(steps)}
    linked = []
    for step in steps:
        copied = map_branches(step, lambda nested: link_targets(nested, known))
        target = known.get(step["step_id"]) if step["type"] == KIND else None
        if target is not None and target["type"] != KIND:
            copied["target"] = {**get_props(target), "type": target["type"]}
        linked.append(copied)
    return linked


def renumber(step: Step, ids: Mapping[int, int]) -> Step:
    """Return a step in which each `go_to` leads to the new id that `ids` has for its target, if there is one."""
    renumbered = map_branches(step, lambda nested: [renumber(child, ids) for child in nested])
    if step["type"] == KIND:
        renumbered["step_id"] = ids.get(step["step_id"], step["step_id"])
    return renumbered


def _walk(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for branch in list_branches(step):
            yield from _walk(branch.steps)


def _list_exits(steps: Sequence[Step], after: int | None = None) -> dict[int, list[int]]:
    """Return, by step id, the ids of the steps that may follow directly."""
    exits: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        following = steps[index + 1]["id"] if index + 1 < len(steps) else after
        branches = list_branches(step)
        first_steps = [branch.steps[0]["id"] if branch.steps else following for branch in branches] or [following]
        if step["type"] == KIND:
            first_steps.append(step["step_id"])
        exits[step["id"]] = [] if step["type"] == "exit" else [number for number in first_steps if number is not None]
        for branch in branches:
            exits |= _list_exits(branch.steps, following)
    return exits


def _has_loop(start: int, steps: Mapping[int, Step], exits: Mapping[int, Sequence[int]]) -> bool:
    """Return whether a run can come from a step back to the same step without a wait."""
    seen: set[int] = set()
    pending = [*exits[start]]
    while pending:
        step_id = pending.pop()
        if step_id == start:
            return True
        if step_id in seen or step_id not in steps or _always_waits(steps[step_id]):
            continue
        seen.add(step_id)
        pending.extend(exits[step_id])
    return False


def _always_waits(step: Step) -> bool:
    """Return whether every run waits at a step; a wait for a time of day or a date may be over at once."""
    if step["type"] == "wait":
        return bool((step["duration"] or 0) >= MIN_LOOP_SECONDS)
    return bool(step["type"] == "wait_until" and step["until"] == "event" and step["timeout"] >= MIN_TIMEOUT_SECONDS)
