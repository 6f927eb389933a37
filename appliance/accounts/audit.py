"""Who did what to settings, keys, people and what goes out: a row each, which nobody changes and which is kept.

No row holds a secret, or anything about a contact but their id.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from appliance.accounts.acting import By
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.core.fields import DayOrWhen, PageQuery, Short
from appliance.core.pagination import Page, paginate
from appliance.events.log import moments
from appliance.storage import work
from appliance.storage.models import Account, Audit
from appliance.storage.open import rows
from appliance.storage.work import writing

log = logging.getLogger("campanero")
T = TypeVar("T")
SYSTEM = "system"
# Of what is deleted only the name is left to tell what it was; that of a person or their address is never kept
_NAMED = ("campaign", "flow", "list", "segment", "template", "form")
_PIECE = 400


class AuditQuery(PageQuery):
    """How the audit is asked for."""

    actor: Short | UnsetType = UNSET
    action: Short | UnsetType = UNSET
    subject: Short | UnsetType = UNSET
    created_after: DayOrWhen | UnsetType = UNSET
    created_before: DayOrWhen | UnsetType = UNSET


def record(
    account_id: int, actor: str, action: str, subject: str | None, data: dict[str, Any] | None = None,
    ip: str | None = None,
) -> None:  # fmt: skip
    """Note an act in the running transaction; `subject` names its thing as `domain:3`."""
    writing()
    Audit.create(
        account=account_id, actor=actor, action=action, subject=subject, data=data or {}, ip=ip,
        created_at=clock.now_ms(),
    )  # fmt: skip


def note(by: By, account_id: int, action: str, subject: str | None, data: dict[str, Any] | None = None) -> None:
    """Note what somebody does in the running transaction; that it is a test is said with it."""
    record(account_id, by.actor, action, subject, {**(data or {}), **({"test": True} if by.test else {})}, by.ip)


def noting(by: By, action: str, verb: Callable[..., T], *arguments: Any, data: dict[str, Any] | None = None) -> T:
    """Do a verb that answers a row, and note the act in the same transaction; `campaign_send` is about a campaign."""
    row: Any = verb(*arguments)
    account_id = row.id if isinstance(row, Account) else row.account_id
    noun = action.partition("_")[0]
    told = {"name": row.name} if noun in _NAMED and row.name else {}
    note(by, account_id, action, f"{noun}:{row.id}", {**told, **(data or {})})
    return row  # type: ignore[no-any-return]  # what the verb answered, which is told as any row here


async def exported(by: By, account_id: int, name: str, filters: Iterable[str], rows: int) -> None:
    """Note that a file leaves: which, of how many rows, and by what it was narrowed, without the values.

    Values may tell of somebody. The rows are those that there are as it begins: what leaves may break off.

    Where nothing can be written any more people still get what is theirs out, and the log tells of it.
    """
    data = {"file": name, "filters": sorted(filters), "rows": rows}
    try:
        await asyncio.wrap_future(work.record(note, by, account_id, "export", None, data))
    except Unavailable:
        log.warning("%s was exported by %s, which could not be noted", name, by.actor)


def changed(body: msgspec.Struct) -> dict[str, Any]:
    """Return which keys a request changes, as the data of an act: of switches the value too, of nothing else."""
    sent = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}
    return {"changed": list(sent), **{name: value for name, value in sent.items() if isinstance(value, bool)}}


def page(account_id: int, query: AuditQuery) -> Page:
    """List what was done, newest first; raises Invalid for moments that cannot be read."""
    found = asked(account_id, query)
    return paginate(found.order_by(Audit.created_at.desc(), Audit.id.desc()), query.page, query.size())


def pieces(account_id: int, query: AuditQuery) -> Iterator[list[Audit]]:
    """Yield what was done, newest first, some rows at a time, one read each; raises as `page`."""
    found = asked(account_id, query).order_by(Audit.created_at.desc(), Audit.id.desc()).limit(_PIECE)
    part = list(found)
    while part:
        yield part
        last = part[-1]
        before = (Audit.created_at < last.created_at) | ((Audit.created_at == last.created_at) & (Audit.id < last.id))
        part = list(found.where(before)) if len(part) == _PIECE else []


def asked(account_id: int, query: AuditQuery) -> Any:
    """Return what a query names, in no order; raises Invalid for moments that cannot be read."""
    found = Audit.select().where(Audit.account == account_id)
    for name in ("actor", "action", "subject"):
        if (value := getattr(query, name)) is not UNSET:
            found = found.where(getattr(Audit, name) == value)
    after, before = moments(query.created_after, query.created_before, Account.get_by_id(account_id).time_zone)
    if after is not None:
        found = found.where(Audit.created_at >= after)
    if before is not None:
        found = found.where(Audit.created_at < before)
    return found


def names(account_id: int) -> dict[str, str]:
    """Return what the people and keys of an account are called, by `user:7` and `key:3`; who is gone too."""
    told = "SELECT 'user:' || id, name FROM user WHERE account_id = :id UNION ALL "
    told += "SELECT 'key:' || id, name FROM api_key WHERE account_id = :id"
    return {row[0]: row[1] for row in rows(told, {"id": account_id})}


def actions(account_id: int) -> list[str]:
    """Return what was ever done in an account, by name; for choosing from."""
    return [row[0] for row in rows("SELECT DISTINCT action FROM audit WHERE account_id = ? ORDER BY 1", (account_id,))]


def actors(account_id: int) -> list[str]:
    """Return whoever did something in an account, for choosing from: people first, then keys."""
    found = rows("SELECT DISTINCT actor FROM audit WHERE account_id = ?", (account_id,))
    return sorted((row[0] for row in found), key=lambda actor: (not actor.startswith("user:"), actor))
