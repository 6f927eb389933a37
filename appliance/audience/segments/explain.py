"""Describe filters in words, and explain the membership of a contact filter by filter."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct

from appliance.audience.filters import compiler
from appliance.audience.filters.fields import Scope
from appliance.audience.filters.parse import ConditionGroup, EventCondition, EventQuery, FieldCondition, Node
from appliance.audience.filters.predicates import Span
from appliance.audience.segments import members, store
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.storage.database import rows, scalar

Names = Callable[[str, int], str]
# The predicates that ask which of two values is greater.
COMPARISONS = ("gt", "gteq", "lt", "lteq", "between")
_NUMBER = re.compile(r"[+-]?\d[\d.,\s]*")
_JOINED_BEFORE = "whose "
_VERBS = {
    "email_sent": "were sent an email", "email_delivered": "got an email", "email_opened": "opened an email",
    "email_clicked": "clicked", "email_replied": "replied", "email_bounced": "had an email bounce",
    "email_complained": "complained", "sms_sent": "were sent an SMS", "sms_clicked": "clicked in an SMS",
    "form_submitted": "filled in a form",
    "list_add": "joined a list", "list_remove": "left a list", "opt_in": "opted in", "opt_out": "opted out",
    "contact_add": "were added", "flow_enter": "entered a flow", "message": "wrote an SMS",
}  # fmt: skip
# The phrases of each field of ids: is, is not, has any, has none.
_IDS = {
    "contact_list": ("in {}", "not in {}", "in any list", "in no list"),
    "contact_segment": ("in {}", "not in {}", "", ""),
    "contact_flow": ("now in the flow {}", "not now in the flow {}", "now in a flow", "now in no flow"),
    "campaign_sent": ("who got {}", "who did not get {}", "who got a campaign", "who got no campaign"),
    "campaign_opened": ("who opened {}", "who did not open {}", "who opened a campaign", "who opened no campaign"),
    "campaign_clicked": ("who clicked in {}", "who did not click in {}", "who clicked in a campaign",
                         "who clicked in no campaign"),
}  # fmt: skip


def describe(nodes: Sequence[Node], scope: Scope, names: Names) -> str:
    """Return filters as one sentence without a full stop, such as "People in Newsletter who clicked at least once".

    `names(kind, id)` returns the name of a list, segment, flow or campaign.
    """
    if not nodes:
        return "Everybody"
    list_phrases = [
        phrase
        for phrase in (describe_node(node, scope, names) for node in nodes)
        if phrase.startswith(("in ", "not in "))
    ]
    other_phrases = [
        phrase for phrase in (describe_node(node, scope, names) for node in nodes) if phrase not in list_phrases
    ]
    return " ".join(["People", *(_join_words(phrases, "and") for phrases in (list_phrases, other_phrases) if phrases)])


def describe_node(node: Node, scope: Scope, names: Names) -> str:
    """Return one filter as a phrase that can follow the word "People"."""
    if isinstance(node, ConditionGroup):
        phrases = [describe_node(child, scope, names) for child in node.parts]
        if node.mode == "none":
            return f"who are none of these: {_join_words(phrases, 'or')}"
        return f"({_join_words(phrases, 'or' if node.mode == 'any' else 'and')})"
    if isinstance(node, EventCondition):
        return _describe_event(node, scope)
    if node.field.type == "id":
        return _describe_ids(node, names)
    if node.field.type == "boolean":
        is_true = (node.value is True) != node.is_negative
        return f"who are {'' if is_true else 'not '}{node.field.label}"
    pattern = node.predicate.opposite_phrase if node.is_negative else node.predicate.phrase
    if node.field.type == "tags":
        return f"with {_describe_tags(pattern, node)}"
    phrase = pattern.format(_format_value(node.value, scope)) if "{}" in pattern else pattern
    return f"whose {node.field.label} {phrase}{' (compared as text)' if _compares_numbers_as_text(node) else ''}"


def _compares_numbers_as_text(node: FieldCondition) -> bool:
    """Return whether a condition asks which text is greater, although its values look like numbers."""
    values = node.value if isinstance(node.value, list) else [node.value]
    return (
        node.field.type == "json"
        and node.predicate.key in COMPARISONS
        and all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in values)
    )


def _describe_tags(pattern: str, node: FieldCondition) -> str:
    verb = pattern.split("{}")[0].strip()
    phrase = {"has": "the tag", "does not have": "no tag", "has one of": "one of the tags",
           "has none of": "none of the tags", "has any": "any tag", "has none": "no tag at all"}[verb]  # fmt: skip
    return f"{phrase} {_format_plain(node.value)}" if "{}" in pattern else phrase


def _describe_ids(node: FieldCondition, names: Names) -> str:
    shape = _IDS[node.field.name]
    if node.predicate.key == "present":
        return shape[3 if node.is_negative else 2]
    ids = node.value if isinstance(node.value, list) else [node.value]
    return shape[1 if node.is_negative else 0].format(
        _join_words([names(node.field.id_kind, number) for number in ids], "or")
    )


def _describe_event(node: EventCondition, scope: Scope) -> str:
    query = node.query
    activity = _VERBS.get(query.event, "did “" + query.event.replace("_", " ") + "”")
    verb = f"did not do this: {activity}" if node.is_negative else activity
    data = " with matching data" if query.nodes else ""
    return f"who {verb} {_describe_frequency(query)}{_describe_period(query, scope)}{data}"


def _describe_frequency(query: EventQuery) -> str:
    def times(number: int) -> str:
        return {1: "once", 2: "twice"}.get(number, f"{number} times")

    if query.at_most is None:
        return f"at least {times(query.at_least)}"
    if query.at_least in (0, query.at_most):
        return f"{'at most' if query.at_least != query.at_most else 'exactly'} {times(query.at_most)}"
    return f"{query.at_least} to {query.at_most} times"


def _describe_period(query: EventQuery, scope: Scope) -> str:
    phrase = ""
    if query.within_days is not None:
        phrase += f" in the last {query.within_days} days" if query.within_days > 1 else " in the last day"
    if query.since is not None:
        phrase += (
            " since they entered" if isinstance(query.since, str) else f" since {_format_time(query.since, scope)}"
        )
    return phrase


def _format_time(ms: int, scope: Scope, last: bool = False) -> str:
    moment = datetime.fromtimestamp(ms / 1000, ZoneInfo(scope.zone))
    if last and (moment.hour, moment.minute) == (0, 0):
        # A span of days ends at the start of the following day, so its last day is the day before.
        moment -= timedelta(days=1)
    return f"{moment.day} {moment:%B %Y}" if (moment.hour, moment.minute) == (0, 0) else f"{moment:%d %B %Y, %H:%M}"


def _format_value(value: Any, scope: Scope) -> str:
    if isinstance(value, Span):
        return _format_time(value.start, scope)
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], Span):
        return f"{_format_time(value[0].start, scope)} and {_format_time(value[1].end, scope, last=True)}"
    return _format_plain(value)


def _format_plain(value: Any) -> str:
    if isinstance(value, list):
        return _join_words([_format_plain(entry) for entry in value], "or")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"“{value}”" if isinstance(value, str) else str(value)


def _join_words(phrases: list[str], conjunction: str) -> str:
    if len(phrases) > 6:
        phrases = [*phrases[:5], f"{len(phrases) - 5} more"]
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} {conjunction} {phrases[-1]}"


NO_PARAMETERS: Mapping[str, Any] = {}
_NAMES = {
    "list": "SELECT name FROM contact_list WHERE account_id = ? AND id = ?",
    "segment": "SELECT name FROM segment WHERE account_id = ? AND id = ?",
    "flow": "SELECT name FROM flow WHERE account_id = ? AND id = ?",
    "campaign": "SELECT name FROM campaign WHERE account_id = ? AND id = ?",
}


class Row(Struct):
    """A filter as sent, whether it matches the contact, and the contact's value.

    `sentence` is the filter in words. `rows` are the results of the filters in a group.
    """

    name: Annotated[str, Meta(description="name of the filter")]
    predicate: Annotated[str, Meta(description="predicate")]
    value: Annotated[Any, Meta(description="value as sent")]
    sentence: str
    matches: Annotated[bool, Meta(description="whether the filter matches")]
    actual: Annotated[Any, Meta(description="actual value of the contact")]
    rows: Annotated["list[Row]", Meta(description="filters of the group")]


class Explained(Struct):
    """Whether a contact is in a segment, and why: the segment in words, and the result of each filter."""

    segment_id: Annotated[int, Meta(description="id of the segment")]
    contact_id: Annotated[int, Meta(description="id of the contact")]
    matches: Annotated[bool, Meta(description="whether the contact is in the segment")]
    sentence: str
    rows: Annotated[list[Row], Meta(description="results by filter, as sent")]


def explain(account_id: int, segment_id: int, contact_id: int) -> Explained:
    """Explain why a contact is in a segment or not.

    Raises NotFound if the segment does not exist, and Invalid if the contact does not.
    """
    segment = store.get(account_id, segment_id)
    if not rows("SELECT 1 FROM contact WHERE account_id = ? AND id = ?", (account_id, contact_id)):
        raise Invalid({"contact_id": ["must exist"]})
    scope = members.build_scope(account_id)
    nodes = members.parse_filters(account_id, segment.filters)
    explanations = [explain_node(node, scope, contact_id) for node in nodes]
    return Explained(
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
    """Return filters as one sentence, with the names of the account's lists, segments, flows and campaigns."""
    return describe(nodes, scope, lambda kind, number: fetch_name(account_id, kind, number))


def fetch_name(account_id: int, kind: str, number: int) -> str:
    """Return the name of a list, segment, flow or campaign; if it was deleted, its kind and id, such as `list 7`."""
    return str(scalar(_NAMES[kind], (account_id, number)) or f"{kind} {number}")


def _evaluate(sql: str, parameters: dict[str, Any], contact_id: int) -> bool:
    match_rows = rows(f"SELECT ({sql}) IS TRUE FROM contact c WHERE c.id = :one", {**parameters, "one": contact_id})
    return bool(match_rows and match_rows[0][0])


def explain_node(node: Node, scope: Scope, contact_id: int, more: Mapping[str, Any] = NO_PARAMETERS) -> Row:
    """Explain one filter for a contact; `more` is as in `is_member`."""
    compiled = compiler.compile_node(node, scope, "f")
    children = (
        [explain_node(child, scope, contact_id, more) for child in node.parts]
        if isinstance(node, ConditionGroup)
        else []
    )
    return Row(
        node.raw["name"], node.raw["predicate"], node.raw.get("value"),
        describe_node(node, scope, lambda kind, number: fetch_name(scope.account_id, kind, number)),
        _evaluate(compiled.sql, {**compiled.parameters, **more}, contact_id),
        fetch_actual_value(node, scope, contact_id, more), children,
    )  # fmt: skip


def fetch_actual_value(node: Node, scope: Scope, contact_id: int, more: Mapping[str, Any] = NO_PARAMETERS) -> Any:
    """Return the contact's value that a filter compares; None for a group.

    A time is a text in ISO 8601. Ids are a list; for a filter on segments, they are the ids of the named segments that
    the contact is in. An event condition gives `count` and `last_at` of the matching events. `more` is as in
    `is_member`.
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
