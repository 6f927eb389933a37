"""A rehearsal of a flow as a page asks for it: an address holds all of it, so that it can be kept and gone back to."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from appliance.core import clock, fields
from appliance.core.errors import Invalid
from appliance.events import kinds
from appliance.flows import document, simulated_events, tree
from appliance.flows.bulk_simulation import StepCount
from appliance.flows.draft_edits import Sketch
from appliance.flows.simulation_request import Asked
from appliance.flows.timeline import Entry, Simulated
from ui import flow_forms, words
from ui.flow_tree import Card

_HOUR = 3_600
# How an address names what somebody does at a branch: the step, and the event that it asks for
_CHOICE = re.compile(r"(\d{1,9})\.([a-z][a-z0-9_]{0,63})")


class Wish(NamedTuple):
    """Whom a rehearsal is about, when it begins, and what they do; as it was asked."""

    values: dict[str, str]
    choices: tuple[str, ...]

    def link(self, **other: str) -> str:
        """Return the query of this wish, with some of it otherwise."""
        return words.query({**self.values, **other}) or "?"

    def toggled(self, choice: str) -> str:
        """Return the query with a choice made, or taken back."""
        left = [one for one in self.choices if one != choice]
        return self.link(do=" ".join(left if choice in self.choices else [*left, choice]))


_NAMES = ("contact", "first_name", "email", "data", "event", "day", "hour", "q", "do")


def wish(said: Mapping[str, Any]) -> Wish:
    """Read what an address or a form says."""
    values = {name: str(said.get(name) or "").strip()[:2_000] for name in _NAMES}
    kept = {name: value for name, value in values.items() if value}
    return Wish(kept, tuple(one for one in values["do"].split() if _CHOICE.fullmatch(one))[:20])


def asked(drawn: Sketch, one: Wish, zone: ZoneInfo) -> Asked:
    """Return what the middle is asked; raises Invalid with faults by the fields of the form."""
    raw: dict[str, Any] = {}
    values = one.values
    if values.get("contact", "").isdecimal():
        raw["contact_id"] = int(values["contact"][:18])
    else:
        made = {name: values[name] for name in ("first_name", "email") if values.get(name)}
        data = flow_forms.lines(values.get("data", ""), "data")
        if made or data:
            raw["contact"] = {**made, **({"data": data} if data else {})}
    if event := flow_forms.lines(values.get("event", ""), "event"):
        raw["event"] = event
    if values.get("day"):
        try:
            local = datetime.fromisoformat(f"{values['day']}T{values.get('hour') or '09:00'}").replace(tzinfo=zone)
            raw["start_at"] = clock.iso(clock.parse(local.isoformat()))
        except (ValueError, OverflowError):
            raise Invalid({"day": ["Choose a date."]}) from None
    raw["events"] = [_does(drawn, choice) for choice in one.choices]
    return fields.read(Asked, raw)


def _does(drawn: Sketch, choice: str) -> dict[str, Any]:
    """Return what somebody does before a branch: an hour after the message before it, or an hour before its time."""
    number, _, event = choice.partition(".")
    step_id = int(number)
    steps = tree.above(drawn.steps, step_id)
    if event in simulated_events.OF_MESSAGES:
        wrote = [one["id"] for one in steps if one["type"] == ("sms" if event.startswith("sms_") else "email")]
        return {"event": event, "after": _HOUR, **({"step": wrote[-1]} if wrote else {})}
    before = tree.seconds_before(drawn.steps, step_id)
    return {"event": event, "after": max(before - _HOUR, min(60, before // 2))}


def lit(cards: list[Card], found: Simulated) -> list[Card]:
    """Mark the cards that the person came to, and those that they did not."""
    came = {one.step_id for one in found.timeline if one.told in ("step", "message")}
    shares = {one.step_id: one.outcome for one in found.timeline if one.type == "split"}

    def mark(one: Card) -> Card:
        way = shares.get(one.id)
        return one._replace(
            mark="path" if one.id in came else "off", lacks=[], yes=[mark(inner) for inner in one.yes],
            no=[mark(inner) for inner in one.no],
            shares=("taken" if way == "yes" else "", "taken" if way == "no" else ""),
        )  # fmt: skip

    return [mark(one) for one in cards]


def counted(drawn: Sketch, cards: list[Card], steps: list[StepCount], entered: int) -> list[Card]:
    """Put what a rehearsal with many counted into cards; steps are told apart by where they stand."""
    by_path = {one.path: one for one in steps}
    known = {step["id"]: by_path[path] for path, step in document.walk(drawn.steps) if path in by_path}

    def fill(one: Card) -> Card:
        found = known.get(one.id)
        one = one._replace(yes=[fill(each) for each in one.yes], no=[fill(each) for each in one.no], lacks=[])
        if found is None:
            return one
        number, label = {"email": (found.sent, "sent"), "sms": (found.sent, "sent")}.get(
            one.type, (found.entered, "decided" if one.is_fork else "came")
        )
        whole = found.yes + found.no
        on = found.entered - found.exited - found.waiting
        told = [f"{words.number(found.unsent)} not sent"] if found.unsent else []
        return one._replace(
            number=number, label=label, people="", stopped=", ".join(told),
            stream=on / entered if entered else 0.0,
            shares=(words.percent(found.yes, whole), words.percent(found.no, whole)) if whole else ("", ""),
            ways=(found.yes / entered, found.no / entered) if entered else (0.0, 0.0),
        )  # fmt: skip

    return [fill(one) for one in cards]


def offers(found: Simulated, one: Wish) -> dict[int, list[tuple[str, str, bool]]]:
    """Return for each branch on an event: the event, where choosing it leads, whether it is chosen."""
    made: dict[int, list[tuple[str, str, bool]]] = {}
    for entry in found.timeline:
        if entry.type == "split" and entry.step_id is not None:
            made[entry.step_id] = [
                (words.event(event)[2], one.toggled(choice), choice in one.choices)
                for event in entry.asks
                for choice in (f"{entry.step_id}.{event}",)
                if _can_be_assumed(event)
            ]
    return made


def _can_be_assumed(event: str) -> bool:
    return event in simulated_events.OF_MESSAGES or kinds.fault(event) is None or event in simulated_events.KNOWN


def expected(found: Simulated, titles: Mapping[int, str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return what a test of this rehearsal may expect: a key, words, and the expectation."""
    made: list[tuple[str, str, dict[str, Any]]] = []
    for entry in found.timeline:
        if entry.step_id is None or entry.told != "step":
            continue
        title = titles.get(entry.step_id, "")
        if entry.outcome in ("yes", "no"):
            words_of = f"“{title}” is answered {entry.outcome.capitalize()}"
            made.append((f"s{entry.step_id}", words_of, {"step": entry.step_id, "outcome": entry.outcome}))
        elif entry.message is not None and entry.message.status == "sent" and entry.message.subject:
            expectation = {"step": entry.step_id, "subject": entry.message.subject[:200]}
            made.append((f"s{entry.step_id}", f"They get “{entry.message.subject}”", expectation))
    end = {"completed": "They complete it", "exited": "They leave before the end", "live": "They are still inside"}
    return [*made, ("end", end[found.end.status], {"end": found.end.status})]


def messages(found: Simulated) -> list[Entry]:
    """Return what was told that shows a message, in its order."""
    return [one for one in found.timeline if one.message is not None and (one.message.html or one.message.text)]
