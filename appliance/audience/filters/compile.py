"""Makes one SQL condition over the contact alias `c` out of nodes; every value is a parameter."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from appliance.audience.filters.history import History, is_judged
from appliance.audience.filters.read import Group, Leaf, Lived, Node
from appliance.audience.filters.scope import Binder, Compiled, Scope
from appliance.core.errors import Invalid

# Segments may name segments; together they stay one statement that SQLite can hold
MAX_TOGETHER = 500
# A tag that stands in JSON as it is
PLAIN_TAG = re.compile(r"^[A-Za-z0-9 _.\-]+$")


class Way(NamedTuple):
    """How to ask about many people, which never changes who is meant.

    `rank` orders the conditions that must all hold; the event leaves of `sets` are answered from one set of people,
    made from an index once, instead of looking each person up.
    """

    rank: Callable[[Node], float]
    sets: tuple[Lived, ...] = ()


def condition(nodes: Sequence[Node], scope: Scope, prefix: str = "f", way: Way | None = None) -> Compiled:
    """Compile filters that all must hold; none at all is everybody. `prefix` keeps parameters apart."""
    binder = Binder(prefix, scope)
    compiler = _Compiler(binder, way)
    if way is None:
        return Compiled(compiler.all(nodes), binder.values)
    sql = ""
    # SQLite would ask last what looks things up, however few it lets through: CASE keeps the order
    for part in [compiler.one(node) for node in sorted(nodes, key=way.rank)][::-1]:
        sql = f"CASE WHEN {part} THEN {sql} END" if sql else part
    return Compiled(sql or "1", binder.values)


def people_of(leaf: Lived, scope: Scope, prefix: str) -> Compiled:
    """Compile the ids of all people whom a positive event leaf that asks for at least one event lets through."""
    binder = Binder(prefix, scope)
    return Compiled(_Compiler(binder).people(leaf.history), binder.values)


def single(node: Node, scope: Scope, prefix: str) -> Compiled:
    """Compile one filter, for explanations: the SQL that it has within the whole."""
    binder = Binder(prefix, scope)
    sql = _Compiler(binder).one(node)
    return Compiled(sql, binder.values)


def shown(node: Node, scope: Scope, prefix: str) -> Compiled:
    """Compile the person's own value that a filter looks at, as JSON."""
    binder = Binder(prefix, scope)
    if isinstance(node, Group):
        return Compiled("NULL", {})
    if isinstance(node, Lived):
        happened = _Compiler(binder).happened(node.history)
        return Compiled(f"(SELECT json_object('count', count(*), 'last_at', max(e.created_at)) {happened})",
                        binder.values)  # fmt: skip
    return Compiled(f"({node.field.shown})", binder.values)


def cost(node: Node) -> int:
    """Return how dear a condition is, so that cheap ones are asked first."""
    if isinstance(node, Group):
        return 1 + sum(cost(part) for part in node.parts)
    return node.field.cost + (5 if isinstance(node, Lived) and node.history.at_least > 1 else 0)


class _Compiler:
    def __init__(self, binder: Binder, way: Way | None = None) -> None:
        self.binder = binder
        self.sets = way.sets if way else ()
        self.inside: tuple[int, ...] = ()
        self.together = 0

    def all(self, nodes: Sequence[Node]) -> str:
        parts = [self.one(node) for node in sorted(nodes, key=cost)]
        return " AND ".join(parts) if parts else "1"

    def one(self, node: Node) -> str:
        self.together += 1
        if self.together > MAX_TOGETHER:
            raise Invalid({"filters": [f"is too long (maximum is {MAX_TOGETHER} with the segments it names)"]})
        if isinstance(node, Group):
            return self._group(node)
        sql = self._lived(node) if isinstance(node, Lived) else self._leaf(node)
        # Negative is everybody else: those without a value too. The plus keeps SQLite from joining what EXISTS looks at
        # before the cheaper conditions have been asked
        return f"({sql}) IS NOT TRUE" if node.negative else f"+({sql})"

    def _group(self, node: Group) -> str:
        parts = [self.one(part) for part in sorted(node.parts, key=cost)]
        joined = (" AND " if node.mode == "all" else " OR ").join(parts)
        return f"({joined}) IS NOT TRUE" if node.mode == "none" else f"({joined})"

    def _leaf(self, node: Leaf) -> str:
        if node.field.of == "segment":
            wanted = node.value if isinstance(node.value, list) else [node.value]
            return " OR ".join(self._segment(number) for number in wanted)
        sql = node.field.wrap(node.test.sql(node.field.operand, node.value, self.binder))
        if node.field.type == "tags" and isinstance(node.value, str) and PLAIN_TAG.match(node.value):
            # Most people's data does not hold the word at all, and looking for it is quicker than reading JSON
            word = self.binder.add('%"' + node.value + '"%')
            sql = f"c.data LIKE {word} AND {sql}"
        return sql

    def _segment(self, number: int) -> str:
        nodes = self.binder.scope.segment(number)
        if nodes is None or number in self.inside:
            return "0"
        self.inside = (*self.inside, number)
        sql = self.all(nodes)
        self.inside = self.inside[:-1]
        return f"({sql})"

    def _lived(self, node: Lived) -> str:
        asked = node.history
        if any(node is one for one in self.sets):
            return f"c.id IN ({self.people(asked)})"
        if asked.at_least == 1 and asked.at_most is None:
            return f"EXISTS (SELECT 1 {self.happened(asked)})"
        enough = (asked.at_least if asked.at_most is None else asked.at_most + 1) or 1
        sql = f"(SELECT count(*) FROM (SELECT 1 {self.happened(asked)} LIMIT {enough})) "
        upper = "" if asked.at_most is None else f" AND {asked.at_most}"
        return sql + (f"BETWEEN {asked.at_least}{upper}" if upper else f">= {asked.at_least}")

    def happened(self, asked: History) -> str:
        """Return FROM and WHERE of the events of `c` that are meant."""
        return f"FROM event e WHERE e.contact_id = c.id AND {self._meant(asked)}"

    def people(self, asked: History) -> str:
        """Return a query of the ids of all people who did at least once what is meant, as often as is meant."""
        account = self.binder.add(self.binder.scope.account_id)
        sql = (
            f"SELECT e.contact_id AS id FROM event e INDEXED BY event_of_name "
            f"WHERE e.account_id = {account} AND {self._meant(asked)} AND e.contact_id IS NOT NULL"
        )
        if asked.at_least == 1 and asked.at_most is None:
            return sql
        upper = "" if asked.at_most is None else f" AND count(*) <= {asked.at_most}"
        return f"{sql} GROUP BY e.contact_id HAVING count(*) >= {asked.at_least}{upper}"

    def _meant(self, asked: History) -> str:
        add = self.binder.add
        parts = [f"e.event = {add(asked.event)}"]
        if asked.within_days is not None:
            parts.append(f"e.created_at >= {add(self.binder.scope.now - asked.within_days * 86_400_000)}")
        if asked.since is not None:
            parts.append(
                f"e.created_at >= {self.binder.scope.start if asked.since == 'flow_start' else add(asked.since)}"
            )
        parts.append("e.test = 0")
        if is_judged(asked.event) and not asked.include_machine:
            parts.append("(e.generated = 1 AND json_extract(e.data, '$.verdict') = 'machine') IS NOT TRUE")
        if asked.where:
            parts.append(self.all(asked.where))
        return " AND ".join(parts)
