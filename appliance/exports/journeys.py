"""The people of a flow as CSV: where each stands or how they left, and who they are."""

import json
from collections.abc import Iterator
from typing import Any

from appliance.exports import cells
from appliance.flows import people
from appliance.flows.people import RunQuery
from appliance.storage.open import rows

_PAGE = 400
_COLUMNS = (
    "id", "contact_id", "first_name", "last_name", "email", "phone", "status", "exit_reason", "step_id", "version",
    "test", "due_at", "ended_at", "created_at",
)  # fmt: skip
_ADDRESS = "(SELECT h.value FROM channel h WHERE h.contact_id = c.id AND h.kind = '{}' ORDER BY h.id LIMIT 1)"
_ROWS = (
    f"SELECT r.id, r.contact_id, c.first_name, c.last_name, {_ADDRESS.format('email')}, {_ADDRESS.format('phone')}, "
    "r.status, r.exit_reason, r.action_id, r.version, r.test, r.due_at, r.ended_at, r.created_at "
    f"FROM run r LEFT JOIN contact c ON c.id = r.contact_id WHERE r.id IN (SELECT value FROM json_each(?))"
)


def csv(account_id: int, flow_id: int, query: RunQuery) -> Iterator[str]:
    """Yield the lines of the runs that a query names, in the order of their list, some at a time."""
    found = people.ids(account_id, flow_id, query)
    yield cells.line(_COLUMNS)
    for start in range(0, len(found), _PAGE):
        some = found[start : start + _PAGE].tolist()
        by_id = {row[0]: row for row in rows(_ROWS, (json.dumps(some),))}
        yield "".join([cells.line(map(_cell, _COLUMNS, by_id[number])) for number in some])


def _cell(name: str, value: Any) -> str:
    if name.endswith("_at"):
        return cells.moment(value) or ""
    if name == "test":
        return cells.cell(bool(value))
    return cells.phone(value) if name in ("email", "phone") else cells.cell(value)
