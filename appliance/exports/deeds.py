"""The audit as CSV, with the fields it has in the interface."""

from collections.abc import Iterator
from typing import Any

from appliance.accounts import audit
from appliance.accounts.audit import AuditQuery
from appliance.exports import cells
from appliance.storage.models import Audit

_COLUMNS = ("id", "actor", "actor_name", "action", "subject", "data", "ip", "created_at")


def csv(account_id: int, query: AuditQuery) -> Iterator[str]:
    """Yield the lines of what a query names, newest first, some at a time."""
    names = audit.names(account_id)
    yield cells.line(_COLUMNS)
    for part in audit.pieces(account_id, query):
        yield "".join([cells.line([cells.cell(value) for value in _values(row, names)]) for row in part])


def _values(row: Audit, names: dict[str, str]) -> tuple[Any, ...]:
    return (
        row.id, row.actor, names.get(row.actor), row.action, row.subject, row.data or None, row.ip,
        cells.moment(row.created_at),
    )  # fmt: skip
