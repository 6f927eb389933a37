"""Where a date of a person stands, and on which days it comes round."""

from typing import NamedTuple

from appliance.filters import fields

_DATA = ("contact_data.", "data.")


class Source(NamedTuple):
    """The SQL over the contact `c` that answers a date: a text in their data, or a moment (ms) that we keep."""

    sql: str
    is_moment: bool


def source(path: str) -> Source | None:
    """Answer where the date of a path stands; None if there can be no such path."""
    known = fields.BY_NAME.get(path)
    if known is not None and known.type == "time" and known.operand.value.startswith("c."):
        return Source(known.operand.value, True)
    for prefix in _DATA:
        path = path.removeprefix(prefix)
    inside = fields.json_path(path)
    return None if inside is None else Source(f"json_extract(c.data, {inside})", False)
