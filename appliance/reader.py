"""How a declared Struct is read out of JSON, a query or a form: each fault under its path, and on to the next field."""

import re
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from appliance import clock, refused_keys, value_checks
from appliance.errors import Faults
from appliance.refused_keys import RefusedKeys

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
            message = refused_keys.fault(names, refused, key, raw[key], index < refused_keys.MAX_GUESSED_KEYS)
            if message is None and strict:
                message = "is not a known field"
            if message is None:
                self.ignored.append(where)
            else:
                # A name that could not be written would keep the others from being told
                self.faults.add(value_checks.UNWRITABLE.sub("?", where), message)

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
            where = f"{path}.{value_checks.UNWRITABLE.sub('?', name)}"
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
        fault = (
            value_checks.text_fault(value, extra) if isinstance(value, str) else value_checks.data_fault(value, extra)
        )
        if fault:
            self.faults.add(path, fault)
            return UNSET
        check = value_checks.CHECKS.get(extra.get("check", ""))
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
