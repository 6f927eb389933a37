"""The triggers and steps of flows in the words of the flow editor, for the page that compares a proposal.

Two values may have the same text, so each text is stored with its value (`Worded`), and values are compared.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from appliance.accounts import users
from appliance.audience.filters import compiler, personal
from appliance.audience.filters.compiler import ConditionGroup, EventCondition, Node
from appliance.audience.filters.fields import FIELDS, Scope
from appliance.audience.filters.predicates import Span
from appliance.audience.segments import explain
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import format_list, gettext, gettext_noop
from appliance.events import log
from appliance.flows import triggers
from appliance.flows.date_events import WEEKDAYS
from appliance.flows.steps import BY_TYPE, split, split_value
from appliance.flows.steps.base import StepField
from appliance.flows.steps.wait import format_duration
from appliance.flows.steps.wait_until import name_weekday

_FIELD_LABELS = {
    "contact_list_id": gettext_noop("List"), "segment_id": gettext_noop("Segment"), "where": gettext_noop("Conditions"),
    "frequency": gettext_noop("How often"), "path": gettext_noop("Custom field with the date"),
    "offset_days": gettext_noop("Days after the date"), "at": gettext_noop("Time of day"),
    "yearly": gettext_noop("Every year"), "keywords": gettext_noop("Keywords"), "tag": gettext_noop("Tag"),
    "max_per_hour": gettext_noop("Maximum contacts per hour"), "holdout": gettext_noop("Holdout group"),
    "holdout_event": gettext_noop("Conversion"), "transactional": gettext_noop("Transactional"),
    "values": gettext_noop("Values"), "share": gettext_noop("Share in percent"),
    "key": gettext_noop("ID of the branch"), "min_gap_seconds": gettext_noop("At most once every"),
    "respect_control_group": gettext_noop("Respect the control group"),
}  # fmt: skip
_QUOTES = re.compile('["“”„«»‹›‘’‚]')
_MINUTE_MS = 60_000
_FREQUENCIES = {"once": gettext_noop("Once"), "every_time": gettext_noop("Every time")}
_CHANNELS = {"email": gettext_noop("Email"), "sms": gettext_noop("SMS")}


class Worded(NamedTuple):
    """A value with the text that the flow editor shows for it."""

    text: str
    value: Any


def label_key(name: str) -> str | None:
    """Return the label of a key of a trigger or of a branch, or None if it has none."""
    return gettext(_FIELD_LABELS[name]) if name in _FIELD_LABELS else None


def find_field(kind: str, name: str) -> StepField | None:
    """Return the field of a kind of step with a name, or None."""
    step_kind = BY_TYPE.get(kind)
    return next((field for field in step_kind.fields if field.name == name), None) if step_kind is not None else None


def word_step_value(account_id: int, field: StepField, value: Any, places: Mapping[int, str]) -> Any:
    """Return a value of a step as `Worded`, or the value itself if the editor shows it as it is.

    `places` has the label of each step of the flow by its id, such as `Step 2`.
    """
    if field.type == "choice" and isinstance(value, str):
        label = dict(field.options).get(value)
        return Worded(gettext(label), value) if label is not None else value
    if field.type == "duration" and isinstance(value, int):
        return Worded(format_duration(value), value)
    if field.type == "filters" and isinstance(value, list):
        return _word_filters(account_id, value, split.get_sql_scope(account_id))
    if field.type in ("event", "awaited_event") and isinstance(value, str):
        return _word_event(value)
    if field.type == "list" and isinstance(value, int):
        return Worded(explain.fetch_name(account_id, "list", value), value)
    if field.type == "step" and isinstance(value, int):
        return Worded(places.get(value, str(value)), value)
    if field.type == "user" and isinstance(value, int):
        return Worded(_name_user(account_id, value), value)
    if field.type == "value_field" and isinstance(value, str):
        return Worded(split_value.title_field(value), value)
    if field.type == "channel" and isinstance(value, str) and value in _CHANNELS:
        return Worded(gettext(_CHANNELS[value]), value)
    if field.type == "weekdays" and isinstance(value, list) and all(day in WEEKDAYS for day in value):
        return Worded(format_list([name_weekday(day) for day in WEEKDAYS if day in value]), value)
    return value


def word_trigger_value(account_id: int, name: str, value: Any) -> Any:
    """Return a value of a trigger or of its data as `Worded`, or the value itself if the editor shows it as it is."""
    if name in ("event", "holdout_event") and isinstance(value, str):
        return _word_event(value)
    if name in ("contact_list_id", "segment_id") and isinstance(value, int):
        kind = "list" if name == "contact_list_id" else "segment"
        return Worded(explain.fetch_name(account_id, kind, value), value)
    if name == "where" and isinstance(value, list):
        return _word_filters(account_id, value, triggers.get_condition_scope(account_id))
    if name == "frequency" and isinstance(value, str) and value in _FREQUENCIES:
        return Worded(gettext(_FREQUENCIES[value]), value)
    if name == "min_gap_seconds" and isinstance(value, int):
        return Worded(format_duration(value), value)
    return value


def write_value(value: Any, is_ascii: bool = False) -> str:
    """Return a value as JSON, hidden where contact data is masked; `is_ascii` escapes all other characters."""
    return json.dumps(personal.hide_values(value), ensure_ascii=is_ascii, sort_keys=True)


def _word_filters(account_id: int, filters: list[Any], scope: Scope) -> Any:
    return word_filters(account_id, filters, scope) if filters else filters


def word_filters(account_id: int, filters: Any, scope: Scope) -> Any:
    """Return filters as `Worded` with their sentence; filters that have no sentence are returned unchanged.

    If the sentence leaves something out, or other filters could have it too, the JSON of the filters follows it.
    """
    try:
        nodes = compiler.parse_filters(filters, scope)
    except Invalid:
        return filters
    sentence = explain.describe_filters(account_id, nodes, scope)
    unnamed = explain.describe(nodes, scope, lambda kind, number: gettext("“%(text)s”", text=""))
    is_clear = len(_QUOTES.findall(sentence)) == len(_QUOTES.findall(unnamed)) and not _has_quotes(filters)
    if is_clear and not _is_shortened(filters) and not any(map(_is_imprecise, nodes)):
        return Worded(sentence, filters)
    return Worded(f"{sentence}\n{write_value(filters)}", filters)


def _has_quotes(value: Any) -> bool:
    """Return whether a text in filters has quotation marks, with which it could seem to be several values."""
    if isinstance(value, dict | list):
        return any(map(_has_quotes, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and _QUOTES.search(value) is not None


def _is_shortened(value: Any) -> bool:
    """Return whether a sentence leaves out values of a list in filters, because it names only the first ones."""
    if isinstance(value, dict):
        return any(_is_shortened(item) for item in value.values())
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return len(value) > explain.MAX_SHOWN_VALUES or any(_is_shortened(item) for item in value)


def _is_imprecise(node: Node, is_of_event: bool = False) -> bool:
    """Return whether a condition says more than its sentence, or a custom field seems to be another field.

    `is_of_event` is for the conditions of an event condition, whose fields are all those of the event.
    """
    if isinstance(node, ConditionGroup):
        return any(_is_imprecise(part, is_of_event) for part in node.parts)
    if isinstance(node, EventCondition):
        query = node.query
        is_precise = isinstance(query.since, int) and query.since % _MINUTE_MS != 0
        return query.include_machine or is_precise or any(_is_imprecise(part, True) for part in query.nodes or ())
    is_custom = node.field.type == "json" and node.field.title().casefold() in {
        field.title().casefold() for field in FIELDS if field.type != "json"
    }
    # A custom field of the contact may have the same label as one of the event.
    is_ambiguous = not is_of_event and compiler.depends_on_event(node)
    return is_custom or is_ambiguous or _has_seconds(node.value)


def _has_seconds(value: Any) -> bool:
    """Return whether a time is more precise than the minutes that a sentence has."""
    if isinstance(value, list):
        return any(map(_has_seconds, value))
    return isinstance(value, Span) and value.start % _MINUTE_MS != 0


def _word_event(name: str) -> Worded:
    """Return an event with its label, and with its name if that seems to be the label of another event."""
    text = log.name_event(name)
    labels = {log.name_event(other) for other in (*log.KINDS_BY_NAME, *log.SHOP_LABELS)}
    return Worded(f"{text} ({name})" if log.find_label(name) is None and text in labels else text, name)


def _name_user(account_id: int, user_id: int) -> str:
    try:
        user = users.get(account_id, user_id)
    except NotFound:
        return str(user_id)
    return str(user.name or user.email)
