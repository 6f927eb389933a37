"""A faster path for templates of fixed texts, simple outputs and simple conditions: they are filled without Liquid.

Values pass through the library's own filters and escaping, so the result is the same. Everything else, such as loops,
lists, large values and errors, is left to the library (`NeedsLiquid`).
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from liquid import Environment, Undefined
from liquid.builtin.content import ContentNode
from liquid.builtin.expressions import FilteredExpression, Path, StringLiteral
from liquid.builtin.output import OutputNode
from liquid.builtin.tags.comment_tag import CommentNode
from liquid.builtin.tags.if_tag import IfNode
from liquid.exceptions import (
    LiquidError,
)
from liquid.stringify import to_liquid_string

from appliance.content.designs.language import ENCODINGS
from appliance.content.designs.merge_limits import MAX_OUTPUT_BYTES

_PLAIN_FILTERS = (
    "default", "upcase", "downcase", "capitalize", "strip", "escape", "url_encode", "newline_to_br", *ENCODINGS,
)  # fmt: skip
_PLAIN_TYPES = (str, int, float, bool, type(None))
_CONDITION_TYPES = (*_PLAIN_TYPES, dict, list)
# Names to which the library gives a special meaning if a value has no such key.
_SPECIAL_NAMES = ("size", "first", "last")
_BUILT_IN_NAMES = ("now", "today")
# Longer values are left to the library, which checks the clock between filters.
MAX_FILTERED_CHARACTERS = 1_000
# The clock is checked each time that this many values are filled in.
VALUES_PER_CLOCK_CHECK = 16


class NeedsLiquid(Exception):
    """A template or value that only the Liquid library can process."""


class Variable(NamedTuple):
    """A variable of a template: the names of its path, and the value that stands for a missing one."""

    path: tuple[str, ...]
    undefined: Undefined

    def look_up(self, values: Mapping[str, Any]) -> Any:
        """Return the value, or `undefined` if it is missing. Raises NeedsLiquid unless all parents are dicts."""
        *parents, name = self.path
        for parent in parents:
            values = as_parent(values.get(parent))
        return values.get(name, self.undefined)


def as_parent(value: Any) -> dict[str, Any]:
    """Return the value itself if it is a dict, or an empty dict if it is missing, a text, a number or a boolean.

    Raises NeedsLiquid for all other values.
    """
    if type(value) is dict:
        return value
    if type(value) in _PLAIN_TYPES:
        return {}
    raise NeedsLiquid


def is_present(value: Any) -> bool:
    """Return whether a value is present, as Liquid defines it: not missing, None or false.

    Raises NeedsLiquid for a value that is not a plain type, dict or list.
    """
    if type(value) in _CONDITION_TYPES:
        return value is not None and value is not False
    if isinstance(value, Undefined):
        return False
    raise NeedsLiquid


class Slot(NamedTuple):
    """A `{{ … }}` tag of a template: its variable and its filters.

    `is_escaped` means that the text is HTML-escaped. Within one body, slots with equal `name` (path and filters) give
    the same text for the same values.
    """

    variable: Variable
    filters: tuple[Callable[[Any], Any], ...]
    is_escaped: bool
    name: tuple[Any, ...]

    def to_text(self, value: Any) -> str:
        """Return the text of a value after its filters.

        Raises NeedsLiquid for a list or dict and for a filter of a text longer than `MAX_FILTERED_CHARACTERS`, and
        LiquidError if a filter rejects the value.
        """
        if type(value) not in _PLAIN_TYPES and not isinstance(value, Undefined):
            raise NeedsLiquid
        for step in self.filters:
            if type(value) is str and len(value) > MAX_FILTERED_CHARACTERS:
                raise NeedsLiquid
            value = step(value)
        return _normalize_line_ends(to_liquid_string(value, self.is_escaped))


class ConditionPiece(NamedTuple):
    """A condition: `pieces` are shown if the value is present (`is_present`), `else_pieces` if not."""

    variable: Variable
    pieces: "list[Piece]"
    else_pieces: "list[Piece]"


Piece = str | Slot | ConditionPiece


def list_variables(pieces: "list[Piece]") -> list[Variable]:
    """Return the variables of all outputs and conditions, each once."""
    variables: dict[tuple[str, ...], Variable] = {}
    for piece in pieces:
        if isinstance(piece, ConditionPiece):
            inner = list_variables([*piece.pieces, *piece.else_pieces])
            variables |= {variable.path: variable for variable in (piece.variable, *inner)}
        elif isinstance(piece, Slot):
            variables[piece.variable.path] = piece.variable
    return [*variables.values()]


class SpliceTemplate:
    """A template as a list of pieces: fixed texts, outputs and conditions.

    Creating it raises NeedsLiquid if the template contains anything else.
    """

    def __init__(self, nodes: list[Any], environment: Environment) -> None:
        self.pieces = _build_pieces(nodes, environment)

    def fill(self, values: Mapping[str, Any], until: float) -> str | None:
        """Return the rendered text, or None if only the library can render it or report the error.

        `until` is the deadline, as processor time of the thread.
        """
        parts: list[str] = []
        try:
            _fill(self.pieces, values, parts, FillBudget(until))
        except (NeedsLiquid, LiquidError, TypeError, ValueError):
            return None  # the caller renders with the library, which reports the error
        text = "".join(parts)
        return text if len(text) * 4 <= MAX_OUTPUT_BYTES or len(text.encode()) <= MAX_OUTPUT_BYTES else None


class FillBudget:
    """A counter of filled values and their size, which enforces the limits of output and processor time."""

    __slots__ = ("_size", "_until", "_values")

    def __init__(self, until: float) -> None:
        self._until, self._values, self._size = until, 0, 0

    def take(self, size: int) -> None:
        """Count a filled value and its number of characters; raises NeedsLiquid past a limit."""
        self._size += size
        self._values += 1
        if self._size > MAX_OUTPUT_BYTES or (
            self._values % VALUES_PER_CLOCK_CHECK == 0 and time.thread_time() > self._until
        ):
            raise NeedsLiquid


def _normalize_line_ends(text: str) -> str:
    # The library converts line ends in the same way.
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _fill(pieces: list[Piece], values: Mapping[str, Any], parts: list[str], budget: FillBudget) -> None:
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(piece)
        elif isinstance(piece, Slot):
            text = piece.to_text(piece.variable.look_up(values))
            budget.take(len(text))
            parts.append(text)
        else:
            pieces_shown = piece.pieces if is_present(piece.variable.look_up(values)) else piece.else_pieces
            _fill(pieces_shown, values, parts, budget)


def _build_pieces(nodes: list[Any], environment: Environment) -> list[Piece]:
    pieces: list[Piece] = []
    for node in nodes:
        if isinstance(node, ContentNode):
            pieces.append(_normalize_line_ends(node.text))
        elif isinstance(node, OutputNode):
            pieces.append(_build_slot(node.expression, environment))
        elif isinstance(node, IfNode):
            pieces.append(_build_condition(node, environment))
        elif not isinstance(node, CommentNode):
            raise NeedsLiquid
    return pieces


def _build_variable(expression: Any, environment: Environment) -> Variable:
    if not isinstance(expression, Path):
        raise NeedsLiquid
    path = expression.path
    if (
        not all(type(part) is str for part in path)
        or path[0] in _BUILT_IN_NAMES
        or any(part in _SPECIAL_NAMES for part in path[1:])
    ):
        raise NeedsLiquid
    names = tuple(str(part) for part in path)
    return Variable(names, environment.undefined(names[0]))


def _build_slot(expression: Any, environment: Environment) -> Piece:
    if not isinstance(expression, FilteredExpression):
        raise NeedsLiquid
    path = expression.left
    variable = _build_variable(path, environment)
    filters = [(filter_.name, _filter_arguments(filter_)) for filter_ in expression.filters or ()]
    steps = tuple(_build_filter(name, words, environment) for name, words in filters)
    return Slot(variable, steps, environment.autoescape, (str(path), *filters))


def _filter_arguments(filter_: Any) -> tuple[str, ...]:
    """Return the arguments of a filter; raises NeedsLiquid unless all are literal texts without a name."""
    arguments: list[str] = []
    for argument in filter_.args:
        literal = getattr(argument, "value", None)
        if hasattr(argument, "name") or not isinstance(literal, StringLiteral):
            raise NeedsLiquid
        arguments.append(literal.value)
    return tuple(arguments)


def _build_filter(name: str, arguments: tuple[str, ...], environment: Environment) -> Callable[[Any], Any]:
    """Return a filter with its arguments bound, as the library binds them.

    Raises NeedsLiquid for a filter that is not in `_PLAIN_FILTERS` or needs the rendering context.
    """
    if name not in _PLAIN_FILTERS:
        raise NeedsLiquid
    function = environment.filters[name]
    if getattr(function, "with_context", False):
        raise NeedsLiquid
    if getattr(function, "with_environment", False):
        function = partial(function, environment=environment)
    return lambda value: function(value, *arguments)


def _build_condition(node: Any, environment: Environment) -> Piece:
    """Return the pieces of an `if` with an optional `else`.

    Raises NeedsLiquid if there is an `elsif` or the condition is more than one variable.
    """
    if node.alternatives:
        raise NeedsLiquid
    variable = _build_variable(node.condition.expression, environment)
    pieces = _build_block(node.consequence, environment)
    return ConditionPiece(variable, pieces, _build_block(node.default, environment) if node.default is not None else [])


def _build_block(block: Any, environment: Environment) -> list[Piece]:
    # The library shows nothing of a block that contains only white space.
    return (
        []
        if block.blank and environment.suppress_blank_control_flow_blocks
        else _build_pieces(block.nodes, environment)
    )
