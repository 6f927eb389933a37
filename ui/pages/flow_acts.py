"""What is done to flows as wholes: copied, paused, put aside with a way back, deleted; one or many at once."""

from collections.abc import Callable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit, roles
from appliance.core import errors, fields
from appliance.flows import copying, publishing, requests, states, store
from appliance.storage.models import Flow
from appliance.storage.work import call, commit
from ui import rights, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.tables import Selection

pages = Pages("ui_flow_acts", url_prefix="/flows")
# Nobody has more than these in one look; who has does it in several
_MAX_IDS = 500
_FROM = {"pause": ("active",), "continue": ("paused",), "archive": ("draft", "active", "paused")}
_DONE = {"pause": "paused", "continue": "live again", "archive": "archived"}
_ONLY = {"pause": "live ones can be paused", "continue": "paused ones can go on", "archive": "others can be archived"}


@pages.post("/acts", name="acts")
@signed_in
async def act(request: Request, visit: Visit) -> HTTPResponse:
    """Copy, pause, continue, archive or delete the chosen flows; what touches people inside is asked about first."""
    form = Form.of(request)
    chosen = Selection.of(request, form)
    name, back = form["act"], chosen.back("/flows")
    if name in _FROM and not rights.may(visit.user.role, "POST", "/flows/0/pause"):
        raise errors.NotAllowed("whoever may not start a flow moves none")
    found = await call(_chosen, visit.account_id, chosen)
    if not found:
        view.say(request, "Choose some flows first.")
    elif name == "duplicate":
        return await _duplicate(request, visit, found)
    elif name in ("archive", "delete"):
        inside = await call(_inside, found)
        if form["expected"] != str(len(found)) and (name == "delete" or inside):
            return view.page(
                request, "flows/sure.html", rows=found, act=name, inside=inside, back=back,
                fields=[("act", name), *chosen.fields],
            )  # fmt: skip
        await (_delete(request, visit, found) if name == "delete" else _move(request, visit, found, name, form))
    elif name in _FROM:
        await _move(request, visit, found, name, form)
    return view.go(request, back)


async def _duplicate(request: Request, visit: Visit, found: list[Flow]) -> HTTPResponse:
    made = [await commit(copying.duplicate, visit.account_id, row.id, visit.by) for row in reversed(found)]
    if len(made) == 1:
        view.say(request, "This is the copy, as a draft. The first one stays as it is.")
        return view.go(request, f"/flows/{made[0].id}")
    view.say(request, f"{words.count(len(made), 'copy is', 'copies are')} made, as drafts.")
    return view.go(request, "/flows?status=draft")


async def _move(request: Request, visit: Visit, found: list[Flow], name: str, form: Form) -> None:
    """Move flows, say which could not be, and offer to put the others back where they stood."""
    moved, wrong = [], []
    takes_out = form["inside"] == "out"
    for row in found:
        if row.status not in _FROM[name]:
            continue
        try:
            args = (store.moved, visit.account_id, row.id, *_verb(name, takes_out, visit))
            await commit(audit.noting, visit.by, f"flow_{name}", *args)
            moved.append(row)
        except errors.Invalid:
            wrong.append(row.name)
    left = f" Not yet, as something is missing: {words.listed(wrong)}." if wrong else ""
    if not moved:
        view.say(request, left.strip() or f"Only {_ONLY[name]}.")
        return
    who = f"{moved[0].name} is" if len(moved) == 1 else f"{words.number(len(moved))} flows are"
    stays = {"pause": " Everybody stays where they are.", "archive": " Nobody enters any more."}.get(name, "")
    # Who was taken out does not come back
    undo = None if takes_out else ("/flows/put-back", {"stood": " ".join(f"{row.id}:{row.status}" for row in moved)})
    view.say(request, f"{who} {_DONE[name]}.{stays}{left}", undo)


def _verb(name: str, takes_out: bool, visit: Visit) -> tuple[Callable[..., None], Any] | tuple[Callable[..., None]]:
    if name == "pause":
        return (states.pause,)
    return (states.archive, takes_out) if name == "archive" else (states.activate, visit.by)


async def _delete(request: Request, visit: Visit, found: list[Flow]) -> None:
    if any(row.version for row in found) and not roles.starts(visit.user.role):
        raise errors.NotAllowed("whoever may not start a flow deletes none that was live")
    told = (audit.noting, visit.by, "flow_delete", store.delete, visit.account_id)
    gone = [await commit(*told, row.id) for row in found]
    view.say(request, f"{gone[0].name} is deleted." if len(gone) == 1 else f"{len(gone)} flows are deleted.")


def _chosen(account_id: int, chosen: Selection) -> list[Flow]:
    """Return the flows meant: those named, or all that match; what is gone meanwhile is left out."""
    raw: dict[str, Any] = {}
    if chosen.is_all:
        raw = {name: value for name, value in chosen.state.items() if name in ("search", "status")}
    asked = store.matching(account_id, fields.read(requests.FlowQuery, raw))
    if not chosen.is_all:
        asked = asked.where(Flow.id.in_(chosen.ids[:_MAX_IDS]))
    return list(asked.order_by(Flow.id.desc()).limit(_MAX_IDS))


def _inside(found: list[Flow]) -> int:
    return sum(sum(publishing.inside(row.id).values()) for row in found)


@pages.post("/<flow_id:int>/archive", name="archive")
@signed_in
async def archive(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Put a flow aside; the message offers to take that back."""
    row = await call(store.get, visit.account_id, flow_id)
    await _move(request, visit, [row], "archive", Form.of(request))
    return view.go(request, f"/flows/{flow_id}")


@pages.post("/put-back", name="put_back")
@signed_in
async def put_back(request: Request, visit: Visit) -> HTTPResponse:
    """Let flows stand again where they stood before they were moved."""
    stood = [pair.partition(":")[::2] for pair in Form.of(request)["stood"].split()[:_MAX_IDS]]
    back, wrong = [], 0
    for flow_id, status in stood:
        if not flow_id.isdecimal() or len(flow_id) > 18 or status not in states.ALLOWED:
            continue
        try:
            args = (store.moved, visit.account_id, int(flow_id), states.put_back, status, visit.by)
            back.append(await commit(audit.noting, visit.by, "flow_put_back", *args))
        except errors.Invalid:
            wrong += 1
    said = f"{back[0].name} is back." if len(back) == 1 else f"{words.count(len(back), 'flow is', 'flows are')} back."
    lost = " What has moved on meanwhile, or lacks something, stays as it is." if wrong else ""
    view.say(request, said + lost)
    return view.go(request, f"/flows/{back[0].id}" if len(stood) == 1 and back else "/flows")


@pages.post("/<flow_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Delete a flow; those inside leave, and what was sent stays in the books."""
    await _delete(request, visit, [await call(store.get, visit.account_id, flow_id)])
    return view.go(request, "/flows")
