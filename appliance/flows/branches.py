"""The branches of a step: where they are in a stored step, which key each has, and how to change the steps in them.

A step has its branches under `yes` and `no`, or as a list under `branches`, whose items have a `key`, their props and
`steps`; `else` is the branch of contacts for whom no item applies. The key of a branch is also the outcome of the
visits that continued with it, and part of the positions of steps.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from appliance.storage.models import NESTED_STEP_KEYS

Step = dict[str, Any]

YES, NO, ELSE, LISTED_KEY, STEPS_KEY = NESTED_STEP_KEYS
# The keys that have the steps of a branch directly.
DIRECT_KEYS = (YES, NO, ELSE)
BRANCH_KEYS = (*DIRECT_KEYS, LISTED_KEY)
# The form of the keys of listed branches. Keys are assigned like the ids of steps, and never used twice in a flow.
_LISTED_NAME = re.compile(r"b[1-9][0-9]{0,9}")
# A pattern for the keys of all branches.
BRANCH_KEY = f"{'|'.join(DIRECT_KEYS)}|{_LISTED_NAME.pattern}"


class Branch(NamedTuple):
    """A branch of a step: its key, its path relative to that of the step (such as `.yes`), and its steps."""

    key: str
    path: str
    steps: list[Step]


def is_branch_key(text: str) -> bool:
    """Return whether a text has the form of the key of a branch."""
    return text in DIRECT_KEYS or _LISTED_NAME.fullmatch(text) is not None


def list_branches(step: Mapping[str, Any]) -> list[Branch]:
    """Return the branches of a stored step, in order; empty for a step without branches."""
    listed = [
        Branch(item["key"], f".{LISTED_KEY}[{index}].{STEPS_KEY}", item.get(STEPS_KEY) or [])
        for index, item in enumerate(step.get(LISTED_KEY) or ())
    ]
    return [*listed, *(Branch(key, f".{key}", step[key] or []) for key in DIRECT_KEYS if key in step)]


def get_branch(step: Mapping[str, Any], key: str) -> list[Step] | None:
    """Return the steps of a branch, or None if the step has no branch with this key."""
    return next((branch.steps for branch in list_branches(step) if branch.key == key), None)


def map_branches(step: Step, change: Callable[[list[Step]], list[Step]]) -> Step:
    """Return a copy of a step with the result of `change` in place of the steps of each branch."""
    changed = dict(step)
    if LISTED_KEY in step:
        changed[LISTED_KEY] = [
            {**item, STEPS_KEY: change(item.get(STEPS_KEY) or [])} for item in step[LISTED_KEY] or ()
        ]
    changed |= {key: change(step[key] or []) for key in DIRECT_KEYS if key in step}
    return changed


def set_branch(step: Step, key: str, steps: list[Step]) -> Step:
    """Return a copy of a step with other steps in one of its branches."""
    changed = dict(step)
    if key in DIRECT_KEYS:
        changed[key] = steps
    else:
        changed[LISTED_KEY] = [{**item, STEPS_KEY: steps} if item["key"] == key else item for item in step[LISTED_KEY]]
    return changed


def join_branches(props: Mapping[str, Any], steps: Mapping[str, list[Step]]) -> Step:
    """Return the props of a step together with the steps of its branches, by key; a missing branch has no steps.

    The branches are the items of `branches` in the props, and all keys of `steps` that are not the key of such an item.
    """
    joined = dict(props)
    if LISTED_KEY in props:
        joined[LISTED_KEY] = [{**item, STEPS_KEY: steps.get(item["key"], [])} for item in props[LISTED_KEY]]
    return joined | {key: list(steps[key]) for key in DIRECT_KEYS if key in steps}


def get_props(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the props of a stored step: all but `id`, `type` and the steps of its branches."""
    props = {key: value for key, value in step.items() if key not in ("id", "type", *DIRECT_KEYS)}
    if LISTED_KEY in props:
        props[LISTED_KEY] = [
            {key: value for key, value in item.items() if key != STEPS_KEY} for item in props[LISTED_KEY]
        ]
    return props


def iterate_raw(raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path relative to that of the step, raw steps) for each branch of a step in any JSON, valid or not."""
    items = raw.get(LISTED_KEY)
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield f".{LISTED_KEY}[{index}].{STEPS_KEY}", item.get(STEPS_KEY)
    for key in DIRECT_KEYS:
        yield f".{key}", raw.get(key)
