"""Liquid, cut down to what a letter needs: which tags and filters there are, and the limits of a filling."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from typing import Any, TextIO
from urllib.parse import quote

from liquid import BoundTemplate, Environment, Mode, RenderContext, Token
from liquid.ast import BlockNode
from liquid.builtin.expressions import BooleanExpression, FilteredExpression, LoopExpression, StringLiteral
from liquid.builtin.expressions.logical import ContainsExpression
from liquid.builtin.tags.case_tag import MultiExpressionBlockNode
from liquid.exceptions import FilterArgumentError, LiquidSyntaxError, LoopIterationLimitError, ResourceLimitError
from liquid.output import LimitedStringIO
from liquid.stringify import to_liquid_string

from appliance.content.designs import merge
from appliance.content.designs.merge import FILTERS, MAX_FILTERS, MAX_OUTPUT, TAGS

MAX_ROUNDS = 100
# Steps between two looks at the clock; a step is a lookup, a node, a filter, or so many characters that one works on
STEPS = 32
CHARACTERS_PER_STEP = 128
# A condition has up to a hundred comparisons
STEPS_PER_CONDITION = 8
# An address, or a part of one, that no browser would follow is not worth encoding
MAX_PLACED_CHARACTERS = 16_384
MAX_DATE_CHARACTERS = 100

# What outputs get besides, by where they stand (`outputs`); nobody can write these names into a template
AS_ADDRESS, AS_PICTURE, AS_PART, AS_QUERY, AS_STYLE = "as address", "as picture", "as part", "as query", "as style"

_LEADS = re.compile(r"(?:https?://|mailto:|tel:|sms:)", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\"'()<>\\`]")
_NO_STYLE = re.compile(r"[^\w #.,%+-]")
_DATE_WIDTH = re.compile(r"%[-_^#]*\d")


class _Render(RenderContext):
    """One filling: 100 rounds a loop, and the processor time that is left of its message (docs/decisions.md#11)."""

    __slots__ = ("_steps", "_until")

    def __init__(self, *arguments: Any, until: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._until, self._steps = until, STEPS

    def raise_for_loop_limit(self, length: int = 1) -> None:
        """Refuse a loop that is too long by itself; nested ones are bounded by time."""
        if length > MAX_ROUNDS:
            raise LoopIterationLimitError(f"a loop of more than {MAX_ROUNDS} rounds", token=None)
        self.step()

    def get(self, path: list[object], *arguments: Any, **named: Any) -> Any:
        """Look a value up, as long as there is time."""
        if len(path) > STEPS:
            self.step(len(path))
        value = super().get(path, *arguments, **named)
        self.step_over(value)
        return value

    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        """Return a filter that is called as long as there is time, and whose result is no longer than a message."""
        function = super().filter(name, token)

        def limited(value: Any, *arguments: Any, **named: Any) -> object:
            self.step_over(value)
            result = function(value, *arguments, **named)
            if isinstance(result, str):
                _check_size(name, len(result))
            return result

        return limited

    def step(self, steps: int = 1) -> None:
        """Count steps; raises ResourceLimitError where the time is over. The clock costs more than most steps."""
        self._steps -= steps
        if self._steps <= 0:
            self._steps = STEPS
            if time.thread_time() > self._until:
                raise ResourceLimitError(merge.TOO_SLOW, token=None)

    def step_over(self, value: Any) -> None:
        """Count what working on a value may take."""
        if isinstance(value, str):
            self.step(1 + len(value) // CHARACTERS_PER_STEP)
        else:
            self.step(STEPS if isinstance(value, list | dict) else 1)


def render(template: BoundTemplate, values: Mapping[str, Any], until: float) -> str:
    """Render a template; raises LiquidError, also where it is not done by this processor time of the thread."""
    buffer = LimitedStringIO(MAX_OUTPUT)
    template.render_with_context(_Render(template, globals=values, until=until), buffer)
    return buffer.getvalue()


class _Language(Environment):
    """Liquid with our limits of depth; those of rounds, output and time are kept while it is rendered."""

    block_nesting_limit = 8
    context_depth_limit = 16


class _Words(StringLiteral):
    """A text written into a tag: words like any value, while the library takes it for HTML."""

    __slots__ = ()

    def evaluate(self, context: RenderContext) -> str:
        """Return the text without a mark that it were safe."""
        if isinstance(context, _Render):
            context.step(1 + len(self.value) // CHARACTERS_PER_STEP)
        return self.value


class _Block(BlockNode):
    """The inside of a block, which looks at the clock: what it says may take long without any variable in it."""

    __slots__ = ()

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        """Render the nodes, as long as there is time."""
        if isinstance(context, _Render):
            context.step(1 + len(self.nodes))
        return super().render_to_output(context, buffer)


class _When(MultiExpressionBlockNode):
    """One `when` of a case, which looks at the clock: its values may all be literals."""

    __slots__ = ()

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        """Render the block as often as its values hold, as long as there is time."""
        if isinstance(context, _Render):
            context.step(1 + len(self.expression.expressions))
        return super().render_to_output(context, buffer)


class _Condition(BooleanExpression):
    """What is asked of `if`, `elsif` and `unless`, which looks at the clock: it may compare nothing but literals."""

    __slots__ = ()

    def evaluate(self, context: RenderContext) -> bool:
        """Return whether it holds, as long as there is time."""
        if isinstance(context, _Render):
            context.step(STEPS_PER_CONDITION)
        return super().evaluate(context)


class _Contains(ContainsExpression):
    """Whether one value holds another. Python goes through a whole range for what is no whole number."""

    __slots__ = ()

    def evaluate(self, context: RenderContext) -> object:
        """Return whether the right value is in the left one."""
        left = self.left.evaluate(context)
        if not isinstance(left, range):
            return super().evaluate(context)
        value = self.right.evaluate(context)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return type(value) is int and value in left


class _Loop(LoopExpression):
    """What a loop goes through, cut to its limit and offset without stepping through what is left out."""

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
            raise LoopIterationLimitError(f"a loop of more than {MAX_ROUNDS} rounds", token=None) from None

    def _slice(
        self, it: Any, length: int, context: RenderContext, *, limit: int | None, offset: int | str | None
    ) -> tuple[Iterator[object], int]:
        key = f"{self.identifier}-{self.iterable}"
        start = context.stopindex(key) if offset == "continue" else int(offset or 0)
        end = None if limit is None else limit + start
        start, end = min(max(start, 0), length), min(end or length, length)
        context.stopindex(key=key, index=end)
        context.raise_for_loop_limit(max(end - start, 0))
        items = it[start:end] if end > start else ()
        return reversed(items) if self.reversed else iter(items), len(items)


def prepare(nodes: list[Any]) -> None:
    """Make a parsed template ours: texts in tags are escaped where values are, and everything in it keeps to the
    limits. Raises LiquidSyntaxError for an output with too many filters."""
    pending, expressions = list(nodes), list[Any]()
    while pending:
        node = pending.pop()
        if type(node) is BlockNode:
            node.__class__ = _Block
        elif isinstance(node, MultiExpressionBlockNode):
            node.__class__ = _When
        pending += node.children(None)
        expressions += node.expressions()
    while expressions:
        one = expressions.pop()
        if isinstance(one, StringLiteral):
            one.__class__ = _Words
        elif isinstance(one, LoopExpression):
            one.__class__ = _Loop
        elif isinstance(one, BooleanExpression):
            one.__class__ = _Condition
        elif isinstance(one, ContainsExpression):
            one.__class__ = _Contains
        elif isinstance(one, FilteredExpression) and one.filters and len(one.filters) > MAX_FILTERS:
            words = f"more than {MAX_FILTERS} filters in one output"
            raise LiquidSyntaxError(words, token=one.filters[MAX_FILTERS].token)
        expressions += one.children()


def _check_size(name: str, characters: int) -> None:
    """Raise FilterArgumentError where the result of a filter would be longer than a message may be."""
    if characters > MAX_OUTPUT:
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
    for item in [value] if isinstance(value, str) else value:
        context.step()
        part = str(item)
        size += len(part) + len(between)
        _check_size("join", size)
        parts.append(part)
    return between.join(parts)


_join.with_context = True  # type: ignore[attr-defined]  # how the library knows it


def _checked(function: Callable[..., Any], name: str, size: Callable[[str], int]) -> Callable[..., Any]:
    """Return a filter of the library that is not called where its result would be too long."""

    @wraps(function)  # with its marks: what else the library passes to it
    def checked(value: Any, *arguments: Any, **named: Any) -> Any:
        text = value if isinstance(value, str) else "" if value is None else str(value)
        _check_size(name, size(text))
        return function(value, *arguments, **named)

    return checked


def _size_encoded(text: str) -> int:
    return len(text) if len(text) * 12 <= MAX_OUTPUT else 3 * len(text.encode())


def _size_escaped(text: str) -> int:
    return len(text) if len(text) * 6 <= MAX_OUTPUT else len(text) + 5 * sum(map(text.count, "&<>\"'"))


def _money(value: Any, currency: Any = "") -> str:
    try:
        amount = f"{float(value):,.2f}"
    except (TypeError, ValueError):
        raise FilterArgumentError("money: not a number", token=None) from None
    return f"{amount} {currency}".strip()


def _address(value: Any) -> str:
    """Return an address that leads somewhere, else one that leads nowhere."""
    text = str(value).strip()
    return _UNSAFE.sub(lambda found: quote(found[0]), text) if _LEADS.match(text) else "#"


def _picture(value: Any) -> str:
    text = str(value).strip()
    return _UNSAFE.sub(lambda found: quote(found[0]), text) if _LEADS.match(text) else ""


def _part(value: Any) -> str:
    return quote(to_liquid_string(value, autoescape=False), safe="@+")


def _query(value: Any) -> str:
    return quote(to_liquid_string(value, autoescape=False), safe="")


def _style(value: Any) -> str:
    return _NO_STYLE.sub("", to_liquid_string(value, autoescape=False))


def _placed(encode: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return an encoding that refuses what is longer than any address or style."""

    def placed(value: Any) -> str:
        if isinstance(value, str) and len(value) > MAX_PLACED_CHARACTERS:
            words = f"a value in an address or a style is too long (maximum is {MAX_PLACED_CHARACTERS} characters)"
            raise FilterArgumentError(words, token=None)
        return encode(value)

    return placed


ENCODINGS: dict[str, Callable[[Any], str]] = {
    AS_ADDRESS: _placed(_address), AS_PICTURE: _placed(_picture), AS_PART: _placed(_part), AS_QUERY: _placed(_query),
    AS_STYLE: _placed(_style),
}  # fmt: skip


@cache
def language(autoescape: bool) -> Environment:
    """Return the language for HTML, where values are escaped, or for all else."""
    made = _Language(autoescape=autoescape, tolerance=Mode.STRICT)
    for name in list(made.tags):
        if name not in TAGS:
            del made.tags[name]
    for name in list(made.filters):
        if name not in FILTERS:
            del made.filters[name]
    date = made.filters["date"]

    def safe_date(value: Any, form: Any = "", **named: Any) -> Any:
        if len(str(form)) > 100 or _DATE_WIDTH.search(str(form)):
            raise FilterArgumentError("date: cannot use this format", token=None)
        if isinstance(value, str) and len(value) > MAX_DATE_CHARACTERS:
            return value  # no date, and such a value is shown as it is
        return date(value, form, **named)

    for mark in ("with_environment", "with_context"):
        if getattr(date, mark, False):
            setattr(safe_date, mark, True)
    made.filters |= {
        "url_encode": _checked(made.filters["url_encode"], "url_encode", _size_encoded),
        "escape": _checked(made.filters["escape"], "escape", _size_escaped),
    }
    made.filters |= {"replace": _replace, "join": _join, "money": _money, "date": safe_date, **ENCODINGS}
    return made
