"""The audit log: who changed settings, API keys and users, and who sent what. Entries are never changed.

No entry contains a secret. About a contact, an entry contains only the id.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.core.validation import CreatedAfter, CreatedBefore, PageQuery, Short
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
    can_approve: bool = False  # whether the actor may approve campaigns and flows (docs/decisions.md#2)
    is_test: bool = False  # whether the actor works in test mode
    can_send: bool = False  # whether the actor may send campaigns and flows
    key_creator_id: int | None = None  # the user who created the API key
    can_read_contacts: bool = False  # whether the actor may read contacts
    is_agent: bool = False  # whether the actor is an agent, which changes only drafts (docs/decisions.md#25)
    account_id: int | None = None  # the account that a user acts in; None for a person as such, keys and commands

    @property
    def can_change_live(self) -> bool:
        """Whether the actor may change what is sent without a further decision: a scheduled campaign, a live flow.

        Users and keys need the permission to send; commands have it.
        """
        return self.can_send or not self.name.startswith(("user:", "key:"))

    @property
    def person_id(self) -> int | None:
        """The id of the user, or of the user who created the API key; None if there is neither."""
        return self.key_creator_id if self.user_id is None else self.user_id


log = logging.getLogger("campanero")
T = TypeVar("T")
SYSTEM = "system"
# The kinds of object whose names are recorded, so that a deleted object can be identified. Names of people are never
# recorded.
_NAMED = ("campaign", "flow", "list", "segment", "template", "form")
_BATCH_SIZE = 400


class AuditQuery(PageQuery):
    """Filters and pagination of the audit log."""

    actor: (
        Annotated[Short, Meta(description="only entries of this user or key, such as `user:7` or `key:3`")] | UnsetType
    ) = UNSET
    action: Annotated[Short, Meta(description="only entries with this action, such as `campaign_send`")] | UnsetType = (
        UNSET
    )
    subject: Annotated[Short, Meta(description="only entries about this object, such as `campaign:3`")] | UnsetType = (
        UNSET
    )
    created_after: CreatedAfter | UnsetType = UNSET
    created_before: CreatedBefore | UnsetType = UNSET


def insert_entry(
    account_id: int, actor: str, action: str, subject: str | None, data: dict[str, Any] | None = None,
    ip: str | None = None,
) -> None:  # fmt: skip
    """Insert an entry in the current transaction; `subject` is the kind and id of an object, such as `domain:3`."""
    require_write_transaction()
    Audit.create(
        account=account_id, actor=actor, action=action, subject=subject, data=data or {}, ip=ip,
        created_at=clock.now_ms(),
    )  # fmt: skip


def record(by: Actor, account_id: int, action: str, subject: str | None, data: dict[str, Any] | None = None) -> None:
    """Record an action of an actor in the current transaction; for an actor in test mode, `data` gets `"test": true`.

    `subject` is the kind and id of the object, such as `domain:3`.
    """
    insert_entry(
        account_id, by.name, action, subject, {**(data or {}), **({"test": True} if by.is_test else {})}, by.ip
    )


def run_and_record(
    by: Actor, action: str, function: Callable[..., T], *arguments: Any, data: dict[str, Any] | None = None
) -> T:
    """Call `function` with `arguments`, record `action` about the row that it returns, and return the row.

    Both happen in the current transaction. The kind of the subject is the part of `action` before the first underscore,
    such as `campaign` of `campaign_send`; for the kinds in `_NAMED` the entry contains the row's name.
    """
    row: Any = function(*arguments)
    account_id = row.id if isinstance(row, Account) else row.account_id
    noun = action.partition("_")[0]
    details = {"name": row.name} if noun in _NAMED and row.name else {}
    record(by, account_id, action, f"{noun}:{row.id}", {**details, **(data or {})})
    return row  # type: ignore[no-any-return]  # T is the row that the function returned


def run_and_record_agent(by: Actor, action: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call `function` with `arguments` and return its row; for an agent, record `action` as `run_and_record` does.

    Used for changes of drafts, which are recorded only if an agent makes them.
    """
    return run_and_record(by, action, function, *arguments) if by.is_agent else function(*arguments)


def update_and_record(
    by: Actor,
    action: str,
    load: Callable[[int], T],
    update: Callable[[int, Any], T],
    account_id: int,
    body: msgspec.Struct,
) -> T:
    """Call `update` with an account's id and a body, record the fields that differ afterwards, and return the row.

    `load` returns the row before the change. Nothing is recorded if no field differs. Of the values, only booleans are
    recorded, under the name of their field.
    """
    names = [name for name in body.__struct_fields__ if getattr(body, name) is not UNSET]
    before: Any = load(account_id)
    values = {name: getattr(before, name) for name in names}
    row: Any = update(account_id, body)
    changed = [name for name in names if getattr(row, name) != values[name]]
    if changed:
        switches = {name: value for name in changed if isinstance(value := getattr(row, name), bool)}
        kind = action.partition("_")[0]
        record(by, account_id, action, f"{kind}:{row.id}", {"changed": changed, **switches})
    return row  # type: ignore[no-any-return]  # T is the row that `update` returned


async def record_export(by: Actor, account_id: int, name: str, filters: Iterable[str], rows: int) -> None:
    """Record an export: the file name, the number of rows when it began, and the names of the filters used.

    The values of filters may be personal data, so they are not recorded. If the entry cannot be written to the
    database, the export continues and a warning is written to the log of the service.
    """
    data = {"file": name, "filters": sorted(filters), "rows": rows}
    try:
        await asyncio.wrap_future(transactions.submit_essential(record, by, account_id, "export", None, data))
    except Unavailable:
        log.warning("audit: export not recorded file=%s actor=%s", name, by.name)


def fetch_page(account_id: int, query: AuditQuery) -> Page:
    """Return a page of the entries that match a query, newest first; raises Invalid for malformed times."""
    entries = build_query(account_id, query)
    return paginate(entries.order_by(Audit.created_at.desc(), Audit.id.desc()), query.page, query.size())


def find_latest(account_id: int, subject: str, actions: Iterable[str], since: int) -> Audit | None:
    """Return the latest entry about an object, such as `campaign:3`, with one of the actions; None without one.

    Entries older than `since` (milliseconds, such as the creation of the object) are not read.
    """
    entries = Audit.select().where(
        Audit.account == account_id, Audit.created_at >= since, Audit.subject == subject, Audit.action.in_([*actions])
    )
    latest: Audit | None = entries.order_by(Audit.created_at.desc(), Audit.id.desc()).first()
    return latest


def iterate_batches(account_id: int, query: AuditQuery) -> Iterator[list[Audit]]:
    """Yield all entries that match a query in lists of up to `_BATCH_SIZE`, newest first; raises as `fetch_page`.

    Each batch is read with one query that continues after the last entry, so no cursor stays open in between.
    """
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
    """Return an unordered Peewee query of the matching entries; raises Invalid for malformed times."""
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
    """Return the names of an account's users and keys by actor, such as `user:7` and `key:3`.

    Disabled users and revoked keys are included.
    """
    statement = (
        "SELECT 'user:' || u.id, u.name FROM user u JOIN team_member m ON m.user_id = u.id WHERE m.account_id = :id "
        "UNION ALL "
    )
    statement += "SELECT 'key:' || id, name FROM api_key WHERE account_id = :id"
    return {row[0]: row[1] for row in rows(statement, {"id": account_id})}


def fetch_actions(account_id: int) -> list[str]:
    """Return the distinct actions in an account's audit log, sorted by name."""
    return [row[0] for row in rows("SELECT DISTINCT action FROM audit WHERE account_id = ? ORDER BY 1", (account_id,))]


def fetch_actors(account_id: int) -> list[str]:
    """Return the distinct actors in an account's audit log: users first, then all others, each sorted as text."""
    actors = rows("SELECT DISTINCT actor FROM audit WHERE account_id = ?", (account_id,))
    return sorted((row[0] for row in actors), key=lambda actor: (not actor.startswith("user:"), actor))
