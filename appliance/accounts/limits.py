"""Limits of an account, which the operator of the installation sets so that one account cannot starve another.

All limits are optional. This module is the only place that decides whether an account has room for more; the places
that write contacts, messages, pictures and imports ask it. The sender's fair shares between accounts
(docs/decisions.md#1) apply in addition. Recipients' own acts, like a sign-up with a form or an opt-out, are never
refused because of a limit.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import Conflict, RateLimitExceeded
from appliance.core.i18n import format_number, gettext, gettext_noop
from appliance.storage.database import fetch_one, scalar, write_state
from appliance.storage.models import Account
from appliance.storage.transactions import after_commit, require_write_transaction

MAX_LIMIT = 1_000_000_000
_Limit = Annotated[int, Meta(ge=0, le=MAX_LIMIT)] | None


class AccountLimits(Struct, frozen=True, omit_defaults=True):
    """The limits of an account; None for no limit."""

    contacts: _Limit = None
    messages_per_day: _Limit = None
    messages_per_month: _Limit = None
    picture_megabytes: _Limit = None
    requests_per_minute: _Limit = None
    imports_at_once: _Limit = None


# What a limit counts, as a label, by the name of the limit.
LABELS = {
    "contacts": gettext_noop("Contacts"), "messages_per_day": gettext_noop("Messages a day"),
    "messages_per_month": gettext_noop("Messages a month"), "picture_megabytes": gettext_noop("Images, in MB"),
    "requests_per_minute": gettext_noop("API requests a minute"), "imports_at_once": gettext_noop("Imports at once"),
}  # fmt: skip
# The limits that are used up over time: owners get an email at 80 % and at 100 %. The others only refuse requests of a
# moment.
FILLED = ("contacts", "messages_per_day", "messages_per_month", "picture_megabytes")
WARN_SHARE = 0.8
ERROR_CODE = "account_limit"
_MEGABYTE = 1_000_000
# Limits that a command changed in another process apply after this time at the latest.
_CACHE_SECONDS = 5.0
# Counts are read from the database again after this time; between, what is added is counted in memory.
_COUNT_SECONDS = 600.0
# At a limit, the count is read again after this time, because deletions make room.
_RECOUNT_SECONDS = 1.0
_COUNT_MESSAGES = (
    "SELECT count(*) FROM message WHERE account_id = ? AND created_at >= ? AND test = 0 AND source_type != 'system' "
    "AND status NOT IN ('skipped', 'cancelled')"
)


class LimitUse(NamedTuple):
    """How much of a limit is used. `period` identifies the day or the month; it is empty for a limit without one."""

    name: str
    used: int
    limit: int
    period: str = ""

    @property
    def share(self) -> float:
        """The share of the limit that is used; 1 for a limit of 0."""
        return self.used / self.limit if self.limit else 1.0


class _Count:
    """A count that was read at `read_at` (seconds of `time.monotonic`), plus what has been added since then."""

    def __init__(self, value: int, start: int) -> None:
        self.value, self.start, self.read_at = value, start, time.monotonic()


_cached: dict[int, tuple[float, AccountLimits]] = {}
_counts: dict[tuple[int, str], _Count] = {}


def get(account_id: int) -> AccountLimits:
    """Return the limits of an account; they are cached for `_CACHE_SECONDS`."""
    if write_state.is_sandboxed:
        return AccountLimits()  # A simulation shows what a flow does, and sends nothing.
    cached = _cached.get(account_id)
    if cached is not None and time.monotonic() - cached[0] < _CACHE_SECONDS:
        return cached[1]
    row = fetch_one("SELECT limits FROM account WHERE id = ?", (account_id,))
    limits = msgspec.json.decode(row[0], type=AccountLimits) if row and row[0] else AccountLimits()
    _cached[account_id] = time.monotonic(), limits
    return limits


def forget() -> None:
    """Forget all limits and counts, for a process that opens another database."""
    _cached.clear()
    _counts.clear()


def update(account_id: int, limits: AccountLimits, by: Actor) -> None:
    """Store the limits of an account and record them in its audit log."""
    require_write_transaction()
    values = msgspec.to_builtins(limits)
    Account.update(limits=values or None, limit_notices=None).where(Account.id == account_id).execute()
    audit.record(by, account_id, "account_limits", f"account:{account_id}", values)
    after_commit(lambda: _cached.clear())


def change(account_id: int, changes: dict[str, int], by: Actor) -> None:
    """Change some limits of an account by name; a negative number removes the limit."""
    require_write_transaction()
    values = {**msgspec.to_builtins(get(account_id)), **changes}
    update(account_id, AccountLimits(**{name: None if value < 0 else value for name, value in values.items()}), by)


def _find_period(account_id: int, name: str) -> tuple[str, int, int]:
    """Return (identifier, start, end) of the current day or month in the account's time zone, in milliseconds."""
    row = fetch_one("SELECT time_zone FROM account WHERE id = ?", (account_id,))
    zone = (clock.find_time_zone(row[0]) if row else None) or ZoneInfo("UTC")
    day = datetime.fromtimestamp(clock.now_ms() / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "messages_per_day":
        start, end, identifier = day, day + timedelta(days=1), f"{day:%Y-%m-%d}"
    else:
        start = day.replace(day=1)
        end, identifier = (start + timedelta(days=32)).replace(day=1), f"{day:%Y-%m}"
    return identifier, int(start.timestamp() * 1000), int(end.timestamp() * 1000)


def _count(account_id: int, name: str, start: int, read: Callable[[], int]) -> int:
    """Return a count that began at `start`; `read` counts in the database, at most every `_COUNT_SECONDS`."""
    count = _counts.get((account_id, name))
    if count is None or count.start != start or time.monotonic() - count.read_at > _COUNT_SECONDS:
        count = _counts[account_id, name] = _Count(read(), start)
    return count.value


def _read_use(account_id: int, name: str) -> tuple[int, str, int]:
    """Return (used, period, end of the period in milliseconds or 0) for a limit of `FILLED`."""
    if name == "contacts":
        sql = "SELECT count(*) FROM contact WHERE account_id = ?"
        return _count(account_id, name, 0, lambda: int(scalar(sql, (account_id,)))), "", 0
    if name == "picture_megabytes":
        return -(-_picture_bytes(account_id) // _MEGABYTE), "", 0
    period, start, end = _find_period(account_id, name)
    return _count(account_id, name, start, lambda: int(scalar(_COUNT_MESSAGES, (account_id, start)))), period, end


def _picture_bytes(account_id: int) -> int:
    return int(scalar("SELECT coalesce(sum(bytes), 0) FROM media WHERE account_id = ?", (account_id,)))


class AccountUse(NamedTuple):
    """How much an account stores or sent: contacts, messages of this month, and the bytes of its images."""

    contacts: int
    messages_this_month: int
    picture_bytes: int


def measure(account_id: int) -> AccountUse:
    """Return what an account holds; counts may be `_COUNT_SECONDS` old."""
    return AccountUse(
        _read_use(account_id, "contacts")[0], _read_use(account_id, "messages_per_month")[0], _picture_bytes(account_id)
    )


def list_uses(account_id: int) -> list[LimitUse]:
    """Return how much of each limit of `FILLED` that the account has is used."""
    limits = get(account_id)
    uses = []
    for name in FILLED:
        limit = getattr(limits, name)
        if limit is not None:
            used, period, _ = _read_use(account_id, name)
            uses.append(LimitUse(name, used, limit, period))
    return uses


def describe(use: LimitUse) -> str:
    """Return a sentence that says how much of a limit is used."""
    values = {"used": format_number(use.used), "limit": format_number(use.limit)}
    if use.name == "contacts":
        return gettext("This account has %(used)s of at most %(limit)s contacts.", **values)
    if use.name == "messages_per_day":
        return gettext("This account has sent %(used)s of at most %(limit)s messages today.", **values)
    if use.name == "messages_per_month":
        return gettext("This account has sent %(used)s of at most %(limit)s messages this month.", **values)
    return gettext("The images of this account take %(used)s of at most %(limit)s MB.", **values)


def _refuse(use: LimitUse) -> Conflict:
    hint = gettext("The operator of this installation can raise the limit.")
    return Conflict(f"{describe(use)} {hint}", ERROR_CODE, limit_name=use.name, limit=use.limit)


def require_contacts(account_id: int, added: int = 1) -> None:
    """Raise Conflict (`account_limit`) if the account may not have so many more contacts."""
    limit = get(account_id).contacts
    if limit is None:
        return
    used = _read_use(account_id, "contacts")[0]
    if used + added > limit and time.monotonic() - _counts[account_id, "contacts"].read_at > _RECOUNT_SECONDS:
        _counts.pop((account_id, "contacts"), None)
        used = _read_use(account_id, "contacts")[0]
    if used + added > limit:
        raise _refuse(LimitUse("contacts", used, limit))


def note_contacts(account_id: int, added: int) -> None:
    """Count contacts that are added in this transaction."""
    _add(account_id, "contacts", added)


def _add(account_id: int, name: str, number: int) -> None:
    count = _counts.get((account_id, name))
    if count is not None and not write_state.is_sandboxed:
        count.value += number


def count_messages_left(account_id: int) -> tuple[int, LimitUse] | None:
    """Return (number of messages that the account may still send now, the limit that sets it); None without a limit."""
    limits = get(account_id)
    left: tuple[int, LimitUse] | None = None
    for name in ("messages_per_day", "messages_per_month"):
        limit = getattr(limits, name)
        if limit is None:
            continue
        used, period, _ = _read_use(account_id, name)
        if left is None or limit - used < left[0]:
            left = max(0, limit - used), LimitUse(name, used, limit, period)
    return left


def require_messages(account_id: int, added: int = 1) -> None:
    """Raise RateLimitExceeded (reason `account_limit`) if the account may not send so many more messages now."""
    left = count_messages_left(account_id)
    if left is None or added <= left[0]:
        return
    use = left[1]
    end = _find_period(account_id, use.name)[2]
    raise RateLimitExceeded(
        describe(use), max(1, (end - clock.now_ms()) // 1000), reason=ERROR_CODE, limit_name=use.name, limit=use.limit
    )


def note_messages(account_id: int, added: int) -> None:
    """Count messages that are added in this transaction."""
    for name in ("messages_per_day", "messages_per_month"):
        _add(account_id, name, added)


def find_hold(account_id: int, added: int) -> int | None:
    """Return until when that many messages of a flow have to wait, in milliseconds; None if they may be sent now."""
    left = count_messages_left(account_id)
    return None if left is None or added <= left[0] else _find_period(account_id, left[1].name)[2]


def require_picture(account_id: int, added_bytes: int) -> None:
    """Raise Conflict (`account_limit`) if the account has no room for a picture of this size."""
    limit = get(account_id).picture_megabytes
    if limit is not None and _picture_bytes(account_id) + added_bytes > limit * _MEGABYTE:
        raise _refuse(LimitUse("picture_megabytes", _read_use(account_id, "picture_megabytes")[0], limit))


def require_import(account_id: int, running: int) -> None:
    """Raise Conflict (`account_limit`) if the account may not start an import beside the `running` ones."""
    limit = get(account_id).imports_at_once
    if limit is not None and running >= limit:
        message = gettext("This account may run %(limit)s imports at once. Wait until one has ended.", limit=limit)
        raise Conflict(message, ERROR_CODE, limit_name="imports_at_once", limit=limit)


def list_notices(account_id: int) -> list[LimitUse]:
    """Return the limits of which 80 % or 100 % is used, and about which the owners have not been notified yet."""
    notices: dict[str, Any] = Account.get_by_id(account_id).limit_notices or {}

    def is_new(use: LimitUse) -> bool:
        period, level = notices.get(use.name, (None, 0))
        return _level(use) > (level if period == use.period else 0)

    return [use for use in list_uses(account_id) if is_new(use)]


def _level(use: LimitUse) -> int:
    """Return 100 or 80 for a limit of which that many per cent are used, else 0."""
    return 100 if use.share >= 1 else 80 if use.share >= WARN_SHARE else 0


def mark_notified(account_id: int, uses: list[LimitUse]) -> None:
    """Record that the owners of an account were notified about these limits."""
    require_write_transaction()
    account = Account.get_by_id(account_id)
    notices = {**(account.limit_notices or {}), **{use.name: [use.period, _level(use)] for use in uses}}
    Account.update(limit_notices=notices).where(Account.id == account_id).execute()
