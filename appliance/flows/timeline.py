"""What a rehearsal answers: moment for moment what happened and why, for programs and as a text for people."""

import re
from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Any, Literal

from msgspec import Struct, field

from appliance.core import clock
from appliance.flows.why import Reason, day, hour

_LINES = re.compile(r"^[=\-]{3,}$", re.MULTILINE)  # under headings
_PART = re.compile(r"(steps|yes|no)\[(\d+)\]")
Told = Literal["enter", "step", "message", "assumed", "recorded", "starts", "goal"]


class Rendered(Struct):
    """A message as this person would get it; one that does not leave says why. `segments` are parts of an SMS."""

    channel: str
    status: str
    skip_reason: str | None
    to: str | None
    sender: str | None
    subject: str | None
    html: str | None
    text: str | None
    leaves_at: str | None
    segments: int | None = None

    def is_held(self, now: int) -> bool:
        """Return whether it is known when it goes on."""
        return self.status == "held" and self.leaves_at is not None and clock.parse(self.leaves_at) > now


class Entry(Struct):
    """Something that happens in a rehearsal; `says` is the whole of it in a sentence.

    Of a step: where it stands in the document, how the person left it (`on yes no skipped exited waits`), until when
    they wait, and of a branch each filter with what was found; `asks` are the events that it asks for, so that the
    other way can be tried by assuming one. `message` is what a step sends, or what leaves.
    """

    at: str
    told: Told
    says: str
    step_id: int | None = None
    path: str | None = None
    type: str | None = None
    outcome: str | None = None
    reason: str | None = None
    until: str | None = None
    event: str | None = None
    data: dict[str, Any] | None = None
    filters: list[Reason] = field(default_factory=list)
    asks: list[str] = field(default_factory=list)
    message: Rendered | None = None


class Person(Struct):
    """Whom a rehearsal is about; without an id somebody made up."""

    id: int | None
    name: str


class End(Struct):
    """How it ends: `completed`, `exited`, or `live` for who is still inside when the time is over."""

    status: Literal["completed", "exited", "live"]
    reason: str | None
    at: str | None
    step_id: int | None
    says: str


class Simulated(Struct):
    """A rehearsal of a flow with one person: nothing of it was sent or recorded."""

    flow_id: int
    version: int | None
    contact: Person
    time_zone: str
    started_at: str
    until: str
    end: End
    timeline: list[Entry]
    notes: list[str]
    text: str = ""


def text(found: Simulated, title: str) -> str:
    """Write a rehearsal as a page that a person reads from the top: a line for each thing, by day."""
    lines = [title, f"All times are those of {found.time_zone}.", *_days(found.timeline, found.time_zone)]
    lines += ["", found.end.says]
    if found.notes:
        lines += ["", *(f"Note: {note}" for note in found.notes)]
    return "\n".join(lines) + "\n"


def _days(entries: Sequence[Entry], zone: str) -> Iterator[str]:
    shown = ""
    for entry in entries:
        at = clock.parse(entry.at)
        today = day(at, zone)
        if today != shown:
            yield from ("", today)
            shown = today
        where = f"{place(entry.path)}. " if entry.path and entry.told in ("step", "message") else ""
        # Why stands below, filter by filter
        says = entry.says.partition(", because ")[0] if entry.type == "split" else entry.says
        yield f"  {hour(at, zone)}  {where}{says}"
        yield from _reasons(entry.filters, 9)
        if entry.message is not None and entry.message.text:
            yield f"         “{_quoted(entry.message)}”"


def _quoted(message: Rendered) -> str:
    """Quote how a mail begins, or all that an SMS says, on one line."""
    text = message.text or ""
    if message.channel == "sms":
        return " ".join(text.split())
    return shorten(_LINES.sub("", text.partition("\n-- \n")[0]), 100, placeholder=" …")


def place(path: str | None) -> str:
    """Return where a step stands as people count: `steps[1].no[0]` is `2 No 1`."""
    parts = _PART.findall(path or "")
    return " ".join(f"{int(index) + 1}" if name == "steps" else f"{name.capitalize()} {int(index) + 1}"
                    for name, index in parts)  # fmt: skip


def _reasons(reasons: Sequence[Reason], indent: int) -> Iterator[str]:
    for one in reasons:
        mark = "✓" if one.holds else "✗"
        joined = {"any": "any of these: ", "all": "all of these: ", "none": "none of these: "}
        said = joined.get(one.predicate, one.sentence) if one.rows else one.sentence
        yield f"{' ' * indent}{mark} {said.rstrip(': ')}: {one.found}{'  ← this decided' if one.decided else ''}"
        yield from _reasons(one.rows, indent + 2)
