"""The events of messages that a program sent through the API of another service, in the order in which they happened.

Such messages have the tags `{"domain", "tags", "variables"}`: the domain in the path of the request, and what the
program calls tags and variables (`appliance/api/doors/mailgun.py`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.storage.database import rows

# The positions of an event in the order of a list: its time in milliseconds, and its id.
Cursor = tuple[int, int]


class ProgramEventQuery(NamedTuple):
    """The filters of a list. `names` are names of our events; the times are inclusive, in milliseconds, None for any.

    A message must have all of `all_tags`, and at least one of `any_tags` unless that is empty. `recipient` is the key
    of an address. Without `shows_contacts`, the subjects are those that were submitted, because the subject as sent
    shows values of the contact. With `after`, the list begins after that event; with `before`, it ends before that
    event. With `is_last`, the last events of the list are returned instead of the first ones.
    """

    account_id: int
    domain: str
    names: Sequence[str]
    limit: int
    begin: int | None = None
    end: int | None = None
    is_ascending: bool = False
    all_tags: Sequence[str] = ()
    any_tags: Sequence[str] = ()
    recipient: str | None = None
    after: Cursor | None = None
    before: Cursor | None = None
    is_last: bool = False
    shows_contacts: bool = True


class ProgramEvent(NamedTuple):
    """An event of a message, with the columns of the message that describe it."""

    id: int
    name: str
    at: int
    data: dict[str, Any]
    message_id: int
    recipient: str
    sender: str | None
    subject: str | None
    tags: dict[str, Any]
    test: bool
    bulk_id: int | None
    first_message_id: int | None


_SELECT = (
    "SELECT e.id, e.event, e.created_at, e.data, m.id, m.recipient, m.sender, "
    "CASE WHEN :shows_contacts THEN m.subject ELSE c.subject END, m.tags, m.test, c.bulk_id, "
    "c.first_message_id FROM event e INDEXED BY event_listed "
    "JOIN message m ON m.id = CAST(substr(e.resource_uid, 9) AS INTEGER) "
    "LEFT JOIN message_content c ON c.message_id = m.id "
    "WHERE e.account_id = :account AND e.resource_uid GLOB 'message:*' "
    "AND e.event IN (SELECT value FROM json_each(:names)) "
    # A scanner that loads the images of a message has not opened it.
    "AND coalesce(e.data ->> '$.verdict', '') <> 'machine' "
    "AND m.account_id = :account AND m.recipient NOT NULL AND m.tags ->> '$.domain' = :domain"
)
_BY_ALL_TAGS = (
    " AND NOT EXISTS (SELECT 1 FROM json_each(:all_tags) t WHERE t.value NOT IN "
    "(SELECT value FROM json_each(m.tags, '$.tags')))"
)
_BY_ANY_TAG = (
    " AND EXISTS (SELECT 1 FROM json_each(m.tags, '$.tags') WHERE value IN (SELECT value FROM json_each(:any_tags)))"
)


def fetch(query: ProgramEventQuery) -> list[ProgramEvent]:
    """Return the events that match a query, in the order of the list, at most `limit`."""
    # A page before a position, and the last page, are read from their ends.
    is_backward = query.before is not None or query.is_last
    is_ascending = query.is_ascending != is_backward
    position = query.before if is_backward else query.after
    sql = _SELECT
    if query.begin is not None:
        sql += " AND e.created_at >= :begin"
    if query.end is not None:
        sql += " AND e.created_at <= :end"
    if query.all_tags:
        sql += _BY_ALL_TAGS
    if query.any_tags:
        sql += _BY_ANY_TAG
    if query.recipient is not None:
        sql += " AND m.recipient_key = :recipient"
    if position is not None:
        sql += f" AND (e.created_at, e.id) {'>' if is_ascending else '<'} (:at, :id)"
    direction = "ASC" if is_ascending else "DESC"
    sql += f" ORDER BY e.created_at {direction}, e.id {direction} LIMIT :limit"
    encode = msgspec.json.encode
    parameters = {
        "account": query.account_id, "domain": query.domain, "names": encode(query.names).decode(),
        "begin": query.begin, "end": query.end, "all_tags": encode(query.all_tags).decode(),
        "any_tags": encode(query.any_tags).decode(), "recipient": query.recipient, "limit": query.limit,
        "shows_contacts": query.shows_contacts,
        "at": position[0] if position else None, "id": position[1] if position else None,
    }  # fmt: skip
    events = [_read(row) for row in rows(sql, parameters)]
    return events[::-1] if is_backward else events


def _read(row: tuple[Any, ...]) -> ProgramEvent:
    data, tags = (msgspec.json.decode(text) if text else {} for text in (row[3], row[8]))
    return ProgramEvent._make((*row[:3], data, *row[4:8], tags, bool(row[9]), *row[10:]))
