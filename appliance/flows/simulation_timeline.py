"""The result of a simulation: a timeline of events with their reasons, as Structs for clients and as text for users."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from textwrap import shorten
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct, field

from appliance.audience.filters.compiler import ConditionGroup, EventCondition, Node
from appliance.audience.filters.fields import Scope
from appliance.audience.segments import explain
from appliance.audience.segments.explain import FilterResult
from appliance.content.designs.merge import make_readable
from appliance.core import clock, i18n
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.flows.request_template import describe_reason


class SplitReason(Struct):
    """A filter of a split, and whether it matches the contact; `rows` are the filters of a group.

    `decided` marks the filters that determined the result. For example, if all filters must match, the filters that do
    not match have determined it.
    """

    name: Annotated[str, Meta(description="name of the filter")]
    predicate: Annotated[str, Meta(description="predicate")]
    value: Annotated[Any, Meta(description="value of the filter")]
    sentence: str
    matches: Annotated[bool, Meta(description="whether the filter matches")]
    decided: Annotated[bool, Meta(description="whether this filter determined the result")]
    actual: Annotated[Any, Meta(description="actual value of the contact")]
    actual_text: Annotated[str, Meta(description="the same as text")]
    rows: Annotated["list[SplitReason]", Meta(description="filters of the group")]


def explain_filters(
    nodes: Sequence[Node], scope: Scope, contact_id: int, event_data: Any, started_at: int
) -> list[SplitReason]:
    """Return a `SplitReason` for each filter: whether it matches a contact now, in a run that started at `started_at`.

    `event_data` is the data of the event that started the run; `started_at` is in Unix milliseconds.
    """
    parameters = {"event_data": msgspec.json.encode(event_data).decode(), "flow_start": started_at}
    reasons = [
        _explain_filter(node, explain.explain_node(node, scope, contact_id, parameters), scope) for node in nodes
    ]
    _mark_decisive(reasons, "all")
    return reasons


def _explain_filter(node: Node, row: FilterResult, scope: Scope) -> SplitReason:
    parts = node.parts if isinstance(node, ConditionGroup) else []
    part_reasons = [_explain_filter(part, part_row, scope) for part, part_row in zip(parts, row.rows, strict=True)]
    return SplitReason(
        row.name, row.predicate, row.value, row.sentence, row.matches, False, row.actual,
        _describe_actual(node, row, scope), part_reasons,
    )  # fmt: skip


def _mark_decisive(rows: Sequence[SplitReason], mode: str) -> None:
    """Set `decided` on the filters that determined the result of a group with the mode `all`, `any` or `none`."""
    holding = [row for row in rows if row.matches]
    missing = [row for row in rows if not row.matches]
    decisive = (missing or holding) if mode == "all" else (holding or missing)
    for row in decisive:
        row.decided = True
        if row.rows:
            _mark_decisive(row.rows, row.predicate)


def _describe_actual(node: Node, row: FilterResult, scope: Scope) -> str:
    """Return the contact's value for a filter as text; for a group, how many of its filters match."""
    if isinstance(node, ConditionGroup):
        holding = sum(part.matches for part in row.rows)
        return ngettext(
            "%(count)s of %(num)s matches",
            "%(count)s of %(num)s match",
            len(row.rows),
            count=i18n.format_number(holding),
        )
    if isinstance(node, EventCondition):
        return _describe_events(row.actual, scope)
    if node.field.type == "time":
        return gettext("never") if row.actual is None else format_moment(clock.parse(row.actual), scope.zone)
    if node.field.type == "boolean":
        return gettext("yes") if row.actual is True else gettext("no")
    if node.field.type == "id":
        names = [explain.fetch_name(scope.account_id, node.field.id_kind, number) for number in row.actual or []]
        return _join([gettext("“%(text)s”", text=name) for name in names])
    return _describe_value(row.actual)


def _describe_events(actual: Any, scope: Scope) -> str:
    if not actual["count"]:
        return gettext("never")
    last_time = format_moment(clock.parse(actual["last_at"]), scope.zone)
    return ngettext("once, last %(time)s", "%(num)s times, last %(time)s", actual["count"], time=last_time)


def _describe_value(value: Any) -> str:
    if value is None or value == []:
        return gettext("empty")
    if isinstance(value, bool):
        return gettext("true") if value else gettext("false")
    if isinstance(value, list):
        return _join([_describe_value(item) for item in value])
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()[:200]
    if isinstance(value, float):
        return str(value).replace(".", i18n.get_decimal_mark())
    return gettext("“%(text)s”", text=value) if isinstance(value, str) else str(value)


def _join(parts: list[str]) -> str:
    items = ", ".join(parts[:10])
    if len(parts) > 10:
        return ngettext("%(items)s and %(num)s more", "%(items)s and %(num)s more", len(parts) - 10, items=items)
    return items or gettext("none")


def format_moment(ms: int, zone: str) -> str:
    """Return the date and time of a Unix time in milliseconds, in a time zone, as `Tue, 24 Nov 2026, 10:00`."""
    return gettext("%(date)s, %(time)s", date=format_day(ms, zone), time=format_time(ms, zone))


def format_day(ms: int, zone: str) -> str:
    """Return the date of a Unix time in milliseconds, in a time zone, as `Tue, 24 Nov 2026`."""
    return i18n.format_date(datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)), "yMMMEd")


def format_time(ms: int, zone: str) -> str:
    """Return the hour and minute of a Unix time in milliseconds, in a time zone, as `10:00`."""
    return i18n.format_clock(datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)))


_RULES = re.compile(r"^[=\-]{3,}$", re.MULTILINE)  # the lines under headings in text parts
EntryKind = Literal["enter", "step", "message", "assumed", "recorded", "starts", "goal"]


class RenderedMessage(Struct):
    """A message as the contact would get it, or why it is not sent; `segments` is the number of parts of an SMS."""

    channel: str
    status: Annotated[str, Meta(description="status of the message")]
    skip_reason: Annotated[str, Meta(description="why the message is skipped; null if it is not")] | None
    to: Annotated[str, Meta(description="recipient")] | None
    sender: Annotated[str, Meta(description="sender of the message")] | None
    subject: str | None
    html: Annotated[str, Meta(description="HTML content; null if there is none")] | None
    text: str | None
    leaves_at: Annotated[str, Meta(description="until when the message is held; null if it is not held")] | None
    segments: int | None = None

    def is_held(self, now: int) -> bool:
        """Return whether the message is held until a time after `now` (Unix milliseconds)."""
        return self.status == "held" and self.leaves_at is not None and clock.parse(self.leaves_at) > now


class SimulationEntry(Struct):
    """An entry in the timeline of a simulation, such as a step that was executed.

    The outcome of a step is `on`, `yes`, `no`, `skipped`, `exited` or `waits`.
    """

    at: Annotated[str, Meta(description="time of the entry")]
    kind: Annotated[EntryKind, Meta(description="kind")]
    description: Annotated[str, Meta(description="description as a sentence")]
    step_id: Annotated[int, Meta(description="id of the step; null if there is none")] | None = None
    path: Annotated[str, Meta(description="path of the step in the flow")] | None = None
    type: str | None = None
    outcome: Annotated[str, Meta(description="how the contact left the step, or `waits`")] | None = None
    reason: Annotated[str, Meta(description="reason")] | None = None
    branch: Annotated[str, Meta(description="label of the branch that the contact took")] | None = None
    until: Annotated[str, Meta(description="until when the contact waits")] | None = None
    event: Annotated[str, Meta(description="name of the event")] | None = None
    data: Annotated[dict[str, Any], Meta(description="data of the event")] | None = None
    filters: Annotated[list[SplitReason], Meta(description="for a branch, the result of each filter")] = field(
        default_factory=list
    )
    checked_events: Annotated[
        list[str],
        Meta(description="events that a branch checks, which can be assumed to try the other branch"),
    ] = field(default_factory=list)
    message: Annotated[RenderedMessage, Meta(description="message that the step creates or that is sent")] | None = None


class SimulatedContact(Struct):
    """The contact of a simulation, real or a sample contact."""

    id: Annotated[int, Meta(description="id of the contact; null for a sample contact")] | None
    name: Annotated[str, Meta(description="name of the contact")]


class SimulationEnd(Struct):
    """The end of a simulation; the status is `live` if the contact is still in the flow at the latest end."""

    status: Annotated[Literal["completed", "exited", "live"], Meta(description="how the run ends")]
    reason: Annotated[str, Meta(description="why the contact exited; null if it did not")] | None
    at: Annotated[str, Meta(description="when the run ends; null if it does not")] | None
    step_id: Annotated[int, Meta(description="id of the step at which it ends; null if there is none")] | None
    description: Annotated[str, Meta(description="description as a sentence")]


SimulatedVersion = (
    Annotated[
        int,
        Meta(description="live version that was simulated; null if the flow is not active or other steps were tried"),
    ]
    | None
)


class Simulation(Struct):
    """The result of a simulation of a flow with one contact; nothing was sent or recorded."""

    flow_id: Annotated[int, Meta(description="id of the flow")]
    version: SimulatedVersion
    contact: Annotated[SimulatedContact, Meta(description="contact of the simulation")]
    time_zone: Annotated[str, Meta(description="time zone for times of day")]
    started_at: Annotated[str, Meta(description="when the simulation begins")]
    until: str
    end: Annotated[SimulationEnd, Meta(description="how the run ends")]
    timeline: Annotated[list[SimulationEntry], Meta(description="entries, oldest first")]
    notes: Annotated[list[str], Meta(description="limits of the simulation")]
    text: Annotated[str, Meta(description="whole result as text")] = ""


def format_text(simulation: Simulation, title: str) -> str:
    """Return a simulation as text, with a line for each entry under the heading of its day."""
    lines = [
        title,
        f"Time zone: {simulation.time_zone}.",
        *_format_days(simulation.timeline, simulation.time_zone),
    ]
    lines += ["", simulation.end.description]
    if simulation.notes:
        lines += ["", *(f"Note: {note}" for note in simulation.notes)]
    return "\n".join(lines) + "\n"


def _format_days(entries: Sequence[SimulationEntry], zone: str) -> Iterator[str]:
    shown_day = ""
    for entry in entries:
        at = clock.parse(entry.at)
        entry_day = format_day(at, zone)
        if entry_day != shown_day:
            yield from ("", entry_day)
            shown_day = entry_day
        # The reasons follow on separate lines, one for each filter.
        sentence = (
            describe_branch(entry.outcome == "yes") if entry.type == "split" and entry.filters else entry.description
        )
        yield f"  {format_time(at, zone)}  {sentence}"
        yield from _format_reasons(entry.filters, 9)
        if entry.message is not None and entry.message.text:
            yield f"         “{_quote(entry.message)}”"


def _quote(message: RenderedMessage) -> str:
    """Return the text of a message on one line: the beginning of an email, or a whole SMS."""
    text = message.text or ""
    if message.channel == "sms":
        return " ".join(text.split())
    return shorten(_RULES.sub("", text.partition("\n-- \n")[0]), 100, placeholder=" …")


def _format_reasons(reasons: Sequence[SplitReason], indent: int) -> Iterator[str]:
    for reason in reasons:
        mark = "✓" if reason.matches else "✗"
        group_words = {"any": "any of these", "all": "all of these", "none": "none of these"}
        sentence = group_words.get(reason.predicate, reason.sentence) if reason.rows else reason.sentence
        decided = "  ← decisive" if reason.decided else ""
        yield f"{' ' * indent}{mark} {sentence}: {reason.actual_text}{decided}"
        yield from _format_reasons(reason.rows, indent + 2)


# Texts in the entries of a simulation.

_END_WORDS = {
    "completed": gettext_noop("last step completed"),
    "goal": gettext_noop("goal reached"),
    "exit_step": gettext_noop("exit step reached"),
    "contact_deleted": gettext_noop("contact deleted"),
    "failed": gettext_noop("a step failed"),
}
_END_SENTENCES = {
    "completed": gettext_noop("Completes the flow after its last step: %(time)s."),
    "goal": gettext_noop("Exits the flow because the goal is reached: %(time)s."),
    "exit_step": gettext_noop("Exits the flow at an exit step: %(time)s."),
    "contact_deleted": gettext_noop("Exits the flow because the contact is deleted: %(time)s."),
    "failed": gettext_noop("Exits the flow because a step fails: %(time)s."),
}
_SKIP_WORDS = {
    "unsubscribed": gettext_noop("unsubscribed"),
    "no_channel": gettext_noop("no address for this channel"),
    "no_consent": gettext_noop("not subscribed"),
    "frequency_cap": gettext_noop("frequency cap reached"),
    "render_error": gettext_noop("the content could not be rendered"),
    "invalid_address": gettext_noop("invalid address"),
    "country_not_allowed": gettext_noop("SMS to this country are not allowed"),
    "sender_not_allowed": gettext_noop("no sender is approved for this country"),
    "transactional_disabled": gettext_noop("transactional messages are turned off"),
    "not_verified": gettext_noop("address not confirmed"),
    "quiet_hours_expired": gettext_noop("expired during quiet hours"),
    "exit_step": gettext_noop("exit step reached"),
    "failed": gettext_noop("a step failed"),
    "left_list": gettext_noop("the contact left this list before"),
    "list_deleted": gettext_noop("the list was deleted"),
    "list_is_view": gettext_noop("the list follows a segment"),
    "no_colleague": gettext_noop("the colleague no longer has access"),
    "too_many_notices": gettext_noop("too many notifications in an hour"),
    "test_run": gettext_noop("nobody is notified of a test"),
    "test_request": gettext_noop("no request is made for a test"),
    "invalid_data": gettext_noop("the data would be invalid or too long"),
    "contact_deleted": gettext_noop("the contact was deleted"),
    "no_date": gettext_noop("the contact has no date there"),
    "date_passed": gettext_noop("the date is past"),
    "timed_out": gettext_noop("the event did not come in time"),
    "suppressed_hard_bounce": gettext_noop("suppressed: hard bounce"),
    "suppressed_soft_bounce": gettext_noop("suppressed: repeated soft bounces"),
    "suppressed_complaint": gettext_noop("suppressed: spam complaint"),
    "suppressed_manual": gettext_noop("suppressed: added manually"),
    "suppressed_erased": gettext_noop("suppressed: deleted (GDPR)"),
    "suppressed_stop_keyword": gettext_noop("suppressed: replied STOP"),
}


def describe_branch(is_yes: bool) -> str:
    """Return a text that says which branch a split took."""
    return gettext("Branch: Yes") if is_yes else gettext("Branch: No")


def describe_decision(reasons: Sequence[SplitReason]) -> str:
    """Return a text with up to three filters that determined a result, each with the contact's value."""
    decisive = [reason for reason in reasons if reason.decided]
    parts = [
        gettext("%(condition)s (found: %(value)s)", condition=_get_sentence(reason), value=reason.actual_text)
        for reason in decisive[:3]
    ]
    if len(decisive) > 3:
        parts.append(ngettext("%(num)s more", "%(num)s more", len(decisive) - 3))
    return "; ".join(parts)


def _get_sentence(reason: SplitReason) -> str:
    """Return the text of a filter; that of a group is without the brackets around it."""
    return reason.sentence.removeprefix("(").removesuffix(")") if reason.rows else reason.sentence


def describe_skip(reason: str | None) -> str:
    """Return a text for the skip reason of a step or message; an unknown reason is returned with spaces for `_`."""
    if text := describe_reason(reason):
        return text
    reason = reason or "skipped"
    return gettext(_SKIP_WORDS[reason]) if reason in _SKIP_WORDS else reason.replace("_", " ")


def describe_end(status: str, reason: str | None) -> str:
    """Return a text for the exit reason of a run, or for its status if the reason is None."""
    reason = reason or status
    return gettext(_END_WORDS[reason]) if reason in _END_WORDS else reason.replace("_", " ")


def describe_end_at(status: str, reason: str | None, time: str) -> str:
    """Return a sentence that says why and when a run ended."""
    sentence = _END_SENTENCES.get(reason or status)
    if sentence is not None:
        return gettext(sentence, time=time)
    return gettext("Exits the flow (%(reason)s): %(time)s.", reason=describe_end(status, reason), time=time)


def describe_message(message: RenderedMessage, zone: str) -> str:
    """Return a text that says whether a message is sent, waits or is skipped."""
    name = name_message(message)
    if message.status == "skipped":
        return gettext("%(message)s: skipped (%(reason)s)", message=name, reason=describe_skip(message.skip_reason))
    if message.status in ("queued", "held"):
        if not message.leaves_at:
            return gettext("%(message)s: waits", message=name)
        leaves_at = format_moment(clock.parse(message.leaves_at), zone)
        return gettext("%(message)s: waits until %(time)s", message=name, time=leaves_at)
    return gettext("%(message)s: sent to %(recipient)s", message=name, recipient=message.to)


def name_message(message: RenderedMessage) -> str:
    """Return the name of a message; an email's name is its subject."""
    if message.channel == "email":
        subject = make_readable(message.subject) if message.subject else ""
        return gettext("Email “%(subject)s”", subject=subject) if subject else gettext("Email")
    segments = message.segments or 0
    return ngettext("SMS (%(num)s part)", "SMS (%(num)s parts)", segments) if segments > 1 else gettext("SMS")
