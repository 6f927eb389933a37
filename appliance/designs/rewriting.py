"""A mail whose links lead through us: the addresses of what it counts, and the picture at its end that tells an open.

All but the token of a message is the same for everybody who gets it, so it stands in the template as plain words. What
an address says of a person is not in the mail: it is filled in when somebody follows the link.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable

from appliance.designs import links, merge, places
from appliance.designs.links import Place
from appliance.designs.tags import TAG

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
    for index, place in enumerate(links.in_html(html)):
        if place.address in targets:
            same = index < len(by_number) and by_number[index] == place.address
            wanted.append((place, index + 1 if same else numbers[place.address]))
    said = [(place, numbers[place.address]) for place in links.in_text(text, targets) if place.address in targets]
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
