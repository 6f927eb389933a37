"""The step that splits a flow into several branches, by a value of the contact or of the event that started the run.

A contact takes the first branch with its value, or `else`. All branches continue with the step after the split.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.audience.filters import compiler, personal
from appliance.audience.filters.fields import Field, FilterPlace, find_field, is_event_path, label_path
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.branches import ELSE, LISTED_KEY
from appliance.flows.steps import split
from appliance.flows.steps.base import (
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    read_branches,
    take,
)
from appliance.storage.database import fold_case, rows, scalar

MAX_BRANCHES, MAX_VALUES, MAX_VALUE_CHARACTERS = 20, 50, 200
# The types of fields whose values can be listed. For a number or a date, there is `split` instead.
FIELD_TYPES = ("text", "code", "tags", "json")
_ITEM_KEYS = frozenset({"values"})
_SELECT_BRANCHES = (
    "SELECT r.id, CASE {cases} END FROM run r JOIN contact c ON c.id = r.contact_id "
    "WHERE r.id IN (SELECT value FROM json_each(:runs))"
)
_SELECT_VALUE = "SELECT {value} FROM run r JOIN contact c ON c.id = r.contact_id WHERE r.id = :run"


class SplitValue(StepKind):
    """A step that chooses a branch by the value of a field."""

    type = "split_value"
    label = gettext_noop("Split by value")
    icon = "list-filter"
    keys = frozenset({"field"})
    branch_keys = (LISTED_KEY, ELSE)
    fields = (
        StepField("field", gettext_noop("Field"), "value_field", required=True),
        StepField(
            LISTED_KEY, gettext_noop("Branches"), "branch_values", required=True,
            help=gettext_noop(
                "Separate several values of a branch with commas. All other contacts take “Everyone else”."
            ),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `field`, by its name in filters, and `branches`, each with its `values`.

        Values that differ only in case count as equal, and no two branches may have the same value.
        """
        name = raw.get("field")
        if name is None:
            context.add_fault("field", gettext("can't be blank"))
        elif not isinstance(name, str) or find_value_field(name) is None:
            context.add_fault("field", gettext("is not included in the list"))
        known_values: set[str] = set()

        def read_item(item: dict[str, Any], item_context: ParseContext) -> dict[str, Any]:
            return {"values": _read_values(item.get("values"), item_context, known_values)}

        sizes = range(1, MAX_BRANCHES + 1)
        branches = read_branches(raw.get(LISTED_KEY), context, _ITEM_KEYS, read_item, sizes)
        return {"field": name, LISTED_KEY: branches}

    def list_branches(self, props: dict[str, Any]) -> dict[str, str]:
        """Return the labels of the branches: their values, hidden if contact data is masked, and a text for `else`."""
        items = personal.hide_values(props).get(LISTED_KEY, ())
        labels = {item["key"]: ", ".join(item["values"]) for item in items}
        return {**labels, ELSE: gettext("Everyone else")}

    def list_filters(self, props: dict[str, Any]) -> list[Any]:
        """Return a filter for each branch."""
        return [_build_filter(props["field"], item["values"]) for item in props[LISTED_KEY]]

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Return the first branch with the value of each run's contact or event; one SQL statement serves all runs."""
        scope = split.get_sql_scope(context.account_id)
        parameters: dict[str, Any] = {"runs": json.dumps([run.id for run in runs])}
        cases = []
        for index, item in enumerate(node.props[LISTED_KEY]):
            nodes = compiler.parse_filters([_build_filter(node.props["field"], item["values"])], scope)
            condition = compiler.compile_filters(nodes, scope, f"v{index}_")
            parameters |= {**condition.parameters, f"key{index}": item["key"]}
            cases.append(f"WHEN {condition.sql} THEN :key{index}")
        chosen = dict(rows(_SELECT_BRANCHES.format(cases=" ".join(cases)), parameters))
        return [take(chosen.get(run.id) or ELSE) for run in runs]

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return the field, and its value for the contact or event, or None."""
        field = find_value_field(node.props["field"])
        if field is None:
            return {}
        value = scalar(_SELECT_VALUE.format(value=field.json_sql), {"run": run.id})
        return {"field": node.props["field"], "value": None if value is None else msgspec.json.decode(value)}

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the field, such as `Split by Plan`."""
        return gettext("Split by %(field)s", field=title_field(props["field"]))


def find_value_field(name: str) -> Field | None:
    """Return the field with a name, if a flow can be split by its values, else None."""
    field = find_field(name, FilterPlace.SPLIT, "r.event_data")
    return field if field is not None and field.type in FIELD_TYPES and not field.normalize else None


def title_field(name: str) -> str:
    """Return the title of a field; for a field of event data the title says so."""
    field = find_value_field(name)
    if field is None:
        return name
    if is_event_path(name):
        return gettext("%(field)s (of the event)", field=label_path(field.label))
    return field.title()


def _read_values(raw: Any, context: ParseContext, known_values: set[str]) -> list[str]:
    """Parse the values of a branch as texts, and add them to `known_values`, which has those of all branches."""
    if not isinstance(raw, list) or not raw:
        context.add_fault("values", gettext("can't be blank") if not raw else gettext("is invalid"))
        return []
    if len(raw) > MAX_VALUES:
        context.add_fault("values", gettext("is too long (maximum is %(max)s items)", max=MAX_VALUES))
        return []
    values = []
    for index, item in enumerate(raw):
        text = _to_text(item)
        path = f"values[{index}]"
        if text is None or not text.strip():
            context.add_fault(path, gettext("can't be blank") if text is not None else gettext("is invalid"))
        elif len(text) > MAX_VALUE_CHARACTERS:
            message = gettext("is too long (maximum is %(max)s characters)", max=MAX_VALUE_CHARACTERS)
            context.add_fault(path, message)
        elif fold_case(text.strip()) in known_values:
            context.add_fault(path, gettext("has already been taken"))
        else:
            known_values.add(fold_case(text.strip()))
            values.append(text.strip())
    return values


def _to_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value) if math.isfinite(value) else None
    return value if isinstance(value, str) else None


def _build_filter(field: str, values: Sequence[str]) -> dict[str, Any]:
    """Return the filter that a field has one of the values; custom data may also have them as a number or boolean."""
    value_field = find_value_field(field)
    typed_values: list[Any] = list(values)
    if value_field is not None and value_field.type == "json":
        typed_values += [value for text in values for value in _parse_scalar(text)]
    return {"name": field, "predicate": "in", "value": typed_values}


def _parse_scalar(text: str) -> list[Any]:
    """Return the number or boolean that a text represents, in a list; [] for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    is_scalar = isinstance(value, bool) or (isinstance(value, int | float) and math.isfinite(value))
    return [value] if is_scalar and abs(value) < 2**63 else []
