"""The one declaration of what a request may hold: msgspec Structs, read with all faults at once.

API bodies, queries, HTML forms and the published document all read the same Structs. `read` answers a Struct or raises
Invalid with every fault under its path, in the stable words of decisions, section 3.
"""

from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.reader import Reader, declared

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
Country = Annotated[str, Meta(extra={"check": "country"}, extra_json_schema={"pattern": "^([A-Za-z]{2})?$"})]
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


class Read(Struct):
    """What came of reading: the value, and keys that were ignored because nobody declared them."""

    value: Any
    ignored: list[str]


def read(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> S:
    """Read a Struct; raises Invalid with all faults. `loose` takes numbers and booleans written as text."""
    return read_with_ignored(kind, raw, path, loose)[0]


def read_with_ignored(kind: type[S], raw: Any, path: str = "", loose: bool = False) -> tuple[S, list[str]]:
    """Read a Struct and answer it with the top-level and nested keys that were ignored."""
    reader = Reader(loose)
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
        reader = Reader(False)
        value = reader.value(info.type, raw[info.encode_name], "x") if info.encode_name in raw else UNSET
        if value is not UNSET and not reader.faults.fields:
            good[info.name] = value
        elif info.required:
            good[info.name] = UNSET
    return kind(**good)


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
