"""Split step: contacts that match its filters go to Yes, all others to No; both branches rejoin after it."""

import json
from collections.abc import Sequence
from typing import Any

from appliance.audience.filters import compiler
from appliance.audience.filters import parse as read
from appliance.audience.filters.fields import FilterPlace, Scope
from appliance.audience.filters.parse import Node as Filter
from appliance.audience.segments import explain, members
from appliance.core.errors import Invalid
from appliance.flows import simulation_timeline
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

# One statement matches the filters of many runs

_SELECT_MATCHING_RUNS = (
    "SELECT r.id FROM run r JOIN contact c ON c.id = r.contact_id WHERE r.id IN (SELECT value FROM "
    "json_each(:runs)) AND ({condition})"
)


def get_sql_scope(account_id: int) -> Scope:
    """Return the scope of a split's filters for many runs in one statement."""
    scope = members.build_scope(account_id)
    return scope._replace(place=FilterPlace.SPLIT, document="r.event_data", start="r.created_at")


def match_runs(account_id: int, filters: list[Any], runs: Sequence[ActiveRun]) -> set[int]:
    """Return the runs whose contacts match filters now, in one statement with the same SQL as a segment."""
    scope = get_sql_scope(account_id)
    condition = compiler.compile_filters(read.parse_filters(filters, scope), scope)
    values = {**condition.parameters, "runs": json.dumps([run.id for run in runs])}
    return {row[0] for row in rows(_SELECT_MATCHING_RUNS.format(condition=condition.sql), values)}


class Split(StepKind):
    """Chooses between two branches."""

    type = "split"
    label = "Branch"
    icon = "split"
    claims = frozenset({"filters", "yes", "no"})
    keys = frozenset({"filters"})
    branches = True
    fields = (StepField("filters", "Who takes the branch Yes", "filters", required=True),)

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse at least one filter; filters may look at the data of the triggering event too."""
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
        """Return errors of filters that name something deleted."""
        try:
            read.parse_filters(props["filters"], get_scope(account_id, writing=True), "filters")
        except Invalid as error:
            return [(path, message) for path, messages in error.fields.items() for message in messages]
        return []

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Match all runs in one statement."""
        yes = match_runs(context.account_id, node.props["filters"], runs)
        return [YES if run.id in yes else NO for run in runs]

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return each filter with whether it holds, the value found, and whether it decided."""
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
        """Return in words which contacts go to Yes."""
        filter_scope = get_scope(account_id)
        sentence = explain.describe_filters(account_id, parse_filters(props, filter_scope), filter_scope)
        return f"{sentence}: yes; all others: no"


def get_scope(account_id: int, writing: bool = False) -> Scope:
    """Return the scope of a split's filters; with `writing`, the ids in them must exist."""
    return members.build_scope(account_id, writing)._replace(place=FilterPlace.SPLIT)


def parse_filters(props: dict[str, Any], scope: Scope) -> list[Filter]:
    """Parse the filters of a stored split."""
    return read.parse_filters(props["filters"], scope)
