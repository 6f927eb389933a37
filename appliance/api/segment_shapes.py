"""What the API answers about segments."""

from typing import Annotated

from msgspec import Struct

from appliance import tables
from appliance.api.shapes import Contact, Json, Moment
from appliance.clock import iso
from appliance.fields import named
from appliance.segments.people import Share


class Segment(Struct):
    """A group that follows from filters; `contacts_count` is null only until very many people are first counted."""

    id: int
    account_id: int
    name: str
    filters: list[Annotated[Json, named("Filter")]]
    sentence: str
    contacts_count: int | None
    created_at: Moment
    updated_at: Moment


class FilterShare(Struct):
    """How many people one filter alone lets through; told from a sample in large accounts."""

    count: int
    estimated: bool


class Counted(Struct):
    """How many people filters let through, some of them, and the share of each filter."""

    count: int
    sample: list[Contact]
    rows: list[FilterShare]
    sentence: str


class FilterField(Struct):
    """A name that filters know."""

    name: str
    type: str
    label: str
    section: str
    aliases: list[str]
    choices: list[str]
    of: str | None


class FilterTest(Struct):
    """A predicate of a type, and what its value is."""

    predicate: str
    takes: str
    negative: bool
    words: str


class FilterSpec(Struct):
    """Everything a builder of filters can offer."""

    fields: list[FilterField]
    types: dict[str, list[FilterTest]]
    limits: dict[str, int]


def segment(row: tables.Segment, count: int | None, sentence: str) -> Segment:
    """Shape a segment."""
    return Segment(
        row.id, row.account_id, row.name, row.filters, sentence, count, iso(row.created_at) or "",
        iso(row.updated_at) or "",
    )  # fmt: skip


def counted(count: int, sample: list[Contact], shares: list[Share], sentence: str) -> Counted:
    """Shape a count."""
    return Counted(count, sample, [FilterShare(one.count, one.estimated) for one in shares], sentence)
