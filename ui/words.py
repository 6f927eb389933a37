"""How values are written for people: numbers, times in the account's zone, states and reasons."""

import re
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from appliance.content.designs import readable as merge_tags
from appliance.core import clock
from ui.happenings import event as event
from ui.happenings import is_ours as is_ours

# Why an address gets nothing, as people read it.

# Why an address gets nothing, the words of a filter and of a row; and what that means.
SUPPRESSIONS = {
    "hard_bounce": "Does not exist",
    "soft_bounce": "Keeps failing",
    "complaint": "Called it spam",
    "manual": "Blocked by hand",
    "erased": "Erased",
    "stop_keyword": "Answered STOP",
}
SUPPRESSED = {
    "hard_bounce": "Its server said that there is no such recipient.",
    "soft_bounce": "Five messages within 30 days could not be delivered.",
    "complaint": "They reported a message as unwanted, and are unsubscribed.",
    "manual": "Somebody of your team decided so.",
    "erased": "They asked to be forgotten; only a mark that cannot be read is left.",
    "stop_keyword": "They get no more SMS.",
}


# How texts that also speak to programs are said to people: as sentences, without the names of settings.

# What the language of merge tags says of a fault, and how people say it
_MERGE_FAULTS = {
    "expected '}}'": "A merge tag is not closed: }} is missing", "missing expression": "A merge tag says nothing",
    "expected a primitive expression, found end of expression": "A merge tag says nothing",
}  # fmt: skip
# Names of settings and of standards in brackets, which say something to who writes a program
_NAMES = re.compile(r" \((?:[a-z]+[._][a-z_.]+(?: of the account)?(?:, [a-z]+[._][a-z_.]+)*|RFC \d+)\)")


def plain(text: str) -> str:
    """Leave out of a text what only who writes a program reads."""
    return _NAMES.sub("", text)


def sentence(text: str) -> str:
    """Write a text as a sentence: a capital first, a full stop last. A domain or an address keeps its letters."""
    text = plain(text.strip())
    for fault, said in _MERGE_FAULTS.items():
        text = text.replace(fault, said)
    is_name = "." in text.partition(" ")[0][:-1]
    return (text[:1] if is_name else text[:1].upper()) + text[1:] + ("" if text.endswith((".", "?", ")", ":")) else ".")


def inside(text: str) -> str:
    """Say words in the middle of a sentence; names in capitals stay as they are."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


# The zone of the account whose page is being rendered.
zone: ContextVar[tzinfo] = ContextVar("zone", default=UTC)

THIN = "\u202f"

PHASES = {
    "draft": ("draft", "Draft"),
    "scheduled": ("sched", "Scheduled"),
    "holding": ("sending", "Starting"),
    "sending": ("sending", "Sending"),
    "paused": ("paused", "Paused"),
    "completed": ("done", "Done"),
    "cancelled": ("stopped", "Stopped"),
}
STATUSES = {
    "queued": ("draft", "Waiting"),
    "held": ("sched", "Held"),
    "sending": ("sending", "Sending"),
    "sent": ("done", "Handed over"),
    "delivered": ("done", "Delivered"),
    "bounced": ("failed", "Bounced"),
    "complained": ("failed", "Complained"),
    "failed": ("failed", "Refused"),
    "skipped": ("paused", "Skipped"),
    "cancelled": ("stopped", "Stopped"),
    "uncertain": ("paused", "In doubt"),
}
_REASONS = {
    "unsubscribed": "Unsubscribed",
    "no_channel": "No email address",
    "invalid_address": "The address is not valid",
    "not_verified": "The address was never confirmed",
    "no_consent": "No consent on record",
    "country_not_allowed": "SMS do not go to their country",
    "sender_not_allowed": "Nobody who may write to their country sends it",
    "too_late": "Too late for an answer",
    "transactional_disabled": "Service messages are switched off",
    "frequency_cap": "Had enough messages lately",
    "quiet_hours_expired": "Quiet hours did not end in time",
    "overdue_on_resume": "Too late after the pause",
    "render_error": "The content could not be rendered for them",
    "contact_deleted": "The contact was deleted",
    "sender_not_ready": "The sender may not be used yet",
    "smtputf8_unsupported": "The mail server cannot take this address",
    "bounce_rate": "More than 5 % of the addresses do not exist",
    "complaint_rate": "Too many people called it spam",
    "transport": "The mail server refused us 20 times in a row",
    "missed_start": "The time to start was missed",
    "domain_failed": "The domain it is from has lost its DNS records",
}
_SMS_REASONS = {
    "no_channel": "No phone number",
    "invalid_address": "No number that SMS go to",
    "transport": "The provider refused us 20 times in a row",
    "bounce_rate": "More than 5 % of the numbers do not exist",
}
# Acts of consent: icon and words; and who did them.
CONSENTS = {
    "opt_in": ("circle-check", "Agreed to receive messages"),
    "opt_out": ("ban", "Unsubscribed"),
    "requested": ("mail", "Was asked to confirm"),
    "confirmed": ("circle-check", "Confirmed"),
    "suppressed": ("ban", "Put on this list"),
    "lifted": ("circle-check", "Taken off this list"),
}
BY = {"recipient": "by their own act", "operator": "by your team", "service": "by the service"}


def number(value: int | float | None) -> str:
    """Write a number with thin spaces between thousands."""
    return "—" if value is None else f"{value:,}".replace(",", THIN)


def count(value: int, one: str, many: str) -> str:
    """Write a number with its noun: `1 person`, `12 384 people`."""
    return f"{number(value)} {one if value == 1 else many}"


def people(value: int) -> str:
    """Write a number of people."""
    return count(value, "person", "people")


def percent(part: int, whole: int) -> str:
    """Write a share; tiny and nearly whole shares are not rounded away."""
    if not whole:
        return "—"
    share = 100 * part / whole
    if 0 < share < 0.05:
        return "under 0.1 %"
    rounded = f"{share:.1f}" if 0 < share < 10 or 99 < share < 100 else f"{share:.0f}"
    return f"{rounded.removesuffix('.0')} %"


def share(part: float) -> str:
    """Write a share that is known as a part of one."""
    return percent(round(part * 1_000_000), 1_000_000) if part else "0 %"


def size(value: int) -> str:
    """Write a number of bytes."""
    if value < 1000:
        return f"{value} bytes"
    if value < 1_000_000:
        return f"{value / 1000:.0f} KB"
    return f"{value / 1_000_000:.{1 if value < 100_000_000 else 0}f} MB"


def local(ms: int) -> datetime:
    """Return a moment in the account's zone."""
    return datetime.fromtimestamp(ms / 1000, zone.get())


def when(ms: int | None) -> str:
    """Write a moment as people say it: `today 14:05`, `Fri 27 Nov, 09:00`."""
    if ms is None:
        return "—"
    then, now = local(ms), local(clock.now_ms())
    days = (then.date() - now.date()).days
    hour = then.strftime("%H:%M")
    named = {0: "today", -1: "yesterday", 1: "tomorrow"}.get(days)
    if named:
        return f"{named} {hour}"
    if then.year == now.year or abs(days) < 120:
        return f"{then.strftime('%a')} {then.day} {then.strftime('%b')}, {hour}"
    return f"{then.day} {then.strftime('%b %Y')}, {hour}"


def full(ms: int) -> str:
    """Write a moment with everything: day, date, time, zone."""
    then = local(ms)
    return f"{then.strftime('%A')} {then.day} {then.strftime('%B %Y, %H:%M:%S')} {then.tzname()}"


def time(ms: int | None) -> Markup:
    """Write a moment as people say it, with the whole of it on hover and for machines."""
    if ms is None:
        return Markup("—")
    machine = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="%s" title="%s">%s</time>') % (machine, full(ms), when(ms))


def moment(text: str) -> int | None:
    """Read a time as the API writes it."""
    return clock.parse(text)


def day(ms: int) -> str:
    """Write the day of a moment as a heading."""
    then, now = local(ms).date(), local(clock.now_ms()).date()
    if then == now:
        return "Today"
    if then == now - timedelta(days=1):
        return "Yesterday"
    year = "" if then.year == now.year else f" {then.year}"
    return f"{then.strftime('%A')} {then.day} {then.strftime('%B')}{year}"


def day_name(ms: int) -> str:
    """Write the day of a moment in full: `Friday 20 November`."""
    return f"{local(ms).strftime('%A')} {local(ms).day} {local(ms).strftime('%B')}"


def clock_time(ms: int) -> str:
    """Write only the hour and minute of a moment."""
    return local(ms).strftime("%H:%M")


def duration(seconds: float) -> str:
    """Write how long something will take, roughly."""
    if seconds < 50:
        return "less than a minute"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"about {minutes} min"
    hours = round(seconds / 3600)
    days = round(hours / 24)
    if days < 730:
        return f"about {hours} hours" if hours < 48 else f"about {days} days"
    return f"about {round(days / 365)} years"


def ago(ms: int) -> str:
    """Write how long ago a moment was, roughly; of another day, when it was."""
    minutes = max(0, clock.now_ms() - ms) // 60_000
    if minutes < 1:
        return "a moment ago"
    if minutes < 60:
        return f"{count(minutes, 'minute', 'minutes')} ago"
    return f"{count(minutes // 60, 'hour', 'hours')} ago" if minutes < 24 * 60 else when(ms)


def reason(code: str | None, channel: str = "email") -> str:
    """Say a reason of skipping or pausing in words."""
    if not code:
        return "No reason given"
    if channel == "sms" and code in _SMS_REASONS:
        return _SMS_REASONS[code]
    if code.startswith("suppressed_"):
        why = SUPPRESSIONS.get(code.removeprefix("suppressed_"))
        return f"On the do-not-send list ({inside(why)})" if why else "On the do-not-send list"
    return _REASONS.get(code) or code.replace("_", " ").capitalize()


def readable(text: str | None) -> str:
    """Return a text with its merge tags as people read them; nothing for None."""
    return merge_tags.readable(text or "")


def name(contact: Any) -> str:
    """Return what to call a person: their name, else their address, else their number."""
    full_name = " ".join(part for part in (contact.first_name, contact.last_name) if part)
    return full_name or next((channel.value for channel in contact.channels), f"Person {contact.id}")


def email_of(contact: Any) -> Any:
    """Return the email channel of a person, or None."""
    return next((channel for channel in contact.channels if channel.kind == "email"), None)


def phone_of(contact: Any) -> Any:
    """Return the phone channel of a person, or None."""
    return next((channel for channel in contact.channels if channel.kind == "phone"), None)


def initials(text: str) -> str:
    """Return one or two letters that stand for a name."""
    text = text.partition("<")[0].strip(' "') or text.strip("<>")
    parts = [part for part in text.partition("@")[0].replace(".", " ").split() if part[:1].isalnum()]
    return "".join(part[0] for part in parts[:2]) or "?"


def listed(names: list[str]) -> str:
    """Write several things in a row: a, b and c."""
    return " and ".join(one for one in (", ".join(names[:-1]), names[-1] if names else "") if one)


def greeting(ms: int) -> str:
    """Greet by the hour of the account's zone."""
    hour = local(ms).hour
    return "Good morning" if 4 <= hour < 12 else "Good afternoon" if 12 <= hour < 18 else "Good evening"


def query(values: dict[str, Any], last_is_open: bool = False) -> str:
    """Write a query string of what is set; with `last_is_open` the last name is left for a number to follow."""
    names = list(values)
    keep = {name: value for name, value in values.items() if value not in ("", None)}
    if last_is_open:
        keep.pop(names[-1], None)
        return "?" + urlencode(keep) + ("&" if keep else "")
    return "?" + urlencode(keep) if keep else ""


FILTERS = {
    "number": number, "people": people, "size": size, "when": when, "time": time, "day": day, "initials": initials,
    "reason": reason, "duration": duration, "clock_time": clock_time, "query": query, "full_time": full,
    "moment": moment, "readable": readable,
}  # fmt: skip
