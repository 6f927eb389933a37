"""People held against rules: some who match, with what the rules look at, and one person answered rule by rule."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.audience.contacts import requests, store
from appliance.audience.filters.read import Group, Leaf, Lived, Node
from appliance.audience.segments import explain, people
from appliance.core.errors import NotFound
from ui import filter_look
from ui.filter_look import Look
from ui.filters import Rows

_COLUMNS = 4
_CANDIDATES = 5


class Cell(NamedTuple):
    """What a rule looks at in a person: the sort of thing, and its value."""

    kind: str
    value: Any


class Sample(NamedTuple):
    """Some people who match: the names of the columns, and each person with their cells."""

    columns: list[str]
    people: list[tuple[Any, list[Cell]]]


class Answer(NamedTuple):
    """What one rule says of a person."""

    sentence: str
    matches: bool
    cell: Cell
    parts: "list[Answer]"


class Check(NamedTuple):
    """One person held against the rules; or those whom a search found, to choose from."""

    search: str
    found: Sequence[Any]
    person: Any = None
    matches: bool = False
    answers: list[Answer] = []


def sample(account_id: int, shown: Look) -> Sample:
    """Return some of the people whom rows mean, with the columns that the rules use: a wrong rule is seen at once."""
    if shown.tally is None:
        return Sample([], [])
    nodes = people.nodes(account_id, shown.tally.filters)
    here = people.scope(account_id)
    asked = _columns(nodes)
    names = [_called(node) for node in asked]
    rows = [
        (contact, [_cell(account_id, node, explain.actual(node, here, contact.id)) for node in asked])
        for contact in store.by_ids(list(shown.tally.sample))
    ]
    return Sample(names, rows)


def check(account_id: int, rows: Rows, search: str, person_id: int | None) -> Check:
    """Hold one person against rows, or answer whom a search finds."""
    found: Sequence[Any] = []
    if search:
        asked = requests.ContactQuery(search=search, limit=_CANDIDATES)
        found = store.page(account_id, asked).rows
    if person_id is None:
        return Check(search, found)
    try:
        person = store.get(account_id, person_id)
    except NotFound:
        return Check(search, found)
    nodes, here = filter_look.read_rows(account_id, rows)
    answers = [_answer(account_id, node, explain.row(node, here, person_id)) for node in nodes]
    return Check(search, found, person, explain.holds(nodes, here, person_id), answers)


def _answer(account_id: int, node: Node, row: explain.Row) -> Answer:
    parts = [_answer(account_id, *pair) for pair in zip(node.parts, row.rows, strict=True)] \
        if isinstance(node, Group) else []  # fmt: skip
    cell = Cell("", None) if isinstance(node, Group) else _cell(account_id, node, row.actual)
    return Answer(row.sentence, row.matches, cell, parts)


def _columns(nodes: list[Node]) -> list[Leaf | Lived]:
    """Return what the rules look at, each thing once."""
    found: dict[tuple[str, str], Leaf | Lived] = {}
    for node in nodes:
        for leaf in _columns(node.parts) if isinstance(node, Group) else [node]:
            found.setdefault((leaf.field.name, leaf.history.event if isinstance(leaf, Lived) else ""), leaf)
    return list(found.values())[:_COLUMNS]


def _called(node: Leaf | Lived) -> str:
    label = node.history.event.replace("_", " ") if isinstance(node, Lived) else node.field.label
    return label if not isinstance(node, Lived) and node.field.type == "json" else label[:1].upper() + label[1:]


def _cell(account_id: int, node: Leaf | Lived, value: Any) -> Cell:
    if isinstance(node, Lived):
        return Cell("history", value)
    if node.field.of:
        return Cell("names", [explain.called(account_id, node.field.of, one) for one in value or []])
    if value in (None, "", []):
        return Cell("nothing", None)
    kind = "time" if node.field.type == "time" else "names" if isinstance(value, list) else "plain"
    return Cell("yes" if isinstance(value, bool) else kind, value)
