"""The one declaration of what a request may hold: msgspec Structs, read with all faults at once.

API bodies, queries, HTML forms and the published document all read the same Structs. `read` answers a Struct or raises
Invalid with every fault under its path, in the stable words of docs/decisions.md#3.
"""

from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.errors import Faults
from appliance.reader import Reader, declared

S = TypeVar("S", bound=Struct)

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
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
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
