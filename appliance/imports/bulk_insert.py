"""The people of a chunk of whom nothing special is known, which is most of most files.

Somebody new, with one e-mail address that no list of suppressions or opt-outs knows: SQLite itself makes their rows out
of the attached staging file, table by table, in the same transaction as everybody else's. It comes to the same as
`chunk.Chunk` would (a test holds the two against each other), several times as fast and without holding up a thread.
"""

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from appliance.audience.contacts import consent, search
from appliance.storage import sql as storage_sql
from appliance.storage.open import connection, run, scalar

if TYPE_CHECKING:
    from appliance.imports.chunk import Plan


_TABLE = (
    "CREATE TEMP TABLE IF NOT EXISTS import_plain (n INTEGER PRIMARY KEY, pos INTEGER, value TEXT, "
    "key TEXT, hash BLOB, first_name TEXT, last_name TEXT, source TEXT, country_code TEXT, tracking TEXT, data TEXT, "
    "verified INTEGER, opt_in_at INTEGER, warnings TEXT)"
)
_FILL = (
    "INSERT INTO temp.import_plain SELECT NULL, pos, value, key, hash, first_name, last_name, source, "
    "country_code, coalesce(tracking, 'full'), coalesce(data, '{}'), verified, opt_in_at, warnings "
    "FROM staged.person p WHERE pos > :after AND pos <= :last AND plain AND NOT EXISTS (SELECT 1 FROM channel h "
    "WHERE h.account_id = :account AND h.kind = 'email' AND h.key = p.key)"
)
# Asked only where there are any: most who import have few
_MARKED = (
    " AND NOT EXISTS (SELECT 1 FROM suppression s WHERE s.account_id = :account AND s.kind = 'email' "
    "AND s.address_hash = p.hash)",
    " AND NOT EXISTS (SELECT 1 FROM opt_out o WHERE o.account_id = :account AND o.kind = 'email' "
    "AND o.address_hash = p.hash)",
)
# A UUID that grows with time and number, as `writing.uuid7` makes it
_UUID = (
    ":uuid || printf('%04x-%012x', 32768 | ((:base + n) >> 28), (:base + n & 268435455) << 20 | (random() & 1048575))"
)  # fmt: skip
_ROWS = (
    "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
    "email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, created_at, "
    f"updated_at) SELECT :base + n, :account, {_UUID}, first_name, last_name, source, country_code, data, tracking, "
    "0, 0, 0, 0, 0, :now, :now FROM temp.import_plain ORDER BY n",
    "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, verified_at, opt_in_at, opt_out_at, "
    "opted_out_by, suppression, sent_count, fail_count, data, created_at, updated_at) "
    "SELECT :account, :base + n, 'email', value, key, :wanted, CASE WHEN verified THEN :now END, "
    "CASE WHEN :wanted THEN coalesce(opt_in_at, :now) END, NULL, NULL, NULL, "
    "0, 0, '{}', :now, :now FROM temp.import_plain ORDER BY n",
    "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, text, data, created_at) "
    "SELECT :account, :base + n, 'email', hash, 'opt_in', 'operator', 'import', :actor, :words, :note, :now "
    "FROM temp.import_plain WHERE :wanted ORDER BY n",
    search.FILL,
)
_EVENT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, "
    "quiet, chain_depth, created_at, updated_at) SELECT :account, :base + n, {}, 0, 1, :quiet, 0, :now, :now "
    "FROM temp.import_plain ORDER BY n"
)
_ADDED = _EVENT.format(
    "'contact_add', CASE WHEN source IS NULL THEN :added ELSE json_set(:added, '$.source', source) END, NULL, NULL"
)  # fmt: skip
_JOINED = _EVENT.format("'list_add', :data, 'list:' || :list, :name")


class Made(NamedTuple):
    """Contacts that were made at a moment: `number` of them, from this id on."""

    at: int
    first: int
    number: int


def nobody(now: int) -> Made:
    """Say that nobody is plain, as in a file of suppressions."""
    here = connection()
    here.execute(_TABLE)
    here.execute("DELETE FROM temp.import_plain")
    return Made(now, 0, 0)


def make(plan: "Plan", after: int, last: int, now: int) -> Made:
    """Make the plain people behind a position of the attached file up to another; `temp.import_plain` holds them."""
    nobody(now)
    mine = {"account": plan.account_id}
    tables = ("suppression", "opt_out")
    asked = [
        sql for table, sql in zip(tables, _MARKED, strict=True)
        if scalar(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE account_id = :account)", mine)
    ]  # fmt: skip
    count = run(f"{_FILL}{''.join(asked)} ORDER BY pos", {**mine, "after": after, "last": last})
    first = storage_sql.last_number("contact") + 1
    if not count:
        return Made(now, first, 0)
    values = {
        **mine, "base": first - 1, "now": now, "quiet": not plan.trigger_flows, "wanted": plan.opt_in,
        "actor": plan.actor, "words": plan.words,
        "uuid": _uuid(now), "note": _json({"import_id": plan.import_id}),
        "added": _json({"source": "import", **plan.mark}),
    }  # fmt: skip
    for sql in (*_ROWS, _ADDED):
        run(sql, values)
    return Made(now, first, count)


def warned(made: Made) -> int:
    """Count those whom `make` made without something that their row says."""
    return int(scalar("SELECT count(*) FROM temp.import_plain WHERE warnings NOT NULL")) if made.number else 0


def join(plan: "Plan", list_id: int, name: str, made: Made) -> None:
    """Put those whom `make` made into a list that is there and takes members."""
    values = {"list": list_id, "now": made.at, "count": made.number, "base": made.first - 1}
    run("INSERT INTO membership SELECT :list, :base + n, :now FROM temp.import_plain ORDER BY n", values)
    run("UPDATE contact_list SET contacts_count = contacts_count + :count, updated_at = :now WHERE id = :list", values)
    data = _json({"contact_list_id": list_id, **plan.mark})
    run(_JOINED, {**values, "account": plan.account_id, "name": name, "data": data,
                 "quiet": not plan.trigger_flows})  # fmt: skip


def _json(value: dict[str, object]) -> str:
    return msgspec.json.encode(value).decode()


def _uuid(now: int) -> str:
    text = f"{now & (1 << 48) - 1:012x}"
    return f"{text[:8]}-{text[8:]}-7000-"


# Rows that a chunk of an import writes, gathered and then written table by table.

_CONTACT = (
    "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
    "email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, created_at, "
    "updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, ?, ?)"
)
_CONTACT_UPDATE = (
    "UPDATE contact SET first_name = ?, last_name = ?, source = ?, country_code = ?, data = ?, tracking = ?, "
    "updated_at = ? WHERE id = ?"
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
    "address = excluded.address, created_at = excluded.created_at, expires_at = NULL"
)
_EVENT_ROW = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
    "chain_depth, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 1, "
    "json_extract(?4, '$.trigger_flows') IS DISTINCT FROM 1, 0, ?7, ?8)"
)
_FORGET = "DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?"
_REMEMBER = (
    "INSERT INTO opt_out (account_id, kind, address_hash, by, created_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (account_id, kind, address_hash) DO UPDATE SET by = excluded.by"
)
_LIST_COUNT = "UPDATE contact_list SET contacts_count = contacts_count + ?, updated_at = ? WHERE id = ?"
# In this order, so that every row finds the one it points at
_ORDER = (
    _CONTACT, _CONTACT_UPDATE, _CHANNEL, _CHANNEL_UPDATE, _SUPPRESSION, _CONSENT, _FORGET, _REMEMBER, search.WRITE,
)  # fmt: skip


def uuid7(now: int, number: int) -> str:
    """Return a UUID that grows with time and number (RFC 9562, version 7), so that its index is written in order."""
    value = (now & (1 << 48) - 1) << 80 | 7 << 76 | (number >> 42 & 0xFFF) << 64 | 2 << 62
    value |= (number & (1 << 42) - 1) << 20 | time.perf_counter_ns() & 0xFFFFF
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Rows:
    """What one chunk writes."""

    def __init__(self, account_id: int, actor: str, words: str | None, now: int) -> None:
        self.account_id, self.actor, self.words, self.now = account_id, actor, words, now
        self._rows: dict[str, list[tuple[Any, ...]]] = {sql: [] for sql in _ORDER}
        self.contact = self._rows[_CONTACT].append
        self.contact_update = self._rows[_CONTACT_UPDATE].append
        self.channel = self._rows[_CHANNEL].append
        self.channel_update = self._rows[_CHANNEL_UPDATE].append
        self.suppression = self._rows[_SUPPRESSION].append
        self.forget = self._rows[_FORGET].append
        self.remember = self._rows[_REMEMBER].append
        self.words_of = self._rows[search.WRITE].append
        self._events: list[tuple[Any, ...]] = []
        self._refusals: list[tuple[str, bytes, str, str, str]] = []

    def consent(self, contact_id: int | None, kind: str, hashed: bytes, act: str, by: str, data: str = "{}") -> None:
        """Record an act with the import's evidence."""
        self._rows[_CONSENT].append(
            (self.account_id, contact_id, kind, hashed, act, by, self.actor, self.words, data, self.now)
        )
        if act in consent.REFUSALS:
            self._refusals.append((kind, hashed, act, by, data))

    def event(self, contact_id: int, name: str, data: str, uid: str | None = None, title: str | None = None) -> None:
        """Record what happened to a contact."""
        self._events.append((self.account_id, contact_id, name, data, uid, title, self.now, self.now))

    def flush(self) -> None:
        """Write all of it."""
        here = connection()
        for sql, rows in self._rows.items():
            if rows:
                here.executemany(sql, rows)
        if self._events:
            here.executemany(_EVENT_ROW, self._events)
        for kind, hashed, act, by, data in self._refusals:
            consent.refused(self.account_id, kind, hashed, act, by, msgspec.json.decode(data))

    def join(self, list_id: int, name: str, contact_ids: list[int], data: dict[str, Any]) -> None:
        """Put contacts that are not in a list into it; after `flush`, because members must exist."""
        here = connection()
        here.executemany("INSERT INTO membership VALUES (?, ?, ?)", [(list_id, one, self.now) for one in contact_ids])
        here.execute(_LIST_COUNT, (len(contact_ids), self.now, list_id))
        text = msgspec.json.encode({"contact_list_id": list_id, **data}).decode()
        uid = f"list:{list_id}"
        here.executemany(
            _EVENT_ROW,
            [(self.account_id, one, "list_add", text, uid, name, self.now, self.now) for one in contact_ids],
        )
