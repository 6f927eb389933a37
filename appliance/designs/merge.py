"""The merge language: Liquid, cut down to what a letter needs, with limits (decisions, section 11).

What users write is only ever a template here, never in Jinja2. Values are plain data and are never parsed again. A
context says where the result stands, and values are encoded for it: `html`, `text`, or `header` (one line).
"""

import re
import time
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Literal

from liquid import BoundTemplate, Environment, Mode, RenderContext
from liquid.exceptions import FilterArgumentError, LiquidError, LoopIterationLimitError, ResourceLimitError

Context = Literal["html", "text", "header"]

TAGS = ("if", "unless", "case", "when", "for", "comment", "raw", "output", "content", "illegal", "break", "continue")
FILTERS = (
    "default", "upcase", "downcase", "capitalize", "strip", "truncate", "replace", "date", "money", "round", "size",
    "first", "last", "join", "url_encode", "escape",
)  # fmt: skip
ROOTS = (
    "contact", "event", "data", "brand", "account", "campaign", "unsubscribe_url", "preferences_url", "view_url",
    "first_name", "last_name", "email",
)  # fmt: skip

MOST_SECONDS = 0.05
MOST_ROUNDS = 100
MOST_OUTPUT = 1_048_576
MOST_TAGS = 2_000
# Roots that speak of the recipient: they may say anything but where a link leads
_OF_RECIPIENT = ("contact", "first_name", "last_name", "email")

_ADDRESS = re.compile(r"(?:href|src|action)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>\"']+)", re.IGNORECASE)
_FIRST_NAME_OF_TAG = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)")
_DATE_WIDTH = re.compile(r"%[-_^#]*\d")
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


class _Render(RenderContext):
    """One filling: 100 rounds a loop and 50 ms of processor time (decisions, section 11, Limits)."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._until = time.thread_time() + MOST_SECONDS

    def raise_for_loop_limit(self, length: int = 1) -> None:
        """Refuse a loop that is too long by itself; nested ones are bounded by time."""
        if length > MOST_ROUNDS:
            raise LoopIterationLimitError(f"a loop of more than {MOST_ROUNDS} rounds", token=None)
        self._check_time()

    def get(self, *arguments: Any, **named: Any) -> Any:
        """Look a value up, as long as there is time."""
        self._check_time()
        return super().get(*arguments, **named)

    def _check_time(self) -> None:
        if time.thread_time() > self._until:
            raise ResourceLimitError("takes too long", token=None)


class _Template(BoundTemplate):
    context_class = _Render


class _Language(Environment):
    """Liquid with our limits: rounds, depth, output and time."""

    block_nesting_limit = 8
    context_depth_limit = 16
    output_stream_limit = MOST_OUTPUT
    template_class = _Template


def _replace(value: Any, old: Any = "", new: Any = "") -> str:
    text, before, after = str(value), str(old), str(new)
    if len(text) + (text.count(before) if before else len(text) + 1) * len(after) > MOST_OUTPUT:
        raise FilterArgumentError("replace: the result would be too long", token=None)
    return text.replace(before, after)


def _join(value: Any, separator: Any = " ") -> str:
    between = str(separator)
    if not isinstance(value, list | tuple | range) and not hasattr(value, "__iter__"):
        return str(value)
    parts: list[str] = []
    size = 0
    for item in [value] if isinstance(value, str) else value:
        part = str(item)
        size += len(part) + len(between)
        if size > MOST_OUTPUT:
            raise FilterArgumentError("join: the result would be too long", token=None)
        parts.append(part)
    return between.join(parts)


def _money(value: Any, currency: Any = "") -> str:
    try:
        amount = f"{float(value):,.2f}"
    except (TypeError, ValueError):
        raise FilterArgumentError("money: not a number", token=None) from None
    return f"{amount} {currency}".strip()


def scan(source: str) -> int:
    """Count the tags of a template in one pass; raises MergeError where one is not closed or holds another.

    The library's parser looks for the end of an unclosed tag again and again: a few kilobytes would hold it for
    seconds. What passes here it parses in linear time.
    """
    count = position = 0
    while True:
        begin = min((found for found in (source.find("{{", position), source.find("{%", position)) if found >= 0),
                    default=-1)  # fmt: skip
        if begin < 0:
            return count
        closing = "}}" if source[begin + 1] == "{" else "%}"
        end = source.find(closing, begin + 2)
        inside = source[begin + 2 : end if end >= 0 else begin + 200]
        if end < 0 or "{{" in inside or "{%" in inside:
            raise MergeError(f"expected '{closing}'", *_place(source, begin))
        count += 1
        if count > MOST_TAGS:
            raise MergeError(f"more than {MOST_TAGS} tags")
        position = end + 2


class Compiled:
    """A template ready to be filled, many times and from many threads."""

    def __init__(self, source: str, context: Context) -> None:
        self.context = context
        self.source = source
        scan(source)
        if context == "html":
            _check_links(source)
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
        for found in (*analysis.globals.values(), *analysis.variables.values(), *analysis.locals.values()):
            for one in found:
                if any(str(part).startswith("_") for part in one.segments):
                    name = ".".join(map(str, one.segments))
                    raise MergeError(f"{name}: names may not begin with _", *_place(source, one.span.index))
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
    date = language.filters["date"]

    def safe_date(value: Any, form: Any = "", **named: Any) -> Any:
        if len(str(form)) > 100 or _DATE_WIDTH.search(str(form)):
            raise FilterArgumentError("date: cannot use this format", token=None)
        return date(value, form, **named)

    for mark in ("with_environment", "with_context"):
        if getattr(date, mark, False):
            setattr(safe_date, mark, True)
    language.filters |= {"replace": _replace, "join": _join, "money": _money, "date": safe_date}
    return language


@lru_cache(maxsize=64)
def compile_template(source: str | None, context: Context) -> Compiled:
    """Parse a template; raises MergeError with line and column. The last ones are kept, so asking twice is free."""
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


def _check_links(source: str) -> None:
    """Raise MergeError where a recipient's data would say which host a link leads to."""
    for found in _ADDRESS.finditer(source):
        address = found[1].strip("\"'").strip()
        if address.lower().startswith(("mailto:", "tel:")):
            continue
        host = re.split(r"[/?#]", re.sub(r"^(?:https?:)?//", "", address, flags=re.IGNORECASE), maxsplit=1)[0]
        name = _FIRST_NAME_OF_TAG.search(host)
        if name is not None and name[1] in _OF_RECIPIENT:
            raise MergeError(
                f"{name[1]}: a contact's data may not say where a link leads", *_place(source, found.start())
            )


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
