"""The differences of a proposal, value by value, so that a user sees all changes side by side."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple
from unicodedata import normalize

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
# Of texts that look the same up to this length, the page shows what tells them apart.
_MAX_SPELLED_CHARACTERS = 200
_JOINERS = re.compile("[\u200c\u200d\ufe0f]")
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


Path = tuple[str | int, ...]


class Value(NamedTuple):
    """A value of a document with its label."""

    label: str
    value: Any


class Values:
    """The values of a document, by their paths, in the order of the page.

    Two values may have the same label, because labels are words for people, so values are compared by their paths.
    """

    def __init__(self) -> None:
        self._values: dict[Path, Value] = {}

    def __iter__(self) -> Iterator[Path]:
        return iter(self._values)

    def get(self, path: Path) -> Value | None:
        """Return the value at a path, or None."""
        return self._values.get(path)

    def add(self, path: Path, label: str, value: Any) -> None:
        """Add a value as it is."""
        self._values[path] = Value(label, value)

    def flatten(self, path: Path, label: str, value: Any, keeps_empty: bool = True) -> None:
        """Add a value, or each value in it if it is nested.

        Without `keeps_empty`, values that are empty or null are left out, but not those of a list.
        """
        if isinstance(value, Mapping) and value:
            for name, inner in value.items():
                self.flatten((*path, str(name)), f"{label} · {label_field(str(name))}", inner, keeps_empty)
        elif isinstance(value, list | tuple) and value:
            for index, inner in enumerate(value, start=1):
                self.flatten((*path, index), f"{label} · {index}", inner, keeps_empty)
        elif keeps_empty or isinstance(path[-1], int) or not _is_empty(value):
            self.add(path, label, value)

    def merge(self, other: "Values", path: Path = (), prefix: str = "") -> "Values":
        """Add the values of another document below a path, with a prefix before their labels, and return this one."""
        for inner in other:
            value = other._values[inner]
            self.add((*path, *inner), f"{prefix}{value.label}", value.value)
        return self


def compare(before: Values, after: Values) -> list[Difference]:
    """Return the differences between the values of two documents, in the order of the first and the second.

    If two values that differ have the same text, their JSON is added to it.
    """
    differences, counts = [], dict[str, int]()
    for path in dict.fromkeys((*before, *after)):
        pair = before.get(path), after.get(path)
        codes = [None if value is None else _to_json(value.value) for value in pair]
        if codes[0] == codes[1]:
            continue
        label = show_hidden(next(value.label for value in pair if value is not None))
        counts[label] = counts.get(label, 0) + 1
        label = label if counts[label] == 1 else f"{label} ({counts[label]})"
        differences.append(Difference(label, *_tell_apart(*pair)))
    return differences


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _to_json(value: Any) -> str:
    value = value.value if isinstance(value, Worded) else value
    return json.dumps(value, sort_keys=True, default=str)


def _tell_apart(before: Value | None, after: Value | None) -> list[str]:
    """Return the texts of two values that differ, with their JSON if the texts look the same."""
    values = [None if value is None else value.value for value in (before, after)]
    texts = [show_hidden(_to_text(value)) for value in values]
    if _simplify(texts[0]) != _simplify(texts[1]):
        return texts
    raw = [value.value if isinstance(value, Worded) else value for value in values]
    for is_ascii in (False, True):
        codes = [show_hidden(write_value(value, is_ascii)) for value in raw]
        if _simplify(codes[0]) != _simplify(codes[1]):
            break
    return [
        text if value is None else f"{text} ({code})" if text else code
        for text, code, value in zip(texts, codes, (before, after), strict=True)
    ]


def _simplify(text: str) -> str:
    """Return a text without what people do not see: kinds of white space, joiners, other code points of a character."""
    if len(text) > _MAX_SPELLED_CHARACTERS:
        return text
    return " ".join(normalize("NFKC", _JOINERS.sub("", text)).split())


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
    if _is_empty(value):
        return ""
    return (gettext("Yes") if value else gettext("No")) if isinstance(value, bool) else str(value)


def flatten_content(content: Mapping[str, Any], keeps_empty: bool = True) -> Values:
    """Return the fields of a template, and every value of its design by section and name.

    Empty fields are left out, and without `keeps_empty` also the empty values in them.
    """
    values = Values()
    for name, value in content.items():
        if name == "design" and isinstance(value, dict):
            values.merge(_flatten_design(value, keeps_empty), (name,))
        elif not _is_empty(value):
            values.flatten((name,), label_field(name), value, keeps_empty)
    return values


def flatten_translations(content: Mapping[str, Any], channel: str) -> Values:
    """Return a template's translated texts by language and label, including texts that it no longer has.

    A text that has the label of an earlier one has a number, whether the earlier one is translated or not.
    """
    translated, values = content.get("translations") or {}, Values()
    places: dict[str, tuple[str, int]] = {}
    counts: dict[str, int] = {}
    for text in translations.list_texts(content, channel) if translated else ():
        label = f"{text.section} · {text.label}" if text.section else text.label
        counts[label] = counts.get(label, 0) + 1
        places[text.id] = (label, counts[label])
    for language, texts in sorted(translated.items()):
        for text_id in sorted(texts, key=[*places, *sorted(texts)].index):
            label, number = places.get(text_id, (text_id, 0))
            numbered = f"{label} ({number})" if number > 1 else label
            title = f"{name_language(language)} · {numbered}"
            values.add(("translations", language, label, number), title, texts[text_id]["text"])
    return values


def _flatten_design(design: Mapping[str, Any], keeps_empty: bool) -> Values:
    """Return the values of a design, and the order of its sections."""
    values, order, counts = Values(), [], dict[str, int]()
    sections = design.get("sections")
    labels = {kind.name: gettext(kind.label) for kind in SECTION_KINDS}
    for section in sections if isinstance(sections, list) else []:
        if not isinstance(section, dict):
            continue
        kind = str(section.get("type"))
        counts[kind] = counts.get(kind, 0) + 1
        label = f"{labels.get(kind, kind)} {counts[kind]}"
        order.append((label, [section.get("id"), section.get("type")]))
        others = {name: value for name, value in section.items() if name not in ("id", "type", "props")}
        for name, fields in (("props", section.get("props")), *others.items()):
            title = label if name == "props" else f"{label} · {label_field(name)}"
            if fields not in (None, {}):
                values.flatten(("sections", kind, counts[kind], name), title, fields, keeps_empty)
    if order:
        title = gettext("Order of sections")
        values.add(("sections",), title, Worded(", ".join(label for label, _ in order), [key for _, key in order]))
    for name, value in design.items():
        if name != "sections" and value != {}:
            values.flatten((name,), label_field(name), value, keeps_empty)
    return values


def flatten_steps(account_id: int, steps: Sequence[Any], former_steps: Sequence[Any] | None = None) -> Values:
    """Return every value of the steps of a flow, in the form of the API, by step and name.

    A step may have `translations` too, which are those of `flatten_translations`. With `former_steps`, the text of a
    step says where it was before, because secrets, translations and results belong to the step and not to its place.
    Without them, empty values of designs are left out.
    """
    flattener = _StepFlattener(account_id, index_places(steps), index_places(former_steps or ()))
    return flattener.flatten(steps, former_steps is not None)


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
    """Collects the values of steps; `places` and `former_places` have the place of each step by its id."""

    def __init__(self, account_id: int, places: Mapping[int, str], former_places: Mapping[int, str]) -> None:
        self._account_id, self._places, self._former_places = account_id, places, former_places
        self._values, self._keeps_empty = Values(), True

    def flatten(self, steps: Sequence[Any], keeps_empty: bool) -> Values:
        """Return every value of the steps; without `keeps_empty`, empty values of designs are left out."""
        self._keeps_empty = keeps_empty
        self._add_steps(steps, ("steps",), gettext("Step"))
        return self._values

    def _add_steps(self, steps: Any, path: Path, prefix: str) -> None:
        for index, step in enumerate(steps if isinstance(steps, list | tuple) else [], start=1):
            place, label = (*path, index), f"{prefix} {index}"
            if not isinstance(step, dict):
                self._values.flatten(place, label, step)
                continue
            if "type" in step:
                self._values.add(place, label, Worded(self._word_kind(step, label), [step["type"], step.get("id")]))
            for name, value in step.items():
                is_preset = name in document.EMPTY_STEP and document.is_absent(value)
                if name not in ("id", "type", "template_id") and value is not None and not is_preset:
                    self._add_value(place, label, step, name)

    def _word_kind(self, step: Mapping[str, Any], place: str) -> str:
        """Return what a step is, and where it was before if it was elsewhere."""
        kind = BY_TYPE.get(str(step.get("type")))
        text = gettext(kind.label) if kind is not None else str(step.get("type", ""))
        former_place = self._former_places.get(step.get("id", 0))
        if former_place is not None and former_place != place:
            return gettext("%(step)s (moved from %(place)s)", step=text, place=former_place)
        if former_place is None and place in self._former_places.values():
            return gettext("%(step)s (new)", step=text)
        return text

    def _add_value(self, path: Path, place: str, step: Mapping[str, Any], name: str) -> None:
        field, value, values = find_field(str(step.get("type")), name), step[name], self._values
        label = f"{place} · {gettext(field.label) if field is not None else label_key(name) or label_field(name)}"
        path = (*path, name)
        if name == "secret_headers" and isinstance(value, dict):
            # The values are secret, also to the user who decides, so only the names are shown.
            values.add(path, label, Worded(format_list(sorted(value)), sorted(value)))
        elif name == "translations":
            values.merge(value, path, f"{place} · ")
        elif name in NESTED_STEP_KEYS and isinstance(value, list | tuple):
            self._add_steps(value, path, _nested_prefix(place, step, name))
        elif name == "design" and isinstance(value, dict):
            values.merge(_flatten_design(value, self._keeps_empty), path, f"{place} · ")
        elif field is not None:
            worded = word_step_value(self._account_id, field, value, self._places)
            if isinstance(worded, Worded):
                values.add(path, label, worded)
            else:
                values.flatten(path, label, value)
        elif name == "values" and isinstance(value, list) and all(isinstance(text, str) for text in value):
            values.add(path, label, Worded(", ".join(value), value))
        else:
            values.flatten(path, label, value)


def label_field(name: str) -> str:
    """Return the label of a field, or its name if it has none."""
    return gettext(_FIELD_LABELS[name]) if name in _FIELD_LABELS else name
