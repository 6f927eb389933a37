"""The differences of a proposal, value by value, so that a user sees all changes side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.agents.flow_words import Worded, find_field, label_key, word_step_value, write_value
from appliance.content.designs.sections import KINDS as SECTION_KINDS
from appliance.content.templates import translations
from appliance.core.hidden_characters import show_hidden
from appliance.core.i18n import format_list, gettext, gettext_noop, name_language
from appliance.flows import branches, document
from appliance.flows.steps import BY_TYPE
from appliance.storage.models import NESTED_STEP_KEYS

# What a page shows. A proposal with more is neither made nor approved, because its page could not show all of it.
MAX_DIFFERENCES = 1_000
MAX_CHARACTERS, MAX_ALL_CHARACTERS = 100_000, 500_000
_TOO_LARGE = gettext_noop("changes more than can be shown: propose less at a time")
_FIELD_LABELS = {
    "name": gettext_noop("Name"), "subject": gettext_noop("Subject"), "body": gettext_noop("Body"),
    "preheader": gettext_noop("Preview text"), "from_name": gettext_noop("From name"),
    "from_email": gettext_noop("From email"), "reply_to": gettext_noop("Reply-to"), "goal": gettext_noop("Goal"),
    "trigger": gettext_noop("Trigger"), "status": gettext_noop("Status"), "filters": gettext_noop("Conditions"),
    "design": gettext_noop("Design"), "data": gettext_noop("Data"), "scheduled_at": gettext_noop("Time"),
    "theme": gettext_noop("Theme"), "duration": gettext_noop("Duration"), "yes": gettext_noop("Yes"),
    "no": gettext_noop("No"), "event": gettext_noop("Event"), "tracking": gettext_noop("Tracking"),
    "utm": gettext_noop("UTM parameters"), "experiment": gettext_noop("A/B test"), "repeat": gettext_noop("Repeats"),
    "secret_headers": gettext_noop("Secret headers"),
}  # fmt: skip


class Difference(Struct):
    """A value that a proposal changes: its name, and its texts before and after; empty for no value."""

    label: Annotated[str, Meta(description="name of the value")]
    before: Annotated[str, Meta(description="the value now; empty if there is none")]
    after: Annotated[str, Meta(description="the value once the proposal is approved; empty if there is none")]


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the differences between two flat mappings of labels to values, in the order of the first and the second.

    Values of texts are compared as they are, others as JSON-like text. Empty values count as absent. If two values that
    differ have the same text, their JSON is added to it.
    """
    differences = []
    for label in dict.fromkeys((*before, *after)):
        pair = before.get(label), after.get(label)
        old, new = map(_to_text, pair)
        if any(isinstance(value, Worded) for value in pair):
            values = [value.value if isinstance(value, Worded) else value for value in pair]
            if values[0] == values[1]:
                continue
            if old == new:
                old, new = (f"{old} ({write_value(value)})" for value in values)
        if old != new:
            differences.append(Difference(*map(show_hidden, (label, old, new))))
    return differences


def find_size_fault(differences: Sequence[Difference]) -> str | None:
    """Return why differences cannot be shown, or None if a page can show all of them."""
    sizes = [max(len(difference.before), len(difference.after)) for difference in differences]
    is_shown = len(sizes) <= MAX_DIFFERENCES and max(sizes, default=0) <= MAX_CHARACTERS
    return None if is_shown and sum(sizes) <= MAX_ALL_CHARACTERS else gettext(_TOO_LARGE)


def shorten(differences: Sequence[Difference]) -> list[Difference]:
    """Return the first differences that a page can show, and one that says that there are more."""
    shown, rest = [], MAX_ALL_CHARACTERS
    for difference in differences[:MAX_DIFFERENCES]:
        rest -= max(len(difference.before), len(difference.after))
        if find_size_fault([difference]) is not None or rest < 0:
            break
        shown.append(difference)
    note = gettext("%(count)s further values change.", count=len(differences) - len(shown))
    return [*shown, Difference(gettext("More"), "", note)]


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Worded):
        return value.text
    if value is None or value == [] or value == {}:
        return ""
    return (gettext("Yes") if value else gettext("No")) if isinstance(value, bool) else str(value)


def flatten_content(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a template by their labels, and every value of its design by section and name."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if name == "design" and isinstance(value, dict):
            _flatten_design(value, flat)
        else:
            _flatten(value, label_field(name), flat)
    return flat


def flatten_translations(content: Mapping[str, Any], channel: str) -> dict[str, str]:
    """Return a template's translated texts by language and label, including texts that it no longer has."""
    labels = {
        text.id: f"{text.section} · {text.label}" if text.section else text.label
        for text in translations.list_texts(content, channel)
    }
    flat: dict[str, Any] = {}
    for language, texts in sorted((content.get("translations") or {}).items()):
        for text_id in sorted(texts, key=[*labels, *sorted(texts)].index):
            _put(flat, f"{name_language(language)} · {labels.get(text_id, text_id)}", texts[text_id]["text"])
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
        for fields in (props, values):
            _flatten(fields, f"{label} {counts[label]}", flat)
    for name, value in design.items():
        if name != "sections":
            _flatten(value, label_field(name), flat)


def flatten_steps(account_id: int, steps: Sequence[Any]) -> dict[str, Any]:
    """Return every value of the steps of a flow, in the form of the API, by step and name.

    A step may have `translations` too, which are those of `flatten_translations`.
    """
    return _StepFlattener(account_id, index_places(steps)).flatten(steps)


def index_places(steps: Sequence[Any]) -> dict[int, str]:
    """Return the place of each step at all levels, such as `Step 2`, by its id."""
    places: dict[int, str] = {}
    _index_places(steps, gettext("Step"), places)
    return places


def iter_steps(steps: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps at all levels, in the order of the page."""
    for step in steps if isinstance(steps, list | tuple) else ():
        if isinstance(step, dict):
            if "type" in step:
                yield step
            for name in NESTED_STEP_KEYS:
                yield from iter_steps(step.get(name))


def _index_places(steps: Any, prefix: str, places: dict[int, str]) -> None:
    """Fill `places` with the label of each step by the step's id, in the form of `flatten_steps`, such as `Step 2`."""
    for index, step in enumerate(steps if isinstance(steps, list | tuple) else [], start=1):
        if isinstance(step, dict):
            path = f"{prefix} {index}"
            if isinstance(step.get("id"), int):
                places[step["id"]] = path
            for name in step.keys() & set(NESTED_STEP_KEYS):
                _index_places(step[name], _nested_prefix(path, step, name), places)


def _nested_prefix(path: str, step: Mapping[str, Any], name: str) -> str:
    """Return the prefix of the labels of the steps in a branch, or of the branches in a list of branches."""
    if name == branches.LISTED_KEY:
        return " · ".join((path, gettext("Branch")))
    if name == branches.STEPS_KEY:
        return f"{path} ·"
    kind = BY_TYPE.get(str(step.get("type")))
    labels = kind.list_branches(branches.get_props(dict(step))) if kind is not None else {}
    return f"{path} · {labels.get(name) or label_field(name)} ·"


class _StepFlattener:
    """Collects the values of steps by their labels; `places` has the place of each step by its id."""

    def __init__(self, account_id: int, places: Mapping[int, str]) -> None:
        self._account_id, self._places = account_id, places
        self._flat: dict[str, Any] = {}

    def flatten(self, steps: Sequence[Any]) -> dict[str, Any]:
        """Return every value of the steps by label."""
        self._add_steps(steps, gettext("Step"))
        return self._flat

    def _add_steps(self, steps: Any, prefix: str) -> None:
        for index, step in enumerate(steps if isinstance(steps, list | tuple) else [], start=1):
            path = f"{prefix} {index}"
            if not isinstance(step, dict):
                _flatten(step, path, self._flat)
                continue
            kind = BY_TYPE.get(str(step.get("type")))
            _put(self._flat, path, gettext(kind.label) if kind is not None else str(step.get("type", "")))
            for name, value in step.items():
                if name not in ("id", "type", "template_id") and not document.is_absent(value):
                    self._add_value(path, step, name, value)

    def _add_value(self, path: str, step: Mapping[str, Any], name: str, value: Any) -> None:
        field = find_field(str(step.get("type")), name)
        label = f"{path} · {gettext(field.label) if field is not None else label_key(name) or label_field(name)}"
        if name == "secret_headers" and isinstance(value, dict):
            # The values are secret, also to the user who decides, so only the names are shown.
            _put(self._flat, label, format_list(sorted(value)))
        elif name == "translations" and isinstance(value, dict):
            self._add_texts(path, value)
        elif name in NESTED_STEP_KEYS and isinstance(value, list | tuple):
            self._add_steps(value, _nested_prefix(path, step, name))
        elif name == "design" and isinstance(value, dict):
            design: dict[str, Any] = {}
            _flatten_design(value, design)
            self._add_texts(path, design)
        elif field is not None:
            worded = word_step_value(self._account_id, field, value, self._places)
            if isinstance(worded, Worded):
                _put(self._flat, label, worded)
            else:
                _flatten(value, label, self._flat)
        elif name == "values" and isinstance(value, list) and all(isinstance(text, str) for text in value):
            _put(self._flat, label, Worded(", ".join(value), value))
        else:
            _flatten(value, label, self._flat)

    def _add_texts(self, path: str, texts: Mapping[str, Any]) -> None:
        for label, text in texts.items():
            _put(self._flat, f"{path} · {label}", text)


def _flatten(value: Any, label: str, flat: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(inner, f"{label} · {label_field(str(name))}", flat)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value, start=1):
            _flatten(inner, f"{label} · {index}", flat)
    elif value is not None and value != "":
        _put(flat, label, value)


def _put(flat: dict[str, Any], label: str, value: Any) -> None:
    """Add a value under its label; if the label is taken, a number is appended to it, so that no value is lost."""
    number, name = 2, label
    while name in flat:
        name, number = f"{label} ({number})", number + 1
    flat[name] = value


def label_field(name: str) -> str:
    """Return the label of a field, or its name if it has none."""
    return gettext(_FIELD_LABELS[name]) if name in _FIELD_LABELS else name
