"""Liquid, cut down to what a letter needs: which tags and filters there are, and the limits of a filling."""

import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import quote

from liquid import BoundTemplate, Environment, Mode, RenderContext
from liquid.builtin.expressions import StringLiteral
from liquid.exceptions import FilterArgumentError, LoopIterationLimitError, ResourceLimitError
from liquid.stringify import to_liquid_string

from appliance.designs.merge import FILTERS, MOST_OUTPUT, TAGS
from appliance.patterns import late

MOST_SECONDS = 0.05
MOST_ROUNDS = 100

# What outputs get besides, by where they stand (`outputs`); nobody can write these names into a template
AS_ADDRESS, AS_PICTURE, AS_PART, AS_QUERY, AS_STYLE = "as address", "as picture", "as part", "as query", "as style"

_LEADS = late(r"(?:https?://|mailto:|tel:|sms:)", re.IGNORECASE)
_UNSAFE = late(r"[\x00-\x20\x7f-\xa0\u2028\u2029\"'()<>\\`]")
_NO_STYLE = late(r"[^\w #.,%+-]")
_DATE_WIDTH = late(r"%[-_^#]*\d")


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


class _Words(StringLiteral):
    """A text written into a tag: words like any value, while the library takes it for HTML."""

    __slots__ = ()

    def evaluate(self, context: RenderContext) -> str:
        """Answer the text without a mark that it were safe."""
        return self.value


def make_words(nodes: list[Any]) -> None:
    """Have every text that is written into a tag escaped where values are."""
    pending, expressions = list(nodes), list[Any]()
    while pending:
        node = pending.pop()
        pending += node.children(None)
        expressions += node.expressions()
    while expressions:
        one = expressions.pop()
        if isinstance(one, StringLiteral):
            one.__class__ = _Words
        expressions += one.children()


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


def _address(value: Any) -> str:
    """Answer an address that leads somewhere, else one that leads nowhere."""
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


ENCODINGS: dict[str, Callable[[Any], str]] = {
    AS_ADDRESS: _address, AS_PICTURE: _picture, AS_PART: _part, AS_QUERY: _query, AS_STYLE: _style,
}  # fmt: skip


@cache
def language(autoescape: bool) -> Environment:
    """Answer the language for HTML, where values are escaped, or for all else."""
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
        return date(value, form, **named)

    for mark in ("with_environment", "with_context"):
        if getattr(date, mark, False):
            setattr(safe_date, mark, True)
    made.filters |= {"replace": _replace, "join": _join, "money": _money, "date": safe_date, **ENCODINGS}
    return made
