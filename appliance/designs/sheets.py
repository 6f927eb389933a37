"""Style sheets taken apart: rules that can stand in an element, and those that only work in the head."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from appliance.designs import cleaning

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_STATEMENT = re.compile(r"@(?:charset|import|namespace)\b[^;{}]*(?:;|\Z)", re.IGNORECASE)
# What a program marks or a pointer does, and what only some programs understand, cannot be written into an element
_ONLY_IN_HEAD = re.compile(r":|\[|\.ExternalClass|^\s*u\s*\+")
_KEPT = ("@media", "@supports")
# Enough for any mail; the time a selector takes grows with its parts
_MAX_SELECTOR_CHARACTERS = 300
_MAX_CHARACTERS = 100_000


class Sheet(NamedTuple):
    """Rules to write into elements, rules to keep in the head, and how many selectors the first ones have."""

    to_write: str
    to_keep: str
    selectors: int


def read(css: str) -> Sheet:
    """Take a sheet apart; what loads or runs something, and what does not end, is left out."""
    write: list[str] = []
    keep: list[str] = []
    selectors = 0
    for before, block in _rules(_STATEMENT.sub("", _COMMENT.sub(" ", css[:_MAX_CHARACTERS]))):
        rule = cleaning.css(before + block).strip()
        if not rule or len(before) > _MAX_SELECTOR_CHARACTERS * 20:
            continue
        if before.startswith("@"):
            if before.lower().startswith(_KEPT):
                keep.append(rule)
        elif _ONLY_IN_HEAD.search(before) or any(len(one) > _MAX_SELECTOR_CHARACTERS for one in before.split(",")):
            keep.append(rule)
        else:
            write.append(rule)
            selectors += before.count(",") + 1
    return Sheet("\n".join(write), "\n".join(keep), selectors)


def _rules(css: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before each block, and the block."""
    depth = start = opened = 0
    for found in re.finditer(r"[{}]", css):
        if found[0] == "{":
            if not depth:
                opened = found.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield css[start:opened].strip(), css[opened : found.end()]
                start = found.end()
        else:
            start = found.end()
