"""The CSV file of a replay: who would have got what, and when, with the draft and with the live version."""

import json
from collections.abc import Iterator, Sequence

from appliance.exports import streaming
from appliance.flows.replay_result import PersonRow
from appliance.storage.database import rows

COLUMNS = (
    "contact_id", "first_name", "last_name", "email", "phone", "step_id", "change", "draft_at", "draft_not_sent",
    "live_at", "live_not_sent",
)  # fmt: skip
_PAGE_SIZE = 400
_SELECT_CONTACTS = (
    "SELECT c.id, c.first_name, c.last_name, "
    "(SELECT h.value FROM channel h WHERE h.contact_id = c.id AND h.kind = 'email' ORDER BY h.id LIMIT 1), "
    "(SELECT h.value FROM channel h WHERE h.contact_id = c.id AND h.kind = 'phone' ORDER BY h.id LIMIT 1) "
    "FROM contact c WHERE c.account_id = ? AND c.id IN (SELECT value FROM json_each(?))"
)


def write_csv(account_id: int, people: Sequence[PersonRow]) -> Iterator[str]:
    """Yield a header and then pages of lines; contacts that were deleted since the replay are left out.

    `change` says how the draft differs: `added`, `removed`, `moved` (another time) or `same`.
    """
    yield streaming.format_line(COLUMNS)
    for start in range(0, len(people), _PAGE_SIZE):
        page = people[start : start + _PAGE_SIZE]
        contact_ids = json.dumps(sorted({row.contact_id for row in page}))
        contacts = {row[0]: row for row in rows(_SELECT_CONTACTS, (account_id, contact_ids))}
        yield "".join(_format_row(row, contacts[row.contact_id]) for row in page if row.contact_id in contacts)


def _format_row(row: PersonRow, contact: tuple[int, str | None, str | None, str | None, str | None]) -> str:
    contact_id, first_name, last_name, email, phone = contact
    cells = (
        str(contact_id), streaming.format_cell(first_name), streaming.format_cell(last_name),
        streaming.format_cell(email), streaming.format_phone(phone), str(row.step_id), row.change,
        streaming.format_time(row.draft_at) or "", row.draft_reason or "",
        streaming.format_time(row.live_at) or "", row.live_reason or "",
    )  # fmt: skip
    return streaming.format_line(cells)
