"""The links of a mail, numbered in the order of reading, so that a report can draw its numbers on the mail."""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from html.entities import html5
from itertools import islice
from typing import NamedTuple

from appliance.content.designs import merge, places, plaintext, tags
from appliance.content.designs.places import Attribute, Element
from appliance.content.designs.tags import TAG

_MAX_WORDS = 120
_MAX_CHARACTERS = 20_000
_ANCHOR = re.compile(r"<(a|area)(?=[\s/])", re.IGNORECASE)
_CLOSE = re.compile(r"</a\s*>", re.IGNORECASE)
_REFERENCE = re.compile(r"&(?:#(\d{1,7});?|#[xX]([0-9a-fA-F]{1,6});?|([A-Za-z][A-Za-z0-9]{1,40})(;?)(=?))")
# An address in a text, its merge tags blotted out
_IN_TEXT = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
# What stands in no address, and before or behind one without a space: quotes, dots, and the signs of East Asia
_ASIDE = re.compile("[“”„‘’‚«»‹›…\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]")
# What ends a sentence and not an address
_BEHIND = ".,;:!?'*_"
_OPENED = {")": "(", "]": "["}
# So many of them are looked at for an address that is known
_MAX_BEHIND = 100


class Link(NamedTuple):
    """A link of a template: its number from 1, its address with merge tags in place, and what a reader sees of it."""

    number: int
    href: str
    words: str


class Place(NamedTuple):
    """Where the address of a link stands, and what it is."""

    start: int
    end: int
    address: str


def of(html: str, text: str = "") -> tuple[Link, ...]:
    """Return the links of HTML with merge tags; the same address twice is two links, for they stand in two places.

    What only Outlook draws stands in comments and repeats what others see, so it is not counted. Behind them come the
    addresses that only the text part names, each once.
    """
    masked = places.without_comments(places.masked(html))
    found: list[Link] = []
    for one, place, until in _anchors(html, masked):
        found.append(
            Link(len(found) + 1, place.address, _words(html, masked, one, min(until, one.end + _MAX_CHARACTERS)))
        )
    known = {one.href for one in found}
    for place in in_text(text, known):
        if place.address not in known:
            known.add(place.address)
            found.append(Link(len(found) + 1, place.address, ""))
    return tuple(found)


def in_html(html: str) -> list[Place]:
    """Return where the addresses of links stand in HTML, in the order of their numbers."""
    return [place for _, place, _ in _anchors(html, places.without_comments(places.masked(html)))]


def in_text(text: str, known: set[str]) -> Iterator[Place]:
    """Yield the addresses in a text; one that is known ends where it is known to, another where a sentence may."""
    masked = places.masked(text)
    for found in _IN_TEXT.finditer(masked):
        start, longest = found.span()
        known_ends = (end for end in islice(_ends(masked, start, longest), _MAX_BEHIND) if text[start:end] in known)
        end = next(known_ends, None)
        if end is None:
            aside = _ASIDE.search(masked, start, longest)
            (end,) = deque(_ends(masked, start, longest if aside is None else aside.start()), 1)
        yield Place(start, end, text[start:end])


def _ends(masked: str, start: int, end: int) -> Iterator[int]:
    """Yield where an address may end: at the end, or before signs that stand behind one; a bracket does if none was
    opened."""
    count = {sign: masked.count(sign, start, end) for sign in "()[]"}
    yield end
    while end > start:
        last = masked[end - 1]
        is_behind = count[last] > count[_OPENED[last]] if last in _OPENED else last in _BEHIND
        if not is_behind:
            return
        if last in count:
            count[last] -= 1
        end -= 1
        yield end


def _anchors(html: str, masked: str) -> Iterator[tuple[Element, Place, int]]:
    """Yield what leads somewhere, the place of its address, and where the next anchor begins."""
    anchors = list(places.elements(masked, _ANCHOR))
    for index, one in enumerate(anchors):
        href = one.value("href")
        address = decoded(html, href).strip() if href else ""
        if href is not None and address:
            yield (
                one,
                Place(href.start, href.end, address),
                (anchors[index + 1].start if index + 1 < len(anchors) else len(html)),
            )


def decoded(html: str, attribute: Attribute) -> str:
    """Return the value of an attribute as browsers read it, merge tags as they stand.

    There a name without a semicolon is one only if nothing of a word follows: `&copy=1` begins a parameter (HTML,
    13.2.5.73), where a text would say ©.
    """
    parts = tags.split(html[attribute.start : attribute.end])
    return "".join(part if index % 2 else _REFERENCE.sub(_meant, part) for index, part in enumerate(parts))


def _meant(found: re.Match[str]) -> str:
    if found[3] is None:
        number = int(found[1]) if found[1] else int(found[2], 16)
        return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    name, ended, follows = found[3], found[4], found[5]
    meant = html5.get(f"{name};") if ended else None if follows else html5.get(name)
    return found[0] if meant is None else meant + follows


def _words(html: str, masked: str, anchor: Element, until: int) -> str:
    """Return what stands between a link's beginning and its end; merge tags as they are."""
    end = _CLOSE.search(masked, anchor.end, until)
    stop = end.start() if end else anchor.end
    return " ".join(plaintext.from_template(html[anchor.end : stop]).split())[:_MAX_WORDS]


# A mail whose links lead through us: the addresses of what it counts, and the picture at its end that tells an open.
#
# All but the token of a message is the same for everybody who gets it, so it stands in the template as plain words.
# What an address says of a person is not in the mail: it is filled in when somebody follows the link.

# Where the tokens of a message stand among the values of its merge tags
ROOT, CLICK, OPEN = "track", "track.click", "track.open"
_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
# A host that is written out, and ends before any merge tag
_WRITTEN = re.compile(rf"https?://[^\s/?#\\{places.MARK}]+(?:[/?#]|\Z)", re.IGNORECASE)
_LOOP = re.compile(r"\{%-?\s*for\s+(\w+)\s+in\b")
_WORD = re.compile(r"\{%-?\s*(\w+)")
_NONE: frozenset[str] = frozenset()


def loops(source: str) -> frozenset[str]:
    """Return the names that loops of a template give to what they go through."""
    return frozenset(found[1] for found in _LOOP.finditer(source)) if "{%" in source else _NONE


def has_host(address: str) -> bool:
    """Return whether an address is one of a page whose host is written out, whatever is filled into the rest of it."""
    return _WRITTEN.match(places.masked(address)) is not None


def is_target(address: str, bound: frozenset[str] = _NONE) -> bool:
    """Return whether an address may be led to through us, whatever is filled into it.

    Its host is written out: what somebody says in their data, or a caller in theirs, never decides where a link of ours
    leads. Its merge tags say something that is known without the mail around it, not what a loop goes through.
    """
    if not has_host(address):
        return False
    if "{{" not in address and "{%" not in address:
        return True
    try:
        names = {name.partition(".")[0] for name in merge.compile_template(address, "url").variables}
    except merge.MergeError:
        return False
    return names <= set(merge.ROOTS) - bound


def rewritten(html: str, text: str, addresses: Iterable[str], base: str) -> tuple[str, str]:
    """Return HTML and text whose links lead through us, for the addresses of a mail by their numbers (`links.of`).

    A link that stands under another number than it was given, or under none, stays as it is.
    """
    bound = loops(html) | loops(text)
    numbers: dict[str, int] = {}
    by_number = list(addresses)
    targets = {one for one in set(by_number) if is_target(one, bound)}
    for number, one in enumerate(by_number, 1):
        numbers.setdefault(one, number)
    wanted: list[tuple[Place, int]] = []
    for index, place in enumerate(in_html(html)):
        if place.address in targets:
            same = index < len(by_number) and by_number[index] == place.address
            wanted.append((place, index + 1 if same else numbers[place.address]))
    said = [(place, numbers[place.address]) for place in in_text(text, targets) if place.address in targets]
    return _with_picture(_replaced(html, wanted, base), base), _replaced(text, said, base)


def _verbatim(source: str) -> list[tuple[int, int]]:
    """Return from where to where a template shows what stands there as it is, or not at all."""
    found: list[tuple[int, int]] = []
    inside, start = "", 0
    for tag in TAG.finditer(source) if "{%" in source else ():
        word = _WORD.match(tag[0])
        if word is None:
            continue
        if not inside and word[1] in ("raw", "comment"):
            inside, start = word[1], tag.end()
        elif inside and word[1] == f"end{inside}":
            found.append((start, tag.start()))
            inside = ""
    return found


def _replaced(source: str, wanted: list[tuple[Place, int]], base: str) -> str:
    parts: list[str] = []
    position = 0
    kept = _verbatim(source)
    for place, number in wanted:
        before = bisect_right(kept, (place.start, len(source)))
        if before and place.start < kept[before - 1][1]:
            continue  # no token is filled in there
        parts += (source[position : place.start], f"{base}/c/{{{{ {CLICK} }}}}-{number}")
        position = place.end
    return "".join((*parts, source[position:]))


def _with_picture(html: str, base: str) -> str:
    """Put the picture at the end, where it is asked for once all the rest has arrived."""
    picture = f'<img src="{base}/o/{{{{ {OPEN} }}}}.gif" width="1" height="1" alt="" style="display:block;border:0">'
    ends = list(_END_OF_BODY.finditer(html))
    return f"{html[: ends[-1].start()]}{picture}\n{html[ends[-1].start() :]}" if ends else f"{html}\n{picture}"


def without_picture(html: str, base: str) -> str:
    """Return a mail as it left without the picture: who looks at it here is not its reader."""
    return re.sub(rf'<img src="{re.escape(base)}/o/[^"<>]*"[^<>]*>', "", html)
