"""Format values for pages: numbers, times in the account's time zone, labels of states, reasons and events."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup

from appliance.audience.filters.fields import CHOICE_LABELS
from appliance.content.designs import merge as merge_tags
from appliance.content.templates import revisions
from appliance.core import clock, i18n
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext, pgettext_noop
from appliance.events import log
from appliance.sending.domains import records, store

# Icon and colour class of each event of the service, in the order in which events are offered.
EVENT_ICONS = {
    "contact_add": ("user-plus", "good"),
    "contact_update": ("pencil", ""),
    "contact_delete": ("trash-2", ""),
    "list_add": ("list", ""),
    "list_remove": ("list", ""),
    "opt_in": ("circle-check", "good"),
    "opt_out": ("ban", "warn"),
    "double_opt_in_requested": ("mail", "hold"),
    "double_opt_in_confirmed": ("circle-check", "good"),
    "form_submitted": ("pencil", "info"),
    "erase_requested": ("trash-2", "warn"),
    "email_sent": ("send", "info"),
    "email_delivered": ("mail", "good"),
    "email_opened": ("mail-open", "info"),
    "email_clicked": ("mouse-pointer-click", "info"),
    "email_soft_bounced": ("circle-alert", "warn"),
    "email_bounced": ("circle-alert", "bad"),
    "email_complained": ("circle-alert", "bad"),
    "email_failed": ("circle-alert", "bad"),
    "email_skipped": ("ban", "warn"),
    "email_replied": ("reply", "good"),
    "sms_sent": ("send", "info"),
    "sms_delivered": ("check", "good"),
    "sms_clicked": ("mouse-pointer-click", "info"),
    "sms_failed": ("circle-alert", "bad"),
    "sms_skipped": ("ban", "warn"),
    "message": ("reply", "good"),
    "keyword": ("reply", "good"),
    "campaign_started": ("send", "info"),
    "campaign_paused": ("pause", "warn"),
    "campaign_completed": ("circle-check", "good"),
    "contact_merge": ("users", ""),
    "tag_add": ("plus", ""),
    "tag_remove": ("x", ""),
    "segment_enter": ("users", ""),
    "segment_exit": ("users", ""),
    "date_reached": ("clock", "info"),
    "flow_enter": ("play", "info"),
    "flow_goal": ("circle-check", "good"),
    "flow_exit": ("log-out", ""),
    "domain_verified": ("circle-check", "good"),
    "domain_failed": ("circle-alert", "bad"),
    "webhook_disabled": ("circle-alert", "bad"),
    "import_completed": ("upload", "info"),
    "import_undone": ("undo-2", "warn"),
    "bulk_action_completed": ("users", "info"),
}


def event(name: str) -> tuple[str, str, str]:
    """Return the icon, the colour class and the label of an event; an unknown event is labelled with its name."""
    icon, colour = EVENT_ICONS.get(name, ("zap", "hold"))
    label = log.find_label(name)
    return icon, colour, name.replace("_", " ").capitalize() if label is None else label


def is_ours(name: str) -> bool:
    """Return whether events of this name are recorded by the service itself."""
    return name in log.RESERVED_NAMES


# The label of each suppression reason, and a sentence that explains it.
_SUPPRESSIONS = {
    "hard_bounce": (
        CHOICE_LABELS["hard_bounce"],
        gettext_noop("The server reported that this address does not exist."),
    ),
    "soft_bounce": (
        CHOICE_LABELS["soft_bounce"],
        gettext_noop("Five messages soft bounced within 30 days."),
    ),
    "complaint": (
        CHOICE_LABELS["complaint"],
        gettext_noop("This contact marked a message as spam and was unsubscribed."),
    ),
    "manual": (CHOICE_LABELS["manual"], gettext_noop("Someone on your team suppressed this address.")),
    "erased": (
        CHOICE_LABELS["erased"],
        gettext_noop(
            "This contact asked to be deleted. Only a hash of the address is kept, so that it stays suppressed."
        ),
    ),
    "stop_keyword": (CHOICE_LABELS["stop_keyword"], gettext_noop("This number gets no more SMS.")),
}


def list_suppressions() -> dict[str, str]:
    """Return the label of each suppression reason."""
    return {reason: gettext(label) for reason, (label, _) in _SUPPRESSIONS.items()}


def suppression_label(reason: str) -> str:
    """Return the label of a suppression reason; an unknown reason is shown as it is."""
    return gettext(_SUPPRESSIONS[reason][0]) if reason in _SUPPRESSIONS else reason


def suppression_text(reason: str) -> str:
    """Return the sentence that explains a suppression reason. Raises KeyError if the reason is unknown."""
    return gettext(_SUPPRESSIONS[reason][1])


def translated(label: str) -> str:
    """Return a label that was marked with `gettext_noop` in the language of the page.

    Any other text, such as the name of a custom field, is returned unchanged.
    """
    return i18n.translate(label).replace("%%", "%")


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


_SENTENCE_ENDS = (".", "?", ")", ":", "。", "？", "）", "：")


def sentence(text: str) -> str:
    """Return a message as a sentence, with a capital letter and a full stop.

    A text that was stored in English is translated. Setting names are removed and merge tag errors reworded. A domain
    or address at the start keeps its small letter.
    """
    text = strip_setting_names(i18n.translate_stored(text.strip()))
    for fault, message in _MERGE_FAULTS.items():
        text = text.replace(fault, gettext(message))
    is_name = "." in text.partition(" ")[0][:-1]
    return (text[:1] if is_name else text[:1].upper()) + text[1:] + ("" if text.endswith(_SENTENCE_ENDS) else ".")


def uncapitalize(text: str) -> str:
    """Return a phrase with a small first letter, for the middle of a sentence.

    An acronym at the start is unchanged, and so is a phrase in German, which may begin with a noun.
    """
    return text if text[1:2].isupper() or i18n.get_language() == "de" else text[:1].lower() + text[1:]


# The time zone of the account whose page is being rendered.
current_zone: ContextVar[tzinfo] = ContextVar("zone", default=UTC)

# The colour class and the label of each phase of a campaign and of each status of a message.
_PHASES = {
    "draft": ("draft", pgettext_noop("campaign", "Draft")),
    "scheduled": ("sched", pgettext_noop("campaign", "Scheduled")),
    "holding": ("sending", pgettext_noop("campaign", "Starting")),
    "sending": ("sending", pgettext_noop("campaign", "Sending")),
    "paused": ("paused", pgettext_noop("campaign", "Paused")),
    "completed": ("done", pgettext_noop("campaign", "Sent")),
    "cancelled": ("stopped", pgettext_noop("campaign", "Cancelled")),
}
_STATUSES = {
    "queued": ("draft", pgettext_noop("message", "Queued")),
    "held": ("sched", pgettext_noop("message", "Held")),
    "sending": ("sending", pgettext_noop("message", "Sending")),
    "sent": ("done", pgettext_noop("message", "Sent")),
    "delivered": ("done", pgettext_noop("message", "Delivered")),
    "bounced": ("failed", pgettext_noop("message", "Bounced")),
    "complained": ("failed", pgettext_noop("message", "Marked as spam")),
    "failed": ("failed", pgettext_noop("message", "Failed")),
    "skipped": ("paused", pgettext_noop("message", "Skipped")),
    "cancelled": ("stopped", pgettext_noop("message", "Cancelled")),
    "uncertain": ("paused", pgettext_noop("message", "Unconfirmed")),
}
_REASONS = {
    "unsubscribed": gettext_noop("Unsubscribed"),
    "no_channel": gettext_noop("No email address"),
    "invalid_address": gettext_noop("Invalid email address"),
    "not_verified": gettext_noop("Address not confirmed"),
    "no_consent": gettext_noop("Not subscribed"),
    "country_not_allowed": gettext_noop("SMS to this country are not allowed"),
    "sender_not_allowed": gettext_noop("No sender is approved for this country"),
    "too_late": gettext_noop("Expired before it could be sent"),
    "transactional_disabled": gettext_noop("Transactional messages are turned off"),
    "frequency_cap": gettext_noop("Frequency cap reached"),
    "quiet_hours_expired": gettext_noop("Expired during quiet hours"),
    "overdue_on_resume": gettext_noop("Expired while paused"),
    "render_error": gettext_noop("The content could not be personalised for this contact"),
    "contact_deleted": gettext_noop("The contact was deleted"),
    "sender_not_ready": gettext_noop("The sender is not set up yet"),
    "smtputf8_unsupported": gettext_noop("The mail server does not support international addresses"),
    "bounce_rate": gettext_noop("Hard bounce rate over 5%%"),
    "complaint_rate": gettext_noop("Spam complaint rate too high"),
    "transport": gettext_noop("The mail server rejected 20 messages in a row"),
    "missed_start": gettext_noop("The start time was missed"),
    "domain_failed": gettext_noop("The sending domain is no longer verified (DNS records missing)"),
}
_SMS_REASONS = {
    "no_consent": gettext_noop("No SMS consent on record"),
    "no_channel": gettext_noop("No phone number"),
    "invalid_address": gettext_noop("Not a mobile number"),
    "transport": gettext_noop("The provider rejected 20 messages in a row"),
    "bounce_rate": gettext_noop("More than 5%% of the numbers are invalid"),
}
# Icon and label of each consent event; below, the label of each kind of actor that causes such an event.
_CONSENT_EVENTS = {
    "opt_in": ("circle-check", gettext_noop("Subscribed")),
    "opt_out": ("ban", gettext_noop("Unsubscribed")),
    "requested": ("mail", gettext_noop("Confirmation requested")),
    "confirmed": ("circle-check", gettext_noop("Confirmed")),
    "suppressed": ("ban", gettext_noop("Added to the suppression list")),
    "lifted": ("circle-check", gettext_noop("Removed from the suppression list")),
    "import_undone": ("undo-2", gettext_noop("Import undone")),
    "list_joined": ("clock", gettext_noop("Joined a list")),
    "list_left": ("clock", gettext_noop("Left a list")),
    "tracking": ("clock", gettext_noop("Changed the tracking preference")),
    "erase_requested": ("clock", gettext_noop("Requested data deletion (GDPR)")),
}
# The label of each reason why an import does not subscribe a contact, in the order in which they are listed; below,
# the label of each reason why the undo of an import leaves a row unchanged.
_IMPORT_REASONS = {
    "file": gettext_noop("unsubscribed in the file"),
    "before": gettext_noop("unsubscribed before"),
    "unstated": gettext_noop("neither yes nor no in the file"),
    "inactive": gettext_noop("not subscribed in the file"),
    "sms_not_opted_in": gettext_noop("no email address, and not subscribed to SMS"),
    "not_opted_in": gettext_noop("not subscribed by this import"),
}
_IMPORT_SUPPRESSIONS = {
    "complaint": gettext_noop("spam complaint"),
    "hard_bounce": gettext_noop("hard bounce"),
    "soft_bounce": gettext_noop("repeated soft bounces"),
    "manual": gettext_noop("suppressed manually or by another service"),
    "erased": gettext_noop("previously deleted (GDPR)"),
    "stop_keyword": gettext_noop("replied STOP"),
}
_UNDO_EXCEPTIONS = {
    "messaged": gettext_noop("messaged since then"),
    "in_another_list": gettext_noop("added to another list since then"),
    "changed": gettext_noop("changed or used since then"),
}
_CONSENT_ACTORS = {
    "recipient": gettext_noop("by the contact"),
    "operator": gettext_noop("by your team"),
    "service": gettext_noop("by the service"),
}


def phase(name: str) -> tuple[str, str]:
    """Return the colour class and the label of a phase of a campaign."""
    colour, label = _PHASES.get(name, ("draft", name))
    return colour, pgettext("campaign", label)


def status(name: str) -> tuple[str, str]:
    """Return the colour class and the label of a status of a message."""
    colour, label = _STATUSES.get(name, ("draft", name))
    return colour, pgettext("message", label)


def status_label(name: str) -> str:
    """Return the label of a status of a message."""
    return status(name)[1]


def consent_icon(name: str) -> str:
    """Return the icon of a consent event."""
    return _CONSENT_EVENTS.get(name, ("clock", ""))[0]


def consent_label(name: str) -> str:
    """Return the label of a consent event; an unknown event is labelled with its name."""
    return gettext(_CONSENT_EVENTS[name][1]) if name in _CONSENT_EVENTS else name.replace("_", " ").capitalize()


def import_reason_label(name: str) -> str:
    """Return the label of a reason why an import does not subscribe a contact; an unknown reason is shown as it is."""
    label = _IMPORT_REASONS.get(name) or _IMPORT_SUPPRESSIONS.get(name)
    return gettext(label) if label else name


def import_reasons(counts: Mapping[str, int], is_suppressed: bool) -> str:
    """Return why contacts are suppressed, or else not subscribed, after an import: `unsubscribed in the file (3)`."""
    return _join_counted(_IMPORT_SUPPRESSIONS if is_suppressed else _IMPORT_REASONS, counts)


def undo_exceptions(resource: str, counts: Mapping[str, int]) -> str:
    """Return why the undo of an import leaves rows unchanged, such as `messaged since then (2)`."""
    labels = _UNDO_EXCEPTIONS
    if resource == "suppressions":
        labels = {**labels, "changed": gettext_noop("suppressed again since then")}
    return _join_counted(labels, counts)


def _join_counted(labels: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """Join labels with their counts, without those that are 0."""
    return join_names([
        gettext("%(reason)s (%(count)s)", reason=gettext(label), count=number(counts[name]))
        for name, label in labels.items() if counts.get(name)
    ])  # fmt: skip


def consent_actor(name: str) -> str:
    """Return the label of a kind of actor that caused a consent event, for the end of a phrase."""
    return gettext(_CONSENT_ACTORS[name]) if name in _CONSENT_ACTORS else name


def number(value: int | float | None) -> str:
    """Format a number as the language of the page does: `12,384`; None as a dash."""
    return "—" if value is None else i18n.format_number(value)


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


def count_contacts(value: int) -> str:
    """Format a number of contacts."""
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
    "image": lambda many: ngettext("%(num)s image", "%(num)s images", many),
    "import": lambda many: ngettext("%(num)s import", "%(num)s imports", many),
    "message": lambda many: ngettext("%(num)s message", "%(num)s messages", many),
    "recipient": lambda many: ngettext("%(num)s recipient", "%(num)s recipients", many),
    "reply": lambda many: ngettext("%(num)s reply", "%(num)s replies", many),
    "version": lambda many: ngettext("%(num)s version", "%(num)s versions", many),
    "webhook": lambda many: ngettext("%(num)s webhook", "%(num)s webhooks", many),
}


def count_rows(value: int, noun: str) -> str:
    """Format a number of rows with their noun. Raises KeyError if `_ROW_COUNTS` does not have the noun."""
    return _ROW_COUNTS[noun](value)


def percent(part: int, total: int) -> str:
    """Format `part` of `total` as a percentage; a dash if `total` is 0.

    A share above 0 is never shown as 0%, and a share below 1 never as 100%.
    """
    if not total:
        return "—"
    share = 100 * part / total
    if 0 < share < 0.05:
        return gettext("under %(percentage)s", percentage=i18n.format_percent(0.001, 1))
    return i18n.format_percent(part / total, 1 if 0 < share < 10 or 99 < share < 100 else 0)


def share(part: float) -> str:
    """Format a share between 0 and 1 as a percentage."""
    return percent(round(part * 1_000_000), 1_000_000)


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
    then, now = local_time(ms), local_time(clock.now_ms())
    days, hour = (then.date() - now.date()).days, i18n.format_clock(then)
    if days == 0:
        return gettext("today %(time)s", time=hour)
    if days == -1:
        return gettext("yesterday %(time)s", time=hour)
    if days == 1:
        return gettext("tomorrow %(time)s", time=hour)
    is_near = then.year == now.year or abs(days) < 120
    return gettext("%(date)s, %(time)s", date=i18n.format_date(then, "MMMEd" if is_near else "yMMMd"), time=hour)


def full_time(ms: int) -> str:
    """Format a time in milliseconds with weekday, date, seconds and time zone."""
    then = local_time(ms)
    return gettext("%(date)s, %(time)s", date=i18n.format_full_date(then), time=f"{then:%H:%M:%S} {then.tzname()}")


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
    then, now = local_time(ms), local_time(clock.now_ms())
    if then.date() == now.date():
        return gettext("Today")
    if then.date() == now.date() - timedelta(days=1):
        return gettext("Yesterday")
    return i18n.format_date(then, "MMMMEEEEd") if then.year == now.year else i18n.format_full_date(then)


def day_name(ms: int) -> str:
    """Format the day of a time as weekday, day and month: `Friday 20 November`."""
    return i18n.format_date(local_time(ms), "MMMMEEEEd")


def clock_time(ms: int) -> str:
    """Format the hour and minute of a time: `14:05`."""
    return i18n.format_clock(local_time(ms))


def duration(seconds: float) -> str:
    """Format seconds as an approximate duration, from `less than a minute` to `about 3 years`."""
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


def reason_label(code: str | None, channel: str = "email") -> str:
    """Return the label of the reason why a message was skipped or a campaign paused."""
    if not code:
        return gettext("No reason given")
    if channel == "sms" and code in _SMS_REASONS:
        return gettext(_SMS_REASONS[code])
    if code.startswith("suppressed_"):
        reason = code.removeprefix("suppressed_")
        if reason not in _SUPPRESSIONS:
            return gettext("Suppressed")
        return gettext("Suppressed (%(reason)s)", reason=uncapitalize(suppression_label(reason)))
    return gettext(_REASONS[code]) if code in _REASONS else code.replace("_", " ").capitalize()


# Names of checks of `campanero doctor` that its page shows in other words.
_CHECK_LABELS = {
    "seed": gettext_noop("test message"),
    "seed sender": gettext_noop("test message: sender"),
    "seed DKIM": gettext_noop("test message: DKIM signature"),
    "seed SPF": gettext_noop("test message: SPF"),
    "seed DMARC": gettext_noop("test message: DMARC"),
    "seed one-click": gettext_noop("test message: one-click unsubscribe"),
    "schema": gettext_noop("database version"),
    "from": gettext_noop("From address"),
    "inbound.listen": gettext_noop("incoming mail"),
}


def check_label(name: str) -> str:
    """Return the name of a check of `campanero doctor` as the health page shows it."""
    return gettext(_CHECK_LABELS[name]) if name in _CHECK_LABELS else name.replace("_", " ")


def sent_so_far(stats: Mapping[str, int]) -> str:
    """Return the progress of a campaign, such as `12 of 30 sent`; neither number includes skipped contacts."""
    total = number(stats["audience"] - stats["skipped"])
    return gettext("%(sent)s of %(total)s sent", sent=number(stats["accepted"]), total=total)


def campaign_outcome(stats: Mapping[str, int], skips: Sequence[tuple[str, int]]) -> str:
    """Return the outcome of a finished campaign, such as `Sent to 30 contacts. 19 skipped: unsubscribed`.

    `skips` are pairs of the label of a skip reason and its number of messages.
    """
    parts = [ngettext("Sent to %(num)s contact", "Sent to %(num)s contacts", stats["accepted"])]
    if stats["skipped"]:
        reasons = [(f"{number(many)} " if len(skips) > 1 else "") + uncapitalize(reason) for reason, many in skips]
        skipped = ngettext("%(num)s skipped", "%(num)s skipped", stats["skipped"])
        parts.append(f"{skipped}: {', '.join(reasons)}" if reasons else skipped)
    if stats["failed"]:
        parts.append(ngettext("%(num)s failed", "%(num)s failed", stats["failed"]))
    if stats["uncertain"]:
        parts.append(ngettext("%(num)s unconfirmed", "%(num)s unconfirmed", stats["uncertain"]))
    if stats["cancelled"]:
        parts.append(ngettext("%(num)s not sent", "%(num)s not sent", stats["cancelled"]))
    return ". ".join(parts)


def split_query(url: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the path of a URL, and its query parameters that have a value, without the number of the page."""
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
    return full_name or next((channel.value for channel in contact.channels), gettext("Contact %(id)s", id=contact.id))


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
    "translated": translated,
    "number": number, "contacts": count_contacts, "size": size, "when": when, "time": time, "day": day,
    "initials": initials,
    "reason": reason_label, "duration": duration, "clock_time": clock_time, "query": query_string,
    "full_time": full_time, "stored": i18n.translate_stored, "attention": store.describe_attention,
    "history_label": revisions.translate_label,
    "moment": parse_time, "readable": readable, "unicode_domains": unicode_domains, "language": i18n.name_language,
    "country": i18n.name_country,
}  # fmt: skip
