"""The Liquid environment: allowed tags and filters, and limits of rendering. See `splice` for a faster path."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date as date_type
from datetime import datetime
from functools import lru_cache, partial, wraps
from typing import Any, TextIO
from urllib.parse import quote

from dateutil import parser  # type: ignore[import-untyped]  # the library has no type annotations
from liquid import BoundTemplate, Environment, Mode, RenderContext, Token
from liquid.ast import BlockNode
from liquid.builtin.expressions import BooleanExpression, FilteredExpression, LoopExpression, StringLiteral
from liquid.builtin.expressions.logical import ContainsExpression
from liquid.builtin.filters.misc import _to_date
from liquid.builtin.tags.case_tag import MultiExpressionBlockNode
from liquid.exceptions import (
    FilterArgumentError,
    LiquidSyntaxError,
    LoopIterationLimitError,
    ResourceLimitError,
)
from liquid.output import LimitedStringIO
from liquid.stringify import to_liquid_string

from appliance.content.designs import merge_limits
from appliance.content.designs.merge_limits import FILTERS, MAX_FILTERS, MAX_OUTPUT_BYTES, TAGS
from appliance.core import recipient_texts

MAX_LOOP_ROUNDS = 100
# Rendering checks the clock after this many steps. A lookup, a node and a filter are a step each, and so are
# `CHARACTERS_PER_STEP` characters of a value.
STEPS_PER_CLOCK_CHECK = 32
CHARACTERS_PER_STEP = 128
# A condition counts as several steps, because it may contain up to 100 comparisons (`merge_limits.MAX_OPERATORS`).
STEPS_PER_CONDITION = 8
# The limit of a value in an address or style. No browser would follow a longer address.
MAX_PLACED_CHARACTERS = 16_384
MAX_DATE_CHARACTERS = 100

# The names of the internal filters that encode a value for its position. They contain a space, so no template can use
# them.
AS_ADDRESS, AS_PICTURE, AS_PART, AS_QUERY, AS_STYLE = "as address", "as picture", "as part", "as query", "as style"

_SAFE_SCHEME = re.compile(r"(?:https?://|mailto:|tel:|sms:)", re.IGNORECASE)
_UNSAFE_CHARACTER = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\"'()<>\\`]")
_NO_STYLE = re.compile(r"[^\w #.,%+-]")
_DATE_WIDTH = re.compile(r"%[-_^#]*\d")


class _LimitedContext(RenderContext):
    """The Liquid context of one rendering, which limits loops and processor time (docs/decisions.md#11).

    `until` is the deadline, as processor time of the thread.
    """

    __slots__ = ("_steps", "_until")

    def __init__(self, *arguments: Any, until: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._until, self._steps = until, STEPS_PER_CLOCK_CHECK

    def raise_for_loop_limit(self, length: int = 1) -> None:
        """Raise LoopIterationLimitError for a loop of more than `MAX_LOOP_ROUNDS` iterations; counts one step.

        The library multiplies the iterations of nested loops; here only the time limits them.
        """
        if length > MAX_LOOP_ROUNDS:
            raise LoopIterationLimitError(f"a loop of more than {MAX_LOOP_ROUNDS} rounds", token=None)
        self.step()

    def get(self, path: list[object], *arguments: Any, **named: Any) -> Any:
        """Look up a value, counting the steps; raises ResourceLimitError past the time limit."""
        if len(path) > STEPS_PER_CLOCK_CHECK:
            self.step(len(path))
        value = super().get(path, *arguments, **named)
        self.step_over(value)
        return value

    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        """Return a filter of the merge language, wrapped to count toward the time limit.

        The wrapped filter raises ResourceLimitError past that limit, and FilterArgumentError if its result is too long.
        """
        function = super().filter(name, token)

        def limited(value: Any, *arguments: Any, **named: Any) -> object:
            self.step_over(value)
            filtered = function(value, *arguments, **named)
            if isinstance(filtered, str):
                _check_size(name, len(filtered))
            return filtered

        return limited

    def step(self, steps: int = 1) -> None:
        """Count steps; raises ResourceLimitError past the time limit.

        The clock is read only every `STEPS_PER_CLOCK_CHECK` steps, because reading it costs more than most steps.
        """
        self._steps -= steps
        if self._steps <= 0:
            self._steps = STEPS_PER_CLOCK_CHECK
            if time.thread_time() > self._until:
                raise ResourceLimitError(merge_limits.TOO_SLOW, token=None)

    def step_over(self, value: Any) -> None:
        """Count the steps for processing a value, according to its length."""
        if isinstance(value, str):
            self.step(1 + len(value) // CHARACTERS_PER_STEP)
        else:
            self.step(STEPS_PER_CLOCK_CHECK if isinstance(value, list | dict) else 1)


def render_template(template: BoundTemplate, values: Mapping[str, Any], until: float) -> str:
    """Render a template; raises LiquidError for an error or past a limit.

    `until` is the deadline, as processor time of the thread.
    """
    buffer = LimitedStringIO(MAX_OUTPUT_BYTES)
    template.render_with_context(_LimitedContext(template, globals=values, until=until), buffer)
    return buffer.getvalue()


class _LimitedEnvironment(Environment):
    """A Liquid environment that limits nesting; iterations, output and time are limited during rendering."""

    block_nesting_limit = 8
    context_depth_limit = 16


class _EscapedLiteral(StringLiteral):
    """A literal text in a tag that is escaped like any other value; the library would treat it as safe HTML."""

    __slots__ = ()

    def evaluate(self, context: RenderContext) -> str:
        """Return the text as an ordinary string, not marked as safe HTML."""
        if isinstance(context, _LimitedContext):
            context.step(1 + len(self.value) // CHARACTERS_PER_STEP)
        return self.value


class _TimedBlock(BlockNode):
    """A block that counts a step for each node, because it may take a long time without looking up a variable."""

    __slots__ = ()

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        """Render the nodes within the time limit."""
        if isinstance(context, _LimitedContext):
            context.step(1 + len(self.nodes))
        return super().render_to_output(context, buffer)


class _TimedWhen(MultiExpressionBlockNode):
    """A `when` of a `case` that counts a step for each of its values, which may all be literals."""

    __slots__ = ()

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        """Render the block once for each matching value, within the time limit."""
        if isinstance(context, _LimitedContext):
            context.step(1 + len(self.expression.expressions))
        return super().render_to_output(context, buffer)


class _TimedCondition(BooleanExpression):
    """The condition of `if`, `elsif` or `unless`; it counts steps, because it may compare only literals."""

    __slots__ = ()

    def evaluate(self, context: RenderContext) -> bool:
        """Return whether the condition is true, within the time limit."""
        if isinstance(context, _LimitedContext):
            context.step(STEPS_PER_CONDITION)
        return super().evaluate(context)


class _BoundedContains(ContainsExpression):
    """The operator `contains`, with a check of ranges that takes constant time.

    Python would iterate over the whole range to search for a number that is not an integer.
    """

    __slots__ = ()

    def evaluate(self, context: RenderContext) -> object:
        """Return whether the left value contains the right one."""
        left = self.left.evaluate(context)
        if not isinstance(left, range):
            return super().evaluate(context)
        value = self.right.evaluate(context)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return type(value) is int and value in left


class _BoundedLoop(LoopExpression):
    """The iteration of a `for` loop; `limit` and `offset` are applied without iterating over the skipped items."""

    __slots__ = ()

    def _to_iter(self, obj: object, context: RenderContext) -> tuple[Any, int]:
        items: Sequence[Any] = ()
        if isinstance(obj, Mapping):
            items = tuple(obj.items())
        elif isinstance(obj, str):
            items = (obj,) if obj else ()
        elif isinstance(obj, Sequence):
            items = obj
        try:
            return items, len(items)
        except OverflowError:
            raise LoopIterationLimitError(f"a loop of more than {MAX_LOOP_ROUNDS} rounds", token=None) from None

    def _slice(
        self, iterator: Any, length: int, context: RenderContext, *, limit: int | None, offset: int | str | None
    ) -> tuple[Iterator[object], int]:
        key = f"{self.identifier}-{self.iterable}"
        start = context.stopindex(key) if offset == "continue" else int(offset or 0)
        end = None if limit is None else limit + start
        start, end = min(max(start, 0), length), min(end or length, length)
        context.stopindex(key=key, index=end)
        context.raise_for_loop_limit(max(end - start, 0))
        items = iterator[start:end] if end > start else ()
        return reversed(items) if self.reversed else iter(items), len(items)


def prepare_nodes(nodes: list[Any]) -> None:
    """Apply escaping and limits to the nodes of a parsed template, in place.

    Raises LiquidSyntaxError for more than `MAX_FILTERS` filters in one output.
    """
    pending, expressions = list(nodes), list[Any]()
    while pending:
        node = pending.pop()
        if type(node) is BlockNode:
            node.__class__ = _TimedBlock
        elif isinstance(node, MultiExpressionBlockNode):
            node.__class__ = _TimedWhen
        pending += node.children(None)
        expressions += node.expressions()
    while expressions:
        expression = expressions.pop()
        if isinstance(expression, StringLiteral):
            expression.__class__ = _EscapedLiteral
        elif isinstance(expression, LoopExpression):
            expression.__class__ = _BoundedLoop
        elif isinstance(expression, BooleanExpression):
            expression.__class__ = _TimedCondition
        elif isinstance(expression, ContainsExpression):
            expression.__class__ = _BoundedContains
        elif (
            isinstance(expression, FilteredExpression) and expression.filters and len(expression.filters) > MAX_FILTERS
        ):
            message = f"more than {MAX_FILTERS} filters in one output"
            raise LiquidSyntaxError(message, token=expression.filters[MAX_FILTERS].token)
        expressions += expression.children()


def _check_size(name: str, characters: int) -> None:
    """Raise FilterArgumentError if the result of a filter would be longer than the maximum output."""
    if characters > MAX_OUTPUT_BYTES:
        raise FilterArgumentError(f"{name}: the result would be too long", token=None)


def _replace(value: Any, old: Any = "", new: Any = "") -> str:
    text, before, after = str(value), str(old), str(new)
    _check_size("replace", len(text) + (text.count(before) if before else len(text) + 1) * len(after))
    return text.replace(before, after)


def _join(value: Any, separator: Any = " ", *, context: Any) -> str:
    between = str(separator)
    if not isinstance(value, list | tuple | range) and not hasattr(value, "__iter__"):
        return str(value)
    parts: list[str] = []
    size = 0
    for element in [value] if isinstance(value, str) else value:
        context.step()
        part = str(element)
        size += len(part) + len(between)
        _check_size("join", size)
        parts.append(part)
    return between.join(parts)


_join.with_context = True  # type: ignore[attr-defined]  # the library then passes `context`


def _limit_result(function: Callable[..., Any], name: str, size: Callable[[str], int]) -> Callable[..., Any]:
    """Return a filter of the library that raises FilterArgumentError instead of creating a result that is too long.

    `size` returns an estimate of the length of the result for a text.
    """

    @wraps(function)  # copies the attributes by which the library knows which other arguments to pass
    def checked(value: Any, *arguments: Any, **named: Any) -> Any:
        text = value if isinstance(value, str) else "" if value is None else str(value)
        _check_size(name, size(text))
        return function(value, *arguments, **named)

    return checked


def _url_encoded_size(text: str) -> int:
    return len(text) if len(text) * 12 <= MAX_OUTPUT_BYTES else 3 * len(text.encode())


def _escaped_size(text: str) -> int:
    return len(text) if len(text) * 6 <= MAX_OUTPUT_BYTES else len(text) + 5 * sum(map(text.count, "&<>\"'"))


def _broken_size(text: str) -> int:
    return _escaped_size(text) + len("<br />") * text.count("\n")


def _money(value: Any, currency: Any = "", *, language: str) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise FilterArgumentError("money: not a number", token=None) from None
    # `nan` and `inf` are not amounts of any language, and Babel cannot round them.
    amount = recipient_texts.format_amount(number, language) if math.isfinite(number) else str(number)
    return f"{amount} {currency}".strip()


def _encode_address(value: Any) -> str:
    """Return an address with its unsafe characters percent-encoded, or `#` if its scheme is not allowed."""
    text = str(value).strip()
    return _UNSAFE_CHARACTER.sub(lambda match: quote(match[0]), text) if _SAFE_SCHEME.match(text) else "#"


def _encode_picture_address(value: Any) -> str:
    text = str(value).strip()
    return _UNSAFE_CHARACTER.sub(lambda match: quote(match[0]), text) if _SAFE_SCHEME.match(text) else ""


def _encode_address_part(value: Any) -> str:
    return quote(to_liquid_string(value, autoescape=False), safe="@+")


def _encode_query_value(value: Any) -> str:
    return quote(to_liquid_string(value, autoescape=False), safe="")


def _encode_style(value: Any) -> str:
    return _NO_STYLE.sub("", to_liquid_string(value, autoescape=False))


def _limit_value(encode: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return an encoding filter that raises FilterArgumentError for a value longer than `MAX_PLACED_CHARACTERS`."""

    def placed(value: Any) -> str:
        if isinstance(value, str) and len(value) > MAX_PLACED_CHARACTERS:
            message = f"a value in an address or a style is too long (maximum is {MAX_PLACED_CHARACTERS} characters)"
            raise FilterArgumentError(message, token=None)
        return encode(value)

    return placed


ENCODINGS: dict[str, Callable[[Any], str]] = {
    AS_ADDRESS: _limit_value(_encode_address),
    AS_PICTURE: _limit_value(_encode_picture_address),
    AS_PART: _limit_value(_encode_address_part),
    AS_QUERY: _limit_value(_encode_query_value),
    AS_STYLE: _limit_value(_encode_style),
}


@lru_cache(64)
def liquid_environment(autoescape: bool, language: str) -> Environment:
    """Return the cached Liquid environment with or without `autoescape`, for dates and amounts in a language.

    With `autoescape`, which templates of HTML and addresses need, values are HTML-escaped.
    """
    environment = _LimitedEnvironment(autoescape=autoescape, tolerance=Mode.STRICT)
    for name in list(environment.tags):
        if name not in TAGS:
            del environment.tags[name]
    for name in list(environment.filters):
        if name not in FILTERS:
            del environment.filters[name]
    date = environment.filters["date"]
    has_english_names = re.split("[-_]", language)[0].lower() == "en"

    def safe_date(value: Any, form: Any = "", **named: Any) -> Any:
        if len(str(form)) > 100 or _DATE_WIDTH.search(str(form)):
            raise FilterArgumentError("date: cannot use this format", token=None)
        if isinstance(value, str) and len(value) > MAX_DATE_CHARACTERS:
            return value  # too long for a date; a value that is not a date is shown unchanged
        if isinstance(value, str) and _has_unknown_zone(value):
            return value
        is_form_usual = form and (has_english_names or not isinstance(form, str))
        moment = None if is_form_usual else _parse_moment(value)
        if moment is None:
            return date(value, form, **named)
        if not form:
            return recipient_texts.format_day(moment, language)
        return date(moment, type(form)(recipient_texts.translate_format(moment, form, language)), **named)

    for mark in ("with_environment", "with_context"):
        if getattr(date, mark, False):
            setattr(safe_date, mark, True)
    environment.filters |= {
        "url_encode": _limit_result(environment.filters["url_encode"], "url_encode", _url_encoded_size),
        "escape": _limit_result(environment.filters["escape"], "escape", _escaped_size),
        "newline_to_br": _limit_result(environment.filters["newline_to_br"], "newline_to_br", _broken_size),
    }
    money = partial(_money, language=language)
    environment.filters |= {"replace": _replace, "join": _join, "money": money, "date": safe_date, **ENCODINGS}
    return environment


def _parse_moment(value: Any) -> datetime | None:
    """Return the moment of a value as the library reads it, or None if it is not a date."""
    moment = datetime.now() if value in ("now", "today") else _to_date(value)
    return moment if isinstance(moment, date_type) else None


class _UnknownZone(Exception):
    """A text is a date with the name of an unknown time zone."""


def _has_unknown_zone(text: str) -> bool:
    """Return whether a text is a date with a zone such as `BRST`, which the library would ignore with a warning."""
    try:
        parser.parse(text, tzinfos=_require_known_zone)
    except _UnknownZone:
        return True
    except (ValueError, OverflowError):
        return False  # no date; the library decides how it is shown
    return False


def _require_known_zone(name: str | None, offset: int | None) -> None:
    if name and offset is None and name not in time.tzname:
        raise _UnknownZone
