"""Mark messages in a restored database that were sent after the backup, by the journal and the replaced database.

A line of the journal names messages by their ids. Ids alone are not reliable: rows may have been deleted and created
again, or the journal may be of another machine that continued from the same backup. So a row counts as the message of a
line only if account, campaign or run, and recipient are the same. If the id has no such row, a row with the same
campaign and contact, or run and step, is used. A message without any row in the backup is stored as a `RestoredSend`.
"""

import json
from collections import Counter
from typing import Any, NamedTuple

import apsw

from appliance.core import clock
from appliance.sending.messages import restored_sends, sent_journal
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.sent_journal import AddressHasher, Source
from appliance.storage import database
from appliance.storage.database import fetch_one, rows, run_set
from appliance.storage.journal import SENT_HASH_BYTES, Sent, SentMessage
from appliance.storage.transactions import require_write_transaction

# Messages with these statuses would be sent, or a user who does not know that they were sent might send them again.
_SENDABLE = ("queued", "held", "sending", "uncertain")
_OPEN_PHASES = ("scheduled", "holding", "sending", "paused")
_NO_HASH = bytes(SENT_HASH_BYTES)
_INSERT = (
    "INSERT INTO restored_send (account_id, message_id, campaign_id, due_at, flow_id, step_id, run_id, contact_id, "
    "address_hash, sent_at, is_doubtful) SELECT item.value ->> 0, item.value ->> 1, item.value ->> 2, "
    "item.value ->> 3, item.value ->> 4, item.value ->> 5, item.value ->> 6, item.value ->> 7, "
    "unhex(item.value ->> 8), item.value ->> 9, item.value ->> 10 FROM json_each(:items) AS item WHERE NOT EXISTS "
    "(SELECT 1 FROM restored_send r WHERE r.message_id = item.value ->> 1 AND r.address_hash = unhex(item.value ->> 8) "
    "AND r.campaign_id IS item.value ->> 2 AND r.flow_id IS item.value ->> 4)"
)


class StoredRow(NamedTuple):
    """A message of the restored database, with its status."""

    row: LedgerRow
    status: str


class SendReplay:
    """The replay of the lines of kind `Sent`, with the number of messages by result in `counts`.

    - `sent`: marked as sent
    - `uncertain`: a user has to decide about them
    - `expected`: their campaign or flow had not created their rows when the backup was made, and will create them
    - `unknown`: no row is found, and nothing can create and send them again
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._hasher = AddressHasher()
        self._doubtful: list[Sent] = []
        self._last_ids: dict[str, int] = {}  # the highest id that a line names, by table

    def replay_line(self, line: Sent) -> None:
        """Replay a line in the caller's transaction; a doubtful line (acceptance unknown) is left to `finish`."""
        require_write_transaction()
        if line.is_doubtful:
            self._doubtful.append(line)
        else:
            self._replay(line)

    def finish(self) -> None:
        """Replay the doubtful lines, except for messages that another line has marked as sent.

        Also reserve the ids of contacts and runs that lines name, as far as the restored database has not reached them.
        """
        require_write_transaction()
        for line in self._doubtful:
            self._replay(line)
        self._doubtful = []
        # No other contact or run may get the id of one that was created after the backup.
        for table, number in self._last_ids.items():
            database.reserve_ids(table, max(0, number - database.last_id(table)))

    def _replay(self, line: Sent) -> None:
        source = Source(line.account, line.campaign, line.flow)
        messages = line.list_messages()
        for message in messages:
            self._note_ids(message)
        is_single = line.campaign is None and line.flow is None
        if not is_single and not self._is_source_known(line):
            self.counts["unknown"] += len(messages)
            return
        by_id = _find_rows("id", [message.message_id for message in messages])
        sent, uncertain, missing = list[LedgerRow](), list[LedgerRow](), list[SentMessage]()
        for message in messages:
            stored = by_id.get(message.message_id)
            is_same = stored is not None and self._is_same_recipient(stored.row, message)
            if (
                stored is None
                or not _is_of_source(stored.row, source, message)
                or not (is_same or stored.row.contact_id == message.contact_id)
            ):
                missing.append(message)
            elif stored.status in _SENDABLE:
                (sent if is_same and not line.is_doubtful else uncertain).append(stored.row)
        if is_single:
            self.counts["unknown"] += len(missing)  # Nothing creates the row of a single message again.
        elif missing:
            self._replay_missing(line, source, missing, sent, uncertain)
        self._mark(line, sent, uncertain)

    def _note_ids(self, message: SentMessage) -> None:
        for table, number in (("contact", message.contact_id), ("run", message.run_id)):
            self._last_ids[table] = max(self._last_ids.get(table, 0), number)

    def _replay_missing(
        self, line: Sent, source: Source, missing: list[SentMessage], sent: list[LedgerRow], uncertain: list[LedgerRow]
    ) -> None:
        """Find messages whose ids are not in the backup by campaign and contact, or run and step; store the rest.

        The rows that are found are added to `sent` or `uncertain`.
        """
        rows_by_key = _find_by_key(source, missing)
        expected = []
        for message in missing:
            candidates = rows_by_key.get(_key(source, message), [])
            stored = next((stored for stored in candidates if stored.status in _SENDABLE), None)
            is_same = stored is not None and self._is_same_recipient(stored.row, message)
            if stored is not None:
                candidates.remove(stored)
                (sent if is_same and not line.is_doubtful else uncertain).append(stored.row)
            if stored is None and (not candidates or source.flow_id is not None):
                # A run may take a step twice, and then has a message for each time. A campaign has one message for each
                # contact.
                expected.append(message)
            elif not is_same and source.flow_id is None:
                # The address may belong to another contact of the campaign.
                expected.append(message._replace(contact_id=0))
        self._store_expected(line, source, expected)

    def _store_expected(self, line: Sent, source: Source, messages: list[SentMessage]) -> None:
        if source.campaign_id is not None and not self._will_create_rows(line):
            self.counts["unknown"] += len(messages)
            return
        runs = _find_known_runs(source, messages)
        items = [
            (
                line.account, message.message_id, line.series or line.campaign, line.due, line.flow,
                message.step_id or None, message.run_id if message.run_id in runs else None, message.contact_id or None,
                message.address_hash.hex(), line.at, int(line.is_doubtful),
            )
            for message in messages
            if message.address_hash != _NO_HASH  # An erased recipient gets nothing any more.
        ]  # fmt: skip
        self.counts["expected"] += run_set(_INSERT, items) if items else 0

    def _is_source_known(self, line: Sent) -> bool:
        """Return whether the restored database has the campaign or flow of a line, not a later one with its id."""
        table, number = ("flow", line.flow) if line.flow is not None else ("campaign", line.series or line.campaign)
        sql = f"SELECT 1 FROM {table} WHERE id = ? AND account_id = ? AND created_at IS coalesce(?, created_at)"
        return fetch_one(sql, (number, line.account, line.created)) is not None

    def _will_create_rows(self, line: Sent) -> bool:
        sql = f"SELECT 1 FROM campaign WHERE id = ? AND phase IN {_OPEN_PHASES!r} AND deleted_at IS NULL"
        return fetch_one(sql, (line.series or line.campaign,)) is not None

    def _is_same_recipient(self, row: LedgerRow, message: SentMessage) -> bool:
        if row.recipient_key is None or message.address_hash == _NO_HASH:
            return True  # The recipient was erased.
        return self._hasher.hash_recipient(row.address_kind, row.recipient_key) == message.address_hash

    def _mark(self, line: Sent, sent: list[LedgerRow], uncertain: list[LedgerRow]) -> None:
        if sent:
            restored_sends.mark_sent([(row, line.at) for row in sent])
        for row in uncertain:
            restored_sends.mark_uncertain(row)
        self.counts["sent"] += len(sent)
        self.counts["uncertain"] += len(uncertain)


def _is_of_source(row: LedgerRow, source: Source, message: SentMessage) -> bool:
    """Return whether a row is of the same campaign, or run and step, as a message, or both are single messages."""
    if Source.from_row(row) != source:
        return False
    return source.flow_id is None or (row.run_id, row.step_id) == (message.run_id, message.step_id)


def _key(source: Source, message: SentMessage) -> tuple[int, ...]:
    return (message.run_id, message.step_id) if source.flow_id is not None else (message.contact_id,)


def _find_by_key(source: Source, messages: list[SentMessage]) -> dict[tuple[int, ...], list[StoredRow]]:
    """Return the stored rows for the contacts of some campaign messages, or the runs of some flow messages.

    The keys are (contact id), or for a flow (run id, step id).
    """
    if source.flow_id is not None:
        condition, numbers = "run_id IN (SELECT value FROM json_each(?))", [message.run_id for message in messages]
    else:
        condition = f"campaign_id = {source.campaign_id or 0:d} AND contact_id IN (SELECT value FROM json_each(?))"
        numbers = [message.contact_id for message in messages]
    rows_by_key: dict[tuple[int, ...], list[StoredRow]] = {}
    for *columns, status in rows(
        f"SELECT {COLUMNS}, status FROM message WHERE {condition} ORDER BY id", (json.dumps(numbers),)
    ):
        row = LedgerRow._make(columns)
        if Source.from_row(row) == source:
            key = (row.run_id or 0, row.step_id or 0) if source.flow_id is not None else (row.contact_id or 0,)
            rows_by_key.setdefault(key, []).append(StoredRow(row, status))
    return rows_by_key


def _find_rows(column: str, numbers: list[int]) -> dict[int, StoredRow]:
    sql = f"SELECT {COLUMNS}, status FROM message WHERE {column} IN (SELECT value FROM json_each(?))"
    return {
        columns[0]: StoredRow(LedgerRow._make(columns), status)
        for *columns, status in rows(sql, (json.dumps(numbers),))
    }


def _find_known_runs(source: Source, messages: list[SentMessage]) -> set[int]:
    """Return the ids of the messages' runs that the restored database has for the same contact; none for a campaign."""
    if source.flow_id is None:
        return set()
    contacts = {message.run_id: message.contact_id for message in messages}
    sql = "SELECT id, contact_id FROM run WHERE flow_id = ? AND id IN (SELECT value FROM json_each(?))"
    return {
        run_id
        for run_id, contact_id in rows(sql, (source.flow_id, json.dumps(list(contacts))))
        if contact_id == contacts[run_id]
    }


# If the service was killed during a send, the replaced database may have claims and acceptances that the journal lacks.
# A message without `body_hash` was never rendered, so nothing of it was sent.
_UNSETTLED = (
    "SELECT m.account_id, m.campaign_id, CASE WHEN m.campaign_id IS NULL AND m.run_id IS NOT NULL THEN m.flow_id END, "
    "iif(m.campaign_id IS NULL, m.run_id, 0), iif(m.campaign_id IS NULL AND m.run_id IS NOT NULL, m.step_id, 0), m.id, "
    "m.contact_id, m.channel, m.recipient_key, l.sent_at, (SELECT json_array(s.campaign_id, o.due_at) "
    "FROM occurrence o JOIN series s ON s.id = o.series_id WHERE o.campaign_id = m.campaign_id) "
    "FROM message m LEFT JOIN send_log l ON l.message_id = m.id WHERE (l.message_id IS NOT NULL "
    "AND (l.sent_at IS NOT NULL OR l.body_hash IS NOT NULL)) OR (m.status = 'sending' AND m.body_hash IS NOT NULL)"
)


def list_unsettled(current: apsw.Connection) -> list[Sent]:
    """Return lines for the messages that a database has claimed or accepted but not settled.

    Claimed messages may have been sent, so their lines are doubtful. Raises apsw.Error for a database of an older
    schema.
    """
    hasher = AddressHasher()
    lines: list[Sent] = []
    unsettled: list[tuple[Any, ...]] = current.execute(_UNSETTLED).fetchall()
    for *source, run_id, step_id, message_id, contact_id, channel, key, accepted_at, series in unsettled:
        address_hash = hasher.hash_recipient("phone" if channel == "sms" else "email", key)
        message = SentMessage(message_id, contact_id or 0, address_hash, run_id or 0, step_id or 0)
        described = dict(zip(("series", "due"), json.loads(series), strict=True)) if series is not None else {}
        at = clock.now_ms() if accepted_at is None else accepted_at
        lines += sent_journal.pack_lines(Source(*source), [message], described, at=at, is_doubtful=accepted_at is None)
    return lines
