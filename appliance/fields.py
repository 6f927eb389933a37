"""The one declaration of what a request may hold: msgspec Structs, read with all faults at once.

API bodies, queries, HTML forms and the published document all read the same Structs. `read` answers a Struct or raises
Invalid with every fault under its path, in the stable words of decisions, section 3.
"""

import re
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from appliance import clock, value_checks
from appliance.errors import Faults

S = TypeVar("S", bound=Struct)

DEEPEST = 64
DATA_BYTES = 32 * 1024


def _meta(schema: dict[str, Any] | None = None, **extra: Any) -> Meta:
    return Meta(extra=extra, extra_json_schema=schema)


def named(schema: str) -> Meta:
    """Name the schema that the document shows for what a reader of its own reads."""
    return _meta({"$ref": f"#/components/schemas/{schema}"})


# Text that ends in a header or on one line: no control characters.
Line = Annotated[str, Meta(max_length=255, extra={"line": True})]
Name = Annotated[str, Meta(max_length=255, extra={"line": True, "filled": True})]
Subject = Annotated[str, Meta(max_length=998, extra={"line": True})]
Text = Annotated[str, Meta(max_length=1_048_576)]
Short = Annotated[str, Meta(max_length=255)]
Long = Annotated[str, Meta(max_length=10_000)]
EmailText = Annotated[str, Meta(max_length=254, extra={"check": "email"}, extra_json_schema={"format": "email"})]
Phone = Annotated[
    str,
    Meta(
        max_length=40, extra={"check": "phone"},
        extra_json_schema={"pattern": r"^([ .()-]*\+[ .()-]*[1-9]([ .()-]*[0-9]){6,14}[ .()-]*)?$"},
    ),
]  # fmt: skip
Colour = Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}$", extra={"line": True})]
Country = Annotated[str, Meta(extra={"check": "country"}, extra_json_schema={"pattern": "^[A-Za-z]{2}$"})]
HttpUrl = Annotated[str, Meta(max_length=2000, extra={"check": "http_url"}, extra_json_schema={"format": "uri"})]
When = Annotated[int, _meta({"type": "string", "format": "date-time"}, read="time")]
# A moment or a day of a filter; a day begins where the account is, which is looked up when it is used
DayOrWhen = Annotated[
    str, _meta({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}, read="day")
]
Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Data = Annotated[dict[str, Any], Meta(extra={"bytes": DATA_BYTES})]
EVENT_NAME = r"^[a-z][a-z0-9_]{0,63}$"
EventName = Annotated[str, Meta(pattern=EVENT_NAME, extra={"line": True})]

_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
# A larger page or limit, written as text, counts as this: past the end of every list
_LARGEST = 2**63 - 1
_LESS = re.compile(r"Expected `(\w+)` (?:of length )?<= (\d+)")
_MORE = re.compile(r"Expected `(\w+)` (?:of length )?>= (-?\d+)")


class Read(Struct):
    """What came of reading: the value, and keys that were ignored because nobody declared them."""

    value: Any
    ignored: list[str]


def read(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> S:
    """Read a Struct; raises Invalid with all faults. `loose` takes numbers and booleans written as text."""
    return read_with_ignored(kind, raw, path, loose)[0]


def read_with_ignored(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> tuple[S, list[str]]:
    """Read a Struct and answer it with the top-level and nested keys that were ignored."""
    reader = _Reader(loose)
    value = reader.struct(kind, raw, path)
    reader.faults.check()
    assert value is not None  # without faults there is one
    return value, reader.ignored


def sound(kind: type[S], raw: Any) -> S:
    """Answer what is sound of a request that has faults, for the checks that come later.

    What is wrong is as if it had not been sent: UNSET, what is required too.
    """
    good: dict[str, Any] = {}
    for info in declared(kind):
        reader = _Reader(False)
        value = reader.value(info.type, raw[info.encode_name], "x") if info.encode_name in raw else UNSET
        if value is not UNSET and not reader.faults.fields:
            good[info.name] = value
        elif info.required:
            good[info.name] = UNSET
    return kind(**good)


class _Reader:
    def __init__(self, loose: bool) -> None:
        self.faults = Faults()
        self.ignored: list[str] = []
        self.loose = loose

    def struct(self, kind: type[S], raw: Any, path: str) -> S | None:
        """Answer the Struct, or None once anything is wrong."""
        if not isinstance(raw, dict):
            self.faults.add(path or "base", "is invalid")
            return None
        values: dict[str, Any] = {}
        known = set()
        for info in declared(kind):
            known.add(info.encode_name)
            where = f"{path}.{info.encode_name}" if path else info.encode_name
            if info.encode_name in raw:
                values[info.name] = self.value(info.type, raw[info.encode_name], where)
            elif info.required:
                self.faults.add(where, "can't be blank")
        strict = kind.__struct_config__.forbid_unknown_fields
        for key in raw:
            if key not in known:
                where = f"{path}.{key}" if path else str(key)
                if strict:
                    # A name that could not be written would keep the others from being told
                    self.faults.add(value_checks.UNWRITABLE.sub("?", where), "is not a known field")
                else:
                    self.ignored.append(where)
        return None if self.faults.fields else kind(**values)

    def value(self, kind: Any, raw: Any, path: str) -> Any:
        options = [option for option in _options(kind) if option is not UnsetType]
        if raw is None:
            if NoneType in options:
                return None
            self.faults.add(path, "can't be blank")
            return None
        inner = [option for option in options if option is not NoneType]
        if len(inner) > 1:
            return self.converted(Union[tuple(inner)], raw, path)  # noqa: UP007 - made of a list, which `|` cannot be
        plain, metas = _unwrap(inner[0])
        if isinstance(plain, type) and issubclass(plain, Struct):
            return self.struct(plain, raw, path)
        if get_origin(plain) is list:
            return self.items(plain, metas, raw, path)
        return self.leaf(inner[0], metas, raw, path)

    def items(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        if self.loose and isinstance(raw, str):
            raw = [part for part in raw.split(",") if part]
        if not isinstance(raw, list):
            self.faults.add(path, "is invalid")
            return None
        most = next((meta.max_length for meta in metas if meta.max_length is not None), None)
        if most is not None and len(raw) > most:
            self.faults.add(path, f"is too long (maximum is {most} entries)")
            return None
        return [self.value(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(raw)]

    def leaf(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        if extra.get("read") == "time":
            return self.time(raw, path)
        if extra.get("read") == "day":
            return self.day(raw, path)
        value = self.converted(kind, raw, path)
        if path in self.faults.fields:
            return None
        fault = (
            value_checks.text_fault(value, extra) if isinstance(value, str) else value_checks.data_fault(value, extra)
        )
        if fault:
            self.faults.add(path, fault)
            return None
        check = value_checks.CHECKS.get(extra.get("check", ""))
        if check is None or value == "":
            return value
        try:
            return check(value)
        except ValueError as error:
            self.faults.add(path, str(error))
            return None

    def time(self, raw: Any, path: str) -> int | None:
        if isinstance(raw, int) and not isinstance(raw, bool) and self.loose:
            return raw
        try:
            return clock.parse(raw)
        except (ValueError, TypeError, OverflowError, OSError):
            self.faults.add(path, "is invalid")
            return None

    def day(self, raw: Any, path: str) -> str | None:
        try:
            clock.parse_or_day(raw, "UTC")
        except (ValueError, TypeError, AttributeError, OverflowError, OSError):
            self.faults.add(path, "is invalid")
            return None
        return str(raw)

    def converted(self, kind: Any, raw: Any, path: str) -> Any:
        plain, metas = _unwrap(kind)
        if plain is int and isinstance(raw, float) and raw.is_integer() and abs(raw) <= 2**53:
            raw = int(raw)  # to JSON Schema (2020-12, 6.1.1) 3.0 is an integer
        if self.loose and isinstance(raw, str) and plain is int:
            if not _INTEGER.fullmatch(raw):
                self.faults.add(path, "is not a number")
                return None
            if any((meta.extra or {}).get("endless") for meta in metas):
                raw = max(-_LARGEST, min(int(raw), _LARGEST))
            elif abs(int(raw)) > _LARGEST:
                self.faults.add(path, "is not a number")
                return None
        try:
            return msgspec.convert(raw, kind, strict=not self.loose)
        except msgspec.ValidationError as error:
            self.faults.add(path, _words(str(error), kind))
            return None
        except UnicodeEncodeError:  # a lone surrogate where keys or a pattern are looked at
            self.faults.add(path, "is invalid")
            return None


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _unwrap(kind: Any) -> tuple[Any, list[Meta]]:
    metas: list[Meta] = []
    while get_origin(kind) is Annotated:
        metas += [meta for meta in kind.__metadata__ if isinstance(meta, Meta)]
        kind = kind.__origin__
    return kind, metas


def _words(message: str, kind: Any) -> str:
    if less := _LESS.search(message):
        if less[1] == "str":
            return f"is too long (maximum is {less[2]} characters)"
        return f"must be less than or equal to {less[2]}"
    if (more := _MORE.search(message)) and more[1] != "str":
        return f"must be greater than or equal to {more[2]}"
    plain = _unwrap(kind)[0]
    if message.startswith("Invalid enum value") or get_origin(plain) is Literal:
        return "is not included in the list"
    return "is not a number" if plain in (int, float) else "is invalid"


def is_too_deep(value: Any) -> bool:
    """Say whether lists and objects stand in each other deeper than any of ours do (decisions, section 4)."""
    deepest, level = 0, [value]
    while level and deepest <= DEEPEST:
        deepest += 1
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return deepest > DEEPEST


@cache
def declared(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    """Answer the fields of a Struct, worked out once: that takes longer than to read a request by them."""
    return struct_fields(kind)


def given(struct: Struct) -> dict[str, Any]:
    """Answer the fields of a Struct that were sent, None included; absent ones keep what is stored."""
    found = {}
    for info in declared(type(struct)):
        value = getattr(struct, info.name)
        if value is not UNSET:
            found[info.name] = value
    return found


_Many = Annotated[int, Meta(ge=1, extra={"endless": True})]  # however large: past the end there is nothing


class PageQuery(Struct):
    """What every list endpoint takes; `limit`, `per_page`, `per`: the first present wins (decisions, section 4)."""

    page: _Many = 1
    limit: _Many | UnsetType = UNSET
    per_page: _Many | UnsetType = UNSET
    per: _Many | UnsetType = UNSET

    def size(self) -> int:
        """Answer how many rows a page has: 50, at most 100."""
        for value in (self.limit, self.per_page, self.per):
            if isinstance(value, int):
                return min(value, 100)
        return 50
