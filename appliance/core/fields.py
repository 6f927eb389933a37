"""The one declaration of what a request may hold: msgspec Structs, read with all faults at once.

API bodies, queries, HTML forms and the published document all read the same Structs. `read` answers a Struct or raises
Invalid with every fault under its path, in the stable words of docs/decisions.md#3.
"""

import re
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from appliance.core import clock, validation
from appliance.core.errors import Faults
from appliance.core.validation import RefusedKeys

# How a declared Struct is read out of JSON, a query or a form: each fault under its path, and on to the next field.

S = TypeVar("S", bound=Struct)

_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
# A larger page or limit, written as text, counts as this: past the end of every list; no other number is larger
MAX_INTEGER = 2**63 - 1
_LESS = re.compile(r"Expected `(\w+)` (?:of length )?<= (\d+)")
_MORE = re.compile(r"Expected `(\w+)` (?:of length )?>= (-?\d+)")


class Reader:
    """Reads values by their declared types; `faults` and `ignored` keys gather over all that one of it reads.

    Whatever is wrong is in the result as if it had not been sent (UNSET if it is required), at any depth, so that later
    checks see all that is right. Wrong entries of a list are left out of it; `kept` holds, by the path of such a list,
    the original indexes of the others.
    """

    def __init__(self, loose: bool) -> None:
        self.faults = Faults()
        self.ignored: list[str] = []
        self.kept: dict[str, list[int]] = {}
        self.loose = loose

    def struct(self, kind: type[S], raw: Any, path: str) -> S | UnsetType:
        """Return the Struct with what is right of it, or UNSET if the value is no object."""
        if not isinstance(raw, dict):
            self.faults.add(path or "base", "is invalid")
            return UNSET
        values: dict[str, Any] = {}
        known = set()
        for info in declared(kind):
            known.add(info.encode_name)
            where = f"{path}.{info.encode_name}" if path else info.encode_name
            if info.encode_name in raw:
                value = self.value(info.type, raw[info.encode_name], where)
            else:
                value = UNSET
                if info.required:
                    self.faults.add(where, "can't be blank")
            if value is not UNSET or info.required:
                values[info.name] = value
        self._refuse_unknown(kind, [key for key in raw if key not in known], raw, path)
        return kind(**values)

    def _refuse_unknown(self, kind: type[Struct], unknown: list[str], raw: dict[str, Any], path: str) -> None:
        strict = kind.__struct_config__.forbid_unknown_fields
        refused: RefusedKeys = getattr(kind, "REFUSED", {})
        names = [info.encode_name for info in declared(kind)]
        for index, key in enumerate(unknown):
            where = f"{path}.{key}" if path else str(key)
            message = validation.key_fault(names, refused, key, raw[key], index < validation.MAX_GUESSED_KEYS)
            if message is None and strict:
                message = "is not a known field"
            if message is None:
                self.ignored.append(where)
            else:
                # A name that could not be written would keep the others from being told
                self.faults.add(validation.UNWRITABLE.sub("?", where), message)

    def value(self, kind: Any, raw: Any, path: str) -> Any:
        """Return a value of a declared type, or UNSET with its fault noted."""
        options = [option for option in _options(kind) if option is not UnsetType]
        if raw is None:
            if NoneType in options:
                return None
            self.faults.add(path, "can't be blank")
            return UNSET
        inner = [option for option in options if option is not NoneType]
        if len(inner) > 1 and isinstance(raw, dict):
            inner = [option for option in inner if _is_struct(option)] or inner
        if len(inner) > 1:
            return self._converted(Union[tuple(inner)], raw, path)  # noqa: UP007 - made of a list, which `|` cannot be
        plain, metas = _unwrap(inner[0])
        if raw == "" and is_cleared_by_empty(kind):
            return None
        if _is_struct(plain):
            return self.struct(plain, raw, path)
        if get_origin(plain) is list:
            return self._items(plain, metas, raw, path)
        if get_origin(plain) is dict and get_args(plain)[1] is not Any:
            return self._entries(plain, metas, raw, path)
        return self._leaf(inner[0], metas, raw, path)

    def _items(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        if self.loose and isinstance(raw, str):
            raw = [part for part in raw.split(",") if part]
        if not isinstance(raw, list):
            self.faults.add(path, "is invalid")
            return UNSET
        if self._is_too_long(raw, metas, path):
            return UNSET
        each = get_args(kind)[0]
        # By itself an empty text clears what is stored; among others it is nothing that was asked for
        is_address = any("check" in (meta.extra or {}) for meta in _unwrap(each)[1])
        items = []
        for index, item in enumerate(raw):
            where = f"{path}[{index}]"
            if item == "" and is_address:
                self.faults.add(where, "can't be blank")
                items.append(UNSET)
            else:
                items.append(self.value(each, item, where))
        kept = [index for index, item in enumerate(items) if item is not UNSET]
        if len(kept) < len(items):
            self.kept[path] = kept
        return [items[index] for index in kept]

    def _entries(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        if not isinstance(raw, dict):
            self.faults.add(path, "is invalid")
            return UNSET
        if self._is_too_long(raw, metas, path):
            return UNSET
        names, each = get_args(kind)
        found = {}
        for name, value in raw.items():
            where = f"{path}.{validation.UNWRITABLE.sub('?', name)}"
            if self._leaf(names, [], name, where) is not UNSET:
                entry = self.value(each, value, where)
                if entry is not UNSET:
                    found[name] = entry
        return found

    def _is_too_long(self, raw: list[Any] | dict[str, Any], metas: list[Meta], path: str) -> bool:
        limit = next((meta.max_length for meta in metas if meta.max_length is not None), None)
        if limit is None or len(raw) <= limit:
            return False
        self.faults.add(path, f"is too long (maximum is {limit} entries)")
        return True

    def _leaf(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        if extra.get("read") == "time":
            return self._time(raw, path)
        if extra.get("read") == "day":
            return self._day(raw, path)
        value = self._converted(kind, raw, path)
        if path in self.faults.fields:
            return UNSET
        fault = validation.text_fault(value, extra) if isinstance(value, str) else validation.data_fault(value, extra)
        if fault:
            self.faults.add(path, fault)
            return UNSET
        check = validation.CHECKS.get(extra.get("check", ""))
        if check is None or value == "":
            return value
        try:
            return check(value)
        except ValueError as error:
            self.faults.add(path, str(error))
            return UNSET

    def _time(self, raw: Any, path: str) -> int | UnsetType:
        if isinstance(raw, int) and not isinstance(raw, bool) and self.loose:
            return raw
        try:
            return clock.parse(raw)
        except (ValueError, TypeError, OverflowError, OSError):
            self.faults.add(path, "is invalid")
            return UNSET

    def _day(self, raw: Any, path: str) -> str | UnsetType:
        try:
            clock.parse_or_day(raw, "UTC")
        except (ValueError, TypeError, AttributeError, OverflowError, OSError):
            self.faults.add(path, "is invalid")
            return UNSET
        return str(raw)

    def _converted(self, kind: Any, raw: Any, path: str) -> Any:
        plain, metas = _unwrap(kind)
        if plain is int and isinstance(raw, float) and raw.is_integer() and abs(raw) <= 2**53:
            raw = int(raw)  # to JSON Schema (2020-12, 6.1.1) 3.0 is an integer
        if self.loose and isinstance(raw, str) and plain is int:
            if not _INTEGER.fullmatch(raw):
                self.faults.add(path, "is not a number")
                return UNSET
            if any((meta.extra or {}).get("endless") for meta in metas):
                raw = max(-MAX_INTEGER, min(int(raw), MAX_INTEGER))
            elif abs(int(raw)) > MAX_INTEGER:
                self.faults.add(path, "is not a number")
                return UNSET
        try:
            return msgspec.convert(raw, kind, strict=not self.loose)
        except msgspec.ValidationError as error:
            self.faults.add(path, _words(str(error), kind))
            return UNSET
        except UnicodeEncodeError:  # a lone surrogate where keys or a pattern are looked at
            self.faults.add(path, "is invalid")
            return UNSET


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


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


def is_cleared_by_empty(kind: Any) -> bool:
    """Return whether an empty text stands for null: where null is allowed, and no least length is asked for."""
    options = [option for option in _options(kind) if option is not UnsetType]
    texts = [_unwrap(option) for option in options if option is not NoneType]
    if NoneType not in options or len(texts) != 1:
        return False
    [(plain, metas)] = texts
    return plain is str and not any(meta.min_length for meta in metas)


def extras(kind: Any) -> dict[str, Any]:
    """Return what a declared type says beyond its schema (`Meta.extra`), also where it may be absent or null."""
    metas = [meta for option in _options(kind) for meta in _unwrap(option)[1]]
    return {key: value for meta in metas for key, value in (meta.extra or {}).items()}


@cache
def declared(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a Struct, worked out once: that takes longer than to read a request by them."""
    return struct_fields(kind)


MAX_DATA_DEPTH = 64
DATA_BYTES = 32 * 1024


def _meta(schema: dict[str, Any] | None = None, **extra: Any) -> Meta:
    return Meta(extra=extra, extra_json_schema=schema)


def named(schema: str) -> Meta:
    """Name the schema that the document shows for what a reader of its own reads."""
    return _meta({"$ref": f"#/components/schemas/{schema}"})


def default(value: Any) -> Meta:
    """Publish the value that holds where a key is not sent, of a key that has to be known to be absent."""
    return Meta(extra_json_schema={"default": value})


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
Country = Annotated[str, Meta(extra={"check": "country"}, extra_json_schema={"pattern": "^([A-Za-z]{2})?$"})]
HttpUrl = Annotated[str, Meta(max_length=2000, extra={"check": "http_url"}, extra_json_schema={"format": "uri"})]
When = Annotated[int, _meta({"type": "string", "format": "date-time"}, read="time")]
# A moment or a day of a filter; a day begins where the account is, which is looked up when it is used
DayOrWhen = Annotated[
    str, _meta({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}, read="day")
]
Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# Filters by a thing of the account; one that is not there is a fault (`api/existing.py`)
ContactId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "contact"})]
ListId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "contact_list"})]
SegmentId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "segment"})]
CampaignId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "campaign"})]
FlowId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "flow"})]
MessageId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "message"})]
EventId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "event"})]
Data = Annotated[dict[str, Any], Meta(extra={"bytes": DATA_BYTES})]
EVENT_NAME = r"^[a-z][a-z0-9_]{0,63}$"
EventName = Annotated[str, Meta(pattern=EVENT_NAME, extra={"line": True})]


class Read(NamedTuple):
    """A request as it was read: what is right of it, what is wrong, and the keys that nobody declared.

    `value` and `kept` are those of `Reader`.
    """

    value: Any
    faults: Faults
    ignored: list[str]
    kept: dict[str, list[int]]


def read(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> S:
    """Read a Struct; raises Invalid with all faults. `loose` takes numbers and booleans written as text."""
    return read_with_ignored(kind, raw, path, loose)[0]


def read_with_ignored(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> tuple[S, list[str]]:
    """Read a Struct and answer it with the top-level and nested keys that were ignored."""
    found = read_sound(kind, raw, path, loose)
    found.faults.check()
    return found.value, found.ignored


def read_sound(kind: type[Struct], raw: Any, path: str = "", loose: bool = False) -> Read:
    """Read a Struct that may have faults; raises nothing."""
    reader = Reader(loose)
    return Read(reader.struct(kind, raw, path), reader.faults, reader.ignored, reader.kept)


def is_too_deep(value: Any) -> bool:
    """Return whether lists and objects stand in each other deeper than any of ours do (docs/decisions.md#4)."""
    deepest, level = 0, [value]
    while level and deepest <= MAX_DATA_DEPTH:
        deepest += 1
        holders = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [inner for holder in holders for inner in holder if isinstance(inner, dict | list)]
        if not level and any(holders):
            deepest += 1  # what is neither stands in the last of them
    return deepest > MAX_DATA_DEPTH


def given(struct: Struct) -> dict[str, Any]:
    """Return the fields of a Struct that were sent, None included; absent ones keep what is stored."""
    found = {}
    for info in declared(type(struct)):
        value = getattr(struct, info.name)
        if value is not UNSET:
            found[info.name] = value
    return found


_Many = Annotated[int, Meta(ge=1, extra={"endless": True})]  # however large: past the end there is nothing


MAX_PAGE_SIZE = 100
# What is larger counts as the most; it is no fault
_Size = Annotated[_Many, Meta(extra_json_schema={"maximum": MAX_PAGE_SIZE})]


class PageQuery(Struct):
    """What every list endpoint takes; `limit`, `per_page`, `per`: the first present wins (docs/decisions.md#4)."""

    page: _Many = 1
    limit: _Size | UnsetType = UNSET
    per_page: _Size | UnsetType = UNSET
    per: _Size | UnsetType = UNSET

    def size(self) -> int:
        """Return how many rows a page has: 50, at most 100."""
        for value in (self.limit, self.per_page, self.per):
            if isinstance(value, int):
                return min(value, MAX_PAGE_SIZE)
        return 50
