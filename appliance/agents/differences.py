"""What a proposal changes, value by value, so that a user sees all of it side by side."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.content.designs.sections import KINDS as SECTION_KINDS
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows import document
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.wait import format_duration
from appliance.storage.models import NESTED_STEP_KEYS

# Values beyond this number are not compared one by one; the last difference says so.
MAX_DIFFERENCES = 500
MAX_CHARACTERS = 20_000
_FIELD_LABELS = {
    "name": gettext_noop("Name"), "subject": gettext_noop("Subject"), "body": gettext_noop("Body"),
    "preheader": gettext_noop("Preview text"), "from_name": gettext_noop("From name"),
    "from_email": gettext_noop("From email"), "reply_to": gettext_noop("Reply-to"), "goal": gettext_noop("Goal"),
    "trigger": gettext_noop("Trigger"), "status": gettext_noop("Status"), "filters": gettext_noop("Conditions"),
    "design": gettext_noop("Design"), "data": gettext_noop("Data"), "scheduled_at": gettext_noop("Time"),
    "theme": gettext_noop("Theme"), "duration": gettext_noop("Duration"), "yes": gettext_noop("Yes"),
    "no": gettext_noop("No"), "event": gettext_noop("Event"),
}  # fmt: skip


class Difference(Struct):
    """A value that a proposal changes: its name, and its texts before and after; empty for no value."""

    label: Annotated[str, Meta(description="name of the value")]
    before: Annotated[str, Meta(description="the value now; empty if there is none")]
    after: Annotated[str, Meta(description="the value once the proposal is approved; empty if there is none")]


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the differences between two flat mappings of labels to values, in the order of the first and the second.

    Values of texts are compared as they are, others as JSON-like text. Empty values count as absent.
    """
    differences = []
    for label in dict.fromkeys((*before, *after)):
        old, new = _to_text(before.get(label)), _to_text(after.get(label))
        if old != new:
            differences.append(Difference(label, old[:MAX_CHARACTERS], new[:MAX_CHARACTERS]))
    if len(differences) > MAX_DIFFERENCES:
        rest = len(differences) - MAX_DIFFERENCES
        note = gettext("%(count)s further values change.", count=rest)
        differences = [*differences[:MAX_DIFFERENCES], Difference(gettext("More"), "", note)]
    return differences


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or value == [] or value == {} or value is False:
        return ""
    return gettext("Yes") if value is True else str(value)


def flatten_content(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a template by their labels, and every value of its design by section and name."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if name == "design" and isinstance(value, dict):
            _flatten_design(value, flat)
        else:
            _flatten(value, label_field(name), flat)
    return flat


def _flatten_design(design: Mapping[str, Any], flat: dict[str, Any]) -> None:
    sections = design.get("sections")
    labels = {kind.name: gettext(kind.label) for kind in SECTION_KINDS}
    counts: dict[str, int] = {}
    for section in sections if isinstance(sections, list) else []:
        if not isinstance(section, dict):
            continue
        label = labels.get(str(section.get("type")), str(section.get("type")))
        counts[label] = counts.get(label, 0) + 1
        values = {key: value for key, value in section.items() if key not in ("id", "type")}
        props = values.pop("props", {})
        _flatten({**(props if isinstance(props, dict) else {}), **values}, f"{label} {counts[label]}", flat)
    for name, value in design.items():
        if name != "sections":
            _flatten(value, label_field(name), flat)


def flatten_steps(steps: Sequence[Any]) -> dict[str, Any]:
    """Return every value of the steps of a flow, in the form of the API, by step and name."""
    flat: dict[str, Any] = {}
    _flatten_steps(steps, gettext("Step"), flat)
    return flat


def _flatten_steps(steps: Any, prefix: str, flat: dict[str, Any]) -> None:
    for index, step in enumerate(steps if isinstance(steps, list | tuple) else [], start=1):
        if not isinstance(step, dict):
            _flatten(step, f"{prefix} {index}", flat)
            continue
        kind = BY_TYPE.get(str(step.get("type")))
        path = f"{prefix} {index}"
        flat[path] = gettext(kind.label) if kind is not None else str(step.get("type", ""))
        for name, value in step.items():
            if name in ("id", "type", "template_id") or document.is_absent(value):
                continue
            if name == "duration" and isinstance(value, int):
                flat[f"{path} · {label_field(name)}"] = format_duration(value)
            elif name in NESTED_STEP_KEYS and isinstance(value, list | tuple):
                _flatten_steps(value, f"{path} · {label_field(name)} ·", flat)
            elif name == "design" and isinstance(value, dict):
                design: dict[str, Any] = {}
                _flatten_design(value, design)
                flat.update({f"{path} · {label}": text for label, text in design.items()})
            else:
                _flatten(value, f"{path} · {label_field(name)}", flat)


def _flatten(value: Any, label: str, flat: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(inner, f"{label} · {label_field(str(name))}", flat)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value, start=1):
            _flatten(inner, f"{label} · {index}", flat)
    elif not document.is_absent(value):
        flat[label] = value


def label_field(name: str) -> str:
    """Return the label of a field, or its name if it has none."""
    return gettext(_FIELD_LABELS[name]) if name in _FIELD_LABELS else name
