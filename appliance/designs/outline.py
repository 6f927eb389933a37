"""The sections of a design by a name each that is safe in an address, in a page and in a script: for those who edit.

Documents are stored as they came: ids may be there twice, be numbers, or hold anything a text can hold.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from appliance.designs import document
from appliance.designs.document import Section

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
    found = list(_walk(document.sections(design), "sections", "", 0, 0))
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


def _walk(raw: list[Any], path: str, parent: str, column: int, level: int) -> Iterator[Entry]:
    for index, one in enumerate(raw):
        if not isinstance(one, dict):
            continue
        found = document.section(one, f"{path}[{index}]")
        yield Entry(found.id, found, one, raw, parent, column, index, level)
        if found.kind is not None and found.kind.name == "columns" and level < document.MAX_LEVELS:
            for number, inner in enumerate(columns(one)):
                here = f"{found.path}.props.columns[{number}].sections"
                if isinstance(inner, dict) and isinstance(inner.get("sections"), list):
                    # The parent by what it is, until every key is known
                    yield from _walk(inner["sections"], here, str(id(one)), number, level + 1)


def columns(raw: dict[str, Any]) -> list[Any]:
    """Return the columns of a section as they came."""
    own = raw.get("props")
    found = own.get("columns") if isinstance(own, dict) else None
    return found if isinstance(found, list) else []


def find(found: list[Entry], key: str) -> Entry | None:
    """Return the section of a key."""
    return next((one for one in found if one.key == key), None)


def top(found: list[Entry], key: str) -> str:
    """Return the key of the outermost section around one, which is itself where nothing is around it."""
    one = find(found, key)
    while one is not None and one.parent:
        key = one.parent
        one = find(found, key)
    return key
