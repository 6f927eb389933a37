"""Where things stand in HTML with merge tags: elements and attributes by their place, in one pass over the text."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from appliance.content.designs.tags import TAG

# What stands for a character of a merge tag: no letter, no quote, no space
MARK = "\ue000"
_ELEMENT = re.compile(r"<([a-zA-Z][a-zA-Z0-9:-]*)")
_ATTRIBUTE = re.compile(r"[\s/]*(?:(>)|([^\s/>=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]*)))?|=)")
# The beginning of an element that surely has no merge tag in it
_UNMARKED = re.compile(rf"<[^<>\"'{MARK}]*(?:\"[^\"<>{MARK}]*\"[^<>\"'{MARK}]*|'[^'<>{MARK}]*'[^<>\"'{MARK}]*)*>")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


class Attribute(NamedTuple):
    """An attribute with a value, and from where to where the value stands."""

    name: str
    start: int
    end: int


class Element(NamedTuple):
    """The beginning of an element, from where to where it stands, and how many attributes it has in all."""

    name: str
    start: int
    end: int
    attributes: tuple[Attribute, ...]
    many: int

    def value(self, name: str) -> Attribute | None:
        """Return an attribute by its name."""
        return next((one for one in self.attributes if one.name == name), None)


def masked(html: str) -> str:
    """Return HTML with its merge tags blotted out, every place in it the same."""
    return TAG.sub(lambda found: MARK * len(found[0]), html)


def without_comments(html: str) -> str:
    """Return HTML with its comments blotted out, every place in it the same."""
    return _COMMENT.sub(lambda found: " " * len(found[0]), html)


def elements(html: str, names: re.Pattern[str] = _ELEMENT, only_marked: bool = False) -> Iterator[Element]:
    """Yield the beginnings of all elements of masked HTML, those in comments too: Outlook reads them.

    With `only_marked` those are left out that have no merge tag in them, which is quicker.
    """
    position = 0
    while (found := names.search(html, position)) is not None:
        unmarked = _UNMARKED.match(html, found.start()) if only_marked else None
        if unmarked is not None:
            position = unmarked.end()
            continue
        attributes, position, many = [], found.end(), 0
        while (one := _ATTRIBUTE.match(html, position)) is not None:
            position = one.end()
            if one[1]:
                break
            many += 1
            value = next((number for number in (3, 4, 5) if one[number] is not None), None)
            if value is not None:
                attributes.append(Attribute(one[2].lower(), one.start(value), one.end(value)))
        yield Element(found[1].lower(), found.start(), position, tuple(attributes), many)
