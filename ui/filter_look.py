"""Rows of a filter as a page shows them: what each offers, whom they mean in words, how many people that is."""

import asyncio
import time
from typing import NamedTuple

from appliance.db.work import call
from appliance.errors import Invalid
from appliance.filters import read
from appliance.filters.read import Group, Node
from appliance.filters.scope import Place, Scope
from appliance.segments import counting, explain, people
from appliance.segments.counting import Counting
from ui import filter_offers
from ui.filter_offers import BRANCH, SEGMENT
from ui.filter_row import Row
from ui.filters import Rows

TIMEOUT_SECONDS = 1.5


class Look(NamedTuple):
    """Everything that the part `rows.builder` shows; `tally` is None where nobody can be counted, `note` says why."""

    rows: Rows
    place: str = SEGMENT
    sentence: str = ""
    tally: Counting | None = None
    note: str = ""


async def shown(account_id: int, rows: Rows, place: str = SEGMENT, counted: bool = True) -> Look:
    """Return rows as a page shows them, with the number of people if it is found soon; else the page asks for it."""
    made = await call(look, account_id, rows, place, counted)
    if made.tally is not None:
        await settled(made.tally)
    return made


async def settled(tally: Counting, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until a count is done, at most so long, without keeping anybody else waiting."""
    until = time.monotonic() + seconds
    while not tally.is_done and time.monotonic() < until:
        await asyncio.sleep(0.01)


def look(account_id: int, rows: Rows, place: str = SEGMENT, counted: bool = True) -> Look:
    """Return rows as a page shows them, with a count that is under way; runs on a reader (`await call(look, …)`).

    Faults of what is complete are noted at the rows. `place` is `split` where a flow asks: there the event that
    began it can be asked about, and then nobody can be counted ahead.
    """
    filter_offers.fill(account_id, rows, place)
    try:
        nodes, here = read_rows(account_id, rows, place)
    except Invalid as refused:
        rows.take(refused)
        return Look(rows, place)
    sentence = explain.sentence(account_id, nodes, here)
    if not counted:
        return Look(rows, place, sentence)
    if _needs_event(nodes):
        return Look(rows, place, sentence, note="Whom this means depends on the event that begins the flow.")
    try:
        _share(account_id, rows, nodes, here)
    except Invalid as refused:
        rows.take(refused)
        return Look(rows, place, sentence)
    return Look(rows, place, sentence, counting.begin(account_id, rows.asker, rows.complete(), rows.seed))


def read_rows(account_id: int, rows: Rows, place: str = SEGMENT) -> tuple[list[Node], Scope]:
    """Read the complete rows; raises Invalid with the faults at the paths of their rows."""
    here = people.scope(account_id, writing=True)
    here = here._replace(place=Place.SPLIT) if place == BRANCH else here
    return read.filters(rows.complete(), here), here


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
    """Return whether an answer depends on the event that began a flow, or on when somebody entered it."""
    for node in nodes:
        if isinstance(node, Group):
            if _needs_event(node.parts):
                return True
        elif (
            node.field.name.startswith("event.") or getattr(getattr(node, "history", None), "since", 0) == "flow_start"
        ):
            return True
    return False
