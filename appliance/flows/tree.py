"""Nested steps as a tree that people rearrange: found, put in, taken out, moved. Nothing here is written anywhere.

Every function answers new lists and leaves those it was given as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from appliance.flows.document import BRANCHES, Step, walk

START, AFTER = "start", "after"


class Spot(NamedTuple):
    """A place for a step: at the `start`, `after` a step, or first in the branch `yes` or `no` of one."""

    how: str
    id: int = 0

    def __str__(self) -> str:
        return self.how if self.how == START else f"{self.how}-{self.id}"


class Place(NamedTuple):
    """Where a step stands: among which siblings, as which of them, below which branch of which step."""

    siblings: list[Step]
    at: int
    parent: Step | None
    branch: str


def spot(text: str) -> Spot | None:
    """Read a place as `str` writes it; None if it is none."""
    how, _, number = text.partition("-")
    if text == START:
        return Spot(START)
    if how in (AFTER, *BRANCHES) and number.isdecimal() and len(number) < 10:
        return Spot(how, int(number))
    return None


def place(steps: Sequence[Step], step_id: int) -> Place | None:
    """Return where a step stands, or None if it is not there."""
    return _place(steps, step_id, None, "")


def _place(steps: Sequence[Step], step_id: int, parent: Step | None, branch: str) -> Place | None:
    for index, step in enumerate(steps):
        if step["id"] == step_id:
            return Place(list(steps), index, parent, branch)
        for way in BRANCHES:
            found = _place(step.get(way) or (), step_id, step, way)
            if found is not None:
                return found
    return None


def find(steps: Sequence[Step], step_id: int) -> Step | None:
    """Return a step, or None if it is not there."""
    return next((step for _, step in walk(steps) if step["id"] == step_id), None)


def below(step: Step) -> list[Step]:
    """Return all steps in the branches of one."""
    return [one for way in BRANCHES for _, one in walk(step.get(way) or ())]


def above(steps: Sequence[Step], step_id: int) -> list[Step]:
    """Return the steps that everybody has passed who comes to one: those before it, and the branches it stands in."""
    found = place(steps, step_id)
    if found is None:
        return []
    before = found.siblings[: found.at]
    return [*above(steps, found.parent["id"]), found.parent, *before] if found.parent is not None else before


def put(steps: Sequence[Step], where: Spot, step: Step) -> list[Step] | None:
    """Put a step in; None if the place is not there."""
    if where.how == START:
        return [deepcopy(step), *deepcopy(list(steps))]
    done = False

    def visit(level: Sequence[Step]) -> list[Step]:
        nonlocal done
        made: list[Step] = []
        for one in level:
            here = {**one, **{way: visit(one[way]) for way in BRANCHES if way in one}}
            made.append(here)
            if one["id"] != where.id:
                continue
            if where.how == AFTER:
                made.append(deepcopy(step))
                done = True
            elif where.how in one:
                here[where.how] = [deepcopy(step), *here[where.how]]
                done = True
        return made

    changed = visit(steps)
    return changed if done else None


def without(steps: Sequence[Step], step_id: int) -> list[Step]:
    """Take a step out, with all in its branches."""
    return [
        {**one, **{way: without(one[way], step_id) for way in BRANCHES if way in one}}
        for one in steps
        if one["id"] != step_id
    ]


def replaced(steps: Sequence[Step], step: Step) -> list[Step]:
    """Put a step in the place of the one with its id."""
    return [
        deepcopy(step)
        if one["id"] == step["id"]
        else {**one, **{way: replaced(one[way], step) for way in BRANCHES if way in one}}
        for one in steps
    ]


def moved(steps: Sequence[Step], step_id: int, where: Spot) -> list[Step] | None:
    """Move a step with all in its branches; None if it cannot stand there: within itself, or where nothing is."""
    step = find(steps, step_id)
    if step is None or where.id in {step_id, *(one["id"] for one in below(step))}:
        return None
    return put(without(steps, step_id), where, step)


def shifted(steps: Sequence[Step], step_id: int, by: int) -> list[Step] | None:
    """Move a step among its siblings, so many places on or back; None if it is at the end already."""
    found = place(steps, step_id)
    if found is None or not 0 <= found.at + by < len(found.siblings):
        return None
    others = [one for one in found.siblings if one["id"] != step_id]
    index = found.at + by
    if index > 0:
        return moved(steps, step_id, Spot(AFTER, others[index - 1]["id"]))
    return moved(steps, step_id, Spot(found.branch, found.parent["id"]) if found.parent else Spot(START))


class Valid(NamedTuple):
    """A place that a step may be moved to, the step that it is named by, and how deep it lies."""

    where: Spot
    step: Step | None
    depth: int


def valid(steps: Sequence[Step], step_id: int) -> list[Valid]:
    """Return the places that a step may be moved to, in the order of the tree, without the one where it stands."""
    step = find(steps, step_id)
    if step is None:
        return []
    rest = without(steps, step_id)
    return [one for one in (Valid(Spot(START), None, 0), *_valid(rest, 0)) if moved(steps, step_id, one.where) != steps]


def _valid(steps: Sequence[Step], depth: int) -> Iterator[Valid]:
    for step in steps:
        for way in BRANCHES:
            if way in step:
                yield Valid(Spot(way, step["id"]), step, depth + 1)
                yield from _valid(step[way], depth + 1)
        yield Valid(Spot(AFTER, step["id"]), step, depth)


def copy(step: Step, number: Callable[[], int]) -> Step:
    """Copy a step with all in its branches; each gets an id from `number`."""
    made: dict[str, Any] = {**deepcopy(step), "id": number()}
    for way in BRANCHES:
        if way in step:
            made[way] = [copy(one, number) for one in step[way]]
    return made


def seconds_before(steps: Sequence[Step], step_id: int) -> int:
    """Return how long somebody has waited at least who comes to a step, by the waits on their way."""
    waited = sum(one.get("duration", 0) for one in above(steps, step_id) if one["type"] == "wait")
    # Of branches that were passed the shorter way counts
    passed = sum(_least(one) for one in above(steps, step_id) if _is_passed(steps, one, step_id))
    return int(waited + passed)


def _is_passed(steps: Sequence[Step], step: Step, step_id: int) -> bool:
    return any(way in step for way in BRANCHES) and find(below(step), step_id) is None


def _least(step: Step) -> int:
    """Return how long the shorter branch of a step takes."""
    ways = [
        sum(one.get("duration", 0) if one["type"] == "wait" else _least(one) for one in step.get(way) or ())
        for way in BRANCHES
        if way in step
    ]
    return min(ways, default=0)
