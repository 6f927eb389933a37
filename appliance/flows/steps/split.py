"""Split: those for whom filters hold go one way, everybody else the other; both meet behind it."""

from collections.abc import Sequence
from typing import Any

from appliance.errors import Invalid
from appliance.filters import read
from appliance.filters.read import Node as Filter
from appliance.filters.scope import Place, Scope
from appliance.flows import branching, why
from appliance.flows.steps.kind import NO, YES, Field, Going, Here, Kind, Move, Node, Reading
from appliance.segments import explain, people


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
        yes = branching.holding(here.account_id, node.props["filters"], goings)
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
