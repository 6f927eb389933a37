"""The merge language: Liquid, cut down to what a letter needs, with limits (docs/decisions.md#11).

What users write is only ever a template here, never in Jinja2. Values are plain data and are never parsed again. A
context says where the result stands, and values are encoded for it: `html`, `text`, or `header` (one line).
"""

import re
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from cachetools import LRUCache, cached

if TYPE_CHECKING:
    from appliance.content.designs.compiled import Compiled


Context = Literal["html", "text", "header", "url"]

ROOTS = (
    "contact", "event", "data", "brand", "account", "campaign", "unsubscribe_url", "preferences_url", "view_url",
    "first_name", "last_name", "email",
)  # fmt: skip

TAGS = ("if", "unless", "case", "when", "for", "comment", "raw", "output", "content", "illegal", "break", "continue")
FILTERS = (
    "default", "upcase", "downcase", "capitalize", "strip", "truncate", "replace", "date", "money", "round", "size",
    "first", "last", "join", "url_encode", "escape",
)  # fmt: skip

MAX_TAGS = 2_000
# Of all tags of a template together: what stands in them is read by a slower reader than what stands around them
MAX_TAG_CHARACTERS = 262_144
# Of these, outside of quotes: 1,000 take up to 5 ms to parse and 250 KB of memory, and what was parsed is kept
MAX_TAG_CODE_CHARACTERS = 32_768
# Of one tag: the library's reader looks from each bracket to the end of the tag, and goes one deeper at each operator
MAX_BRACKETS, MAX_OPERATORS = 20, 100
MAX_OUTPUT = 1_048_576
MAX_FILTERS = 20
# Of a subject or a name, filled in; what a template says there is shorter
MAX_HEADER_CHARACTERS = 10_000
# Of one message, all its parts together
MAX_RENDER_SECONDS = 0.05
# Of each cache of templates. By bytes, not by number: the largest template takes 14 MB, an ordinary one 0.1 MB
MAX_CACHED_BYTES = 64 * 1024 * 1024
_BYTES_PER_REFUSED, _BYTES_PER_TEMPLATE, _BYTES_PER_TAG, _BYTES_PER_TAG_CHARACTER = 1_000, 12_000, 1_500, 200
TOO_SLOW = f"takes longer than {MAX_RENDER_SECONDS * 1000:.0f} ms to render"
_TOO_MUCH_CODE = "the merge tags are too long (maximum is {} characters outside of quotes)"
_BEGIN = re.compile(r"\{[{%]")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_OPERATOR = re.compile(r"[=!<>]+|\b(?:and|or|contains)\b")


class MergeError(Exception):
    """A template that cannot be parsed or rendered, with its line and column (from 1)."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    def again(self) -> "MergeError":
        """Return the same error anew: one that was raised holds on to where that was."""
        return MergeError(self.message, self.line, self.column)

    def words(self) -> str:
        """Say it as a fault of a field."""
        where = f" (line {self.line}, column {self.column})" if self.line else ""
        return f"{self.message}{where}"


def deadline() -> float:
    """Return the processor time of this thread by which a message that begins to be rendered now must be done."""
    return time.thread_time() + MAX_RENDER_SECONDS


def scan(source: str) -> int:
    """Return about how many bytes a template takes once it is read; raises MergeError where a tag is not closed or
    holds another, or where there are more than the limits allow. One pass.

    The library's parser looks for the end of an unclosed tag again and again: a few kilobytes would hold it for
    seconds. What passes here it parses in linear time.
    """
    count = position = characters = code = 0
    while True:
        found = _BEGIN.search(source, position)
        if found is None:
            return _BYTES_PER_TEMPLATE + 2 * len(source) + count * _BYTES_PER_TAG + code * _BYTES_PER_TAG_CHARACTER
        begin = found.start()
        closing = "}}" if source[begin + 1] == "{" else "%}"
        end = source.find(closing, begin + 2)
        inside = source[begin + 2 : end if end >= 0 else begin + 200]
        if end < 0 or "{{" in inside or "{%" in inside:
            raise MergeError(f"expected '{closing}'", *place(source, begin))
        count += 1
        if count > MAX_TAGS:
            raise MergeError(f"more than {MAX_TAGS} tags")
        characters += len(inside)
        if characters > MAX_TAG_CHARACTERS:
            raise MergeError(f"the merge tags are too long (maximum is {MAX_TAG_CHARACTERS} characters in all)")
        code += len(inside) if len(inside) <= MAX_BRACKETS else _check_tag(inside, source, begin)
        if code > MAX_TAG_CODE_CHARACTERS:
            raise MergeError(_TOO_MUCH_CODE.format(MAX_TAG_CODE_CHARACTERS))
        position = end + 2


def code_fault(texts: Iterable[str], maximum: int = MAX_TAG_CODE_CHARACTERS) -> str | None:
    """Return that the merge tags of some texts are too long together, in the words of a field's fault, or None.

    What stands in quotes does not count. One pass: none of them is parsed.
    """
    code = 0
    for text in texts:
        position = 0
        while found := _BEGIN.search(text, position):
            end = text.find("}}" if found[0] == "{{" else "%}", found.end())
            if end < 0:
                break  # it is refused when it is parsed
            code += len(_QUOTED.sub('""', text[found.end() : end]))
            position = end + 2
            if code > maximum:
                return _TOO_MUCH_CODE.format(maximum)
    return None


def _check_tag(inside: str, source: str, begin: int) -> int:
    """Return how many characters of a tag stand outside of quotes; raises MergeError for one with more brackets or
    operators than anybody writes."""
    words = _QUOTED.sub('""', inside)
    if words.count("(") + words.count("[") > MAX_BRACKETS:
        raise MergeError(f"more than {MAX_BRACKETS} brackets in one tag", *place(source, begin))
    if len(words) > MAX_OPERATORS and len(_OPERATOR.findall(words)) > MAX_OPERATORS:
        raise MergeError(f"more than {MAX_OPERATORS} conditions in one tag", *place(source, begin))
    return len(words)


class Refused(NamedTuple):
    """Why something cannot be compiled, kept so that it is not tried again; `size` is in bytes, about."""

    error: MergeError
    size: int


def _size(parsed: "Compiled | Refused") -> int:
    return parsed.size


@cached(LRUCache(MAX_CACHED_BYTES, getsizeof=_size), lock=threading.Lock(), info=True)
def parse(source: str | None, context: Context) -> "Compiled | Refused":
    """Parse a template; return what it is or why it cannot be parsed. The latest are cached, refused ones too."""
    from appliance.content.designs.compiled import Compiled

    try:
        return Compiled(source or "", context)
    except MergeError as error:
        return Refused(error.again(), _BYTES_PER_REFUSED + 2 * len(source or ""))


def compile_template(source: str | None, context: Context) -> "Compiled":
    """Parse a template as `parse` does; raises MergeError with line and column."""
    parsed = parse(source, context)
    if isinstance(parsed, Refused):
        raise parsed.error.again()
    return parsed


def fault(source: str | None, context: Context) -> str | None:
    """Return what is wrong with a template in the words of a field's fault, or None."""
    if not source or ("{{" not in source and "{%" not in source):
        return None
    try:
        compile_template(source, context)
    except MergeError as error:
        return error.words()
    return None


def unknown(names: list[str]) -> list[str]:
    """Return the variables whose root nobody fills; they render empty."""
    return [name for name in names if name.split(".")[0] not in ROOTS]


def place(source: str, index: int) -> tuple[int, int]:
    """Return line and column (from 1) of what stands at an index."""
    before = source[: max(index, 0)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
