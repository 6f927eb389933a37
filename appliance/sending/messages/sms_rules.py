"""Rules for every SMS, checked right before it is sent: whether it may be sent to a number, and when.

No SMS is sent to impossible numbers, premium numbers, or numbers of countries that are not allowed. Marketing SMS wait
until the recipient's quiet hours end. When an account has used up its SMS parts of a day, its SMS wait for the next
day. Single SMS to unknown numbers are limited by block of numbers.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from appliance.core import addresses, clock
from appliance.core.errors import RateLimitExceeded
from appliance.core.i18n import gettext
from appliance.sending.messages import ledger, senders
from appliance.sending.messages.ledger import RETRY_NOW, LedgerRow, Outcome
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.storage import transactions
from appliance.storage.database import connection, fetch_one, rows, run, scalar
from appliance.storage.transactions import require_write_transaction

_CAPTURE = "capture"
# Held SMS become due at different times within this period, so that they are not all sent at once.
_SPREAD_MS = 60_000
_STEP_MS = 7_919  # between SMS with consecutive ids, modulo the period; a prime, so that the due times do not coincide
_ACCOUNT_SETTINGS = "SELECT sms_from, sms_quiet_hours, time_zone FROM account WHERE id = ?"
_CONTACT_LOCATION = "SELECT trim(json_extract(data, '$.time_zone')), country_code FROM contact WHERE id = ?"

# Evidence of consent: a confirmed sign-up, an opt-in with the text that the contact saw, or a keyword that they sent.
_CONSENT_EVIDENCE = (
    "SELECT 1 FROM consent WHERE contact_id = ? AND kind = 'phone' AND (act = 'confirmed' OR act = 'opt_in' "
    "AND (trim(coalesce(text, '')) != '' OR source = 'keyword')) LIMIT 1"
)


class _AccountSettings(NamedTuple):
    """The settings of an account that are needed for its SMS; `quiet_hours` is JSON."""

    sender: str | None
    quiet_hours: str | None
    time_zone: str


def get_number_refusal(number: str) -> tuple[str, str] | None:
    """Return (reason code, text) if no SMS may be sent to a number, else None."""
    info = addresses.inspect_number(number)
    if not info.is_possible:
        return "invalid_address", gettext("is not a number of a phone network")
    if info.type in addresses.PREMIUM_TYPES:
        return "invalid_address", gettext("is a premium-rate or shared-cost number")
    if not _is_country_allowed(info.country):
        return "country_not_allowed", (
            gettext("is in %(country)s, which is not among sms.countries", country=info.country)
            if info.country
            else gettext("is in no country of sms.countries")
        )
    return None


def _is_country_allowed(country: str | None) -> bool:
    allowed = _to_upper(tuple(config.current().sms.countries))
    return not allowed or country in allowed


@lru_cache(8)
def _to_upper(codes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(code.upper() for code in codes)


def has_consent_evidence(contact_id: int | None) -> bool:
    """Return whether evidence of a contact's consent to SMS is stored; always true if `sms.require_evidence` is off."""
    if not config.current().sms.require_evidence:
        return True
    return contact_id is not None and fetch_one(_CONSENT_EVIDENCE, (contact_id,)) is not None


def get_sms_refusal(row: LedgerRow) -> str | None:
    """Return the reason code if the rules of SMS do not allow a message, else None.

    Of the contact's consent, only the evidence is checked here; `queue.get_refusal` checks the rest, and suppressions.
    """
    refusal = get_number_refusal(row.recipient_key)
    if refusal is not None:
        return refusal[0]
    if not row.transactional and not has_consent_evidence(row.contact_id):
        return "no_consent"
    if row.source_type == "system":
        return None  # an automatic reply is sent from the number that the contact wrote to
    return (
        "sender_not_allowed"
        if _lacks_sender(row.recipient_key, row.provider, _get_account_settings(row.account_id))
        else None
    )


def predict_refusal(account_id: int, contact_id: int, number: str, provider: str) -> str | None:
    """Return the reason code that `get_sms_refusal` would return for a marketing SMS to this contact, or None."""
    refusal = get_number_refusal(number)
    if refusal is not None:
        return refusal[0]
    if not has_consent_evidence(contact_id):
        return "no_consent"
    return "sender_not_allowed" if _lacks_sender(number, provider, _get_account_settings(account_id)) else None


def _lacks_sender(number: str, provider: str, settings: _AccountSettings) -> bool:
    """Return whether the account has a sender of SMS, but none for the country of this number.

    Captured SMS need no sender.
    """
    if provider == _CAPTURE or senders.pick_sms_sender(settings.sender, addresses.inspect_number(number).country):
        return False
    return bool(senders.pick_sms_sender(settings.sender, None))


def find_suspects(ledger_rows: Iterable[LedgerRow], now: int) -> set[int]:
    """Return the ids of the SMS that the rules of this module may not allow now; check each of them alone.

    The time zone in a contact's data is not considered here: the statement of `queue.claim` claims no SMS to
    contacts with a time zone.
    """
    suspects: set[int] = set()
    settings_by_account: dict[int, _AccountSettings] = {}
    is_full: dict[int, bool] = {}
    for row in ledger_rows:
        if row.channel != "sms":
            continue
        settings = settings_by_account.get(row.account_id) or settings_by_account.setdefault(
            row.account_id, _get_account_settings(row.account_id)
        )
        if row.account_id not in is_full:
            is_full[row.account_id] = get_parts_limit_end(row.account_id, settings.time_zone, now) is not None
        is_real = row.provider != _CAPTURE
        if (
            config.current().sms.require_evidence
            or (is_real and (is_full[row.account_id] or _may_be_quiet(row, settings, now)))
            or get_number_refusal(row.recipient_key or "") is not None
            or _lacks_sender(row.recipient_key or "", row.provider, settings)
        ):
            suspects.add(row.id)
    return suspects


def _may_be_quiet(row: LedgerRow, settings: _AccountSettings, now: int) -> bool:
    """Return whether the account's quiet hours may apply to an SMS now; true if the number's time zones are unknown."""
    if settings.quiet_hours is None:
        return False
    time_zones = addresses.inspect_number(row.recipient_key or "").zones
    if not time_zones:
        return True
    return get_quiet_end_everywhere(msgspec.json.decode(settings.quiet_hours), time_zones, now) is not None


def _get_account_settings(account_id: int) -> _AccountSettings:
    return _AccountSettings._make(fetch_one(_ACCOUNT_SETTINGS, (account_id,)) or (None, None, "UTC"))


def hold_if_required(row: LedgerRow, now: int) -> bool:
    """Hold an SMS that may not be sent yet, and return whether it was held or skipped.

    Marketing is held until the recipient's quiet hours end, or skipped if they end after the retry period
    (`sms.give_up`). If the account has used up its parts of the day, all its SMS except automatic replies are held
    until the next day. The due times of held SMS are spread over `_SPREAD_MS`.
    """
    if row.provider == _CAPTURE:
        return False
    settings = _get_account_settings(row.account_id)
    end = None
    if not row.transactional and settings.quiet_hours is not None:
        end = get_quiet_end_everywhere(
            msgspec.json.decode(settings.quiet_hours), get_recipient_time_zones(row, settings.time_zone), now
        )
        if end is not None and end - (row.first_attempt_at or now) > parse_seconds(config.current().sms.give_up) * 1000:
            ledger.mark_skipped(row, "quiet_hours_expired", now)
            return True
    if end is None and row.source_type != "system":  # automatic replies are few, and useless on the next day
        end = get_parts_limit_end(row.account_id, settings.time_zone, now)
    if end is None:
        return False
    values = (end + row.id * _STEP_MS % _SPREAD_MS, now, row.id)
    connection().execute("UPDATE message SET status = 'held', due_at = ?, updated_at = ? WHERE id = ?", values)
    return True


def get_recipient_time_zones(row: LedgerRow, account_zone: str) -> tuple[str, ...]:
    """Return the time zones in which the recipient of an SMS may be; quiet hours apply in all of them.

    They come from `get_number_time_zones`, for the time zone and the country that are stored with the contact.
    """
    contact_zone, country = fetch_one(_CONTACT_LOCATION, (row.contact_id,)) or (None, None)
    return get_number_time_zones(contact_zone, country, row.recipient_key, account_zone)


def get_number_time_zones(contact_zone: Any, country: str | None, number: str, account_zone: str) -> tuple[str, ...]:
    """Return the time zones in which the owner of a number may be.

    They are the contact's time zone, or all time zones of the number, or the time zones of the contact's country, or
    the account's: the first that is known. An invalid time zone of the contact is ignored.
    """
    if isinstance(contact_zone, str) and clock.find_time_zone(contact_zone.strip()):
        return (contact_zone.strip(),)
    return addresses.inspect_number(number).zones or clock.time_zones_of_country(country) or (account_zone,)


# Single SMS to a block of unknown numbers are limited, because fraudsters are paid for SMS to blocks of numbers that
# they control (SMS pumping). SMS to subscribers and captured SMS are not counted. All counts are read from the ledger,
# so that a restart does not reset them.

log = logging.getLogger("campanero.messages")
_HOUR_MS = 3_600_000
_FIRST_OF_HOUR = "SELECT id FROM message WHERE account_id = ? AND created_at > ? ORDER BY created_at, id LIMIT 1"

_TO_UNKNOWN_NUMBERS = (
    "m.channel = 'sms' AND m.source_type = 'transactional' AND m.test = 0 AND m.provider != 'capture' "
    "AND m.status != 'skipped' AND NOT EXISTS (SELECT 1 FROM channel h WHERE h.account_id = m.account_id "
    "AND h.kind = 'phone' AND h.key = m.recipient_key AND h.subscribed = 1)"
)

_COUNT_IN_BLOCK = (
    f"SELECT count(*), min(created_at) FROM (SELECT m.created_at FROM message m INDEXED BY message_sms_recipient "
    "WHERE m.recipient_key >= ?1 || '0000' AND m.recipient_key <= ?1 || '9999' AND m.account_id = ?2 AND m.id >= ?3 "
    f"AND length(m.recipient_key) = length(?1) + 4 AND {_TO_UNKNOWN_NUMBERS} ORDER BY m.id DESC LIMIT ?4)"
)

_FULL_BLOCKS = (
    "SELECT substr(m.recipient_key, 1, length(m.recipient_key) - 4) AS block, length(m.recipient_key), count(*) AS n "
    f"FROM message m WHERE m.account_id = ? AND m.created_at > ? AND {_TO_UNKNOWN_NUMBERS} GROUP BY 1, 2 HAVING n >= ? "
    "ORDER BY n DESC, block"
)

# The time of the last warning about each full block, by account and prefix, in milliseconds since 1970 UTC.
_warned_at: dict[tuple[int, str], int] = {}
_MAX_WARNED_BLOCKS = 1_000


class NumberBlock(NamedTuple):
    """A block of 10,000 phone numbers with the same prefix, and the number of SMS sent to it in the last hour.

    Only single SMS to unknown numbers are counted.
    """

    prefix: str
    messages: int


def limit_unknown_numbers(account_id: int, number: str) -> None:
    """Raise RateLimitExceeded if the block of a number has reached its hourly limit (`sms.new_numbers_per_hour`).

    Numbers of subscribers are exempt. Call it before storing a single SMS, in the same write transaction.
    """
    require_write_transaction()
    limit, now = config.current().sms.new_numbers_per_hour, clock.now_ms()
    if not limit or _is_subscriber(account_id, number):
        return
    first = fetch_one(_FIRST_OF_HOUR, (account_id, now - _HOUR_MS))
    if first is None:
        return
    prefix = addresses.inspect_number(number).prefix
    count, oldest = rows(_COUNT_IN_BLOCK, (prefix, account_id, first[0], limit))[0]
    if count >= limit:
        _warn_once(account_id, prefix, limit, now)
        message = gettext(
            "%(limit)s SMS in an hour went to unknown numbers beginning with %(prefix)s", limit=limit, prefix=prefix
        )
        raise RateLimitExceeded(message, retry_after=max(1, (oldest + _HOUR_MS - now) // 1000 + 1))


def _is_subscriber(account_id: int, number: str) -> bool:
    sql = "SELECT 1 FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ? AND subscribed = 1"
    return fetch_one(sql, (account_id, number)) is not None


def _warn_once(account_id: int, prefix: str, limit: int, now: int) -> None:
    """Log a warning about a full block of numbers, at most once an hour for each block."""
    if _warned_at.get((account_id, prefix), 0) > now - _HOUR_MS:
        return
    _warned_at[account_id, prefix] = now
    while len(_warned_at) > _MAX_WARNED_BLOCKS:
        _warned_at.pop(next(iter(_warned_at)))
    log.warning(
        "sms: limited single SMS to unknown numbers account=%s block=%s**** limit_per_hour=%s: this may be SMS "
        "pumping; find out who requests these messages", account_id, prefix, limit,
    )  # fmt: skip


def list_full_blocks(account_id: int) -> list[NumberBlock]:
    """Return the blocks of unknown numbers that have reached the hourly limit, those with the most SMS first."""
    limit = config.current().sms.new_numbers_per_hour
    if not limit:
        return []
    block_rows = rows(_FULL_BLOCKS, (account_id, clock.now_ms() - _HOUR_MS, limit))
    return [NumberBlock(prefix, count) for prefix, _, count in block_rows]


# The parts of SMS, for each of which an account pays, are limited by day in the account's time zone.

_ADD_PARTS = (
    "INSERT INTO sms_day (account_id, day, parts) VALUES (?, ?, ?) "
    "ON CONFLICT (account_id, day) DO UPDATE SET parts = parts + excluded.parts"
)


def count_sms_parts(outcomes: Iterable[Outcome]) -> None:
    """Add the parts of accepted SMS to the day of their account; captured SMS are not counted."""
    require_write_transaction()
    parts: Counter[int] = Counter()
    for outcome in outcomes:
        if outcome.row.provider != _CAPTURE:
            parts[outcome.row.account_id] += (outcome.prepared.parts if outcome.prepared else None) or 1
    now = clock.now_ms()
    connection().executemany(
        _ADD_PARTS, [(number, _get_day_number(_get_time_zone(number), now), count) for number, count in parts.items()]
    )


def get_parts_used(account_id: int, zone: str, now: int) -> int:
    """Return the number of SMS parts that an account used on the day of `now` in the time zone `zone`."""
    return int(
        scalar("SELECT parts FROM sms_day WHERE account_id = ? AND day = ?", (account_id, _get_day_number(zone, now)))
        or 0
    )


def get_parts_limit_end(account_id: int, zone: str, now: int) -> int | None:
    """Return when the next day begins, in milliseconds since 1970 UTC, if today's parts are used up, else None.

    SMS being sent are not counted yet, so a day may exceed the limit by the parts of one SMS for each connection.
    """
    limit = config.current().sms.parts_per_day
    if not limit or get_parts_used(account_id, zone, now) < limit:
        return None
    local = datetime.fromtimestamp(now / 1000, ZoneInfo(zone))
    next_day = datetime.combine(local.date() + timedelta(days=1), datetime.min.time(), local.tzinfo)
    return max(int(next_day.timestamp() * 1000), now + 1)


def _get_time_zone(account_id: int) -> str:
    row = fetch_one("SELECT time_zone FROM account WHERE id = ?", (account_id,))
    return str(row[0]) if row else "UTC"


def _get_day_number(zone: str, now: int) -> int:
    return datetime.fromtimestamp(now / 1000, ZoneInfo(zone)).date().toordinal()


# Quiet hours: marketing messages wait between two times of the day. An interval may include midnight.

_MINUTE_MS = 60_000
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


def find_quiet_hours_fault(hours: Any) -> str | None:
    """Return an error text unless `hours` is None or has the form `{"from": "21:00", "to": "08:00"}`, else None."""
    return None if hours is None or _parse_quiet_hours(hours) is not None else gettext("is invalid")


def get_quiet_end(hours: Any, zone: str, now: int) -> int | None:
    """Return when the quiet hours in a time zone end, or None if `now` is not in them.

    Times are milliseconds since 1970 UTC; `hours` are as in `find_quiet_hours_fault`, and ignored if invalid.
    """
    return get_quiet_end_everywhere(hours, (zone,), now)


def get_quiet_end_everywhere(hours: Any, zones: tuple[str, ...], now: int) -> int | None:
    """Return the next time outside of the quiet hours in all of the time zones, or None if `now` is such a time.

    If there is no such time in the next two days, return the time in the next day at which the fewest time zones are
    in quiet hours, or None if that is now. Times are milliseconds since 1970 UTC. Invalid `hours` are ignored.
    """
    times = _parse_quiet_hours(hours)
    if times is None:
        return None
    # Quiet hours and clock changes are given in minutes, so results are cached by minute.
    end = _find_free_time(*times, zones, now // _MINUTE_MS)
    return None if end is None else max(end, now + 1)


@lru_cache(20_000)
def _find_free_time(begin: time, end: time, zones: tuple[str, ...], minute: int) -> int | None:
    now = at = minute * _MINUTE_MS
    while at <= now + 2 * clock.DAY_MS:
        ends = [quiet_end for zone in zones if (quiet_end := _find_quiet_end(begin, end, zone, at)) is not None]
        if not ends:
            return at if at > now else None
        at = max(*ends, at + _MINUTE_MS)
    return _find_least_quiet_time(begin, end, zones, now)


def _find_least_quiet_time(begin: time, end: time, zones: tuple[str, ...], now: int) -> int | None:
    moments = {now}
    for hour in range(24):
        ends = (_find_quiet_end(begin, end, zone, now + hour * _HOUR_MS) for zone in zones)
        moments.update(quiet_end for quiet_end in ends if quiet_end is not None)
    best = min(sorted(moments), key=lambda at: sum(_find_quiet_end(begin, end, zone, at) is not None for zone in zones))
    return best if best > now else None


def _find_quiet_end(begin: time, end: time, zone: str, now: int) -> int | None:
    local = datetime.fromtimestamp(now / 1000, ZoneInfo(zone))
    if not (begin <= local.time() < end if begin < end else local.time() >= begin or local.time() < end):
        return None
    # If a clock change repeats this hour, the end is in the same one of the two hours as `now` (`fold`).
    last = datetime.combine(local.date(), end, local.tzinfo).replace(fold=local.fold)
    if last.replace(tzinfo=None) <= local.replace(tzinfo=None):
        last = datetime.combine(local.date() + timedelta(days=1), end, local.tzinfo)
    # If a clock change skips the end, the quiet hours end at the same moment as without the change.
    return max(int(last.astimezone(UTC).timestamp() * 1000), now + 1)


def _parse_quiet_hours(hours: Any) -> tuple[time, time] | None:
    if not isinstance(hours, dict):
        return None
    matches = [_TIME.fullmatch(str(hours.get(name))) for name in ("from", "to")]
    times = [time(int(match[1]), int(match[2])) for match in matches if match is not None]
    return (times[0], times[1]) if len(times) == 2 and times[0] != times[1] else None


# When an account changes its quiet hours, its calendar (`marketing_calendar.py`) or its time zone, messages held
# for them become due at once, and are held again if they may not be sent yet. Single messages keep their due time,
# because an API request may have set it.
_MAX_ROWS_PER_WRITE = 1_000
_LIVE_CAMPAIGNS = "SELECT id FROM campaign WHERE channel = ? AND phase = 'sending'"
_OPEN = "status IN ('queued', 'held')"  # the same condition as in the partial indexes of due messages

_HELD = (
    "FROM message WHERE {whose} AND channel = '{channel}' AND due_at > ?1 AND status = 'held' AND attempts = 0 "
    "AND updated_at <= ?1"
)


def recheck_held_messages() -> None:
    """Make all messages of campaigns and flows that are held for quiet hours or a calendar due at once.

    A transaction changes up to `_MAX_ROWS_PER_WRITE` rows. A row that is held again after the start of this call is
    left as it is.
    """
    now = clock.now_ms()
    for channel in ("email", "sms"):
        _recheck_held(channel, now)


def _recheck_held(channel: str, now: int) -> None:
    campaigns = rows(_LIVE_CAMPAIGNS, (channel,))
    sources: list[tuple[str, tuple[int, ...]]] = [(f"run_id IS NOT NULL AND {_OPEN}", ())]
    sources += [(f"campaign_id = ?2 AND run_id IS NULL AND {_OPEN}", (row[0],)) for row in campaigns]
    for whose, values in sources:
        waiting = _HELD.format(whose=whose, channel=channel)
        count = int(scalar(f"SELECT count(*) {waiting}", (now, *values)))
        # The number of transactions is fixed, so that a clock that steps back cannot cause an endless loop.
        for _ in range(-(-count // _MAX_ROWS_PER_WRITE)):
            transactions.write(_release_held, waiting, (now, *values))


def _release_held(waiting: str, values: tuple[int, ...]) -> None:
    require_write_transaction()
    run(
        f"UPDATE message SET due_at = {RETRY_NOW} WHERE id IN (SELECT id {waiting} LIMIT {_MAX_ROWS_PER_WRITE})", values
    )


# A marketing SMS has the opt-out hint always, or, by the setting `sms.opt_out_hint`, the first time and then once in
# thirty days.
_HINT_INTERVAL_MS = 30 * clock.DAY_MS


def is_hint_due(row: LedgerRow, sent_at: int | None = None) -> bool:
    """Return whether an SMS must contain the opt-out hint.

    `sent_at` (Unix milliseconds) is given for an SMS that has already been sent, so that its own hint is not taken for
    an earlier one.
    """
    last = scalar(
        "SELECT opt_out_hint_sent_at FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ?",
        (row.account_id, row.recipient_key),
    )
    # The time of the first attempt is used, so that a retry has the same text.
    return last == sent_at or is_hint_interval_over(last, row.first_attempt_at or clock.now_ms())


def is_hint_interval_over(opt_out_hint_sent_at: int | None, now: int) -> bool:
    """Return whether an SMS at `now` must contain the opt-out hint, given when the number last got it (None: never).

    Both times are in Unix milliseconds.
    """
    return (
        config.current().sms.opt_out_hint == "always"
        or opt_out_hint_sent_at is None
        or int(opt_out_hint_sent_at) <= now - _HINT_INTERVAL_MS
    )
