"""A flow as its page draws it: a card for each step, with what it does and what became of who came to it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from appliance.audience.segments import explain
from appliance.content.designs.readable import readable
from appliance.events import kinds
from appliance.flows import report, tree, triggers
from appliance.flows.draft_edits import Sketch
from appliance.flows.report import FlowReport, Number, StepFigures
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.wait import spoken
from appliance.flows.triggers import Start
from ui import words
from ui.flow_forms import LABELS

# The colour in which an icon of the registry stands
TONES = {
    "mail": "info", "message-square": "info", "clock": "warn", "split": "hold", "zap": "good", "list": "good",
    "pencil": "", "log-out": "",
}  # fmt: skip
_DAY = 86_400


class Card(NamedTuple):
    """A step as it is drawn; `number` of people with `label` behind it, `stream` is the share who went on from it."""

    id: int
    type: str
    kind: str
    icon: str
    tone: str
    title: str
    sub: str
    number: int | None
    label: str
    people: str
    stream: float
    stopped: str
    lacks: list[str]
    mark: str
    yes: "list[Card]"
    no: "list[Card]"
    shares: tuple[str, str]
    ways: tuple[float, float]
    is_fork: bool


class Figures(NamedTuple):
    """What is known of the people of a flow: by step, and how many entered."""

    entered: int
    steps: Mapping[int, StepFigures]


def figures(found: FlowReport | None) -> Figures:
    """Return the numbers of a report by step."""
    if found is None:
        return Figures(0, {})
    return Figures(found.runs.entered.count, {one.id: one for one in found.steps})


def looks() -> dict[str, tuple[str, str]]:
    """Return icon and colour of each kind of step."""
    return {kind.type: (kind.icon, TONES.get(kind.icon, "good")) for kind in BY_TYPE.values()}


def page_of(number: Number | Any) -> str:
    """Return the page behind a number of a report."""
    return str(number.people).replace("/v1/my/flows/", "/flows/").replace("/runs?", "/people?")


def cards(
    drawn: Sketch, steps: Sequence[dict[str, Any]], known: Figures, lacks: Mapping[int, list[str]],
    marks: Mapping[int, str], level: Sequence[dict[str, Any]] | None = None,
) -> list[Card]:  # fmt: skip
    """Return the cards of a flow whose steps stand with their words."""
    among = list(steps if level is None else level)
    made = [_card(drawn, steps, step, known, lacks, marks) for step in among]
    for index, one in enumerate(made):
        # Behind a branch both ways meet: what flows there is what comes to the next step
        if one.is_fork:
            following = known.steps.get(among[index + 1]["id"]) if index + 1 < len(among) else None
            came = following.entered.count / known.entered if following is not None and known.entered else 0.0
            made[index] = one._replace(stream=came)
    return made


def _card(
    drawn: Sketch, steps: Sequence[dict[str, Any]], step: dict[str, Any], known: Figures,
    lacks: Mapping[int, list[str]], marks: Mapping[int, str],
) -> Card:  # fmt: skip
    kind = BY_TYPE[step["type"]]
    number = step["id"]
    found = known.steps.get(number)
    title, sub = said(drawn.flow.account_id, step)
    count, label, people = _count(step["type"], found)
    return Card(
        number, step["type"], kind.label, kind.icon, TONES.get(kind.icon, "good"), title,
        " · ".join(filter(None, (sub, _rate(found), _distance(drawn.steps, number)))), count, label, people,
        _stream(found, known.entered), _stopped(found), list(lacks.get(number, [])), marks.get(number, ""),
        cards(drawn, steps, known, lacks, marks, step.get("yes") or []),
        cards(drawn, steps, known, lacks, marks, step.get("no") or []), _shares(found),
        _ways(found, known.entered), kind.branches,
    )  # fmt: skip


def said(account_id: int, step: dict[str, Any]) -> tuple[str, str]:
    """Return what a step does: the heading of its card, and the line below."""
    kind, content = step["type"], step.get("content") or {}
    label = BY_TYPE[kind].label
    if kind == "email":
        service = "service message" if step.get("transactional") else ""
        subject = readable((content.get("subject") or "").strip())
        return subject or "No subject yet", " · ".join(filter(None, (label, service)))
    if kind == "sms":
        return readable(content.get("body") or "")[:90] or "No text yet", label
    if kind == "wait":
        return f"Wait {spoken(step['duration'])}", ""
    if kind == "split":
        sentence = report.summary(account_id, step).removesuffix(": yes; all others: no")
        for plain in ("people who ", "people "):
            sentence = sentence[len(plain) :] if sentence.lower().startswith(plain) else sentence
        return sentence[:1].upper() + sentence[1:] + "?", label
    if kind == "emit_event":
        return f"Record “{step['event_name']}”", "passes the data on" if step.get("forward_event_data") else ""
    return report.summary(account_id, step) or label, "" if kind == "exit" else label


def _count(kind: str, found: StepFigures | None) -> tuple[int | None, str, str]:
    """Return the one number of a card: how many wait, got it, or came."""
    if found is None:
        return None, "", ""
    number, label = {
        "wait": (found.waiting_now, "waiting"), "split": (found.entered, "decided"),
    }.get(kind, (found.entered, "came"))  # fmt: skip
    if found.messages is not None:
        number, label = found.messages.accepted, "sent"
    return number.count, label, page_of(number)


def _rate(found: StepFigures | None) -> str:
    sent = found.messages if found is not None else None
    if sent is None or not sent.accepted.count:
        return ""
    opened, clicked = (words.percent(one.count, sent.accepted.count) for one in (sent.opened, sent.clicked))
    return f"{opened} opened" if sent.opened.count else f"{clicked} clicked" if sent.clicked.count else ""


def _distance(steps: Sequence[dict[str, Any]], number: int) -> str:
    """Return how far from the start a step is, in days."""
    seconds = tree.seconds_before(list(steps), number)
    if not seconds:
        return ""
    return f"day {seconds // _DAY}" if seconds >= _DAY else f"after {spoken(seconds)}"


def _stream(found: StepFigures | None, entered: int) -> float:
    """Return which share of who entered went on from a step; 0 where that is not known."""
    return found.went_on.count / entered if found is not None and entered else 0.0


def _stopped(found: StepFigures | None) -> str:
    if found is None or not found.left.count:
        return ""
    return f"{words.number(found.left.count)} left here"


def _shares(found: StepFigures | None) -> tuple[str, str]:
    if found is None or found.yes is None or found.no is None:
        return "", ""
    whole = found.yes.count + found.no.count
    return (words.percent(found.yes.count, whole), words.percent(found.no.count, whole)) if whole else ("", "")


def _ways(found: StepFigures | None, entered: int) -> tuple[float, float]:
    if found is None or found.yes is None or found.no is None or not entered:
        return 0.0, 0.0
    return found.yes.count / entered, found.no.count / entered


def start_words(account_id: int, start: Start) -> tuple[str, str]:
    """Return what starts a flow, and how often for one person."""
    if start.event == "manual":
        return "Nothing starts it yet", "People enter only by hand"
    told = words.event(start.event)[2] if start.event in kinds.RESERVED else f"“{start.event}” happens"
    said = LABELS.get(start.event, told)
    if start.contact_list_id is not None:
        name = f"“{explain.called(account_id, 'list', start.contact_list_id)}”"
        said = {"list_add": f"Joins {name}", "list_remove": f"Leaves {name}"}.get(start.event, f"{said}, is in {name}")
    if start.segment_id is not None:
        name = f"“{explain.called(account_id, 'segment', start.segment_id)}”"
        said = {
            "segment_enter": f"Comes into {name}", "segment_exit": f"Leaves {name}",
        }.get(start.event, f"{said}, is in {name}")  # fmt: skip
    if start.event == "date_reached":
        said = f"The date in {start.data.get('path') or '…'}"
    return said, _often(start)


def _often(start: Start) -> str:
    often = triggers.frequency(start)
    told = {"once": "Once per person", "every_time": "Each time"}.get(
        str(often), f"At most every {spoken(often)}" if isinstance(often, int) else ""
    )
    if start.event == "date_reached":
        told = f"{'Every year' if start.data.get('yearly') else 'Once'} at {start.data.get('at') or '09:00'}"
    return f"{told}, with conditions" if start.data.get("where") else told
