"""Templates: emails kept for later, as subject and body."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.db.work import call, commit
from appliance.templates import store
from ui import mail, view
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_templates", url_prefix="/templates")
FIELDS = ("name", "subject", "preheader", "body")


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The templates as cards, each with a small picture of itself."""
    search = (request.args.get("search") or "").strip()[:255]
    raw: dict[str, Any] = {"page": number(request.args.get("page")), "limit": 24, "standalone": True}
    raw |= {"search": search} if search else {}
    found = await call(store.page, visit.account_id, fields.read(store.TemplateQuery, raw))
    return view.page(request, "templates/index.html", found=found, search=search)


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty template."""
    return view.page(request, "templates/form.html", form=Form(), row=None)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Keep a new template."""
    form = Form.of(request)
    form.need("name", "Give it a name that you will recognise.")
    try:
        if form.errors:
            raise errors.Invalid({})
        made = await commit(store.create, visit.account_id, _asked(form))
    except errors.Invalid as refused:
        return view.page(request, "templates/form.html", 422, form=form.take(refused), row=None)
    view.say(request, "Saved.")
    return view.go(request, f"/templates/{made.id}/edit")


@pages.get("/<template_id:int>/edit", name="edit")
@signed_in
async def edit(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """The form, with the email beside it."""
    row = await call(store.get, visit.account_id, template_id)
    form = Form({name: getattr(row, name) or "" for name in FIELDS})
    return view.page(request, "templates/form.html", form=form, row=row)


@pages.post("/<template_id:int>", name="update")
@signed_in
async def update(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Keep the changes."""
    form = Form.of(request)
    form.need("name", "Give it a name that you will recognise.")
    row = await call(store.get, visit.account_id, template_id)
    try:
        if form.errors:
            raise errors.Invalid({})
        await commit(store.update, visit.account_id, template_id, _asked(form), visit.user.id)
    except errors.Invalid as refused:
        return view.page(request, "templates/form.html", 422, form=form.take(refused), row=row)
    view.say(request, "Saved.")
    return view.go(request, f"/templates/{template_id}/edit")


@pages.post("/<template_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Delete a template; campaigns made from it have their own copy."""
    gone = await commit(store.delete, visit.account_id, template_id)
    view.say(request, f"{gone.name or 'The template'} is deleted. Campaigns made from it keep their copy.")
    return view.go(request, "/templates")


@pages.get("/<template_id:int>/preview", name="preview")
@signed_in
async def preview(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """The email as a frame shows it."""
    row = await call(store.get, visit.account_id, template_id)
    return mail.frame(row.body or "")


def _asked(form: Form) -> store.TemplateWrite:
    return fields.read(store.TemplateWrite, {name: form.text(name) for name in FIELDS if name in form.values})
