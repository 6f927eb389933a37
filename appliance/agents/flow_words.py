"""The triggers and steps of flows in the words of the flow editor, for the page that compares a proposal.

Two values may have the same text, so each text is stored with its value (`Worded`), and values are compared.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from appliance.accounts import users
from appliance.audience.filters import compiler, personal
from appliance.audience.filters.fields import Scope
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
        return Worded(log.name_event(value), value)
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
        return Worded(log.name_event(value), value)
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

    If the sentence leaves out values, the JSON of the filters follows it.
    """
    try:
        nodes = compiler.parse_filters(filters, scope)
    except Invalid:
        return filters
    sentence = explain.describe_filters(account_id, nodes, scope)
    return Worded(f"{sentence}\n{write_value(filters)}" if _is_shortened(filters) else sentence, filters)


def _is_shortened(value: Any) -> bool:
    """Return whether a sentence leaves out values of a list in filters, because it names only the first ones."""
    if isinstance(value, dict):
        return any(_is_shortened(item) for item in value.values())
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return len(value) > explain.MAX_SHOWN_VALUES or any(_is_shortened(item) for item in value)


def _name_user(account_id: int, user_id: int) -> str:
    try:
        user = users.get(account_id, user_id)
    except NotFound:
        return str(user_id)
    return str(user.name or user.email)
