"""The result of a simulation: a timeline of events with their reasons, as Structs for clients and as text for users."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from textwrap import shorten
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct, field

from appliance.audience.filters.fields import Scope
from appliance.audience.filters.parse import ConditionGroup, EventCondition, Node
from appliance.audience.segments import explain
from appliance.audience.segments.explain import Row
from appliance.content.designs.merge import make_readable
from appliance.core import clock


class Reason(Struct):
    """A filter of a split, and whether it matches the contact; `rows` are the filters of a group.

    `decided` marks the filters that determined the result. For example, if all filters must match, the filters that do
    not match have determined it.
    """

    name: Annotated[str, Meta(description="name of the filter")]
    predicate: Annotated[str, Meta(description="predicate")]
    value: Annotated[Any, Meta(description="value of the filter")]
    sentence: str
    holds: Annotated[bool, Meta(description="whether the filter matches")]
    decided: Annotated[bool, Meta(description="whether this filter determined the result")]
    actual: Annotated[Any, Meta(description="actual value of the contact")]
    found: Annotated[str, Meta(description="the same as a sentence")]
    rows: Annotated["list[Reason]", Meta(description="filters of the group")]


def explain_filters(
    nodes: Sequence[Node], scope: Scope, contact_id: int, event_data: Any, started_at: int
) -> list[Reason]:
    """Return each filter with whether it matches a contact now, for a run that started at `started_at`.

    `event_data` is that of the event that started the run; the time is in Unix milliseconds.
    """
    parameters = {"event_data": msgspec.json.encode(event_data).decode(), "flow_start": started_at}
    reasons = [
        _explain_filter(node, explain.explain_node(node, scope, contact_id, parameters), scope) for node in nodes
    ]
    _mark_decisive(reasons, "all")
    return reasons


def _explain_filter(node: Node, row: Row, scope: Scope) -> Reason:
    parts = node.parts if isinstance(node, ConditionGroup) else []
    part_reasons = [_explain_filter(part, part_row, scope) for part, part_row in zip(parts, row.rows, strict=True)]
    return Reason(
        row.name, row.predicate, row.value, row.sentence, row.matches, False, row.actual,
        _describe_actual(node, row, scope), part_reasons,
    )  # fmt: skip


def _mark_decisive(rows: Sequence[Reason], mode: str) -> None:
    """Set `decided` on the filters that determined the result of a group with the mode `all`, `any` or `none`."""
    holding = [row for row in rows if row.holds]
    missing = [row for row in rows if not row.holds]
    decisive = (missing or holding) if mode == "all" else (holding or missing)
    for row in decisive:
        row.decided = True
        if row.rows:
            _mark_decisive(row.rows, row.predicate)


def _describe_actual(node: Node, row: Row, scope: Scope) -> str:
    """Return the contact's value for a filter as text; for a group, how many of its filters hold."""
    if isinstance(node, ConditionGroup):
        holding = sum(part.matches for part in row.rows)
        return f"{holding} of {len(row.rows)} hold"
    if isinstance(node, EventCondition):
        return _describe_events(row.actual, scope)
    if node.field.type == "time":
        return "never" if row.actual is None else format_moment(clock.parse(row.actual), scope.zone)
    if node.field.type == "boolean":
        return "yes" if row.actual is True else "no"
    if node.field.type == "id":
        names = [explain.fetch_name(scope.account_id, node.field.id_kind, number) for number in row.actual or []]
        return _join([f"“{name}”" for name in names])
    return _describe_value(row.actual)


def _describe_events(actual: Any, scope: Scope) -> str:
    if not actual["count"]:
        return "never"
    count = {1: "once", 2: "twice"}.get(actual["count"], f"{actual['count']} times")
    return f"{count}, last {format_moment(clock.parse(actual['last_at']), scope.zone)}"


def _describe_value(value: Any) -> str:
    if value is None or value == []:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _join([_describe_value(item) for item in value])
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()[:200]
    return f"“{value}”" if isinstance(value, str) else str(value)


def _join(parts: list[str]) -> str:
    suffix = f" and {len(parts) - 10} more" if len(parts) > 10 else ""
    return ", ".join(parts[:10]) + suffix or "none"


def format_moment(ms: int, zone: str) -> str:
    """Return the date and time of a Unix time in milliseconds, in a time zone, as `Tue 24 Nov 2026, 10:00`."""
    return f"{format_day(ms, zone)}, {format_time(ms, zone)}"


def format_day(ms: int, zone: str) -> str:
    """Return the date of a Unix time in milliseconds, in a time zone, as `Tue 24 Nov 2026`."""
    moment = datetime.fromtimestamp(ms / 1000, ZoneInfo(zone))
    return f"{moment:%a} {moment.day} {moment:%b %Y}"


def format_time(ms: int, zone: str) -> str:
    """Return the time of day of a Unix time in milliseconds, in a time zone, as `10:00`, or `10:00:05` with seconds."""
    moment = datetime.fromtimestamp(ms / 1000, ZoneInfo(zone))
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


_RULES = re.compile(r"^[=\-]{3,}$", re.MULTILINE)  # the lines under headings in text parts
_PATH_PART = re.compile(r"(steps|yes|no)\[(\d+)\]")
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
    leaves_at: Annotated[str, Meta(description="when the message is sent; null if it is not")] | None
    segments: int | None = None

    def is_held(self, now: int) -> bool:
        """Return whether the message is held until a time after `now` (Unix milliseconds)."""
        return self.status == "held" and self.leaves_at is not None and clock.parse(self.leaves_at) > now


class Entry(Struct):
    """An entry in the timeline of a simulation, such as a step that was executed.

    The outcome of a step is `on`, `yes`, `no`, `skipped`, `exited` or `waits`.
    """

    at: Annotated[str, Meta(description="time of the entry")]
    told: Annotated[EntryKind, Meta(description="kind")]
    says: Annotated[str, Meta(description="description as a sentence")]
    step_id: Annotated[int, Meta(description="id of the step; null if there is none")] | None = None
    path: Annotated[str, Meta(description="path of the step in the flow")] | None = None
    type: str | None = None
    outcome: Annotated[str, Meta(description="how the contact left the step")] | None = None
    reason: Annotated[str, Meta(description="reason")] | None = None
    until: Annotated[str, Meta(description="until when the contact waits")] | None = None
    event: Annotated[str, Meta(description="name of the event")] | None = None
    data: Annotated[dict[str, Any], Meta(description="data of the event")] | None = None
    filters: Annotated[list[Reason], Meta(description="for a branch, the result of each filter")] = field(
        default_factory=list
    )
    asks: Annotated[
        list[str],
        Meta(description="events that a branch checks, which can be assumed to try the other branch"),
    ] = field(default_factory=list)
    message: Annotated[RenderedMessage, Meta(description="message that the step creates or that is sent")] | None = None


class SimulatedContact(Struct):
    """The contact of a simulation, real or made up."""

    id: Annotated[int, Meta(description="id of the contact; null for a sample contact")] | None
    name: Annotated[str, Meta(description="name of the contact")]


class SimulationEnd(Struct):
    """The end of a simulation; the status is `live` if the contact is still in the flow at the latest end."""

    status: Annotated[Literal["completed", "exited", "live"], Meta(description="how the run ends")]
    reason: Annotated[str, Meta(description="why the contact exited; null if it did not")] | None
    at: Annotated[str, Meta(description="when the run ends; null if it does not")] | None
    step_id: Annotated[int, Meta(description="id of the step at which it ends; null if there is none")] | None
    says: Annotated[str, Meta(description="description as a sentence")]


class Simulation(Struct):
    """The result of a simulation of a flow with one contact; nothing was sent or recorded."""

    flow_id: Annotated[int, Meta(description="id of the flow")]
    version: Annotated[int, Meta(description="version that was simulated; null for steps given in the request")] | None
    contact: Annotated[SimulatedContact, Meta(description="id of the contact")]
    time_zone: Annotated[str, Meta(description="time zone for times of day")]
    started_at: Annotated[str, Meta(description="when the simulation begins")]
    until: str
    end: Annotated[SimulationEnd, Meta(description="how the run ends")]
    timeline: Annotated[list[Entry], Meta(description="entries, oldest first")]
    notes: Annotated[list[str], Meta(description="limits of the simulation")]
    text: Annotated[str, Meta(description="whole result as text")] = ""


def format_text(simulation: Simulation, title: str) -> str:
    """Return a simulation as text, with a line for each entry under the heading of its day."""
    lines = [
        title,
        f"All times are those of {simulation.time_zone}.",
        *_format_days(simulation.timeline, simulation.time_zone),
    ]
    lines += ["", simulation.end.says]
    if simulation.notes:
        lines += ["", *(f"Note: {note}" for note in simulation.notes)]
    return "\n".join(lines) + "\n"


def _format_days(entries: Sequence[Entry], zone: str) -> Iterator[str]:
    shown_day = ""
    for entry in entries:
        at = clock.parse(entry.at)
        entry_day = format_day(at, zone)
        if entry_day != shown_day:
            yield from ("", entry_day)
            shown_day = entry_day
        position = f"{format_position(entry.path)}. " if entry.path and entry.told in ("step", "message") else ""
        # The reasons follow, a line for each filter.
        sentence = entry.says.partition(", because ")[0] if entry.type == "split" else entry.says
        yield f"  {format_time(at, zone)}  {position}{sentence}"
        yield from _format_reasons(entry.filters, 9)
        if entry.message is not None and entry.message.text:
            yield f"         “{_quote(entry.message)}”"


def _quote(message: RenderedMessage) -> str:
    """Return the text of a message on one line: the beginning of an email, or a whole SMS."""
    text = message.text or ""
    if message.channel == "sms":
        return " ".join(text.split())
    return shorten(_RULES.sub("", text.partition("\n-- \n")[0]), 100, placeholder=" …")


def format_position(path: str | None) -> str:
    """Return the path of a step as users count: `steps[1].no[0]` is `2 No 1`."""
    parts = _PATH_PART.findall(path or "")
    return " ".join(f"{int(index) + 1}" if name == "steps" else f"{name.capitalize()} {int(index) + 1}"
                    for name, index in parts)  # fmt: skip


def _format_reasons(reasons: Sequence[Reason], indent: int) -> Iterator[str]:
    for reason in reasons:
        mark = "✓" if reason.holds else "✗"
        group_words = {"any": "any of these: ", "all": "all of these: ", "none": "none of these: "}
        sentence = group_words.get(reason.predicate, reason.sentence) if reason.rows else reason.sentence
        decided = "  ← this decided" if reason.decided else ""
        yield f"{' ' * indent}{mark} {sentence.rstrip(': ')}: {reason.found}{decided}"
        yield from _format_reasons(reason.rows, indent + 2)


# Texts in the entries of a simulation.

_END_WORDS = {
    "completed": "the last step is done", "goal": "the goal is reached", "exit_step": "a step says so",
    "contact_deleted": "the contact is gone", "failed": "a step failed",
}  # fmt: skip
_SKIP_WORDS = {
    "unsubscribed": "they have unsubscribed", "no_channel": "they have no such address",
    "no_consent": "they never opted in", "frequency_cap": "they have had as many as the account allows",
    "render_error": "it cannot be made", "invalid_address": "their address is none",
    "country_not_allowed": "SMS do not go to their country",
    "sender_not_allowed": "no sender of the account is allowed to send to their country",
    "transactional_disabled": "service messages are switched off",
    "not_verified": "they have not confirmed their address", "quiet_hours_expired": "the quiet hours lasted too long",
}  # fmt: skip


def describe_decision(reasons: Sequence[Reason], yes: bool) -> str:
    """Return a text that says why a split took a branch: the filters that decided, with the contact's values.

    `yes` says which branch it took.
    """
    decisive = [reason for reason in reasons if reason.decided]
    parts = [f"somebody {_get_sentence(reason)} (found: {reason.found})" for reason in decisive[:3]]
    if len(decisive) > 3:
        parts.append(f"{len(decisive) - 3} more")
    return f"because this is {' and '.join(parts)}" if yes else f"because this is not {' nor '.join(parts)}"


def _get_sentence(reason: Reason) -> str:
    """Return the text of a filter, or the text of a group of filters without the brackets around it."""
    return reason.sentence.removeprefix("(").removesuffix(")") if reason.rows else reason.sentence


def describe_skip(reason: str | None) -> str:
    """Return a text for the reason code with which a step or message was skipped."""
    reason = reason or "skipped"
    if reason.startswith("suppressed_"):
        return f"their address is suppressed ({reason.removeprefix('suppressed_').replace('_', ' ')})"
    return _SKIP_WORDS.get(reason, reason.replace("_", " "))


def describe_end(status: str, reason: str | None) -> str:
    """Return a text that says why a run ended, from its status and exit reason."""
    text = _END_WORDS.get(reason or status)
    return text or (reason or status).replace("_", " ")


def describe_message(message: RenderedMessage, zone: str) -> str:
    """Return a text that says whether a message is sent, waits or is skipped."""
    name = _name_message(message)
    if message.status == "skipped":
        return f"{name} is skipped, {describe_skip(message.skip_reason)}"
    if message.status in ("queued", "held"):
        until = f" until {format_moment(clock.parse(message.leaves_at), zone)}" if message.leaves_at else ""
        return f"{name} waits{until}"
    return f"{name} goes to {message.to}"


def _name_message(message: RenderedMessage) -> str:
    if message.channel == "email":
        return f"Email “{make_readable(message.subject)}”" if message.subject else "Email"
    return f"SMS of {message.segments} parts" if (message.segments or 0) > 1 else "SMS"
