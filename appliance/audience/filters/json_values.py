"""Predicates over a value inside JSON: the value's own type counts, so a text "30" is not the number 30."""

import json
from collections.abc import Callable
from typing import Any

from appliance.audience.filters import values
from appliance.audience.filters.fields import fold, like
from appliance.audience.filters.scope import Binder, Operand

_NUMBER = "IN ('integer', 'real')"


def _text(operand: Operand, condition: str) -> str:
    return f"({condition} AND {operand.type} = 'text')"


def equals(operand: Operand, value: Any, binder: Binder) -> str:
    """Compare with one text, number or boolean."""
    if isinstance(value, bool):
        return f"{operand.type} = '{'true' if value else 'false'}'"
    if not isinstance(value, str):
        # The collation is the index's: without it the index on the path could not be used
        return f"({operand.value} COLLATE NOCASE = {binder.add(value)} AND {operand.type} {_NUMBER})"
    if value.isascii():
        return _text(operand, f"{operand.value} = {binder.add(value)} COLLATE NOCASE")
    return _text(operand, f"folded({operand.value}) = {binder.add(fold(value))}")


def _one_of(operand: Operand, wanted: list[Any], binder: Binder) -> str:
    numbers = [one for one in wanted if not isinstance(one, str | bool)]
    parts = [equals(operand, one, binder) for one in {one for one in wanted if isinstance(one, bool)}]
    plain = [one for one in wanted if isinstance(one, str) and one.isascii()]
    other = [fold(one) for one in wanted if isinstance(one, str) and not one.isascii()]
    if numbers:
        parts.append(f"({_listed(f'{operand.value} COLLATE NOCASE', numbers, binder)} AND {operand.type} {_NUMBER})")
    if plain:
        parts.append(_text(operand, _listed(f"{operand.value} COLLATE NOCASE", plain, binder)))
    if other:
        parts.append(_text(operand, _listed(f"folded({operand.value})", other, binder)))
    return f"({' OR '.join(parts)})"


def _listed(expression: str, wanted: list[Any], binder: Binder) -> str:
    return f"{expression} IN (SELECT value FROM json_each({binder.add(json.dumps(wanted))}))"


def _part(plain: str, shape: str) -> Callable[[Operand, str, Binder], str]:
    def sql(operand: Operand, value: str, binder: Binder) -> str:
        if value.isascii():
            return _text(operand, like(operand.value, plain, value, binder))
        other = f"folded({operand.value})"
        return _text(operand, shape.format(x=other, v=binder.add(fold(value)), n=len(value), plain=operand.value))

    return sql


_contains_text = _part("%{}%", "instr({x}, {v}) > 0")


def contains(operand: Operand, value: str, binder: Binder) -> str:
    """Look for a part of a text, or for an element of an array."""
    element = f"item.value = {binder.add(value)} COLLATE NOCASE"
    if not value.isascii():
        element = f"folded(item.value) = {binder.add(fold(value))}"
    return (
        f"({_contains_text(operand, value, binder)} OR ({operand.type} = 'array' AND EXISTS "
        f"(SELECT 1 FROM {operand.each} item WHERE item.type = 'text' AND {element})))"
    )


def _compared(sign: str) -> Callable[[Operand, Any, Binder], str]:
    def sql(operand: Operand, value: Any, binder: Binder) -> str:
        condition = f"{operand.value} COLLATE NOCASE {sign} {binder.add(value)}"
        if isinstance(value, str):
            return _text(operand, condition)
        return f"({condition} AND {operand.type} {_NUMBER})"

    return sql


def _between(operand: Operand, value: list[Any], binder: Binder) -> str:
    return f"({_compared('>=')(operand, value[0], binder)} AND {_compared('<=')(operand, value[1], binder)})"


def _filled(operand: Operand, value: bool, binder: Binder) -> str:
    # The value is taken out once, and its type only where a text could be taken for an empty list or object
    text = f"THEN {operand.type} = 'text'"
    return f"CASE coalesce({operand.value}, '') WHEN '' THEN 0 WHEN '[]' {text} WHEN '{{}}' {text} ELSE 1 END"


def _true(operand: Operand, value: bool, binder: Binder) -> str:
    return f"{operand.type} = 'true'"


_ENDS = "length({plain}) >= {n} AND substr({x}, -{n}) = {v}"
# key, opposite, what it takes, reader, SQL, words, words of the opposite
TESTS: tuple[tuple[Any, ...], ...] = (
    ("eq", "not_eq", "value", values.json_value, equals, "is {}", "is not {}"),
    ("cont", "not_cont", "text", values.part, contains, "contains {}", "does not contain {}"),
    ("start", "not_start", "text", values.part, _part("{}%", "substr({x}, 1, {n}) = {v}"), "starts with {}",
     "does not start with {}"),
    ("end", "not_end", "text", values.part, _part("%{}", _ENDS),
     "ends with {}", "does not end with {}"),
    ("in", "not_in", "values", values.many(values.json_value), _one_of, "is one of {}", "is none of {}"),
    ("gt", None, "value", values.bound, _compared(">"), "is over {}"),
    ("gteq", None, "value", values.bound, _compared(">="), "is {} or more"),
    ("lt", None, "value", values.bound, _compared("<"), "is under {}"),
    ("lteq", None, "value", values.bound, _compared("<="), "is {} or less"),
    ("between", None, "values", values.pair(values.bound), _between, "is between {}"),
    ("present", "blank", "flag", values.flag, _filled, "is known", "is not known"),
    ("true", "false", "flag", values.flag, _true, "is true", "is not true"),
)  # fmt: skip
