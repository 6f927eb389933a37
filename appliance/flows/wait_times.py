"""The shortest and the longest time that a contact can have waited when it reaches a step of a flow."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.flows import branches, document

# The kinds of steps after which a contact does not continue with the next step
_LEAVING_KINDS = ("exit", "go_to")


class WaitRange(NamedTuple):
    """The shortest and the longest wait, in seconds.

    A wait for an hour of the day or for a date adds 0 to both, because its length depends on the contact.
    """

    shortest: int
    longest: int

    def extend(self, other: "WaitRange") -> "WaitRange":
        """Return the range of this wait followed by another one."""
        return WaitRange(self.shortest + other.shortest, self.longest + other.longest)


_NO_WAIT = WaitRange(0, 0)


def find_wait_before(steps: Sequence[dict[str, Any]], step_id: int) -> WaitRange:
    """Return how long a contact can have waited since it entered the flow when it reaches a step."""
    total = _NO_WAIT
    for predecessor in document.list_predecessors(steps, step_id):
        # A step whose branch contains that step counts only with this branch.
        taken = [
            branch.key
            for branch in branches.list_branches(predecessor)
            if any(_contains(child, step_id) for child in branch.steps)
        ]
        waited = _wait_for_branch(predecessor, taken[0]) if taken else _wait_in(predecessor)
        total = total.extend(waited)
    return total


def _contains(step: dict[str, Any], step_id: int) -> bool:
    return step["id"] == step_id or any(child["id"] == step_id for child in document.list_descendants(step))


def _wait_in(step: dict[str, Any]) -> WaitRange:
    """Return how long a contact can be in a step and its branches before it continues with the next step."""
    if step["type"] == "wait":
        seconds = int(step.get("duration") or 0)
        return WaitRange(seconds, seconds)
    listed = branches.list_branches(step)
    # Contacts in a branch that ends in an exit or a jump do not continue with the next step.
    joining = [branch for branch in listed if not any(child["type"] in _LEAVING_KINDS for child in branch.steps)]
    ranges = [_sum_branch(step, branch) for branch in joining or listed]
    if not ranges:
        return _wait_for_branch(step, branches.YES)
    return WaitRange(min(wait.shortest for wait in ranges), max(wait.longest for wait in ranges))


def _sum_branch(step: dict[str, Any], branch: branches.Branch) -> WaitRange:
    total = _wait_for_branch(step, branch.key)
    for child in branch.steps:
        total = total.extend(_wait_in(child))
    return total


def _wait_for_branch(step: dict[str, Any], key: str) -> WaitRange:
    """Return how long a contact waits in a step before it takes a branch; only a wait for an event takes time."""
    if step.get("until") != "event":
        return _NO_WAIT
    timeout = int(step.get("timeout") or 0)
    return WaitRange(0 if key == branches.YES else timeout, timeout)
