"""Design documents: read and validate their sections, give them keys for the editor, and describe them for the API.

`describe_designs` is the response of `/templates/spec`. The kinds of sections are in `sections`.
"""

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from appliance.content.designs import merge, merge_limits
from appliance.content.designs.kind import COMMON, STYLES, THEME, Kind, validate_value
from appliance.content.designs.sections import BY_NAME, KINDS
from appliance.core.i18n import gettext, gettext_noop

MAX_SECTIONS = 200
MAX_COLUMN_SECTIONS = 50
MAX_COLUMN_LEVELS = 2
# The maximum number of sections in a document, including those in columns.
MAX_TOTAL_SECTIONS = 1_000
# Property names of other products and of older documents, with our names.
ALIASES = (("html", "content"), ("label", "text"))


class Section(NamedTuple):
    """A section of a document: its kind (None if unknown), type, properties and styles.

    `path` is its position in the document (`sections[2].props.columns[0].sections[1]`). `id` is the section's id in the
    document, which need not be unique, or an empty string.
    """

    kind: Kind | None
    type: str
    props: dict[str, Any]
    styles: dict[str, Any]
    path: str
    id: str


def get_sections(document: Any) -> list[Any]:
    """Return the unvalidated top-level sections of a document, or an empty list if it has none."""
    sections = document.get("sections") if isinstance(document, dict) else None
    return sections if isinstance(sections, list) else []


def read_section(raw: dict[str, Any], path: str) -> Section:
    """Parse a section of a document, without validation.

    The kind follows from the type, or without a type from the properties (docs/decisions.md#11). The values of aliases
    are added under the names that the kind declares.
    """
    props = raw.get("props")
    props = dict(props) if isinstance(props, dict) else {}
    styles = raw.get("styles")
    type_name = raw.get("type") or props.get("type")
    kind = BY_NAME.get(str(type_name)) if type_name else _infer_kind(props)
    if kind is not None:
        props = _apply_aliases(props, kind)
    return Section(
        kind, str(type_name or (kind.name if kind else "")), props, dict(styles) if isinstance(styles, dict) else {},
        path,        str(raw.get("id") or ""),
    )  # fmt: skip


def _apply_aliases(props: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Return the properties with the values of aliases added under the names that the kind declares.

    The aliases are `ALIASES` and `url`. A declared property that has a value keeps it.
    """
    known_names = {name for prop in kind.props for name in (prop.name, *prop.aliases)}
    address = next((name for name in ("href", "src") if name in known_names), "href")
    for alias, name in (*ALIASES, ("url", address)):
        if alias in props and alias not in known_names and name in known_names and props.get(name) is None:
            props = props | {name: props[alias]}
    return props


def _infer_kind(props: dict[str, Any]) -> Kind | None:
    """Return the first kind that the properties match exactly, else the first that they match loosely, else None.

    docs/decisions.md#11 defines the order and the properties.
    """
    for alias, name in (*ALIASES, ("url", "href" if "text" in props or "label" in props else "src")):
        if alias in props and name not in props:
            props = props | {name: props[alias]}
    kind = next((kind for kind in KINDS if kind.matches(props)), None)
    return kind or next((kind for kind in KINDS if kind.matches_loosely(props)), None)


def walk_sections(document: Any) -> Iterator[Section]:
    """Yield every section in reading order, including those in columns."""
    yield from _walk_list(get_sections(document), "sections", 0)


def _walk_list(raw: list[Any], path: str, level: int) -> Iterator[Section]:
    for index, raw_section in enumerate(raw):
        if not isinstance(raw_section, dict):
            continue
        section = read_section(raw_section, f"{path}[{index}]")
        yield section
        if section.kind is not None and section.kind.name == "columns" and level < MAX_COLUMN_LEVELS:
            columns = section.props.get("columns")
            for number, column in enumerate(columns if isinstance(columns, list) else []):
                if isinstance(column, dict) and isinstance(column.get("sections"), list):
                    yield from _walk_list(
                        column["sections"], f"{section.path}.props.columns[{number}].sections", level + 1
                    )


def validate(document: dict[str, Any], add: Callable[[str, str], None]) -> None:
    """Validate a document and call `add(path, message)` for every error.

    A section of an unknown kind is not an error. If the document as a whole exceeds a limit, only that error is
    reported.
    """
    raw = document.get("sections", [])
    if not isinstance(raw, list):
        add("sections", gettext("is invalid"))
    elif len(raw) > MAX_SECTIONS:
        add("sections", gettext("is too long (maximum is %(limit)s entries)", limit=MAX_SECTIONS))
    elif sum(1 for _ in islice(walk_sections(document), MAX_TOTAL_SECTIONS + 1)) > MAX_TOTAL_SECTIONS:
        add(
            "sections",
            gettext("is too long (maximum is %(limit)s entries, those in columns too)", limit=MAX_TOTAL_SECTIONS),
        )
    elif sum(text.count("{{") + text.count("{%") for text in merge.iterate_strings(document)) > merge_limits.MAX_TAGS:
        add("sections", gettext("more than %(tags)s tags", tags=merge_limits.MAX_TAGS))
    else:
        theme = document.get("theme")
        if not isinstance(theme, dict | None):
            add("theme", gettext("is invalid"))
        for prop in THEME:
            validate_value(prop, prop.get_value(theme), f"theme.{prop.name}", add)
        _validate_sections(raw, "sections", 0, add)


def _validate_sections(raw: list[Any], path: str, level: int, add: Callable[[str, str], None]) -> None:
    for index, raw_section in enumerate(raw):
        item_path = f"{path}[{index}]"
        if not isinstance(raw_section, dict):
            add(item_path, gettext("is invalid"))
            continue
        for name in ("props", "styles"):
            if not isinstance(raw_section.get(name), dict | None):
                add(f"{item_path}.{name}", gettext("is invalid"))
        if not isinstance(raw_section.get("id"), str | int | None) or isinstance(raw_section.get("id"), bool):
            add(f"{item_path}.id", gettext("is invalid"))
        if not isinstance(raw_section.get("type"), str | None):
            add(f"{item_path}.type", gettext("is invalid"))
        section = read_section(raw_section, item_path)
        for prop in STYLES:
            validate_value(prop, prop.get_value(section.styles), f"{item_path}.styles.{prop.name}", add)
        if section.kind is None:
            continue  # properties of unknown kinds are stored unchanged; preflight refuses to send them
        for prop in section.kind.all_props():
            validate_value(prop, prop.get_value(section.props), f"{item_path}.props.{prop.name}", add)
        if section.kind.name == "columns":
            _validate_columns(section, level, add)


def _validate_columns(section: Section, level: int, add: Callable[[str, str], None]) -> None:
    columns = section.props.get("columns")
    path = f"{section.path}.props.columns"
    if level >= MAX_COLUMN_LEVELS:
        add(path, gettext("is nested too deeply (maximum is %(limit)s levels)", limit=MAX_COLUMN_LEVELS))
        return
    for number, column in enumerate(columns if isinstance(columns, list) else []):
        inner = column.get("sections") if isinstance(column, dict) else None
        inner_path = f"{path}[{number}].sections"
        if inner is None:
            continue
        if not isinstance(inner, list):
            add(inner_path, gettext("is invalid"))
        elif len(inner) > MAX_COLUMN_SECTIONS:
            add(inner_path, gettext("is too long (maximum is %(limit)s entries)", limit=MAX_COLUMN_SECTIONS))
        else:
            _validate_sections(inner, inner_path, level + 1, add)


def find_unknown(document: Any) -> list[Section]:
    """Return the sections whose kind is unknown."""
    return [section for section in walk_sections(document) if section.kind is None]


_ADDED_FOOTER = {"type": "footer", "props": {"preferences": False, "view_in_browser": False}}


def add_footer(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a document with a footer at the end that holds the postal address and the unsubscribe link."""
    return {**document, "sections": [*get_sections(document), copy.deepcopy(_ADDED_FOOTER)]}


def remove_added_footer(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as it was before `add_footer`."""
    sections = get_sections(document)
    return {**document, "sections": sections[:-1]} if sections and sections[-1] == _ADDED_FOOTER else document


def to_canonical_json(document: Any) -> str:
    """Return a document as JSON with sorted keys, so that equal documents give equal texts."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


# Section keys for the editor: unique, and safe in addresses, HTML and scripts. The ids in a document cannot be used as
# keys, because documents are stored as received, and their ids may be duplicates, numbers, or arbitrary text.

_SAFE_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class Entry(NamedTuple):
    """A section with its key and its position in the document.

    `parent` is the key of the enclosing columns section, empty at the top level; `column` is the index of the column
    and `position` the index among `siblings`. `level` counts the enclosing columns sections. `raw` and `siblings` are
    parts of the document itself: changing them changes the document.
    """

    key: str
    section: Section
    raw: dict[str, Any]
    siblings: list[Any]
    parent: str
    column: int
    position: int
    level: int

    @property
    def label(self) -> str:
        """Return the author's name for the section, or the label of its kind in the language of this request."""
        return self.own_name or gettext(self.stored_label)

    @property
    def stored_label(self) -> str:
        """Return the author's name for the section, or the label of its kind in English, as texts are stored."""
        return self.own_name or (
            self.section.kind.label if self.section.kind is not None else gettext_noop("Unknown section")
        )

    @property
    def own_name(self) -> str:
        """Return the author's name for the section, or an empty string."""
        name = self.section.props.get("name")
        has_name = self.section.kind is not None and "name" not in {prop.name for prop in self.section.kind.props}
        if has_name and isinstance(name, str) and name.strip():
            return name.strip()
        return ""


def list_entries(design: Any) -> list[Entry]:
    """Return every section in reading order, including those in columns, each with a unique key.

    The key is the section's id if it is safe and not used before, else a hash that stays the same for the same
    document.
    """
    raw_entries = list(_walk_entries(get_sections(design), "sections", "", 0, 0))
    taken_keys = {entry.key for entry in raw_entries}
    named_entries: list[Entry] = []
    seen_keys: set[str] = set()
    keys: dict[int, str] = {}
    for entry in raw_entries:
        key = entry.key
        if key in seen_keys or not _SAFE_KEY.match(key):
            key = _generate_key(key, seen_keys | taken_keys)
        seen_keys.add(key)
        keys[id(entry.raw)] = key
        named_entries.append(entry._replace(key=key, parent=keys.get(int(entry.parent), "") if entry.parent else ""))
    return named_entries


def _generate_key(key: str, taken_keys: set[str]) -> str:
    number = 0
    while True:
        candidate = "x" + hashlib.blake2b(f"{number}\0{key}".encode("utf-8", "replace"), digest_size=5).hexdigest()
        number += 1
        if candidate not in taken_keys:
            return candidate


def _walk_entries(raw: list[Any], path: str, parent: str, column: int, level: int) -> Iterator[Entry]:
    for index, raw_section in enumerate(raw):
        if not isinstance(raw_section, dict):
            continue
        section = read_section(raw_section, f"{path}[{index}]")
        yield Entry(section.id, section, raw_section, raw, parent, column, index, level)
        if section.kind is not None and section.kind.name == "columns" and level < MAX_COLUMN_LEVELS:
            for number, inner in enumerate(get_columns(raw_section)):
                inner_path = f"{section.path}.props.columns[{number}].sections"
                if isinstance(inner, dict) and isinstance(inner.get("sections"), list):
                    # Until `list_entries` has chosen the keys, `parent` is the `id()` of the enclosing section.
                    yield from _walk_entries(inner["sections"], inner_path, str(id(raw_section)), number, level + 1)


def get_columns(raw: dict[str, Any]) -> list[Any]:
    """Return the unvalidated columns of a section, or an empty list if it has none."""
    props = raw.get("props")
    columns = props.get("columns") if isinstance(props, dict) else None
    return columns if isinstance(columns, list) else []


def find_section(section_entries: list[Entry], key: str) -> Entry | None:
    """Return the entry with a key, or None."""
    return next((entry for entry in section_entries if entry.key == key), None)


def find_top_key(section_entries: list[Entry], key: str) -> str:
    """Return the key of the top-level section that encloses a section; for a top-level section, its own key."""
    entry = find_section(section_entries, key)
    while entry is not None and entry.parent:
        key = entry.parent
        entry = find_section(section_entries, key)
    return key


# The description of design documents, for API clients and the editor.

# The order of the kinds in `GET /templates/spec`; the palette of the editor is in `ui/widgets/editor_panels.py`.
_KIND_ORDER = (
    "header", "hero", "heading", "text", "image", "split", "button", "list", "quote", "columns", "product",
    "product_grid", "gallery", "coupon", "video", "divider", "spacer", "social", "html", "footer",
)  # fmt: skip


def describe_designs() -> dict[str, Any]:
    """Describe design documents for API clients and the editor.

    The keys are `kinds` (ordered by `_KIND_ORDER`), `theme`, `common`, `styles`, `colours` and `limits`.
    """
    first = [name for name in _KIND_ORDER if name in BY_NAME]
    return {
        "kinds": [BY_NAME[name].describe() for name in (*first, *(name for name in BY_NAME if name not in first))],
        "theme": [prop.describe() for prop in THEME],
        "common": [prop.describe() for prop in COMMON],
        "styles": [style.describe() for style in STYLES],
        "colours": ["#rrggbb", "a CSS name", "theme:brand", "theme:text", "theme:bg"],
        "limits": {
            "sections": MAX_SECTIONS, "column_sections": MAX_COLUMN_SECTIONS,
            "column_levels": MAX_COLUMN_LEVELS, "sections_in_all": MAX_TOTAL_SECTIONS,
        },
    }  # fmt: skip
