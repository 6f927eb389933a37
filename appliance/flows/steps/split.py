"""Split: those for whom filters hold go one way, everybody else the other; both meet behind it."""

import json
from collections.abc import Sequence
from typing import Any

from appliance.audience.filters import compile, read
from appliance.audience.filters.read import Node as Filter
from appliance.audience.filters.scope import Place, Scope
from appliance.audience.segments import explain, people
from appliance.core.errors import Invalid
from appliance.flows import why
from appliance.flows.steps.kind import NO, YES, Field, Going, Here, Kind, Move, Node, Reading
from appliance.storage.open import rows

# Asks filters about many runs at once: who goes to Yes.

_ASKED = (
    "SELECT r.id FROM run r JOIN contact c ON c.id = r.contact_id WHERE r.id IN (SELECT value FROM "
    "json_each(:runs)) AND ({condition})"
)


def branch_scope(account_id: int) -> Scope:
    """Return what filters of a branch mean where many runs are asked about in one statement."""
    here = people.scope(account_id)
    return here._replace(place=Place.SPLIT, document="r.event_data", start="r.created_at")


def holding(account_id: int, filters: list[Any], goings: Sequence[Going]) -> set[int]:
    """Return the runs of those for whom filters hold now, in one statement: by the same SQL as a segment's."""
    here = branch_scope(account_id)
    asked = compile.condition(read.filters(filters, here), here)
    values = {**asked.parameters, "runs": json.dumps([going.id for going in goings])}
    return {row[0] for row in rows(_ASKED.format(condition=asked.sql), values)}


class Split(Kind):
    """Choose between two branches."""

    type = "split"
    label = "Branch"
    icon = "split"
    claims = frozenset({"filters", "yes", "no"})
    keys = frozenset({"filters"})
    branches = True
    fields = (Field("filters", "Who takes the branch Yes", "filters", required=True),)

    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Read at least one filter; the triggering event's data may be asked for too."""
        filters = raw.get("filters")
        if filters is None:
            reading.fault("filters", "can't be blank")
            return {"filters": []}
        try:
            read.filters(filters, scope(reading.account_id, writing=True), f"{reading.path}.filters")
        except Invalid as refused:
            reading.faults.merge(refused.fields)
        return {"filters": filters}

    def lacks(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return which filters ask for something that is gone by now."""
        try:
            read.filters(props["filters"], scope(account_id, writing=True), "filters")
        except Invalid as refused:
            return [(path, words) for path, messages in refused.fields.items() for words in messages]
        return []

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Ask once for all of them."""
        yes = holding(here.account_id, node.props["filters"], goings)
        return [YES if going.id in yes else NO for going in goings]

    def simulate(self, node: Node, going: Going, move: Move, here: Here) -> dict[str, Any]:
        """Tell of each filter whether it holds, what was found, and which of them decided."""
        if going.contact_id is None:
            return {}
        asked = scope(here.account_id)
        found = nodes(node.props, asked)
        return {"filters": why.reasons(found, asked, going.contact_id, going.event_data, going.started_at)}

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Say in words who goes to Yes."""
        here = scope(account_id)
        return f"{explain.sentence(account_id, nodes(props, here), here)}: yes; all others: no"


def scope(account_id: int, writing: bool = False) -> Scope:
    """Return what filters of a branch are read in; while `writing`, what their ids name must exist."""
    return people.scope(account_id, writing)._replace(place=Place.SPLIT)


def nodes(props: dict[str, Any], here: Scope) -> list[Filter]:
    """Read the filters of a stored split."""
    return read.filters(props["filters"], here)
