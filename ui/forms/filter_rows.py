"""Convert the filter rows of posted forms to filters of the API, and back.

The fields of a row are named `<prefix>.<key>.<what>`. `<prefix>.row` lists the keys of the rows in order, and
`<prefix>.<key>.row` lists the keys of the rows inside a row (of a group, or of an event's data). Rows can therefore be
moved in the page without being renamed, and a form is read the same way with and without JavaScript.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from appliance.audience.filters import fields, personal
from appliance.audience.filters.compiler import GROUP_MODES, MAX_DEPTH
from appliance.audience.filters.fields import Field, FilterPlace
from appliance.audience.filters.predicates import PREDICATES_BY_TYPE
from appliance.core import errors
from appliance.storage import masking
from appliance.storage.database import fold_case
from appliance.storage.masking import HIDDEN_TEXT
from ui.forms import error_sentence, typed_values


def normalize_event_name(text: str) -> str:
    """Return an event name in the stored form: `Became reader` becomes `became_reader`."""
    return re.sub(r"[\s-]+", "_", text.strip().lower())


ANY_DATA = "contact_data.*"
ANY_EVENT = "event:*"
ANY_EVENT_DATA = "event.*"
# Names of the further fields of a row, besides its field, predicate and values.
EXTRA_KEYS = ("often", "times", "times_to", "when", "days", "since", "machine", "path", "kind", "was", "as")
_DEFAULT_PREDICATES = {"time": "within_days", "number": "gteq", "tags": "cont", "history": "performed", "group": "any",
          "boolean": "true", "text": "eq", "code": "eq", "json": "eq", "id": "eq"}  # fmt: skip


class FilterRow:
    """One rule in a form; `rows` are the rules inside a group or about an event's data.

    `name` is the name of the filter field, `extra` has the fields of EXTRA_KEYS, and `path` is where the errors of the
    rule are reported.
    """

    def __init__(self, key: str, name: str = "", predicate: str = "", values: list[str] | None = None) -> None:
        self.key = key
        self.name = name
        self.predicate = predicate
        self.values = values or []
        self.extra: dict[str, str] = {}
        self.rows: list[FilterRow] = []
        self.error = ""
        self.path = ""
        # The filter builder sets the options of the row, and how many contacts match this rule alone.
        self.options: Any = None
        self.share: Any = None

    def __getitem__(self, name: str) -> str:
        return self.extra.get(name, "")

    @property
    def field(self) -> Field | None:
        """Return the filter field that the row names, or None if no field is chosen or the field does not exist."""
        if self.name.startswith("event:"):
            return fields.FIELDS_BY_NAME["event"]
        if self.name in (ANY_DATA, ANY_EVENT_DATA):
            return fields.find_field(self.name[:-1] + (self["path"] or "?"), FilterPlace.SPLIT, "x")
        return (
            fields.FIELDS_BY_NAME["group"]
            if self.name == "group"
            else fields.find_field(self.name, FilterPlace.SPLIT, "x")
        )

    @property
    def type(self) -> str:
        """Return the type of the filter field, or an empty string without a field."""
        return self.field.type if self.field else ""

    @property
    def value_kind(self) -> str:
        """Return the kind of value that the predicate takes, such as `days` or `pair`; empty for unknown predicates."""
        return typed_values.value_kind(self.type, self.predicate)

    @property
    def is_blank(self) -> bool:
        """Return whether no field is chosen; a group is blank if all its rules are blank."""
        return not self.name or (self.type == "group" and all(row.is_blank for row in self.rows))

    @property
    def is_complete(self) -> bool:
        """Return whether the row can be used as a filter; a group needs at least one complete rule."""
        if self.field is None or not self.predicate:
            return False
        if self.type == "group":
            return any(row.is_complete for row in self.rows)
        if self.type == "history":
            return bool(self.event)
        if self.name in (ANY_DATA, ANY_EVENT_DATA) and not self["path"]:
            return False
        return typed_values.is_complete(self.value_kind, self.values)

    @property
    def event(self) -> str:
        """Return the name of the event, for a rule about a contact's history."""
        return normalize_event_name(self["path"]) if self.name == ANY_EVENT else self.name.partition(":")[2]

    def normalize(self) -> None:
        """Make predicate and values fit the field, after the user changed the field or the predicate.

        A predicate that the field lacks is replaced with the default predicate, and values that do not fit are dropped.
        """
        changed = bool(self["was"]) and self["was"] != self.name
        names = (*PREDICATES_BY_TYPE.get(self.type, ()), "performed", "not_performed", *GROUP_MODES)
        if self.type and (changed or self.predicate not in names or not self.value_kind):
            self.predicate = _DEFAULT_PREDICATES[self.type]
        if changed:
            self.values = []
            self.extra.pop("kind", None)
        elif self["as"] and self["as"] != self.value_kind:
            self.values = typed_values.keep_compatible(self["as"], self.value_kind, self.values)
        if not self.values and self.value_kind == "days":
            self.values = ["30"]
        if self.type == "group" and not self.rows:
            self.rows = [FilterRow(f"{self.key}-a"), FilterRow(f"{self.key}-b")]

    def to_filter(self) -> dict[str, Any]:
        """Return the filter of the row as the API represents it; incomplete rules inside the row are left out."""
        name = self.name
        if name in (ANY_DATA, ANY_EVENT_DATA):
            name = name[:-1] + self["path"]
        if self.type == "group":
            return {"name": "group", "predicate": self.predicate, "value": complete_filters(self.rows)}
        if self.type == "history":
            where = complete_filters(self.rows)
            value = {"event": self.event, **typed_values.parse_history(self), **({"where": where} if where else {})}
            return {"name": "event", "predicate": self.predicate, "value": value}
        return {"name": name, "predicate": self.predicate, "value": typed_values.parse_value(self)}


def complete_filters(rows: list[FilterRow]) -> list[dict[str, Any]]:
    """Return the filters of the complete rows."""
    return [row.to_filter() for row in rows if row.is_complete]


PREFIX = "f"
MAX_ROWS = 120
_KEY = re.compile(r"[a-z0-9-]{1,40}")


class FilterRows:
    """The filter rows of one form, an error of the form, and the key under which matching contacts are counted."""

    def __init__(self, rows: list[FilterRow], prefix: str = PREFIX) -> None:
        self.rows = rows
        self.prefix = prefix
        self.error = ""
        # Each page has its own key; a new count cancels an earlier count with the same key. The seed selects the
        # sample.
        self.count_key = secrets.token_hex(8)
        self.seed = 0
        # In a flow, the name of the event that triggers it; rules can use its data.
        self.event = ""
        # Whether the rules are about an event that a step waits for, not about who is selected.
        self.awaits_event = False

    @classmethod
    def from_filters(cls, raw: Any, prefix: str = PREFIX) -> "FilterRows":
        """Return the rows for stored filters."""
        return cls(list(_rows_from_filters(raw, "")), prefix)

    @classmethod
    def blank(cls, prefix: str = PREFIX) -> "FilterRows":
        """Return a single row without a field."""
        return cls([FilterRow("n0")], prefix)

    @classmethod
    def from_form(cls, posted: Mapping[str, list[str]], prefix: str = PREFIX) -> "FilterRows":
        """Return the normalized rows of a posted form (`Form.lists`) or a query; at most MAX_ROWS.

        Raises NotAllowed as `personal.require_allowed`.
        """
        filter_rows = cls(_read_rows(posted, prefix, f"{prefix}.row", 1, set()), prefix)
        personal.require_allowed(filter_rows.to_filters())
        count_key, seed, filter_rows.event = (
            next(iter(posted.get(f"{prefix}.{what}", ())), "") for what in ("count_key", "seed", "event")
        )  # fmt: skip
        filter_rows.count_key = count_key if _KEY.fullmatch(count_key) else filter_rows.count_key
        filter_rows.awaits_event = posted.get(f"{prefix}.awaits_event") == ["yes"]
        filter_rows.seed = int(seed) if seed.isdecimal() and len(seed) < 9 else 0
        return filter_rows

    def __iter__(self) -> Iterator[FilterRow]:
        """Yield every row, including rows inside other rows."""
        return _walk(self.rows)

    def hide_personal_values(self) -> None:
        """Hide what rules compare names and addresses with, where contact data is masked; it cannot be undone."""
        for row in self if masking.is_active() else ():
            if row.field is not None and personal.is_personal(row.field.name):
                row.values = [HIDDEN_TEXT for _ in row.values]

    def to_filters(self) -> list[dict[str, Any]]:
        """Return the filters of all rows with a field, including incomplete rows, so that validation reports them."""
        _assign_paths(self.rows, "filters", strict=True)
        return _chosen_filters(self.rows)

    def complete_filters(self) -> list[dict[str, Any]]:
        """Return the filters of the complete rows, which can be counted while the user edits the others."""
        _assign_paths(self.rows, "filters", strict=False)
        return complete_filters(self.rows)

    def add_errors(self, error: errors.Invalid, path: str = "filters") -> None:
        """Add the errors of filters to their rows, or to the form if no row matches.

        `path` is where the filters were in the request. Call `to_filters` or `complete_filters` first, which set the
        paths of the rows.
        """
        by_path = {row.path: row for row in self if row.path}
        for place, messages in error.fields.items():
            current = "filters" + place.removeprefix(path) if place.startswith(path) else place
            while current and current not in by_path:
                current = _parent_path(current)
            text = error_sentence(messages[0])
            if current:
                by_path[current].error = by_path[current].error or text
            else:
                self.error = self.error or text

    def apply_action(self, posted: Mapping[str, list[str]]) -> bool:
        """Run the action of the button that was pressed (`_ACTIONS`); return whether a known button was pressed."""
        text = next(iter(posted.get(f"{self.prefix}.act", ())), "")
        verb, _, key = text.partition(":")
        key, _, value = key.partition(":")
        act = _ACTIONS.get(verb)
        if act is None:
            return False
        act(self, key, value)
        return True

    def parent_key(self, row: FilterRow) -> str:
        """Return the key of the row that directly contains a row, or an empty string."""
        return next((row_.key for row_ in self if any(row is inner for inner in row_.rows)), "")

    def siblings(self, key: str) -> tuple[list[FilterRow], int] | None:
        """Return the list that directly contains the row with this key, and the row's index in it, or None."""
        for rows in _levels(self.rows):
            for index, row in enumerate(rows):
                if row.key == key:
                    return rows, index
        return None

    def new_keys(self) -> Iterator[str]:
        """Return an endless iterator of keys that no row has yet."""
        used = {row.key for row in self}
        return (key for key in (f"n{number}" for number in count()) if key not in used)


def _parent_path(path: str) -> str:
    """Return a path without its last part: `a.value[1]` gives `a.value`, and `a.value` gives `a`."""
    return path[: max(path.rfind("["), path.rfind("."), 0)]


def _walk(rows: list[FilterRow]) -> Iterator[FilterRow]:
    for row in rows:
        yield row
        yield from _walk(row.rows)


def _levels(rows: list[FilterRow]) -> Iterator[list[FilterRow]]:
    yield rows
    for row in rows:
        yield from _levels(row.rows)


def _assign_paths(rows: list[FilterRow], path: str, strict: bool) -> None:
    """Set the error path of each row that becomes a filter.

    With `strict` this is each row with a field, otherwise each complete row.
    """
    index = 0
    for row in rows:
        row.path = ""
        if (not row.is_blank) if strict else row.is_complete:
            row.path = f"{path}[{index}]"
            index += 1
            _assign_paths(row.rows, f"{row.path}.value" + (".where" if row.type == "history" else ""), strict)


def _chosen_filters(rows: list[FilterRow]) -> list[dict[str, Any]]:
    filters = []
    for row in rows:
        if row.is_blank:
            continue
        filter_ = row.to_filter()
        if row.type == "group":
            filter_["value"] = _chosen_filters(row.rows)
        elif row.type == "history" and _chosen_filters(row.rows):
            filter_["value"]["where"] = _chosen_filters(row.rows)
        filters.append(filter_)
    return filters


def _read_rows(
    posted: Mapping[str, list[str]], prefix: str, name: str, depth: int, seen_keys: set[str]
) -> list[FilterRow]:
    rows = []
    for key in posted.get(name, ()):
        if depth > MAX_DEPTH + 1 or key in seen_keys or not _KEY.fullmatch(key) or len(seen_keys) >= MAX_ROWS:
            continue
        seen_keys.add(key)
        url = f"{prefix}.{key}."

        def first(what: str, url: str = url) -> str:
            return next(iter(posted.get(url + what, ())), "").strip()

        row = FilterRow(key, first("name"), first("predicate"))
        row.extra = {what: text for what in EXTRA_KEYS if (text := first(what))}
        row.values = [text.replace("\r\n", "\n") for text in posted.get(f"{url}value", ())]
        row.rows = _read_rows(posted, prefix, f"{url}row", depth + 1, seen_keys)
        row.values = typed_values.clean_values(row)
        row.normalize()
        rows.append(row)
    return rows


def _rows_from_filters(raw: Any, key: str) -> Iterator[FilterRow]:
    for index, filter_ in enumerate(raw if isinstance(raw, list) else []):
        row = FilterRow(f"{key}{'-' if key else ''}{index}", filter_["name"], filter_["predicate"])
        value = filter_.get("value")
        if row.name == "group":
            row.rows = list(_rows_from_filters(value, row.key))
        elif row.name == "event":
            row.name = f"event:{value['event']}"
            row.extra = typed_values.format_history(value)
            row.rows = list(_rows_from_filters(value.get("where") or [], row.key))
        else:
            typed_values.set_value(row, value)
        yield row


def _add(rows: FilterRows, key: str, name: str) -> None:
    place = rows.siblings(key)
    row = FilterRow(next(rows.new_keys()), name)
    row.normalize()
    if key and place is None:
        return
    (place[0][place[1]].rows if place else rows.rows).append(row)


def _remove(rows: FilterRows, key: str, _: str) -> None:
    if place := rows.siblings(key):
        del place[0][place[1]]


def _move(step: int) -> Any:
    def move(rows: FilterRows, key: str, _: str) -> None:
        if place := rows.siblings(key):
            siblings, index = place
            siblings.insert(max(0, index + step), siblings.pop(index))

    return move


def _copy(rows: FilterRows, key: str, _: str) -> None:
    if place := rows.siblings(key):
        keys = rows.new_keys()
        place[0].insert(place[1] + 1, _clone(keys, place[0][place[1]]))


def _clone(keys: Iterator[str], row: FilterRow) -> FilterRow:
    clone = FilterRow(next(keys), row.name, row.predicate, list(row.values))
    clone.extra = dict(row.extra)
    clone.rows = [_clone(keys, inner) for inner in row.rows]
    return clone


def _toggle_value(rows: FilterRows, key: str, value: str) -> None:
    """Select a suggested value: in a row with several values add or remove it, in any other row replace the value.

    Case is ignored, as in the comparison.
    """
    if place := rows.siblings(key):
        row = place[0][place[1]]
        takes_several = row.value_kind in typed_values.MULTI_VALUE_KINDS
        others = [text for text in row.values if fold_case(text) != fold_case(value)]
        was_selected = len(others) < len(row.values)
        row.values = [*others, *([] if was_selected else [value])] if takes_several else [value]


def _set_kind(rows: FilterRows, key: str, kind: str) -> None:
    """Change the type as which the values of a row are compared."""
    if place := rows.siblings(key):
        place[0][place[1]].extra["kind"] = kind


def _shuffle(rows: FilterRows, _key: str, _value: str) -> None:
    """Change the seed, so that the sample shows other contacts."""
    rows.seed += 1


_ACTIONS = {
    "shuffle": _shuffle,
    "add": _add,
    "remove": _remove,
    "up": _move(-1),
    "down": _move(1),
    "copy": _copy,
    "pick": _toggle_value,
    "kind": _set_kind,
}
