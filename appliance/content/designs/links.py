"""The links of an email: finding and numbering them, replacing them with tracking addresses, and the open pixel."""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from html.entities import html5
from itertools import islice, pairwise
from typing import NamedTuple

from appliance.content.designs import markup, merge, merge_limits
from appliance.content.designs.markup import Attribute, Element

_MAX_LINK_TEXT_CHARACTERS = 120
_MAX_CHARACTERS = 20_000
_ANCHOR = re.compile(r"<(a|area)(?=[\s/])", re.IGNORECASE)
# The characters of elements, merge tags and character references.
_MARKUP = re.compile(r"[<{&]")
_CLOSE = re.compile(r"</a\s*>", re.IGNORECASE)
_REFERENCE = re.compile(r"&(?:#(\d{1,7});?|#[xX]([0-9a-fA-F]{1,6});?|([A-Za-z][A-Za-z0-9]{1,40})(;?)(=?))")
# An address in plain text whose merge tags are masked.
_IN_TEXT = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
# An address without its scheme: a host that begins with www, has a path or a usual ending. An abbreviation does not
# match.
_BARE_IN_TEXT = re.compile(
    r"(?<![\w@/:.{-])(?:www\.[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,4}(?:/[^\s<>\"]{0,500})?"
    r"|[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,3}\.(?:[a-z]{2,24}/[^\s<>\"]{0,500}"
    r"|(?:com|net|org|info|shop|store|app|io|eu|uk|de|at|ch|fr|it|es|nl|be|pl|pt|br|ie|us|ca|au|jp)(?![\w@.-]?\w)))",
    re.IGNORECASE,
)
# Characters that no address contains, but that may follow one without a space: quotes, dots, East Asian punctuation.
_PUNCTUATION = re.compile("[“”„‘’‚«»‹›…\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]")
# Characters that at the end of an address belong to the sentence around it.
_TRAILING_PUNCTUATION = ".,;:!?'*_"
_OPENING_BRACKETS = {")": "(", "]": "["}
# The maximum number of shorter ends that are tried to find a known address.
_MAX_TRAILING_CHARACTERS = 100


class Link(NamedTuple):
    """A link of a template: its number from 1, its address with merge tags, and its visible text (`words`)."""

    number: int
    href: str
    words: str


class LinkPosition(NamedTuple):
    """The range of a link's address in a source, and the address itself."""

    start: int
    end: int
    address: str


def find_links(html: str, text: str = "") -> tuple[Link, ...]:
    """Return the links of an email in the order of their numbers.

    Each link in the HTML is listed, even if several have the same address. Links in comments, such as the conditional
    comments for Outlook, are left out. Addresses that only the plain text contains follow, each once and without
    visible text.
    """
    masked = markup.mask_comments(markup.mask_tags(html))
    links: list[Link] = []
    for anchor, place, until in _iterate_anchors(html, masked):
        links.append(
            Link(
                len(links) + 1,
                place.address,
                _link_text(html, masked, anchor, min(until, anchor.end + _MAX_CHARACTERS)),
            )
        )
    known_addresses = {link.href for link in links}
    for place in find_positions_in_text(text, known_addresses):
        if place.address not in known_addresses:
            known_addresses.add(place.address)
            links.append(Link(len(links) + 1, place.address, ""))
    return tuple(links)


def find_positions_in_html(html: str) -> list[LinkPosition]:
    """Return the positions of link addresses in HTML with merge tags, in the order of `find_links`."""
    return [place for _, place, _ in _iterate_anchors(html, markup.mask_comments(markup.mask_tags(html)))]


def find_bare_links(text: str) -> Iterator[LinkPosition]:
    """Yield the positions of addresses without `https://` in plain text, which are not tracked: `acme.example/menu`."""
    masked = markup.mask_tags(text)
    with_scheme = [match.span() for match in _IN_TEXT.finditer(masked)]
    for match in _BARE_IN_TEXT.finditer(masked):
        start, longest = match.span()
        if not any(first <= start < last for first, last in with_scheme):
            (end,) = deque(_iterate_ends(masked, start, longest), 1)
            yield LinkPosition(start, end, text[start:end])


def add_schemes(text: str) -> str:
    """Return a plain text with `https://` before each address that has no scheme."""
    for place in reversed(list(find_bare_links(text))):
        text = f"{text[: place.start]}https://{text[place.start :]}"
    return text


def find_positions_in_text(text: str, known_addresses: set[str]) -> Iterator[LinkPosition]:
    """Yield the positions of addresses in plain text.

    An address ends where it equals one of `known_addresses`, else before trailing punctuation.
    """
    masked = markup.mask_tags(text)
    for match in _IN_TEXT.finditer(masked):
        start, longest = match.span()
        if text[start:longest] in known_addresses:
            yield LinkPosition(start, longest, text[start:longest])
            continue
        known_ends = (
            end
            for end in islice(_iterate_ends(masked, start, longest), _MAX_TRAILING_CHARACTERS)
            if text[start:end] in known_addresses
        )
        end = next(known_ends, None)
        if end is None:
            aside = _PUNCTUATION.search(masked, start, longest)
            (end,) = deque(_iterate_ends(masked, start, longest if aside is None else aside.start()), 1)
        yield LinkPosition(start, end, text[start:end])


def _iterate_ends(masked: str, start: int, end: int) -> Iterator[int]:
    """Yield the possible ends of an address, the longest first.

    Each next end leaves out one more trailing punctuation mark or closing bracket. A closing bracket whose opening
    bracket is in the address belongs to the address.
    """
    count = {sign: masked.count(sign, start, end) for sign in "()[]"}
    yield end
    while end > start:
        last = masked[end - 1]
        is_behind = (
            count[last] > count[_OPENING_BRACKETS[last]] if last in _OPENING_BRACKETS else last in _TRAILING_PUNCTUATION
        )
        if not is_behind:
            return
        if last in count:
            count[last] -= 1
        end -= 1
        yield end


def _iterate_anchors(html: str, masked: str) -> Iterator[tuple[Element, LinkPosition, int]]:
    """Yield (anchor, position of its address, start of the next anchor) for each anchor that has an address."""
    anchors = list(markup.iterate_elements(masked, _ANCHOR))
    for index, anchor in enumerate(anchors):
        href = anchor.value("href")
        address = decode_attribute(html, href).strip() if href else ""
        if href is not None and address:
            yield (
                anchor,
                LinkPosition(href.start, href.end, address),
                (anchors[index + 1].start if index + 1 < len(anchors) else len(html)),
            )


def decode_attribute(html: str, attribute: Attribute) -> str:
    """Return an address in an attribute as browsers read it, with merge tags unchanged.

    A brace that is written as a character reference is percent-encoded, so that it does not begin a merge tag.
    In an attribute, a character reference without a semicolon does not count before `=`: `&copy=1` is a parameter, not
    © (HTML, 13.2.5.73).
    """
    value = html[attribute.start : attribute.end]
    if "&" not in value:
        return value
    parts = markup.split_tags(value)
    return "".join(part if index % 2 else _REFERENCE.sub(_decode_reference, part) for index, part in enumerate(parts))


def _decode_reference(match: re.Match[str]) -> str:
    if match[3] is None:
        number = int(match[1]) if match[1] else int(match[2], 16)
        if number == ord("{"):
            return "%7B"
        return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    name, ended, follows = match[3], match[4], match[5]
    character = html5.get(f"{name};") if ended else None if follows else html5.get(name)
    if character == "{":
        return "%7B" + follows
    return match[0] if character is None else character + follows


def _link_text(html: str, masked: str, anchor: Element, until: int) -> str:
    """Return the visible text of a link with merge tags unchanged; empty if the link is not closed before `until`."""
    end = _CLOSE.search(masked, anchor.end, until)
    content = html[anchor.end : end.start() if end else anchor.end]
    if _MARKUP.search(content):
        content = markup.html_template_to_text(content, keeps_links=False)
    return " ".join(markup.remove_control_characters(content).split())[:_MAX_LINK_TEXT_CHARACTERS]


# Tracking: the addresses of links and the open pixel.
#
# A tracking address consists of literal text, the same for all recipients, and the token of the message. The values of
# the merge tags in the original address are filled in when a recipient follows the link.

# The variables that contain the tracking tokens of a message.
TRACK_ROOT, TRACK_CLICK, TRACK_OPEN = "track", "track.click", "track.open"
_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
# An address whose host is complete before any merge tag.
_LITERAL_HOST = re.compile(rf"https?://[^\s/?#\\{markup.MASK}]+(?:[/?#]|\Z)", re.IGNORECASE)
_LOOP = re.compile(r"\{%-?\s*for\s+(\w+)\s+in\b")
_NO_NAMES: frozenset[str] = frozenset()


def find_loop_variables(source: str) -> frozenset[str]:
    """Return the names of the loop variables in a template."""
    return frozenset(match[1] for match in _LOOP.finditer(source)) if "{%" in source else _NO_NAMES


def has_literal_host(address: str) -> bool:
    """Return whether the host of an address is literal text, so that merge values cannot change it."""
    return _LITERAL_HOST.match(markup.mask_tags(address)) is not None


def is_trackable(address: str, bound: frozenset[str] = _NO_NAMES) -> bool:
    """Return whether a link may be replaced with a tracking address; `bound` are the loop variables of the email.

    The host must be literal, so that data of contacts or API clients never decides where a redirect leads. The link's
    variables must be known outside of the email, so loop variables are excluded.
    """
    if not has_literal_host(address):
        return False
    if "{{" not in address and "{%" not in address:
        return True
    try:
        names = {name.partition(".")[0] for name in merge.compile_template(address, "url").variables}
    except merge_limits.MergeError:
        return False
    return names <= set(merge_limits.ROOTS) - bound


def rewrite_links(html: str, text: str, addresses: Iterable[str], base: str) -> tuple[str, str]:
    """Return HTML and text with tracking addresses and the open pixel.

    `addresses` come from `find_links`, in order of their numbers; `base` is the base URL of tracking addresses. If
    `addresses` has another address at the position of an HTML link, the link gets the number of the first entry with
    its address. An address that is not in `addresses` or may not be tracked is left unchanged.
    """
    bound = find_loop_variables(html) | find_loop_variables(text)
    numbers: dict[str, int] = {}
    by_number = list(addresses)
    targets = {address for address in set(by_number) if is_trackable(address, bound)}
    for number, address in enumerate(by_number, 1):
        numbers.setdefault(address, number)
    html_positions: list[tuple[LinkPosition, int]] = []
    for index, place in enumerate(find_positions_in_html(html)):
        if place.address in targets:
            is_same = index < len(by_number) and by_number[index] == place.address
            html_positions.append((place, index + 1 if is_same else numbers[place.address]))
    text_positions = [
        (place, numbers[place.address]) for place in find_positions_in_text(text, targets) if place.address in targets
    ]
    return _add_pixel(_replace_addresses(html, html_positions, base), base), _replace_addresses(
        text, text_positions, base
    )


def _find_verbatim_ranges(source: str) -> list[tuple[int, int]]:
    """Return the ranges of the contents of `raw` blocks."""
    tags = markup.find_tags(source)
    return [(tag.end, next_tag.start) for tag, next_tag in pairwise(tags) if next_tag.name == "endraw"]


def _replace_addresses(source: str, positions: list[tuple[LinkPosition, int]], base: str) -> str:
    parts: list[str] = []
    position = 0
    verbatim = _find_verbatim_ranges(source)
    for place, number in positions:
        range_index = bisect_right(verbatim, (place.start, len(source)))
        if range_index and place.start < verbatim[range_index - 1][1]:
            continue  # merge tags do not work in `raw` blocks
        parts += (source[position : place.start], f"{base}/c/{{{{ {TRACK_CLICK} }}}}-{number}")
        position = place.end
    return "".join((*parts, source[position:]))


def _add_pixel(html: str, base: str) -> str:
    """Insert the open pixel at the end of the body, so that mail clients load it last."""
    picture = (
        f'<img src="{base}/o/{{{{ {TRACK_OPEN} }}}}.gif" width="1" height="1" alt="" style="display:block;border:0">'
    )
    ends = list(_END_OF_BODY.finditer(html))
    return f"{html[: ends[-1].start()]}{picture}\n{html[ends[-1].start() :]}" if ends else f"{html}\n{picture}"


_PIXEL = re.compile(r'<img src="https?://[^"<>]*/o/[^"<>/]*\.gif" width="1" height="1"[^<>]*>')


def remove_pixel(html: str) -> str:
    """Return the HTML of a sent email without the open pixel, so that viewing it in Campanero counts no open."""
    return _PIXEL.sub("", html)
