"""Masked contact data: reads of a user or app whose role does not see who contacts are (docs/decisions.md#34).

Within `masked`, every read of `storage.transactions` runs on a second connection, in which temporary views hide the
tables that describe contacts. A view has the name and the columns of its table, and SQLite resolves an unqualified name
to it first. So all statements, raw or by Peewee, get pseudonyms such as `contact-7@masked.invalid` instead of
addresses, names and phone numbers, and nothing instead of what contacts wrote or did in their own words. A page or
endpoint cannot forget to mask. Columns named `real_…` have the stored values for the conditions of filters
(`real_columns`).
"""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import apsw
import msgspec

from appliance.storage.database import database, write_state

_is_masked: ContextVar[bool] = ContextVar("is_masked", default=False)

HIDDEN_TEXT = "•••"
MASKED_DOMAIN = "masked.invalid"  # a domain that no one can have (RFC 2606, section 2)
# A number as large as a phone number is hidden in custom data.
_MIN_HIDDEN_NUMBER = 1_000_000
# Keys of custom data whose texts stay: the tags and codes that the account chose, and what the service records.
OPEN_KEYS = frozenset(
    ("tags", "channel", "kind", "type", "status", "reason", "source", "method", "verdict", "classification", "act")
)


def _hide(column: str, value: str = f"'{HIDDEN_TEXT}'") -> str:
    return f"CASE WHEN {column} IS NOT NULL THEN {value} END"


def _address(column: str, contact_id: str, is_phone: str) -> str:
    number = f"coalesce({contact_id}, 0)"
    email = f"'contact-' || {number} || '@{MASKED_DOMAIN}'"
    return _hide(column, f"CASE WHEN {is_phone} THEN printf('+999%07d', {number}) ELSE {email} END")


def _json(column: str) -> str:
    return f"masked_json({column})"


_IS_SMS = "channel = 'sms'"
# By table, the SQL of each column that is masked.
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "contact": {
        "first_name": _hide("first_name", "'Contact'"), "last_name": _hide("last_name", "CAST(id AS TEXT)"),
        "data": _json("data"),
    },
    "channel": {
        "value": _address("value", "contact_id", "kind = 'phone'"),
        "key": _address("key", "contact_id", "kind = 'phone'"), "data": _json("data"),
    },
    "consent": {"ip": _hide("ip"), "user_agent": _hide("user_agent"), "data": _json("data")},
    "suppression": {
        "address": _address("address", "id", "kind = 'phone'"), "diagnostic": _hide("diagnostic"),
        "note": _hide("note"), "address_hash": "zeroblob(32)",
    },
    "confirmation": {
        "value": _address("value", "id", "kind = 'phone'"), "key": _address("key", "id", "kind = 'phone'"),
        "person": _json("person"), "ip": _hide("ip"), "user_agent": _hide("user_agent"),
    },
    "message": {
        "recipient": _address("recipient", "contact_id", _IS_SMS),
        "recipient_key": _address("recipient_key", "contact_id", _IS_SMS),
        "subject": _hide("subject"), "idempotency_key": _hide("idempotency_key"), "error_text": _hide("error_text"),
    },
    "raw_message": {"content": "NULL", "sha256": "NULL"},
    "bulk_content": {"body": _hide("body"), "text": _hide("text")},
    "message_content": {
        "subject": _hide("subject"), "body": _hide("body"), "text": _hide("text"), "preheader": _hide("preheader"),
        "headers": _json("headers"), "data": _json("data"), "design": "NULL", "links": "NULL",
    },
    "attachment": {"filename": _hide("filename"), "sha256": "NULL"},
    "retry_payload": {"rcpt_to": _hide("rcpt_to"), "content": "zeroblob(0)", "subject": _hide("subject")},
    "send_log": {"subject": _hide("subject")},
    "hit": {"ip": _hide("ip"), "user_agent": _hide("user_agent"), "referrer": _hide("referrer")},
    "captured_message": {
        "rcpt_to": _hide("rcpt_to"), "subject": _hide("subject"), "preview": _hide("preview"), "source": "zeroblob(0)",
    },
    "event": {
        "data": _json("data"), "resource_uid": _hide("resource_uid"), "resource_name": _hide("resource_name"),
        "resource_url": _hide("resource_url"), "ip": _hide("ip"), "user_agent": _hide("user_agent"),
        "referrer": _hide("referrer"), "idempotency_key": _hide("idempotency_key"),
    },
    "webhook_delivery": {"response_text": _hide("response_text"), "error": _hide("error")},
    "incoming": {"sender": _address("sender", "contact_id", "1"), "body": _hide("body")},
    "receipt": {"text": _hide("text")},
    "run": {"event_data": _json("event_data")},
    "flow_request": {"body": _hide("body"), "answers": "NULL", "reason": _hide("reason")},
    "import": {"filename": _hide("filename"), "columns": "'[]'", "error": _hide("error")},
    "erasure": {"addresses": "'[]'"},
}  # fmt: skip
# The columns of COLUMNS that filters compare, by the alias of their table in compiled filters.
_FILTERED = {"c": ("first_name", "last_name", "data"), "h": ("value", "key", "data"), "e": ("data",)}
_FILTERED_TABLES = {"c": "contact", "h": "channel", "e": "event"}
_FILTERED_COLUMN = re.compile(
    "|".join(rf"\b{alias}\.(?:{'|'.join(columns)})\b" for alias, columns in _FILTERED.items())
)  # fmt: skip
_INDEX_HINT = re.compile(r"\bINDEXED BY \w+")


def is_active() -> bool:
    """Return whether contact data is masked in the current context, that is inside `masked`."""
    return _is_masked.get()


@contextmanager
def masked(is_masked: bool) -> Iterator[None]:
    """Mask contact data in all reads that begin in the block; with `is_masked` False, reads show it."""
    token = _is_masked.set(is_masked)
    try:
        yield
    finally:
        _is_masked.reset(token)


def real_columns(sql: str) -> str:
    """Return the SQL of compiled filters so that they compare the stored values even while contact data is masked."""
    if not _is_masked.get():
        return sql
    return _FILTERED_COLUMN.sub(lambda match: match[0].replace(".", ".real_"), sql)


@contextmanager
def masked_connection() -> Iterator[None]:
    """Give this thread the connection with masked data for the block, if `is_active`; for readers only."""
    if not _is_masked.get() or write_state.is_sandboxed or write_state.is_writing or _own.is_used:
        yield
        return
    if _own.handle is None:
        _own.handle = _open_masked()
    # Peewee keeps the connection of this thread in `_state`, and raw statements get it from Peewee.
    state = database._state
    previous = (state.conn, state.closed, state.ctx, state.transactions, state.commit_callbacks)
    state.set_connection(_own.handle)
    _own.is_used = True
    try:
        yield
    finally:
        _own.is_used = False
        if state.closed:  # after an error, a reader closes its connection
            _own.handle = None
        state.conn, state.closed, state.ctx, state.transactions, state.commit_callbacks = previous


class _OwnConnection(threading.local):
    """The connection with masked data of a thread, which is opened when it is first needed."""

    handle: Any = None
    is_used = False


_own = _OwnConnection()


class _MaskedCursor(apsw.Cursor):
    """A cursor that reads views, which have no indexes of their own: hints at an index are left out."""

    def execute(self, statements: str, *arguments: Any, **named: Any) -> Any:
        """Run statements as `apsw.Cursor` does."""
        return super().execute(_drop_hints(statements), *arguments, **named)


@lru_cache(maxsize=1_000)
def _drop_hints(sql: str) -> str:
    return _INDEX_HINT.sub("", sql)


def _open_masked() -> Any:
    handle = apsw.Connection(database.database, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        database._add_conn_hooks(handle)
        create_views(handle, COLUMNS)
        handle.cursor_factory = _MaskedCursor
    except BaseException:
        handle.close()
        raise
    return handle


def create_views(handle: Any, tables: Mapping[str, Mapping[str, str]]) -> None:
    """Create the temporary views that mask some tables, in a connection of apsw."""
    handle.create_scalar_function("masked_json", mask_json, 1, deterministic=True)
    for table, masked_columns in tables.items():
        names = [row[1] for row in handle.execute(f'PRAGMA main.table_info("{table}")').fetchall()]
        columns = [f'{masked_columns[name]} AS "{name}"' if name in masked_columns else f'"{name}"' for name in names]
        columns += [f'"{name}" AS "real_{name}"' for name in _list_filtered(table)]
        handle.execute(f'CREATE TEMP VIEW "{table}" AS SELECT {", ".join(columns)} FROM main."{table}"').fetchall()


def mask_copies(handle: Any, copied: Mapping[str, Any]) -> None:
    """Mask the temporary copies of tables in a sandbox; create the views that mask all other tables."""
    create_views(handle, {table: columns for table, columns in COLUMNS.items() if table not in copied})
    for table in copied.keys() & COLUMNS.keys():
        changes = ", ".join(f'"{name}" = {sql}' for name, sql in COLUMNS[table].items())
        handle.execute(f'UPDATE temp."{table}" SET {changes}').fetchall()


def _list_filtered(table: str) -> tuple[str, ...]:
    return next((_FILTERED[alias] for alias, name in _FILTERED_TABLES.items() if name == table), ())


def mask_json(value: object) -> object:
    """Implement the SQL function `masked_json`: return a JSON text without the texts and large numbers in it."""
    if not isinstance(value, str | bytes):
        return None
    try:
        decoded = msgspec.json.decode(value)
    except ValueError:
        return None
    return msgspec.json.encode(mask_value(decoded)).decode()


def mask_value(value: Any, key: str = "") -> Any:
    """Return a value of custom data without the texts and large numbers in it; `key` is the key that it has."""
    if isinstance(value, dict):
        return {name: mask_value(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [mask_value(item, key) for item in value]
    if isinstance(value, str):
        return value if key in OPEN_KEYS else HIDDEN_TEXT
    is_large = type(value) in (int, float) and abs(value) >= _MIN_HIDDEN_NUMBER
    # The ids and times of the service's own events stay, so that their objects are found.
    return HIDDEN_TEXT if is_large and not key.endswith(("_id", "_at")) else value
