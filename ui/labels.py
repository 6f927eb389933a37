"""Labels for pages: of events, states, reasons, suppressions and checks, with their icons and colours."""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.audience.filters.fields import CHOICE_LABELS, label_path
from appliance.core import i18n
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext, pgettext_noop
from appliance.events import log
from appliance.imports import outcome_counts, results
from ui.formats import join_names, number, uncapitalize

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
    "email_complaint_unverified": ("circle-alert", "warn"),
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
    "flow_paused": ("pause", "warn"),
    "campaign_completed": ("circle-check", "good"),
    "campaign_test_decided": ("circle-check", "good"),
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
    """Return the icon, the colour class and the label of an event; an unknown event's label is its name in words."""
    icon, colour = EVENT_ICONS.get(name, ("zap", "hold"))
    label = log.find_label(name)
    return icon, colour, name.replace("_", " ").capitalize() if label is None else label


def is_built_in_event(name: str) -> bool:
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
# The label of each reason why a message is skipped or a campaign paused; below, those that differ for SMS.
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
    "held_out": gettext_noop("In the holdout group"),
    "control_group": gettext_noop("In the control group"),
    "sender_not_ready": gettext_noop("The sender is not set up yet"),
    "smtputf8_unsupported": gettext_noop("The mail server does not support international addresses"),
    "bounce_rate": gettext_noop("Hard bounce rate over 5%%"),
    "complaint_rate": gettext_noop("Spam complaint rate too high"),
    "transport": gettext_noop("The mail server rejected or did not confirm 20 messages in a row"),
    "missed_start": gettext_noop("The start time was missed"),
    "may_have_started": gettext_noop("The former server may have started it"),
    "domain_failed": gettext_noop("The sending domain is no longer verified (DNS records missing)"),
}
_SMS_REASONS = {
    "no_consent": gettext_noop("No SMS consent on record"),
    "no_channel": gettext_noop("No phone number"),
    "invalid_address": gettext_noop("Not a mobile number"),
    "transport": gettext_noop("The provider rejected 20 messages in a row"),
    "bounce_rate": gettext_noop("More than 5%% of the numbers are invalid"),
}
# The label of each reason why the service paused a flow or ended a run of it.
_FLOW_REASONS = {
    "slow_conditions": gettext_noop("Checking conditions on events took too long"),
    "too_costly": gettext_noop("The contact has too many events for the conditions"),
}
# Icon and label of each consent event.
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
# The label of each kind of actor that causes a consent event.
_CONSENT_ACTORS = {
    "recipient": gettext_noop("by the contact"),
    "operator": gettext_noop("by your team"),
    "service": gettext_noop("by the service"),
}
# The label of each reason why an import does not subscribe a contact, in the order in which they are listed.
_IMPORT_REASONS = {
    "file": gettext_noop("unsubscribed in the file"),
    "before": gettext_noop("unsubscribed before"),
    "unstated": gettext_noop("neither yes nor no in the file"),
    "inactive": gettext_noop("not subscribed in the file"),
    "sms_not_opted_in": gettext_noop("no email address, and not subscribed to SMS"),
    "not_opted_in": gettext_noop("not subscribed by this import"),
}
# The label of each reason why an address of an import is suppressed.
_IMPORT_SUPPRESSIONS = {
    "complaint": gettext_noop("spam complaint"),
    "hard_bounce": gettext_noop("hard bounce"),
    "soft_bounce": gettext_noop("repeated soft bounces"),
    "manual": gettext_noop("suppressed manually or by another service"),
    "erased": gettext_noop("previously deleted (GDPR)"),
    "stop_keyword": gettext_noop("replied STOP"),
}
_IMPORT_FIELDS = {
    "email": gettext_noop("Email"), "phone": gettext_noop("Phone"), "name": gettext_noop("Full name"),
    "first_name": gettext_noop("First name"), "last_name": gettext_noop("Last name"),
    "country_code": gettext_noop("Country"), "language": gettext_noop("Language"), "source": gettext_noop("Source"),
    "tags": gettext_noop("Tags"), "lists": gettext_noop("Lists"), "data": gettext_noop("Custom fields"),
    "subscribed_email": gettext_noop("Subscribed to email"), "subscribed_phone": gettext_noop("Subscribed to SMS"),
    "status": gettext_noop("Status"), "unsubscribed": gettext_noop("Unsubscribed"),
    "bounced": gettext_noop("Bounced"), "opt_in_at": gettext_noop("Subscribed on"),
    "opt_out_at": gettext_noop("Unsubscribed on"), "tracking": gettext_noop("Tracking"),
    "reason": gettext_noop("Reason"), "note": gettext_noop("Note"),
}  # fmt: skip
# The label of each reason why the undo of an import leaves a row unchanged.
_UNDO_EXCEPTIONS = {
    "messaged": gettext_noop("messaged since then"),
    "in_another_list": gettext_noop("added to another list since then"),
    "changed": gettext_noop("changed or used since then"),
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
    """Return the label of a consent event; an unknown event's label is its name in words."""
    return gettext(_CONSENT_EVENTS[name][1]) if name in _CONSENT_EVENTS else name.replace("_", " ").capitalize()


def import_reason_label(name: str) -> str:
    """Return the label of a reason why an import does not subscribe a contact; an unknown reason is shown as it is."""
    label = _IMPORT_REASONS.get(name) or _IMPORT_SUPPRESSIONS.get(name)
    return gettext(label) if label else name


def import_remark(remark: results.Remark, columns: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a remark about a line of a file as text: `phone: Ask Bob (is not a phone number); invalid address`."""
    if isinstance(remark, str):
        return i18n.translate_stored(remark)
    return "; ".join(
        i18n.translate_stored(part) if isinstance(part, str)
        else gettext(
            "%(field)s: %(value)s (%(reason)s)", field=_import_field(part[0], columns), value=part[1],
            reason=i18n.translate_stored(part[2]),
        )
        for part in remark if part
    )  # fmt: skip


def _import_field(target: str, columns: Sequence[Mapping[str, Any]]) -> str:
    """Return the label of the target of a column; a custom field has that of its column, else its key as words."""
    if target in _IMPORT_FIELDS:
        return gettext(_IMPORT_FIELDS[target])
    headings = {column["target"]: column["name"] for column in columns if column.get("target")}
    return headings.get(target) or label_path(target.removeprefix("data."))


def import_reasons(counts: Mapping[str, int], state: str) -> str:
    """Return why contacts of an import have a state, with counts if there are several.

    `counts` are by reason, of all states. `state` is `not_subscribed`, `unsubscribed` or `suppressed`.
    """
    if state == "suppressed":
        return _join_counted(_IMPORT_SUPPRESSIONS, counts)
    is_not_subscribed = state == "not_subscribed"
    labels = {
        name: label for name, label in _IMPORT_REASONS.items()
        if (name in outcome_counts.NOT_SUBSCRIBED_REASONS) == is_not_subscribed
    }  # fmt: skip
    return _join_counted(labels, counts)


def undo_exceptions(resource: str, counts: Mapping[str, int]) -> str:
    """Return the reasons why the undo of an import leaves rows unchanged, with counts if there are several.

    `counts` are by reason. `resource` is what was imported: `contacts` or `suppressions`.
    """
    labels = _UNDO_EXCEPTIONS
    if resource == "suppressions":
        labels = {**labels, "changed": gettext_noop("suppressed again since then")}
    return _join_counted(labels, counts)


def _join_counted(labels: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """Join labels with their counts; those with a count of 0 are left out.

    A single label is returned without its count, because the caller's text contains that number.
    """
    counted = [(gettext(label), counts[name]) for name, label in labels.items() if counts.get(name)]
    if len(counted) == 1:
        return counted[0][0]
    return join_names(
        [gettext("%(reason)s (%(count)s)", reason=label, count=number(count)) for label, count in counted]
    )


def consent_actor(name: str) -> str:
    """Return who caused a consent event, for the end of a phrase, such as `by the contact` or `by your team`."""
    return gettext(_CONSENT_ACTORS[name]) if name in _CONSENT_ACTORS else name


def reason_label(code: str | None, channel: str = "email") -> str:
    """Return the label of the reason why a message was skipped, a campaign or flow paused, or a run ended early.

    An unknown code is labelled with its name.
    """
    if not code:
        return gettext("No reason given")
    if channel == "sms" and code in _SMS_REASONS:
        return gettext(_SMS_REASONS[code])
    if code.startswith("suppressed_"):
        reason = code.removeprefix("suppressed_")
        if reason not in _SUPPRESSIONS:
            return gettext("Suppressed")
        return gettext("Suppressed (%(reason)s)", reason=uncapitalize(suppression_label(reason)))
    label = _REASONS.get(code) or _FLOW_REASONS.get(code)
    return gettext(label) if label is not None else code.replace("_", " ").capitalize()


# The pages of the settings and others where what a check of `campanero doctor` found can be changed, by check.
_CHECK_PAGES = {
    "backups": (gettext_noop("Backups"), "/settings/backups"),
    "copies": (gettext_noop("Backups"), "/settings/backups"),
    "test restore": (gettext_noop("Backups"), "/settings/backups"),
    "domain": (gettext_noop("Domains"), "/settings/domains"),
    "domains": (gettext_noop("Domains"), "/settings/domains"),
    "consent": (gettext_noop("Sending"), "/settings/sending"),
    "outgoing ports": (gettext_noop("Sending"), "/settings/sending"),
    "email transport": (gettext_noop("Sending"), "/settings/sending"),
    "from": (gettext_noop("Domains"), "/settings/domains"),
    "queue": (gettext_noop("Outbox"), "/outbox"),
    "seed DKIM": (gettext_noop("Domains"), "/settings/domains"),
    "seed DMARC": (gettext_noop("Domains"), "/settings/domains"),
    "seed SPF": (gettext_noop("Domains"), "/settings/domains"),
    "seed sender": (gettext_noop("General"), "/settings"),
    "sending": (gettext_noop("Sending"), "/settings/sending"),
    "SMS": (gettext_noop("SMS replies"), "/activity/answers"),
    "SMS transport": (gettext_noop("Sending"), "/settings/sending"),
    "webhooks": (gettext_noop("Webhooks"), "/settings/webhooks"),
}


def check_page(check: str) -> tuple[str, str] | None:
    """Return the name and URL of the page where what a check found can be changed; None if there is no such page."""
    page = _CHECK_PAGES.get("domain" if check.startswith("domain ") else check)
    return (gettext(page[0]), page[1]) if page else None


def sent_so_far(stats: Mapping[str, int]) -> str:
    """Return the progress of a campaign, such as `12 of 30 sent`; neither number includes skipped contacts."""
    total = number(stats["audience"] - stats["skipped"])
    return gettext("%(sent)s of %(total)s sent", sent=number(stats["accepted"]), total=total)


def campaign_outcome(stats: Mapping[str, int], skips: Mapping[str, int], channel: str = "email") -> str:
    """Return the outcome of a finished campaign, such as `Sent to 30 contacts. 19 skipped: unsubscribed`.

    `skips` has the number of messages by the code of their skip reason.
    """
    parts = [ngettext("Sent to %(num)s contact", "Sent to %(num)s contacts", stats["accepted"])]
    if stats["skipped"]:
        parts.append(_describe_skipped(stats["skipped"], skips, channel))
    if stats["failed"]:
        parts.append(ngettext("%(num)s failed", "%(num)s failed", stats["failed"]))
    if stats["uncertain"]:
        parts.append(ngettext("%(num)s unconfirmed", "%(num)s unconfirmed", stats["uncertain"]))
    if stats["cancelled"]:
        parts.append(ngettext("%(num)s not sent", "%(num)s not sent", stats["cancelled"]))
    return ". ".join(parts)


def _describe_skipped(skipped: int, skips: Mapping[str, int], channel: str) -> str:
    if not skips:
        return ngettext("%(num)s skipped", "%(num)s skipped", skipped)
    if len(skips) == 1:
        reasons = uncapitalize(reason_label(next(iter(skips)), channel))
    else:
        reasons = join_names([count_reason(code, count, channel) for code, count in skips.items()])
    return ngettext("%(num)s skipped: %(reasons)s", "%(num)s skipped: %(reasons)s", skipped, reasons=reasons)


def count_reason(code: str, count: int, channel: str = "email") -> str:
    """Return the number of messages that were skipped for a reason, such as `12 unsubscribed`."""
    texts = _count_sms_reasons(count) if channel == "sms" else {}
    if (text := {**_count_reasons(count), **texts}.get(code)) is not None:
        return text
    reason = code.removeprefix("suppressed_")
    if reason in _SUPPRESSIONS and reason != code:
        label = uncapitalize(suppression_label(reason))
        return ngettext("%(num)s suppressed (%(reason)s)", "%(num)s suppressed (%(reason)s)", count, reason=label)
    if reason != code:
        return ngettext("%(num)s suppressed", "%(num)s suppressed", count)
    return gettext("%(label)s: %(value)s", label=uncapitalize(reason_label(code, channel)), value=number(count))


def _count_reasons(count: int) -> dict[str, str]:
    return {
        "unsubscribed": ngettext("%(num)s unsubscribed", "%(num)s unsubscribed", count),
        "no_channel": ngettext("%(num)s without an email address", "%(num)s without an email address", count),
        "invalid_address": ngettext(
            "%(num)s with an invalid email address", "%(num)s with an invalid email address", count
        ),
        "not_verified": ngettext("%(num)s with an unconfirmed address", "%(num)s with an unconfirmed address", count),
        "no_consent": ngettext("%(num)s not subscribed", "%(num)s not subscribed", count),
        "country_not_allowed": ngettext(
            "%(num)s in a country to which SMS are not allowed", "%(num)s in countries to which SMS are not allowed",
            count,
        ),
        "sender_not_allowed": ngettext(
            "%(num)s in a country without an approved sender", "%(num)s in countries without an approved sender", count
        ),
        "too_late": ngettext("%(num)s expired before sending", "%(num)s expired before sending", count),
        "frequency_cap": ngettext("%(num)s over the frequency cap", "%(num)s over the frequency cap", count),
        "quiet_hours_expired": ngettext(
            "%(num)s expired during quiet hours", "%(num)s expired during quiet hours", count
        ),
        "overdue_on_resume": ngettext("%(num)s expired while paused", "%(num)s expired while paused", count),
        "held_out": ngettext("%(num)s in the holdout group", "%(num)s in the holdout group", count),
        "control_group": ngettext("%(num)s in the control group", "%(num)s in the control group", count),
        "render_error": ngettext(
            "%(num)s with content that could not be personalised",
            "%(num)s with content that could not be personalised", count,
        ),
        "contact_deleted": ngettext("%(num)s deleted", "%(num)s deleted", count),
        "smtputf8_unsupported": ngettext(
            "%(num)s with an international address that the mail server does not support",
            "%(num)s with international addresses that the mail server does not support", count,
        ),
    }  # fmt: skip


def _count_sms_reasons(count: int) -> dict[str, str]:
    return {
        "no_consent": ngettext(
            "%(num)s without SMS consent on record", "%(num)s without SMS consent on record", count
        ),
        "no_channel": ngettext("%(num)s without a phone number", "%(num)s without a phone number", count),
        "invalid_address": ngettext("%(num)s without a mobile number", "%(num)s without a mobile number", count),
    }  # fmt: skip


# The filters of page templates, by name.
FILTERS = {"reason": reason_label}
