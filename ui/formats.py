"""Format values for pages: numbers, times in the account's time zone, labels of states, reasons and events."""

import math
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from appliance.content.designs import merge as merge_tags
from appliance.core import clock
from appliance.sending.domains import records

# Icon, colour class and label of each event.
_EVENTS = {
    "contact_add": ("user-plus", "good", "Added"),
    "contact_update": ("pencil", "", "Changed"),
    "contact_delete": ("trash-2", "", "Deleted"),
    "list_add": ("list", "", "Joined a list"),
    "list_remove": ("list", "", "Left a list"),
    "opt_in": ("circle-check", "good", "Agreed to receive messages"),
    "opt_out": ("ban", "warn", "Unsubscribed"),
    "double_opt_in_requested": ("mail", "hold", "Was asked to confirm"),
    "double_opt_in_confirmed": ("circle-check", "good", "Confirmed the address"),
    "form_submitted": ("pencil", "info", "Filled in a form"),
    "erase_requested": ("trash-2", "warn", "Asked to be erased"),
    "email_sent": ("send", "info", "Email handed over"),
    "email_delivered": ("mail", "good", "Email delivered"),
    "email_opened": ("mail-open", "info", "Opened an email"),
    "email_clicked": ("mouse-pointer-click", "info", "Clicked a link"),
    "email_soft_bounced": ("circle-alert", "warn", "Could not be delivered for now"),
    "email_bounced": ("circle-alert", "bad", "Bounced"),
    "email_complained": ("circle-alert", "bad", "Called it spam"),
    "email_failed": ("circle-alert", "bad", "Email refused"),
    "email_skipped": ("ban", "warn", "Email skipped"),
    "email_replied": ("reply", "good", "Replied"),
    "sms_sent": ("send", "info", "SMS handed over"),
    "sms_delivered": ("check", "good", "SMS delivered"),
    "sms_clicked": ("mouse-pointer-click", "info", "Clicked a link in an SMS"),
    "sms_failed": ("circle-alert", "bad", "SMS not delivered"),
    "sms_skipped": ("ban", "warn", "SMS skipped"),
    "message": ("reply", "good", "Wrote an SMS"),
    "keyword": ("reply", "good", "Sent a keyword"),
    "campaign_started": ("send", "info", "Campaign started"),
    "campaign_paused": ("pause", "warn", "Campaign paused"),
    "campaign_completed": ("circle-check", "good", "Campaign done"),
    "contact_merge": ("users", "", "Became one with another contact"),
    "tag_add": ("plus", "", "Got a tag"),
    "tag_remove": ("x", "", "Lost a tag"),
    "segment_enter": ("users", "", "Came into a segment"),
    "segment_exit": ("users", "", "Left a segment"),
    "date_reached": ("clock", "info", "A date came round"),
    "flow_enter": ("play", "info", "Entered a flow"),
    "flow_goal": ("circle-check", "good", "Reached the goal of a flow"),
    "flow_exit": ("log-out", "", "Left a flow"),
    "domain_verified": ("circle-check", "good", "Sending domain verified"),
    "domain_failed": ("circle-alert", "bad", "Sending domain failed"),
    "webhook_disabled": ("circle-alert", "bad", "Webhook switched off"),
}


def event(name: str) -> tuple[str, str, str]:
    """Return the icon, the colour class and the label of an event; an unknown event is labelled with its name."""
    return _EVENTS.get(name) or ("zap", "hold", name.replace("_", " ").capitalize())


def is_ours(name: str) -> bool:
    """Return whether events of this name are recorded by the service itself."""
    return name in _EVENTS


# The label of each suppression reason; `SUPPRESSED` has a sentence that explains it.
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


# Errors of the merge tag parser, and the texts shown instead.
_MERGE_FAULTS = {
    "expected '}}'": "A merge tag is not closed: }} is missing", "missing expression": "A merge tag says nothing",
    "expected a primitive expression, found end of expression": "A merge tag says nothing",
}  # fmt: skip
# A setting name or an RFC number in brackets, which only programmers need.
_SETTING_NAMES = re.compile(r" \((?:[a-z]+[._][a-z_.]+(?: of the account)?(?:, [a-z]+[._][a-z_.]+)*|RFC \d+)\)")


def strip_setting_names(text: str) -> str:
    """Return a text without the setting names and RFC numbers in brackets, which only programmers need."""
    return _SETTING_NAMES.sub("", text)


def sentence(text: str) -> str:
    """Return a message as a sentence, with a capital letter and a full stop.

    Setting names are removed and merge tag errors reworded. A domain or address at the start keeps its small letter.
    """
    text = strip_setting_names(text.strip())
    for fault, message in _MERGE_FAULTS.items():
        text = text.replace(fault, message)
    is_name = "." in text.partition(" ")[0][:-1]
    return (text[:1] if is_name else text[:1].upper()) + text[1:] + ("" if text.endswith((".", "?", ")", ":")) else ".")


def uncapitalize(text: str) -> str:
    """Return a phrase with a small first letter, for the middle of a sentence; an acronym at the start is unchanged."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


# The time zone of the account whose page is being rendered.
current_zone: ContextVar[tzinfo] = ContextVar("zone", default=UTC)

THIN_SPACE = "\u202f"

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
    "no_consent": "Not subscribed",
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
    "no_consent": "No consent to SMS on record",
    "no_channel": "No phone number",
    "invalid_address": "No number that SMS go to",
    "transport": "The provider refused us 20 times in a row",
    "bounce_rate": "More than 5 % of the numbers do not exist",
}
# Icon and label of each consent event; below, the label of each kind of actor that causes such an event.
CONSENT_LABELS = {
    "opt_in": ("circle-check", "Agreed to receive messages"),
    "opt_out": ("ban", "Unsubscribed"),
    "requested": ("mail", "Was asked to confirm"),
    "confirmed": ("circle-check", "Confirmed"),
    "suppressed": ("ban", "Put on this list"),
    "lifted": ("circle-check", "Taken off this list"),
    "import_undone": ("undo-2", "Import undone"),
}
CONSENT_ACTOR_LABELS = {"recipient": "by their own act", "operator": "by your team", "service": "by the service"}


def number(value: int | float | None) -> str:
    """Format a number with thin spaces between thousands; None as a dash."""
    return "—" if value is None else f"{value:,}".replace(",", THIN_SPACE)


def data_label(path: str, headings: Mapping[str, str]) -> str:
    """Return the label of a path of custom data: the heading of the imported file, else the path with a capital."""
    heading = headings.get(path, path)
    if heading != path:
        return heading
    words = path.replace("_", " ")
    return words if words != words.lower() else words[:1].upper() + words[1:]


def plain_number(value: int | float) -> str:
    """Format a number of custom data as people write it, without separators: `2010` also for 2010.0."""
    return str(int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value)


def count(value: int, singular: str, plural: str) -> str:
    """Format a number with its noun: `1 person`, `12 384 people`."""
    return f"{number(value)} {singular if value == 1 else plural}"


def count_people(value: int) -> str:
    """Format a number of people."""
    return count(value, "person", "people")


def percent(part: int, total: int) -> str:
    """Format `part` of `total` as a percentage; a dash if `total` is 0.

    A share above 0 is never shown as 0 %, and a share below 1 never as 100 %.
    """
    if not total:
        return "—"
    share = 100 * part / total
    if 0 < share < 0.05:
        return "under 0.1 %"
    rounded = f"{share:.1f}" if 0 < share < 10 or 99 < share < 100 else f"{share:.0f}"
    return f"{rounded.removesuffix('.0')} %"


def share(part: float) -> str:
    """Format a share between 0 and 1 as a percentage."""
    return percent(round(part * 1_000_000), 1_000_000) if part else "0 %"


def size(value: int) -> str:
    """Format a number of bytes in bytes, KB or MB (powers of 1000)."""
    if value < 1000:
        return f"{value} bytes"
    if value < 1_000_000:
        return f"{value / 1000:.0f} KB"
    return f"{value / 1_000_000:.{1 if value < 100_000_000 else 0}f} MB"


def local_time(ms: int) -> datetime:
    """Return a time in milliseconds as a datetime in the account's time zone."""
    return datetime.fromtimestamp(ms / 1000, current_zone.get())


def when(ms: int | None) -> str:
    """Format a time in milliseconds briefly: `today 14:05`, `Fri 27 Nov, 09:00`; None as a dash."""
    if ms is None:
        return "—"
    then, now = local_time(ms), local_time(clock.now_ms())
    days = (then.date() - now.date()).days
    hour = then.strftime("%H:%M")
    named = {0: "today", -1: "yesterday", 1: "tomorrow"}.get(days)
    if named:
        return f"{named} {hour}"
    if then.year == now.year or abs(days) < 120:
        return f"{then.strftime('%a')} {then.day} {then.strftime('%b')}, {hour}"
    return f"{then.day} {then.strftime('%b %Y')}, {hour}"


def full_time(ms: int) -> str:
    """Format a time in milliseconds with weekday, date, seconds and time zone."""
    then = local_time(ms)
    return f"{then.strftime('%A')} {then.day} {then.strftime('%B %Y, %H:%M:%S')} {then.tzname()}"


def time(ms: int | None) -> Markup:
    """Return a `<time>` element with the short time as its text and the full time as its title; for None a dash."""
    if ms is None:
        return Markup("—")
    machine = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="%s" title="%s">%s</time>') % (machine, full_time(ms), when(ms))


def parse_time(text: str) -> int | None:
    """Parse a time in the format of the API to milliseconds. Raises ValueError if the time is invalid."""
    return clock.parse(text)


def day(ms: int) -> str:
    """Format the day of a time as a heading: `Today`, `Yesterday`, or the weekday and date."""
    then, now = local_time(ms).date(), local_time(clock.now_ms()).date()
    if then == now:
        return "Today"
    if then == now - timedelta(days=1):
        return "Yesterday"
    year = "" if then.year == now.year else f" {then.year}"
    return f"{then.strftime('%A')} {then.day} {then.strftime('%B')}{year}"


def day_name(ms: int) -> str:
    """Format the day of a time as weekday, day and month: `Friday 20 November`."""
    return f"{local_time(ms).strftime('%A')} {local_time(ms).day} {local_time(ms).strftime('%B')}"


def clock_time(ms: int) -> str:
    """Format the hour and minute of a time: `14:05`."""
    return local_time(ms).strftime("%H:%M")


def duration(seconds: float) -> str:
    """Format seconds as an approximate duration, from `less than a minute` to `about 3 years`."""
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


def within(seconds: float) -> str:
    """Format seconds as the time within which something happened, rounded up: `a minute`, `3 hours`, `2 days`."""
    minutes = max(1, math.ceil(seconds / 60))
    hours = math.ceil(seconds / 3600)
    if minutes < 60:
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    if hours < 48:
        return "an hour" if hours == 1 else f"{hours} hours"
    return f"{math.ceil(hours / 24)} days"


def ago(ms: int) -> str:
    """Format how long ago a time in milliseconds was; after 24 hours as `when` does."""
    minutes = max(0, clock.now_ms() - ms) // 60_000
    if minutes < 1:
        return "a moment ago"
    if minutes < 60:
        return f"{count(minutes, 'minute', 'minutes')} ago"
    return f"{count(minutes // 60, 'hour', 'hours')} ago" if minutes < 24 * 60 else when(ms)


def reason_label(code: str | None, channel: str = "email") -> str:
    """Return the label of the reason why a message was skipped or a campaign paused."""
    if not code:
        return "No reason given"
    if channel == "sms" and code in _SMS_REASONS:
        return _SMS_REASONS[code]
    if code.startswith("suppressed_"):
        why = SUPPRESSIONS.get(code.removeprefix("suppressed_"))
        return f"On the do-not-send list ({uncapitalize(why)})" if why else "On the do-not-send list"
    return _REASONS.get(code) or code.replace("_", " ").capitalize()


# Names of checks of `campanero doctor` that its page shows in other words.
_CHECK_LABELS = {
    "seed": "test message", "seed sender": "test message: sender", "seed DKIM": "test message: DKIM signature",
    "seed SPF": "test message: SPF", "seed DMARC": "test message: DMARC",
    "seed one-click": "test message: one-click unsubscribe", "schema": "database version", "from": "From address",
    "inbound.listen": "incoming mail",
}  # fmt: skip


def check_label(name: str) -> str:
    """Return the name of a check of `campanero doctor` as the health page shows it."""
    return _CHECK_LABELS.get(name, name.replace("_", " "))


def sent_so_far(stats: Mapping[str, int]) -> str:
    """Return the progress of a campaign, such as `12 of 30 sent`; neither number includes skipped contacts."""
    return f"{number(stats['accepted'])} of {number(stats['audience'] - stats['skipped'])} sent"


def campaign_outcome(stats: Mapping[str, int], skips: Sequence[tuple[str, int]]) -> str:
    """Return the outcome of a finished campaign, such as `Sent to 30 contacts. 19 skipped: unsubscribed`.

    `skips` are pairs of the label of a skip reason and its number of messages.
    """
    parts = [f"Sent to {count(stats['accepted'], 'contact', 'contacts')}"]
    if stats["skipped"]:
        reasons = [(f"{number(many)} " if len(skips) > 1 else "") + uncapitalize(reason) for reason, many in skips]
        parts.append(f"{number(stats['skipped'])} skipped" + (f": {', '.join(reasons)}" if reasons else ""))
    for many, word in (
        (stats["failed"], "failed"),
        (stats["uncertain"], "unconfirmed"),
        (stats["cancelled"], "not sent"),
    ):
        if many:
            parts.append(f"{number(many)} {word}")
    return ". ".join(parts)


def readable(text: str | None) -> str:
    """Return a text with its merge tags in readable form, or an empty string for None."""
    return merge_tags.make_readable(text or "")


_DOMAIN_LETTERS = re.compile(r"[a-z0-9.-]+", re.IGNORECASE)
_ASCII_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)*xn--[a-z0-9.-]+", re.IGNORECASE)
# RFC 1035, section 2.3.4. `_ASCII_DOMAIN`, which takes quadratic time, is not used for longer words.
_MAX_DOMAIN_CHARACTERS = 255


def unicode_domains(text: str | None) -> str:
    """Return a text, such as an address or a From header, with its internationalized domains in Unicode."""
    return _DOMAIN_LETTERS.sub(lambda match: _unicode_domain(match[0]), text or "")


def _unicode_domain(word: str) -> str:
    if "xn--" not in word.lower() or len(word) > _MAX_DOMAIN_CHARACTERS:
        return word
    return _ASCII_DOMAIN.sub(lambda match: records.display_domain(match[0].lower()), word)


def contact_name(contact: Any) -> str:
    """Return the name of a contact, else the address of its first channel, else `Person` with its id."""
    full_name = " ".join(part for part in (contact.first_name, contact.last_name) if part)
    return full_name or next((channel.value for channel in contact.channels), f"Person {contact.id}")


def email_of(contact: Any) -> Any:
    """Return the first email channel of a contact, or None."""
    return next((channel for channel in contact.channels if channel.kind == "email"), None)


def phone_of(contact: Any) -> Any:
    """Return the first phone channel of a contact, or None."""
    return next((channel for channel in contact.channels if channel.kind == "phone"), None)


def initials(text: str) -> str:
    """Return one or two letters for the avatar of a name or email address."""
    text = text.partition("<")[0].strip(' "') or text.strip("<>")
    parts = [part for part in text.partition("@")[0].replace(".", " ").split() if part[:1].isalnum()]
    return "".join(part[0] for part in parts[:2]) or "?"


def join_names(names: list[str]) -> str:
    """Join names as `a, b and c`."""
    return " and ".join(name for name in (", ".join(names[:-1]), names[-1] if names else "") if name)


def join_quoted(texts: list[str]) -> str:
    """Join texts in quotation marks, as `join_names` joins names."""
    return join_names([f"“{text}”" for text in texts])


def greeting(ms: int) -> str:
    """Return `Good morning`, `Good afternoon` or `Good evening`, by the hour in the account's time zone."""
    hour = local_time(ms).hour
    return "Good morning" if 4 <= hour < 12 else "Good afternoon" if 12 <= hour < 18 else "Good evening"


def query_string(values: dict[str, Any], last_is_open: bool = False) -> str:
    """Return a query string of the values that are neither empty nor None.

    With `last_is_open`, leave out the last name and end the string in `?` or `&`, so that a template can append that
    parameter.
    """
    names = list(values)
    keep = {name: value for name, value in values.items() if value not in ("", None)}
    if last_is_open:
        keep.pop(names[-1], None)
        return "?" + urlencode(keep) + ("&" if keep else "")
    return "?" + urlencode(keep) if keep else ""


FILTERS = {
    "number": number, "people": count_people, "size": size, "when": when, "time": time, "day": day,
    "initials": initials,
    "reason": reason_label, "duration": duration, "clock_time": clock_time, "query": query_string,
    "full_time": full_time,
    "moment": parse_time, "readable": readable, "unicode_domains": unicode_domains,
}  # fmt: skip
