"""The names of steps in sentences, such as those of failed simulations: the text on the card of the step."""

from collections import Counter
from collections.abc import Sequence

from appliance.core.i18n import gettext
from appliance.flows import document, drafts
from appliance.flows.branches import get_props, list_branches
from appliance.flows.document import Step
from appliance.flows.steps import BY_TYPE


def name_steps(account_id: int, steps: Sequence[Step]) -> dict[str, str]:
    """Return the names of all steps by their paths; steps that send must have their content.

    If several steps have the same name, it is extended by the step before them, or the branch that they begin.
    """
    names = {path: BY_TYPE[step["type"]].name(step, account_id) for path, step in document.walk(steps)}
    counts = Counter(names.values())
    places = _name_places(steps, names)
    return {path: places[path] if counts[name] > 1 else name for path, name in names.items()}


def name_steps_by_id(account_id: int, steps: Sequence[Step]) -> dict[int, str]:
    """Return the names of stored steps by id, with the current content of their templates."""
    names = name_steps(account_id, drafts.add_contents(steps))
    return {step["id"]: names[path] for path, step in document.walk(steps)}


def name_branches_by_id(steps: Sequence[Step]) -> dict[int, dict[str, str]]:
    """Return the labels of the branches of all stored steps, by step id and branch key."""
    return {step["id"]: _label_branches(step) for _, step in document.walk(steps)}


def _label_branches(step: Step) -> dict[str, str]:
    return BY_TYPE[step["type"]].list_branches(get_props(step))


def _name_places(steps: Sequence[Step], names: dict[str, str], start: str = "", path: str = "steps") -> dict[str, str]:
    """Return, by path, the names of steps extended by the step before them, or by the branch that they begin.

    `steps` are those of a branch or of the top level, and `names` the names of all steps by path. `start` is the
    extended name of the first step; at the top level it is empty.
    """
    places = {}
    for index, step in enumerate(steps):
        step_path = f"{path}[{index}]"
        name = names[step_path]
        if index:
            previous = names[f"{path}[{index - 1}]"]
            places[step_path] = gettext("%(step)s after %(previous)s", step=name, previous=previous)
        else:
            places[step_path] = start or gettext("%(step)s at the start", step=name)
        labels = _label_branches(step)
        for branch in list_branches(step):
            branch_path = f"{step_path}{branch.path}"
            first = gettext(
                "%(step)s on the path “%(branch)s” of %(split)s",
                step=names.get(f"{branch_path}[0]", ""), split=name, branch=labels[branch.key],
            )  # fmt: skip
            places |= _name_places(branch.steps, names, first, branch_path)
    return places
