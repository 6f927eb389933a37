"""What people changed of a flow that is live, beside what is live: told step by step, published at once, or dropped.

Whoever is inside goes on as they entered; only how long they wait where they stand can be made new for them too.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.content.templates import history, revisions
from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid
from appliance.flows import document, draft_edits, drafts, people, report, states, store, tree, version_snapshot
from appliance.flows.document import BRANCHES, Step
from appliance.flows.draft_edits import Sketch
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.wait import spoken
from appliance.flows.triggers import Start
from appliance.storage.models import Flow, Template
from appliance.storage.open import rows
from appliance.storage.work import after_commit, writing

# How many one transaction gives a new time, so that nobody waits for it
CHUNK = 200
_WAITING = "SELECT action_id, count(*) FROM run WHERE flow_id = ? AND status = 'live' AND test = 0 GROUP BY 1"
_RETIMED = (
    "UPDATE run SET due_at = p.entered_at + ?3, updated_at = ?4 FROM passage p WHERE p.id = run.passage_id "
    "AND run.id IN (SELECT id FROM run WHERE flow_id = ?1 AND action_id = ?2 AND status = 'live' AND id > ?5 "
    "AND passage_id IS NOT NULL ORDER BY id LIMIT ?6) RETURNING run.id"
)


class Change(NamedTuple):
    """One thing that is otherwise than live: `added`, `removed`, `changed`, `moved`; of a step, or of the flow itself.

    `waiting` people stand in that step now; `seconds` is how long it is to wait, where that is what changed.
    """

    what: str
    step_id: int | None
    label: str
    summary: str
    detail: str = ""
    waiting: int = 0
    seconds: int | None = None


def inside(flow_id: int) -> dict[int | None, int]:
    """Return how many people stand in each step of a flow now, tests apart."""
    return dict(rows(_WAITING, (flow_id,)))


def differences(account_id: int, flow_id: int) -> list[Change]:
    """Return what people changed of a flow that nobody has published yet; raises NotFound."""
    drawn = draft_edits.of(account_id, flow_id)
    return [*_differences(drawn)] if drawn.is_changed else []


def _differences(drawn: Sketch) -> Iterator[Change]:
    flow = drawn.flow
    start, stand = draft_edits.started_by(flow.id), inside(flow.id)
    if drawn.start != start:
        yield Change("changed", None, "Start", "", _start_words(start, drawn.start))
    if drawn.goal != flow.goal:
        yield Change("changed", None, "Goal", drawn.goal or "no goal any more")
    had = {step["id"]: step for _, step in document.walk(draft_edits.said(flow.steps))}
    has = {step["id"]: step for _, step in document.walk(draft_edits.said(drawn.steps))}
    worded = states.drifted(flow)
    for number, step in has.items():
        if number not in had:
            yield _change("added", flow, step)
            continue
        seconds = step["duration"] if step["type"] == "wait" and step != had[number] else None
        detail = _detail(had[number], step, worded.get(number))
        if detail:
            yield _change("changed", flow, step, detail, stand.get(number, 0), seconds)
        elif _around(flow.steps, number) != _around(drawn.steps, number, {*had}):
            yield _change("moved", flow, step)
    for number, step in had.items():
        if number not in has:
            yield _change("removed", flow, step, waiting=stand.get(number, 0))


def _change(
    what: str, flow: Flow, step: Step, detail: str = "", waiting: int = 0, seconds: int | None = None
) -> Change:  # fmt: skip
    label = BY_TYPE[step["type"]].label
    return Change(what, step["id"], label, report.summary(flow.account_id, step), detail, waiting, seconds)


def _detail(had: Step, has: Step, words: Any) -> str:
    """Return what of a step is otherwise; empty if nothing is."""
    told = []
    if had["type"] == "wait" and had["duration"] != has["duration"]:
        told.append(f"was {spoken(had['duration'])}")
    elif any(had.get(key) != has.get(key) for key in {*had, *has} - {*BRANCHES, "content"}):
        told.append("its settings")
    if words is not None:
        row, live = words
        told.append(revisions.changed_words([name for name, value in live.items() if getattr(row, name) != value]))
    return ", ".join(told)


def _around(steps: list[Step], number: int, known: set[int] | None = None) -> Any:
    """Return where a step stands among those that were there before."""
    found = tree.place(steps, number)
    if found is None:
        return None
    before = [one["id"] for one in found.siblings[: found.at] if known is None or one["id"] in known]
    return (found.parent["id"] if found.parent else None, found.branch, before[-1:])


def _start_words(had: Start, has: Start) -> str:
    if had.event != has.event:
        return f"{has.event} in place of {had.event}"
    names = [name for name in ("segment_id", "contact_list_id", "data") if getattr(had, name) != getattr(has, name)]
    shown = {"segment_id": "segment", "contact_list_id": "list", "data": "conditions"}
    return ", ".join(shown[name] for name in names)


def warm(account_id: int, flow_id: int) -> None:
    """Look at the messages of a flow before the writer has to."""
    drawn = draft_edits.of(account_id, flow_id)
    version_snapshot.warm(account_id, drawn.steps, drawn.flow)


def publish(account_id: int, flow_id: int, by: By) -> Flow:
    """Let what people changed be what is live, for everybody who comes from now on.

    Raises NotFound, or Invalid with all that is missing, and then nothing is changed.
    """
    writing()
    drawn = draft_edits.of(account_id, flow_id)
    flow = drawn.flow
    if flow.draft is not None:
        if flow.status == "active" and not states.approves(flow, by):
            # What is live goes on as it is until somebody has looked at the change
            words = approving.OWN if by.approves else approving.WANTED
            raise Invalid({"base": [words]}, reason="approval_required")
        flow.draft = None
        flow.steps = version_snapshot.place_words(account_id, flow_id, drawn.steps, by.user_id)
        flow.goal = drawn.goal
        store.retrigger(flow, drawn.start)
        states.edited(flow, by)
    return store.saved(flow)


def start(account_id: int, flow_id: int, by: By, skip_overdue_seconds: int | None = None) -> Flow:
    """Let a flow go live, or on after a pause, as people changed it; raises as `publish`."""
    writing()
    publish(account_id, flow_id, by)
    return store.moved(account_id, flow_id, states.activate, by, skip_overdue_seconds)


def discard(account_id: int, flow_id: int, by: By) -> None:
    """Drop what people changed: steps, start and words are again as they are live; raises NotFound."""
    writing()
    flow = people.flow_of(account_id, flow_id)
    worded = states.drifted(flow)
    drafts.keep(flow, None)
    for row, live in worded.values():
        number = _revision(row.id, live)
        if number is not None:
            history.restore(account_id, row.id, number, by.user_id)
    drafts.keep(people.flow_of(account_id, flow_id), None)


def _revision(template_id: int, live: dict[str, Any]) -> int | None:
    row = Template.get_by_id(template_id)
    for number in sorted(revisions.origins_of(template_id), reverse=True):
        if revisions.get(row.account_id, template_id, number).document == live:
            return number
    return None


def retime(flow_id: int, step_id: int, seconds: int, after: int) -> int | None:
    """Let some people who wait in a step wait so long since they came; returns the last of them, None if none is left.

    Those who have waited that long by now go on at once.
    """
    writing()
    done = rows(_RETIMED, (flow_id, step_id, seconds * 1000, clock.now_ms(), after, CHUNK))
    after_commit(lambda: wake_ups.ring("flows"))
    return max((row[0] for row in done), default=None)
