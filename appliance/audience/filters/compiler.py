"""Compile the nodes of parsed filters into one SQL condition over the contact alias `c`, with values as parameters."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from appliance.audience.filters.fields import Binder, Compiled, Scope
from appliance.audience.filters.parse import ConditionGroup, EventCondition, EventQuery, FieldCondition, Node, is_judged
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext

# The maximum number of conditions, including those of segments that filters refer to: all of them must fit into one
# SQLite statement.
MAX_CONDITIONS = 500
# A tag whose characters JSON does not escape.
PLAIN_TAG = re.compile(r"^[A-Za-z0-9 _.\-]+$")


class CompileHints(NamedTuple):
    """Hints for a query over many contacts, which never change its result.

    `rank` orders the conditions that must all hold, the lowest first. The event conditions in `sets` are each evaluated
    as one set of contacts from an index, instead of by a lookup for each contact.
    """

    rank: Callable[[Node], float]
    sets: tuple[EventCondition, ...] = ()


def compile_filters(
    nodes: Sequence[Node], scope: Scope, prefix: str = "f", hints: CompileHints | None = None
) -> Compiled:
    """Compile filters into the condition that all of them hold; without filters, every contact matches.

    `prefix` keeps the names of parameters apart. Raises Invalid for more than `MAX_CONDITIONS` conditions.
    """
    binder = Binder(prefix, scope)
    compiler = _Compiler(binder, hints)
    if hints is None:
        return Compiled(compiler.compile_all(nodes), binder.values)
    sql = ""
    # SQLite would evaluate lookups last, even if they match few rows. CASE enforces the order.
    for condition in [compiler.compile_one(node) for node in sorted(nodes, key=hints.rank)][::-1]:
        sql = f"CASE WHEN {condition} THEN {sql} END" if sql else condition
    return Compiled(sql or "1", binder.values)


def compile_event_contacts(condition: EventCondition, scope: Scope, prefix: str) -> Compiled:
    """Compile a query of the ids of all contacts who match an event condition.

    The condition must not be negative and must require at least one event.
    """
    binder = Binder(prefix, scope)
    return Compiled(_Compiler(binder).matching_contacts(condition.query), binder.values)


def compile_node(node: Node, scope: Scope, prefix: str) -> Compiled:
    """Compile a single filter into a condition, for explanations and samples."""
    binder = Binder(prefix, scope)
    sql = _Compiler(binder).compile_one(node)
    return Compiled(sql, binder.values)


def compile_value(node: Node, scope: Scope, prefix: str) -> Compiled:
    """Compile the value of a contact that a filter compares, as an SQL expression of JSON.

    The value is `{"count", "last_at"}` for an event condition, and NULL for a group.
    """
    binder = Binder(prefix, scope)
    if isinstance(node, ConditionGroup):
        return Compiled("NULL", {})
    if isinstance(node, EventCondition):
        events = _Compiler(binder).matching_events(node.query)
        return Compiled(f"(SELECT json_object('count', count(*), 'last_at', max(e.created_at)) {events})",
                        binder.values)  # fmt: skip
    return Compiled(f"({node.field.json_sql})", binder.values)


def estimate_cost(node: Node) -> int:
    """Return the estimated cost of a condition, in the unit of `Field.cost`."""
    if isinstance(node, ConditionGroup):
        return 1 + sum(estimate_cost(child) for child in node.parts)
    return node.field.cost + (5 if isinstance(node, EventCondition) and node.query.at_least > 1 else 0)


class _Compiler:
    def __init__(self, binder: Binder, hints: CompileHints | None = None) -> None:
        self.binder = binder
        self.sets = hints.sets if hints else ()
        self.open_segments: tuple[int, ...] = ()
        self.condition_count = 0

    def compile_all(self, nodes: Sequence[Node]) -> str:
        parts = [self.compile_one(node) for node in sorted(nodes, key=estimate_cost)]
        return " AND ".join(parts) if parts else "1"

    def compile_one(self, node: Node) -> str:
        self.condition_count += 1
        if self.condition_count > MAX_CONDITIONS:
            raise Invalid(
                {
                    "filters": [
                        gettext(
                            "is too long (maximum is %(limit)s with the segments it names)",
                            limit=MAX_CONDITIONS,
                        )
                    ]
                }
            )
        if isinstance(node, ConditionGroup):
            return self._group(node)
        sql = self._event_condition(node) if isinstance(node, EventCondition) else self._field_condition(node)
        # A negative condition matches all other contacts, including those without a value. The plus prevents SQLite
        # from joining the tables of EXISTS before cheaper conditions are evaluated.
        return f"({sql}) IS NOT TRUE" if node.is_negative else f"+({sql})"

    def _group(self, node: ConditionGroup) -> str:
        conditions = [self.compile_one(child) for child in sorted(node.parts, key=estimate_cost)]
        joined = (" AND " if node.mode == "all" else " OR ").join(conditions)
        return f"({joined}) IS NOT TRUE" if node.mode == "none" else f"({joined})"

    def _field_condition(self, node: FieldCondition) -> str:
        if node.field.id_kind == "segment":
            segment_ids = node.value if isinstance(node.value, list) else [node.value]
            return " OR ".join(self._segment(number) for number in segment_ids)
        sql = node.field.wrap(node.predicate.sql(node.field.operand, node.value, self.binder))
        if node.field.type == "tags" and isinstance(node.value, str) and PLAIN_TAG.match(node.value):
            # The data of most contacts does not contain the tag at all, and LIKE is faster than parsing JSON.
            pattern = self.binder.add('%"' + node.value + '"%')
            sql = f"c.data LIKE {pattern} AND {sql}"
        return sql

    def _segment(self, number: int) -> str:
        nodes = self.binder.scope.segment(number)
        if nodes is None or number in self.open_segments:
            return "0"
        self.open_segments = (*self.open_segments, number)
        sql = self.compile_all(nodes)
        self.open_segments = self.open_segments[:-1]
        return f"({sql})"

    def _event_condition(self, node: EventCondition) -> str:
        query = node.query
        if any(node is event_condition for event_condition in self.sets):
            return f"c.id IN ({self.matching_contacts(query)})"
        if query.at_least == 1 and query.at_most is None:
            return f"EXISTS (SELECT 1 {self.matching_events(query)})"
        limit = (query.at_least if query.at_most is None else query.at_most + 1) or 1
        sql = f"(SELECT count(*) FROM (SELECT 1 {self.matching_events(query)} LIMIT {limit})) "
        upper = "" if query.at_most is None else f" AND {query.at_most}"
        return sql + (f"BETWEEN {query.at_least}{upper}" if upper else f">= {query.at_least}")

    def matching_events(self, query: EventQuery) -> str:
        """Return FROM and WHERE of the events of contact `c` that match a query."""
        return f"FROM event e WHERE e.contact_id = c.id AND {self._event_conditions(query)}"

    def matching_contacts(self, query: EventQuery) -> str:
        """Return a query of the ids of all contacts who have the required number of matching events."""
        account = self.binder.add(self.binder.scope.account_id)
        sql = (
            f"SELECT e.contact_id AS id FROM event e INDEXED BY event_of_name "
            f"WHERE e.account_id = {account} AND {self._event_conditions(query)} AND e.contact_id IS NOT NULL"
        )
        if query.at_least == 1 and query.at_most is None:
            return sql
        upper = "" if query.at_most is None else f" AND count(*) <= {query.at_most}"
        return f"{sql} GROUP BY e.contact_id HAVING count(*) >= {query.at_least}{upper}"

    def _event_conditions(self, query: EventQuery) -> str:
        add = self.binder.add
        conditions = [f"e.event = {add(query.event)}"]
        if query.within_days is not None:
            conditions.append(f"e.created_at >= {add(self.binder.scope.now - query.within_days * 86_400_000)}")
        if query.since is not None:
            conditions.append(
                f"e.created_at >= {self.binder.scope.start if query.since == 'flow_start' else add(query.since)}"
            )
        conditions.append("e.test = 0")
        if is_judged(query.event) and not query.include_machine:
            conditions.append("(e.generated = 1 AND json_extract(e.data, '$.verdict') = 'machine') IS NOT TRUE")
        if query.nodes:
            conditions.append(self.compile_all(query.nodes))
        return " AND ".join(conditions)
