"""Rehearsals that are kept with a flow as its tests: what is assumed, and what shall come of it."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET, Struct

from appliance.core.errors import Faults, Invalid
from appliance.core.fields import PageQuery
from appliance.core.pagination import Page
from appliance.flows import simulation_request, store
from appliance.flows.draft_edits import Sketch
from appliance.flows.simulate import rehearse, sketched
from appliance.flows.simulation_request import MAX_SCRIPTS, SCRIPTS, Expect
from appliance.flows.timeline import Entry, Simulated
from appliance.storage.models import Flow

MAX_SECONDS = 5.0


class ScriptResult(Struct):
    """What came of a script: whether all that it expects is so, and if not, what was found in its place."""

    name: str
    passed: bool
    expected: int
    failures: list[str]
    end: str


def page(account_id: int, flow_id: int, query: PageQuery, sees_people: bool = True) -> Page:
    """Play scripts of a flow as it stands now, those of one page; raises NotFound."""
    flow = store.get(account_id, flow_id)
    size = query.size()
    first = (query.page - 1) * size
    found = results(flow, sees_people, range(first, first + size))
    return Page(found, len(_of(flow)), query.page, size)


def results(
    flow: Flow, sees_people: bool = True, wanted: range = range(MAX_SCRIPTS), drawn: Sketch | None = None
) -> list[ScriptResult]:
    """Play scripts of a flow as it stands now; those with a real person fail for who may not see people.

    Of a flow that people are changing they may be played with what is `drawn`.

    Whoever edits waits for them: those that come too late are not played, and say so.
    """
    begun, found = time.monotonic(), []
    for index, raw in enumerate(_of(flow)):
        if index not in wanted:
            continue
        if time.monotonic() - begun > MAX_SECONDS:
            found.append(ScriptResult(_name(raw, index), False, 0, ["not played: the others took too long"], ""))
        else:
            found.append(_played(flow, raw, index, sees_people, drawn))
    return found


def _of(flow: Flow) -> list[Any]:
    found = flow.data.get(SCRIPTS) if isinstance(flow.data, dict) else None
    return found[:MAX_SCRIPTS] if isinstance(found, list) else []


def _played(flow: Flow, raw: Any, index: int, sees_people: bool, drawn: Sketch | None) -> ScriptResult:
    faults = Faults()
    script = simulation_request.script(raw, faults, f"{SCRIPTS}[{index}]")
    named = _name(raw, index)
    if script is None or faults.fields:
        return ScriptResult(named, False, 0, _words(faults.fields), "")
    expected = script.expect or []
    if script.contact_id and not sees_people:
        return ScriptResult(named, False, len(expected), ["its person may be seen with the scope contacts:read"], "")
    try:
        if drawn is not None:
            found = sketched(drawn, script, sees_people)
        else:
            found = rehearse(flow, script, None, Faults(), sees_people)
    except Invalid as invalid:
        # Its person or a step was deleted since
        return ScriptResult(named, False, len(expected), _words(invalid.fields), "")
    failures = [words for one in expected for words in _failed(one, found)]
    return ScriptResult(named, not failures, len(expected), failures, found.end.says)


def _name(raw: Any, index: int) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    return name if isinstance(name, str) else f"Script {index + 1}"


def _words(fields: dict[str, list[str]]) -> list[str]:
    return [f"{name} {words}" for name, all_words in fields.items() for words in all_words]


def _failed(one: Expect, found: Simulated) -> Iterator[str]:
    """Return what is otherwise than expected."""
    if isinstance(one.end, str):
        if found.end.status != one.end:
            yield f"it should end {one.end}: {found.end.says}"
        elif isinstance(one.reason, str) and found.end.reason != one.reason:
            yield f"it should end for {one.reason}: {found.end.says}"
        return
    told = [entry for entry in found.timeline if entry.step_id == one.step and entry.told in ("step", "message")]
    if one.outcome == "not_reached":
        if told:
            yield f"step {one.step} should not be reached: {told[0].says}"
        return
    if not told:
        yield f"step {one.step} was not reached"
        return
    yield from _otherwise(one, told)


def _otherwise(one: Expect, told: Sequence[Entry]) -> Iterator[str]:
    says = told[-1].says
    if one.outcome is not UNSET and not any(entry.outcome == one.outcome for entry in told):
        yield f"step {one.step} should be left with {one.outcome}: {says}"
    messages = [entry.message for entry in told if entry.message is not None]
    reasons = {entry.reason for entry in told} | {message.skip_reason for message in messages}
    if one.reason is not UNSET and one.reason not in reasons:
        yield f"step {one.step} should be left for {one.reason}: {says}"
    for key, wanted in (("subject", one.subject), ("text", one.text)):
        if isinstance(wanted, str) and not any(
            wanted.casefold() in (getattr(message, key) or "").casefold() for message in messages
        ):
            yield f"the {key} of step {one.step} should have “{wanted}”: {says}"
