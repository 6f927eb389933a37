"""Design documents: which kind each section is, and what no document may hold. They are stored as they came."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from appliance.content.designs import merge, props
from appliance.content.designs.kind import STYLES, Kind
from appliance.content.designs.sections import BY_NAME, KINDS
from appliance.content.designs.theme import THEME

MAX_SECTIONS = 200
MAX_COLUMN_SECTIONS = 50
MAX_LEVELS = 2
# Those in columns counted too; a message has room for no more
MAX_IN_ALL = 1_000
# What other products, and older documents, call them
ALIASES = (("html", "content"), ("label", "text"))


class Section(NamedTuple):
    """A section of a document: its kind (None if nobody knows it), its properties, and where it stands."""

    kind: Kind | None
    type: str
    props: dict[str, Any]
    styles: dict[str, Any]
    path: str
    id: str


def sections(document: Any) -> list[Any]:
    """Return the sections of a document as they came."""
    found = document.get("sections") if isinstance(document, dict) else None
    return found if isinstance(found, list) else []


def section(raw: dict[str, Any], path: str) -> Section:
    """Read one section: its type, else what its properties look like (docs/decisions.md#11)."""
    own = raw.get("props")
    own = dict(own) if isinstance(own, dict) else {}
    styles = raw.get("styles")
    named = raw.get("type") or own.get("type")
    kind = BY_NAME.get(str(named)) if named else _inferred(own)
    if kind is not None:
        own = _renamed(own, kind)
    return Section(
        kind, str(named or (kind.name if kind else "")), own, dict(styles) if isinstance(styles, dict) else {}, path,
        str(raw.get("id") or ""),
    )  # fmt: skip


def _renamed(own: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Return properties by the names that their kind knows them by."""
    known = {name for one in kind.props for name in (one.name, *one.aliases)}
    address = next((name for name in ("href", "src") if name in known), "href")
    for alias, name in (*ALIASES, ("url", address)):
        if alias in own and alias not in known and name in known and own.get(name) is None:
            own = own | {name: own[alias]}
    return own


def _inferred(own: dict[str, Any]) -> Kind | None:
    """Return the kind that properties look like: the first that matches (docs/decisions.md#11)."""
    for alias, name in (*ALIASES, ("url", "href" if "text" in own or "label" in own else "src")):
        if alias in own and name not in own:
            own = own | {name: own[alias]}
    found = next((kind for kind in KINDS if kind.inferred(own)), None)
    return found or next((kind for kind in KINDS if kind.inferred_late(own)), None)


def walk(document: Any) -> Iterator[Section]:
    """Yield every section, those within columns too, in the order of reading."""
    yield from _walk(sections(document), "sections", 0)


def _walk(raw: list[Any], path: str, level: int) -> Iterator[Section]:
    for index, one in enumerate(raw):
        if not isinstance(one, dict):
            continue
        found = section(one, f"{path}[{index}]")
        yield found
        if found.kind is not None and found.kind.name == "columns" and level < MAX_LEVELS:
            columns = found.props.get("columns")
            for number, column in enumerate(columns if isinstance(columns, list) else []):
                if isinstance(column, dict) and isinstance(column.get("sections"), list):
                    yield from _walk(column["sections"], f"{found.path}.props.columns[{number}].sections", level + 1)


def check(document: dict[str, Any], add: Callable[[str, str], None]) -> None:
    """Tell `add` (path, words) everything that no document may hold."""
    raw = document.get("sections", [])
    if not isinstance(raw, list):
        add("sections", "is invalid")
    elif len(raw) > MAX_SECTIONS:
        add("sections", f"is too long (maximum is {MAX_SECTIONS} entries)")
    elif sum(1 for _ in islice(walk(document), MAX_IN_ALL + 1)) > MAX_IN_ALL:
        add("sections", f"is too long (maximum is {MAX_IN_ALL} entries, those in columns too)")
    elif sum(text.count("{{") + text.count("{%") for text in strings(document)) > merge.MAX_TAGS:
        add("sections", f"more than {merge.MAX_TAGS} tags")
    else:
        theme = document.get("theme")
        if not isinstance(theme, dict | None):
            add("theme", "is invalid")
        for prop in THEME:
            props.faults(prop, prop.of(theme), f"theme.{prop.name}", add)
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
        if not isinstance(one.get("id"), str | int | None) or isinstance(one.get("id"), bool):
            add(f"{here}.id", "is invalid")
        if not isinstance(one.get("type"), str | None):
            add(f"{here}.type", "is invalid")
        found = section(one, here)
        for prop in STYLES:
            props.faults(prop, prop.of(found.styles), f"{here}.styles.{prop.name}", add)
        if found.kind is None:
            continue  # its properties are kept as they are, shown as such, and a blocker on send
        for prop in found.kind.all_props():
            props.faults(prop, prop.of(found.props), f"{here}.props.{prop.name}", add)
        if found.kind.name == "columns":
            _check_columns(found, level, add)


def _check_columns(found: Section, level: int, add: Callable[[str, str], None]) -> None:
    columns = found.props.get("columns")
    path = f"{found.path}.props.columns"
    if level >= MAX_LEVELS:
        add(path, f"is nested too deeply (maximum is {MAX_LEVELS} levels)")
        return
    for number, column in enumerate(columns if isinstance(columns, list) else []):
        inner = column.get("sections") if isinstance(column, dict) else None
        here = f"{path}[{number}].sections"
        if inner is None:
            continue
        if not isinstance(inner, list):
            add(here, "is invalid")
        elif len(inner) > MAX_COLUMN_SECTIONS:
            add(here, f"is too long (maximum is {MAX_COLUMN_SECTIONS} entries)")
        else:
            _check(inner, here, level + 1, add)


def unknown(document: Any) -> list[Section]:
    """Return the sections that nobody knows how to show."""
    return [one for one in walk(document) if one.kind is None]


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a document, for those who look for merge tags; in the order of reading."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting.extend(reversed(list(one.values())))
        elif isinstance(one, list):
            waiting.extend(reversed(one))


def with_footer(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that ends in the footer that the law wants, and nothing more."""
    footer = {"type": "footer", "props": {"preferences": False, "view_in_browser": False}}
    return {**document, "sections": [*sections(document), footer]}


def canonical(document: Any) -> str:
    """Return a document as one text, the same for the same document."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


# The sections of a design by a name each that is safe in an address, in a page and in a script: for those who edit.
#
# Documents are stored as they came: ids may be there twice, be numbers, or hold anything a text can hold.

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class Entry(NamedTuple):
    """A section where it stands, at which `position` of which list (`siblings`); `parent` is the key of its columns.

    `raw` and `siblings` are the document's own: whoever changes them changes it.
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
        """Return what the section is called: as its author named it, else its kind."""
        own = self.section.props.get("name")
        has_name = self.section.kind is not None and "name" not in {one.name for one in self.section.kind.props}
        if has_name and isinstance(own, str) and own.strip():
            return own.strip()
        return self.section.kind.label if self.section.kind is not None else "Section from the API"


def entries(design: Any) -> list[Entry]:
    """Return every section, those in columns too, in the order of reading."""
    found = list(_walk_outline(sections(design), "sections", "", 0, 0))
    taken = {one.key for one in found}
    made: list[Entry] = []
    seen: set[str] = set()
    keys: dict[int, str] = {}
    for one in found:
        key = one.key
        if key in seen or not _SAFE.match(key):
            key = _made_up(key, seen | taken)
        seen.add(key)
        keys[id(one.raw)] = key
        made.append(one._replace(key=key, parent=keys.get(int(one.parent), "") if one.parent else ""))
    return made


def _made_up(key: str, taken: set[str]) -> str:
    number = 0
    while True:
        found = "x" + hashlib.blake2b(f"{number}\0{key}".encode("utf-8", "replace"), digest_size=5).hexdigest()
        number += 1
        if found not in taken:
            return found


def _walk_outline(raw: list[Any], path: str, parent: str, column: int, level: int) -> Iterator[Entry]:
    for index, one in enumerate(raw):
        if not isinstance(one, dict):
            continue
        found = section(one, f"{path}[{index}]")
        yield Entry(found.id, found, one, raw, parent, column, index, level)
        if found.kind is not None and found.kind.name == "columns" and level < MAX_LEVELS:
            for number, inner in enumerate(columns(one)):
                here = f"{found.path}.props.columns[{number}].sections"
                if isinstance(inner, dict) and isinstance(inner.get("sections"), list):
                    # The parent by what it is, until every key is known
                    yield from _walk_outline(inner["sections"], here, str(id(one)), number, level + 1)


def columns(raw: dict[str, Any]) -> list[Any]:
    """Return the columns of a section as they came."""
    own = raw.get("props")
    found = own.get("columns") if isinstance(own, dict) else None
    return found if isinstance(found, list) else []


def find_section(found: list[Entry], key: str) -> Entry | None:
    """Return the section of a key."""
    return next((one for one in found if one.key == key), None)


def top_section(found: list[Entry], key: str) -> str:
    """Return the key of the outermost section around one, which is itself where nothing is around it."""
    one = find_section(found, key)
    while one is not None and one.parent:
        key = one.parent
        one = find_section(found, key)
    return key
