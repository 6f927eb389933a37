"""What a rehearsal with many answers: how many came to each step and how they left it, for programs and as a text."""

from collections.abc import Iterator

from msgspec import Struct, field

from appliance.db.open import rows
from appliance.db.sandbox import FIRST
from appliance.flows import document, simulation_words, timeline
from appliance.flows.steps import BY_TYPE
from appliance.tables import Flow


class StepCount(Struct):
    """What became of the people at one step; `reasons` are those of who was skipped or left, and of unsent messages."""

    step_id: int
    path: str
    type: str
    summary: str
    entered: int = 0
    on: int = 0
    yes: int = 0
    no: int = 0
    skipped: int = 0
    exited: int = 0
    waiting: int = 0
    sent: int = 0
    unsent: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Crowd(Struct):
    """A rehearsal with many: how many met the trigger, how many of them were taken, and where they went."""

    flow_id: int
    version: int | None
    days: int
    met: int
    rehearsed: int
    sampled: bool
    completed: int
    exited: int
    live: int
    reasons: dict[str, int]
    steps: list[StepCount]
    notes: list[str]
    text: str = ""


def steps(flow: Flow) -> list[StepCount]:
    """Count the passages and messages of each step, in the order of the document."""
    found = {}
    for path, step in document.walk(flow.steps):
        said = BY_TYPE[step["type"]].summary(document.kept(step), flow.account_id)
        found[step["id"]] = StepCount(step["id"], path, step["type"], said)
    for action_id, outcome, reason, count in rows(
        "SELECT action_id, outcome, reason, count(*) FROM passage WHERE flow_id = ? GROUP BY 1, 2, 3", (flow.id,)
    ):
        counted = found[action_id]
        counted.entered += count
        name = outcome or "waiting"
        setattr(counted, name, getattr(counted, name) + count)
        if reason is not None:
            counted.reasons[reason] = counted.reasons.get(reason, 0) + count
    for step_id, status, reason, count in rows(
        "SELECT step_id, status, skip_reason, count(*) FROM message WHERE flow_id = ? AND id > ? GROUP BY 1, 2, 3",
        (flow.id, FIRST),
    ):
        counted = found[step_id]
        if status in ("skipped", "held", "queued", "failed"):
            counted.unsent += count
            counted.reasons.setdefault(reason or status, count)
        else:
            counted.sent += count
    return list(found.values())


def text(flow: Flow, found: Crowd) -> str:
    """Write the counts as a page that a person reads from the top."""
    what = f"version {found.version}, which is live" if found.version else "as it is edited"
    lines = [
        f"Rehearsal of “{flow.name}” ({what}) with those who met its trigger in the last {found.days} days",
        f"{found.met} people met it; {found.rehearsed} were taken.", "",
    ]  # fmt: skip
    for step in found.steps:
        lines += [f"{timeline.place(step.path)}. {step.summary}", f"     {', '.join(_parts(step))}"]
    lines += ["", f"In the end {found.completed} completed it, {found.exited} left before, {found.live} are inside."]
    lines += [f"Note: {note}" for note in found.notes]
    return "\n".join(lines) + "\n"


def _parts(step: StepCount) -> Iterator[str]:
    yield f"{step.entered} come"
    if step.type == "split" and step.entered:
        yield f"Yes {step.yes} ({_share(step.yes, step.entered)})"
        yield f"No {step.no} ({_share(step.no, step.entered)})"
    for name in ("sent", "unsent", "skipped", "exited", "waiting"):
        if number := getattr(step, name):
            yield f"{number} {name}"
    for reason, number in step.reasons.items():
        yield f"{simulation_words.skipped(reason)}: {number}"


def _share(number: int, of: int) -> str:
    return f"{number / of:.0%}"
