"""Forms of flow steps and triggers: reading, building, and their parts for edit conflicts."""

import json
import re
from collections.abc import Mapping
from typing import Any

from appliance.accounts import users
from appliance.audience.filters import personal
from appliance.audience.segments import store as segments
from appliance.audience.segments import suggestions
from appliance.audience.segments.store import SegmentQuery
from appliance.core import errors
from appliance.core.errors import NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.events import log
from appliance.flows import branches, document, drafts
from appliance.flows.date_events import WEEKDAYS
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.wait import format_duration
from appliance.flows.triggers import MAX_HOLDOUT, MIN_HOLDOUT, TriggerSpec
from ui import labels
from ui.forms import Form, FormPart, FormParts, KnownNames, branch_rows, error_sentence, lookups, parse_int, utm_forms
from ui.forms.branch_rows import BRANCH_FIELDS
from ui.forms.filter_rows import ANY_DATA, ANY_EVENT_DATA, FilterRows, normalize_event_name
from ui.forms.line_fields import format_lines, parse_json, parse_lines
from ui.widgets import filter_builder

# The units of durations, by their seconds, with marked labels.
UNITS = (
    ("60", gettext_noop("minutes")),
    ("3600", gettext_noop("hours")),
    ("86400", gettext_noop("days")),
    ("604800", gettext_noop("weeks")),
    ("1", gettext_noop("seconds")),
)
_UNIT_SECONDS = (604_800, 86_400, 3_600, 60, 1)
OTHER = "other"
# The events offered as triggers, by group, with marked labels. Other events of the service are not useful as triggers
# and are left out.
TRIGGER_GROUPS = (
    (
        gettext_noop("Contacts"),
        (
            ("list_add", gettext_noop("Joined a list")),
            ("contact_add", gettext_noop("Contact added")),
            ("tag_add", gettext_noop("Tag added")),
            ("segment_enter", gettext_noop("Entered a segment")),
            ("segment_exit", gettext_noop("Left a segment")),
            ("list_remove", gettext_noop("Left a list")),
            ("form_submitted", gettext_noop("Submitted a form")),
            ("double_opt_in_confirmed", gettext_noop("Confirmed the address")),
            ("date_reached", gettext_noop("Date reached (anniversary)")),
        ),
    ),
    (
        gettext_noop("Messages"),
        (
            ("email_opened", gettext_noop("Opened an email")),
            ("email_clicked", gettext_noop("Clicked a link in an email")),
            ("email_replied", gettext_noop("Replied to an email")),
            ("message", gettext_noop("Replied by SMS")),
            ("keyword", gettext_noop("Sent an SMS keyword")),
        ),
    ),
    (
        gettext_noop("Shop"),
        tuple(log.SHOP_LABELS.items()),
    ),
)
# A goal is what a contact does after entering.
_GOAL_GROUPS = tuple(
    (label, tuple((name, text) for name, text in events if name not in ("contact_add", "date_reached")))
    for label, events in TRIGGER_GROUPS
)
TRIGGER_LABELS = {name: label for _, group in TRIGGER_GROUPS for name, label in group}
# The values of two selects of the trigger form, with marked labels.
FREQUENCIES = (
    ("once", gettext_noop("Once")),
    ("every_time", gettext_noop("Every time")),
    ("gap", gettext_noop("At most once every … days")),
)
SIDES = (("after", gettext_noop("After, or on the date")), ("before", gettext_noop("Before")))
SEGMENT_EVENTS = ("segment_enter", "segment_exit")
# The fields of steps whose value decides which other fields apply.
_CHOICES = ("until", "via", "metric")


class StepForm(Form):
    """The form of a step or trigger.

    `rows` are its filter rows; `where` is the separate form of a trigger's conditions.
    """

    rows: FilterRows | None = None
    where: Form | None = None


def build_step_form(step: dict[str, Any]) -> StepForm:
    """Return the form with the values of a step, hidden as `personal.hide_values`; filters and designs are left out."""
    step = personal.hide_values(step)
    text = {**step, **(step.get("content") or {})}
    if step["type"] == "http_request":
        # Stored secrets are not shown, only that there are some.
        text = BY_TYPE[step["type"]].dump(branches.get_props(step))
    values: dict[str, str] = {}
    for field in BY_TYPE[step["type"]].fields:
        value = text.get(field.name)
        value = field.default if value is None else value
        if field.type == "duration":
            unit = next(unit for unit in _UNIT_SECONDS if not int(value or 0) % unit)
            unit = 86_400 if not value else unit
            values |= {field.name: str(int(value or 0) // unit), f"{field.name}_unit": str(unit)}
        elif field.type == "boolean":
            values[field.name] = "yes" if value else ""
        elif field.type == "weekdays":
            values |= {f"{field.name}_{day}": "yes" if day in (value or ()) else "" for day in WEEKDAYS}
        elif field.type == "offset":
            values |= {
                field.name: str(abs(int(value or 0))),
                f"{field.name}_side": "before" if int(value or 0) < 0 else "after",
            }
        elif field.type == "path":
            values[field.name] = str(value or "").removeprefix("data.")
        elif field.type == "awaited_event" or field.type == "value_field":
            values |= {field.name: str(value or ""), f"{field.name}_other": ""}
        elif field.type in BRANCH_FIELDS:
            values |= branch_rows.build_values(field.type, value or [])
        elif field.type == "utm":
            values[field.name] = utm_forms.format_lines(value)
        elif field.type in ("object", "secret_object"):
            values[field.name] = format_lines(value or {})
        elif field.type == "secret":
            values[field.name] = ""  # Stored secrets are never shown.
        elif field.type == "json":
            values[field.name] = json.dumps(value, ensure_ascii=False, indent=2) if value else ""
        elif field.type not in ("design", "filters"):
            values[field.name] = "" if value is None else str(value)
    return StepForm(values)


def read_step(form: Form, kind: str) -> dict[str, Any]:
    """Return the properties of a step from a form, without filters and design.

    Raises Invalid for invalid values, and NotAllowed as `personal.require_allowed`.
    """
    raw: dict[str, Any] = {}
    for field in BY_TYPE[kind].fields:
        text = form[field.name]
        if not field.applies(get_choice(form)):
            continue
        if field.type == "duration":
            raw[field.name] = _parse_duration(field.name, text, form[f"{field.name}_unit"])
        elif field.type == "boolean":
            raw[field.name] = True if text == "yes" else None
        elif field.type == "weekdays":
            raw[field.name] = [day for day in WEEKDAYS if form[f"{field.name}_{day}"] == "yes"]
        elif field.type == "offset":
            raw[field.name] = _parse_offset(field.name, text, form[f"{field.name}_side"])
        elif field.type == "path":
            raw[field.name] = _parse_date_path(text)
        elif field.type == "utm":
            raw[field.name] = utm_forms.parse_lines(text)
        elif field.type in ("object", "secret_object"):
            raw[field.name] = parse_lines(text, field.name) or None
        elif field.type == "json":
            raw[field.name] = parse_json(field.name, text)
        elif field.type in ("number", "step", "user"):
            raw[field.name] = int(text) if text.isdecimal() and len(text) < 10 else text or None
        elif field.type == "list":
            raw[field.name] = int(text) if text.isdecimal() and len(text) < 19 else None
        elif field.type == "awaited_event":
            raw[field.name] = _read_event_name(form, f"{field.name}_other") if text == OTHER else text or None
        elif field.type == "value_field":
            raw[field.name] = _read_value_field(text, form[f"{field.name}_other"])
        elif field.type in BRANCH_FIELDS:
            raw[field.name] = branch_rows.read_values(form, field.type)
        elif field.type == "event":
            raw[field.name] = normalize_event_name(text) or None
        elif field.type not in ("design", "filters") and field.name in form.values:
            raw[field.name] = text or None
    personal.require_allowed(raw)
    return raw


def _read_value_field(name: str, path: str) -> str | None:
    """Return the field of a split by value; `path` is the path of data that is not in the list of fields."""
    prefix = {ANY_DATA: "data.", ANY_EVENT_DATA: "event."}.get(name)
    if prefix is None:
        return name or None
    return f"{prefix}{path.strip().removeprefix(prefix)}" if path.strip() else None


def _parse_duration(name: str, text: str, unit: str) -> int:
    try:
        seconds = round(float(text.replace(",", ".")) * int(unit or 86_400))
    except (ValueError, OverflowError):
        raise errors.Invalid({name: [gettext("Enter a number.")]}) from None
    return seconds


def _parse_offset(name: str, text: str, side: str) -> int:
    if text and not (text.isdecimal() and len(text) < 6):
        raise errors.Invalid({name: [gettext("Enter a number.")]})
    return -int(text or 0) if side == "before" else int(text or 0)


def build_trigger_form(start: TriggerSpec, goal: str | None) -> StepForm:
    """Return the trigger form, filled in with the trigger's values and the flow's goal."""
    data, often = start.data, start.data.get("frequency")
    gap = int(often["min_gap_seconds"]) if isinstance(often, dict) else 0
    return StepForm({
        "event": start.event, "event_name": "",
        "contact_list_id": str(start.contact_list_id or ""), "segment_id": str(start.segment_id or ""),
        "often": "gap" if gap else str(often or ""), "gap": str(-(-gap // 86_400)) if gap else "30",
        "max_per_hour": str(data.get("max_per_hour") or ""),
        "holdout": f"{round(data['holdout'] * 100, 2):g}" if data.get("holdout") else "",
        "holdout_event": str(data.get("holdout_event") or ""),
        "respect_control_group": "yes" if data.get("respect_control_group") else "",
        "tag": str(data.get("tag") or ""), "keywords": ", ".join(data.get("keywords") or []),
        "path": str(data.get("path") or ""), "yearly": "yes" if data.get("yearly") else "",
        "offset": str(abs(int(data.get("offset_days") or 0))),
        "side": "before" if int(data.get("offset_days") or 0) < 0 else "after",
        "at": str(data.get("at") or "09:00"), "goal": goal or "", "goal_name": "",
    })  # fmt: skip


def read_trigger(form: Form, before: TriggerSpec) -> dict[str, Any]:
    """Return the trigger of a form as `drafts.change_trigger` takes it. Raises Invalid for invalid values.

    Data of `before`, the stored trigger, is kept where the form has no field for the data.
    """
    event = form["event"]
    if event == OTHER:
        event = _read_event_name(form, "event_name")
    keep = {key: value for key, value in before.data.items() if key not in _FORM_KEYS}
    data: dict[str, Any] = dict(keep)
    if event == "date_reached":
        offset = parse_int(form["offset"], 0) if form["offset"] not in ("", "0") else 0
        data |= {
            "path": _parse_date_path(form["path"]), "yearly": form["yearly"] == "yes", "at": form["at"] or "09:00",
            "offset_days": -offset if form["side"] == "before" else offset,
        }  # fmt: skip
    elif form["often"] == "gap":
        data["frequency"] = {"min_gap_seconds": parse_int(form["gap"], 30) * 86_400}
    elif form["often"]:
        data["frequency"] = form["often"]
    if form["max_per_hour"]:
        text = form["max_per_hour"]
        data["max_per_hour"] = int(text) if text.isdecimal() and len(text) < 10 else text
    if form["holdout"]:
        data["holdout"] = _parse_share(form["holdout"])
        if form["holdout_event"]:
            data["holdout_event"] = form["holdout_event"]
    if form["respect_control_group"] == "yes":
        data["respect_control_group"] = True
    if event in ("message", "keyword") and form["keywords"]:
        data["keywords"] = [word.strip() for word in form["keywords"].split(",") if word.strip()]
    if event in ("tag_add", "tag_remove") and form["tag"]:
        data["tag"] = form["tag"]
    return {
        "event": event or None, "data": data,
        "contact_list_id": next(iter(form.ids("contact_list_id")), None),
        "segment_id": next(iter(form.ids("segment_id")), None),
    }  # fmt: skip


def _parse_share(text: str) -> float:
    """Return the percentage of a holdout group as a share. Raises Invalid if it is out of range."""
    try:
        share = round(float(text.replace(",", ".").removesuffix("%").strip()) / 100, 6)
    except (ValueError, OverflowError):
        share = 0.0
    if MIN_HOLDOUT <= share <= MAX_HOLDOUT:
        return share
    limits = {"min": round(MIN_HOLDOUT * 100), "max": round(MAX_HOLDOUT * 100)}
    raise errors.Invalid({"holdout": [gettext("Enter a percentage from %(min)s to %(max)s.", **limits)]})


def read_goal(form: Form) -> str | None:
    """Return the goal of a form, or None if there is none. Raises Invalid if a custom event has no valid name."""
    return _read_event_name(form, "goal_name") if form["goal"] == OTHER else form.text("goal")


def _read_event_name(form: Form, name: str) -> str:
    """Return the event that a field names, in the stored form; raises Invalid without a valid name."""
    event = normalize_event_name(form[name])
    if not event:
        raise errors.Invalid({name: [gettext("Enter the name of the event.")]})
    if log.find_name_error(event) and event not in log.RESERVED_NAMES:
        raise errors.Invalid({name: [gettext("Use only letters, digits and _, starting with a letter.")]})
    return event


_FORM_KEYS = (
    "path",
    "yearly",
    "offset_days",
    "at",
    "frequency",
    "keywords",
    "tag",
    "max_per_hour",
    "holdout",
    "holdout_event",
    "respect_control_group",
)


def _parse_date_path(text: str) -> str | None:
    """Return the path of a date field; a name without a prefix is the name of a field in the contact's data."""
    text = text.strip()
    if not text:
        return None
    return text if text.startswith(("data.", "contact")) else f"data.{text}"


def add_errors(form: StepForm, error: errors.Invalid) -> StepForm:
    """Add the errors of an Invalid to the fields of the form that they name, or to `base`; return the form."""
    for path, messages in error.fields.items():
        row = branch_rows.find_name(form, path)
        if row is not None:
            form.add_error(row, _error_sentence(messages[0], row, path))
            continue
        last = re.sub(r"\[\d+\]", "", path).split(".")
        name = next((field_name for field_name in reversed(last) if field_name in form.values), None)
        name = {"event": "event", "offset_days": "offset", "frequency": "often"}.get(last[-1], name)
        form.add_error(name or "base", _error_sentence(messages[0], name, path))
    if not error.fields:
        form.add_error("base", error_sentence(error.message))
    return form


def _error_sentence(message: str, name: str | None, path: str) -> str:
    if message in (gettext_noop("is reserved"), gettext("is reserved")):
        return gettext("This name is reserved. Use another one.")
    return error_sentence(message, "" if name is not None or path.startswith("base") else path.rpartition(".")[2])


def list_client_events(account_id: int) -> list[str]:
    """Return names of events that programs send, as suggestions for event name fields; recorded ones come first.

    A name is shown with spaces and a capital, such as `Order paid`, if that becomes the stored name again when it is
    entered; otherwise the stored name is shown.
    """
    common = [event["name"] for event in document.build_spec()["events"] if event["group"] == "client"]
    names = dict.fromkeys([*_own_events(account_id), *common])
    spelled = {name: name.replace("_", " ").capitalize() for name in names}
    return [words if normalize_event_name(words) == name else name for name, words in spelled.items()]


def _own_events(account_id: int) -> list[str]:
    """Return the names of an account's recorded events that have no label."""
    return [name for name in suggestions.list_event_names(account_id) if not labels.is_built_in_event(name)]


def list_trigger_groups(account_id: int, chosen: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the events to choose from as a trigger, by group: TRIGGER_GROUPS, the account's, `chosen`.

    Each group is (label, [(event name, label)]).
    """
    return _with_own_events(account_id, TRIGGER_GROUPS, chosen)


def list_goal_groups(account_id: int, chosen: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the events to choose from as a goal, by group, as `list_trigger_groups` does."""
    return _with_own_events(account_id, _GOAL_GROUPS, chosen)


def _with_own_events(account_id: int, groups: Any, chosen: str) -> list[tuple[str, list[tuple[str, str]]]]:
    listed = [(gettext(label), [(name, gettext(text)) for name, text in events]) for label, events in groups]
    listed_names = {name for _, events in groups for name, _ in events} | {"", "manual", OTHER}
    own_names = dict.fromkeys([*_own_events(account_id), *([] if chosen in listed_names else [chosen])])
    names = [(name, describe_event(name)) for name in own_names if name not in listed_names]
    return [*listed, (gettext("Your events"), names)] if names else listed


def describe_event(name: str) -> str:
    """Return the label of an event, as flows show it."""
    return gettext(TRIGGER_LABELS[name]) if name in TRIGGER_LABELS else labels.event(name)[2]


# Parts of the forms, for edit conflicts.

_TRIGGER_LABEL = gettext_noop("Trigger")
_TRIGGER_FIELDS = (
    "event", "event_name", "contact_list_id", "segment_id", "often", "gap", "max_per_hour", "holdout", "holdout_event",
    "respect_control_group", "tag", "keywords", "path",
    "offset", "side", "at", "yearly",
)  # fmt: skip


class MarkedParts(FormParts):
    """Parts of a form whose labels are texts that were marked with `gettext_noop`."""

    def label(self, key: str) -> str:
        """Return the label of a part in the language of the request."""
        return gettext(key)


CONDITION_PARTS = MarkedParts(FormPart(gettext_noop("Conditions"), ("rules",)))


class StepParts(MarkedParts):
    """The parts of a step's form: one for each field of the step."""

    def describe(self, form: Form, key: str, lookup: Mapping[str, str]) -> str:
        """Return the value of a part as text; a duration is shown in its two largest units."""
        names = self.names(key)
        if names[1:] != (f"{names[0]}_unit",):
            return super().describe(form, key, lookup)
        try:
            seconds = _parse_duration(names[0], form[names[0]], form[names[1]])
        except errors.Invalid:
            return form[names[0]]
        return format_duration(max(seconds, 0))


class TriggerParts(MarkedParts):
    """The parts of the trigger form: the event with the fields that apply to it, and the goal."""

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part; fields that do not apply to the chosen event are left out."""
        names = _relevant_fields(form) if "event" in self.names(key) else self.names(key)
        return [[name, *filter(None, self._values(form, name))] for name in names]

    def describe(self, form: Form, key: str, names: Mapping[str, str]) -> str:
        """Return the trigger or the goal as text; `names` maps keys such as `contact_list_id 3` to names."""
        if "event" not in self.names(key):
            goal = form["goal_name"] if form["goal"] == OTHER else form["goal"]
            return describe_event(goal) if goal else gettext("none")
        event = form["event_name"] if form["event"] == OTHER else form["event"]
        event = gettext(TRIGGER_LABELS[event]) if event in TRIGGER_LABELS else event
        rest = [
            (name, form[name]) for name in _relevant_fields(form) if name not in ("event", "event_name") and form[name]
        ]
        known = {
            **{f"{field} {value}": gettext(label) for field, options in (("often", FREQUENCIES), ("side", SIDES))
               for value, label in options},
            "yearly yes": gettext("Repeats every year"), **names,
        }  # fmt: skip
        return ", ".join([event or gettext("none"), *(known.get(f"{name} {value}", value) for name, value in rest)])


TRIGGER_PARTS = TriggerParts(
    FormPart(_TRIGGER_LABEL, _TRIGGER_FIELDS), FormPart(gettext_noop("Goal"), ("goal", "goal_name"))
)


_ENTRY_FIELDS = ("max_per_hour", "holdout", "holdout_event", "respect_control_group")


def _relevant_fields(form: Form) -> list[str]:
    """Return the names of the form fields that apply to the chosen event."""
    event = form["event"]
    names = ["event", *(["event_name"] if event == OTHER else [])]
    if event == "manual":
        return names
    names += ["segment_id"] if event in SEGMENT_EVENTS else ["contact_list_id", "segment_id"]
    if event == "date_reached":
        return [*names, "path", "offset", "side", "at", "yearly", *_ENTRY_FIELDS]
    names += ["keywords"] if event in ("message", "keyword") else ["tag"] if event in ("tag_add", "tag_remove") else []
    return [*names, "often", *(["gap"] if form["often"] == "gap" else []), *_ENTRY_FIELDS]


def step_parts(kind: str) -> FormParts:
    """Return the parts of the form of a step, for edit conflicts; `kind` is the type of the step."""
    form_parts = []
    for field in BY_TYPE[kind].fields:
        if field.type == "filters":
            form_parts.append(FormPart(field.label, ("rules",)))
        elif field.type == "weekdays":
            form_parts.append(FormPart(field.label, tuple(f"{field.name}_{day}" for day in WEEKDAYS), True))
        elif field.type == "offset":
            form_parts.append(FormPart(field.label, (field.name, f"{field.name}_side")))
        elif field.type == "awaited_event":
            form_parts.append(FormPart(field.label, (field.name, f"{field.name}_other")))
        elif field.type == "duration":
            form_parts.append(FormPart(field.label, (field.name, f"{field.name}_unit")))
        elif field.type == "value_field":
            form_parts.append(FormPart(field.label, (field.name, f"{field.name}_other")))
        elif field.type in BRANCH_FIELDS:
            form_parts.append(FormPart(field.label, branch_rows.list_names(field.type)))
        elif field.type != "design":
            form_parts.append(FormPart(field.label, (field.name,), field.type == "boolean"))
    return StepParts(*form_parts)


def load_step(account_id: int, flow_id: int, step_id: int) -> dict[str, Any]:
    """Return a step of a flow's draft with its content. Raises NotFound if the draft has no such step."""
    stored = document.find_step(drafts.add_contents(drafts.load_draft(account_id, flow_id).steps), step_id)
    if stored is None:
        raise NotFound
    return stored


def build_stored_step_form(step: dict[str, Any]) -> StepForm:
    """Return the form of a stored step; its filters are the field `rules`, as JSON."""
    form = build_step_form(step)
    if any(field.type == "filters" for field in BY_TYPE[step["type"]].fields):
        form.values["rules"] = serialize_rules(FilterRows.from_filters(step.get("filters") or []))
    return form


def get_choice(form: Form) -> str:
    """Return the choice that decides which fields of a step apply; empty for kinds without such a choice."""
    return next((form[name] for name in _CHOICES if form[name]), "")


def get_layout(form: Form) -> str:
    """Return a text that identifies which fields a step's form shows.

    The form posts it as `shown`. If the posted choices give another text, the form is shown again with their fields.
    """
    other = [form[name] for name in ("event_name", "field") if form[name] in (OTHER, ANY_DATA, ANY_EVENT_DATA)]
    return ".".join([get_choice(form), *other])


def is_layout_changed(form: Form) -> bool:
    """Return whether a posted form chose other fields than it showed."""
    return "shown" in form.values and form["shown"] != get_layout(form)


def add_missing_values(form: StepForm, kind: str) -> None:
    """Give the fields that the form did not show their first values."""
    choice = {name: form[name] for name in _CHOICES if form[name]}
    form.values = {**build_step_form({"type": kind, **choice}).values, **form.values}


def shows_rules(form: Form, kind: str) -> bool:
    """Return whether the form of a step of a kind has filter rows."""
    return any(field.type == "filters" and field.applies(get_choice(form)) for field in BY_TYPE[kind].fields)


def build_conditions_form(start: TriggerSpec) -> Form:
    """Return the form of a trigger's conditions, which are the field `rules`, as JSON."""
    return Form({"rules": serialize_rules(FilterRows.from_filters(start.data.get("where") or []))})


def serialize_rules(rows: FilterRows) -> str:
    """Return the filters of rows as JSON with sorted keys, so that equal rules are equal text."""
    return json.dumps(rows.to_filters(), sort_keys=True)


def describe_rules(account_id: int, *both: FilterRows) -> dict[str, str]:
    """Return the sentence of each of the given sets of rules, by the JSON of the rules (`serialize_rules`)."""
    args = (
        (serialize_rules(item), filter_builder.build_view(account_id, item, counted=False).sentence) for item in both
    )
    return {value: sentence or gettext("All contacts") for value, sentence in args}


def load_step_names(account_id: int, step: dict[str, Any]) -> KnownNames:
    """Return the names of contact lists, users or steps by id, for each part of a step's form that chooses one."""
    names = {str(row.id): row.name for row in lookups.list_contact_lists(account_id)}
    kind = BY_TYPE[step["type"]]
    known = {field.label: names for field in kind.fields if field.type == "list"}
    for field in kind.fields:
        if field.type == "step":
            known[field.label] = {str(step[field.name]): kind.summary(step, account_id)}
        elif field.type == "user":
            known[field.label] = {str(row.id): row.name or row.email for row in users.list_members(account_id)}
    return known


def load_trigger_names(account_id: int) -> KnownNames:
    """Return the names of lists and segments for the trigger part, with keys such as `contact_list_id 3`."""
    lists = {f"contact_list_id {row.id}": row.name for row in lookups.list_contact_lists(account_id)}
    page = segments.fetch_page(account_id, SegmentQuery(limit=100)).rows
    return {_TRIGGER_LABEL: lists | {f"segment_id {row.id}": row.name for row in page}}
