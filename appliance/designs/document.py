"""Design documents: which kind each section is, and what no document may hold. They are stored as they came."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from appliance.designs import props
from appliance.designs.kind import COMMON, STYLES, Kind
from appliance.designs.sections import BY_NAME, KINDS

MOST_SECTIONS = 200
MOST_COLUMN_SECTIONS = 50
MOST_LEVELS = 2
_ADDRESSES = {"html": "content", "url": "href", "label": "text"}


class Section(NamedTuple):
    """A section of a document: its kind (None if nobody knows it), its properties, and where it stands."""

    kind: Kind | None
    type: str
    props: dict[str, Any]
    styles: dict[str, Any]
    path: str
    id: str


def sections(document: Any) -> list[Any]:
    """Answer the sections of a document as they came."""
    found = document.get("sections") if isinstance(document, dict) else None
    return found if isinstance(found, list) else []


def section(raw: dict[str, Any], path: str) -> Section:
    """Read one section: its type, else what its properties look like (decisions, section 11)."""
    own = raw.get("props")
    own = dict(own) if isinstance(own, dict) else {}
    styles = raw.get("styles")
    named = raw.get("type") or own.get("type")
    kind = BY_NAME.get(str(named)) if named else _inferred(own)
    if kind is not None:
        known = {name for one in kind.props for name in (one.name, *one.aliases)}
        for alias, name in _ADDRESSES.items():
            if alias in own and alias not in known:
                own.setdefault("src" if name == "href" and "href" not in known else name, own[alias])
    return Section(
        kind, str(named or (kind.name if kind else "")), own, dict(styles) if isinstance(styles, dict) else {}, path,
        str(raw.get("id") or ""),
    )  # fmt: skip


def _inferred(own: dict[str, Any]) -> Kind | None:
    if "html" in own and "content" not in own:
        own = own | {"content": own["html"]}
    return next((kind for kind in KINDS if kind.inferred(own)), None)


def walk(document: Any) -> Iterator[Section]:
    """Yield every section, those within columns too, in the order of reading."""
    yield from _walk(sections(document), "sections", 0)


def _walk(raw: list[Any], path: str, level: int) -> Iterator[Section]:
    for index, one in enumerate(raw):
        if not isinstance(one, dict):
            continue
        found = section(one, f"{path}[{index}]")
        yield found
        if found.kind is not None and found.kind.name == "columns" and level < MOST_LEVELS:
            columns = found.props.get("columns")
            for number, column in enumerate(columns if isinstance(columns, list) else []):
                if isinstance(column, dict) and isinstance(column.get("sections"), list):
                    yield from _walk(column["sections"], f"{found.path}.props.columns[{number}].sections", level + 1)


def check(document: dict[str, Any], add: Callable[[str, str], None]) -> None:
    """Tell `add` (path, words) everything that no document may hold."""
    raw = document.get("sections", [])
    if not isinstance(raw, list):
        add("sections", "is invalid")
        return
    if len(raw) > MOST_SECTIONS:
        add("sections", f"is too long (maximum is {MOST_SECTIONS} entries)")
        return
    if not isinstance(document.get("theme"), dict | None):
        add("theme", "is invalid")
    _check(raw, "sections", 0, add)


def _check(raw: list[Any], path: str, level: int, add: Callable[[str, str], None]) -> None:
    for index, one in enumerate(raw):
        here = f"{path}[{index}]"
        if not isinstance(one, dict):
            add(here, "is invalid")
            continue
        for name in ("props", "styles"):
            if not isinstance(one.get(name), dict | None):
                add(f"{here}.{name}", "is invalid")
        found = section(one, here)
        if found.kind is None:
            continue  # kept as it is, shown as such, and a blocker on send
        for prop in (*found.kind.props, *COMMON):
            props.faults(prop, prop.of(found.props), f"{here}.props.{prop.name}", add)
        for prop in STYLES:
            props.faults(prop, prop.of(found.styles), f"{here}.styles.{prop.name}", add)
        if found.kind.name == "columns":
            _check_columns(found, level, add)


def _check_columns(found: Section, level: int, add: Callable[[str, str], None]) -> None:
    columns = found.props.get("columns")
    path = f"{found.path}.props.columns"
    if level >= MOST_LEVELS:
        add(path, f"is nested too deeply (maximum is {MOST_LEVELS} levels)")
        return
    for number, column in enumerate(columns if isinstance(columns, list) else []):
        inner = column.get("sections") if isinstance(column, dict) else None
        here = f"{path}[{number}].sections"
        if inner is None:
            continue
        if not isinstance(inner, list):
            add(here, "is invalid")
        elif len(inner) > MOST_COLUMN_SECTIONS:
            add(here, f"is too long (maximum is {MOST_COLUMN_SECTIONS} entries)")
        else:
            _check(inner, here, level + 1, add)


def unknown(document: Any) -> list[Section]:
    """Answer the sections that nobody knows how to show."""
    return [one for one in walk(document) if one.kind is None]


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a document, for those who look for merge tags."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def canonical(document: Any) -> str:
    """Answer a document as one text, the same for the same document."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
