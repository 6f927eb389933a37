"""Addresses with merge tags: read once, from the beginning to the end, for what is said before each of them.

Logic leaves words out, so what stands before a tag is not always said. Before the host of an address has surely ended
no words may become another scheme, and no contact's data may become the host, whichever of them are left out.
"""

import re
from html import unescape
from typing import NamedTuple

from appliance.content.designs.tags import TAG

MAX_ADDRESS_CHARACTERS = 2_000
NO_HOST = re.compile(r"(?:mailto|tel|sms):", re.IGNORECASE)
# Browsers take any slashes behind a scheme for two, and a reversed one for a slash
_TO_HOST = re.compile(r"https?:[/\\]*|[/\\]{2,}", re.IGNORECASE)
_WHOLE_HOST = re.compile(r"https?://[^/?#\\]+[/?#]", re.IGNORECASE)
_SCHEME = re.compile(r"(?:https?|mailto|tel|sms):", re.IGNORECASE)
_PORT = re.compile(r"[^:]*:\d{1,5}\Z")
_END_OF_HOST = re.compile(r"[/?#\\]")
# Browsers leave these out of an address
_LEFT_OUT = re.compile(r"[\x00-\x20\x7f-\xa0]+")
_WORD = re.compile(r"\{%-?\s*(\w+)")
_BLOCKS = ("if", "unless", "case", "for", "comment", "raw")


class AddressFault(Exception):
    """What may not stand in an address, or in an attribute: words, and where."""

    def __init__(self, words: str, index: int) -> None:
        super().__init__(words)
        self.words, self.index = words, index


class Said(NamedTuple):
    """What an address says before a tag, with all that may be left out, and whether its host has surely ended."""

    words: str
    has_host: bool


def read(html: str, start: int, end: int) -> dict[int, Said]:
    """Return what is said before each merge tag that shows something, by its place; raises AddressFault."""
    found: dict[int, Said] = {}
    words = here = ""
    is_sure = has_logic = begins_with_tag = False
    position, size = start, 0
    for tag in (*TAG.finditer(html, start, end), None):
        until = tag.start() if tag else end
        size += until - position
        if size > MAX_ADDRESS_CHARACTERS:
            raise AddressFault(f"an address is too long (maximum is {MAX_ADDRESS_CHARACTERS} characters)", start)
        run = _LEFT_OUT.sub("", unescape(html[position:until]))
        if not is_sure and not _is_harmless(run):
            raise AddressFault("an address may only begin with https, http, mailto, tel or sms", position)
        words, here = words + run, here + run
        is_sure = is_sure or (not has_logic and has_ended(words))
        if tag is None:
            break
        position = tag.end()
        if tag[0].startswith("{{"):
            found[until] = Said(words, is_sure or _WHOLE_HOST.match(here) is not None)
            begins_with_tag = begins_with_tag or not (words or has_logic)
            here += "{"
            continue
        if words and not (is_sure or has_logic or begins_with_tag):
            raise AddressFault("logic may not stand in an address before its host has ended", until)
        has_logic, here = True, ""
    return found


def has_ended(words: str) -> bool:
    """Return whether the host of an address has ended, or it is of a kind that has none."""
    return NO_HOST.match(words) is not None or _END_OF_HOST.search(_TO_HOST.sub("", words, count=1)) is not None


def _is_harmless(run: str) -> bool:
    """Return whether words at the beginning of an address, or after others, make no scheme but the known ones."""
    lead = _END_OF_HOST.split(run, maxsplit=1)[0]
    return ":" not in lead or _SCHEME.match(lead) is not None or _PORT.match(lead) is not None


def check_blocks(html: str, start: int, end: int) -> None:
    """Raise AddressFault where a block begins within an attribute and ends outside, or the other way around.

    Left out, it would take the end of the attribute with it, and make what is text part of the element.
    """
    inside: list[str] = []
    for tag in TAG.finditer(html, start, end):
        word = _WORD.match(tag[0])
        name = word[1] if word else ""
        if inside and inside[-1] in ("comment", "raw"):
            if name == f"end{inside[-1]}":
                inside.pop()
        elif name in _BLOCKS:
            inside.append(name)
        elif name.startswith("end") or name in ("else", "elsif", "when"):
            if not inside:
                raise AddressFault(f"{name}: a block may not end within an attribute", tag.start())
            if name.startswith("end"):
                inside.pop()
    if inside:
        raise AddressFault(f"{inside[-1]}: a block within an attribute must end there", start)
