"""The links of a mail, numbered in the order of reading, so that a report can draw its numbers on the mail."""

import re
from html import unescape
from typing import NamedTuple

from appliance.designs import places, plaintext
from appliance.designs.places import Element

_MOST_WORDS = 120
_LONGEST = 20_000
_ANCHOR = re.compile(r"<(a|area)(?=[\s/])", re.IGNORECASE)
_CLOSE = re.compile(r"</a\s*>", re.IGNORECASE)


class Link(NamedTuple):
    """A link of a template: its number from 1, its address with merge tags in place, and what a reader sees of it."""

    number: int
    href: str
    words: str


def of(html: str) -> tuple[Link, ...]:
    """Answer the links of HTML with merge tags; the same address twice is two links, for they stand in two places.

    What only Outlook draws stands in comments and repeats what others see, so it is not counted.
    """
    masked = places.without_comments(places.masked(html))
    anchors = list(places.elements(masked, _ANCHOR))
    found: list[Link] = []
    for index, one in enumerate(anchors):
        href = one.value("href")
        address = unescape(html[href.start : href.end]).strip() if href else ""
        if address:
            until = anchors[index + 1].start if index + 1 < len(anchors) else len(html)
            found.append(Link(len(found) + 1, address, _words(html, masked, one, min(until, one.end + _LONGEST))))
    return tuple(found)


def _words(html: str, masked: str, anchor: Element, until: int) -> str:
    """Answer what stands between a link's beginning and its end; merge tags as they are."""
    end = _CLOSE.search(masked, anchor.end, until)
    stop = end.start() if end else anchor.end
    return " ".join(plaintext.from_template(html[anchor.end : stop]).split())[:_MOST_WORDS]
