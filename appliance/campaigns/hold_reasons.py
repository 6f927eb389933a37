"""Why a campaign does not move, or not all of it: the one thing that matters most, in words, with its time."""

from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from appliance.campaigns.findings import persons, transport
from appliance.core import clock, data_dir, rate_limit, send_status
from appliance.core.send_status import Full, SendStatus
from appliance.sending.delivery import routing
from appliance.sending.delivery.groups import domain_of
from appliance.sending.delivery.routing import DIRECT
from appliance.sending.messages import sms_days, sms_senders, warm_up
from appliance.settings import config
from appliance.storage import disk_guard
from appliance.storage.models import Account, Campaign
from appliance.storage.open import fetch_one, rows, scalar

# Rows looked at for people of a group that is spared
_FEW = 500
# With the channel, the index has them in their order; without it all that wait would be sorted
_OPEN = "campaign_id = ? AND channel = ? AND status IN ('queued', 'held') AND run_id IS NULL"
_PAUSED = {
    None: "paused by a person",
    "bounce_rate": "paused: more than 5 % of the addresses do not exist",
    "complaint_rate": "paused: too many people called it spam",
    "transport": "paused: the mail server refused us 20 times in a row",
    "missed_start": "paused: the time to start was missed",
    "start_failed": "paused: it could not be started",
    "domain_failed": "paused: the domain it is from has lost its DNS records",
}


class Waiting(NamedTuple):
    """A code, words for people, and when it ends if that is known (milliseconds)."""

    reason: str
    text: str
    until: int | None = None


def of(campaign: Campaign) -> Waiting | None:
    """Return what a campaign waits for; None if it is not live, or moves."""
    if campaign.phase not in ("scheduled", "holding", "sending", "paused"):
        return None
    account = Account.get_by_id(campaign.account_id)
    zone = _zone(account.time_zone)
    found = _stopped(account) or _by_phase(campaign, zone)
    if found is not None or campaign.phase not in ("holding", "sending"):
        return found
    return _in_the_way(campaign, zone)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _stopped(account: Account) -> Waiting | None:
    if account.sending_stopped:
        more = f": {account.stop_reason}" if account.stop_reason else " by a person"
        return Waiting("sending_stopped", f"sending is stopped{more}")
    if data_dir.is_stopped(config.current().data_dir):
        return Waiting("stop_file", "a file STOP in the data directory stops all sending")
    return None


def _by_phase(campaign: Campaign, zone: ZoneInfo) -> Waiting | None:
    if campaign.phase == "paused":
        words = _PAUSED.get(campaign.pause_reason, f"paused: {campaign.pause_reason}".replace("_", " "))
        if campaign.channel == "sms":
            words = words.replace("mail server", "provider").replace("addresses", "numbers")
        return Waiting("paused", words)
    if campaign.phase == "scheduled":
        return Waiting("scheduled", f"goes out at {_at(campaign.scheduled_at, zone)}", campaign.scheduled_at)
    if campaign.phase == "holding" and (campaign.hold_until or 0) > clock.now_ms():
        return Waiting("held", f"held until {_at(campaign.hold_until, zone, seconds=True)}", campaign.hold_until)
    return None


def _in_the_way(campaign: Campaign, zone: ZoneInfo) -> Waiting | None:
    trouble = disk_guard.trouble()
    if trouble is not None:
        return Waiting("storage", trouble)
    first = fetch_one(
        f"SELECT provider, due_at FROM message WHERE {_OPEN} ORDER BY due_at, id LIMIT 1", _line(campaign)
    )
    if first is None:
        return None
    provider, due_at = first
    now = send_status.now(campaign.channel)
    is_sms = campaign.channel == "sms"
    for closed in now.closed:
        if closed.provider == provider:
            who = "provider of SMS" if is_sms else "mail server"
            words = f"the {who} takes nothing now ({closed.text}), next try at {_at(closed.until, zone, True)}"
            return Waiting("unreachable", words, closed.until)
    if is_sms:
        return _resting(campaign, due_at, zone) or _slowed(campaign, now, zone) or _retrying(campaign, due_at, zone)
    return _limited(campaign, now, provider, zone) or _retrying(campaign, due_at, zone)


def _resting(campaign: Campaign, due_at: int, zone: ZoneInfo) -> Waiting | None:
    """Say that it is night where all are who wait; whoever waits out anything else was tried before."""
    now = clock.now_ms()
    if due_at <= now:
        return None
    held = f"SELECT count(*) FROM message WHERE {_OPEN} AND status = 'held' AND due_at > ? AND attempts = 0"
    count = int(scalar(held, (*_line(campaign), now)))
    if not count:
        return None
    if sms_days.full_until(campaign.account_id, zone.key, now) is not None:
        return Waiting("parts_per_day", f"all parts of today are used up, next at {_at(due_at, zone)}", due_at)
    words = f"quiet hours where {persons(count)} {'lives' if count == 1 else 'live'}, next at {_at(due_at, zone)}"
    return Waiting("quiet_hours", words, due_at)


def _slowed(campaign: Campaign, now: SendStatus, zone: ZoneInfo) -> Waiting | None:
    """Say that all who send these SMS have sent what they may in an hour, or that one of them has to wait."""
    waits = {one.group: one for one in now.spared if one.until is not None}
    full = {one.name: one for one in now.full}
    names = sms_senders.limits(campaign.account_id, _next(campaign)) if waits or full else []
    if names and full.keys() >= set(names):
        first = min((full[name] for name in names), key=lambda one: one.until)
        words = f"limit of {first.per_hour} an hour {first.name}, next at {_at(first.until, zone)}"
        return Waiting("hour_limit", words, first.until)
    told = next((waits[name] for name in names if name in waits), None)
    if told is None:
        return None
    return Waiting("group", f"SMS {told.group} wait until {_at(told.until, zone, True)}: {told.text}", told.until)


def _limited(campaign: Campaign, now: SendStatus, provider: str, zone: ZoneInfo) -> Waiting | None:
    full = _full(campaign, now, provider)
    if full is not None:
        return Waiting("hour_limit", f"limit of {full.per_hour} an hour, next at {_at(full.until, zone)}", full.until)
    begins = _begins(campaign, now, provider, zone)
    if begins is not None:
        return begins
    spared = {one.group: one for one in now.spared if one.provider == provider and one.until is not None}
    for group in _groups(campaign) if spared else ():
        if group in spared:
            told = spared[group]
            words = f"mail to {group} waits until {_at(told.until, zone)}: {told.text}"
            return Waiting("group", words, told.until)
    return None


def _begins(campaign: Campaign, now: SendStatus, provider: str, zone: ZoneInfo) -> Waiting | None:
    """Say that the sender's domain is new and has sent what it may today, and when all will have gone at best."""
    domain = domain_of((campaign.sender or {}).get("email") or "")
    day = next((one.day for one in now.beginning if one.is_full and one.day.domain == domain), None)
    if day is None or provider != DIRECT:
        return None
    left = int(scalar(f"SELECT count(*) FROM message WHERE {_OPEN}", _line(campaign)))
    last = warm_up.ends_on(day, left)
    words = f"{warm_up.words(day)}; it goes on at {_at(day.over_at, zone)}"
    if last is not None:
        words += f" and may be done on {warm_up.shown_day(last)}"
    return Waiting("warm_up", words, day.over_at)


def _full(campaign: Campaign, now: SendStatus, provider: str) -> Full | None:
    """Return the limit of an hour that holds this campaign up: that of all, of its sender, or of all whom it is for."""
    if provider != config.current().email.transport:
        return None
    names = {full.name: full for full in now.full}
    found = names.get("*") or names.get(f"from {domain_of((campaign.sender or {}).get('email') or '')}")
    if found is None and names:
        groups = set(_groups(campaign))
        found = names.get(groups.pop()) if len(groups) == 1 else None
    return found


def _line(campaign: Campaign) -> tuple[int, str]:
    return campaign.id, campaign.channel


def _groups(campaign: Campaign) -> list[str]:
    """Return the groups of the people who come next."""
    asked = f"SELECT provider, recipient_key FROM message WHERE {_OPEN} ORDER BY due_at, id LIMIT {_FEW}"
    found = rows(asked, _line(campaign))
    return [*dict.fromkeys(routing.group_of(provider, address or "") for provider, address in found)]


def _next(campaign: Campaign) -> list[str]:
    """Return the numbers of the people who come next."""
    asked = f"SELECT recipient_key FROM message WHERE {_OPEN} ORDER BY due_at, id LIMIT {_FEW}"
    return [number or "" for (number,) in rows(asked, _line(campaign))]


def _retrying(campaign: Campaign, due_at: int, zone: ZoneInfo) -> Waiting | None:
    in_hand = "SELECT 1 FROM message WHERE status = 'sending' AND campaign_id = ? LIMIT 1"
    if due_at <= clock.now_ms() or scalar(in_hand, (campaign.id,)):
        return None
    sure = f"SELECT 1 FROM message WHERE {_OPEN} AND doubts = 0 LIMIT 1"
    if campaign.channel == "sms" and scalar(sure, _line(campaign)) is None:
        words = "the provider is asked for what it may have taken without saying so"
        return Waiting("retries", f"{words}, next at {_at(due_at, zone, True)}", due_at)
    return Waiting("retries", f"only retries are left, next at {_at(due_at, zone)}", due_at)


def _at(ms: int | None, zone: ZoneInfo, seconds: bool = False) -> str:
    """Write a moment in the account's zone: the hour, and the day if that is not today."""
    then = datetime.fromtimestamp((ms or 0) / 1000, UTC).astimezone(zone)
    today = datetime.fromtimestamp(clock.now(), UTC).astimezone(zone).date()
    hour = then.strftime("%H:%M:%S" if seconds else "%H:%M")
    return hour if then.date() == today else f"{then.strftime('%a')} {then.day} {then.strftime('%b')}, {hour}"


# How long a campaign takes to leave where its speed is limited: what the page says before anybody sends it.

_HOUR, _DAY = 3600.0, 86_400.0


class Forecast(NamedTuple):
    """The limit that is felt first, in words, and how many seconds a campaign takes with it."""

    limit: str
    seconds: float


def forecast_of(campaign: Campaign, count: int, sender: str | None) -> Forecast | None:
    """Return how long so many messages (of SMS: parts) take; None where nothing we know of limits them."""
    if count <= 0 or transport(campaign) == "capture":
        return None
    limits = _sms() if campaign.channel == "sms" else _email(sender)
    felt = [Forecast(words, _lasts(count, most, seconds)) for words, most, seconds in limits if most]
    return max(felt, key=lambda one: one.seconds, default=None)


def _lasts(count: int, most: float, seconds: float) -> float:
    """What is left of an hour's or a day's worth has to wait for the next one."""
    if seconds == 1:
        return count / most
    whole, rest = divmod(count - 1, int(most))
    return whole * seconds + (rest / most) * min(seconds, 60)


def _sms() -> list[tuple[str, float, float]]:
    here = config.current().sms
    return [
        (f"{here.rate_per_second:g} a second", here.rate_per_second, 1),
        (f"{here.parts_per_day:,} parts a day", here.parts_per_day, _DAY),
    ]


def _email(sender: str | None) -> list[tuple[str, float, float]]:
    here = config.current().email
    found = [
        (f"{here.rate_per_second:g} a second", here.rate_per_second, 1.0),
        (f"{here.rate_per_hour:,} an hour", float(here.rate_per_hour), _HOUR),
    ]
    for name, limit in map(rate_limit.read, here.sender_limits):
        if sender and name == domain_of(sender):
            found.append((f"{limit.per_second:g} a second from {name}", limit.per_second, 1.0))
            found.append((f"{limit.per_hour:,} an hour from {name}", float(limit.per_hour), _HOUR))
    return found
