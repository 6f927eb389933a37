"""Parses requests into msgspec Structs, reports all field errors at once, and checks single values.

API bodies, queries, HTML forms and the OpenAPI document use the same Structs. `read` returns a Struct or raises Invalid
with all errors by the path of their field, in the stable messages of docs/decisions.md#3.
"""

import math
import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from appliance.core import addresses, clock, i18n, time_zones
from appliance.core.aliases import Aliases, list_aliases, rename_paths, resolve
from appliance.core.errors import MAX_GUESSED_KEYS, Faults, RefusedKeys, find_key_error
from appliance.core.i18n import gettext

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def find_text_error(value: str, extra: dict[str, Any]) -> str | None:
    """Return an error for a text with characters that cannot be stored or a required text that is blank, else None.

    `extra` is the merged `Meta.extra` of the field: `line` forbids control characters, `filled` forbids blank texts.
    """
    if UNSTORABLE.search(value) or (extra.get("line") and _CONTROL.search(value)):
        return gettext("is invalid")
    if extra.get("filled") and not value.strip():
        return gettext("can't be blank")
    return None


def find_data_error(value: Any, extra: dict[str, Any]) -> str | None:
    """Return an error for a non-finite number, or for a value whose JSON is invalid or too long, else None.

    The limit of the JSON is `extra["bytes"]`; without it only a number is checked.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return gettext("is not a number")
    max_bytes = extra.get("bytes")
    if max_bytes is None:
        return None
    try:
        text = msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, RecursionError):
        return gettext("is invalid")
    if b"\\u0000" in text:
        return gettext("is invalid")
    if len(text) > max_bytes:
        return gettext("is too long (maximum is %(limit)s bytes)", limit=max_bytes)
    return gettext("is invalid") if b"null" in text and _has_infinite_number(value) else None


def _has_infinite_number(value: Any) -> bool:
    """Return whether a value is or contains a non-finite number.

    msgspec parses 1e400 as infinity and encodes it as null.
    """
    if isinstance(value, float):
        return not math.isfinite(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_infinite_number(value) for value in inner)


def _parse_country(value: str) -> str:
    if not (len(value) == 2 and value.isascii() and value.isalpha()):
        raise ValueError(gettext("is invalid"))
    return value.upper()


def parse_language(value: str) -> str:
    """Return a language tag in its usual form. Raises ValueError, whose text is the error of a field."""
    tag = i18n.normalize_language_tag(value)
    if tag is None:
        raise ValueError(gettext("must be a language code such as de or pt-BR"))
    return tag


def check_http_url(value: str) -> str:
    """Return a URL unchanged. Raises ValueError unless the URL is http or https with a host and without whitespace."""
    try:
        parts = urlsplit(value)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", value)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(gettext("is invalid"))
    return value


def _check_local_time(value: str) -> str:
    try:
        time_zones.parse_local_time(value)
    except ValueError:
        raise ValueError(gettext("must be a time without offset, such as 2026-12-01T09:00")) from None
    return value


def _check_day(value: str) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError(gettext("is invalid")) from None


CHECKS = {
    "email": lambda value: addresses.parse_email(value).value,
    "phone": lambda value: addresses.parse_phone(value).value,
    "sms_sender": addresses.parse_sms_sender,
    "country": _parse_country,
    "language": parse_language,
    "http_url": check_http_url,
    "local_time": _check_local_time,
    "day": _check_day,
}


S = TypeVar("S", bound=Struct)

_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
# The largest integer of SQLite. A larger page number or page size in a query string is read as this number, which is
# past the end of every list; any other larger number is an error.
MAX_INTEGER = 2**63 - 1
_ABOVE_MAXIMUM = re.compile(r"Expected `(\w+)` (?:of length )?<= (\d+)")
_BELOW_MINIMUM = re.compile(r"Expected `(\w+)` (?:of length )?>= (-?\d+)")


class StructReader:
    """A reader of decoded values by their declared types; `loose` accepts numbers, booleans and lists as text.

    A reader collects `faults` and the paths of `ignored` keys over all its calls. An invalid value, at any depth, is
    treated as not sent (as UNSET if the field is required), so that later checks still see all valid values. Invalid
    entries are dropped from their list; `kept_indexes` maps the path of such a list to the original indexes of the
    other entries.
    """

    def __init__(self, loose: bool) -> None:
        self.faults = Faults()
        self.ignored: list[str] = []
        self.kept_indexes: dict[str, list[int]] = {}
        self.aliases: dict[str, str] = {}
        self.loose = loose

    def struct(self, kind: type[S], raw: Any, path: str) -> S | UnsetType:
        """Return a Struct of the valid values of `raw`, after adding all errors; UNSET if `raw` is not an object."""
        if not isinstance(raw, dict):
            self.faults.add(path or "base", gettext("is invalid"))
            return UNSET
        if names := list_aliases(kind):
            raw = self._resolve_aliases(names, raw, path)
        values: dict[str, Any] = {}
        known_count = 0
        for info in declared_fields(kind):
            if info.encode_name in raw:
                known_count += 1
                value = self.value(info.type, raw[info.encode_name], _join_path(path, info.encode_name))
            else:
                value = UNSET
                if info.required:
                    self.faults.add(_join_path(path, info.encode_name), gettext("can't be blank"))
            if value is not UNSET or info.required:
                values[info.name] = value
        if known_count < len(raw):
            self._refuse_unknown(kind, raw, path)
        return kind(**values)

    def _resolve_aliases(self, names: Aliases, raw: dict[str, Any], path: str) -> dict[str, Any]:
        resolved = resolve(names, raw)
        for name, message in resolved.errors.items():
            self.faults.add(_join_path(path, name), message)
        self.aliases |= {_join_path(path, field): _join_path(path, name) for field, name in resolved.used.items()}
        return resolved.raw

    def _refuse_unknown(self, kind: type[Struct], raw: dict[str, Any], path: str) -> None:
        strict = kind.__struct_config__.forbid_unknown_fields
        refused: RefusedKeys = getattr(kind, "REFUSED", {})
        names = [info.encode_name for info in declared_fields(kind)]
        unknown = [key for key in raw if key not in names]
        for index, key in enumerate(unknown):
            field_path = _join_path(path, str(key))
            message = find_key_error(names, refused, key, raw[key], index < MAX_GUESSED_KEYS)
            if message is None and strict:
                message = gettext("is not a known field")
            if message is None:
                self.ignored.append(field_path)
            else:
                # A key with a character that cannot be encoded would make the response with all errors fail.
                self.faults.add(UNSTORABLE.sub("?", field_path), message)

    def value(self, kind: Any, raw: Any, path: str) -> Any:
        """Return `raw` as the declared type `kind`, or UNSET after adding its error."""
        options = [option for option in _options(kind) if option is not UnsetType]
        if raw is None:
            if NoneType in options:
                return None
            self.faults.add(path, gettext("can't be blank"))
            return UNSET
        inner = [option for option in options if option is not NoneType]
        if len(inner) > 1 and isinstance(raw, dict):
            inner = [option for option in inner if _is_struct(option)] or inner
        if len(inner) > 1:
            return self._convert(Union[tuple(inner)], raw, path)  # noqa: UP007 - `|` cannot be applied to a list
        base_type, metas = _unwrap(inner[0])
        if raw == "" and is_cleared_by_empty(kind):
            return None
        if _is_struct(base_type):
            return self.struct(base_type, raw, path)
        if get_origin(base_type) is list:
            return self._read_list(base_type, metas, raw, path)
        if get_origin(base_type) is dict and get_args(base_type)[1] is not Any:
            return self._read_dict(base_type, metas, raw, path)
        return self._read_scalar(inner[0], metas, raw, path)

    def _read_list(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        if self.loose and isinstance(raw, str):
            raw = [part for part in raw.split(",") if part]
        if not isinstance(raw, list):
            self.faults.add(path, gettext("is invalid"))
            return UNSET
        if self._is_too_long(raw, metas, path):
            return UNSET
        item_type = get_args(kind)[0]
        # An empty text clears a field that holds one address; as an entry of a list it is an error.
        is_address = any("check" in (meta.extra or {}) for meta in _unwrap(item_type)[1])
        items = []
        for index, raw_value in enumerate(raw):
            entry_path = f"{path}[{index}]"
            if raw_value == "" and is_address:
                self.faults.add(entry_path, gettext("can't be blank"))
                items.append(UNSET)
            else:
                items.append(self.value(item_type, raw_value, entry_path))
        valid_indexes = [index for index, value in enumerate(items) if value is not UNSET]
        if len(valid_indexes) < len(items):
            self.kept_indexes[path] = valid_indexes
        return [items[index] for index in valid_indexes]

    def _read_dict(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        if not isinstance(raw, dict):
            self.faults.add(path, gettext("is invalid"))
            return UNSET
        if self._is_too_long(raw, metas, path):
            return UNSET
        names, value_type = get_args(kind)
        entries = {}
        for name, value in raw.items():
            entry_path = f"{path}.{UNSTORABLE.sub('?', name)}"
            if self._read_scalar(names, [], name, entry_path) is not UNSET:
                entry = self.value(value_type, value, entry_path)
                if entry is not UNSET:
                    entries[name] = entry
        return entries

    def _is_too_long(self, raw: list[Any] | dict[str, Any], metas: list[Meta], path: str) -> bool:
        limit = next((meta.max_length for meta in metas if meta.max_length is not None), None)
        if limit is None or len(raw) <= limit:
            return False
        self.faults.add(path, gettext("is too long (maximum is %(limit)s entries)", limit=limit))
        return True

    def _read_scalar(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        if extra.get("read") == "time":
            return self._parse_time(raw, path)
        if extra.get("read") == "day":
            return self._parse_day(raw, path)
        value = self._convert(kind, raw, path)
        if value is UNSET:
            return UNSET
        fault = find_text_error(value, extra) if isinstance(value, str) else find_data_error(value, extra)
        if fault:
            self.faults.add(path, fault)
            return UNSET
        check = CHECKS.get(extra.get("check", ""))
        if check is None or value == "":
            return value
        try:
            return check(value)
        except ValueError as error:
            self.faults.add(path, str(error))
            return UNSET

    def _parse_time(self, raw: Any, path: str) -> int | UnsetType:
        if isinstance(raw, int) and not isinstance(raw, bool) and self.loose:
            return raw
        try:
            return clock.parse(raw)
        except (ValueError, TypeError, OverflowError, OSError):
            self.faults.add(path, gettext("is invalid"))
            return UNSET

    def _parse_day(self, raw: Any, path: str) -> str | UnsetType:
        try:
            clock.parse_day_or_time(raw, "UTC")
        except (ValueError, TypeError, AttributeError, OverflowError, OSError):
            self.faults.add(path, gettext("is invalid"))
            return UNSET
        return str(raw)

    def _convert(self, kind: Any, raw: Any, path: str) -> Any:
        base_type, metas = _unwrap(kind)
        if base_type is int and isinstance(raw, float) and raw.is_integer() and abs(raw) <= 2**53:
            raw = int(raw)  # In JSON Schema (2020-12, 6.1.1) 3.0 is an integer.
        if self.loose and isinstance(raw, str) and base_type is int:
            if not _INTEGER.fullmatch(raw):
                self.faults.add(path, gettext("is not a number"))
                return UNSET
            if any((meta.extra or {}).get("endless") for meta in metas):
                raw = max(-MAX_INTEGER, min(int(raw), MAX_INTEGER))
            elif abs(int(raw)) > MAX_INTEGER:
                self.faults.add(path, gettext("is not a number"))
                return UNSET
        try:
            return msgspec.convert(raw, kind, strict=not self.loose)
        except msgspec.ValidationError as error:
            self.faults.add(path, _to_message(str(error), kind))
            return UNSET
        except UnicodeEncodeError:  # A lone surrogate in a key, or in a text with a pattern, raises this.
            self.faults.add(path, gettext("is invalid"))
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


def _to_message(message: str, kind: Any) -> str:
    if maximum := _ABOVE_MAXIMUM.search(message):
        if maximum[1] == "str":
            return gettext("is too long (maximum is %(limit)s characters)", limit=maximum[2])
        return gettext("must be less than or equal to %(limit)s", limit=maximum[2])
    if (minimum := _BELOW_MINIMUM.search(message)) and minimum[1] != "str":
        return gettext("must be greater than or equal to %(limit)s", limit=minimum[2])
    base_type = _unwrap(kind)[0]
    if message.startswith("Invalid enum value") or get_origin(base_type) is Literal:
        return gettext("is not included in the list")
    return gettext("is not a number") if base_type in (int, float) else gettext("is invalid")


def is_cleared_by_empty(kind: Any) -> bool:
    """Return whether an empty text is read as null: the type is a text or null, without a minimum length."""
    options = [option for option in _options(kind) if option is not UnsetType]
    texts = [_unwrap(option) for option in options if option is not NoneType]
    if NoneType not in options or len(texts) != 1:
        return False
    [(base_type, metas)] = texts
    return base_type is str and not any(meta.min_length for meta in metas)


def meta_extras(kind: Any) -> dict[str, Any]:
    """Return the merged `Meta.extra` of all options of a declared type, which may be a union with None or UnsetType."""
    metas = [meta for option in _options(kind) for meta in _unwrap(option)[1]]
    return {key: value for meta in metas for key, value in (meta.extra or {}).items()}


@cache
def declared_fields(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a Struct; cached, because `msgspec.structs.fields` takes longer than reading a request."""
    return struct_fields(kind)


MAX_DATA_DEPTH = 64
MAX_DATA_BYTES = 32 * 1024
# The largest requests, such as 1,000 events with 50 values each, or 10,000 ids, have fewer.
MAX_JSON_VALUES = 100_000


def _meta(schema: dict[str, Any] | None = None, **extra: Any) -> Meta:
    return Meta(extra=extra, extra_json_schema=schema)


def schema_name(schema: str) -> Meta:
    """Return a Meta that refers to a named OpenAPI schema, for a value that is parsed by code outside this module."""
    return _meta({"$ref": f"#/components/schemas/{schema}"})


def default(value: Any) -> Meta:
    """Return a Meta that documents the default of a field, which is declared as UNSET to show whether it was sent."""
    return Meta(extra_json_schema={"default": value})


# Text for a header or a single line, without control characters.
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
LanguageTag = Annotated[str, Meta(extra={"check": "language"}, extra_json_schema={"pattern": i18n.LANGUAGE_TAG_SCHEMA})]
HttpUrl = Annotated[str, Meta(max_length=2000, extra={"check": "http_url"}, extra_json_schema={"format": "uri"})]
When = Annotated[int, _meta({"type": "string", "format": "date-time"}, read="time")]
# A local time without an offset, such as 2026-12-01T09:00: each recipient's own clock
LocalTime = Annotated[
    str,
    Meta(extra={"check": "local_time"}, extra_json_schema={"pattern": time_zones.LOCAL_TIME_SCHEMA}),
]
# The version of an object that a request is based on (docs/decisions.md#3)
LastRead = Annotated[
    When, Meta(description="`updated_at` as last read; if the object has been changed since then, the response is 409")
]
# A time or a day of a filter, kept as text. A day begins at midnight in the account's time zone, which the code that
# applies the filter knows.
DayOrWhen = Annotated[
    str, _meta({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}, read="day")
]
CreatedAfter = Annotated[
    DayOrWhen,
    Meta(description="only those created at or after this time; a date begins at 00:00 in the account's time zone"),
]
CreatedBefore = Annotated[
    DayOrWhen,
    Meta(description="only those created before this time; a date begins at 00:00 in the account's time zone"),
]
Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# Ids of rows of the account. The API looks them up in `table`; an id that does not exist is a field error.
ContactId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "contact"})]
ListId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "contact_list"})]
SegmentId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "segment"})]
CampaignId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "campaign"})]
FlowId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "flow"})]
MessageId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "message"})]
EventId = Annotated[int, Meta(ge=1, le=2**63 - 1, extra={"table": "event"})]
Data = Annotated[dict[str, Any], Meta(extra={"bytes": MAX_DATA_BYTES})]
EVENT_NAME = r"^[a-z][a-z0-9_]{0,63}$"
EventName = Annotated[str, Meta(pattern=EVENT_NAME, extra={"line": True})]


class PartialRead(NamedTuple):
    """The result of reading a request that may have errors; `StructReader` describes the fields.

    `value` is a Struct, or UNSET if the request is not an object. `aliases` maps the paths of fields to the aliases by
    which they were sent (`appliance.core.aliases`).
    """

    value: Any
    faults: Faults
    ignored: list[str]
    kept_indexes: dict[str, list[int]]
    aliases: Mapping[str, str] = {}


def read(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> S:
    """Return a Struct from decoded JSON; `loose` accepts numbers, booleans and lists as text.

    Raises Invalid with all errors. `path` is put before the path of each error.
    """
    return read_with_ignored(kind, raw, path, loose)[0]


def read_with_ignored(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> tuple[S, list[str]]:
    """Return a Struct, and the paths of unknown keys that were ignored. Raises Invalid with all errors.

    `loose` is as for `read`.
    """
    partial = read_partial(kind, raw, path, loose)
    partial.faults.check()
    return partial.value, partial.ignored


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def read_partial(kind: type[Struct], raw: Any, path: str = "", loose: bool = False) -> PartialRead:
    """Return a Struct of the valid values together with all errors, which are not raised.

    `loose` is as for `read`.
    """
    reader = StructReader(loose)
    value = reader.struct(kind, raw, path)
    if reader.aliases:
        reader.faults.fields = rename_paths(reader.faults.fields, reader.aliases)
    return PartialRead(value, reader.faults, reader.ignored, reader.kept_indexes, reader.aliases)


def has_too_many_values(content: bytes) -> bool:
    """Return whether JSON has more than `MAX_JSON_VALUES` values, judged in milliseconds before it is parsed.

    Each value but the first of a list or object follows a comma, so commas and opening brackets are counted. Texts are
    left out only if there are too many with them. The result for invalid JSON is arbitrary.
    """
    if _count_values(content) <= MAX_JSON_VALUES:
        return False
    # Without the escape sequences of RFC 8259, section 7, each quote begins or ends a text.
    content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each value is at most two texts, itself and its key, so more quotes than that need not be split.
    if content.count(b'"') > 4 * MAX_JSON_VALUES + 2:
        return True
    return _count_values(b"".join(content.split(b'"')[::2])) > MAX_JSON_VALUES


def _count_values(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def is_too_deep(value: Any) -> bool:
    """Return whether lists and objects are nested deeper than `MAX_DATA_DEPTH` (docs/decisions.md#4).

    The values inside the deepest list or object are one more level, and so is an empty list or object.
    """
    level: list[Any] = [[value]]
    for _ in range(MAX_DATA_DEPTH):
        if not level:
            return False
        # An empty list or object is left out: like a number, it adds a level, and nothing is inside.
        level = [
            inner
            for container in level
            for inner in (container.values() if isinstance(container, dict) else container)
            if inner and isinstance(inner, dict | list)
        ]
    return bool(level)


def build_type_info() -> int:
    """Build msgspec's type information of every Struct that is loaded, and return their number.

    Call it before other threads start. msgspec (0.22) builds the information of a Struct when it is first used. A
    second thread that uses the Struct meanwhile gets half-built information, which ends the process with a segmentation
    fault.
    """
    count, waiting = 0, [Struct]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            msgspec.json.Decoder(kind)
            count += 1
    return count


def sent_fields(struct: Struct) -> dict[str, Any]:
    """Return the fields of a Struct that are not UNSET, by name; None is included, because it clears a stored value."""
    sent = {}
    for info in declared_fields(type(struct)):
        value = getattr(struct, info.name)
        if value is not UNSET:
            sent[info.name] = value
    return sent


_PageNumber = Annotated[int, Meta(ge=1, extra={"endless": True})]  # no maximum: a page past the end is empty


MAX_PAGE_SIZE = 100
# A larger page size is read as the maximum and is not an error.
_PageSize = Annotated[_PageNumber, Meta(extra_json_schema={"maximum": MAX_PAGE_SIZE})]


class PageQuery(Struct):
    """The query parameters of every list; of `limit`, `per_page` and `per` the first that is sent counts.

    Several names are accepted for the page size (docs/decisions.md#4).
    """

    page: _PageNumber = 1
    limit: _PageSize | UnsetType = UNSET
    per_page: _PageSize | UnsetType = UNSET
    per: _PageSize | UnsetType = UNSET

    def size(self) -> int:
        """Return the number of rows of a page: 50 by default, at most `MAX_PAGE_SIZE`."""
        for value in (self.limit, self.per_page, self.per):
            if isinstance(value, int):
                return min(value, MAX_PAGE_SIZE)
        return 50
