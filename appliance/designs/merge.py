"""The merge language: Liquid, cut down to what a letter needs, with limits (decisions, section 11).

What users write is only ever a template here, never in Jinja2. Values are plain data and are never parsed again. A
context says where the result stands, and values are encoded for it: `html`, `text`, or `header` (one line).
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from liquid import Environment, Mode
from liquid.exceptions import LiquidError

Context = Literal["html", "text", "header"]

TAGS = ("if", "unless", "case", "when", "for", "comment", "raw", "output", "content", "illegal", "break", "continue")
FILTERS = (
    "default", "upcase", "downcase", "capitalize", "strip", "truncate", "replace", "date", "round", "size", "first",
    "last", "join", "url_encode", "escape",
)  # fmt: skip
ROOTS = (
    "contact", "event", "data", "brand", "account", "campaign", "unsubscribe_url", "preferences_url", "view_url",
    "first_name", "last_name", "email",
)  # fmt: skip

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


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


class _Language(Environment):
    """Liquid with our limits: rounds, depth and output."""

    block_nesting_limit = 8
    context_depth_limit = 16
    loop_iteration_limit = 1_000
    local_namespace_limit = 65_536
    output_stream_limit = 1_048_576


class Compiled:
    """A template ready to be filled, many times and from many threads."""

    def __init__(self, source: str, context: Context) -> None:
        self.context = context
        self.source = source
        try:
            self._template = _language(context).from_string(source)
            analysis = self._template.analyze()
        except LiquidError as error:
            raise _error(error) from None
        except RecursionError:
            raise MergeError("is nested too deeply") from None
        self.variables = sorted(
            {".".join(str(part) for part in one.segments) for found in analysis.globals.values() for one in found}
        )
        for name in self.variables:
            if any(part.startswith("_") for part in name.split(".")):
                raise MergeError(f"{name}: names may not begin with _")
        for name, places in analysis.filters.items():
            if name not in FILTERS:
                raise MergeError(f"unknown filter '{name}'", *_place(source, places[0].index))

    def render(self, values: Mapping[str, Any]) -> str:
        """Fill the template; raises MergeError where a limit is passed or a filter cannot work on a value."""
        try:
            text = self._template.render(**values)
        except LiquidError as error:
            raise _error(error) from None
        except (TypeError, ValueError, ArithmeticError, RecursionError, OverflowError) as error:
            raise MergeError(f"cannot be filled: {error}") from None
        text = str(text)
        return _CONTROL.sub(" ", text).strip() if self.context == "header" else text


@cache
def _language(context: Context) -> Environment:
    language = _Language(autoescape=context == "html", tolerance=Mode.STRICT)
    for name in list(language.tags):
        if name not in TAGS:
            del language.tags[name]
    for name in list(language.filters):
        if name not in FILTERS:
            del language.filters[name]
    return language


def compile_template(source: str | None, context: Context) -> Compiled:
    """Parse a template; raises MergeError with line and column."""
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


def _place(source: str, index: int) -> tuple[int, int]:
    before = source[: max(index, 0)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _error(error: LiquidError) -> MergeError:
    message = str(error.args[0]) if error.args else "cannot be parsed"
    if error.token is None:
        return MergeError(message)
    start = error.token.start_index
    source = error.token.source
    # The library points before the beginning when it ran off the end
    return MergeError(message, *_place(source, start if start >= 0 else len(source)))
