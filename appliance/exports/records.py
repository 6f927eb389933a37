"""Export events, messages, the audit log, flow runs, campaign recipients and contacts, with fields named as in the API.

Contacts can be imported again without loss: their columns have the names that imports use. In CSV, custom data has one
column for each key (`data.city`). A value that an import would not read back as it is, such as an object or a text that
looks like a number, is in the column `data` as JSON.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from appliance.accounts import audit
from appliance.accounts.audit import AuditQuery
from appliance.audience.contacts import store
from appliance.core import addresses
from appliance.events import listing, log
from appliance.events.log import EventQuery, parse_time_filters
from appliance.exports import streaming
from appliance.flows import runs
from appliance.flows.replay_result import PersonRow
from appliance.flows.runs import RunQuery
from appliance.sending.messages.ledger import MessageQuery
from appliance.storage.database import rows
from appliance.storage.models import Account, Audit
from appliance.storage.models.message import NO_CONTACT_ID

_decode_json = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_BOOLEAN_FIELDS = frozenset(("test", "generated", "transactional"))
_JSON_FIELDS = frozenset(("data", "tags"))
_REPLAY_COLUMNS = (
    "contact_id", "first_name", "last_name", "email", "phone", "step_id", "change", "draft_at", "draft_not_sent",
    "live_at", "live_not_sent",
)  # fmt: skip
_REPLAY_PAGE_SIZE = 400
_SELECT_REPLAY_CONTACTS = (
    "SELECT c.id, c.first_name, c.last_name, "
    "(SELECT h.value FROM channel h WHERE h.contact_id = c.id AND h.kind = 'email' ORDER BY h.id LIMIT 1), "
    "(SELECT h.value FROM channel h WHERE h.contact_id = c.id AND h.kind = 'phone' ORDER BY h.id LIMIT 1) "
    "FROM contact c WHERE c.account_id = ? AND c.id IN (SELECT value FROM json_each(?))"
)


class ExportKind(NamedTuple):
    """A kind of export.

    `columns` has the SQL expression of each field by API name. `equality_filters` maps the name of a filter to the
    column that must equal the value of the filter.
    """

    table: str
    columns: dict[str, str]
    equality_filters: dict[str, str]
    selective_filters: tuple[str, ...]  # names of the filters that match few rows and have an index


def _map_same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


EVENTS = ExportKind(
    "event",
    _map_same(
        "id account_id contact_id user_id event amount data idempotency_key resource_uid resource_name resource_url "
        "test generated chain_depth ip user_agent browser os device_type referrer utm_source utm_medium utm_term "
        "utm_content utm_campaign created_at updated_at"
    ),
    _map_same("event contact_id resource_uid resource_name test"),
    ("contact_id", "resource_uid"),
)
MESSAGES = ExportKind(
    "message",
    _map_same("id account_id contact_id campaign_id flow_id step_id template_id source_type channel status")
    | {"to": "recipient", "from": "sender"}
    | _map_same(
        "reply_to subject skip_reason provider provider_id idempotency_key internet_message_id transactional test tags "
        "segments attempts error_code error_smtp error_enhanced error_text"
    )
    | {"next_attempt_at": "CASE WHEN status IN ('queued', 'held') THEN max(due_at, created_at) END"}
    | _map_same("sent_at delivered_at opened_at clicked_at bounced_at variant created_at updated_at"),
    _map_same("source_type channel status contact_id campaign_id flow_id test") | {"to": "recipient_key"},
    ("contact_id", "campaign_id", "flow_id"),
)

# For callers who may not read contacts: subjects as in the list of messages (`ledger.restore_submitted_subjects`).
_SUBMITTED_SUBJECT = (
    f"(SELECT CASE WHEN c.shown_as = {NO_CONTACT_ID} OR (message.source_type = 'test' AND c.shown_as IS NULL) "
    "THEN message.subject ELSE c.subject END FROM message_content c WHERE c.message_id = message.id)"
)
MESSAGES_AS_SUBMITTED = MESSAGES._replace(columns=MESSAGES.columns | {"subject": _SUBMITTED_SUBJECT})


def write_csv(kind: ExportKind, account_id: int, query: EventQuery | MessageQuery) -> Iterator[str]:
    """Yield the CSV header, then, for each page, the lines of the records that match a query, newest first."""
    pages = _select_pages(kind, account_id, query)
    yield streaming.format_line(kind.columns)
    for page in pages.pages():
        yield "".join(
            [
                streaming.format_line([_format_record_cell(name, value) for name, value in _get_fields(kind, row)])
                for row in page
            ]
        )


def write_jsonl(kind: ExportKind, account_id: int, query: EventQuery | MessageQuery) -> Iterator[bytes]:
    """Yield the JSON lines of the records that match a query, newest first, one piece for each page."""
    for page in _select_pages(kind, account_id, query).pages():
        yield b"".join([_encode(dict(_get_fields(kind, row))) + b"\n" for row in page])


def _get_fields(kind: ExportKind, row: tuple[Any, ...]) -> list[tuple[str, Any]]:
    return [(name, _convert_value(name, value)) for name, value in zip(kind.columns, row, strict=False)]


def _convert_value(name: str, value: Any) -> Any:
    if name.endswith("_at"):
        return streaming.format_time(value)
    if name in _BOOLEAN_FIELDS:
        return bool(value)
    return _decode_json(value) if name in _JSON_FIELDS and value is not None else value


def _format_record_cell(name: str, value: Any) -> str:
    return streaming.format_phone(value) if name in ("to", "from") else streaming.format_cell(value)


def _select_pages(kind: ExportKind, account_id: int, query: Any) -> streaming.PagedRows:
    table, where, parameters = _build_condition(kind, account_id, query)
    columns = ", ".join(kind.columns.values())
    order = "ORDER BY created_at DESC, id DESC"
    if any(getattr(query, name) is not UNSET for name in kind.selective_filters if hasattr(query, name)):
        return streaming.IdListRows(
            f"SELECT id FROM {table} WHERE {where} {order}", parameters,
            f"SELECT {columns} FROM {kind.table} WHERE id IN ({{ids}}) {order}",
        )  # fmt: skip
    # Time and id are selected again at the end of each row, so that the paging finds them at the same place for every
    # kind of export.
    return streaming.TimeOrderedRows(
        f"SELECT {columns}, created_at, id FROM {table} WHERE {where} "
        f"AND (created_at, id) < (:at, :last) {order}",
        parameters, -2, -1,
    )  # fmt: skip


def _build_condition(kind: ExportKind, account_id: int, query: Any) -> tuple[str, str, dict[str, Any]]:
    """Return the table with its index hint, the SQL condition and the parameters of a query."""
    if kind is EVENTS:
        return listing.build_query(log.read_filters(account_id, query))
    clauses: list[str] = ["account_id = :account"]
    parameters: dict[str, Any] = {"account": account_id}
    for name, column in kind.equality_filters.items():
        value = getattr(query, name)
        if value is not UNSET:
            clauses.append(f"{column} = :{name}")
            parameters[name] = addresses.normalize_query(value) if name == "to" else value
    zone = Account.get_by_id(account_id).time_zone
    for sign, edge, value in zip(
        (">=", "<"),
        ("after", "before"),
        parse_time_filters(query.created_after, query.created_before, zone),
        strict=True,
    ):
        if value is not None:
            clauses.append(f"created_at {sign} :{edge}")
            parameters[edge] = value
    return kind.table, " AND ".join(clauses), parameters


_AUDIT_COLUMNS = ("id", "actor", "actor_name", "action", "subject", "data", "ip", "created_at")


def write_audit_csv(account_id: int, query: AuditQuery) -> Iterator[str]:
    """Yield the CSV header, then the lines of the audit entries that match a query, newest first."""
    names = audit.fetch_actor_names(account_id)
    yield streaming.format_line(_AUDIT_COLUMNS)
    for page in audit.iterate_batches(account_id, query):
        yield "".join(
            [
                streaming.format_line([streaming.format_cell(value) for value in _get_audit_values(row, names)])
                for row in page
            ]
        )


def _get_audit_values(row: Audit, names: dict[str, str]) -> tuple[Any, ...]:
    return (
        row.id, row.actor, names.get(row.actor), row.action, row.subject, row.data or None, row.ip,
        streaming.format_time(row.created_at),
    )  # fmt: skip


_RUN_PAGE_SIZE = 400
_RUN_COLUMNS = (
    "id", "contact_id", "first_name", "last_name", "email", "phone", "status", "exit_reason", "step_id", "version",
    "test", "due_at", "ended_at", "created_at",
)  # fmt: skip
_SELECT_ADDRESS = "(SELECT h.value FROM channel h WHERE h.contact_id = c.id AND h.kind = '{}' ORDER BY h.id LIMIT 1)"
_SELECT_RUNS = (
    f"SELECT r.id, r.contact_id, c.first_name, c.last_name, {_SELECT_ADDRESS.format('email')}, "
    f"{_SELECT_ADDRESS.format('phone')}, "
    "r.status, r.exit_reason, r.action_id, r.version, r.test, r.due_at, r.ended_at, r.created_at "
    f"FROM run r LEFT JOIN contact c ON c.id = r.contact_id WHERE r.id IN (SELECT value FROM json_each(?))"
)


def write_runs_csv(account_id: int, flow_id: int, query: RunQuery) -> Iterator[str]:
    """Yield the CSV header, then the lines of a flow's runs that match a query, in the order of `runs.list_run_ids`."""
    run_ids = runs.list_run_ids(account_id, flow_id, query)
    yield streaming.format_line(_RUN_COLUMNS)
    for start in range(0, len(run_ids), _RUN_PAGE_SIZE):
        page_ids = run_ids[start : start + _RUN_PAGE_SIZE].tolist()
        by_id = {row[0]: row for row in rows(_SELECT_RUNS, (json.dumps(page_ids),))}
        yield "".join(
            [streaming.format_line(map(_format_run_cell, _RUN_COLUMNS, by_id[run_id])) for run_id in page_ids]
        )


def _format_run_cell(name: str, value: Any) -> str:
    if name.endswith("_at"):
        return streaming.format_time(value) or ""
    if name == "test":
        return streaming.format_cell(bool(value))
    return streaming.format_phone(value) if name in ("email", "phone") else streaming.format_cell(value)


_RECIPIENT_PAGE_SIZE = 400
_RECIPIENT_COLUMNS = {
    "contact_id": "m.contact_id", "first_name": "c.first_name", "last_name": "c.last_name", "to": "m.recipient",
    "status": "m.status", "skip_reason": "m.skip_reason", "answer": "m.error_text", "sent_at": "m.sent_at",
    "delivered_at": "m.delivered_at", "opened_at": "m.opened_at", "clicked_at": "m.clicked_at",
    "bounced_at": "m.bounced_at", "message_id": "m.id", "variant": "m.variant",
}  # fmt: skip


def write_recipients_csv(message_ids: list[int]) -> Iterator[str]:
    """Yield the CSV header, then blocks of lines, one line for the recipient of each message.

    The ids must be in descending order.
    """
    yield streaming.format_line(_RECIPIENT_COLUMNS)
    sql = f"SELECT {', '.join(_RECIPIENT_COLUMNS.values())} FROM message m LEFT JOIN contact c ON c.id = m.contact_id"
    for start in range(0, len(message_ids), _RECIPIENT_PAGE_SIZE):
        ids_sql = ",".join(map(str, message_ids[start : start + _RECIPIENT_PAGE_SIZE]))
        page = rows(f"{sql} WHERE m.id IN ({ids_sql}) ORDER BY m.id DESC")
        yield "".join(
            streaming.format_line(
                [_format_recipient_cell(name, value) for name, value in zip(_RECIPIENT_COLUMNS, row, strict=True)]
            )
            for row in page
        )


def _format_recipient_cell(name: str, value: Any) -> str:
    if name.endswith("_at"):
        return streaming.format_cell(streaming.format_time(value))
    return streaming.format_phone(value) if name == "to" else streaming.format_cell(value)


_PLAIN_COLUMNS = ("id", "uuid", "first_name", "last_name", "source", "country_code", "language", "tracking")
_TIME_COLUMNS = ("last_interacted_at", "created_at", "updated_at")
_SELECTED_COLUMNS = ", ".join(f"c.{name}" for name in (*_PLAIN_COLUMNS, *_TIME_COLUMNS, "data"))
_CONTACT_COLUMNS = (
    "id", "uuid", "email", "phone", "first_name", "last_name", "source", "country_code", "language", "tracking", "tags",
    "lists", "status", "subscribed_email", "subscribed_phone", "opted_out_by", "verified", "suppression_reason",
    "opt_in_at", "opt_out_at", "last_interacted_at", "created_at", "updated_at", "channels", "data",
)  # fmt: skip
# An import accepts 200 columns (`record_reader.MAX_COLUMNS`), including _CONTACT_COLUMNS.
_MAX_DATA_COLUMNS = 150
_CHANNEL_COLUMNS = (
    "kind",
    "value",
    "subscribed",
    "verified_at",
    "opt_in_at",
    "opt_out_at",
    "opted_out_by",
    "suppression",
)


def write_contacts_csv(account_id: int, query: Any, rules: Sequence[Any] = ()) -> Iterator[str]:
    """Yield the CSV header, then the lines of the contacts that match a query, newest first.

    Each further piece has the lines of one page of contacts. `rules` are filters in the form of a segment's, which the
    contacts must match too.
    """
    pages = _select_contact_pages(account_id, query, rules)
    keys = _choose_data_keys(pages)
    yield streaming.format_line([*_CONTACT_COLUMNS, *(f"data.{key}" for key in keys)])
    names: dict[int, str] = {}
    for page in pages.pages():
        yield "".join([_format_contact(contact, keys) for contact in _load_contacts(account_id, page, names)])


def write_contacts_jsonl(account_id: int, query: Any, rules: Sequence[Any] = ()) -> Iterator[bytes]:
    """Yield the JSON lines of the contacts that match a query and rules (see `write_contacts_csv`), newest first."""
    names: dict[int, str] = {}
    for page in _select_contact_pages(account_id, query, rules).pages():
        yield b"".join([_encode(contact) + b"\n" for contact in _load_contacts(account_id, page, names)])


def _select_contact_pages(account_id: int, query: Any, rules: Sequence[Any]) -> streaming.PagedRows:
    where, parameters = store.build_condition(account_id, query, rules)
    sql = f"SELECT {_SELECTED_COLUMNS} FROM contact c NOT INDEXED WHERE {where}"
    collected = store.used_filters(query) & {"list_id", "segment_id", "search"}
    if collected or rules:
        return streaming.IdListRows(
            f"SELECT c.id FROM contact c WHERE {where} ORDER BY c.id DESC", parameters,
            f"SELECT {_SELECTED_COLUMNS} FROM contact c WHERE c.id IN ({{ids}}) ORDER BY c.id DESC",
        )  # fmt: skip
    return streaming.KeysetRows(f"{sql} AND c.id < :last ORDER BY c.id DESC", parameters, "last", 0)


def _choose_data_keys(pages: streaming.PagedRows) -> list[str]:
    """Return the keys of custom data that get a column, sorted: the `_MAX_DATA_COLUMNS` most frequent keys in a sample.

    Values of other keys are in the column `data`.
    """
    counted: Counter[str] = Counter()
    for row in pages.sample():
        counted.update(
            key
            for key, value in _decode_json(row[-1]).items()
            if key != "tags" and streaming.survives_round_trip(value)
        )
    keys = [
        key for key, _ in counted.most_common(_MAX_DATA_COLUMNS) if key.isprintable() and key == key.strip() and key
    ]
    return sorted(keys)


def _load_contacts(account_id: int, page: Sequence[tuple[Any, ...]], names: dict[int, str]) -> Iterator[dict[str, Any]]:
    ids = [row[0] for row in page]
    marks = ",".join("?" * len(ids))
    channels: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(
        f"SELECT contact_id, {', '.join(_CHANNEL_COLUMNS)} FROM channel WHERE contact_id IN ({marks}) ORDER BY id", ids
    ):
        channels[row[0]].append(dict(zip(_CHANNEL_COLUMNS, row[1:], strict=True)))
    lists: dict[int, list[int]] = defaultdict(list)
    for contact_id, list_id in rows(
        f"SELECT contact_id, contact_list_id FROM membership WHERE contact_id IN ({marks})", ids
    ):
        lists[contact_id].append(list_id)
    if any(list_id not in names for list_ids in lists.values() for list_id in list_ids):
        names.update(rows("SELECT id, name FROM contact_list WHERE account_id = ?", (account_id,)))
    for row in page:
        yield _build_contact(row, channels[row[0]], [names[list_id] for list_id in lists[row[0]] if list_id in names])


def _build_contact(row: tuple[Any, ...], channels: list[dict[str, Any]], lists: list[str]) -> dict[str, Any]:
    for channel in channels:
        channel["subscribed"] = bool(channel["subscribed"])
        for name in ("verified_at", "opt_in_at", "opt_out_at"):
            channel[name] = streaming.format_time(channel[name])
    email = next((channel for channel in channels if channel["kind"] == "email"), None)
    phone = next((channel for channel in channels if channel["kind"] == "phone"), None)
    main: dict[str, Any] = email or phone or {}
    contact: dict[str, Any] = dict(zip(_PLAIN_COLUMNS, row[: len(_PLAIN_COLUMNS)], strict=True))
    for name, value in zip(_TIME_COLUMNS, row[len(_PLAIN_COLUMNS) :], strict=False):
        contact[name] = streaming.format_time(value)
    is_opted_out = main.get("opt_out_at") is not None and not main["subscribed"]
    return contact | {
        "email": email["value"] if email else None,
        "phone": phone["value"] if phone else None,
        "lists": lists,
        "status": main.get("suppression")
        or ("unsubscribed" if is_opted_out and main["opted_out_by"] == "recipient" else None),
        "subscribed_email": email["subscribed"] if email else None,
        "subscribed_phone": phone["subscribed"] if phone else None,
        "opted_out_by": main.get("opted_out_by"),
        "verified": main.get("verified_at") is not None if main else None,
        "suppression_reason": main.get("suppression"),
        "opt_in_at": main.get("opt_in_at"),
        "opt_out_at": main.get("opt_out_at"),
        "channels": channels,
        "data": _decode_json(row[-1]),
    }


def _format_contact(contact: dict[str, Any], keys: list[str]) -> str:
    data: dict[str, Any] = contact["data"]
    remaining = {key: value for key, value in data.items() if key != "tags"}
    data_cells = []
    for key in keys:
        value = remaining.get(key)
        if value is not None and streaming.survives_round_trip(value):
            del remaining[key]
            data_cells.append(streaming.format_cell(value))
        else:
            data_cells.append("")
    values = {
        **contact,
        "tags": data.get("tags") or None,
        "lists": contact["lists"] or None,
        # The other columns have all values of a single address, so `channels` is only needed for several addresses.
        "channels": contact["channels"] if len(contact["channels"]) > 1 else None,
        "data": remaining or None,
    }
    cells = [
        streaming.format_phone(contact["phone"]) if name == "phone" else streaming.format_cell(values[name])
        for name in _CONTACT_COLUMNS
    ]
    return streaming.format_line([*cells, *data_cells])


def write_replay_csv(account_id: int, people: Sequence[PersonRow]) -> Iterator[str]:
    """Yield the CSV of a replay: a header and then pages of lines, without contacts that have been deleted since then.

    A line says what a contact would have got and when, with the draft and with the live version. `change` says how the
    draft differs: `added`, `removed`, `moved` (another time) or `same`.
    """
    yield streaming.format_line(_REPLAY_COLUMNS)
    for start in range(0, len(people), _REPLAY_PAGE_SIZE):
        page = people[start : start + _REPLAY_PAGE_SIZE]
        contact_ids = json.dumps(sorted({row.contact_id for row in page}))
        contacts = {row[0]: row for row in rows(_SELECT_REPLAY_CONTACTS, (account_id, contact_ids))}
        yield "".join(_format_replay_row(row, contacts[row.contact_id]) for row in page if row.contact_id in contacts)


def _format_replay_row(row: PersonRow, contact: tuple[int, str | None, str | None, str | None, str | None]) -> str:
    contact_id, first_name, last_name, email, phone = contact
    cells = (
        str(contact_id), streaming.format_cell(first_name), streaming.format_cell(last_name),
        streaming.format_cell(email), streaming.format_phone(phone), str(row.step_id), row.change,
        streaming.format_time(row.draft_at) or "", row.draft_reason or "",
        streaming.format_time(row.live_at) or "", row.live_reason or "",
    )  # fmt: skip
    return streaming.format_line(cells)
