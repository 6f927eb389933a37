"""Changes of sections in the editor: add, move, copy, remove, undo and redo; and reports of presence."""

import re
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content.templates import editing, store, template_edits
from appliance.content.templates.editing import SectionEdit
from appliance.content.templates.revisions import HISTORY
from appliance.content.templates.template_edits import SectionTarget
from appliance.core.errors import Conflict, Invalid
from appliance.core.i18n import gettext, gettext_stored
from appliance.storage.transactions import commit, fetch, render, render_for
from ui import formats, view
from ui.forms import Form, parse_int
from ui.guard import signed_in
from ui.pages import editor
from ui.pages.editor import build_context, render_blocks
from ui.pages.template_detail import describe_conflict
from ui.session import Pages, Visit
from ui.widgets import editor_panels

pages = Pages("ui_editor_acts", url_prefix="/templates")

_THEME_RESET = gettext_stored("Theme reset to the brand", HISTORY)
# The pages of an email to which an undo may return
_BACK = re.compile(r"translations/[A-Za-z0-9-]{2,35}")
_NUMBERS = tuple(str(number) for number in range(100))
_ALL_BLOCKS = ("state", "steps", "list", "starts", "inspector")


@pages.post("/<template_id:int>/sections", name="add")
@signed_in("templates:write")
async def add(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Add a section of the form's kind at the form's position."""
    form = Form.from_request(request)
    return await _arrange(
        request,
        visit,
        template_id,
        template_edits.add_section(form["kind"], _read_spot(form), visit.account.locale),
        "added",
    )


@pages.post("/<template_id:int>/basics", name="basics")
@signed_in("templates:write")
async def add_basics(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Add a header, a text, a button and a footer to an email without sections."""
    return await _arrange(request, visit, template_id, template_edits.add_basics(visit.account.locale), "added")


@pages.post("/<template_id:int>/sections/<key:str>/move", name="move")
@signed_in("templates:write")
async def move(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Move a section one place up or down, or to the form's position."""
    form = Form.from_request(request)
    by = {"up": -1, "down": 1}.get(form["way"])
    edit = template_edits.shift_section(key, by) if by else template_edits.move_section(key, _read_spot(form))
    return await _arrange(request, visit, template_id, edit, "moved")


@pages.post("/<template_id:int>/sections/<key:str>/duplicate", name="duplicate")
@signed_in("templates:write")
async def duplicate(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Add a copy of a section of an email after it."""
    return await _arrange(request, visit, template_id, template_edits.duplicate_section(key), "duplicated")


@pages.post("/<template_id:int>/sections/<key:str>/remove", name="remove")
@signed_in("templates:write")
async def remove(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Remove a section; the toast and the history offer to undo it."""
    context = await render_for(visit.account_id, build_context, visit, template_id, key)
    label = context["entry"].label if context["entry"] else gettext("Section")
    notice = gettext("%(section)s removed.", section=label)
    return await _arrange(request, visit, template_id, template_edits.remove_section(key), "removed", notice)


@pages.post("/<template_id:int>/sections/<key:str>/items", name="items")
@signed_in("templates:write")
async def change_items(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Add, remove or move an item of a list property of a section."""
    name, _, act = Form.from_request(request)["entry"].partition(".")
    act, _, at = act.partition(".")
    edit = template_edits.edit_list(key, name, act, int(at) if at in _NUMBERS else 0)
    return await _arrange(request, visit, template_id, edit, "changed")


@pages.post("/<template_id:int>/unstyle", name="unstyle")
@signed_in("templates:write")
async def reset_theme(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Remove all values of the design's theme, so that it follows the brand."""

    def clear_theme(design: dict[str, Any], result: Any) -> tuple[str, str | None]:
        design["theme"] = {}
        return _THEME_RESET, None

    return await _arrange(request, visit, template_id, clear_theme, "", also=("theme",))


async def _arrange(
    request: Request, visit: Visit, template_id: int, change: SectionEdit, verb: str, undo: str = "",
    also: tuple[str, ...] = (),
) -> HTTPResponse:  # fmt: skip
    try:
        row = await fetch(store.get, visit.account_id, template_id)
        edit, _ = await fetch(editing.build_section_edit, row, change)
        prepared = await render_for(visit.account_id, editing.prepare, row, edit)
        edited = await commit(editing.edit_sections, visit.account_id, template_id, change, visit.user.id, prepared)
    except Invalid as error:
        text = formats.sentence(next(iter(error.fields.values()))[0])
        return await render_blocks(request, visit, template_id, None, ("state",), 422, base=text, say=text)
    notice = {"text": undo, "undo": (f"/templates/{template_id}/undo", {"revision": str(edited.template.revision)})}
    text = await fetch(_announcement, visit, template_id, edited.key, verb) if verb else ""
    return await render_blocks(
        request,
        visit,
        template_id,
        edited.key,
        (*_ALL_BLOCKS, *also),
        say=text,
        changed=True,
        select=edited.key,
        notice=notice if undo else None,
    )


def _announcement(visit: Visit, template_id: int, key: str | None, verb: str) -> str:
    """Return a text for screen readers with the result of a change to a section."""
    if verb == "removed" or key is None:
        return gettext("Section removed.")
    rows = build_context(visit, template_id, key)["outline"]
    row = editor_panels.find_row(rows, key)
    if row is None:
        return ""
    if verb == "added":
        return editor_panels.describe_addition(rows, key)
    place = {"position": formats.number(row.position), "total": formats.number(row.sibling_count)}
    if verb == "moved":
        return gettext("%(section)s moved to %(position)s of %(total)s", section=row.label, **place)
    if verb == "duplicated":
        return gettext("%(section)s duplicated, %(position)s of %(total)s", section=row.label, **place)
    return gettext("%(section)s changed, %(position)s of %(total)s", section=row.label, **place)


def _read_spot(form: Form) -> SectionTarget:
    column = form["column"]
    number = int(column) if column in _NUMBERS else 0
    return SectionTarget(form.text("before"), form.text("behind"), form.text("parent"), number)


@pages.post("/<template_id:int>/undo", name="undo")
@signed_in("templates:write")
async def undo_edit(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Undo the last edit of an email."""
    return await _go_to_revision(request, visit, template_id, "undo")


@pages.post("/<template_id:int>/redo", name="redo")
@signed_in("templates:write")
async def redo_edit(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Restore the last edit that was undone."""
    return await _go_to_revision(request, visit, template_id, "redo")


@pages.post("/<template_id:int>/restore", name="restore")
@signed_in("templates:write")
async def restore_revision(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Restore the revision of an email that the form names, as a new edit."""
    return await _go_to_revision(request, visit, template_id, parse_int(Form.from_request(request)["at"], 0))


async def _go_to_revision(request: Request, visit: Visit, template_id: int, to: Any) -> HTTPResponse:
    """Restore the content that `to` selects: `undo`, `redo` or the number of a revision.

    A request without the editor's script is redirected to the history, or to the page `back` of the template.
    """
    form = Form.from_request(request)
    seen_revision, key = parse_int(form["revision"], 0) or None, form.text("s")
    verb = {"undo": template_edits.undo, "redo": template_edits.redo}.get(to)
    text, status = gettext("Restored. All earlier revisions are still in the history."), 200
    try:
        prepared = await render(template_edits.prepare_revision, visit.account_id, template_id, to)
        if verb is not None:
            await commit(verb, visit.account_id, template_id, visit.user.id, seen_revision, prepared)
            text = gettext("Undone.") if to == "undo" else gettext("Redone.")
        else:
            await commit(
                template_edits.restore, visit.account_id, template_id, to, visit.user.id, seen_revision, prepared
            )
    except Conflict as error:
        text, status = describe_conflict(error), 409
    except Invalid as error:
        text, status = formats.sentence(next(iter(error.fields.values()))[0]), 422
    if not view.is_partial(request):
        view.flash(request, text)
        back = form["back"] if status == 200 and _BACK.fullmatch(form["back"]) else "history"
        return view.redirect(request, f"/templates/{template_id}/{back}")
    return await render_blocks(
        request, visit, template_id, key, (*_ALL_BLOCKS, "theme", "title"), status, say=text, changed=True
    )


@pages.post("/<template_id:int>/presence", name="presence")
@signed_in("templates:write")
async def update_presence(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Record that the user has the email open, and show the other users who have it open and their changes.

    If the form has the field `gone`, the user has closed the email, and nothing is shown. The changes are those since
    the revision that the form contains.
    """
    form = Form.from_request(request)
    row = await fetch(store.get, visit.account_id, template_id)
    session_key, name = str(visit.session.id), visit.user.name or visit.user.email
    if form["gone"]:
        editor.mark_left(template_id, session_key)
        return view.render_blocks(request, "editor/messages.html", ())
    editor.mark_present(template_id, session_key, visit.user.id, name, form["s"][:64])
    moved = parse_int(form["revision"], 0) not in (0, row.revision)
    # The outline is only replaced if it changed, because the user may be dragging a section in it.
    has_others = form["crowd"] or editor.list_others(template_id, visit.user.id)
    names = ("state", "steps", "list") if moved else ("state", "list") if has_others else ("state",)
    return await render_blocks(request, visit, template_id, form.text("s"), names, changed=moved)
