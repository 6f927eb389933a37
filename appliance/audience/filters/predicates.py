"""The predicates of each field type: how their value is read, their SQL, and their phrases.

To add a predicate, add an entry to PREDICATES. Only the positive form of a predicate has SQL. Its opposite matches all
other contacts, including those without a value.

Each `read_…` function returns the value in the form that its predicate uses, or adds an error to the context and
returns None. `below` is appended to the path of the value in errors.
"""

import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from appliance.audience.filters.fields import Binder, Operand, ValueContext, like_condition
from appliance.core import clock
from appliance.core.i18n import gettext, gettext_noop
from appliance.storage.database import fold_case

MAX_IN_VALUES = 500
MAX_TEXT_CHARACTERS = 1000
MAX_DAYS = 36_500
_MAX_ID = 2**63 - 1
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_DAY = re.compile(r"^\d{4}-\d\d-\d\d$", re.ASCII)


class Span(NamedTuple):
    """A moment or a day in milliseconds, from `start` up to but not including `end`."""

    start: int
    end: int


def read_text(raw: Any, context: ValueContext, below: str = "", is_whole: bool = True) -> str | None:
    """Read a text to compare with; for an address field, it is normalized as a whole address if `is_whole`."""
    if raw is None or raw == "":
        return context.add_error(gettext("can't be blank"), below)
    if not isinstance(raw, str) or UNSTORABLE.search(raw):
        return context.add_error(gettext("is invalid"), below)
    if len(raw) > MAX_TEXT_CHARACTERS:
        return context.add_error(
            gettext("is too long (maximum is %(limit)s characters)", limit=MAX_TEXT_CHARACTERS),
            below,
        )
    field = context.field
    if field.choices and raw.lower() not in field.choices:
        return context.add_error(gettext("is not included in the list"), below)
    return field.normalize(raw, is_whole) if field.normalize else raw


def read_text_part(raw: Any, context: ValueContext) -> str | None:
    """Read a part of a text, which is not normalized as a whole address."""
    text = read_text(raw, context, is_whole=False)
    return context.add_error(gettext("can't be blank")) if text == "" else text


def read_number(raw: Any, context: ValueContext, below: str = "") -> float | int | None:
    """Read a finite number that SQLite can store."""
    if raw is None:
        return context.add_error(gettext("can't be blank"), below)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return context.add_error(gettext("is not a number"), below)
    is_storable = abs(raw) <= _MAX_ID if isinstance(raw, int) else math.isfinite(raw)
    return raw if is_storable else context.add_error(gettext("is invalid"), below)


def read_id(raw: Any, context: ValueContext, below: str = "") -> int | None:
    """Read the id of a list, segment, flow or campaign, which must exist if the scope checks ids."""
    if raw is None:
        return context.add_error(gettext("can't be blank"), below)
    if isinstance(raw, bool) or not isinstance(raw, int):
        return context.add_error(gettext("is not a number"), below)
    exists = context.scope.exists
    if not 1 <= raw <= _MAX_ID or (exists is not None and not exists(context.field.id_kind, raw)):
        return context.add_error(gettext("must exist"), below)
    return raw


def read_json_value(raw: Any, context: ValueContext, below: str = "") -> Any:
    """Read a text, number or boolean to compare with custom data."""
    if isinstance(raw, bool):
        return raw
    return read_number(raw, context, below) if isinstance(raw, int | float) else read_text(raw, context, below)


def read_boolean(raw: Any, context: ValueContext, below: str = "") -> bool | None:
    """Read true or false."""
    if raw is None:
        return context.add_error(gettext("can't be blank"), below)
    return raw if isinstance(raw, bool) else context.add_error(gettext("is invalid"), below)


def read_flag(raw: Any, context: ValueContext) -> bool:
    """Read the value of a predicate that needs none; return False for false, which inverts the predicate, else True."""
    if raw is not None and not isinstance(raw, bool):
        context.add_error(gettext("is invalid"))
    return raw is not False


def read_span(raw: Any, context: ValueContext, below: str = "") -> Span | None:
    """Read a date-time with an offset as a moment, or a date as that whole day in the account's time zone."""
    if raw is None or raw == "":
        return context.add_error(gettext("can't be blank"), below)
    try:
        if isinstance(raw, str) and _DAY.match(raw):
            return _day_span(date.fromisoformat(raw), context.scope.zone)
        moment = clock.parse(raw)
    except (ValueError, TypeError, OverflowError, OSError):
        return context.add_error(gettext("is invalid"), below)
    return Span(moment, moment + 1)


def read_day(raw: Any, context: ValueContext) -> Span | None:
    """Read a date or date-time as the whole day in the account's time zone."""
    span = read_span(raw, context)
    if span is None or _DAY.match(str(raw)):
        return span
    try:
        return _day_span(
            datetime.fromtimestamp(span.start // 1000, ZoneInfo(context.scope.zone)).date(), context.scope.zone
        )
    except (ValueError, OverflowError, OSError):
        return context.add_error(gettext("is invalid"))


def _day_span(calendar_day: date, zone: str) -> Span:
    if not 1 < calendar_day.year < 9999:
        raise ValueError(gettext("the day is outside of the supported years in some time zone"))
    edges = [
        int(datetime(day_start.year, day_start.month, day_start.day, tzinfo=ZoneInfo(zone)).timestamp() * 1000)
        for day_start in (calendar_day, calendar_day + timedelta(days=1))
    ]
    return Span(edges[0], edges[1])


def read_days(raw: Any, context: ValueContext, below: str = "") -> int | None:
    """Read a number of days before now, from 1 to `MAX_DAYS`."""
    if raw is None:
        return context.add_error(gettext("can't be blank"), below)
    if isinstance(raw, bool) or not isinstance(raw, int):
        return context.add_error(gettext("is not a number"), below)
    if raw < 1:
        return context.add_error(gettext("must be greater than or equal to 1"), below)
    return (
        raw
        if raw <= MAX_DAYS
        else context.add_error(gettext("must be less than or equal to %(limit)s", limit=MAX_DAYS), below)
    )


def list_of(reader: Any) -> Any:
    """Return a function that reads a list of up to `MAX_IN_VALUES` values, each with `reader`."""

    def read(raw: Any, context: ValueContext) -> list[Any] | None:
        if raw is None or raw == []:
            return context.add_error(gettext("can't be blank"))
        if not isinstance(raw, list):
            return context.add_error(gettext("is invalid"))
        if len(raw) > MAX_IN_VALUES:
            return context.add_error(gettext("is too long (maximum is %(limit)s entries)", limit=MAX_IN_VALUES))
        return [reader(raw_value, context, f"[{index}]") for index, raw_value in enumerate(raw)]

    return read


def pair_of(reader: Any) -> Any:
    """Return a function that reads a list of two values, the lower and the upper bound, each with `reader`."""

    def read(raw: Any, context: ValueContext) -> list[Any] | None:
        if raw is None or raw == []:
            return context.add_error(gettext("can't be blank"))
        if not isinstance(raw, list) or len(raw) != 2:
            return context.add_error(gettext("is invalid"))
        low, high = (reader(raw_value, context, f"[{index}]") for index, raw_value in enumerate(raw))
        if low is not None and high is not None and isinstance(low, str) != isinstance(high, str):
            return context.add_error(gettext("is invalid"))
        return [low, high]

    return read


def read_bound(raw: Any, context: ValueContext, below: str = "") -> Any:
    """Read a bound to compare custom data with: a number or a text, such as a date in ISO 8601, which sorts as text."""
    if isinstance(raw, bool):
        return context.add_error(gettext("is invalid"), below)
    return read_json_value(raw, context, below)


# Predicates for a JSON value also compare its type: the text "30" is not the number 30.

_IS_NUMBER = "IN ('integer', 'real')"


def _and_is_text(operand: Operand, condition: str) -> str:
    return f"({condition} AND {operand.type} = 'text')"


def json_equals(operand: Operand, value: Any, binder: Binder) -> str:
    """Return the condition that a JSON value equals a text (regardless of case), number or boolean."""
    if isinstance(value, bool):
        return f"{operand.type} = '{'true' if value else 'false'}'"
    if not isinstance(value, str):
        # SQLite can use the index on the path only with the collation of that index.
        return f"({operand.value} COLLATE NOCASE = {binder.add(value)} AND {operand.type} {_IS_NUMBER})"
    if value.isascii():
        return _and_is_text(operand, f"{operand.value} = {binder.add(value)} COLLATE NOCASE")
    return _and_is_text(operand, f"folded({operand.value}) = {binder.add(fold_case(value))}")


def _json_one_of(operand: Operand, values: list[Any], binder: Binder) -> str:
    numbers = [value for value in values if not isinstance(value, str | bool)]
    conditions = [
        json_equals(operand, value, binder) for value in {value for value in values if isinstance(value, bool)}
    ]
    ascii_texts = [value for value in values if isinstance(value, str) and value.isascii()]
    folded_texts = [fold_case(value) for value in values if isinstance(value, str) and not value.isascii()]
    if numbers:
        conditions.append(
            f"({_in_list(f'{operand.value} COLLATE NOCASE', numbers, binder)} AND {operand.type} {_IS_NUMBER})"
        )
    if ascii_texts:
        conditions.append(_and_is_text(operand, _in_list(f"{operand.value} COLLATE NOCASE", ascii_texts, binder)))
    if folded_texts:
        conditions.append(_and_is_text(operand, _in_list(f"folded({operand.value})", folded_texts, binder)))
    return f"({' OR '.join(conditions)})"


def _in_list(expression: str, values: list[Any], binder: Binder) -> str:
    return f"{expression} IN (SELECT value FROM json_each({binder.add(json.dumps(values))}))"


def _json_part(like_shape: str, shape: str) -> Callable[[Operand, str, Binder], str]:
    def sql(operand: Operand, value: str, binder: Binder) -> str:
        if value.isascii():
            return _and_is_text(operand, like_condition(operand.value, like_shape, value, binder))
        folded = f"folded({operand.value})"
        return _and_is_text(
            operand, shape.format(x=folded, v=binder.add(fold_case(value)), n=len(value), plain=operand.value)
        )

    return sql


_contains_text = _json_part("%{}%", "instr({x}, {v}) > 0")


def json_contains(operand: Operand, value: str, binder: Binder) -> str:
    """Return the condition that a JSON text contains a text, or that a JSON array has it as an element.

    Case is ignored.
    """
    element = f"item.value = {binder.add(value)} COLLATE NOCASE"
    if not value.isascii():
        element = f"folded(item.value) = {binder.add(fold_case(value))}"
    return (
        f"({_contains_text(operand, value, binder)} OR ({operand.type} = 'array' AND EXISTS "
        f"(SELECT 1 FROM {operand.elements} item WHERE item.type = 'text' AND {element})))"
    )


def _json_compare(sign: str) -> Callable[[Operand, Any, Binder], str]:
    def sql(operand: Operand, value: Any, binder: Binder) -> str:
        condition = f"{operand.value} COLLATE NOCASE {sign} {binder.add(value)}"
        if isinstance(value, str):
            return _and_is_text(operand, condition)
        return f"({condition} AND {operand.type} {_IS_NUMBER})"

    return sql


def _json_between(operand: Operand, value: list[Any], binder: Binder) -> str:
    return f"({_json_compare('>=')(operand, value[0], binder)} AND {_json_compare('<=')(operand, value[1], binder)})"


def _json_filled(operand: Operand, value: bool, binder: Binder) -> str:
    # The value is extracted once. Its type is read only if a text could be mistaken for an empty list or object.
    text = f"THEN {operand.type} = 'text'"
    return f"CASE coalesce({operand.value}, '') WHEN '' THEN 0 WHEN '[]' {text} WHEN '{{}}' {text} ELSE 1 END"


def _json_true(operand: Operand, value: bool, binder: Binder) -> str:
    return f"{operand.type} = 'true'"


_JSON_ENDS = "length({plain}) >= {n} AND substr({x}, -{n}) = {v}"
# Key, opposite, kind of value, reader, SQL, phrase, and phrase of the opposite.
JSON_PREDICATES: tuple[tuple[Any, ...], ...] = (
    ("eq", "not_eq", "value", read_json_value, json_equals, "is {}", "is not {}"),
    ("cont", "not_cont", "text", read_text_part, json_contains, "contains {}", "does not contain {}"),
    ("start", "not_start", "text", read_text_part, _json_part("{}%", "substr({x}, 1, {n}) = {v}"), "starts with {}",
     "does not start with {}"),
    ("end", "not_end", "text", read_text_part, _json_part("%{}", _JSON_ENDS),
     "ends with {}", "does not end with {}"),
    ("in", "not_in", "values", list_of(read_json_value), _json_one_of, "is one of {}", "is none of {}"),
    ("gt", None, "value", read_bound, _json_compare(">"), "is over {}"),
    ("gteq", None, "value", read_bound, _json_compare(">="), "is at least {}"),
    ("lt", None, "value", read_bound, _json_compare("<"), "is under {}"),
    ("lteq", None, "value", read_bound, _json_compare("<="), "is at most {}"),
    ("between", None, "values", pair_of(read_bound), _json_between, "is between {}"),
    ("present", "blank", "flag", read_flag, _json_filled, "is set", "is not set"),
    ("true", "false", "flag", read_flag, _json_true, "is true", "is not true"),
)  # fmt: skip


class Predicate(NamedTuple):
    """A predicate of one or more field types, with its opposite (None if it has none).

    `read` reads the value from JSON, and `sql` returns the condition. The phrases contain `{}` in place of the value.
    """

    types: tuple[str, ...]
    key: str
    opposite: str | None
    value_kind: str  # the kind of value, for the segment builder
    read: Callable[..., Any]
    sql: Callable[[Operand, Any, Binder], str]
    phrase: str
    opposite_phrase: str = ""


def equals(operand: Operand, value: str, binder: Binder) -> str:
    """Return the condition that a text equals a value, regardless of case.

    An address is compared exactly, in its normalized form. A language tag also equals the tags that it begins with:
    `de-AT` equals `de`.
    """
    if operand.normalized:
        return f"{operand.normalized} = {binder.add(value)}"
    if operand.is_language:
        return _begins_with_tag(operand.value, binder.add(value))
    if value.isascii():
        return f"{operand.value} = {binder.add(value)} COLLATE NOCASE"
    return f"folded({operand.value}) = {binder.add(fold_case(value))}"


def _begins_with_tag(tag: str, prefix: str) -> str:
    return f"substr({tag} || '-', 1, length({prefix}) + 1) = {prefix} || '-' COLLATE NOCASE"


def contains(operand: Operand, value: str, binder: Binder) -> str:
    """Return the condition that a text contains a value, regardless of case."""
    if value.isascii():
        return like_condition(operand.value, "%{}%", value, binder)
    return f"instr(folded({operand.value}), {binder.add(fold_case(value))}) > 0"


def starts(operand: Operand, value: str, binder: Binder) -> str:
    """Return the condition that a text starts with a value, regardless of case."""
    if value.isascii():
        return like_condition(operand.value, "{}%", value, binder)
    return f"substr(folded({operand.value}), 1, {len(value)}) = {binder.add(fold_case(value))}"


def ends(operand: Operand, value: str, binder: Binder) -> str:
    """Return the condition that a text ends with a value, regardless of case."""
    if value.isascii():
        return like_condition(operand.value, "%{}", value, binder)
    return (
        f"(length({operand.value}) >= {len(value)} AND "
        f"substr(folded({operand.value}), -{len(value)}) = {binder.add(fold_case(value))})"
    )


def one_of(operand: Operand, values: list[str], binder: Binder) -> str:
    """Return the condition that a text equals one of several values, compared as in `equals`."""
    if operand.normalized:
        return f"{operand.normalized} IN (SELECT value FROM json_each({binder.add(json.dumps(values))}))"
    if operand.is_language:
        return f"({' OR '.join(equals(operand, value, binder) for value in values)})"
    ascii_texts = [text for text in values if text.isascii()]
    folded_texts = [fold_case(text) for text in values if not text.isascii()]
    conditions = []
    if ascii_texts:
        conditions.append(
            f"{operand.value} COLLATE NOCASE IN (SELECT value FROM json_each({binder.add(json.dumps(ascii_texts))}))"
        )
    if folded_texts:
        conditions.append(
            f"folded({operand.value}) IN (SELECT value FROM json_each({binder.add(json.dumps(folded_texts))}))"
        )
    return f"({' OR '.join(conditions)})"


def _is_filled(operand: Operand, value: bool, binder: Binder) -> str:
    return f"({operand.value} IS NOT NULL AND {operand.value} <> '')"


def _is_known(operand: Operand, value: bool, binder: Binder) -> str:
    return f"{operand.value} IS NOT NULL"


def _is_in(operand: Operand, values: list[Any], binder: Binder) -> str:
    return f"{operand.value} IN (SELECT value FROM json_each({binder.add(json.dumps(values))}))"


def _compare(sign: str) -> Callable[[Operand, Any, Binder], str]:
    return lambda operand, value, binder: f"{operand.value} {sign} {binder.add(value)}"


def _is_between(operand: Operand, value: list[Any], binder: Binder) -> str:
    return f"({operand.value} >= {binder.add(value[0])} AND {operand.value} <= {binder.add(value[1])})"


def _compare_edge(sign: str, edge: str) -> Callable[[Operand, Any, Binder], str]:
    return lambda operand, value, binder: f"{operand.value} {sign} {binder.add(getattr(value, edge))}"


def _is_within(operand: Operand, span: Span, binder: Binder) -> str:
    return f"({operand.value} >= {binder.add(span.start)} AND {operand.value} < {binder.add(span.end)})"


def _is_in_span(operand: Operand, value: list[Span], binder: Binder) -> str:
    return _is_within(operand, Span(value[0].start, value[1].end), binder)


def _is_within_days(operand: Operand, days: int, binder: Binder) -> str:
    return f"{operand.value} >= {binder.add(binder.scope.now - days * clock.DAY_MS)}"


def _is_boolean(operand: Operand, value: bool, binder: Binder) -> str:
    return operand.value if value else f"NOT {operand.value}"


def _is_true(operand: Operand, value: bool, binder: Binder) -> str:
    return operand.value


_COMPARISONS = (
    ("gt", ">", "end", ">=", "is over {}", "is after {}"),
    ("gteq", ">=", "start", ">=", "is at least {}", "is on or after {}"),
    ("lt", "<", "start", "<", "is under {}", "is before {}"),
    ("lteq", "<=", "end", "<", "is at most {}", "is on or before {}"),
)

# The phrases of the predicates below, marked for translation.
PHRASES = {
    gettext_noop("are not set"),
    gettext_noop("are set"),
    gettext_noop("contains {}"),
    gettext_noop("do not include {}"),
    gettext_noop("does not contain {}"),
    gettext_noop("does not end with {}"),
    gettext_noop("does not start with {}"),
    gettext_noop("ends with {}"),
    gettext_noop("include none of {}"),
    gettext_noop("include one of {}"),
    gettext_noop("include {}"),
    gettext_noop("is after {}"),
    gettext_noop("is at least {}"),
    gettext_noop("is at most {}"),
    gettext_noop("is before {}"),
    gettext_noop("is between {}"),
    gettext_noop("is none of {}"),
    gettext_noop("is not set"),
    gettext_noop("is not true"),
    gettext_noop("is not within the last {} days"),
    gettext_noop("is not {}"),
    gettext_noop("is on or after {}"),
    gettext_noop("is on or before {}"),
    gettext_noop("is on {}"),
    gettext_noop("is one of {}"),
    gettext_noop("is over {}"),
    gettext_noop("is set"),
    gettext_noop("is true"),
    gettext_noop("is under {}"),
    gettext_noop("is within the last {} days"),
    gettext_noop("is {}"),
    gettext_noop("starts with {}"),
}

PREDICATES: tuple[Predicate, ...] = (
    Predicate(("text", "code"), "eq", "not_eq", "text", read_text, equals, "is {}", "is not {}"),
    Predicate(("text",), "cont", "not_cont", "text", read_text_part, contains, "contains {}", "does not contain {}"),
    Predicate(("text",), "start", "not_start", "text", read_text_part, starts, "starts with {}",
              "does not start with {}"),
    Predicate(("text",), "end", "not_end", "text", read_text_part, ends, "ends with {}", "does not end with {}"),
    Predicate(("text", "code"), "in", "not_in", "texts", list_of(read_text), one_of, "is one of {}", "is none of {}"),
    Predicate(("text", "code"), "present", "blank", "flag", read_flag, _is_filled, "is set", "is not set"),
    Predicate(("tags",), "cont", "not_cont", "text", read_text, equals, "include {}", "do not include {}"),
    Predicate(("tags",), "eq", "not_eq", "text", read_text, equals, "include {}", "do not include {}"),
    Predicate(("tags",), "in", "not_in", "texts", list_of(read_text), one_of,
              "include one of {}", "include none of {}"),
    Predicate(("tags",), "present", "blank", "flag", read_flag, _is_filled, "are set", "are not set"),
    Predicate(("id",), "eq", "not_eq", "id", read_id, _compare("="), "{}", "not {}"),
    Predicate(("id",), "in", "not_in", "ids", list_of(read_id), _is_in, "one of {}", "none of {}"),
    Predicate(("id",), "present", "blank", "flag", read_flag, _is_known, "any", "none"),
    Predicate(("number",), "eq", "not_eq", "number", read_number, _compare("="), "is {}", "is not {}"),
    *(
        Predicate(("number",), key, None, "number", read_number, _compare(sign), words)
        for key, sign, _, _, words, _ in _COMPARISONS
    ),
    Predicate(("number",), "between", None, "numbers", pair_of(read_number), _is_between, "is between {}"),
    Predicate(("number",), "in", "not_in", "numbers", list_of(read_number), _is_in, "is one of {}", "is none of {}"),
    Predicate(("number", "time"), "present", "blank", "flag", read_flag, _is_known, "is set", "is not set"),
    *(
        Predicate(("time",), key, None, "time", read_span, _compare_edge(sign, edge), words)
        for key, _, edge, sign, _, words in _COMPARISONS
    ),
    Predicate(("time",), "between", None, "times", pair_of(read_span), _is_in_span, "is between {}"),
    Predicate(("time",), "eq", None, "time", read_day, _is_within, "is on {}"),
    Predicate(("time",), "within_days", "not_within_days", "days", read_days, _is_within_days,
              "is within the last {} days",
         "is not within the last {} days"),
    Predicate(("boolean",), "true", "false", "flag", read_flag, _is_true, "is true", "is not true"),
    Predicate(("boolean",), "eq", "not_eq", "boolean", read_boolean, _is_boolean, "is {}", "is not {}"),
    *(Predicate(("json",), *entry) for entry in JSON_PREDICATES),
)  # fmt: skip

PREDICATES_BY_TYPE: dict[str, dict[str, tuple[Predicate, bool]]] = {}
for _test in PREDICATES:
    for _type in _test.types:
        _of_type = PREDICATES_BY_TYPE.setdefault(_type, {})
        _of_type[_test.key] = (_test, False)
        if _test.opposite:
            _of_type[_test.opposite] = (_test, True)
