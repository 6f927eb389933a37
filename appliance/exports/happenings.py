"""Events and messages as CSV or JSON lines, with the fields they have in the interface."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from appliance.core import addresses
from appliance.events import listing, log
from appliance.events.log import EventQuery, moments
from appliance.exports import cells, walk
from appliance.sending.messages.ledger import MessageQuery
from appliance.storage.models import Account

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_FLAGS = frozenset(("test", "generated", "transactional"))
_JSON = frozenset(("data", "tags"))


class Kind(NamedTuple):
    """What is exported: a table, its columns by the names they have outside, and the filters that are equalities."""

    table: str
    columns: dict[str, str]
    equal: dict[str, str]
    narrow: tuple[str, ...]  # filters that leave few rows, found by an index of their own


def _same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


EVENTS = Kind(
    "event",
    _same(
        "id account_id contact_id user_id event amount data idempotency_key resource_uid resource_name resource_url "
        "test generated chain_depth ip user_agent browser os device_type referrer utm_source utm_medium utm_term "
        "utm_content utm_campaign created_at updated_at"
    ),
    _same("event contact_id resource_uid resource_name test"),
    ("contact_id", "resource_uid"),
)
MESSAGES = Kind(
    "message",
    _same("id account_id contact_id campaign_id flow_id step_id template_id source_type channel status")
    | {"to": "recipient", "from": "sender"}
    | _same(
        "reply_to subject skip_reason provider provider_id idempotency_key internet_message_id transactional test tags "
        "segments attempts error_code error_smtp error_enhanced error_text"
    )
    | {"next_attempt_at": "CASE WHEN status IN ('queued', 'held') THEN max(due_at, created_at) END"}
    | _same("sent_at delivered_at opened_at clicked_at bounced_at created_at updated_at"),
    _same("source_type channel status contact_id campaign_id flow_id test") | {"to": "recipient_key"},
    ("contact_id", "campaign_id", "flow_id"),
)


def csv(kind: Kind, account_id: int, query: EventQuery | MessageQuery) -> Iterator[str]:
    """Yield the lines of what a query names, newest first, some at a time."""
    way = _way(kind, account_id, query)
    yield cells.line(kind.columns)
    for part in way.pages():
        yield "".join([cells.line([_cell(name, value) for name, value in _fields(kind, row)]) for row in part])


def jsonl(kind: Kind, account_id: int, query: EventQuery | MessageQuery) -> Iterator[bytes]:
    """Yield what a query names as JSON lines, newest first, some at a time."""
    for part in _way(kind, account_id, query).pages():
        yield b"".join([_encode(dict(_fields(kind, row))) + b"\n" for row in part])


def _fields(kind: Kind, row: tuple[Any, ...]) -> list[tuple[str, Any]]:
    return [(name, _value(name, value)) for name, value in zip(kind.columns, row, strict=False)]


def _value(name: str, value: Any) -> Any:
    if name.endswith("_at"):
        return cells.moment(value)
    if name in _FLAGS:
        return bool(value)
    return _decode(value) if name in _JSON and value is not None else value


def _cell(name: str, value: Any) -> str:
    return cells.phone(value) if name in ("to", "from") else cells.cell(value)


def _way(kind: Kind, account_id: int, query: Any) -> walk.Way:
    table, where, parameters = _where(kind, account_id, query)
    columns = ", ".join(kind.columns.values())
    order = "ORDER BY created_at DESC, id DESC"
    if any(getattr(query, name) is not UNSET for name in kind.narrow if hasattr(query, name)):
        return walk.Collected(
            f"SELECT id FROM {table} WHERE {where} {order}", parameters,
            f"SELECT {columns} FROM {kind.table} WHERE id IN ({{ids}}) {order}",
        )  # fmt: skip
    # The moment itself is asked for once more, since a row shows it as text
    return walk.Pair(
        f"SELECT {columns}, created_at, id FROM {table} WHERE {where} "
        f"AND (created_at, id) < (:at, :last) {order}",
        parameters, -2, -1,
    )  # fmt: skip


def _where(kind: Kind, account_id: int, query: Any) -> tuple[str, str, dict[str, Any]]:
    """Return table, condition and parameters of what a query names."""
    if kind is EVENTS:
        return listing.way(log.asked(account_id, query))
    clauses: list[str] = ["account_id = :account"]
    parameters: dict[str, Any] = {"account": account_id}
    for name, column in kind.equal.items():
        value = getattr(query, name)
        if value is not UNSET:
            clauses.append(f"{column} = :{name}")
            parameters[name] = addresses.sought(value) if name == "to" else value
    zone = Account.get_by_id(account_id).time_zone
    for sign, edge, value in zip(
        (">=", "<"), ("after", "before"), moments(query.created_after, query.created_before, zone), strict=True
    ):
        if value is not None:
            clauses.append(f"created_at {sign} :{edge}")
            parameters[edge] = value
    return kind.table, " AND ".join(clauses), parameters
