"""The people of a flow: who stands behind a number, one person's way, and moving them by hand."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors, fields
from appliance.flows import draft_edits, people, run_actions, tree
from appliance.flows.run_actions import Act, RunsChosen
from appliance.storage.work import call, commit
from ui import flow_tree, view, words
from ui import people as named
from ui.forms import Form, local_path, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_flow_people", url_prefix="/flows")
# What the people of a page are chosen by
_BY = ("status", "step", "outcome", "message", "reason", "since", "contact_id")
_STATES = {
    "live": "inside now", "completed": "completed", "exited": "left before the end", "ignored": "not let in",
}  # fmt: skip
_OUTCOMES = {
    "waiting": "waiting", "went_on": "went on from", "yes": "went to Yes in", "no": "went to No in",
    "skipped": "skipped", "exited": "left at", "on": "went on from",
}  # fmt: skip
_MESSAGES = {
    "any": "are to get", "pending": "are about to get", "accepted": "got", "opened": "opened", "clicked": "clicked in",
    "skipped": "did not get",
}  # fmt: skip
DONE = {"move_on": "moved on", "take_out": "taken out"}


@pages.get("/<flow_id:int>/people", name="index")
@signed_in
async def index(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """The people behind a number of a flow, or all who were ever in it."""
    kept: dict[str, str] = {name: str(request.args[name][0]) for name in _BY if request.args.get(name)}
    raw: dict[str, Any] = {**_typed(kept), "test": False, "page": number(request.args.get("page")), "limit": 50}
    try:
        asked = fields.read(people.RunQuery, raw)
        found = await call(_listed, visit, flow_id, asked, kept)
    except errors.Invalid:
        return view.go(request, f"/flows/{flow_id}/people")
    return view.page(request, "flows/people.html", kept=kept, **found)


def _typed(kept: dict[str, str]) -> dict[str, Any]:
    whole: dict[str, Any] = {name: number(kept[name], 0) for name in ("step", "contact_id") if name in kept}
    return {**kept, **whole}


def _listed(visit: Visit, flow_id: int, asked: people.RunQuery, kept: dict[str, str]) -> dict[str, Any]:
    page = people.page(visit.account_id, flow_id, asked)
    drawn = draft_edits.of(visit.account_id, flow_id)
    titles = _titles(drawn)
    step = kept.get("step", "")
    return {
        "flow": drawn.flow, "found": page, "titles": titles, "heading": _heading(kept, titles),
        "known": named.by_id({row.contact_id for row in page.rows if row.contact_id}),
        "waiting": kept.get("outcome") == "waiting" and step.isdecimal(),
        "may": visit.user.role in ("owner", "admin", "editor"), "states": _STATES,
    }  # fmt: skip


def _titles(drawn: draft_edits.Sketch) -> dict[int, str]:
    """Name the steps of a flow, those that are live and those that are drawn beside them."""
    found = {}
    for steps in (drawn.flow.steps, drawn.steps):
        for step in draft_edits.said(steps):
            for one in (step, *tree.below(step)):
                found[one["id"]] = flow_tree.said(drawn.flow.account_id, one)[0]
    return found


def _heading(kept: dict[str, str], titles: dict[int, str]) -> str:
    """Return who is listed."""
    step = kept.get("step", "")
    where = f"“{titles.get(int(step), 'a step that is gone')}”" if step.isdecimal() else ""
    why = f": {words.inside(words.reason(kept['reason']))}" if kept.get("reason") else ""
    if kept.get("message"):
        return f"Who {_MESSAGES.get(kept['message'], kept['message'])} {where}{why}"
    if kept.get("outcome") == "waiting":
        return f"Who waits in {where}"
    if kept.get("outcome"):
        return f"Who {_OUTCOMES.get(kept['outcome'], kept['outcome'])} {where}{why}"
    if where:
        return f"Who came to {where}"
    state = kept.get("status", "")
    return {"live": "Who is inside now", "completed": "Who completed it", "exited": "Who left before the end",
            "ignored": "Who was not let in"}.get(state, "Everybody who was in it") + why  # fmt: skip


@pages.get("/<flow_id:int>/people/<run_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, flow_id: int, run_id: int) -> HTTPResponse:
    """One person's way through a flow: what they came to, when, and what became of it."""

    def read() -> dict[str, Any]:
        run = people.get(visit.account_id, flow_id, run_id)
        flow = people.flow_of(visit.account_id, flow_id)
        known = named.by_id({run.contact_id}) if run.contact_id else {}
        return {
            "flow": flow, "run": run, "who": known.get(run.contact_id), "history": people.history(run),
            "may": visit.user.role in ("owner", "admin", "editor"), "states": _STATES,
            "icons": flow_tree.looks(),
        }  # fmt: skip

    return view.page(request, "flows/run.html", **await call(read))


def _act(act: Act) -> None:
    """Register a button that moves the chosen people, or all who wait in a step."""

    @pages.post(f"/<flow_id:int>/people/{act}", name=act)
    @signed_in
    async def move(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
        form = Form.of(request)
        step = number(form["step"], 0)
        asked = RunsChosen(run_ids=form.ids("run_ids")) if not form["all"] else RunsChosen(step=step)
        ids = await call(run_actions.chosen, visit.account_id, flow_id, asked)
        changed = 0
        for start in range(0, len(ids), run_actions.CHUNK):
            some = ids[start : start + run_actions.CHUNK]
            changed += len(await commit(run_actions.some, flow_id, some, act))
        if changed:
            await commit(run_actions.noted, visit.account_id, flow_id, act, changed, visit.by)
        left = f" {words.people(len(ids) - changed)} not inside any more." if changed < len(ids) else ""
        view.say(request, f"{words.people(changed)} {DONE[act]}.{left}" if ids else "Nobody was chosen.")
        back = local_path(form["back"])
        return view.go(request, back if back.startswith(f"/flows/{flow_id}/people") else f"/flows/{flow_id}/people")


_act("move_on")
_act("take_out")
