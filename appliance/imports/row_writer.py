"""Write the database rows of a chunk of contacts: simple rows in bulk, all others through `RowWriter`.

A row is inserted in bulk if it is plain in the staging file (`staging._SORT`) and its email address has no contact,
suppression or remembered opt-out in the account. `SnapshotBuilder` records what the chunk changes, so that `removal.py`
can undo it.
"""

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from appliance.audience import consent
from appliance.audience.contacts import search
from appliance.imports.contact_rows import ConsentState
from appliance.storage import database as storage_sql
from appliance.storage.database import connection, run, scalar

# Most rows of most files add a new contact with one email address that is neither suppressed nor opted out. They are
# inserted in bulk: SQLite creates their database rows from the attached staging file, table by table, in the same
# transaction as the rest of the chunk. That is several times as fast as `chunk.Chunk`, with the same result; a test
# compares the two.

_PLAIN_TABLE = (
    "CREATE TEMP TABLE IF NOT EXISTS import_plain (n INTEGER PRIMARY KEY, pos INTEGER, value TEXT, "
    "key TEXT, hash BLOB, first_name TEXT, last_name TEXT, source TEXT, country_code TEXT, language TEXT, "
    "tracking TEXT, data TEXT, verified INTEGER, opt_in_at INTEGER, warnings TEXT)"
)
_FILL_PLAIN = (
    "INSERT INTO temp.import_plain SELECT NULL, pos, value, key, hash, first_name, last_name, source, "
    "country_code, language, coalesce(tracking, 'full'), coalesce(data, '{}'), verified, opt_in_at, warnings "
    "FROM staged.person p WHERE pos > :after AND pos <= :last AND plain AND NOT EXISTS (SELECT 1 FROM channel h "
    "WHERE h.account_id = :account AND h.kind = 'email' AND h.key = p.key)"
)
# The first condition is added only if the account has suppressions, the second only if it has remembered opt-outs.
_WITHOUT_STATE = (
    " AND NOT EXISTS (SELECT 1 FROM suppression s WHERE s.account_id = :account AND s.kind = 'email' "
    "AND s.address_hash = p.hash)",
    " AND NOT EXISTS (SELECT 1 FROM opt_out o WHERE o.account_id = :account AND o.kind = 'email' "
    "AND o.address_hash = p.hash)",
)
# The SQL expression for a UUID of version 7, as `uuid7` returns it
_UUID_SQL = (
    ":uuid || printf('%04x-%012x', 32768 | ((:base + n) >> 28), (:base + n & 268435455) << 20 | (random() & 1048575))"
)  # fmt: skip
_INSERT_PLAIN = (
    "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, language, data, "
    "tracking, email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, "
    f"created_at, updated_at) SELECT :base + n, :account, {_UUID_SQL}, first_name, last_name, source, country_code, "
    "language, data, tracking, "
    "0, 0, 0, 0, 0, :now, :now FROM temp.import_plain ORDER BY n",
    "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, verified_at, opt_in_at, opt_out_at, "
    "opted_out_by, suppression, sent_count, fail_count, data, created_at, updated_at) "
    "SELECT :account, :base + n, 'email', value, key, :wanted, CASE WHEN verified THEN :now END, "
    "CASE WHEN :wanted THEN coalesce(opt_in_at, :now) END, NULL, NULL, NULL, "
    "0, 0, '{}', :now, :now FROM temp.import_plain ORDER BY n",
    "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, text, data, created_at) "
    "SELECT :account, :base + n, 'email', hash, 'opt_in', 'operator', 'import', :actor, :words, :note, :now "
    "FROM temp.import_plain WHERE :wanted ORDER BY n",
    search.FILL_FROM_IMPORT_SQL,
)
_PLAIN_EVENT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, "
    "quiet, batch, chain_depth, created_at, updated_at) SELECT :account, :base + n, {}, 0, 1, :quiet, :batch, 0, :now, "
    ":now "
    "FROM temp.import_plain ORDER BY n"
)
_PLAIN_ADDED = _PLAIN_EVENT.format(
    "'contact_add', CASE WHEN source IS NULL THEN :added ELSE json_set(:added, '$.source', source) END, NULL, NULL"
)  # fmt: skip
_PLAIN_JOINED = _PLAIN_EVENT.format("'list_add', :data, 'list:' || :list, :name")


class ImportPlan(NamedTuple):
    """The options of an import that each chunk needs.

    `words` is the consent text, stored as evidence. `opt_in` is the opt-in of email addresses, and `opt_in_phone` that
    of phone numbers. With `skip`, existing contacts stay unchanged.
    """

    import_id: int
    filename: str
    account_id: int
    actor: str
    words: str | None
    list_ids: tuple[int, ...]
    opt_in: bool
    opt_in_phone: bool
    skip: bool
    trigger_flows: bool

    @property
    def mark(self) -> dict[str, Any]:
        """Return the data that marks an event as caused by the import: `import_id` and, if set, `trigger_flows`."""
        return {"import_id": self.import_id, **({"trigger_flows": True} if self.trigger_flows else {})}

    @property
    def batch(self) -> str:
        """Return the batch of the import's events (`log.in_batch`)."""
        return f"import:{self.import_id}"


class InsertedRange(NamedTuple):
    """The contacts of a chunk that were inserted in bulk: their time of creation, first id and number."""

    at: int
    first: int
    number: int


def clear_bulk_rows(now: int) -> InsertedRange:
    """Empty `temp.import_plain` and return an empty range, for a file of suppressions."""
    db = connection()
    db.execute(_PLAIN_TABLE)
    db.execute("DELETE FROM temp.import_plain")
    return InsertedRange(now, 0, 0)


def insert_in_bulk(plan: ImportPlan, after: int, last: int, now: int) -> InsertedRange:
    """Insert the contacts of rows that allow it at the positions (after, last] of the attached staging file.

    All related database rows are inserted, too, except memberships of lists (`add_bulk_to_list`). The rows of the file
    stay in `temp.import_plain` until the next chunk.
    """
    clear_bulk_rows(now)
    params = {"account": plan.account_id}
    tables = ("suppression", "opt_out")
    conditions = [
        sql for table, sql in zip(tables, _WITHOUT_STATE, strict=True)
        if scalar(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE account_id = :account)", params)
    ]  # fmt: skip
    count = run(f"{_FILL_PLAIN}{''.join(conditions)} ORDER BY pos", {**params, "after": after, "last": last})
    first_id = storage_sql.last_id("contact") + 1
    if not count:
        return InsertedRange(now, first_id, 0)
    values = {
        **params, "base": first_id - 1, "now": now, "quiet": not plan.trigger_flows, "wanted": plan.opt_in,
        "actor": plan.actor, "words": plan.words, "batch": plan.batch,
        "uuid": _uuid_prefix(now), "note": _encode_text({"import_id": plan.import_id}),
        "added": _encode_text({"source": "import", **plan.mark}),
    }  # fmt: skip
    for sql in (*_INSERT_PLAIN, _PLAIN_ADDED):
        run(sql, values)
    return InsertedRange(now, first_id, count)


def count_warned(inserted: InsertedRange) -> int:
    """Return how many of the rows of the chunk that were inserted in bulk have warnings."""
    return int(scalar("SELECT count(*) FROM temp.import_plain WHERE warnings NOT NULL")) if inserted.number else 0


def add_bulk_to_list(plan: ImportPlan, list_id: int, name: str, inserted: InsertedRange) -> None:
    """Add the contacts that were inserted in bulk to a list, which must exist and must not mirror a segment."""
    values = {"list": list_id, "now": inserted.at, "count": inserted.number, "base": inserted.first - 1}
    run("INSERT INTO membership SELECT :list, :base + n, :now FROM temp.import_plain ORDER BY n", values)
    run("UPDATE contact_list SET contacts_count = contacts_count + :count, updated_at = :now WHERE id = :list", values)
    data = _encode_text({"contact_list_id": list_id, **plan.mark})
    run(_PLAIN_JOINED, {**values, "account": plan.account_id, "name": name, "data": data,
                 "quiet": not plan.trigger_flows, "batch": plan.batch})  # fmt: skip


def _encode_text(value: dict[str, object]) -> str:
    return msgspec.json.encode(value).decode()


def _uuid_prefix(now: int) -> str:
    text = f"{now & (1 << 48) - 1:012x}"
    return f"{text[:8]}-{text[8:]}-7000-"


_CONTACT = (
    "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, language, data, "
    "tracking, email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, "
    "created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, ?, ?)"
)
_CONTACT_UPDATE = (
    "UPDATE contact SET first_name = ?, last_name = ?, source = ?, country_code = ?, language = ?, data = ?, "
    "tracking = ?, updated_at = ? WHERE id = ?"
)
_CHANNEL = (
    "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, verified_at, opt_in_at, opt_out_at, "
    "opted_out_by, suppression, sent_count, fail_count, data, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '{}', ?, ?)"
)
_CHANNEL_UPDATE = (
    "UPDATE channel SET subscribed = ?, opted_out_by = ?, opt_out_at = ?, opt_in_at = ?, suppression = ?, "
    "verified_at = ?, updated_at = ? WHERE id = ?"
)
_CONSENT = (
    "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, text, data, created_at) "
    "VALUES (?, ?, ?, ?, ?, ?, 'import', ?, ?, ?, ?)"
)
_SUPPRESSION = (
    "INSERT INTO suppression (account_id, kind, address_hash, address, reason, source, note, created_at) "
    "VALUES (?, ?, ?, ?, ?, 'import', ?, ?) ON CONFLICT (account_id, kind, address_hash, reason) DO UPDATE SET "
    "address = excluded.address, source = excluded.source, created_at = excluded.created_at, repeated_at = NULL, "
    "expires_at = NULL"
)
_REPEATED_SUPPRESSION = (
    "UPDATE suppression SET repeated_at = ? WHERE account_id = ? AND kind = ? AND address_hash = ? AND reason = ?"
)
_REPEATED_OPT_OUT = "UPDATE channel SET opt_out_repeated_at = max(?, updated_at) WHERE id = ?"
_HAS_RECORDED = (
    "SELECT EXISTS (SELECT 1 FROM consent WHERE {} AND account_id = :account AND address_hash = :hashed "
    "AND act = :act AND source = 'import' AND json_extract(data, '$.import_id') = :import_id "
    "AND json_extract(data, '$.reason') IS :reason)"
)
_EVENT_ROW = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
    "batch, chain_depth, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 1, "
    "json_extract(?4, '$.trigger_flows') IS DISTINCT FROM 1, 'import:' || json_extract(?4, '$.import_id'), 0, ?7, ?8)"
)
_DELETE_OPT_OUT = "DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?"
_INSERT_OPT_OUT = (
    "INSERT INTO opt_out (account_id, kind, address_hash, by, created_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (account_id, kind, address_hash) DO UPDATE SET by = excluded.by"
)
_LIST_COUNT = "UPDATE contact_list SET contacts_count = contacts_count + ?, updated_at = ? WHERE id = ?"
# The statements are in the order in which foreign keys allow them.
_STATEMENTS = (
    _CONTACT, _CONTACT_UPDATE, _CHANNEL, _CHANNEL_UPDATE, _REPEATED_OPT_OUT, _SUPPRESSION, _REPEATED_SUPPRESSION,
    _CONSENT, _DELETE_OPT_OUT, _INSERT_OPT_OUT, search.WRITE_SQL,
)  # fmt: skip


def has_recorded(plan: ImportPlan, contact_id: int | None, hashed: bytes, act: str, reason: str | None = None) -> bool:
    """Return whether an earlier chunk of an import recorded an act about an address.

    `reason` is that of a suppression.
    """
    # There is one index for evidence of contacts, and another one for evidence without a contact.
    condition = "contact_id IS NULL" if contact_id is None else "contact_id = :contact"
    values = {
        "account": plan.account_id, "contact": contact_id, "hashed": hashed, "act": act, "reason": reason,
        "import_id": plan.import_id,
    }  # fmt: skip
    return bool(scalar(_HAS_RECORDED.format(condition), values))


def uuid7(now: int, number: int) -> str:
    """Return a UUID of version 7 (RFC 9562) for a time in milliseconds and a contact id.

    UUIDs ascend with both, so that new entries are at the end of the index.
    """
    value = (now & (1 << 48) - 1) << 80 | 7 << 76 | (number >> 42 & 0xFFF) << 64 | 2 << 62
    value |= (number & (1 << 42) - 1) << 20 | time.perf_counter_ns() & 0xFFFFF
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class RowWriter:
    """Collects the rows that a chunk writes, by table; `flush` writes them."""

    def __init__(self, account_id: int, actor: str, words: str | None, now: int) -> None:
        self.account_id, self.actor, self.words, self.now = account_id, actor, words, now
        self._rows: dict[str, list[tuple[Any, ...]]] = {sql: [] for sql in _STATEMENTS}
        self.add_contact = self._rows[_CONTACT].append
        self.update_contact = self._rows[_CONTACT_UPDATE].append
        self.add_channel = self._rows[_CHANNEL].append
        self.update_channel = self._rows[_CHANNEL_UPDATE].append
        self.add_suppression = self._rows[_SUPPRESSION].append
        self.repeat_suppression = self._rows[_REPEATED_SUPPRESSION].append
        self.repeat_opt_out = self._rows[_REPEATED_OPT_OUT].append
        self.delete_opt_out = self._rows[_DELETE_OPT_OUT].append
        self.add_opt_out = self._rows[_INSERT_OPT_OUT].append
        self.index_words = self._rows[search.WRITE_SQL].append
        self._events: list[tuple[Any, ...]] = []
        self._refusals: list[tuple[str, bytes, str, str, str]] = []

    def add_consent(
        self, contact_id: int | None, kind: str, hashed: bytes, act: str, by: str, data: str = "{}"
    ) -> None:
        """Add a consent row with the evidence of the import; `flush` also journals an opt-out or a suppression."""
        self._rows[_CONSENT].append(
            (self.account_id, contact_id, kind, hashed, act, by, self.actor, self.words, data, self.now)
        )
        if act in consent.JOURNALED_ACTS:
            self._refusals.append((kind, hashed, act, by, data))

    def add_event(
        self, contact_id: int, name: str, data: str, uid: str | None = None, title: str | None = None
    ) -> None:
        """Add an event of a contact; `uid` and `title` are the id and the name of its resource."""
        self._events.append((self.account_id, contact_id, name, data, uid, title, self.now, self.now))

    def flush(self) -> None:
        """Write all collected rows, and write opt-outs and suppressions to the journal. Call it once."""
        db = connection()
        for sql, values in self._rows.items():
            if values:
                db.executemany(sql, values)
        if self._events:
            db.executemany(_EVENT_ROW, self._events)
        for kind, hashed, act, by, data in self._refusals:
            consent.journal_refusal(self.account_id, kind, hashed, act, by, msgspec.json.decode(data))

    def add_to_list(self, list_id: int, name: str, contact_ids: list[int], data: dict[str, Any]) -> None:
        """Add contacts to a list and write a `list_add` event for each, whose data includes `data`.

        None of the contacts may be a member already. Call it after `flush`, because they must exist.
        """
        db = connection()
        db.executemany(
            "INSERT INTO membership VALUES (?, ?, ?)", [(list_id, contact_id, self.now) for contact_id in contact_ids]
        )
        db.execute(_LIST_COUNT, (len(contact_ids), self.now, list_id))
        text = msgspec.json.encode({"contact_list_id": list_id, **data}).decode()
        uid = f"list:{list_id}"
        db.executemany(
            _EVENT_ROW,
            [
                (self.account_id, contact_id, "list_add", text, uid, name, self.now, self.now)
                for contact_id in contact_ids
            ],
        )


# What a chunk changed, stored with it for an undo.

# The fields of a contact that an import sets
CONTACT_FIELDS = ("first_name", "last_name", "source", "country_code", "language", "tracking")
encode_snapshot = msgspec.msgpack.Encoder().encode


class ContactChange(msgspec.Struct, array_like=True):
    """The changes of a contact: (before, after) by field and by data key, and its earlier `updated_at`."""

    contact_id: int
    updated_at: int
    fields: dict[str, tuple[Any, Any]]
    # Before and after are lists of one value, or empty lists if the key did not exist.
    data: dict[str, tuple[Any, Any]]


class ChunkSnapshot(msgspec.Struct, array_like=True):
    """The changes that a chunk made, for an undo.

    `at` is the time of the chunk. `channels` has the earlier state of changed addresses: id, `ConsentState` as a list,
    `verified_at` and `updated_at`. `added` are (kind, key) of addresses added to existing contacts. `opt_outs` are
    (kind, hash, by, time) of remembered opt-outs that were lifted. `suppressions` are (kind, hash, reason) of new ones.
    `joined` has the contact ids that joined a list, as ranges by list id.
    """

    at: int
    # The ids of new contacts as ranges (first, count), because most chunks have only one range
    created: list[tuple[int, int]] = []
    changes: list[ContactChange] = []
    channels: list[tuple[int, list[Any], int | None, int]] = []
    added: list[tuple[str, str]] = []
    opt_outs: list[tuple[str, bytes, str, int]] = []
    suppressions: list[tuple[str, bytes, str]] = []
    joined: dict[int, list[tuple[int, int]]] = {}
    # The channel ids of opt-outs that were in force already
    repeated: list[int] = []


def to_ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges (first, count) of distinct ids."""
    ranges: list[tuple[int, int]] = []
    for contact_id in sorted(ids):
        if ranges and contact_id == sum(ranges[-1]):
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((contact_id, 1))
    return ranges


def from_ranges(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the ids in ranges (first, count)."""
    return [contact_id for first, count in ranges for contact_id in range(first, first + count)]


class SnapshotBuilder:
    """Builds the snapshot of a chunk while the chunk is applied.

    `inserted` are the contacts that were inserted in bulk.
    """

    def __init__(self, now: int, inserted: InsertedRange | None = None) -> None:
        self.notes = ChunkSnapshot(now)
        self._created = list(range(inserted.first, inserted.first + inserted.number)) if inserted is not None else []
        self._joined: dict[int, list[int]] = defaultdict(list)
        self.record_created = self._created.append

    def record_change(self, contact_id: int, old_fields: Any, new_fields: Any, updated_at: int) -> None:
        """Record the changed fields and data keys of an existing contact, and its `updated_at` before."""
        fields = {
            name: (a, b)
            for name in CONTACT_FIELDS
            if (a := getattr(old_fields, name)) != (b := getattr(new_fields, name))
        }
        data = {}
        if old_fields.data != new_fields.data:
            old_data, new_data = msgspec.json.decode(old_fields.data), msgspec.json.decode(new_fields.data)
            for key in old_data.keys() | new_data.keys():
                change = ([old_data[key]] if key in old_data else [], [new_data[key]] if key in new_data else [])
                if change[0] != change[1]:
                    data[key] = change
        self.notes.changes.append(ContactChange(contact_id, updated_at, fields, data))

    def record_channel(self, number: int, state: ConsentState, verified_at: int | None, updated_at: int) -> None:
        """Record the state of an existing address (its channel id is `number`) before the chunk."""
        self.notes.channels.append((number, list(state), verified_at, updated_at))

    def record_added_channel(self, kind: str, key: str) -> None:
        """Record an address that was added to an existing contact."""
        self.notes.added.append((kind, key))

    def record_lifted_opt_out(self, kind: str, hashed: bytes, by: str, opted_out_at: int) -> None:
        """Record a remembered opt-out that was lifted."""
        self.notes.opt_outs.append((kind, hashed, by, opted_out_at))

    def record_repeated_opt_out(self, number: int) -> None:
        """Record that the import repeated an opt-out that was already in force (`number` is the id of its channel)."""
        self.notes.repeated.append(number)

    def record_suppression(self, kind: str, hashed: bytes, reason: str) -> None:
        """Record a new suppression."""
        self.notes.suppressions.append((kind, hashed, reason))

    def record_joined(self, list_id: int, contact_ids: Iterable[int]) -> None:
        """Record contacts that joined a list, in addition to those recorded before."""
        self._joined[list_id] += contact_ids

    def encode(self) -> bytes:
        """Return the snapshot as MessagePack, for the column `before` of the chunk."""
        self.notes.created = to_ranges(self._created)
        self.notes.joined = {list_id: to_ranges(members) for list_id, members in self._joined.items()}
        return encode_snapshot(self.notes)


decode_snapshot = msgspec.msgpack.Decoder(ChunkSnapshot).decode
