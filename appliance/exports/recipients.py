"""The people behind a number of a report as CSV: who got a campaign, and what became of it with each."""

from collections.abc import Iterator
from typing import Any

from appliance.exports import cells
from appliance.storage.open import rows

_AT_ONCE = 400
_COLUMNS = {
    "contact_id": "m.contact_id", "first_name": "c.first_name", "last_name": "c.last_name", "to": "m.recipient",
    "status": "m.status", "skip_reason": "m.skip_reason", "answer": "m.error_text", "sent_at": "m.sent_at",
    "delivered_at": "m.delivered_at", "opened_at": "m.opened_at", "clicked_at": "m.clicked_at",
    "bounced_at": "m.bounced_at", "message_id": "m.id",
}  # fmt: skip


def csv(found: list[int]) -> Iterator[str]:
    """Yield the lines of some messages by their ids, newest first, some at a time."""
    yield cells.line(_COLUMNS)
    asked = f"SELECT {', '.join(_COLUMNS.values())} FROM message m LEFT JOIN contact c ON c.id = m.contact_id"
    for start in range(0, len(found), _AT_ONCE):
        listed = ",".join(map(str, found[start : start + _AT_ONCE]))
        part = rows(f"{asked} WHERE m.id IN ({listed}) ORDER BY m.id DESC")
        yield "".join(
            cells.line([_cell(name, value) for name, value in zip(_COLUMNS, row, strict=True)]) for row in part
        )


def _cell(name: str, value: Any) -> str:
    if name.endswith("_at"):
        return cells.cell(cells.moment(value))
    return cells.phone(value) if name == "to" else cells.cell(value)
