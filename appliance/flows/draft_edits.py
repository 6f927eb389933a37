"""A flow as people change it, step by step: what was never live at once, what is or was live in a draft beside it.

Programs send whole documents, which apply as they come (`store.update`). People do one thing after the other, and what
they did goes out when they say so (`publishing`).
"""

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from typing import Any, NamedTuple

from appliance.accounts.acting import By
from appliance.content.templates import store as templates
from appliance.content.templates.requests import TemplateWrite
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.flows import document, drafts, people, states, store, tree, triggers, version_snapshot
from appliance.flows.document import BRANCHES, Step
from appliance.flows.states import Blocker
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.kind import Kind, Reading
from appliance.flows.tree import Spot
from appliance.flows.triggers import Start
from appliance.storage.models import Flow, Template, Trigger
from appliance.storage.work import writing


class Sketch(NamedTuple):
    """A flow as it is being changed; `apart` says that what is live stays as it is until that is published."""

    flow: Flow
    steps: list[Step]
    start: Start
    goal: str | None
    apart: bool

    @property
    def is_changed(self) -> bool:
        """Whether something waits to be published."""
        return self.flow.draft is not None


def of(account_id: int, flow_id: int) -> Sketch:
    """Return a flow as people are changing it; raises NotFound."""
    return seen(people.flow_of(account_id, flow_id))


def seen(flow: Flow) -> Sketch:
    """Return a flow that was found as people are changing it."""
    draft = drafts.of(flow)
    return Sketch(flow, draft["steps"], Start(**draft["trigger"]), draft["goal"], is_apart(flow))


def is_apart(flow: Flow) -> bool:
    """Return whether changes wait beside what is live; a flow that is put aside has nothing live to wait beside."""
    return flow.draft is not None or (flow.version > 0 and flow.status in ("active", "paused"))


def template(account_id: int, flow_id: int, step_id: int) -> Template:
    """Return the template in which the words of a step stand, also of one that is not published; raises NotFound."""
    step = tree.find(of(account_id, flow_id).steps, step_id)
    if step is None or not step.get("template_id"):
        raise NotFound
    return templates.get(account_id, step["template_id"])


def said(steps: Sequence[Step]) -> list[Step]:
    """Return steps with the words of their templates beside them, as kinds want them to speak of what they do."""
    return _said(steps, version_snapshot.words_of(version_snapshot.of_steps(steps)))


def blockers(drawn: Sketch, by: By) -> list[tuple[int | None, Blocker]]:
    """Return what keeps a flow from going live as it is being changed, each with the step that it is about."""
    flow = copy(drawn.flow)
    flow.steps, flow.goal = drawn.steps, drawn.goal
    if drawn.apart and flow.approval_state == "approved":
        flow.approval_state = "pending_review"
    found = states.blockers(flow, Trigger(**drawn.start._asdict()), by)
    paths = sorted(((path, step["id"]) for path, step in document.walk(drawn.steps)), key=lambda one: -len(one[0]))
    return [(next((number for path, number in paths if one.field.startswith(path)), None), one) for one in found]


def _said(steps: Sequence[Step], words: Any) -> list[Step]:
    made = []
    for step in steps:
        more = {"content": dict(words.get(step["template_id"], {}))} if step.get("template_id") else {}
        made.append({**step, **more, **{way: _said(step[way], words) for way in BRANCHES if way in step}})
    return made


def add(account_id: int, flow_id: int, where: Spot, kind: str, raw: dict[str, Any], by: By) -> int:
    """Put a new step in and answer its id; raises NotFound, or Invalid with all faults."""
    writing()
    sketch = _open(account_id, flow_id)
    step = {"id": _number(sketch)(), "type": kind, **_parsed(account_id, BY_TYPE[kind], raw)}
    if BY_TYPE[kind].branches:
        step |= {way: [] for way in BRANCHES}
    _write(sketch, _there(tree.put(sketch.steps, where, step)), by)
    return int(step["id"])


def change(account_id: int, flow_id: int, step_id: int, raw: dict[str, Any], by: By) -> None:
    """Change what a step takes: all keys of its kind but its words, of which those that are named; raises as `add`."""
    writing()
    sketch = _open(account_id, flow_id)
    step = _known(sketch, step_id)
    parsed = _parsed(account_id, BY_TYPE[step["type"]], raw)
    words = parsed.pop("content", None)
    if "template_id" in step:
        parsed["template_id"] = step["template_id"]
        if words:
            templates.update(account_id, step["template_id"], TemplateWrite(**words), by.user_id)
            sketch = _open(account_id, flow_id)
    _write(sketch, tree.replaced(sketch.steps, {**step, **parsed}), by)


def move(account_id: int, flow_id: int, step_id: int, where: Spot | int, by: By) -> None:
    """Move a step with its branches to a place, or so many places among its siblings; raises NotFound, Invalid."""
    writing()
    sketch = _open(account_id, flow_id)
    _known(sketch, step_id)
    if isinstance(where, Spot):
        _write(sketch, _there(tree.moved(sketch.steps, step_id, where)), by)
        return
    changed = tree.shifted(sketch.steps, step_id, where)
    if changed is not None:
        _write(sketch, changed, by)


def duplicate(account_id: int, flow_id: int, step_id: int, by: By) -> int:
    """Put a copy of a step behind it, with all in its branches and all its words; returns the copy's id."""
    writing()
    sketch = _open(account_id, flow_id)
    made = tree.copy(_known(sketch, step_id), _number(sketch))
    with_words = spoken(account_id, made)
    _write(sketch, _there(tree.put(sketch.steps, Spot(tree.AFTER, step_id), with_words)), by)
    return int(made["id"])


def spoken(account_id: int, step: Step) -> Step:
    """Let a copied step bring along the words of the template that it was copied with."""
    made = dict(step)
    if made.get("template_id"):
        made["content"] = {}
    return {**made, **{way: [spoken(account_id, one) for one in step[way]] for way in BRANCHES if way in step}}


def remove(account_id: int, flow_id: int, step_id: int, by: By) -> list[Step]:
    """Take a step out with all in its branches; returns the steps as they were, for `restore`."""
    writing()
    sketch = _open(account_id, flow_id)
    _known(sketch, step_id)
    before = deepcopy(sketch.steps)
    _write(sketch, tree.without(sketch.steps, step_id), by)
    return before


def restore(account_id: int, flow_id: int, steps: list[Step], by: By) -> None:
    """Bring steps back as `remove` answered them."""
    writing()
    _write(_open(account_id, flow_id), steps, by)


def retrigger(account_id: int, flow_id: int, raw: dict[str, Any], by: By) -> None:
    """Change what starts a flow; raises NotFound, or Invalid with all faults."""
    writing()
    sketch = _open(account_id, flow_id)
    faults = Faults()
    start = triggers.check(account_id, raw, faults, "trigger", sketch.start)
    faults.check()
    if sketch.apart:
        _keep(sketch.flow, {"trigger": {**start._asdict(), "data": dict(start.data)}})
    elif store.retrigger(sketch.flow, start):
        states.edited(sketch.flow, by)
        store.saved(sketch.flow)


def aim(account_id: int, flow_id: int, goal: str | None, by: By) -> None:
    """Set what ends the way of people early because it is reached; raises NotFound."""
    writing()
    sketch = _open(account_id, flow_id)
    if sketch.apart:
        _keep(sketch.flow, {"goal": goal})
    elif sketch.flow.goal != goal:
        sketch.flow.goal = goal
        store.saved(sketch.flow)


def _open(account_id: int, flow_id: int) -> Sketch:
    sketch = of(account_id, flow_id)
    if sketch.flow.status == "archived":
        raise Invalid({"base": ["it is put aside: make it a draft again to change it"]})
    return sketch


def _known(sketch: Sketch, step_id: int) -> Step:
    step = tree.find(sketch.steps, step_id)
    if step is None:
        raise NotFound
    return step


def _there(steps: list[Step] | None) -> list[Step]:
    if steps is None:
        raise Invalid({"base": ["it cannot stand there: what was there is gone"]})
    words = document.size_fault(steps)
    if words:
        raise Invalid({"base": [words]})
    return steps


def _number(sketch: Sketch) -> Callable[[], int]:
    """Return what gives new ids; none is ever given twice, whoever else changes the flow meanwhile."""

    def next_one() -> int:
        sketch.flow.last_action += 1
        return int(sketch.flow.last_action)

    return next_one


def _parsed(account_id: int, kind: Kind, raw: dict[str, Any]) -> dict[str, Any]:
    """Read what a step takes, without the path that it has in a document."""
    faults = Faults()
    sent = {key: value for key, value in raw.items() if key in kind.keys}
    found = kind.parse(sent, Reading(account_id, "", faults))
    if faults.fields:
        raise Invalid({name.removeprefix("."): words for name, words in faults.fields.items()})
    return found


def _write(sketch: Sketch, steps: list[Step], by: By) -> None:
    flow = sketch.flow
    flow.edited_by = by.user_id
    if not sketch.apart:
        flow.steps = version_snapshot.place_words(flow.account_id, flow.id, steps, by.user_id)
        states.edited(flow, by)
        store.saved(flow)
        return
    flow.save(only=[Flow.last_action, Flow.edited_by])
    _keep(flow, {"steps": version_snapshot.set_apart(flow.account_id, flow.id, steps, by.user_id)})


def _keep(flow: Flow, changed: dict[str, Any]) -> None:
    """Keep a change in the draft; one that is like what is live, words and all, is none any more."""
    draft = {**drafts.of(flow), **changed}
    drafts.keep(flow, None)
    same = draft == drafts.of(flow) and not states.drifted(flow)
    drafts.keep(flow, None if same else draft)


def started_by(flow_id: int) -> Start:
    """Return what starts a flow now, whatever is being changed."""
    return triggers.of(Trigger.get(Trigger.flow == flow_id))
