"""What is done with the sections of an email: added, moved, taken out; steps back and forth; who else is here."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content.templates import arranging, editing, history, store
from appliance.content.templates.arranging import Spot
from appliance.content.templates.editing import Make
from appliance.core.errors import Conflict, Invalid
from appliance.storage.work import call, commit, render, render_for
from ui import view, words
from ui.editor import listing, presence
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pages.editor import answer, context
from ui.pages.templates import changed_since
from ui.session import Pages, Visit

pages = Pages("ui_editor_acts", url_prefix="/templates")
_NUMBERS = tuple(str(number) for number in range(100))
_ALL = ("state", "steps", "list", "inspector")


@pages.post("/<template_id:int>/sections", name="add")
@signed_in
async def add(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Add a section of a kind."""
    form = Form.of(request)
    return await _arrange(request, visit, template_id, arranging.add(form["kind"], _spot(form)), "added")


@pages.post("/<template_id:int>/sections/<key:str>/move", name="move")
@signed_in
async def move(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Move a section up or down, or to a place."""
    form = Form.of(request)
    by = {"up": -1, "down": 1}.get(form["way"])
    made = arranging.step(key, by) if by else arranging.move(key, _spot(form))
    return await _arrange(request, visit, template_id, made, "moved")


@pages.post("/<template_id:int>/sections/<key:str>/duplicate", name="duplicate")
@signed_in
async def duplicate(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Put a copy of a section behind it."""
    return await _arrange(request, visit, template_id, arranging.duplicate(key), "duplicated")


@pages.post("/<template_id:int>/sections/<key:str>/remove", name="remove")
@signed_in
async def remove(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Take a section out; it can be undone for as long as its toast stays, and from the history ever after."""
    found = await render_for(visit.account_id, context, visit, template_id, key)
    label = found["entry"].label if found["entry"] else "The section"
    return await _arrange(request, visit, template_id, arranging.remove(key), "removed", f"{label} is removed.")


@pages.post("/<template_id:int>/sections/<key:str>/items", name="items")
@signed_in
async def items(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Add an entry to a list of a section, take one out, or move it."""
    name, _, act = Form.of(request)["entry"].partition(".")
    act, _, at = act.partition(".")
    made = arranging.item(key, name, act, int(at) if at in _NUMBERS else 0)
    return await _arrange(request, visit, template_id, made, "changed")


@pages.post("/<template_id:int>/unstyle", name="unstyle")
@signed_in
async def unstyle(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Take the theme from the brand again."""

    def made(design: dict[str, Any], found: Any) -> tuple[str, str | None]:
        design["theme"] = {}
        return "Theme: as the brand", None

    return await _arrange(request, visit, template_id, made, "", also=("theme",))


async def _arrange(
    request: Request, visit: Visit, template_id: int, made: Make, verb: str, undo: str = "",
    also: tuple[str, ...] = (),
) -> HTTPResponse:  # fmt: skip
    try:
        row = await call(store.get, visit.account_id, template_id)
        edit, _ = await call(editing.restructured, row, made)
        await render_for(visit.account_id, editing.warm, row, edit)
        done = await commit(editing.restructure, visit.account_id, template_id, made, visit.user.id)
    except Invalid as refused:
        said = words.sentence(next(iter(refused.fields.values()))[0])
        return await answer(request, visit, template_id, None, ("state",), 422, base=said, say=said)
    notice = {"text": undo, "undo": (f"/templates/{template_id}/undo", {"revision": str(done.template.revision)})}
    said = await call(_said, visit, template_id, done.key, verb) if verb else ""
    return await answer(
        request,
        visit,
        template_id,
        done.key,
        (*_ALL, *also),
        say=said,
        changed=True,
        select=done.key,
        notice=notice if undo else None,
    )


def _said(visit: Visit, template_id: int, key: str | None, verb: str) -> str:
    """Return what became of a section, for those who do not see it."""
    if verb == "removed" or key is None:
        return "Removed."
    rows = context(visit, template_id, key)["outline"]
    row = listing.find(rows, key)
    if row is None:
        return ""
    if verb == "added":
        return f"{row.label} added {listing.place(rows, key)}"
    where = f" to {row.position} of {row.many}" if verb == "moved" else f", {row.position} of {row.many}"
    return f"{row.label} {verb}{where}"


def _spot(form: Form) -> Spot:
    column = form["column"]
    number = int(column) if column in _NUMBERS else 0
    return Spot(form.text("before"), form.text("behind"), form.text("parent"), number)


@pages.post("/<template_id:int>/undo", name="undo")
@signed_in
async def undo(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Take the last edit back."""
    return await _step(request, visit, template_id, "undo")


@pages.post("/<template_id:int>/redo", name="redo")
@signed_in
async def redo(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Take an undo back."""
    return await _step(request, visit, template_id, "redo")


@pages.post("/<template_id:int>/restore", name="restore")
@signed_in
async def restore(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Bring a revision back, as an edit of its own."""
    return await _step(request, visit, template_id, number(Form.of(request)["at"], 0))


async def _step(request: Request, visit: Visit, template_id: int, to: Any) -> HTTPResponse:
    """Go to where undo, redo or a number leads; from the history one comes back there, from the editor to it."""
    form = Form.of(request)
    seen, key = number(form["revision"], 0) or None, form.text("s")
    verb = {"undo": history.undo, "redo": history.redo}.get(to)
    args = (visit.account_id, template_id, visit.user.id, seen)
    said, status = "Done. Nothing is lost: every step is in the history.", 200
    try:
        await render(history.warm, visit.account_id, template_id, to)
        if verb is not None:
            await commit(verb, *args)
            said = "Undone." if to == "undo" else "Done again."
        else:
            await commit(history.restore, visit.account_id, template_id, to, visit.user.id, seen)
    except Conflict as refused:
        said, status = f"{changed_since(refused)} Look at it first.", 409
    except Invalid as refused:
        said, status = words.sentence(next(iter(refused.fields.values()))[0]), 422
    if not view.is_part(request):
        view.say(request, said if status != 200 else "Done. Nothing is lost: every step is in the history.")
        return view.go(request, f"/templates/{template_id}/history")
    return await answer(request, visit, template_id, key, (*_ALL, "theme", "title"), status, say=said, changed=True)


@pages.post("/<template_id:int>/presence", name="presence")
@signed_in
async def here(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Note that somebody is here, and answer who else is and what they changed."""
    form = Form.of(request)
    row = await call(store.get, visit.account_id, template_id)
    who, name = str(visit.session.id), visit.user.name or visit.user.email
    if form["gone"]:
        presence.gone(template_id, who)
        return view.pieces(request, "editor/told.html", ())
    presence.here(template_id, who, visit.user.id, name, form["s"][:64])
    moved = number(form["revision"], 0) not in (0, row.revision)
    # The outline is not taken from under a hand without need
    crowd = form["crowd"] or presence.others(template_id, visit.user.id)
    names = ("state", "steps", "list") if moved else ("state", "list") if crowd else ("state",)
    return await answer(request, visit, template_id, form.text("s"), names, changed=moved)
