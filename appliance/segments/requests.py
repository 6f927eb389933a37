"""What may be written about a segment, and how segments are asked for."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.fields import ContactId, Name, PageQuery, Short
from appliance.filters.read import MAX_FILTERS

_FILTER = {"$ref": "#/components/schemas/Filter"}
# Read by the filters' own reader, which knows every path inside
Filters = Annotated[Any, Meta(extra_json_schema={"type": "array", "maxItems": MAX_FILTERS, "items": _FILTER})]


class SegmentCreate(Struct):
    """A new segment; without filters it is everybody."""

    name: Name
    filters: Filters | UnsetType = UNSET


class SegmentPatch(Struct):
    """A change of a segment; `filters` replaces them all."""

    name: Name | UnsetType = UNSET
    filters: Filters | UnsetType = UNSET


class SegmentQuery(PageQuery):
    """How segments are asked for."""

    search: Short | UnsetType = UNSET


class CountWrite(Struct):
    """Filters to count without keeping them."""

    filters: Filters


class ExplainQuery(Struct):
    """Whose membership shall be explained."""

    contact_id: ContactId
