"""Rows that a chunk of an import writes, gathered and then written table by table."""

import time
from typing import Any

import msgspec

from appliance.contacts import consent, search
from appliance.db.dialect.documents import field_of
from appliance.db.open import connection

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
_EVENT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
    "chain_depth, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 1, "
    f"{field_of('?4', 'trigger_flows')} IS DISTINCT FROM 1, 0, ?7, ?8)"
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
            here.executemany(_EVENT, self._events)
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
            _EVENT,
            [(self.account_id, one, "list_add", text, uid, name, self.now, self.now) for one in contact_ids],
        )
