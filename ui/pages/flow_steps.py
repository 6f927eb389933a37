"""The steps of a flow: put in, changed, moved, copied, taken out."""

from collections import OrderedDict
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors
from appliance.flows import draft_edits, people, tree
from appliance.flows.steps import BY_TYPE
from appliance.storage.work import call, commit
from ui import flow_forms, flow_together, together, view
from ui import words as ui_words
from ui.filters import Rows
from ui.flow_forms import StepForm
from ui.flow_page import START, facts, panel, saved, step_path
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.together import Parts

pages = Pages("ui_flow_steps", url_prefix="/flows")
# Steps as they were before one was taken out, for the button that brings it back; a restart forgets them
_MAX_KEPT = 50
_before: "OrderedDict[int, list[Any]]" = OrderedDict()
# Kinds that can stand in a flow before anything was said about them
_AT_ONCE = {"email": {}, "sms": {}, "wait": {"duration": 86_400}, "exit": {}}


@pages.post("/<flow_id:int>/steps", name="add")
@signed_in
async def add(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Put a step in: at once, or once it is said what it needs."""
    form = StepForm.of(request)
    kind, where = form["kind"], tree.spot(form["at"])
    if kind not in BY_TYPE or where is None:
        raise errors.NotFound
    raw: dict[str, Any] = dict(_AT_ONCE.get(kind, {}))
    if kind not in _AT_ONCE or "ready" in form.values:
        if "ready" not in form.values:
            return view.go(request, f"/flows/{flow_id}?at={where}&add={kind}")
        try:
            raw = _read(form, kind)
        except errors.Invalid as refused:
            return await _new(request, visit, flow_id, form, refused)
        if raw is None:
            return await _new(request, visit, flow_id, form, None)
    try:
        step = await commit(draft_edits.add, visit.account_id, flow_id, where, kind, raw, visit.by)
    except errors.Invalid as refused:
        if "ready" not in form.values:
            raise
        return await _new(request, visit, flow_id, form, refused)
    return view.go(request, step_path(flow_id, step))


async def _new(
    request: Request, visit: Visit, flow_id: int, form: StepForm, refused: errors.Invalid | None
) -> HTTPResponse:
    query = {"at": form["at"], "add": form["kind"]}
    if refused is not None:
        _point(form, refused)
    found = await call(facts, visit, flow_id, query, form, "")
    return view.page(request, "flows/show.html", 422 if refused else 200, **found)


@pages.post("/<flow_id:int>/steps/<step_id:int>", name="change")
@signed_in
@together.meeting
async def change(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Keep what a step takes."""
    form, at = StepForm.of(request), (visit.account_id, flow_id, step_id)
    step = await call(flow_together.step, *at)
    kind, parts, shows = step["type"], flow_together.of_step(step["type"]), str(step_id)
    if _has_rules(kind):
        form.rows = Rows.posted(form.lists)
        if form.rows.act(form.lists):
            return await panel(request, visit, flow_id, shows, form)
    await call(_meet, visit.account_id, form, parts, step)
    if form.met:
        return await panel(request, visit, flow_id, shows, form, 409)
    try:
        raw = flow_forms.read(form, kind) | ({"filters": form.rows.filters() or None} if form.rows else {})
        kept = (draft_edits.change, *at, raw, visit.by)
        await commit(together.still, form, parts, lambda: flow_together.shown(flow_together.step(*at)), *kept)
    except errors.Invalid as refused:
        _point(form, refused)
        return await panel(request, visit, flow_id, shows, form, 422)
    return await saved(request, visit, flow_id, shows)


def _meet(account_id: int, form: StepForm, parts: Parts, step: dict[str, Any]) -> None:
    """Lay the form of a step beside what is kept of it; rules are one value."""
    now, known = flow_together.shown(step), dict(flow_together.named_in(account_id, step["type"]))
    if form.rows is None:
        return together.meet(form, parts, now, known)
    kept = Rows.of(step["filters"] or [])
    form.values["rules"] = flow_together.rules(form.rows)
    together.meet(
        form, parts, now, known | dict.fromkeys(parts.all(now), flow_together.said(account_id, form.rows, kept))
    )
    if form["rules"] == now["rules"]:
        form.rows = kept
    return None


def _has_rules(kind: str) -> bool:
    return any(field.type == "filters" for field in BY_TYPE[kind].fields)


def _point(form: StepForm, refused: errors.Invalid) -> None:
    """Show faults where they are: of rules at their rows, the others at their fields."""
    rules = {path: words for path, words in refused.fields.items() if path.startswith("filters")}
    others = {path: words for path, words in refused.fields.items() if path not in rules}
    if rules.get("filters") == ["can't be blank"]:
        rules = {"filters": ["choose what is asked about somebody"]}
    if rules and form.rows is not None:
        form.rows.take(errors.Invalid(rules))
    if others or not rules:
        flow_forms.take(form, errors.Invalid(others, reason=refused.reason) if others else refused)


def _read(form: StepForm, kind: str) -> Any:
    """Read a step's form; None if a button of its rows was pressed, which only changes the form."""
    raw = flow_forms.read(form, kind)
    if _has_rules(kind):
        rows = form.rows = Rows.posted(form.lists)
        if rows.act(form.lists):
            return None
        raw["filters"] = rows.filters() or None
    return raw


@pages.post("/<flow_id:int>/steps/<step_id:int>/move", name="move")
@signed_in
async def move(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Move a step up, down, or to a place."""
    form = StepForm.of(request)
    where: Any = {"up": -1, "down": 1}.get(form["to"]) or tree.spot(form["to"])
    if where is None:
        raise errors.NotFound
    await commit(draft_edits.move, visit.account_id, flow_id, step_id, where, visit.by)
    return await _after(request, visit, flow_id, str(step_id))


@pages.post("/<flow_id:int>/steps/<step_id:int>/duplicate", name="duplicate")
@signed_in
async def duplicate(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Put a copy behind a step."""
    made = await commit(draft_edits.duplicate, visit.account_id, flow_id, step_id, visit.by)
    return await _after(request, visit, flow_id, str(made))


@pages.post("/<flow_id:int>/steps/<step_id:int>/remove", name="remove")
@signed_in
async def remove(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Take a step out; the message offers to bring it back."""
    before = await commit(draft_edits.remove, visit.account_id, flow_id, step_id, visit.by)
    _before[flow_id] = before
    _before.move_to_end(flow_id)
    while len(_before) > _MAX_KEPT:
        _before.popitem(last=False)
    gone = tree.find(before, step_id) or {"type": "exit"}
    below = len(tree.below(gone))
    more = f" and {ui_words.count(below, 'step', 'steps')} in its branches" if below else ""
    view.say(
        request, f"{BY_TYPE[gone['type']].label} removed{more}.", (f"/flows/{flow_id}/undo", {"step": str(step_id)})
    )
    found = tree.place(before, step_id)
    near: int | str = found.parent["id"] if found and found.parent else START
    if found and found.at:
        near = found.siblings[found.at - 1]["id"]
    return view.go(request, step_path(flow_id, near))


@pages.post("/<flow_id:int>/undo", name="undo")
@signed_in
async def undo(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Bring back what was taken out last."""
    await call(people.flow_of, visit.account_id, flow_id)
    before = _before.pop(flow_id, None)
    shows: str = StepForm.of(request)["step"] or START
    if before is None or not shows.isdecimal():
        view.say(request, "There is nothing to bring back any more.")
        return view.go(request, f"/flows/{flow_id}")
    await commit(draft_edits.restore, visit.account_id, flow_id, before, visit.by)
    return view.go(request, step_path(flow_id, shows))


async def _after(request: Request, visit: Visit, flow_id: int, shows: str) -> HTTPResponse:
    if view.is_part(request):
        return await panel(request, visit, flow_id, shows)
    return view.go(request, step_path(flow_id, shows))
