"""The merge language: Liquid, cut down to what a letter needs, with limits (decisions, section 11).

What users write is only ever a template here, never in Jinja2. Values are plain data and are never parsed again. A
context says where the result stands, and values are encoded for it: `html`, `text`, or `header` (one line).
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from appliance.patterns import late

if TYPE_CHECKING:
    from appliance.designs.compiled import Compiled

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

MOST_TAGS = 2_000
MOST_OUTPUT = 1_048_576
_BEGIN = late(r"\{[{%]")


class MergeError(Exception):
    """A template that cannot be parsed or rendered, with its line and column (from 1)."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    def words(self) -> str:
        """Say it as a fault of a field."""
        where = f" (line {self.line}, column {self.column})" if self.line else ""
        return f"{self.message}{where}"


def scan(source: str) -> int:
    """Count the tags of a template in one pass; raises MergeError where one is not closed or holds another.

    The library's parser looks for the end of an unclosed tag again and again: a few kilobytes would hold it for
    seconds. What passes here it parses in linear time.
    """
    count = position = 0
    while True:
        found = _BEGIN.search(source, position)
        if found is None:
            return count
        begin = found.start()
        closing = "}}" if source[begin + 1] == "{" else "%}"
        end = source.find(closing, begin + 2)
        inside = source[begin + 2 : end if end >= 0 else begin + 200]
        if end < 0 or "{{" in inside or "{%" in inside:
            raise MergeError(f"expected '{closing}'", *place(source, begin))
        count += 1
        if count > MOST_TAGS:
            raise MergeError(f"more than {MOST_TAGS} tags")
        position = end + 2


@lru_cache(maxsize=64)
def compile_template(source: str | None, context: Context) -> "Compiled":
    """Parse a template; raises MergeError with line and column. The last ones are kept, so asking twice is free."""
    from appliance.designs.compiled import Compiled

    return Compiled(source or "", context)


def fault(source: str | None, context: Context) -> str | None:
    """Say what is wrong with a template in the words of a field's fault, or None."""
    if not source or ("{{" not in source and "{%" not in source):
        return None
    try:
        compile_template(source, context)
    except MergeError as error:
        return error.words()
    return None


def unknown(names: list[str]) -> list[str]:
    """Answer the variables whose root nobody fills; they render empty."""
    return [name for name in names if name.split(".")[0] not in ROOTS]


def place(source: str, index: int) -> tuple[int, int]:
    """Answer line and column (from 1) of what stands at an index."""
    before = source[: max(index, 0)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
