"""Why a campaign, or a part of it, waits and until when, and a forecast of how long a send takes."""

from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from appliance.campaigns.findings import find_transport
from appliance.core import clock, data_dir, i18n
from appliance.core.i18n import gettext, gettext_noop, ngettext, translate_stored
from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.mx_routes import DIRECT, domain_of
from appliance.sending.messages import senders, sms_rules
from appliance.sending.messages.delivery_status import (
    ExhaustedLimit,
    SendStatus,
    get_send_status,
    list_transports,
    list_unavailable_transports,
)
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.senders import get_transport_limit_name
from appliance.sending.messages.transport_choice import TransportRules, TransportStates
from appliance.settings import config
from appliance.storage import disk_guard, send_lease
from appliance.storage.database import fetch_one, rows, scalar
from appliance.storage.models import Account, Campaign, Experiment

# The number of messages, the next to be sent, that are examined for their recipient groups or phone numbers.
_SAMPLE_SIZE = 500
# Messages that wait for the winner of an A/B test have no time.
_OPEN_OR_WAITING = "campaign_id = ? AND status IN ('queued', 'held') AND run_id IS NULL"
_OPEN = f"{_OPEN_OR_WAITING} AND due_at NOT NULL"
_PAUSE_TEXTS = {
    None: gettext_noop("paused by a user"),
    "bounce_rate": gettext_noop("paused: hard bounce rate is over 5%%"),
    "complaint_rate": gettext_noop("paused: the spam complaint rate is too high"),
    "transport": gettext_noop("paused: the mail server rejected or did not confirm 20 messages in a row"),
    "missed_start": gettext_noop("paused: the start time was missed"),
    "start_failed": gettext_noop("paused: it could not be started"),
    "may_have_started": gettext_noop("paused: the former server may have started it"),
    "domain_failed": gettext_noop("paused: the sending domain is no longer verified"),
}
_SMS_PAUSE_TEXTS = {
    "bounce_rate": gettext_noop("paused: more than 5%% of the numbers are invalid"),
    "transport": gettext_noop("paused: the provider rejected 20 messages in a row"),
}


class HoldReason(NamedTuple):
    """Why a campaign waits: a code, a text to show, and when the wait ends in Unix milliseconds (None: unknown)."""

    reason: str
    text: str
    until: int | None = None


def find_hold_reason(campaign: Campaign) -> HoldReason | None:
    """Return why a campaign waits, or None if nothing delays it.

    A campaign that is a draft, completed or cancelled does not wait.
    """
    if campaign.phase not in ("scheduled", "holding", "sending", "paused"):
        return None
    account = Account.get_by_id(campaign.account_id)
    zone = clock.find_time_zone(account.time_zone) or ZoneInfo("UTC")
    reason = _find_account_stop(account) or _find_phase_reason(campaign, zone)
    if reason is not None or campaign.phase not in ("holding", "sending"):
        return reason
    return _find_sending_reason(campaign, zone)


def _find_account_stop(account: Account) -> HoldReason | None:
    if account.sending_stopped:
        if account.stop_reason:
            return HoldReason("sending_stopped", gettext("sending is stopped: %(reason)s", reason=account.stop_reason))
        return HoldReason("sending_stopped", gettext("sending is stopped by a user"))
    if data_dir.has_stop_file(config.current().data_dir):
        return HoldReason("stop_file", gettext("a file STOP in the data directory stops all sending"))
    return None


def _find_phase_reason(campaign: Campaign, zone: ZoneInfo) -> HoldReason | None:
    if campaign.phase == "paused":
        texts = _PAUSE_TEXTS | (_SMS_PAUSE_TEXTS if campaign.channel == "sms" else {})
        if campaign.pause_reason in texts:
            return HoldReason("paused", gettext(texts[campaign.pause_reason]))
        return HoldReason("paused", gettext("paused: %(reason)s", reason=str(campaign.pause_reason).replace("_", " ")))
    if campaign.phase == "scheduled":
        text = gettext("goes out at %(time)s", time=_format_time(campaign.scheduled_at, zone))
        return HoldReason("scheduled", text, campaign.scheduled_at)
    if campaign.phase == "holding" and (campaign.hold_until or 0) > clock.now_ms():
        text = gettext("held until %(time)s", time=_format_time(campaign.hold_until, zone, seconds=True))
        return HoldReason("held", text, campaign.hold_until)
    return None


def _find_sending_reason(campaign: Campaign, zone: ZoneInfo) -> HoldReason | None:
    storage_problem = disk_guard.send_blocker()
    if storage_problem is not None:
        return HoldReason("storage", storage_problem)
    lease_problem = send_lease.find_blocker()
    if lease_problem is not None:
        return HoldReason("lease", lease_problem)
    next_message = fetch_one(
        f"SELECT {COLUMNS}, due_at FROM message WHERE {_OPEN} ORDER BY due_at, id LIMIT 1", (campaign.id,)
    )
    if next_message is None:
        return _find_test(campaign, zone)
    status, due_at = get_send_status(campaign.channel), next_message[-1]
    row = LedgerRow._make(next_message[:-1])
    if row.variant is not None and due_at > clock.now_ms() and not row.attempts:
        text = gettext("the next variant goes out at %(time)s", time=_format_time(due_at, zone))
        return HoldReason("variant", text, due_at)
    is_sms = campaign.channel == "sms"
    if campaign.local_time is not None and due_at > clock.now_ms() and not row.attempts:
        quiet = _find_quiet_hours(campaign, due_at, zone) if is_sms else None
        time = _format_time(due_at, zone)
        text = (
            gettext("the next time zone gets it at %(time)s", time=time)
            if campaign.best_hour_until is None
            else gettext("the next contacts get it at %(time)s", time=time)
        )
        return quiet or HoldReason("local_time", text, due_at)
    provider = _choose_transport(row, status)
    for transport in status.paused_transports:
        if transport.provider == provider:
            values = {"reason": translate_stored(transport.text), "time": _format_time(transport.until, zone, True)}
            text = (
                gettext("the SMS provider accepts no messages now (%(reason)s), next try at %(time)s", **values)
                if is_sms
                else gettext("the mail server accepts no messages now (%(reason)s), next try at %(time)s", **values)
            )
            return HoldReason("unreachable", text, transport.until)
    if is_sms:
        return (
            _find_quiet_hours(campaign, due_at, zone)
            or _find_slowdown(campaign, status, zone)
            or _find_retry(campaign, due_at, zone)
        )
    return (
        _find_calendar(campaign, due_at, zone)
        or _find_rate_limit(campaign, status, provider, zone)
        or _find_retry(campaign, due_at, zone)
    )


def _find_calendar(campaign: Campaign, due_at: int, zone: ZoneInfo) -> HoldReason | None:
    """Return the reason if emails are held because the account's calendar allows none now, and none is due.

    `due_at` is the earliest due time of the open messages.
    """
    if due_at <= clock.now_ms() or campaign.account.marketing_calendar is None:
        return None
    sql = f"SELECT count(*) FROM message WHERE {_OPEN} AND status = 'held' AND due_at >= ? AND attempts = 0"
    count = int(scalar(sql, (campaign.id, due_at)))
    if not count:
        return None
    text = ngettext(
        "%(num)s contact waits for an allowed time, next at %(time)s",
        "%(num)s contacts wait for an allowed time, next at %(time)s",
        count,
        time=_format_time(due_at, zone),
    )
    return HoldReason("calendar", text, due_at)


def _find_test(campaign: Campaign, zone: ZoneInfo) -> HoldReason | None:
    """Return the reason if the only open messages wait for the winner of an A/B test, else None."""
    is_waiting = fetch_one(f"SELECT 1 FROM message WHERE {_OPEN_OR_WAITING} AND due_at IS NULL LIMIT 1", (campaign.id,))
    if is_waiting is None:
        return None
    experiment = Experiment.get(Experiment.campaign == campaign.id)
    if experiment.decide_at <= clock.now_ms():
        return HoldReason("winner", gettext("waiting for your choice of the winner of the A/B test"))
    until = _format_time(experiment.decide_at, zone)
    text = gettext("waiting for the winner of the A/B test, until %(time)s", time=until)
    return HoldReason("winner", text, experiment.decide_at)


def _choose_transport(row: LedgerRow, status: SendStatus) -> str:
    """Return the transport of the next message, by the rules for it and the transports that are unavailable now."""
    throttled = ((item.provider, item.group) for item in status.throttled_groups if item.until is not None)
    states = TransportStates(frozenset(list_unavailable_transports(status)), frozenset(), frozenset(throttled))
    return TransportRules(config.current().email).choose(row, states).provider


def _find_quiet_hours(campaign: Campaign, due_at: int, zone: ZoneInfo) -> HoldReason | None:
    """Return the reason if messages are held for quiet hours or the daily limit of SMS parts, and none is due now.

    `due_at` is the earliest due time of the open messages. Messages that wait for a retry are not counted; they have
    `attempts` above 0.
    """
    now = clock.now_ms()
    if due_at <= now:
        return None
    sql = f"SELECT count(*) FROM message WHERE {_OPEN} AND status = 'held' AND due_at > ? AND attempts = 0"
    count = int(scalar(sql, (campaign.id, now)))
    if not count:
        return None
    if sms_rules.get_parts_limit_end(campaign.account_id, zone.key, now) is not None:
        text = gettext("daily SMS limit reached, next at %(time)s", time=_format_time(due_at, zone))
        return HoldReason("parts_per_day", text, due_at)
    text = ngettext(
        "quiet hours for %(num)s contact, next at %(time)s",
        "quiet hours for %(num)s contacts, next at %(time)s",
        count,
        time=_format_time(due_at, zone),
    )
    return HoldReason("quiet_hours", text, due_at)


def _find_slowdown(campaign: Campaign, status: SendStatus, zone: ZoneInfo) -> HoldReason | None:
    """Return the reason if all senders of the next SMS are at their hourly limit, or one is throttled; else None."""
    throttled = {limit.group: limit for limit in status.throttled_groups if limit.until is not None}
    exhausted = {limit.name: limit for limit in status.exhausted_limits}
    names = (
        senders.list_limit_names(campaign.account_id, _list_next_numbers(campaign)) if throttled or exhausted else []
    )
    if names and exhausted.keys() >= set(names):
        first = min((exhausted[name] for name in names), key=lambda limit: limit.until)
        text = gettext(
            "limit of %(limit)s an hour %(name)s, next at %(time)s",
            limit=first.per_hour, name=first.name, time=_format_time(first.until, zone),
        )  # fmt: skip
        return HoldReason("hour_limit", text, first.until)
    state = next((throttled[name] for name in names if name in throttled), None)
    if state is None:
        return None
    text = gettext(
        "SMS %(group)s wait until %(time)s: %(reason)s",
        group=state.group, time=_format_time(state.until, zone, True), reason=translate_stored(state.text),
    )  # fmt: skip
    return HoldReason("group", text, state.until)


def _find_rate_limit(campaign: Campaign, status: SendStatus, provider: str, zone: ZoneInfo) -> HoldReason | None:
    exhausted = _find_full_quota(campaign, status, provider)
    if exhausted is not None:
        text = gettext(
            "limit of %(limit)s an hour, next at %(time)s",
            limit=exhausted.per_hour, time=_format_time(exhausted.until, zone),
        )  # fmt: skip
        return HoldReason("hour_limit", text, exhausted.until)
    warm_up = _find_warm_up(campaign, status, provider, zone)
    if warm_up is not None:
        return warm_up
    throttled = {
        state.group: state
        for state in status.throttled_groups
        if state.provider == provider and state.until is not None
    }
    for group in _list_recipient_groups(campaign) if throttled else ():
        if group in throttled:
            until, reason = throttled[group].until, translate_stored(throttled[group].text)
            text = gettext(
                "email to %(group)s waits until %(time)s: %(reason)s",
                group=group, time=_format_time(until, zone), reason=reason,
            )  # fmt: skip
            return HoldReason("group", text, until)
    return None


def _find_warm_up(campaign: Campaign, status: SendStatus, provider: str, zone: ZoneInfo) -> HoldReason | None:
    """Return the reason if the sender's domain has used up its warm-up quota of the day, else None.

    The text of the reason names the day on which the send may end. Warm-up applies to direct delivery only.
    """
    domain = domain_of((campaign.sender or {}).get("email") or "")
    day = next(
        (warming.day for warming in status.warming_domains if warming.is_full and warming.day.domain == domain), None
    )
    if day is None or provider != DIRECT:
        return None
    remaining = int(scalar(f"SELECT count(*) FROM message WHERE {_OPEN}", (campaign.id,)))
    last_day = senders.estimate_end(day, remaining)
    values = {"state": senders.describe_full_day(day), "time": _format_time(day.ends_at, zone)}
    if last_day is None:
        text = gettext("%(state)s; sending resumes at %(time)s", **values)
    else:
        text = gettext(
            "%(state)s; sending resumes at %(time)s and may end on %(day)s", day=senders.format_day(last_day), **values
        )
    return HoldReason("warm_up", text, day.ends_at)


def _find_full_quota(campaign: Campaign, status: SendStatus, provider: str) -> ExhaustedLimit | None:
    """Return the exhausted hourly limit that stops the whole campaign, or None.

    This is the global limit, the limit of the sender's domain, or, if the next messages are all for one recipient
    group, the limit of that group.
    """
    if provider not in list_transports(config.current().email):
        return None
    limits = {limit.name: limit for limit in status.exhausted_limits}
    exhausted = (
        limits.get("*")
        or limits.get(get_transport_limit_name(provider))
        or limits.get(f"from {domain_of((campaign.sender or {}).get('email') or '')}")
    )
    if exhausted is None and limits:
        groups = set(_list_recipient_groups(campaign))
        exhausted = limits.get(groups.pop()) if len(groups) == 1 else None
    return exhausted


def _list_recipient_groups(campaign: Campaign) -> list[str]:
    """Return the recipient groups of the next `_SAMPLE_SIZE` messages, each once."""
    sql = f"SELECT provider, recipient_key FROM message WHERE {_OPEN} ORDER BY due_at, id LIMIT {_SAMPLE_SIZE}"
    keys = rows(sql, (campaign.id,))
    return [*dict.fromkeys(mx_routes.get_recipient_group(provider, address or "") for provider, address in keys)]


def _list_next_numbers(campaign: Campaign) -> list[str]:
    """Return the phone numbers of the next `_SAMPLE_SIZE` messages."""
    sql = f"SELECT recipient_key FROM message WHERE {_OPEN} ORDER BY due_at, id LIMIT {_SAMPLE_SIZE}"
    return [number or "" for (number,) in rows(sql, (campaign.id,))]


def _find_retry(campaign: Campaign, due_at: int, zone: ZoneInfo) -> HoldReason | None:
    in_hand = "SELECT 1 FROM message WHERE status = 'sending' AND campaign_id = ? LIMIT 1"
    if due_at <= clock.now_ms() or scalar(in_hand, (campaign.id,)):
        return None
    confirmed = f"SELECT 1 FROM message WHERE {_OPEN} AND uncertain_count = 0 LIMIT 1"
    if campaign.channel == "sms" and scalar(confirmed, (campaign.id,)) is None:
        text = gettext(
            "checking with the provider which unconfirmed messages it accepted, next at %(time)s",
            time=_format_time(due_at, zone, True),
        )
        return HoldReason("retries", text, due_at)
    text = gettext("only retries are left, next at %(time)s", time=_format_time(due_at, zone))
    return HoldReason("retries", text, due_at)


def _format_time(ms: int | None, zone: ZoneInfo, seconds: bool = False) -> str:
    """Format Unix milliseconds in the account's time zone, as `14:05`, or `Tue 3 Mar, 14:05` if it is not today.

    `seconds` adds the seconds.
    """
    local_time = datetime.fromtimestamp((ms or 0) / 1000, UTC).astimezone(zone)
    today = datetime.fromtimestamp(clock.now(), UTC).astimezone(zone).date()
    hour = local_time.strftime("%H:%M:%S" if seconds else "%H:%M")
    return hour if local_time.date() == today else f"{i18n.format_date(local_time, 'MMMEd')}, {hour}"


# The forecast of how long a send takes under the configured limits, shown before the send.

_HOUR, _DAY = 3600.0, 86_400.0


class Forecast(NamedTuple):
    """The limit that slows a campaign down most, as text, and the seconds that the send takes under it."""

    limit: str
    seconds: float


def forecast_duration(campaign: Campaign, count: int, sender: str | None) -> Forecast | None:
    """Return how long it takes to send `count` messages (for SMS: parts), or None if no configured limit applies.

    `sender` is the From address of an email campaign.
    """
    if count <= 0 or find_transport(campaign) == "capture":
        return None
    limits = _list_sms_limits() if campaign.channel == "sms" else _list_email_limits(sender)
    forecasts = [Forecast(label, _estimate_seconds(count, limit, seconds)) for label, limit, seconds in limits if limit]
    return max(forecasts, key=lambda forecast: forecast.seconds, default=None)


def _estimate_seconds(count: int, limit: float, seconds: float) -> float:
    """Return the seconds that `count` messages take at `limit` messages per period of `seconds`.

    A limit per second spreads the messages evenly. With a limit per hour or day, messages over the limit wait for the
    next period; the messages within a period are assumed to take up to a minute.
    """
    if seconds == 1:
        return count / limit
    full_periods, remainder = divmod(count - 1, int(limit))
    return full_periods * seconds + (remainder / limit) * min(seconds, 60)


def _list_sms_limits() -> list[tuple[str, float, float]]:
    settings = config.current().sms
    return [
        (gettext("%(limit)s a second", limit=f"{settings.rate_per_second:g}"), settings.rate_per_second, 1),
        (
            gettext("%(limit)s SMS parts a day", limit=i18n.format_number(settings.parts_per_day)),
            settings.parts_per_day,
            _DAY,
        ),
    ]


def _list_email_limits(sender: str | None) -> list[tuple[str, float, float]]:
    settings = config.current().email
    limits = [
        (gettext("%(limit)s a second", limit=f"{settings.rate_per_second:g}"), settings.rate_per_second, 1.0),
        (
            gettext("%(limit)s an hour", limit=i18n.format_number(settings.rate_per_hour)),
            float(settings.rate_per_hour),
            _HOUR,
        ),
    ]
    for name, limit in map(config.parse_limit, settings.sender_limits):
        if sender and name == domain_of(sender):
            per_second = gettext("%(limit)s a second from %(name)s", limit=f"{limit.per_second:g}", name=name)
            per_hour = gettext("%(limit)s an hour from %(name)s", limit=i18n.format_number(limit.per_hour), name=name)
            limits += [(per_second, limit.per_second, 1.0), (per_hour, float(limit.per_hour), _HOUR)]
    return limits
