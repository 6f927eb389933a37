"""Chooses the way of a question about many people: where to begin, and in which order to ask.

Where one condition is rare, its people are taken from an index and the others asked of them alone. Otherwise the whole
table is read in order, which is quicker than any index, and what lets few through for little is asked first; how many
each condition lets through is told from a few people. The way never changes who is meant.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from appliance.audience.filters import compile
from appliance.audience.filters.predicates import one_of, same
from appliance.audience.filters.read import Group, Leaf, Lived, Node
from appliance.audience.filters.scope import Binder, Compiled, Operand, Scope
from appliance.audience.segments import indexes
from appliance.storage.open import scalar

# Looking people up one by one costs several times what passing them by costs: up to such a part of all it pays
_RARE = 3
# A set of people beside which all are read costs its making too
_RARE_SET = 5
# A set of people is made of so many events at most, whatever the part
_ASKED = 200
_FEW = 20_000


class _Start(NamedTuple):
    """A query of contact ids with an index behind it: what it counts, what it answers, and the filter it is all of."""

    counted: str
    chosen: str
    values: dict[str, object]
    whole: Node | None


class Way(NamedTuple):
    """The query of ids to begin with (or None: with everybody), and the other conditions."""

    start: Compiled | None
    others: Compiled


def way(nodes: Sequence[Node], scope: Scope, prefix: str) -> Way:
    """Choose how filters are asked of many people."""
    largest = int(scalar("SELECT coalesce(max(id), 0) FROM contact") or 0)
    best: _Start | None = None
    fewest = largest // _RARE + 1
    for index, start in enumerate(_starts(nodes, scope, f"{prefix}n")):
        if index >= 10:
            break
        found = _number(start, fewest)
        if found < fewest:
            best, fewest = start, found
    others = [node for node in nodes if best is None or node is not best.whole]
    passing = indexes.passing_share(others, scope, _ASKED) if largest > _FEW and len(others) > 1 else {}
    chosen = compile.Way(
        lambda node: compile.cost(node) / (1.02 - passing.get(id(node), 0.5)),
        tuple(leaf for leaf in sets(others) if _is_few(leaf, scope, largest // _RARE_SET)),
    )
    begin = Compiled(best.chosen, best.values) if best else None
    return Way(begin, compile.condition(others, scope, prefix, chosen))


def _number(start: _Start, limit: int) -> int:
    """Count up to a limit the rows that a start would look up."""
    return int(scalar(f"SELECT count(*) FROM (SELECT 1 {start.counted} LIMIT {limit})", start.values))


def sets(nodes: Sequence[Node]) -> Iterator[Lived]:
    """Return the event leaves, in groups too, whose people can be found from the events instead of one by one."""
    for node in nodes:
        if isinstance(node, Group):
            yield from sets(node.parts)
        elif isinstance(node, Lived) and _is_set(node):
            yield node


def _is_set(leaf: Lived) -> bool:
    return leaf.history.at_least > 0 and not isinstance(leaf.history.since, str)


def _is_few(leaf: Lived, scope: Scope, limit: int) -> bool:
    binder = Binder("n", scope)
    return _number(_Start(_happened(leaf, binder), "", binder.values, None), limit + 1) <= limit


def _starts(nodes: Sequence[Node], scope: Scope, prefix: str) -> Iterator[_Start]:
    for index, node in enumerate(nodes):
        if isinstance(node, Group) or node.negative:
            continue
        binder = Binder(f"{prefix}{index}_", scope)
        if isinstance(node, Lived):
            if _is_set(node):
                counted = _happened(node, binder)
                people = compile.people_of(node, scope, f"{prefix}{index}e")
                yield _Start(counted, people.sql, binder.values | people.parameters, node)
        elif node.test.key in ("eq", "in"):
            make = _data if node.field.name.startswith(("contact_data.", "data.")) else _BY_FIELD.get(node.field.name)
            sql = make(node, binder) if make else None
            if sql is not None:
                # Who is in a list is all that the filter asks; the others ask more
                yield _Start(sql, f"SELECT contact_id {sql}", binder.values, node if make is _list else None)


def _happened(leaf: Lived, binder: Binder) -> str:
    asked = leaf.history
    sql = f"FROM event WHERE account_id = {binder.add(binder.scope.account_id)} AND event = {binder.add(asked.event)}"
    since = [binder.scope.now - asked.within_days * 86_400_000] if asked.within_days is not None else []
    since += [asked.since] if isinstance(asked.since, int) else []
    return sql + (f" AND created_at >= {binder.add(max(since))}" if since else "")


def _numbers(node: Leaf) -> str:
    wanted = node.value if isinstance(node.value, list) else [node.value]
    return ",".join(str(int(number)) for number in wanted)


def _list(node: Leaf, binder: Binder) -> str:
    return f"FROM membership WHERE contact_list_id IN ({_numbers(node)})"


def _campaign(column: str) -> Callable[[Leaf, Binder], str]:
    return lambda node, binder: f"FROM message WHERE campaign_id IN ({_numbers(node)}) AND {column} IS NOT NULL"


def _address(kind: str) -> Callable[[Leaf, Binder], str | None]:
    def make(node: Leaf, binder: Binder) -> str | None:
        wanted = node.value if isinstance(node.value, list) else [node.value]
        if not all(one.isascii() for one in wanted):
            return None
        values = ", ".join(binder.add(one.lower()) for one in wanted)
        account = binder.add(binder.scope.account_id)
        return f"FROM channel WHERE account_id = {account} AND kind = '{kind}' AND key IN ({values})"

    return make


def _data(node: Leaf, binder: Binder) -> str | None:
    wanted = node.value if isinstance(node.value, list) else [node.value]
    texts = [one for one in wanted if isinstance(one, str) and one.isascii()]
    index = indexes.of(node.field.label) if len(texts) == len(wanted) else None
    if index is None:
        return None
    operand = Operand("k.value")
    condition = one_of(operand, texts, binder) if len(texts) > 1 else same(operand, texts[0], binder)
    return f"FROM {index} k WHERE {condition}"


_BY_FIELD: dict[str, Callable[[Leaf, Binder], str | None]] = {
    "contact_list": _list, "campaign_sent": _campaign("sent_at"), "campaign_opened": _campaign("opened_at"),
    "campaign_clicked": _campaign("clicked_at"), "contact_email": _address("email"),
    "contact_phone_number": _address("phone"),
}  # fmt: skip
