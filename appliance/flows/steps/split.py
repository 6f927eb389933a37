"""The step that splits a flow: contacts that match its filters take the branch `yes`, all others `no`.

Both branches continue with the step after the split.
"""

import json
from collections.abc import Sequence
from typing import Any

from appliance.audience.filters import compiler
from appliance.audience.filters import compiler as read
from appliance.audience.filters.compiler import Node as Filter
from appliance.audience.filters.fields import FilterPlace, Scope
from appliance.audience.segments import explain, members
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows import simulation_timeline
from appliance.flows.condition_limits import limit_write
from appliance.flows.steps.base import (
    NO,
    YES,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
)
from appliance.storage.database import rows

# The filters are matched for many runs in one statement.

_SELECT_MATCHING_RUNS = (
    "SELECT r.id FROM run r JOIN contact c ON c.id = r.contact_id WHERE r.id IN (SELECT value FROM "
    "json_each(:runs)) AND ({condition})"
)


def get_sql_scope(account_id: int) -> Scope:
    """Return the scope of a split's filters, with the event data and the start of run `r` as SQL columns."""
    scope = members.build_scope(account_id)
    return scope._replace(place=FilterPlace.SPLIT, document="r.event_data", start="r.created_at")


def match_runs(account_id: int, filters: list[Any], runs: Sequence[ActiveRun]) -> set[int]:
    """Return the ids of the runs whose contacts match the filters now, from one SQL statement.

    Raises Invalid for invalid filters, and ConditionsTooSlow if they cost more than a write transaction allows.
    """
    scope = get_sql_scope(account_id)
    condition = compiler.compile_filters(read.parse_filters(filters, scope), scope)
    values = {**condition.parameters, "runs": json.dumps([run.id for run in runs])}
    with limit_write():
        return {row[0] for row in rows(_SELECT_MATCHING_RUNS.format(condition=condition.sql), values)}


class Split(StepKind):
    """A step that chooses between the branches `yes` and `no`."""

    type = "split"
    label = gettext_noop("Branch")
    icon = "split"
    claims = frozenset({"filters", "yes", "no"})
    keys = frozenset({"filters"})
    branch_keys = ("yes", "no")
    fields = (StepField("filters", gettext_noop("Conditions for Yes"), "filters", required=True),)

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `filters`, which may also refer to the data of the event that started the run."""
        filters = raw.get("filters")
        if filters is None:
            context.add_fault("filters", "can't be blank")
            return {"filters": []}
        try:
            read.parse_filters(filters, get_scope(context.account_id, writing=True), f"{context.path}.filters")
        except Invalid as error:
            context.faults.merge(error.fields)
        return {"filters": filters}

    def list_missing(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return (path, message) for each error of the stored filters, such as a segment that was deleted."""
        try:
            read.parse_filters(props["filters"], get_scope(account_id, writing=True), "filters")
        except Invalid as error:
            return [(path, message) for path, messages in error.fields.items() for message in messages]
        return []

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Return the result `yes` for each run whose contact matches the filters, else `no`."""
        yes = match_runs(context.account_id, node.props["filters"], runs)
        return [YES if run.id in yes else NO for run in runs]

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return the filters as a list of `SplitReason` under the key `filters`; empty for a deleted contact."""
        if run.contact_id is None:
            return {}
        filter_scope = get_scope(context.account_id)
        filters = parse_filters(node.props, filter_scope)
        return {
            "filters": simulation_timeline.explain_filters(
                filters, filter_scope, run.contact_id, run.event_data, run.started_at
            )
        }

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return the conditions for the branch `yes` as a question."""
        filter_scope = get_scope(account_id)
        sentence = explain.describe_filters(account_id, parse_filters(props, filter_scope), filter_scope)
        return gettext("%(conditions)s?", conditions=sentence)

    def name(self, props: dict[str, Any], account_id: int) -> str:
        """Return the kind of the step with its conditions."""
        return gettext("Branch “%(conditions)s”", conditions=self.summary(props, account_id))


def get_scope(account_id: int, writing: bool = False) -> Scope:
    """Return the scope of a split's filters; with `writing`, ids in the filters must exist."""
    return members.build_scope(account_id, writing)._replace(place=FilterPlace.SPLIT)


def parse_filters(props: dict[str, Any], scope: Scope) -> list[Filter]:
    """Parse the filters of a stored split; raises Invalid if they have become invalid."""
    return read.parse_filters(props["filters"], scope)
