"""Accounts: their settings, and cached counts of their objects and messages."""

import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from appliance.content.designs import merge, utm
from appliance.content.designs.utm import UtmWrite
from appliance.core import addresses, clock, signals
from appliance.core.cache import CostAwareCache
from appliance.core.errors import Faults, NotFound
from appliance.core.i18n import get_language_tag, gettext
from appliance.core.signals import Signal
from appliance.core.validation import Country, EmailText, Line, Name, Short, parse_language, sent_fields
from appliance.settings import config
from appliance.storage.database import cached_rows, rows, scalar
from appliance.storage.models import Account, Brand
from appliance.storage.models.account import ACCOUNTS
from appliance.storage.transactions import after_commit, require_write_transaction

_audience_counts: CostAwareCache[tuple[int, int]] = CostAwareCache()
# A count that took less processor time than this is not cached beyond the next write, so small counts are exact.
_CHEAP_SECONDS = 0.003
_counts: CostAwareCache[dict[str, int]] = CostAwareCache(min_cost_seconds=_CHEAP_SECONDS)
_message_counts: CostAwareCache[tuple[int, int]] = CostAwareCache(min_cost_seconds=_CHEAP_SECONDS)
_usage: CostAwareCache[dict[str, Any]] = CostAwareCache(min_cost_seconds=_CHEAP_SECONDS)
_COUNTED_TABLES = {
    "contacts": "contact WHERE account_id = :account",
    "lists": "contact_list WHERE account_id = :account",
    "segments": "segment WHERE account_id = :account",
    "messages": "message WHERE account_id = :account",
    "events": "event WHERE account_id = :account",
    "campaigns": "campaign WHERE account_id = :account AND deleted_at IS NULL",
    "flows": "flow WHERE account_id = :account AND hidden = 0 AND deleted_at IS NULL",
    "templates": "template WHERE account_id = :account AND flow_id IS NULL",
}
_COUNTS_SQL = f"SELECT {', '.join(f'(SELECT count(*) FROM {table})' for table in _COUNTED_TABLES.values())}"
# The first account of the installation. Its owners also manage the installation.
FIRST_ACCOUNT_ID = 1
_MAX_TEST_RECIPIENTS = 5


# Sent in the transaction of the change, with the account's id.
time_zone_changed: Signal[[int]] = Signal()


class FrequencyCap(Struct):
    """A maximum number of marketing messages for one contact within a number of days."""

    messages: Annotated[int, Meta(ge=1, le=1000), Meta(description="maximum number of messages")]
    days: Annotated[int, Meta(ge=1, le=365), Meta(description="number of days in which they count")]


TimeOfDay = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", extra={"line": True})]


class QuietHours(Struct, rename={"from_": "from"}):
    """The daily period in which no marketing SMS are sent, in the recipient's time zone."""

    from_: Annotated[TimeOfDay, Meta(description="start of the quiet hours, such as `21:00`")]
    to: Annotated[TimeOfDay, Meta(description="end of the quiet hours, such as `08:00`")]


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_MAX_HOLIDAYS = 200


class MarketingCalendar(Struct, rename={"from_": "from"}):
    """When marketing email may be sent, in the recipient's time zone; at other times it waits."""

    days: Annotated[list[Weekday], Meta(min_length=1, max_length=7, description="days of the week")]
    from_: Annotated[TimeOfDay, Meta(description="start of the allowed hours, such as `08:00`")]
    to: Annotated[
        str,
        Meta(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$", extra={"line": True}),
        Meta(description="end of the allowed hours, later than their start; `24:00` is the end of the day"),
    ]
    holidays: Annotated[
        list[Annotated[str, Meta(extra={"check": "day"}, extra_json_schema={"format": "date"})]],
        Meta(max_length=_MAX_HOLIDAYS, description="dates on which nothing is sent, such as `2026-12-25`"),
    ] = msgspec.field(default_factory=list)


_MAX_HINT_LANGUAGES = 20  # the maximum number of translations of a template, too


MAX_CONTROL_SHARE = 0.5
MAX_ATTRIBUTION_DAYS = 90


class AccountWrite(Struct):
    """The writable fields of an account; fields that are not given stay unchanged."""

    name: Annotated[Name, Meta(description="name of the account")] | UnsetType = UNSET
    time_zone: (
        Annotated[
            str,
            Meta(max_length=64),
            Meta(description="time zone for dates without a time and for times of day, such as `Europe/Berlin`"),
        ]
        | UnsetType
    ) = UNSET
    locale: (
        Annotated[
            str,
            Meta(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$"),
            Meta(description="language of the pages for recipients, such as `en`"),
        ]
        | UnsetType
    ) = UNSET
    country_code: (
        Annotated[
            Country,
            Meta(
                description="two-letter country code that applies to phone numbers without a country code in "
                "imports, forms and pages"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    email_from_name: Annotated[Line, Meta(description="default sender name of emails")] | None | UnsetType = UNSET
    email_from_email: Annotated[EmailText, Meta(description="default sender address of emails")] | None | UnsetType = (
        UNSET
    )
    email_reply_to: (
        Annotated[EmailText, Meta(description="default address for replies to emails")] | None | UnsetType
    ) = UNSET
    approval_required: (
        Annotated[bool, Meta(description="whether campaigns and flows need approval before they are sent")] | UnsetType
    ) = UNSET
    approval_by_another: (
        Annotated[
            bool,
            Meta(description="whether a user other than author and requester must approve, if there is one"),
        ]
        | UnsetType
    ) = UNSET
    sending_stopped: (
        Annotated[
            bool,
            Meta(
                description="whether all sending is stopped; new sends are accepted and wait. The restore of a backup "
                "stops it, too; false lets everything go out that waits"
            ),
        ]
        | UnsetType
    ) = UNSET
    stop_reason: Annotated[Line, Meta(description="reason; null if none was given")] | None | UnsetType = UNSET
    frequency_cap: (
        Annotated[FrequencyCap, Meta(description="maximum number of marketing messages per contact; null for no limit")]
        | None
        | UnsetType
    ) = UNSET
    sms_from: (
        Annotated[
            str,
            Meta(
                max_length=40,
                description="phone number in E.164, short code, sender name of up to 11 letters and digits, or "
"SID of a messaging service",
                extra={"check": "sms_sender"},
            ),
        ]
        | None
        | UnsetType
    ) = UNSET  # fmt: skip
    sms_quiet_hours: (
        Annotated[QuietHours, Meta(description="hours in which no marketing SMS is sent; null for none")]
        | None
        | UnsetType
    ) = UNSET
    marketing_calendar: (
        Annotated[MarketingCalendar, Meta(description="when marketing email may be sent; null for any time")]
        | None
        | UnsetType
    ) = UNSET
    sms_opt_out_hint: (
        Annotated[
            str,
            Meta(max_length=160, extra={"line": True}),
            Meta(description="text appended to marketing SMS, such as `STOP to opt out`; null for none"),
        ]
        | None
        | UnsetType
    ) = UNSET
    sms_opt_out_hints: (
        Annotated[
            dict[Short, Annotated[str, Meta(max_length=160, extra={"line": True})]],
            Meta(
                max_length=_MAX_HINT_LANGUAGES,
                description='the same text in other languages, by language tag (`{"de": "STOP zum Abmelden"}`), '
                "for contacts with that language",
            ),
        ]
        | UnsetType
    ) = UNSET
    control_share: (
        Annotated[
            float,
            Meta(ge=0, le=MAX_CONTROL_SHARE),
            Meta(
                description="share of contacts who get no campaigns, so that all campaigns together can be measured; "
                "null for none. A larger share only adds contacts"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    attribution_days: (
        Annotated[
            int,
            Meta(ge=1, le=MAX_ATTRIBUTION_DAYS),
            Meta(
                description="attribution window: for how many days after a click orders and other custom events count "
                "as its result; in a replay of a flow, after a message"
            ),
        ]
        | UnsetType
    ) = UNSET
    utm: (
        Annotated[UtmWrite, Meta(description="UTM parameters of the links in campaigns and flows; null for none")]
        | None
        | UnsetType
    ) = UNSET
    privacy_ip: (
        Annotated[Literal["truncated", "full", "none"], Meta(description="how visitors' IP addresses are stored")]
        | UnsetType
    ) = UNSET
    test_email_recipients: (
        Annotated[
            list[EmailText],
            Meta(max_length=_MAX_TEST_RECIPIENTS),
            Meta(description="recipients of test emails for which no address is given"),
        ]
        | None
        | UnsetType
    ) = UNSET
    block_on_missing_variable: (
        Annotated[bool, Meta(description="whether a merge tag without a value blocks a campaign")] | UnsetType
    ) = UNSET
    transactional_allowed: (
        Annotated[bool, Meta(description="whether messages that need no consent, such as receipts, may be sent")]
        | UnsetType
    ) = UNSET


_EMPTY: dict[str, Any] = {"test_email_recipients": [], "sms_opt_out_hints": {}}


def create(name: str) -> Account:
    """Create an account with an empty brand; the name is not validated.

    The account gets the current language: the page's, or English for a command.
    """
    require_write_transaction()
    now = clock.now_ms()
    account = Account.create(name=name, locale=get_language_tag(), created_at=now, updated_at=now)
    Brand.create(account=account, created_at=now, updated_at=now)
    return account


def get(account_id: int) -> Account:
    """Return the account with this id; raises NotFound if there is none."""
    accounts = ACCOUNTS.find("id = ?", (account_id,))
    if not accounts:
        raise NotFound
    return accounts[0]


# The `stop_reason` of accounts whose sending the restore of a backup stopped, until a user resumes it
RESTORED = "restored"


def describe_restore_stop() -> str:
    """Return the text that says why a restored backup stopped sending, and how to resume sending."""
    return (
        "a backup was restored, and what waits may have gone out since it was made: decide about it at "
        f"{config.base_url(config.current())}/restored, then resume sending there or with `sending_stopped: false`"
    )


def update(account_id: int, changes: AccountWrite) -> Account:
    """Change the given fields of an account; raises NotFound, and Invalid with all errors.

    The stop reason is cleared whenever sending is not stopped after the change. After the commit, resumed sending wakes
    the job `outbox`, and new quiet hours, a new calendar or a new time zone wake `quiet_hours`.
    """
    require_write_transaction()
    account = get(account_id)
    values = sent_fields(changes)
    validate(account_id, changes)
    if "sms_opt_out_hints" in values:
        values["sms_opt_out_hints"] = {
            parse_language(tag): hint.strip() for tag, hint in values["sms_opt_out_hints"].items()
        }
    if "utm" in values:
        values["utm"] = utm.to_stored(values["utm"]) or None
    previous_zone = account.time_zone
    for name, value in values.items():
        setattr(account, name, _column_value(value, _EMPTY.get(name)) if name != "name" else value)
    if not account.sending_stopped:
        account.stop_reason = None
    if values.get("sending_stopped") is False:
        after_commit(lambda: signals.wake("outbox"))
    if values.keys() & {"sms_quiet_hours", "marketing_calendar", "time_zone"}:
        after_commit(lambda: signals.wake("quiet_hours"))
    if account.control_share and account.control_seed is None:
        account.control_seed = secrets.randbits(53)
    account.updated_at = clock.now_ms()
    account.save()
    if account.time_zone != previous_zone:
        time_zone_changed.send(account_id)
    return account


def validate(account_id: int, changes: AccountWrite, _: int | None = None) -> None:
    """Raise Invalid with the errors that the types of the fields do not catch.

    These are errors of time zone, country, quiet hours, calendar and opt-out hints, and an SMS sender of another
    account.
    """
    faults, values = Faults(), sent_fields(changes)
    zone, hours = values.get("time_zone"), values.get("sms_quiet_hours")
    if zone is not None and clock.find_time_zone(zone) is None:
        faults.add("time_zone", gettext("is not included in the list"))
    country = values.get("country_code")
    if country and country not in addresses.phone_countries():
        faults.add("country_code", gettext("is not included in the list"))
    if isinstance(hours, QuietHours) and isinstance(hours.to, str) and hours.from_ == hours.to:
        faults.add("sms_quiet_hours", gettext("is invalid"))
    calendar = values.get("marketing_calendar")
    if isinstance(calendar, MarketingCalendar):
        _validate_calendar(calendar, faults)
    if values.get("sms_from") and _is_taken(account_id, values["sms_from"]):
        faults.add("sms_from", gettext("has already been taken"))
    utm.validate(values.get("utm"), "utm.", faults)
    if error := merge.find_error(values.get("sms_opt_out_hint"), "text"):
        faults.add("sms_opt_out_hint", error)
    for tag, hint in (values.get("sms_opt_out_hints") or {}).items():
        path = f"sms_opt_out_hints.{tag}"
        try:
            parse_language(tag)
        except ValueError as error_text:
            faults.add(path, str(error_text))
        if not hint.strip():
            faults.add(path, gettext("is required"))
        elif error := merge.find_error(hint, "text"):
            faults.add(path, error)
    faults.check()


def _validate_calendar(calendar: MarketingCalendar, faults: Faults) -> None:
    """Add to `faults` the errors that the types do not catch: no days, or an end that is not after the start.

    A time that its type has rejected was left out of `calendar` by the caller.
    """
    start: Any = calendar.from_
    end: Any = calendar.to
    if calendar.days == []:
        faults.add("marketing_calendar.days", gettext("can't be blank"))
    if isinstance(start, str) and isinstance(end, str) and end <= start:
        faults.add("marketing_calendar.to", gettext("must be later than the start"))


def _is_taken(account_id: int, sender: str) -> bool:
    """Return whether an SMS sender number belongs to another account, which gets the replies to it.

    The senders in the configuration belong to the first account. A sender name belongs to no account, because it gets
    no replies.
    """
    if addresses.is_sender_name(sender):
        return False
    key, settings = addresses.get_sender_key(sender), config.current().sms
    others = dict(rows("SELECT id, sms_from FROM account"))
    if others.pop(account_id, None) == sender:
        return False  # the account has this sender already
    taken = [own for own in others.values() if own]
    if any(other_id < account_id for other_id in others):
        taken += [settings.twilio.from_, *(entry.partition(" ")[2] for entry in settings.country_senders)]
    return any(addresses.get_sender_key(own) == key for own in taken)


def _column_value(value: Any, empty: Any = None) -> Any:
    """Return a field value as stored: texts stripped, duplicates removed from lists, structs as dicts.

    An empty text becomes None, and None becomes `empty`.
    """
    if value is None:
        return empty
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, list):
        return list(dict.fromkeys(value))
    return to_builtins(value) if isinstance(value, Struct) else value


def count_objects(account_id: int) -> dict[str, int]:
    """Return the number of objects of an account by kind, such as `contacts` (the keys of `_COUNTED_TABLES`).

    The counts are cached until the next write, and for longer if they took `_CHEAP_SECONDS` or longer.
    """

    def count() -> dict[str, int]:
        return dict(zip(_COUNTED_TABLES, cached_rows(_COUNTS_SQL, {"account": account_id})[0], strict=True))

    return _counts.get(account_id, count)


def count_messages(account_id: int) -> tuple[int, int]:
    """Return (number of sent messages, number of skipped ones) of an account; cached as `count_objects` is."""

    def count() -> tuple[int, int]:
        sql = "SELECT count(sent_at), total(status = 'skipped') FROM message WHERE account_id = :account"
        sent, skipped = cached_rows(sql, {"account": account_id})[0]
        return sent, int(skipped)

    return _message_counts.get(account_id, count)


def count_audience(account_id: int) -> tuple[int, int]:
    """Return (number of contacts, number of lists) of an account; cached as `count_objects` is."""

    def count() -> tuple[int, int]:
        people, lists = (
            int(scalar(f"SELECT count(*) FROM {table} WHERE account_id = ?", (account_id,)))
            for table in ("contact", "contact_list")
        )
        return people, lists

    return _audience_counts.get(account_id, count)


def fetch_usage(account_id: int) -> dict[str, Any]:
    """Return how many messages of an account were sent in the last 30 days, without tests.

    Keys: `since` (start of the 30 days, ISO 8601), `email_sent`, `sms_sent`, and `sms_parts` (SMS segments). Numbers
    that took `_CHEAP_SECONDS` or longer to count come from a cache.
    """
    return _usage.get(account_id, lambda: _count_usage(account_id))


def _count_usage(account_id: int) -> dict[str, Any]:
    since = clock.now_ms() - 30 * clock.DAY_MS
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
