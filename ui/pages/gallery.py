"""Templates as cards, each with a small picture: begun from a design, taken from a file, copied, put away, deleted."""

from pathlib import PurePath
from typing import Any

import msgspec
from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import brand as brands
from appliance import errors, fields
from appliance.db.work import call, commit
from appliance.messages import looking
from appliance.pages import Page
from appliance.templates import revisions, shelf, starters, store
from appliance.templates.requests import DESIGN_BYTES, TemplateQuery, TemplateWrite
from ui import guard, mail, view
from ui.forms import Form, listing
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_gallery", url_prefix="/templates")
_PER_PAGE = 24
_TAKEN = ("name", "subject", "preheader", "body", "from_name", "from_email", "reply_to", "design")
_BLANK = {"sections": [{"type": "footer", "props": {}, "styles": {}}], "theme": {}}
_MOST_FAULTS = 5


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The templates as cards; without any, the designs to begin from."""
    raw, search = listing(request, _PER_PAGE)
    show = request.args.get("show") or ""
    show = show if show in ("email", "sms", "away") else ""

    def read() -> tuple[Page, int, dict[int, int]]:
        away = shelf.many(visit.account_id)
        if show == "away":
            found = shelf.page(visit.account_id, raw["page"], _PER_PAGE, search)
        else:
            asked = raw | {"standalone": True} | ({"channel": show} if show else {})
            found = store.page(visit.account_id, fields.read(TemplateQuery, asked))
        return found, away, shelf.sent([row.id for row in found.rows])

    found, away, sent = await call(read)
    is_new = not (found.total or search or show)
    begin = await call(_starters, visit.account_id) if is_new else ()
    return view.page(
        request, "templates/index.html", found=found, search=search, show=show, away=away, sent=sent, starters=begin,
        may_write=guard.may(visit.user.role, "POST", request.path),
    )  # fmt: skip


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Six designs to begin from, an empty one, a file, and a page for HTML."""
    if request.args.get("kind") == "html":
        return view.page(request, "templates/form.html", form=Form(), row=None, sections=0, advice=[])
    return await _new(request, visit, Form())


async def _new(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    found = await call(_starters, visit.account_id)
    return view.page(
        request, "templates/new.html", status, starters=found, form=form,
        may_write=guard.may(visit.user.role, "POST", request.path),
    )  # fmt: skip


@pages.post("/begin", name="begin")
@signed_in
async def begin(request: Request, visit: Visit) -> HTTPResponse:
    """Make a template of one of the six, or an empty one."""
    key = Form.of(request)["starter"]
    if key == "blank":
        return await _made(request, visit, {"name": store.UNTITLED, "design": _BLANK}, "Begun empty", "")
    one = await call(_starter, visit.account_id, key)
    said = {"name": one.label, "subject": one.subject, "preheader": one.preheader, "design": one.design}
    return await _made(request, visit, said, f"Begun from {one.label}", f"{one.label} is yours now. Make it your own.")


async def _made(request: Request, visit: Visit, said: dict[str, Any], label: str, notice: str) -> HTTPResponse:
    asked = fields.read(TemplateWrite, said)
    await call(store.warm, visit.account_id, asked)
    made = await commit(store.create, visit.account_id, asked, None, visit.user.id, label)
    if notice:
        view.say(request, notice)
    return view.go(request, f"/templates/{made.id}/edit")


@pages.post("/import", name="take")
@signed_in
async def take(request: Request, visit: Visit) -> HTTPResponse:
    """Make a template of a file: a design as it was exported, or HTML; all that is wrong with it is said."""
    try:
        said = _read(request)
        return await _made(request, visit, said, "Taken from a file", "The file is a template now.")
    except errors.Invalid as refused:
        told = [f"{path} {found[0]}" for path, found in refused.fields.items()]
        more = f" and {len(told) - _MOST_FAULTS} more" if len(told) > _MOST_FAULTS else ""
        form = Form()
        form.wrong("file", f"This file cannot be used: {'; '.join(told[:_MOST_FAULTS])}{more}.")
        return await _new(request, visit, form, 422)


def _read(request: Request) -> dict[str, Any]:
    given = request.files.get("file") if request.files else None
    if given is None or not given.body.strip():
        raise errors.Invalid({"it": ["is empty"]})
    if len(given.body) > 2 * DESIGN_BYTES:
        raise errors.Invalid({"it": ["is too large"]})
    name = PurePath(str(given.name or "")).stem.strip()[:255] or store.UNTITLED
    try:
        text = given.body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise errors.Invalid({"it": ["is not text in UTF-8"]}) from None
    if not text.lstrip().startswith(("{", "[")):
        return {"name": name, "body": text}
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise errors.Invalid({"it": ["is not JSON"]}) from None
    if not isinstance(found, dict) or fields.is_too_deep(found):
        raise errors.Invalid({"it": ["holds no design"]})
    if "sections" in found:
        return {"name": name, "design": found}
    said = {one: found[one] for one in _TAKEN if found.get(one) is not None}
    if not ({"design", "body"} & said.keys()):
        raise errors.Invalid({"it": ["holds no design"]})
    return {"name": name} | said


@pages.get("/starters/<key:str>/preview", name="starter")
@signed_in
async def starter(request: Request, visit: Visit, key: str) -> HTTPResponse:
    """One of the six as a frame shows it."""

    def read() -> str:
        one = _starter(visit.account_id, key)
        said: dict[str, Any] = dict.fromkeys(revisions.FIELDS) | {"subject": one.subject, "preheader": one.preheader}
        return looking.of_fields(visit.account_id, said | {"design": one.design}).html

    return mail.frame(await call(read))


@pages.post("/<template_id:int>/duplicate", name="duplicate")
@signed_in
async def duplicate(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Make a copy and open it."""
    made = await commit(store.duplicate, visit.account_id, template_id, visit.user.id)
    view.say(request, "This is the copy.")
    return view.go(request, f"/templates/{made.id}/edit")


@pages.post("/<template_id:int>/archive", name="archive")
@signed_in
async def archive(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Put a template away, with a way to undo it."""
    gone = await commit(shelf.put_away, visit.account_id, template_id)
    view.say(request, f"{gone.name or store.UNTITLED} is archived.", (f"/templates/{template_id}/unarchive", {}))
    return view.go(request, "/templates")


@pages.post("/<template_id:int>/unarchive", name="unarchive")
@signed_in
async def unarchive(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Bring a template back."""
    back = await commit(shelf.bring_back, visit.account_id, template_id)
    view.say(request, f"{back.name or store.UNTITLED} is back.")
    return view.go(request, "/templates")


@pages.post("/<template_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Delete a template with its history; what was made from it keeps its own copy."""
    gone = await commit(store.delete, visit.account_id, template_id)
    view.say(request, f"{gone.name or store.UNTITLED} is deleted. Campaigns made from it keep their copy.")
    return view.go(request, "/templates" if gone.removed_at is None else "/templates?show=away")


def _starters(account_id: int) -> tuple[starters.Starter, ...]:
    return starters.made(brands.look(brands.get(account_id)))


def _starter(account_id: int, key: str) -> starters.Starter:
    found = starters.find(brands.look(brands.get(account_id)), key)
    if found is None:
        raise errors.NotFound
    return found
