"""Templates: emails kept for later; the six to begin from, what can be edited simply, and how each looks."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content.designs import document as designs
from appliance.content.templates import homes, revisions, store
from appliance.content.templates.requests import TemplateWrite
from appliance.core import errors, fields
from appliance.sending.messages import sample_render
from appliance.storage.work import call, commit, render, render_for
from ui import mail, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pages import editor
from ui.pressed import one_press
from ui.session import Pages, Visit

pages = Pages("ui_templates", url_prefix="/templates")
FIELDS = ("name", "subject", "preheader", "body")
_NAMES = {"name": "the name", "subject": "the subject", "preheader": "the preview line", "body": "the content",
          "design": "the design", "from_name": "the sender", "from_email": "the sender",
          "reply_to": "the reply address"}  # fmt: skip


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Keep a new template."""
    form = Form.of(request)
    form.need("name", "Give it a name that you will recognise.")
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = _asked(form)
        await render(store.warm, visit.account_id, asked)
        made = await commit(store.create, visit.account_id, asked, None, visit.user.id)
    except errors.Invalid as refused:
        return view.page(request, "templates/form.html", 422, form=form.take(refused), row=None, sections=0, advice=[])
    view.say(request, "Saved.")
    return view.go(request, f"/templates/{made.id}/edit")


@pages.get("/<template_id:int>/edit", name="edit")
@signed_in
async def edit(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """The editor; for what is one piece of HTML and for an SMS a form, with the message beside it."""
    row = await call(store.get, visit.account_id, template_id)
    if row.flow_id is not None:
        return view.go(request, editor.page_of(await call(homes.of, row)))
    if is_edited(row) and not (request.args.get("as") == "html" and not designs.sections(row.design)):
        return await editor.show(request, visit, row)
    form = Form({name: getattr(row, name) or "" for name in FIELDS} | {"revision": str(row.revision)})
    return await page(request, row, form)


def is_edited(row: Any) -> bool:
    """Return whether an email is made of sections, or may still be."""
    return row.channel == "email" and bool(designs.sections(row.design) or not row.body or row.flow_id is not None)


async def page(request: Request, row: Any, form: Form, status: int = 200) -> HTTPResponse:
    """Return the page of a template with what was typed and what is wrong with it."""
    sections = len(designs.sections(row.design))
    found = await render(sample_render.advice, row.account_id, revisions.document(row)) if sections else []
    told = [("warn", words.sentence(text), "") for text in dict.fromkeys(one.message for one in found)]
    return view.page(request, "templates/form.html", status, form=form, row=row, sections=sections, advice=told)


@pages.post("/<template_id:int>", name="update")
@signed_in
async def update(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Keep the changes; if somebody else was first, say what they changed and keep what was typed."""
    form = Form.of(request)
    form.need("name", "Give it a name that you will recognise.")
    row = await call(store.get, visit.account_id, template_id)
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = _asked(form)
        await render(store.warm, visit.account_id, asked, template_id)
        seen = number(form["revision"], 0) or None
        await commit(store.update, visit.account_id, template_id, asked, visit.user.id, seen)
    except errors.Invalid as refused:
        return await page(request, row, form.take(refused), 422)
    except errors.Conflict as refused:
        form.values["revision"] = str(refused.extra["revision"])
        form.wrong("base", f"{changed_since(refused)} What you typed is kept: save again to put it in its place.")
        return await page(request, await call(store.get, visit.account_id, template_id), form, 422)
    view.say(request, "Saved.")
    return view.go(request, f"/templates/{template_id}/edit")


def changed_since(refused: errors.Conflict) -> str:
    """Return who was first, and what they changed."""
    who = refused.extra.get("changed_by") or "Somebody"
    names = list(dict.fromkeys(_NAMES[one] for one in refused.extra.get("changed") or []))
    return f"{who} changed {words.listed(names) if names else 'this template'} since you opened it."


@pages.get("/<template_id:int>/preview", name="preview")
@signed_in
async def preview(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """The email as a frame shows it, rendered as it is sent, with invented values; `at` is one of its revisions."""
    at = number(request.args.get("at"), 0)

    def read() -> str:
        row = store.get(visit.account_id, template_id)
        said = revisions.get(visit.account_id, template_id, at).document if at else revisions.document(row)
        if row.channel == "sms":
            asked = sample_render.PreviewRequest(document={}, body=said["body"] or "", channel="sms")
            return mail.text(sample_render.preview(visit.account_id, asked).text)
        if not (said["body"] or designs.sections(said["design"])):
            return ""
        return sample_render.of_fields(visit.account_id, said).html

    try:
        return mail.frame(await render_for(visit.account_id, read))
    except errors.Invalid as refused:
        return mail.broken(next(iter(refused.fields.values()))[0])


def _asked(form: Form) -> TemplateWrite:
    return fields.read(TemplateWrite, {name: form.text(name) for name in FIELDS if name in form.values})
