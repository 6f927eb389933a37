"""Sign-up forms: the table, making and changing, and what to put on one's own page."""

from typing import Any, Literal

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit
from appliance.core import errors, fields
from appliance.forms import reading, store
from appliance.sending.domains import records
from appliance.sending.messages import senders
from appliance.settings import config
from appliance.storage.work import call, commit
from appliance.tracking import account_look
from ui import people, qr, together, view
from ui import words as ui_words
from ui.forms import Form, listing
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.together import Part, Parts

pages = Pages("ui_forms", url_prefix="/forms")
_LIMIT = 50
_ASKED = {"first_name": "First name", "last_name": "Last name", "phone": "Phone number"}
_NAMES = tuple(_ASKED)
_PARTS = Parts(
    Part("Name", ("name",)), Part("Ask for", ("asked",), True), Part("Other questions", ("others",)),
    Part("What people agree to", ("consent_text",)), Part("Ask them to confirm", ("double_opt_in",), True),
    Part("Lists they join", ("list_ids",), True), Part("Where people go afterwards", ("redirect_url",)),
    Part("Pages whose scripts may submit it", ("origins",)),
)  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table of forms."""
    raw, search = listing(request, _LIMIT)
    found = await call(store.page, visit.account_id, fields.read(store.FormQuery, raw))
    return view.page(request, "forms/index.html", found=found, search=search)


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty form, as most people want it."""
    form = Form({"double_opt_in": "yes"}, {"asked": ["first_name"]})
    return await _form(request, visit, form, None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a form and show what to do with it."""
    form = Form.of(request)
    form.need("name", "Give the form a name. People see it above the fields.")
    try:
        if form.errors:
            raise errors.Invalid({})
        args = (store.create, visit.account_id, fields.read(store.FormWrite, _raw(form, [])))
        made = await commit(audit.noting, visit.by, "form_add", *args)
    except errors.Invalid as refused:
        return await _form(request, visit, _taken(form, refused), None, 422)
    view.say(request, f"{made.name} is ready. Now bring it to people.")
    return view.go(request, f"/forms/{made.id}")


@pages.get("/<form_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """What a form has brought, its own page, and what to copy into another one."""
    row = await call(store.get, visit.account_id, form_id)
    lists = [one for one in await call(people.all_lists, visit.account_id) if one.id in row.list_ids]
    shown = await call(account_look.of, visit.account_id)
    html = reading.snippet_html(row, shown.language)
    unready = await call(_unready, visit.account_id)
    return view.page(
        request, "forms/show.html", row=row, lists=lists, snippet=html, asked=store.fields_of(row), unready=unready,
        code=qr.draw(row.url), public=records.has_public_name(),
    )  # fmt: skip


@pages.get("/<form_id:int>/qr.svg", name="qr_svg")
@signed_in
async def qr_svg(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """The QR code of a form's page as a drawing to print."""
    return await _qr_file(visit, form_id, "svg", "image/svg+xml")


@pages.get("/<form_id:int>/qr.png", name="qr_png")
@signed_in
async def qr_png(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """The QR code of a form's page as a picture to print."""
    return await _qr_file(visit, form_id, "png", "image/png")


async def _qr_file(visit: Visit, form_id: int, kind: Literal["svg", "png"], media_type: str) -> HTTPResponse:
    row = await call(store.get, visit.account_id, form_id)
    headers = {"content-disposition": f'attachment; filename="form-{row.id}.{kind}"'}
    return HTTPResponse(await call(qr.file, row.url, kind), 200, headers, media_type)


@pages.get("/<form_id:int>/edit", name="edit")
@signed_in
async def edit(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """The form with what is set."""
    row = await call(store.get, visit.account_id, form_id)
    return await _form(request, visit, together.opened(_kept(row), _PARTS), row, 200)


@pages.post("/<form_id:int>", name="update")
@signed_in
@together.meeting
async def update(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Keep what was changed."""
    form = Form.of(request)
    row = await call(store.get, visit.account_id, form_id)
    named = {str(one.id): one.name for one in await call(people.all_lists, visit.account_id)}
    together.meet(form, _PARTS, _kept(row), {"Lists they join": named, "Ask for": _ASKED})
    if form.met:
        return await _form(request, visit, form, row, 409)
    form.need("name", "A form needs a name.")
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = fields.read(store.FormPatch, _raw(form, row.fields))
        args = (audit.noting, visit.by, "form_update", store.update, visit.account_id, form_id, asked)
        await commit(together.still, form, _PARTS, lambda: _kept(store.get(visit.account_id, form_id)), *args)
    except errors.Invalid as refused:
        return await _form(request, visit, _taken(form, refused), row, 422)
    view.say(request, "Saved.")
    return view.go(request, f"/forms/{form_id}")


@pages.post("/<form_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Delete a form; whoever came through it stays."""
    gone = await commit(audit.noting, visit.by, "form_delete", store.delete, visit.account_id, form_id)
    view.say(request, f"The form {gone.name} is deleted. Who signed up is still in Contacts.")
    return view.go(request, "/forms")


def _unready(account_id: int) -> list[str]:
    """Return why mails that ask for a confirmation cannot leave, if so."""
    account = accounts.get(account_id)
    transport = config.current().email.transport
    found = senders.problems(account, senders.resolve(account, None), transport, marketing=False)
    return [ui_words.sentence(text) for _, text in found]


def _kept(row: Any) -> Form:
    """Return the form that shows what is kept of a sign-up form."""
    asked = store.fields_of(row)
    values = {
        "name": row.name, "consent_text": row.consent_text or "", "redirect_url": row.redirect_url or "",
        "origins": "\n".join(row.origins), "double_opt_in": "yes" if row.double_opt_in else "",
        "others": "\n".join(one.key for one in asked if one.key),
    }  # fmt: skip
    names = [one.name for one in asked if one.name in _NAMES]
    return Form(values, {"asked": names, "list_ids": [str(one) for one in row.list_ids]})


def _raw(form: Form, before: list[Any]) -> dict[str, Any]:
    """Return what the page says in the words of the domain; a field keeps its label and whether it is needed."""
    known = {one["name"]: one for one in before if isinstance(one, dict)}
    names = ["email", *(name for name in _NAMES if name in form.all("asked"))]
    others = [line.strip() for line in form["others"].splitlines() if line.strip()]
    keys = [f"data.{line.removeprefix('data.').replace(' ', '_').lower()}" for line in others]
    return {
        "name": form["name"], "list_ids": form.ids("list_ids"), "double_opt_in": form["double_opt_in"] == "yes",
        "fields": [known.get(name, name) for name in (*names, *keys)], "consent_text": form.text("consent_text"),
        "redirect_url": form.text("redirect_url"),
        "origins": [line.strip() for line in form["origins"].splitlines() if line.strip()],
    }  # fmt: skip


def _taken(form: Form, refused: errors.Invalid) -> Form:
    """Note what is wrong at the field of the page that says it."""
    for path in refused.fields:
        if path.startswith("origins"):
            form.wrong("origins", "Write each as https://shop.example, without a path.")
        elif path.startswith("fields"):
            form.wrong("others", "Use letters, digits and _ only, each name once.")
        elif path == "redirect_url":
            form.wrong("redirect_url", "Write a whole address, like https://shop.example/thanks.")
    rest = {path: words for path, words in refused.fields.items() if not path.startswith(("origins", "fields"))}
    return form.take(errors.Invalid(rest)) if rest else form


async def _form(request: Request, visit: Visit, form: Form, row: Any, status: int) -> HTTPResponse:
    lists = [one for one in await call(people.all_lists, visit.account_id) if one.segment_id is None]
    return view.page(request, "forms/form.html", status, form=form, row=row, lists=lists)
