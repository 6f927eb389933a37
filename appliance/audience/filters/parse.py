"""Parse filters from JSON into nodes, and collect every error at its path."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from appliance.audience.filters import fields, predicates
from appliance.audience.filters.fields import Field, FilterPlace, Scope, ValueContext
from appliance.audience.filters.predicates import PREDICATES_BY_TYPE, Predicate
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext

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


def asks_about_contact(filters: Any) -> bool:
    """Return whether any filter as sent, in a group or not, concerns the contact and not only the triggering event."""
    return any(part.get("name") != "group" and not fields.is_event_path(part.get("name")) for part in walk(filters))


def asks_about_event_data(filters: Any) -> bool:
    """Return whether any filter as sent, in a group or not, compares the data of an event."""
    for part in walk(filters):
        value = part.get("value")
        if fields.is_event_path(part.get("name")) or (isinstance(value, dict) and value.get("where")):
            return True
    return False


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
