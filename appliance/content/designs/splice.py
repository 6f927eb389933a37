"""Templates of plain outputs, filled without the language: fixed pieces, and what stands between them.

Values are looked up here and go through the language's own filters and escaping, so the result is the same. Whatever is
not plain (lists, errors, too much) is left to the language.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from liquid import Environment, Undefined
from liquid.builtin.content import ContentNode
from liquid.builtin.expressions import Path, StringLiteral
from liquid.builtin.expressions.filtered import FilteredExpression
from liquid.builtin.output import OutputNode
from liquid.builtin.tags.comment_tag import CommentNode
from liquid.builtin.tags.if_tag import IfNode
from liquid.exceptions import LiquidError
from liquid.stringify import to_liquid_string

from appliance.content.designs.language import ENCODINGS
from appliance.content.designs.merge import MAX_OUTPUT

_FILTERS = ("default", "upcase", "downcase", "capitalize", "strip", "escape", "url_encode", *ENCODINGS)
_PLAIN = (str, int, float, bool, type(None))
_ASKED = (*_PLAIN, dict, list)
# Names that mean something else where a value has none of that name
_SPECIAL = ("size", "first", "last")
_BUILT_IN = ("now", "today")
# Longer values go through filters in the language, which looks at the clock between them
MAX_FILTERED_CHARACTERS = 1_000
# So many values are filled in between two looks at the clock
VALUES_PER_LOOK = 16


class NotPlain(Exception):
    """A template or a value that only the language can fill in."""


class Slot(NamedTuple):
    """A value that is shown: where it is looked up, what is done with it, and under which name it is the same slot."""

    look: Callable[[Mapping[str, Any]], Any]
    steps: tuple[Callable[[Any], Any], ...]
    escaped: bool
    name: tuple[Any, ...]

    def shown(self, value: Any) -> str:
        """Return what is shown for a value that was looked up; raises NotPlain."""
        if type(value) not in _PLAIN and not isinstance(value, Undefined):
            raise NotPlain
        for step in self.steps:
            if type(value) is str and len(value) > MAX_FILTERED_CHARACTERS:
                raise NotPlain
            value = step(value)
        return _lines(to_liquid_string(value, self.escaped))


class Question(NamedTuple):
    """Pieces that show where a value is there, and those that show where it is not."""

    look: Callable[[Mapping[str, Any]], Any]
    then: "list[Piece]"
    other: "list[Piece]"

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether there is something to show; raises NotPlain."""
        value = self.look(values)
        if type(value) not in _ASKED and not isinstance(value, Undefined):
            raise NotPlain
        return not (value is None or value is False or isinstance(value, Undefined))


Piece = str | Slot | Question


class Splice:
    """The pieces of a template; raises NotPlain for one that has more than plain outputs and plain questions."""

    def __init__(self, nodes: list[Any], environment: Environment) -> None:
        self.pieces = _pieces(nodes, environment)

    def fill(self, values: Mapping[str, Any], until: float) -> str | None:
        """Return the text, or None where only the language can."""
        parts: list[str] = []
        try:
            _fill(self.pieces, values, parts, Budget(until))
        except (NotPlain, LiquidError, TypeError, ValueError):
            return None  # filling it again will say what is wrong
        text = "".join(parts)
        return text if len(text) * 4 <= MAX_OUTPUT or len(text.encode()) <= MAX_OUTPUT else None


class Budget:
    """What one filling may still take: values until the clock is looked at, and characters or bytes in all."""

    __slots__ = ("_size", "_until", "_values")

    def __init__(self, until: float) -> None:
        self._until, self._values, self._size = until, 0, 0

    def take(self, size: int) -> None:
        """Count a value of this size that was filled in; raises NotPlain where all of them are too much, or the time
        is over."""
        self._size += size
        self._values += 1
        if self._size > MAX_OUTPUT or (self._values % VALUES_PER_LOOK == 0 and time.thread_time() > self._until):
            raise NotPlain


def _lines(text: str) -> str:
    # As the language's own output ends lines
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _fill(pieces: list[Piece], values: Mapping[str, Any], parts: list[str], budget: Budget) -> None:
    for one in pieces:
        if isinstance(one, str):
            parts.append(one)
        elif isinstance(one, Slot):
            text = one.shown(one.look(values))
            budget.take(len(text))
            parts.append(text)
        else:
            _fill(one.then if one.holds(values) else one.other, values, parts, budget)


def _pieces(nodes: list[Any], environment: Environment) -> list[Piece]:
    found: list[Piece] = []
    for node in nodes:
        if isinstance(node, ContentNode):
            found.append(_lines(node.text))
        elif isinstance(node, OutputNode):
            found.append(_output(node.expression, environment))
        elif isinstance(node, IfNode):
            found.append(_question(node, environment))
        elif not isinstance(node, CommentNode):
            raise NotPlain
    return found


def _look(path: tuple[str, ...], nothing: Undefined, values: Mapping[str, Any]) -> Any:
    """Look a value up as the language does, as long as there are only plain dictionaries on the way."""
    found: Any = values
    for name in path:
        if type(found) is not dict:
            if type(found) in _PLAIN:
                return nothing
            raise NotPlain
        if name not in found:
            return nothing
        found = found[name]
    return found


def _looked_up(expression: Any, environment: Environment) -> Callable[[Mapping[str, Any]], Any]:
    if not isinstance(expression, Path):
        raise NotPlain
    path = expression.path
    if not all(type(one) is str for one in path) or path[0] in _BUILT_IN or any(one in _SPECIAL for one in path[1:]):
        raise NotPlain
    names = tuple(str(one) for one in path)
    return partial(_look, names, environment.undefined(names[0]))


def _output(expression: Any, environment: Environment) -> Piece:
    if not isinstance(expression, FilteredExpression):
        raise NotPlain
    path = expression.left
    look = _looked_up(path, environment)
    filters = [(one.name, _words(one)) for one in expression.filters or ()]
    steps = tuple(_step(name, words, environment) for name, words in filters)
    return Slot(look, steps, environment.autoescape, (str(path), *filters))


def _words(one: Any) -> tuple[str, ...]:
    """Return the arguments of a filter, if they are words."""
    words: list[str] = []
    for found in one.args:
        literal = getattr(found, "value", None)
        if hasattr(found, "name") or not isinstance(literal, StringLiteral):
            raise NotPlain
        words.append(literal.value)
    return tuple(words)


def _step(name: str, words: tuple[str, ...], environment: Environment) -> Callable[[Any], Any]:
    """Return a filter with its arguments, made as the language makes them."""
    if name not in _FILTERS:
        raise NotPlain
    function = environment.filters[name]
    if getattr(function, "with_context", False):
        raise NotPlain
    if getattr(function, "with_environment", False):
        function = partial(function, environment=environment)
    return lambda value: function(value, *words)


def _question(node: Any, environment: Environment) -> Piece:
    """Return a block that shows where a value is there; an `else` is allowed, more is not."""
    if node.alternatives:
        raise NotPlain
    look = _looked_up(node.condition.expression, environment)
    then = _block(node.consequence, environment)
    return Question(look, then, _block(node.default, environment) if node.default is not None else [])


def _block(block: Any, environment: Environment) -> list[Piece]:
    # Of a block without any words the language shows nothing, not even its spaces
    return [] if block.blank and environment.suppress_blank_control_flow_blocks else _pieces(block.nodes, environment)
