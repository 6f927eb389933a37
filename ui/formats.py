"""Format values for pages: numbers, times in the account's time zone, names and sentences. Labels are in `labels`."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup

from appliance.audience.filters.fields import label_path
from appliance.content.designs import merge as merge_tags
from appliance.content.templates import revisions
from appliance.core import addresses, clock, i18n, time_zones
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.sending.domains import records, store
from appliance.sending.messages import senders
from appliance.sending.sms import segments


def translated(label: str) -> str:
    """Return a label that was marked with `gettext_noop`, in the language of the page.

    Do not pass texts of users: one that equals a label would be translated.
    """
    return i18n.translate(label).replace("%%", "%")


def sms_sender(sender: str | None) -> str:
    """Return the sender of an SMS, or a text that says that there is none, as for the placeholder of captured SMS."""
    return gettext("No sender yet") if sender in (None, "", senders.CAPTURE_SENDER) else sender


# Errors of the merge tag parser, and the texts shown instead.
_MERGE_FAULTS = {
    "expected '}}'": gettext_noop("A merge tag is not closed: }} is missing"),
    "missing expression": gettext_noop("A merge tag is empty"),
    "expected a primitive expression, found end of expression": gettext_noop("A merge tag is empty"),
}
# A setting name or an RFC number in brackets, which only programmers need.
_SETTING_NAMES = re.compile(r" \((?:[a-z]+[._][a-z_.]+(?: of the account)?(?:, [a-z]+[._][a-z_.]+)*|RFC \d+)\)")


def strip_setting_names(text: str) -> str:
    """Return a text without the setting names and RFC numbers in brackets, which only programmers need."""
    return _SETTING_NAMES.sub("", text)


uncapitalize = i18n.uncapitalize


def sentence(text: str) -> str:
    """Return a message as a sentence with a capital letter and a full stop.

    A text that was stored in English is translated. Setting names are removed, and merge tag errors reworded.
    """
    text = strip_setting_names(i18n.translate_stored(text.strip()))
    for fault, message in _MERGE_FAULTS.items():
        text = text.replace(fault, gettext(message))
    return i18n.to_sentence(text)


# The time zone of the account whose page is being rendered.
current_zone: ContextVar[tzinfo] = ContextVar("zone", default=UTC)


def number(value: int | float | None) -> str:
    """Format a number as the language of the page does: `12,384`; None as a dash."""
    return "—" if value is None else i18n.format_number(value)


def data_label(path: str, headings: Mapping[str, str]) -> str:
    """Return the label of a custom data path: its heading in the imported file, else the path with a capital letter."""
    heading = headings.get(path, path)
    return label_path(path) if heading == path else heading


def plain_number(value: int | float) -> str:
    """Format a number of custom data without thousands separators; 2010.0 is `2010`."""
    return str(int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value)


def data_value(value: str | int | float) -> str:
    """Format a number, a date or a time of custom data as the language of the page does; other text is unchanged."""
    if isinstance(value, str):
        return i18n.format_data_date(value, current_zone.get()) or value
    return i18n.format_data_number(value)


def count_contacts(value: int) -> str:
    """Return a number of contacts with its noun: `12 contacts`."""
    return ngettext("%(num)s contact", "%(num)s contacts", value)


# How the rows of a table are counted, by their noun in English.
_ROW_COUNTS: dict[str, Callable[[int], str]] = {
    "attempt": lambda many: ngettext("%(num)s attempt", "%(num)s attempts", many),
    "contact": count_contacts,
    "delivery": lambda many: ngettext("%(num)s delivery", "%(num)s deliveries", many),
    "domain": lambda many: ngettext("%(num)s domain", "%(num)s domains", many),
    "entry": lambda many: ngettext("%(num)s entry", "%(num)s entries", many),
    "event": lambda many: ngettext("%(num)s event", "%(num)s events", many),
    "form": lambda many: ngettext("%(num)s form", "%(num)s forms", many),
    "proposal": lambda many: ngettext("%(num)s proposal", "%(num)s proposals", many),
    "image": lambda many: ngettext("%(num)s image", "%(num)s images", many),
    "import": lambda many: ngettext("%(num)s import", "%(num)s imports", many),
    "message": lambda many: ngettext("%(num)s message", "%(num)s messages", many),
    "recipient": lambda many: ngettext("%(num)s recipient", "%(num)s recipients", many),
    "reply": lambda many: ngettext("%(num)s reply", "%(num)s replies", many),
    "request": lambda many: ngettext("%(num)s request", "%(num)s requests", many),
    "version": lambda many: ngettext("%(num)s version", "%(num)s versions", many),
    "webhook": lambda many: ngettext("%(num)s webhook", "%(num)s webhooks", many),
}


def count_rows(value: int, noun: str) -> str:
    """Return a number of rows with their noun: `12 events`. Raises KeyError if `_ROW_COUNTS` does not have the noun."""
    return _ROW_COUNTS[noun](value)


def percent(part: int, total: int) -> str:
    """Format `part` of `total` as a percentage; a dash if `total` is 0."""
    return share(part / total) if total else "—"


def share(part: float) -> str:
    """Format a share between 0 and 1 as a percentage.

    A share under 0.05% is shown as under 0.1%; from 99.95% it is rounded to 100%. A half is rounded up.
    """
    if 0 < part < 0.0005:
        return gettext("under %(percentage)s", percentage=i18n.format_percent(0.001, 1))
    return i18n.format_percent(part, 1 if 0 < part < 0.1 or 0.99 < part < 1 else 0)


def share_of_limit(part: float, limit: float) -> str:
    """Format a share as `share` does, with two decimals if it would read like a limit that it does not equal."""
    text = share(part)
    return i18n.format_percent(part, 2) if part != limit and text == share(limit) else text


def size(value: int) -> str:
    """Format a number of bytes in bytes, KB or MB (powers of 1000)."""
    if value < 1000:
        return ngettext("%(num)s byte", "%(num)s bytes", value)
    if value < 1_000_000:
        return f"{number(round(value / 1000))} KB"
    return f"{number(round(value / 1_000_000, 1 if value < 100_000_000 else None))} MB"


def local_time(ms: int) -> datetime:
    """Return a time in milliseconds as a datetime in the account's time zone."""
    return datetime.fromtimestamp(ms / 1000, current_zone.get())


def when(ms: int | None) -> str:
    """Format a time in milliseconds briefly: `today 14:05`, `Fri 27 Nov, 09:00`; None as a dash."""
    if ms is None:
        return "—"
    moment, now = local_time(ms), local_time(clock.now_ms())
    days, hour = (moment.date() - now.date()).days, i18n.format_clock(moment)
    if days == 0:
        return gettext("today %(time)s", time=hour)
    if days == -1:
        return gettext("yesterday %(time)s", time=hour)
    if days == 1:
        return gettext("tomorrow %(time)s", time=hour)
    is_near = moment.year == now.year or abs(days) < 120
    return gettext("%(date)s, %(time)s", date=i18n.format_date(moment, "MMMEd" if is_near else "yMMMd"), time=hour)


def full_time(ms: int) -> str:
    """Format a time in milliseconds with weekday, date, seconds and time zone."""
    moment = local_time(ms)
    clock_and_zone = f"{moment:%H:%M:%S} {i18n.name_zone(moment)}"
    return gettext("%(date)s, %(time)s", date=i18n.format_full_date(moment), time=clock_and_zone)


def time(ms: int | None) -> Markup:
    """Return a `<time>` element with the short time as its text and the full time as its title; for None a dash."""
    if ms is None:
        return Markup("—")
    machine = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="%s" title="%s">%s</time>') % (machine, full_time(ms), when(ms))


_STORED_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def history_label(label: str | None) -> str:
    """Return the label of a revision (`revisions.translate_label`) with the times in it as the page shows times."""
    return _STORED_TIME.sub(lambda match: when(clock.parse(match[0])), revisions.translate_label(label))


def parse_time(text: str) -> int:
    """Parse a time in the format of the API to Unix milliseconds. Raises ValueError if the time is invalid."""
    return clock.parse(text)


def format_local_time(local_time: str) -> str:
    """Format a local time such as `2026-12-01T09:00` with weekday, day and month: `Tue 1 Dec, 09:00`."""
    moment = time_zones.parse_local_time(local_time)
    is_near = moment.year == datetime.fromtimestamp(clock.now(), current_zone.get()).year
    date = i18n.format_date(moment, "MMMEd" if is_near else "yMMMd")
    return gettext("%(date)s, %(time)s", date=date, time=i18n.format_clock(moment))


def day(ms: int) -> str:
    """Format the day of a time as a heading: `Today`, `Yesterday`, or the weekday and date."""
    moment, now = local_time(ms), local_time(clock.now_ms())
    if moment.date() == now.date():
        return gettext("Today")
    if moment.date() == now.date() - timedelta(days=1):
        return gettext("Yesterday")
    return i18n.format_day(moment) if moment.year == now.year else i18n.format_full_date(moment)


def day_name(ms: int) -> str:
    """Format the day of a time as weekday, day and month: `Friday 20 November`."""
    return i18n.format_day(local_time(ms))


def clock_time(ms: int) -> str:
    """Format the hour and minute of a time: `14:05`."""
    return i18n.format_clock(local_time(ms))


def duration(seconds: float) -> str:
    """Format seconds as an approximate duration: `less than a minute`, `about 5 hours`, `about 3 years`."""
    if seconds < 50:
        return gettext("less than a minute")
    minutes = round(seconds / 60)
    if minutes < 90:
        return ngettext("about %(num)s minute", "about %(num)s minutes", minutes)
    hours = round(seconds / 3600)
    days = round(hours / 24)
    if hours < 48:
        return ngettext("about %(num)s hour", "about %(num)s hours", hours)
    if days < 730:
        return ngettext("about %(num)s day", "about %(num)s days", days)
    return ngettext("about %(num)s year", "about %(num)s years", round(days / 365))


def within(seconds: float) -> str:
    """Format seconds as the time within which something happened, rounded up: `1 minute`, `3 hours`, `2 days`."""
    minutes = max(1, math.ceil(seconds / 60))
    hours = math.ceil(seconds / 3600)
    if minutes < 60:
        return ngettext("%(num)s minute", "%(num)s minutes", minutes)
    if hours < 48:
        return ngettext("%(num)s hour", "%(num)s hours", hours)
    return ngettext("%(num)s day", "%(num)s days", math.ceil(hours / 24))


def ago(ms: int) -> str:
    """Format how long ago a time in milliseconds was; after 24 hours as `when` does."""
    minutes = max(0, clock.now_ms() - ms) // 60_000
    if minutes < 1:
        return gettext("just now")
    if minutes < 60:
        return ngettext("%(num)s minute ago", "%(num)s minutes ago", minutes)
    if minutes < 24 * 60:
        return ngettext("%(num)s hour ago", "%(num)s hours ago", minutes // 60)
    return when(ms)


def split_query(url: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the path of a URL, and its query parameters as (name, value).

    Parameters without a value and the page number (`page`) are left out.
    """
    path, _, query = url.partition("?")
    return path, [(name, value) for name, value in parse_qsl(query) if name != "page"]


def join_query(path: str, params: Sequence[tuple[str, str]]) -> str:
    """Return a URL to which one more parameter can be appended as `name=value`."""
    return f"{path}?{urlencode(params)}&" if params else f"{path}?"


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
    """Return the name of a contact, else the address of its first channel, else `Contact` with its id."""
    full_name = " ".join(part for part in (contact.first_name, contact.last_name) if part)
    addresses_known = map(address, contact.channels)
    return full_name or next(addresses_known, gettext("Contact %(id)s", id=contact.id))


def email_of(contact: Any) -> Any:
    """Return the first email channel of a contact, or None."""
    return next((channel for channel in contact.channels if channel.kind == "email"), None)


def address(channel: Any) -> str:
    """Return the address of a channel; a phone number with spaces, as it is written abroad: `+44 7700 900407`."""
    return str(channel.value) if channel.kind == "email" else addresses.format_phone(channel.value)


def phone_of(contact: Any) -> Any:
    """Return the first phone channel of a contact, or None."""
    return next((channel for channel in contact.channels if channel.kind == "phone"), None)


def initials(text: str) -> str:
    """Return up to two letters for the avatar of a name or email address, or `?`."""
    text = text.partition("<")[0].strip(' "') or text.strip("<>")
    parts = [part for part in text.partition("@")[0].replace(".", " ").split() if part[:1].isalnum()]
    return "".join(part[0] for part in parts[:2]) or "?"


def join_names(names: Sequence[str]) -> str:
    """Join names as `a, b and c`."""
    return i18n.format_list(names)


def join_quoted(texts: Sequence[str]) -> str:
    """Join texts in quotation marks, as `join_names` joins names."""
    return join_names([gettext("“%(text)s”", text=text) for text in texts])


def greeting(ms: int) -> str:
    """Return `Good morning`, `Good afternoon` or `Good evening`, by the hour in the account's time zone."""
    hour = local_time(ms).hour
    if 4 <= hour < 12:
        return gettext("Good morning")
    return gettext("Good afternoon") if 12 <= hour < 18 else gettext("Good evening")


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
    "local_time": format_local_time,
    "translated": translated,
    "number": number, "contacts": count_contacts, "size": size, "when": when, "time": time, "day": day,
    "initials": initials, "duration": duration, "clock_time": clock_time, "query": query_string,
    "full_time": full_time, "stored": i18n.translate_stored, "sentence": sentence,
    "sms_character": segments.describe_character, "sms_sender": sms_sender, "attention": store.describe_attention,
    "history_label": history_label,
    "moment": parse_time, "readable": readable, "unicode_domains": unicode_domains, "language": i18n.name_language,
    "country": i18n.name_country,
}  # fmt: skip
