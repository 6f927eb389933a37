"""The predicates of each type: how a value is read, its SQL, its words. A new one is one entry in TESTS.

A test is written once, in the positive. Its opposite is everybody else, so that it matches missing values too.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.audience.filters import json_values, values
from appliance.audience.filters.fields import fold, like
from appliance.audience.filters.scope import Binder, Operand
from appliance.audience.filters.values import Span


class Test(NamedTuple):
    """One predicate of some types with its opposite."""

    types: tuple[str, ...]
    key: str
    opposite: str | None
    takes: str  # what the value is, for the builder
    read: Callable[..., Any]
    sql: Callable[[Operand, Any, Binder], str]
    words: str
    opposite_words: str = ""


def same(operand: Operand, value: str, binder: Binder) -> str:
    """Compare a whole text without case; an address by its normal form, to the letter."""
    if operand.whole:
        return f"{operand.whole} = {binder.add(value)}"
    if value.isascii():
        return f"{operand.value} = {binder.add(value)} COLLATE NOCASE"
    return f"folded({operand.value}) = {binder.add(fold(value))}"


def contains(operand: Operand, value: str, binder: Binder) -> str:
    """Look for a part anywhere in a text."""
    if value.isascii():
        return like(operand.value, "%{}%", value, binder)
    return f"instr(folded({operand.value}), {binder.add(fold(value))}) > 0"


def starts(operand: Operand, value: str, binder: Binder) -> str:
    """Look for a part at the beginning of a text."""
    if value.isascii():
        return like(operand.value, "{}%", value, binder)
    return f"substr(folded({operand.value}), 1, {len(value)}) = {binder.add(fold(value))}"


def ends(operand: Operand, value: str, binder: Binder) -> str:
    """Look for a part at the end of a text."""
    if value.isascii():
        return like(operand.value, "%{}", value, binder)
    return (
        f"(length({operand.value}) >= {len(value)} AND "
        f"substr(folded({operand.value}), -{len(value)}) = {binder.add(fold(value))})"
    )


def one_of(operand: Operand, wanted: list[str], binder: Binder) -> str:
    """Compare a whole text with many, as `same` with one."""
    if operand.whole:
        return f"{operand.whole} IN (SELECT value FROM json_each({binder.add(json.dumps(wanted))}))"
    plain = [one for one in wanted if one.isascii()]
    other = [fold(one) for one in wanted if not one.isascii()]
    parts = []
    if plain:
        parts.append(
            f"{operand.value} COLLATE NOCASE IN (SELECT value FROM json_each({binder.add(json.dumps(plain))}))"
        )
    if other:
        parts.append(f"folded({operand.value}) IN (SELECT value FROM json_each({binder.add(json.dumps(other))}))")
    return f"({' OR '.join(parts)})"


def _filled(operand: Operand, value: bool, binder: Binder) -> str:
    return f"({operand.value} IS NOT NULL AND {operand.value} <> '')"


def _known(operand: Operand, value: bool, binder: Binder) -> str:
    return f"{operand.value} IS NOT NULL"


def _one_of(operand: Operand, wanted: list[Any], binder: Binder) -> str:
    return f"{operand.value} IN (SELECT value FROM json_each({binder.add(json.dumps(wanted))}))"


def _compared(sign: str) -> Callable[[Operand, Any, Binder], str]:
    return lambda operand, value, binder: f"{operand.value} {sign} {binder.add(value)}"


def _between(operand: Operand, value: list[Any], binder: Binder) -> str:
    return f"({operand.value} >= {binder.add(value[0])} AND {operand.value} <= {binder.add(value[1])})"


def _edge(sign: str, edge: str) -> Callable[[Operand, Any, Binder], str]:
    return lambda operand, value, binder: f"{operand.value} {sign} {binder.add(getattr(value, edge))}"


def _within(operand: Operand, span: Span, binder: Binder) -> str:
    return f"({operand.value} >= {binder.add(span.start)} AND {operand.value} < {binder.add(span.end)})"


def _spanned(operand: Operand, value: list[Span], binder: Binder) -> str:
    return _within(operand, Span(value[0].start, value[1].end), binder)


def _lately(operand: Operand, days: int, binder: Binder) -> str:
    return f"{operand.value} >= {binder.add(binder.scope.now - days * 86_400_000)}"


def _is(operand: Operand, value: bool, binder: Binder) -> str:
    return operand.value if value else f"NOT {operand.value}"


def _true(operand: Operand, value: bool, binder: Binder) -> str:
    return operand.value


_COMPARISONS = (
    ("gt", ">", "end", ">=", "is over {}", "is after {}"),
    ("gteq", ">=", "start", ">=", "is {} or more", "is {} or later"),
    ("lt", "<", "start", "<", "is under {}", "is before {}"),
    ("lteq", "<=", "end", "<", "is {} or less", "is {} or earlier"),
)

TESTS: tuple[Test, ...] = (
    Test(("text", "code"), "eq", "not_eq", "text", values.text, same, "is {}", "is not {}"),
    Test(("text",), "cont", "not_cont", "text", values.part, contains, "contains {}", "does not contain {}"),
    Test(("text",), "start", "not_start", "text", values.part, starts, "starts with {}", "does not start with {}"),
    Test(("text",), "end", "not_end", "text", values.part, ends, "ends with {}", "does not end with {}"),
    Test(("text", "code"), "in", "not_in", "texts", values.many(values.text), one_of, "is one of {}", "is none of {}"),
    Test(("text", "code"), "present", "blank", "flag", values.flag, _filled, "is known", "is not known"),
    Test(("tags",), "cont", "not_cont", "text", values.text, same, "has {}", "does not have {}"),
    Test(("tags",), "eq", "not_eq", "text", values.text, same, "has {}", "does not have {}"),
    Test(("tags",), "in", "not_in", "texts", values.many(values.text), one_of, "has one of {}", "has none of {}"),
    Test(("tags",), "present", "blank", "flag", values.flag, _filled, "has any", "has none"),
    Test(("id",), "eq", "not_eq", "id", values.identity, _compared("="), "{}", "not {}"),
    Test(("id",), "in", "not_in", "ids", values.many(values.identity), _one_of, "one of {}", "none of {}"),
    Test(("id",), "present", "blank", "flag", values.flag, _known, "any", "none"),
    Test(("number",), "eq", "not_eq", "number", values.number, _compared("="), "is {}", "is not {}"),
    *(
        Test(("number",), key, None, "number", values.number, _compared(sign), words)
        for key, sign, _, _, words, _ in _COMPARISONS
    ),
    Test(("number",), "between", None, "numbers", values.pair(values.number), _between, "is between {}"),
    Test(("number",), "in", "not_in", "numbers", values.many(values.number), _one_of, "is one of {}", "is none of {}"),
    Test(("number", "time"), "present", "blank", "flag", values.flag, _known, "is known", "is not known"),
    *(
        Test(("time",), key, None, "time", values.span, _edge(sign, edge), words)
        for key, _, edge, sign, _, words in _COMPARISONS
    ),
    Test(("time",), "between", None, "times", values.pair(values.span), _spanned, "is between {}"),
    Test(("time",), "eq", None, "time", values.day, _within, "is on {}"),
    Test(("time",), "within_days", "not_within_days", "days", values.days, _lately, "is within the last {} days",
         "is not within the last {} days"),
    Test(("boolean",), "true", "false", "flag", values.flag, _true, "is true", "is not true"),
    Test(("boolean",), "eq", "not_eq", "boolean", values.boolean, _is, "is {}", "is not {}"),
    *(Test(("json",), *entry) for entry in json_values.TESTS),
)  # fmt: skip

BY_TYPE: dict[str, dict[str, tuple[Test, bool]]] = {}
for _test in TESTS:
    for _type in _test.types:
        _known_here = BY_TYPE.setdefault(_type, {})
        _known_here[_test.key] = (_test, False)
        if _test.opposite:
            _known_here[_test.opposite] = (_test, True)
