"""Templates as cards, each with a small picture: begun from a design or taken from a file."""

from pathlib import PurePath
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.content import brand as brands
from appliance.content.templates import revisions, shelf, starters, store
from appliance.content.templates.requests import DESIGN_BYTES, TemplateQuery, TemplateWrite
from appliance.core import errors, fields
from appliance.sending.messages import sample_render
from appliance.storage.work import call, commit, render, render_for
from ui import mail, rights, tables, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.tables import Chip, Column

pages = Pages("ui_gallery", url_prefix="/templates")
_COLUMNS = (Column("Name", "name", ""), Column("Changed", "updated"), Column("Made", "created"))
_CHIPS = {"": "All", "email": "Email", "sms": "SMS", "away": "Archived"}
_TAKEN = ("name", "subject", "preheader", "body", "from_name", "from_email", "reply_to", "design")
_BLANK = {"sections": [{"type": "footer", "props": {}, "styles": {}}], "theme": {}}
_MAX_FAULTS = 5


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The templates as cards; without any, the designs to begin from."""
    table = tables.Table(request, "/templates", ("template", "templates"), _COLUMNS, "-updated", ("show",))
    table.is_cards = True
    table.acts = "/templates/acts" if rights.may(visit.user.role, "POST", "/templates/acts") else ""
    show, search = table.state["show"], table.search

    def read() -> int:
        away, many = shelf.many(visit.account_id), store.counted(visit.account_id)
        known = {"": sum(many.values()), "email": many.get("email", 0), "sms": many.get("sms", 0), "away": away}
        table.chips = [Chip(key, _CHIPS[key], number) for key, number in known.items()
                       if number or key != "away" or show == "away"]  # fmt: skip
        if show == "away":
            table.found = shelf.page(visit.account_id, table.page, table.limit, search)
        else:
            asked = table.raw | {"standalone": True} | ({"channel": show} if show in ("email", "sms") else {})
            table.found = store.page(visit.account_id, fields.read(TemplateQuery, asked), table.sort)
        return away

    away = await call(read)
    is_new = not table.found.total and not table.is_narrowed
    begin = await call(_starters, visit.account_id) if is_new else ()
    return tables.answer(request, "templates/index.html", table, away=away, starters=begin)


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
        may_write=rights.may(visit.user.role, "POST", request.path),
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
    await render(store.warm, visit.account_id, asked)
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
        more = f" and {len(told) - _MAX_FAULTS} more" if len(told) > _MAX_FAULTS else ""
        form = Form()
        form.wrong("file", f"This file cannot be used: {'; '.join(told[:_MAX_FAULTS])}{more}.")
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
        return sample_render.of_fields(visit.account_id, said | {"design": one.design}).html

    return mail.frame(await render_for(visit.account_id, read))


def _starters(account_id: int) -> tuple[starters.Starter, ...]:
    return starters.made(brands.look(brands.get(account_id)))


def _starter(account_id: int, key: str) -> starters.Starter:
    found = starters.find(brands.look(brands.get(account_id)), key)
    if found is None:
        raise errors.NotFound
    return found
