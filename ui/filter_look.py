"""Rows of a filter as a page shows them: what each offers, whom they mean in words, how many people that is."""

from typing import NamedTuple

from appliance.errors import Invalid
from appliance.filters import read
from appliance.filters.read import Group, Node
from appliance.filters.scope import Place, Scope
from appliance.segments import explain, people
from ui import filter_offers
from ui.filter_offers import BRANCH, SEGMENT
from ui.filter_row import Row
from ui.filters import Rows


class Look(NamedTuple):
    """Everything that the part `rows.builder` shows."""

    rows: Rows
    place: str = SEGMENT
    sentence: str = ""
    total: int | None = None
    everybody: int = 0


def look(account_id: int, rows: Rows, place: str = SEGMENT, counted: bool = True) -> Look:
    """Answer rows as a page shows them; runs on a reader (`await call(look, …)`).

    Faults of what is complete are noted at the rows. `place` is `split` where a flow asks: there the event that
    began it can be asked about, and then nobody can be counted ahead.
    """
    filter_offers.fill(account_id, rows, place)
    here = people.scope(account_id, writing=True)
    here = here._replace(place=Place.SPLIT) if place == BRANCH else here
    try:
        nodes = read.filters(rows.complete(), here)
    except Invalid as refused:
        rows.take(refused)
        return Look(rows, place)
    sentence = explain.sentence(account_id, nodes, here)
    if not counted or _needs_event(nodes):
        return Look(rows, place, sentence)
    try:
        _share(account_id, rows, nodes, here)
        return Look(rows, place, sentence, people.count(account_id, nodes, here), people.total(account_id))
    except Invalid as refused:
        rows.take(refused)
        return Look(rows, place, sentence)


def _share(account_id: int, rows: Rows, nodes: list[Node], here: Scope) -> None:
    """Note at every row how many people it alone lets through, in groups too."""
    pairs = list(_pairs(rows.rows, nodes))
    shares = people.shares(account_id, [node for _, node in pairs], here)
    for (row, _), share in zip(pairs, shares, strict=True):
        row.share = share


def _pairs(rows: list[Row], nodes: list[Node]) -> list[tuple[Row, Node]]:
    found: list[tuple[Row, Node]] = []
    for row, node in zip([row for row in rows if row.path], nodes, strict=True):
        found.append((row, node))
        if isinstance(node, Group):
            found += _pairs(row.rows, node.parts)
    return found


def _needs_event(nodes: list[Node]) -> bool:
    """Say whether an answer depends on the event that began a flow, or on when somebody entered it."""
    for node in nodes:
        if isinstance(node, Group):
            if _needs_event(node.parts):
                return True
        elif (
            node.field.name.startswith("event.") or getattr(getattr(node, "history", None), "since", 0) == "flow_start"
        ):
            return True
    return False
