"""The editor of an email: of a template, of a campaign's own copy, of a message in a flow; they are one page."""

import json
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content import brand as brands
from appliance.content.designs import document, render
from appliance.content.templates import editing, history, homes, places, revisions, store
from appliance.content.templates.editing import Change
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.sending.messages import sample_render
from appliance.storage.models import Template
from appliance.storage.work import call, commit, render_for
from ui import filter_look, view, words
from ui.editor import drawing, fields, listing, presence
from ui.filters import Rows
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_editor")
PAGE = "editor/page.html"
_PALETTES = (
    ("Ink", {"brand_color": "#1f2933", "text_color": "#1f2933", "bg_color": "#f4f2ee"}),
    ("Sea", {"brand_color": "#0f617d", "text_color": "#22303a", "bg_color": "#eef4f6"}),
    ("Moss", {"brand_color": "#3d6b35", "text_color": "#26302a", "bg_color": "#f2f5ee"}),
    ("Brick", {"brand_color": "#a63d2f", "text_color": "#2d2523", "bg_color": "#f8f1ec"}),
    ("Plum", {"brand_color": "#6b3fa0", "text_color": "#2a2433", "bg_color": "#f4f1f8"}),
    ("Night", {"brand_color": "#f2b84b", "text_color": "#f3f1ea", "bg_color": "#17191d"}),
)  # fmt: skip
# The first so many letters of a subject are seen on a phone, and of a preview line
SUBJECT, PREHEADER = 45, 90


@pages.get("/campaigns/<campaign_id:int>/content", name="campaign")
@signed_in
async def campaign(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """What a campaign says; its own copy, whatever it was made from."""
    row = await call(homes.of_campaign, visit.account_id, campaign_id)
    if row.channel != "email":
        return view.go(request, f"/campaigns/{campaign_id}")
    return await show(request, visit, row)


@pages.get("/flows/<flow_id:int>/steps/<step_id:int>/content", name="step")
@signed_in
async def step(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """What a message of a flow says."""
    row = await call(homes.of_step, visit.account_id, flow_id, step_id)
    if row.channel != "email":
        return view.go(request, f"/flows/{flow_id}?step={step_id}")
    return await show(request, visit, row)


async def show(request: Request, visit: Visit, row: Template, status: int = 200, file: str = "") -> HTTPResponse:
    """Return the page of an email, with the section that its address names; `file` is what is wrong with one."""
    path, key = request.args.get("path"), request.args.get("s")
    if path and key is None:
        key = next((one.key for one in document.entries(row.design) if one.section.path == path), None)
    values = await render_for(visit.account_id, context, visit, row.id, key)
    return view.whole(request, PAGE, status, **(values | {"file": file}))


async def told(request: Request, visit: Visit, row: Template, said: dict[str, str]) -> HTTPResponse:
    """Return what is wrong with what was typed, each at its field."""
    return await _told(request, visit, row.id, None, 422, said, "", None)


def context(visit: Visit, template_id: int, key: str | None = None, asks_palette: bool = True) -> dict[str, Any]:
    """Return everything the page shows; raises NotFound."""
    row = store.get(visit.account_id, template_id)
    home = homes.of(row)
    found = document.entries(row.design)
    entry = document.find_section(found, key) if key else None
    look = brands.look(brands.get(visit.account_id))
    theme = render.theme_of(row.design, look)
    said = "body" if row.body and not document.sections(row.design) else "sections"
    return {
        "row": row, "home": home, "here": f"/templates/{row.id}", "back": back_of(home), "page": page_of(home),
        "locked": home.is_locked or visit.user.role == "viewer", "may_look_only": visit.user.role == "viewer",
        "outline": listing.rows(found), "many": len(found), "entry": entry, "key": entry.key if entry else "",
        "top": document.top_section(found, entry.key) if entry else "",
        "groups": fields.groups(entry, theme) if entry else [],
        "columns": fields.columns_of(entry, found) if entry else [],
        "listing": listing, "palette": listing.palette(), "emails": fields.emails(row), "mode": said,
        "themed": fields.themed(row.design, theme), "contrasts": fields.contrasts(theme), "palettes": _PALETTES,
        "reach": history.reach(row), "others": presence.others(row.id, visit.user.id),
        "file": "", "siblings": _siblings(found, entry), "lengths": (SUBJECT, PREHEADER), "raw": _raw(entry),
        "seen_by": _seen_by(visit, entry),
        # Shown beside the fields of the email alone
        "inbox": sample_render.inbox(visit.account_id, revisions.document(row)) if entry is None else None,
    }  # fmt: skip


def _siblings(found: list[document.Entry], entry: document.Entry | None) -> tuple[int, int]:
    """Return where a section stands among how many."""
    if entry is None:
        return 0, 0
    return entry.position + 1, len([one for one in entry.siblings if isinstance(one, dict)])


def _raw(entry: document.Entry | None) -> str:
    """Return a section that nobody knows as it came."""
    if entry is None or entry.section.kind is not None:
        return ""
    return json.dumps(entry.raw, indent=2, ensure_ascii=False)


def _seen_by(visit: Visit, entry: document.Entry | None) -> str:
    """Say in words who sees a section; nothing where everybody does."""
    have = entry.section.props.get("show_if") if entry is not None and entry.section.kind is not None else None
    if not isinstance(have, list) or not have:
        return ""
    return filter_look.look(visit.account_id, Rows.of(have), counted=False).sentence or "People who match its rules"


def page_of(home: homes.Home) -> str:
    """Return the address of the editor of an email."""
    if home.kind == "campaign":
        return f"/campaigns/{home.id}/content"
    return f"/flows/{home.id}/steps/{home.step}/content" if home.kind == "flow" else f"/templates/{home.id}/edit"


def back_of(home: homes.Home) -> str:
    """Return where the editor came from."""
    if home.kind == "campaign":
        return f"/campaigns/{home.id}"
    return f"/flows/{home.id}?step={home.step}" if home.kind == "flow" else "/templates"


async def answer(
    request: Request, visit: Visit, template_id: int, key: str | None, names: tuple[str, ...], status: int = 200,
    **said: Any,
) -> HTTPResponse:  # fmt: skip
    """Return a script with the blocks that changed and what it should know besides; a bare form with the page."""
    values = await render_for(visit.account_id, context, visit, template_id, key)
    notice = said.pop("notice", None)
    if not view.is_part(request):
        if notice:
            view.say(request, notice["text"], notice["undo"])
        elif said.get("say"):
            view.say(request, said["say"])
        return view.go(request, values["page"] + (f"?s={values['key']}" if values["key"] else ""))
    if notice:
        names = (*names, "toast")
    found = view.pieces(request, PAGE, names, status, **values, notice=notice)
    told = {"rev": values["row"].revision, "key": values["key"], **said}
    found.headers["x-editor"] = json.dumps(told)
    if said.get("kept") or said.get("changed"):
        found.body = (found.body or b"") + (await drawing.along(request, visit, template_id)).encode()
    return found


@pages.get("/templates/<template_id:int>/sections/<key:str>", name="section")
@signed_in
async def section(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """A section as fields."""
    row = await call(store.get, visit.account_id, template_id)
    if document.find_section(document.entries(row.design), key) is None:
        raise NotFound
    return await answer(request, visit, template_id, key, ("inspector",))


@pages.get("/templates/<template_id:int>/details", name="email")
@signed_in
async def email(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """What stands beside the sections as fields."""
    return await answer(request, visit, template_id, None, ("inspector",))


@pages.post("/templates/<template_id:int>/sections/<key:str>", name="change")
@signed_in
async def change(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Keep values of a section; each is refused by itself, and merged with what others change elsewhere."""
    asked = asked_of(request)
    return await _keep(request, visit, template_id, key, asked, editing.change, visit.account_id, template_id, key)


@pages.post("/templates/<template_id:int>/theme", name="theme")
@signed_in
async def theme(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Keep values of the theme."""
    asked = asked_of(request)
    return await _keep(request, visit, template_id, None, asked, editing.change, visit.account_id, template_id, None)


@pages.post("/templates/<template_id:int>/details", name="details")
@signed_in
async def details(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Keep what stands beside the sections."""
    asked = asked_of(request)
    return await _keep(request, visit, template_id, None, asked, editing.details, visit.account_id, template_id)


def asked_of(request: Request) -> list[Change]:
    """Return the values that a form has; what is typed is kept to the last space."""
    form = Form.of(request)
    names = [name for name in form.values if name.startswith(("props.", "styles.", "theme.", "email."))]
    return [Change(name, form.all(name)[-1].replace("\r\n", "\n"), form["seen:" + name] or None) for name in names]


async def _keep(
    request: Request, visit: Visit, template_id: int, key: str | None, asked: list[Change], verb: Any, *args: Any
) -> HTTPResponse:
    path = asked[0].path if len(asked) == 1 else ""
    names: tuple[str, ...] = (
        ("state", "steps", "list") if key is not None or path else ("state", "steps", "list", "theme")
    )
    try:
        row = await call(store.get, visit.account_id, template_id)
        edit = await call(_foreseen, row, key, asked)
        await render_for(visit.account_id, editing.warm, row, edit)
        done = await commit(verb, *args, asked, visit.user.id)
    except Invalid as refused:
        return await _refused(request, visit, template_id, key, asked, refused)
    except Conflict as refused:
        return await _beaten(request, visit, template_id, key, asked, refused)
    if path.startswith("theme."):
        names = (*names, "contrasts")
    elif path == "props.preset":
        names = (*names, "inspector")
    elif path in ("email.from_name", "email.subject", "email.preheader"):
        names = (*names, "inboxrow", "subject_length", "preheader_length")
    seen = await call(_digests, done.template, key, asked)
    return await answer(request, visit, template_id, key, names, kept=True, seen=seen)


def _foreseen(row: Template, key: str | None, asked: list[Change]) -> Any:
    if asked and asked[0].path.startswith("email."):
        return editing.detailed(row, asked)
    return editing.changed(row, key, asked)


def _digests(row: Template, key: str | None, asked: list[Change]) -> dict[str, str]:
    """Return, for each value, the digest of what it is now."""
    found = {}
    entry = document.find_section(document.entries(row.design), key) if key else None
    for one in asked:
        if one.path.startswith("email."):
            value = getattr(row, one.path.removeprefix("email."))
        else:
            here = places.place(one.path, entry.section.kind if entry else None)
            value = places.value_of(here, places.holder_of(entry, row.design, here))
        found[one.path] = places.digest(value)
    return found


async def _refused(
    request: Request, visit: Visit, template_id: int, key: str | None, asked: list[Change], refused: Invalid
) -> HTTPResponse:
    """Return what is wrong, each at its field; a lock and the like beside the name."""
    kinds = {one.path: one.typed for one in asked}
    said = {path: sentence(path, found[0]) for path, found in refused.fields.items() if path in kinds}
    base = [words.sentence(found[0]) for path, found in refused.fields.items() if path not in kinds]
    return await _told(request, visit, template_id, key, 422, said, " ".join(base), None)


async def _beaten(
    request: Request, visit: Visit, template_id: int, key: str | None, asked: list[Change], refused: Conflict
) -> HTTPResponse:
    """Return who was first with what, and keep what was typed."""
    return await _told(request, visit, template_id, key, 409, {}, "", refused.extra)


async def _told(
    request: Request, visit: Visit, template_id: int, key: str | None, status: int, said: dict[str, str], base: str,
    theirs: dict[str, Any] | None,
) -> HTTPResponse:  # fmt: skip
    if not view.is_part(request):
        text = next(iter(said.values()), base) or f"{(theirs or {}).get('changed_by') or 'Somebody'} changed this too."
        return await answer(request, visit, template_id, key, (), status, say=text)
    values = await render_for(visit.account_id, context, visit, template_id, key)
    found = view.pieces(request, "editor/told.html", ("told",), status, said=said, base=base, theirs=theirs, **values)
    found.headers["x-editor"] = json.dumps({"rev": values["row"].revision, "base": base, "wrong": list(said)})
    return found


def sentence(path: str, message: str) -> str:
    """Say to a person what a value cannot be."""
    if message == "is invalid" and path.rpartition(".")[2] in ("href", "cta_url"):
        return "Start the link with https://"
    if message == "is invalid" and path.rpartition(".")[2] in ("email", "from_email", "reply_to"):
        return "Write an address like name@example.com."
    if message == "is invalid":
        return "Start the address with https://"
    if message == "is no colour":
        return "Choose a colour, or write it like #0f617d."
    if message.startswith("must be between"):
        low, _, high = message.removeprefix("must be between ").partition(" and ")
        return f"Write a number from {low} to {high}."
    if message.startswith("is too long"):
        return "This is longer than any email needs. Make it shorter."
    return words.sentence(message)
