"""Accounts: what each has, and what it may change about itself."""

from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from appliance.content.designs import merge
from appliance.core import addresses, clock, wake_ups
from appliance.core.errors import Faults, NotFound
from appliance.core.fields import Country, EmailText, Line, Name, given
from appliance.core.rested import Rested
from appliance.storage.models import Account, Brand
from appliance.storage.open import rows, scalar
from appliance.storage.work import after_commit, writing

_crowd: Rested[tuple[int, int]] = Rested()
# Of few things the number is exact; of a million it is one of a moment ago
_CHEAP_SECONDS = 0.003
_counts: Rested[dict[str, int]] = Rested(cheap=_CHEAP_SECONDS)
_usage: Rested[dict[str, Any]] = Rested(cheap=_CHEAP_SECONDS)
_COUNTED = {
    "contacts": "contact WHERE account_id = ?1", "lists": "contact_list WHERE account_id = ?1",
    "segments": "segment WHERE account_id = ?1", "messages": "message WHERE account_id = ?1",
    "events": "event WHERE account_id = ?1", "campaigns": "campaign WHERE account_id = ?1 AND deleted_at IS NULL",
    "flows": "flow WHERE account_id = ?1 AND hidden = 0 AND deleted_at IS NULL",
    "templates": "template WHERE account_id = ?1 AND flow_id IS NULL",
}  # fmt: skip
_COUNTS = f"SELECT {', '.join(f'(SELECT count(*) FROM {what})' for what in _COUNTED.values())}"
# The one that the installation began with: its people look after the installation too
FIRST = 1
# As many as one test goes to
_MAX_TESTERS = 5


class FrequencyCap(Struct):
    """How many marketing messages one person gets in how many days."""

    messages: Annotated[int, Meta(ge=1, le=1000)]
    days: Annotated[int, Meta(ge=1, le=365)]


Clock = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", extra={"line": True})]


class QuietHours(Struct, rename={"from_": "from"}):
    """From one time of the day to another, by the clocks where each recipient is, no marketing SMS leaves."""

    from_: Clock
    to: Clock


class AccountWrite(Struct):
    """What a team changes about itself."""

    name: Name | UnsetType = UNSET
    time_zone: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    locale: Annotated[str, Meta(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$")] | UnsetType = UNSET
    country_code: Country | None | UnsetType = UNSET
    email_from_name: Line | None | UnsetType = UNSET
    email_from_email: EmailText | None | UnsetType = UNSET
    email_reply_to: EmailText | None | UnsetType = UNSET
    approval_required: bool | UnsetType = UNSET
    approval_by_another: bool | UnsetType = UNSET
    sending_stopped: bool | UnsetType = UNSET
    stop_reason: Line | None | UnsetType = UNSET
    frequency_cap: FrequencyCap | None | UnsetType = UNSET
    sms_from: (
        Annotated[
            str,
            Meta(
                max_length=40,
                description="number in E.164, short code, name of up to 11 letters and digits, or SID of a service",
                extra={"check": "sms_sender"},
            ),
        ]
        | None
        | UnsetType
    ) = UNSET  # fmt: skip
    sms_quiet_hours: QuietHours | None | UnsetType = UNSET
    sms_opt_out_hint: Annotated[str, Meta(max_length=160, extra={"line": True})] | None | UnsetType = UNSET
    privacy_ip: Literal["truncated", "full", "none"] | UnsetType = UNSET
    # Who gets the tests of templates where nobody is named
    test_email_recipients: Annotated[list[EmailText], Meta(max_length=_MAX_TESTERS)] | None | UnsetType = UNSET
    # Whether a campaign whose words lack values for some people is not sent
    block_on_missing_variable: bool | UnsetType = UNSET
    # Whether messages may go to people who have not opted in, because they are no marketing
    transactional_allowed: bool | UnsetType = UNSET


_EMPTY: dict[str, Any] = {"test_email_recipients": []}


def create(name: str) -> Account:
    """Make an account with its empty brand."""
    writing()
    now = clock.now_ms()
    account = Account.create(name=name, created_at=now, updated_at=now)
    Brand.create(account=account, created_at=now, updated_at=now)
    return account


def get(account_id: int) -> Account:
    """Return an account; raises NotFound."""
    account = Account.get_or_none(Account.id == account_id)
    if account is None:
        raise NotFound
    return account


def update(account_id: int, changes: AccountWrite) -> Account:
    """Change what was sent; raises Invalid for a time zone nobody knows, and hours that last a whole day.

    A reason for stopping is kept as long as sending is stopped.
    """
    writing()
    account = get(account_id)
    values = given(changes)
    check(account_id, changes)
    for name, value in values.items():
        setattr(account, name, _stored(value, _EMPTY.get(name)) if name != "name" else value)
    if not account.sending_stopped:
        account.stop_reason = None
    if values.get("sending_stopped") is False:
        after_commit(lambda: wake_ups.ring("outbox"))
    if values.keys() & {"sms_quiet_hours", "time_zone"}:
        after_commit(lambda: wake_ups.ring("nights"))
    account.updated_at = clock.now_ms()
    account.save()
    return account


def check(account_id: int, changes: AccountWrite, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a change, beyond its types."""
    faults, values = Faults(), given(changes)
    zone, hours = values.get("time_zone"), values.get("sms_quiet_hours")
    if zone is not None:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            faults.add("time_zone", "is not included in the list")
    country = values.get("country_code")
    if country and country not in addresses.countries():
        faults.add("country_code", "is not included in the list")
    if isinstance(hours, QuietHours) and isinstance(hours.to, str) and hours.from_ == hours.to:
        faults.add("sms_quiet_hours", "is invalid")
    if fault := merge.fault(values.get("sms_opt_out_hint"), "text"):
        faults.add("sms_opt_out_hint", fault)
    faults.check()


def _stored(value: Any, empty: Any = None) -> Any:
    """Return what a column keeps: empty texts are none, and objects are kept as they are written, each address once."""
    if value is None:
        return empty
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, list):
        return list(dict.fromkeys(value))
    return to_builtins(value) if isinstance(value, Struct) else value


def counts(account_id: int) -> dict[str, int]:
    """Count what an account has; of much, as it was a moment ago."""
    return _counts.get(account_id, lambda: dict(zip(_COUNTED, rows(_COUNTS, (account_id,))[0], strict=True)))


def crowd(account_id: int) -> tuple[int, int]:
    """Return how many people and how many lists an account has; of many, at most a moment ago."""

    def count() -> tuple[int, int]:
        people, lists = (
            int(scalar(f"SELECT count(*) FROM {table} WHERE account_id = ?", (account_id,)))
            for table in ("contact", "contact_list")
        )
        return people, lists

    return _crowd.get(account_id, count)


def usage(account_id: int) -> dict[str, Any]:
    """Count what was handed over in the last 30 days, by channel, and the parts of SMS, tests left out."""
    return _usage.get(account_id, lambda: _used(account_id))


def _used(account_id: int) -> dict[str, Any]:
    since = clock.now_ms() - 30 * 86_400_000
    sent = {
        channel: (count, parts)
        for channel, count, parts in rows(
            "SELECT channel, count(*), total(segments) FROM message WHERE account_id = ? "
            "AND created_at >= ? AND sent_at IS NOT NULL AND test = 0 GROUP BY channel",
            (account_id, since),
        )
    }
    texts, parts = sent.get("sms", (0, 0))
    mails, _ = sent.get("email", (0, 0))
    return {"since": clock.iso(since), "email_sent": mails, "sms_sent": texts, "sms_parts": int(parts)}
