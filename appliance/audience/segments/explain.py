"""Describe filters in words, and explain the membership of a contact filter by filter."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct

from appliance.audience.filters import compiler, personal
from appliance.audience.filters.compiler import ConditionGroup, EventCondition, EventQuery, FieldCondition, Node
from appliance.audience.filters.fields import Scope
from appliance.audience.filters.predicates import Span
from appliance.audience.segments import members, store
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.i18n import (
    format_clock,
    format_data_date,
    format_data_number,
    format_date,
    format_list,
    format_number,
    gettext,
    gettext_noop,
    ngettext,
    uncapitalize,
)
from appliance.events import log
from appliance.storage import masking
from appliance.storage.database import rows, scalar

Names = Callable[[str, int], str]
# The predicates that ask which of two values is greater.
COMPARISONS = ("gt", "gteq", "lt", "lteq", "between")
# The predicates that compare a part of a text, which is shown as it is written.
_TEXT_PREDICATES = ("cont", "start", "end")
_NUMBER = re.compile(r"[+-]?\d[\d.,\s]*")
# The phrases of each field of ids: is, is not, has any, has none.
_IDS = {
    "contact_list": (
        gettext_noop("On the list {}"), gettext_noop("Not on the list {}"),
        gettext_noop("On any list"), gettext_noop("On no list"),
    ),
    "contact_segment": (gettext_noop("In the segment {}"), gettext_noop("Not in the segment {}"), "", ""),
    "contact_flow": (
        gettext_noop("In the flow {}"), gettext_noop("Not in the flow {}"),
        gettext_noop("In any flow"), gettext_noop("In no flow"),
    ),
    "campaign_sent": (
        gettext_noop("Received the campaign {}"), gettext_noop("Did not receive the campaign {}"),
        gettext_noop("Received any campaign"), gettext_noop("Received no campaign"),
    ),
    "campaign_opened": (
        gettext_noop("Opened the campaign {}"), gettext_noop("Did not open the campaign {}"),
        gettext_noop("Opened any campaign"), gettext_noop("Opened no campaign"),
    ),
    "campaign_clicked": (
        gettext_noop("Clicked in the campaign {}"), gettext_noop("Did not click in the campaign {}"),
        gettext_noop("Clicked in any campaign"), gettext_noop("Clicked in no campaign"),
    ),
}  # fmt: skip
MAX_SHOWN_VALUES = 6


def describe(nodes: Sequence[Node], scope: Scope, names: Names) -> str:
    """Return filters as one text without a full stop, such as "On the list “Newsletter” and first name contains “An”".

    `names(kind, id)` returns the name of a list, segment, flow or campaign.
    """
    if not nodes:
        return gettext("All contacts")
    parts, is_any = nodes, False
    if len(nodes) == 1 and isinstance(nodes[0], ConditionGroup) and nodes[0].mode != "none":
        parts, is_any = nodes[0].parts, nodes[0].mode == "any"  # A group alone needs no brackets.
    first, *others = parts
    phrases = [describe_node(first, scope, names), *(_describe_inside(node, scope, names) for node in others)]
    return _join(phrases, "or" if is_any else "standard")


def _describe_inside(node: Node, scope: Scope, names: Names) -> str:
    """Return one filter in words for the middle of a sentence; names of custom fields keep their capitals."""
    text = describe_node(node, scope, names)
    is_custom = isinstance(node, FieldCondition) and node.field.type == "json"
    return text if is_custom else uncapitalize(text)


def describe_node(node: Node, scope: Scope, names: Names) -> str:
    """Return one filter in words."""
    if isinstance(node, ConditionGroup):
        phrases = [_describe_inside(child, scope, names) for child in node.parts]
        if node.mode == "none":
            return gettext("none of these: %(conditions)s", conditions=_join(phrases, "or"))
        return f"({_join(phrases, 'or' if node.mode == 'any' else 'standard')})"
    if isinstance(node, EventCondition):
        return _describe_event(node, scope, names)
    if node.field.type == "id":
        return _describe_ids(node, names)
    label = node.field.title()
    if node.field.type == "boolean":
        is_true = (node.value is True) != node.is_negative
        return gettext("%(field)s: yes", field=label) if is_true else gettext("%(field)s: no", field=label)
    pattern = gettext(node.predicate.opposite_phrase if node.is_negative else node.predicate.phrase)
    value = node.value
    if masking.is_active() and personal.is_personal(node.field.name):
        value = personal.hide_value(value)
    if node.field.type == "code" and node.predicate.key != "present":
        codes = value if isinstance(value, list) else [value]
        formatted = _join([node.field.label_value(code) for code in codes], "or")
    else:
        formatted = _format_value(value, scope, node.predicate.key)
    comparison = pattern.replace("{}", formatted)
    if _compares_numbers_as_text(node):
        return gettext("%(field)s %(comparison)s (compared as text)", field=label, comparison=comparison)
    return gettext("%(field)s %(comparison)s", field=label, comparison=comparison)


def _compares_numbers_as_text(node: FieldCondition) -> bool:
    """Return whether a condition asks which text is greater, although its values look like numbers."""
    values = node.value if isinstance(node.value, list) else [node.value]
    return (
        node.field.type == "json"
        and node.predicate.key in COMPARISONS
        and all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in values)
    )


def _describe_ids(node: FieldCondition, names: Names) -> str:
    shape = _IDS[node.field.name]
    if node.predicate.key == "present":
        return gettext(shape[3 if node.is_negative else 2])
    ids = node.value if isinstance(node.value, list) else [node.value]
    objects = _join([names(node.field.id_kind, number) for number in ids], "or")
    return gettext(shape[1 if node.is_negative else 0]).replace("{}", objects)


def _describe_event(node: EventCondition, scope: Scope, names: Names) -> str:
    query = node.query
    event = log.find_label(query.event) or f"“{query.event.replace('_', ' ')}”"
    details = _describe_frequency(query, node.is_negative)
    for period in _describe_period(query, scope):
        details = gettext("%(frequency)s %(period)s", frequency=details, period=period)
    if query.nodes:
        conditions = _join([describe_node(child, scope, names) for child in query.nodes])
        details = gettext("%(frequency)s where %(conditions)s", frequency=details, conditions=conditions)
    return gettext("%(event)s: %(details)s", event=event, details=details)


def _describe_frequency(query: EventQuery, is_negative: bool) -> str:
    if query.at_most is None:
        if is_negative and query.at_least == 1:
            return gettext("never")
        frequency = ngettext("at least once", "at least %(num)s times", query.at_least)
    elif query.at_least == query.at_most:
        frequency = ngettext("exactly once", "exactly %(num)s times", query.at_most)
    elif query.at_least == 0:
        frequency = ngettext("at most once", "at most %(num)s times", query.at_most)
    else:
        numbers = {"least": format_number(query.at_least), "most": format_number(query.at_most)}
        frequency = gettext("%(least)s to %(most)s times", **numbers)
    return gettext("not %(frequency)s", frequency=frequency) if is_negative else frequency


def _describe_period(query: EventQuery, scope: Scope) -> Iterator[str]:
    if query.within_days is not None:
        yield ngettext("in the last day", "in the last %(num)s days", query.within_days)
    if isinstance(query.since, str):
        yield gettext("since entering the flow")
    elif query.since is not None:
        yield gettext("since %(time)s", time=_format_time(query.since, scope))


def _format_time(ms: int, scope: Scope, last: bool = False) -> str:
    moment = datetime.fromtimestamp(ms / 1000, ZoneInfo(scope.zone))
    if last and (moment.hour, moment.minute) == (0, 0):
        # A span of days ends at the start of the following day, so its last day is the day before.
        moment -= timedelta(days=1)
    day = format_date(moment, "yMMMd")
    return day if (moment.hour, moment.minute) == (0, 0) else f"{day}, {format_clock(moment)}"


def _format_value(value: Any, scope: Scope, predicate: str) -> str:
    if isinstance(value, Span):
        return _format_time(value.start, scope)
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], Span):
        return _join([_format_time(value[0].start, scope), _format_time(value[1].end, scope, last=True)])
    if predicate in _TEXT_PREDICATES and isinstance(value, str):
        return gettext("“%(text)s”", text=value)
    if predicate == "between":
        return _join([_format_plain(entry, scope) for entry in value])
    return _format_plain(value, scope)


def _format_plain(value: Any, scope: Scope) -> str:
    if isinstance(value, list):
        return _join([_format_plain(entry, scope) for entry in value], "or")
    if isinstance(value, bool):
        return gettext("true") if value else gettext("false")
    if isinstance(value, int | float):
        return format_data_number(value)
    if isinstance(value, str):
        return format_data_date(value, ZoneInfo(scope.zone)) or gettext("“%(text)s”", text=value)
    return str(value)


def _join(phrases: list[str], style: Literal["standard", "or"] = "standard") -> str:
    if len(phrases) > MAX_SHOWN_VALUES:
        others = len(phrases) - MAX_SHOWN_VALUES + 1
        phrases = [*phrases[: MAX_SHOWN_VALUES - 1], ngettext("%(num)s more", "%(num)s more", others)]
    return format_list(phrases, style)


NO_PARAMETERS: Mapping[str, Any] = {}
_NAMES = {
    "list": "SELECT name FROM contact_list WHERE account_id = ? AND id = ?",
    "segment": "SELECT name FROM segment WHERE account_id = ? AND id = ?",
    "flow": "SELECT name FROM flow WHERE account_id = ? AND id = ?",
    "campaign": "SELECT name FROM campaign WHERE account_id = ? AND id = ?",
}


class FilterResult(Struct):
    """A filter as sent, whether it matches the contact, and the contact's value.

    `sentence` is the filter in words. `rows` are the results of the filters in a group.
    """

    name: Annotated[str, Meta(description="name of the filter")]
    predicate: Annotated[str, Meta(description="predicate")]
    value: Annotated[Any, Meta(description="value as sent")]
    sentence: str
    matches: Annotated[bool, Meta(description="whether the filter matches")]
    actual: Annotated[Any, Meta(description="actual value of the contact")]
    rows: Annotated["list[FilterResult]", Meta(description="filters of the group")]


class SegmentExplanation(Struct):
    """Whether a contact is in a segment, and why: the segment in words, and the result of each filter."""

    segment_id: Annotated[int, Meta(description="id of the segment")]
    contact_id: Annotated[int, Meta(description="id of the contact")]
    matches: Annotated[bool, Meta(description="whether the contact is in the segment")]
    sentence: str
    rows: Annotated[list[FilterResult], Meta(description="results by filter, as sent")]


def explain(account_id: int, segment_id: int, contact_id: int) -> SegmentExplanation:
    """Explain why a contact is in a segment or not.

    Raises NotFound if the segment does not exist, and Invalid if the contact does not.
    """
    segment = store.get(account_id, segment_id)
    if not rows("SELECT 1 FROM contact WHERE account_id = ? AND id = ?", (account_id, contact_id)):
        raise Invalid({"contact_id": [gettext("must exist")]})
    scope = members.build_scope(account_id)
    nodes = members.parse_filters(account_id, segment.filters)
    explanations = [explain_node(node, scope, contact_id) for node in nodes]
    return SegmentExplanation(
        segment_id,
        contact_id,
        is_member(nodes, scope, contact_id),
        describe_filters(account_id, nodes, scope),
        explanations,
    )


def is_member(nodes: list[Node], scope: Scope, contact_id: int, more: Mapping[str, Any] = NO_PARAMETERS) -> bool:
    """Return whether a contact matches all filters.

    `more` has the values of the named parameters that `scope.document` and `scope.start` refer to.
    """
    compiled = compiler.compile_filters(nodes, scope)
    return _evaluate(compiled.sql, {**compiled.parameters, **more}, contact_id)


def describe_filters(account_id: int, nodes: list[Node], scope: Scope) -> str:
    """Return filters as `describe` does, with the names of the account's lists, segments, flows and campaigns."""
    return describe(nodes, scope, lambda kind, number: _quote_name(account_id, kind, number))


_DELETED = {
    "list": gettext_noop("list %(number)s"), "segment": gettext_noop("segment %(number)s"),
    "flow": gettext_noop("flow %(number)s"), "campaign": gettext_noop("campaign %(number)s"),
}  # fmt: skip


def fetch_name(account_id: int, kind: str, number: int) -> str:
    """Return the name of a list, segment, flow or campaign; if it was deleted, its kind and id, such as `list 7`."""
    name = scalar(_NAMES[kind], (account_id, number))
    return str(name) if name else gettext(_DELETED[kind], number=number)


def _quote_name(account_id: int, kind: str, number: int) -> str:
    """Return a name like `fetch_name`, in quotation marks unless the object was deleted."""
    name = scalar(_NAMES[kind], (account_id, number))
    return gettext("“%(text)s”", text=name) if name else fetch_name(account_id, kind, number)


def _evaluate(sql: str, parameters: dict[str, Any], contact_id: int) -> bool:
    match_rows = rows(f"SELECT ({sql}) IS TRUE FROM contact c WHERE c.id = :one", {**parameters, "one": contact_id})
    return bool(match_rows and match_rows[0][0])


def explain_node(node: Node, scope: Scope, contact_id: int, more: Mapping[str, Any] = NO_PARAMETERS) -> FilterResult:
    """Explain one filter for a contact; `more` is as in `is_member`."""
    compiled = compiler.compile_node(node, scope, "f")
    children = (
        [explain_node(child, scope, contact_id, more) for child in node.parts]
        if isinstance(node, ConditionGroup)
        else []
    )
    return FilterResult(
        node.raw["name"], node.raw["predicate"], node.raw.get("value"),
        describe_node(node, scope, lambda kind, number: _quote_name(scope.account_id, kind, number)),
        _evaluate(compiled.sql, {**compiled.parameters, **more}, contact_id),
        fetch_actual_value(node, scope, contact_id, more), children,
    )  # fmt: skip


def fetch_actual_value(node: Node, scope: Scope, contact_id: int, more: Mapping[str, Any] = NO_PARAMETERS) -> Any:
    """Return the contact's value that a filter compares; None for a group.

    A time is a text in ISO 8601. Ids are a list; for a filter on segments, they are the ids of the named segments that
    the contact is in. For an event condition, it is a dict with `count` and `last_at` of the matching events. `more` is
    as in `is_member`.
    """
    if isinstance(node, ConditionGroup):
        return None
    if not isinstance(node, EventCondition) and node.field.id_kind == "segment":
        segment_ids = node.value if isinstance(node.value, list) else [node.value]
        return [number for number in segment_ids if is_member(scope.segment(number) or [], scope, contact_id)]
    compiled = compiler.compile_value(node, scope, "v")
    value_rows = rows(
        f"SELECT {compiled.sql} FROM contact c WHERE c.id = :one", {**compiled.parameters, **more, "one": contact_id}
    )
    text = value_rows[0][0] if value_rows else None
    value: Any = None if text is None else msgspec.json.decode(str(text))
    if isinstance(node, EventCondition):
        return {"count": value["count"], "last_at": clock.iso(value["last_at"])}
    return clock.iso(value) if node.field.type == "time" else value
