"""The names of steps in sentences, such as those of failed tests: what the card of a step shows, never a number."""

from collections import Counter
from collections.abc import Sequence

from appliance.core.i18n import gettext
from appliance.flows import document, drafts
from appliance.flows.document import BRANCHES, Step
from appliance.flows.steps import BY_TYPE


def name_steps(account_id: int, steps: Sequence[Step]) -> dict[str, str]:
    """Return the names of all steps by their paths; steps that send must have their content.

    Steps with equal names have the name of the step before them too, or the branch that they begin.
    """
    names = {path: BY_TYPE[step["type"]].name(step, account_id) for path, step in document.walk(steps)}
    counts = Counter(names.values())
    places = _name_places(steps, names, None)
    return {path: places[path] if counts[name] > 1 else name for path, name in names.items()}


def name_steps_by_id(account_id: int, steps: Sequence[Step]) -> dict[int, str]:
    """Return the names of stored steps, with the current content of their templates, by their ids."""
    names = name_steps(account_id, drafts.add_contents(steps))
    return {step["id"]: names[path] for path, step in document.walk(steps)}


def _name_places(
    steps: Sequence[Step], names: dict[str, str], parent: Step | None, path: str = "steps"
) -> dict[str, str]:  # fmt: skip
    """Return the names of steps in a branch of `parent`, or at the top level, with what is before each, by path."""
    places = {}
    for index, step in enumerate(steps):
        step_path = f"{path}[{index}]"
        places[step_path] = _name_place(names, path, index, parent)
        for branch in BRANCHES:
            places |= _name_places(step.get(branch) or (), names, step, f"{step_path}.{branch}")
    return places


def _name_place(names: dict[str, str], path: str, index: int, parent: Step | None) -> str:
    name = names[f"{path}[{index}]"]
    if index:
        return gettext("%(step)s after %(previous)s", step=name, previous=names[f"{path}[{index - 1}]"])
    split_path, _, branch = path.rpartition(".")
    if parent is None:
        return gettext("%(step)s at the start", step=name)
    if parent["type"] == "split":
        if branch == "yes":
            return gettext("%(step)s on the Yes path of %(split)s", step=name, split=names[split_path])
        return gettext("%(step)s on the No path of %(split)s", step=name, split=names[split_path])
    return gettext(
        "%(step)s on the path “%(branch)s” of %(split)s", step=name, split=names[split_path],
        branch=BY_TYPE[parent["type"]].list_branches(document.get_props(parent))[branch],
    )  # fmt: skip
