"""The step that splits contacts at random between branches with shares, for example to compare two series of emails.

The branch depends on the id of the run, and a run that comes to the step again takes the same one. All branches
continue with the step after the split. With a `metric`, the branches are compared (`split_tests`); once there is a
winner, all runs that come to the step for the first time take it. With `uneven`, the shares of later runs depend on the
results of the branches. A simulation may choose the branch (`SimulationRules`).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from appliance.core import i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.experiments.assignment import MAX_VARIANTS, Assignment, add_batch, get_group, start_assignment
from appliance.flows import split_tests
from appliance.flows.branches import LISTED_KEY
from appliance.flows.steps.base import (
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    read_branches,
    read_event_name,
    take,
)
from appliance.flows.triggers import check_integer

MIN_BRANCHES, MAX_NAME_CHARACTERS = 2, 60
_ITEM_KEYS = frozenset({"name", "share"})
_PERCENT = 100
NO_TEST = split_tests.Progress(None, {})


class RandomSplit(StepKind):
    """A step that chooses a branch at random, by shares in percent."""

    type = "random_split"
    label = gettext_noop("Random split")
    icon = "shuffle"
    branch_keys = (LISTED_KEY,)
    keys = frozenset({"metric", "event_name", "by_amount", "uneven", "decided_by"})
    fields = (
        StepField(
            LISTED_KEY, gettext_noop("Branches"), "branch_shares", required=True,
            help=gettext_noop(
                "The shares must add up to 100. A branch with 0 gets no more contacts; empty its share to remove it."
            ),
        ),
        StepField(
            "metric", gettext_noop("Find the winner by"), "choice",
            options=(
                ("", gettext_noop("No winner: keep the shares")), (split_tests.CLICKS, gettext_noop("Clicks")),
                (split_tests.EVENT, gettext_noop("Conversions (an event)")),
            ),
        ),
        StepField(
            "event_name", gettext_noop("Event"), "awaited_event", required=True, applies_to=(split_tests.EVENT,)
        ),
        StepField("by_amount", gettext_noop("Compare revenue"), "boolean", applies_to=(split_tests.EVENT,)),
        StepField(
            "uneven", gettext_noop("Send more contacts to better branches during the test"), "boolean",
            applies_to=split_tests.METRICS,
            help=gettext_noop(
                "The shares change at most once a day. Fewer contacts get a weaker branch, but the result takes longer."
            ),
        ),
        StepField(
            "decided_by", gettext_noop("Who chooses the winner"), "choice", applies_to=split_tests.METRICS,
            default=split_tests.SERVICE,
            options=(
                (split_tests.SERVICE, gettext_noop("Automatically, as soon as the winner is clear")),
                (split_tests.PERSON, gettext_noop("I choose")),
            ),
            help=gettext_noop("Then all new contacts take the winner. Contacts in the flow keep their branch."),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `branches`, each with a `share` from 0 to 100, which add up to 100, and optionally a `name`.

        With a `metric`, also parse the fields of the test.
        """
        sizes = range(MIN_BRANCHES, MAX_VARIANTS + 1)
        branches = read_branches(raw.get(LISTED_KEY), context, _ITEM_KEYS, _read_item, sizes)
        shares = [item["share"] for item in branches]
        total = sum(share for share in shares if share is not None)
        if len(branches) in sizes and None not in shares and total != _PERCENT:
            error = gettext("must have shares that add up to 100, not to %(total)s", total=total)
            context.add_fault(LISTED_KEY, error)
        return {LISTED_KEY: branches, **_read_test(raw, context)}

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the props, without fields of the test that are not set."""
        return {key: value for key, value in props.items() if value}

    def list_branches(self, props: dict[str, Any]) -> dict[str, str]:
        """Return the name of each branch, or a letter, with its share."""
        return {
            item["key"]: gettext("%(name)s (%(share)s)", name=name_branch(item, index), share=_format(item["share"]))
            for index, item in enumerate(props.get(LISTED_KEY, ()))
        }

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Return the branch of each run."""
        items = node.props[LISTED_KEY]
        simulated = context.rules.branches.get(node.id)
        if simulated is not None:
            return [take(simulated)] * len(runs)
        test = split_tests.find_progress(context.flow_id, node.id) if node.props.get("metric") else NO_TEST
        weights = split_tests.weigh(items, test.weights if node.props.get("uneven") else {})
        assignment = _assign(context.flow_id, node.id, weights)
        chosen = [take(items[get_group(assignment, context.get_random_key(run)) - 1]["key"]) for run in runs]
        winner = test.winner if test.winner in node.branches else None
        if winner is None and not test.weights:
            return chosen
        # With other weights, a run that was here before would get another branch.
        taken = split_tests.find_taken([run.id for run in runs], node.id) if context.repeats else {}
        if winner is not None:
            chosen = [take(winner, split_tests.WINNER_TAKEN)] * len(runs)
        return [
            take(taken[run.id]) if run.id in taken else result for run, result in zip(runs, chosen, strict=True)
        ]  # fmt: skip

    def get_disclosures(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the event by which branches are compared, because results of one contact show whether it had it."""
        if props.get("metric") != split_tests.EVENT:
            return {}
        return {"event": props["event_name"], "by_amount": bool(props.get("by_amount"))}

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the shares, such as `Split at random: A 50 %, B 50 %`."""
        shares = ", ".join(
            f"{name_branch(item, index)} {_format(item['share'])}" for index, item in enumerate(props[LISTED_KEY])
        )
        return gettext("Split at random: %(shares)s", shares=shares)


def _read_test(raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
    """Return the fields of the test of a split; without a metric {}, and the other fields must be absent."""
    metric, decider = raw.get("metric"), raw.get("decided_by")
    uneven = _read_flag("uneven", raw, context)
    if metric is None or metric not in split_tests.METRICS:
        if metric is not None:
            context.add_fault("metric", gettext("is not included in the list"))
        for key in ("event_name", "by_amount", "uneven", "decided_by"):
            if metric is None and raw.get(key) is not None:
                context.add_fault(key, gettext("is only allowed with another value of metric"))
        return {}
    if decider is not None and decider not in split_tests.DECIDERS:
        context.add_fault("decided_by", gettext("is not included in the list"))
    test = {"metric": metric, "uneven": uneven, "decided_by": decider or split_tests.SERVICE}
    if metric == split_tests.EVENT:
        return {**test, "event_name": read_event_name(raw.get("event_name"), "event_name", context),
                "by_amount": _read_flag("by_amount", raw, context)}  # fmt: skip
    for key in ("event_name", "by_amount"):
        if raw.get(key) is not None:
            context.add_fault(key, gettext("is only allowed with another value of metric"))
    return test


def _read_flag(key: str, raw: dict[str, Any], context: ParseContext) -> bool:
    value = raw.get(key)
    if value is not None and not isinstance(value, bool):
        context.add_fault(key, gettext("is invalid"))
    return value is True


def _format(share: int | None) -> str:
    """Return a share as text; None is an invalid share."""
    return "" if share is None else i18n.format_percent(share / _PERCENT, 0)


def name_branch(item: dict[str, Any], index: int) -> str:
    """Return the name of a branch; without a name, a letter from A."""
    return str(item["name"]) or chr(ord("A") + index)


@lru_cache(maxsize=1_000)
def _assign(flow_id: int, step_id: int, weights: tuple[float, ...]) -> Assignment:
    """Return the assignment of a step: all runs, divided by the weights of the branches."""
    # Combines two numbers into one, because neither ids of flows nor those of steps reach 2^31.
    return add_batch(start_assignment((flow_id << 31) + step_id), 1.0, weights)


def _read_item(item: dict[str, Any], context: ParseContext) -> dict[str, Any]:
    name, share = item.get("name"), item.get("share")
    if name is not None and not isinstance(name, str):
        context.add_fault("name", gettext("is invalid"))
        name = None
    elif name is not None and len(name.strip()) > MAX_NAME_CHARACTERS:
        message = gettext("is too long (maximum is %(max)s characters)", max=MAX_NAME_CHARACTERS)
        context.add_fault("name", message)
    if share is None:
        context.add_fault("share", gettext("can't be blank"))
    elif error := check_integer(0, _PERCENT)(share):
        context.add_fault("share", gettext(error))
        share = None
    return {"name": (name or "").strip(), "share": share}
