"""The audit log: who changed settings, API keys and users, and who sent what. Rows are never changed.

No row holds a secret, or anything about a contact except the id.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.core.validation import DayOrWhen, PageQuery, Short
from appliance.events.log import parse_time_filters
from appliance.storage import transactions
from appliance.storage.database import Page, paginate, rows
from appliance.storage.models import Account, Audit
from appliance.storage.transactions import require_write_transaction


class Actor(NamedTuple):
    """The user, API key or command that acts: for the audit log, consent records and permissions."""

    name: str = "system"  # `user:7`, `key:3`, `cli`, `system`
    ip: str | None = None
    user_id: int | None = None  # None for keys and commands
    can_approve: bool = False  # campaigns and flows (docs/decisions.md#2)
    is_test: bool = False  # everything this actor does is a test
    can_send: bool = False  # campaigns and flows
    key_creator_id: int | None = None  # the user who created the API key

    @property
    def person_id(self) -> int | None:
        """The id of the user, or of the user who created the key; None if no person did."""
        return self.key_creator_id if self.user_id is None else self.user_id


log = logging.getLogger("campanero")
T = TypeVar("T")
SYSTEM = "system"
# The kinds whose names are recorded, so that a deleted object can be identified. Names of people are never recorded.
_NAMED = ("campaign", "flow", "list", "segment", "template", "form")
_BATCH_SIZE = 400


class AuditQuery(PageQuery):
    """The filters of the audit log."""

    actor: (
        Annotated[Short, Meta(description="only entries of this user or key, such as `user:7` or `key:3`")] | UnsetType
    ) = UNSET
    action: Annotated[Short, Meta(description="only entries with this action, such as `campaign_send`")] | UnsetType = (
        UNSET
    )
    subject: Annotated[Short, Meta(description="only entries about this object, such as `campaign:3`")] | UnsetType = (
        UNSET
    )
    created_after: (
        Annotated[
            DayOrWhen,
            Meta(
                description="only those created at or after this time; a date begins at 00:00 in the account's "
                "time zone"
            ),
        ]
        | UnsetType
    ) = UNSET
    created_before: (
        Annotated[
            DayOrWhen,
            Meta(description="only those created before this time; a date begins at 00:00 in the account's time zone"),
        ]
        | UnsetType
    ) = UNSET


def insert_entry(
    account_id: int, actor: str, action: str, subject: str | None, data: dict[str, Any] | None = None,
    ip: str | None = None,
) -> None:  # fmt: skip
    """Insert an entry in the running transaction; `subject` names an object as `domain:3`."""
    require_write_transaction()
    Audit.create(
        account=account_id, actor=actor, action=action, subject=subject, data=data or {}, ip=ip,
        created_at=clock.now_ms(),
    )  # fmt: skip


def record(by: Actor, account_id: int, action: str, subject: str | None, data: dict[str, Any] | None = None) -> None:
    """Record an action in the running transaction; the data of test actions say so."""
    insert_entry(
        account_id, by.name, action, subject, {**(data or {}), **({"test": True} if by.is_test else {})}, by.ip
    )


def run_and_record(
    by: Actor, action: str, function: Callable[..., T], *arguments: Any, data: dict[str, Any] | None = None
) -> T:
    """Call a function that returns a row, and record the action, such as `campaign_send`, in the same transaction."""
    row: Any = function(*arguments)
    account_id = row.id if isinstance(row, Account) else row.account_id
    noun = action.partition("_")[0]
    details = {"name": row.name} if noun in _NAMED and row.name else {}
    record(by, account_id, action, f"{noun}:{row.id}", {**details, **(data or {})})
    return row  # type: ignore[no-any-return]  # T is the row that the function returned


async def record_export(by: Actor, account_id: int, name: str, filters: Iterable[str], rows: int) -> None:
    """Record an export: the file, the number of rows when it began, and the names of its filters.

    The values of filters may be personal data, so they are not recorded. If the database cannot be written, the export
    still works and the operator's log has the entry.
    """
    data = {"file": name, "filters": sorted(filters), "rows": rows}
    try:
        await asyncio.wrap_future(transactions.submit_essential(record, by, account_id, "export", None, data))
    except Unavailable:
        log.warning("audit: export not recorded file=%s actor=%s", name, by.name)


def changed_fields(body: msgspec.Struct) -> dict[str, Any]:
    """Return the names of the changed fields as data of an action, with the values of booleans only."""
    sent = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}
    return {"changed": list(sent), **{name: value for name, value in sent.items() if isinstance(value, bool)}}


def fetch_page(account_id: int, query: AuditQuery) -> Page:
    """Return a page of entries, newest first; raises Invalid for malformed times."""
    entries = build_query(account_id, query)
    return paginate(entries.order_by(Audit.created_at.desc(), Audit.id.desc()), query.page, query.size())


def iterate_batches(account_id: int, query: AuditQuery) -> Iterator[list[Audit]]:
    """Yield batches of entries, newest first, one query each; raises as `fetch_page`."""
    entries = build_query(account_id, query).order_by(Audit.created_at.desc(), Audit.id.desc()).limit(_BATCH_SIZE)
    batch = list(entries)
    while batch:
        yield batch
        last = batch[-1]
        is_earlier = (Audit.created_at < last.created_at) | (
            (Audit.created_at == last.created_at) & (Audit.id < last.id)
        )
        batch = list(entries.where(is_earlier)) if len(batch) == _BATCH_SIZE else []


def build_query(account_id: int, query: AuditQuery) -> Any:
    """Return an unordered query of the matching entries; raises Invalid for malformed times."""
    entries = Audit.select().where(Audit.account == account_id)
    for name in ("actor", "action", "subject"):
        if (value := getattr(query, name)) is not UNSET:
            entries = entries.where(getattr(Audit, name) == value)
    after, before = parse_time_filters(
        query.created_after, query.created_before, Account.get_by_id(account_id).time_zone
    )
    if after is not None:
        entries = entries.where(Audit.created_at >= after)
    if before is not None:
        entries = entries.where(Audit.created_at < before)
    return entries


def fetch_actor_names(account_id: int) -> dict[str, str]:
    """Return the names of users and keys by `user:7` and `key:3`, including disabled users and revoked keys."""
    statement = "SELECT 'user:' || id, name FROM user WHERE account_id = :id UNION ALL "
    statement += "SELECT 'key:' || id, name FROM api_key WHERE account_id = :id"
    return {row[0]: row[1] for row in rows(statement, {"id": account_id})}


def fetch_actions(account_id: int) -> list[str]:
    """Return the names of all recorded actions of an account, for a filter."""
    return [row[0] for row in rows("SELECT DISTINCT action FROM audit WHERE account_id = ? ORDER BY 1", (account_id,))]


def fetch_actors(account_id: int) -> list[str]:
    """Return all actors of an account, for a filter: users first, then keys."""
    actors = rows("SELECT DISTINCT actor FROM audit WHERE account_id = ?", (account_id,))
    return sorted((row[0] for row in actors), key=lambda actor: (not actor.startswith("user:"), actor))
