"""Parse filters from JSON into nodes, with every error at its path, and compile nodes into SQL.

The SQL is one condition over the contact alias `c`, with values as parameters.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from appliance.audience.filters import fields, predicates
from appliance.audience.filters.fields import Binder, Compiled, Field, FilterPlace, Scope, ValueContext
from appliance.audience.filters.predicates import PREDICATES_BY_TYPE, Predicate
from appliance.core import clock
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.storage.masking import real_columns

EVENT_QUERY_KEYS = ("event", "at_least", "at_most", "within_days", "since", "where", "include_machine")
_MAX_TIMES = 1_000_000
# The prefixes of events that a person or a machine may have caused. Events caused by machines count only if a filter
# includes them.
_JUDGED_PREFIXES = ("email_", "sms_")


class EventQuery(NamedTuple):
    """The events that an event condition counts, and how many of them it requires.

    `raw_filters` are the filters of `where` as sent, and `nodes` the parsed ones; both are None without `where`.
    """

    event: str
    at_least: int
    at_most: int | None
    within_days: int | None
    since: int | str | None  # a time in milliseconds, or "flow_start"
    include_machine: bool
    raw_filters: Any = None
    nodes: Any = None


def read_event_query(raw: Any, context: ValueContext) -> EventQuery | None:
    """Return the query of an event condition, whose `where` is not parsed yet; errors are added at their paths.

    Returns None if the value is missing or not an object. With other errors, the query is incomplete.
    """
    if raw is None:
        return context.add_error(gettext("can't be blank"))
    if not isinstance(raw, dict):
        return context.add_error(gettext("is invalid"))
    for key in raw:
        if key not in EVENT_QUERY_KEYS:
            context.add_error(gettext("is not a known field"), f".{predicates.UNSTORABLE.sub('?', str(key))[:100]}")
    event = _read_event_name(raw.get("event"), context)
    at_least = _read_times(raw, "at_least", context)
    at_most = _read_times(raw, "at_most", context)
    at_least = 1 if at_least is None else at_least
    if at_most is not None and at_most < at_least:
        context.add_error(gettext("must be greater than or equal to %(limit)s", limit=at_least), ".at_most")
    within = raw.get("within_days")
    machine = raw.get("include_machine")
    if machine is not None and not isinstance(machine, bool):
        context.add_error(gettext("is invalid"), ".include_machine")
    days = None if within is None else predicates.read_days(within, context, ".within_days")
    return EventQuery(
        event or "", at_least, at_most, days, _read_since(raw, context), machine is True, raw.get("where")
    )


def _read_event_name(name: Any, context: ValueContext) -> str | None:
    if name in (None, ""):
        return context.add_error(gettext("can't be blank"), ".event")
    good = isinstance(name, str) and len(name) <= 64 and name.isascii() and name.replace("_", "a").isalnum()
    return name if good else context.add_error(gettext("is invalid"), ".event")


def _read_times(raw: dict[str, Any], key: str, context: ValueContext) -> int | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        return context.add_error(gettext("is not a number"), f".{key}")
    if value < 0:
        return context.add_error(gettext("must be greater than or equal to 0"), f".{key}")
    return (
        value
        if value <= _MAX_TIMES
        else context.add_error(gettext("must be less than or equal to %(limit)s", limit=_MAX_TIMES), f".{key}")
    )


def _read_since(raw: dict[str, Any], context: ValueContext) -> int | str | None:
    value = raw.get("since")
    if value is None:
        return None
    if value == "flow_start" and context.scope.place is FilterPlace.SPLIT:
        return "flow_start"
    span = predicates.read_span(value, context, ".since")
    return span.start if span else None


def is_judged(event: str) -> bool:
    """Return whether events of a name carry a verdict: caused by a person or by a machine."""
    return event.startswith(_JUDGED_PREFIXES)


MAX_FILTERS = 100
MAX_IN_GROUP = 25
MAX_DEPTH = 5
# The number of unknown keys of one filter that are reported
MAX_UNKNOWN_KEYS = 100
FILTER_KEYS = ("name", "predicate", "value")
GROUP_MODES = ("any", "all", "none")


class FieldCondition(NamedTuple):
    """A condition on a field: the field's value fulfils a predicate, or with `is_negative` does not.

    `value` is in the form that the predicate uses, and `raw` is the filter as sent.
    """

    field: Field
    predicate: Predicate
    is_negative: bool
    value: Any
    raw: dict[str, Any]


class EventCondition(NamedTuple):
    """A condition on the events of a contact: `query` is fulfilled, or with `is_negative` is not.

    `raw` is the filter as sent.
    """

    field: Field
    query: EventQuery
    is_negative: bool
    raw: dict[str, Any]


class ConditionGroup(NamedTuple):
    """A group of conditions, of which at least one (`any`), each (`all`) or none (`none`) must hold.

    `raw` is the filter as sent.
    """

    mode: str
    parts: "list[Node]"
    raw: dict[str, Any]


Node = FieldCondition | EventCondition | ConditionGroup


def parse_filters(raw: Any, scope: Scope, path: str = "filters") -> list[Node]:
    """Parse a list of filters, which must all hold; raises Invalid with all errors at paths that begin with `path`."""
    faults = Faults()
    reader = _Parser(scope, faults)
    nodes = reader.parse_all(raw, path, MAX_FILTERS, 1)
    if reader.count > MAX_FILTERS:
        faults.add(path, gettext("is too long (maximum is %(limit)s filters)", limit=MAX_FILTERS))
    if faults.fields:
        raise Invalid(faults.fields)
    return nodes


def walk(raw: Any, keys: Sequence[str] = ("value",)) -> Iterator[dict[str, Any]]:
    """Yield every object in JSON as sent, which may be invalid, in lists and under `keys` of other objects.

    By default these are filters, groups, and objects in their values.
    """
    pending = [raw]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, dict):
            yield part
            pending.extend(part.get(key) for key in keys)


def uses_contact_data(filters: Any) -> bool:
    """Return whether any filter as sent, in a group or not, concerns the contact and not only the triggering event."""
    return any(part.get("name") != "group" and not fields.is_event_path(part.get("name")) for part in walk(filters))


def uses_event_data(filters: Any) -> bool:
    """Return whether any filter as sent, in a group or not, compares the data of an event."""
    for part in walk(filters):
        value = part.get("value")
        if fields.is_event_path(part.get("name")) or (isinstance(value, dict) and value.get("where")):
            return True
    return False


def depends_on_event(node: Node) -> bool:
    """Return whether a condition depends on the triggering event or the start of the run, not only on the contact."""
    if isinstance(node, ConditionGroup):
        return any(depends_on_event(part) for part in node.parts)
    if isinstance(node, EventCondition):
        return node.query.since == "flow_start"
    return fields.is_event_path(node.field.name)


class _Parser:
    def __init__(self, scope: Scope, faults: Faults) -> None:
        self.scope = scope
        self.faults = faults
        self.count = 0

    def parse_all(self, raw: Any, path: str, max_filters: int, depth: int) -> list[Node]:
        if not isinstance(raw, list):
            self.faults.add(path, gettext("is invalid"))
            return []
        if len(raw) > max_filters:
            self.faults.add(path, gettext("is too long (maximum is %(limit)s filters)", limit=max_filters))
            return []
        nodes = [self.parse_one(raw_filter, f"{path}[{index}]", depth) for index, raw_filter in enumerate(raw)]
        return [node for node in nodes if node is not None]

    def parse_one(self, raw: Any, path: str, depth: int) -> Node | None:
        self.count += 1
        if not isinstance(raw, dict):
            self.faults.add(path, gettext("is invalid"))
            return None
        unknown_keys = (key for key in raw if key not in FILTER_KEYS)
        for key in islice(unknown_keys, MAX_UNKNOWN_KEYS):
            self.faults.add(f"{path}.{_printable(key)}", gettext("is not a known field"))
        field = self._parse_field(raw, path)
        if field is None:
            return None
        if field.type == "group":
            return self._parse_group(raw, path, depth)
        if field.type == "history":
            return self._parse_event_condition(field, raw, path)
        return self._parse_field_condition(field, raw, path)

    def _parse_field(self, raw: dict[str, Any], path: str) -> Field | None:
        """Return the field that a filter names, or None; errors of name and predicate are added."""
        if raw.get("predicate") in (None, ""):
            self.faults.add(f"{path}.predicate", gettext("can't be blank"))
        name = raw.get("name")
        if name in (None, ""):
            self.faults.add(f"{path}.name", gettext("can't be blank"))
            return None
        field = fields.find_field(name, self.scope.place, self.scope.document) if isinstance(name, str) else None
        if field is None:
            self.faults.add(f"{path}.name", gettext("is not included in the list"))
        return field

    def _parse_predicate(self, raw: dict[str, Any], path: str, allowed: Any) -> str | None:
        key = raw.get("predicate")
        if key in (None, ""):
            return None
        if not isinstance(key, str) or key not in allowed:
            self.faults.add(f"{path}.predicate", gettext("is not included in the list"))
            return None
        return key

    def _parse_field_condition(self, field: Field, raw: dict[str, Any], path: str) -> FieldCondition | None:
        predicates_by_key = PREDICATES_BY_TYPE[field.type]
        if field.id_kind == "segment":
            # "In any segment" would depend on every segment, including the one that contains the filter.
            predicates_by_key = {key: entry for key, entry in predicates_by_key.items() if entry[0].key != "present"}
        key = self._parse_predicate(raw, path, predicates_by_key)
        if key is None:
            return None
        predicate, negative = predicates_by_key[key]
        value = predicate.read(raw.get("value"), ValueContext(self.scope, self.faults, f"{path}.value", field))
        if predicate.value_kind == "flag" and value is False:
            value, negative = True, not negative
        return FieldCondition(field, predicate, negative, value, raw)

    def _parse_event_condition(self, field: Field, raw: dict[str, Any], path: str) -> EventCondition | None:
        key = self._parse_predicate(raw, path, ("performed", "not_performed"))
        context = ValueContext(self.scope, self.faults, f"{path}.value", field)
        query = read_event_query(raw.get("value"), context)
        if query is None:
            return None
        if query.raw_filters is not None:
            parser = _Parser(self.scope._replace(place=FilterPlace.WHERE), self.faults)
            query = query._replace(nodes=parser.parse_all(query.raw_filters, f"{path}.value.where", MAX_IN_GROUP, 2))
            self.count += parser.count
        return EventCondition(field, query, key == "not_performed", raw)

    def _parse_group(self, raw: dict[str, Any], path: str, depth: int) -> ConditionGroup | None:
        mode = self._parse_predicate(raw, path, GROUP_MODES)
        value_path = f"{path}.value"
        if raw.get("value") in (None, []):
            self.faults.add(value_path, gettext("can't be blank"))
            return None
        if depth >= MAX_DEPTH:
            self.faults.add(value_path, gettext("is nested too deeply (maximum is %(limit)s levels)", limit=MAX_DEPTH))
            return None
        nodes = self.parse_all(raw["value"], value_path, MAX_IN_GROUP, depth + 1)
        return ConditionGroup(mode, nodes, raw) if mode else None


def _printable(key: Any) -> str:
    """Return a key, cut to 100 characters, without characters that cannot be stored, for the path of an error."""
    return predicates.UNSTORABLE.sub("?", str(key))[:100]


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
        return Compiled(real_columns(compiler.compile_all(nodes)), binder.values)
    sql = ""
    # SQLite would evaluate lookups last, even if they match few rows. CASE enforces the order.
    for condition in [compiler.compile_one(node) for node in sorted(nodes, key=hints.rank)][::-1]:
        sql = f"CASE WHEN {condition} THEN {sql} END" if sql else condition
    return Compiled(real_columns(sql) or "1", binder.values)


def compile_event_contacts(condition: EventCondition, scope: Scope, prefix: str) -> Compiled:
    """Compile a query of the ids of all contacts who match an event condition.

    The condition must not be negative and must require at least one event.
    """
    binder = Binder(prefix, scope)
    return Compiled(real_columns(_Compiler(binder).matching_contacts(condition.query)), binder.values)


def compile_node(node: Node, scope: Scope, prefix: str) -> Compiled:
    """Compile a single filter into a condition, for explanations and samples; `prefix` begins its parameters' names."""
    binder = Binder(prefix, scope)
    sql = _Compiler(binder).compile_one(node)
    return Compiled(real_columns(sql), binder.values)


def compile_value(node: Node, scope: Scope, prefix: str) -> Compiled:
    """Compile the value of a contact that a filter compares, as an SQL expression of JSON.

    The value is `{"count", "last_at"}` (Unix milliseconds) for an event condition, and NULL for a group. The names of
    its parameters begin with `prefix`.
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
        """Return the FROM and WHERE clauses that select the events of contact `c` that match a query."""
        return f"FROM event e WHERE e.contact_id = c.id AND {self._event_conditions(query)}"

    def matching_contacts(self, query: EventQuery) -> str:
        """Return the SELECT statement for the ids of all contacts who have the required number of matching events."""
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
            conditions.append(f"e.created_at >= {add(self.binder.scope.now - query.within_days * clock.DAY_MS)}")
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
