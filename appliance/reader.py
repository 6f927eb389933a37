"""How a declared Struct is read out of JSON, a query or a form: each fault under its path, and on to the next field."""

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, UnsetType
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from appliance import clock, value_checks
from appliance.errors import Faults
from appliance.patterns import late

S = TypeVar("S", bound=Struct)

_INTEGER = late(r"[+-]?[0-9]{1,300}")
# A larger page or limit, written as text, counts as this: past the end of every list; no other number is larger
LARGEST = 2**63 - 1
_LESS = late(r"Expected `(\w+)` (?:of length )?<= (\d+)")
_MORE = late(r"Expected `(\w+)` (?:of length )?>= (-?\d+)")


class Reader:
    """Reads values by their declared types; `faults` and `ignored` keys gather over all that one of it reads."""

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
        """Answer a value of a declared type; with a fault noted it is no longer worth anything."""
        options = [option for option in _options(kind) if option is not UnsetType]
        if raw is None:
            if NoneType in options:
                return None
            self.faults.add(path, "can't be blank")
            return None
        inner = [option for option in options if option is not NoneType]
        if len(inner) > 1:
            return self._converted(Union[tuple(inner)], raw, path)  # noqa: UP007 - made of a list, which `|` cannot be
        plain, metas = _unwrap(inner[0])
        if isinstance(plain, type) and issubclass(plain, Struct):
            return self.struct(plain, raw, path)
        if get_origin(plain) is list:
            return self._items(plain, metas, raw, path)
        return self._leaf(inner[0], metas, raw, path)

    def _items(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        if self.loose and isinstance(raw, str):
            raw = [part for part in raw.split(",") if part]
        if not isinstance(raw, list):
            self.faults.add(path, "is invalid")
            return None
        most = next((meta.max_length for meta in metas if meta.max_length is not None), None)
        if most is not None and len(raw) > most:
            self.faults.add(path, f"is too long (maximum is {most} entries)")
            return None
        each = get_args(kind)[0]
        for index, item in enumerate(raw):
            # By itself an empty text clears what is stored; among others it is nothing that was asked for
            if item == "" and any("check" in (meta.extra or {}) for meta in _unwrap(each)[1]):
                self.faults.add(f"{path}[{index}]", "can't be blank")
        return [self.value(each, item, f"{path}[{index}]") for index, item in enumerate(raw)]

    def _leaf(self, kind: Any, metas: list[Meta], raw: Any, path: str) -> Any:
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        if extra.get("read") == "time":
            return self._time(raw, path)
        if extra.get("read") == "day":
            return self._day(raw, path)
        value = self._converted(kind, raw, path)
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

    def _time(self, raw: Any, path: str) -> int | None:
        if isinstance(raw, int) and not isinstance(raw, bool) and self.loose:
            return raw
        try:
            return clock.parse(raw)
        except (ValueError, TypeError, OverflowError, OSError):
            self.faults.add(path, "is invalid")
            return None

    def _day(self, raw: Any, path: str) -> str | None:
        try:
            clock.parse_or_day(raw, "UTC")
        except (ValueError, TypeError, AttributeError, OverflowError, OSError):
            self.faults.add(path, "is invalid")
            return None
        return str(raw)

    def _converted(self, kind: Any, raw: Any, path: str) -> Any:
        plain, metas = _unwrap(kind)
        if plain is int and isinstance(raw, float) and raw.is_integer() and abs(raw) <= 2**53:
            raw = int(raw)  # to JSON Schema (2020-12, 6.1.1) 3.0 is an integer
        if self.loose and isinstance(raw, str) and plain is int:
            if not _INTEGER.fullmatch(raw):
                self.faults.add(path, "is not a number")
                return None
            if any((meta.extra or {}).get("endless") for meta in metas):
                raw = max(-LARGEST, min(int(raw), LARGEST))
            elif abs(int(raw)) > LARGEST:
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


@cache
def declared(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    """Answer the fields of a Struct, worked out once: that takes longer than to read a request by them."""
    return struct_fields(kind)
