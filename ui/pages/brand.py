"""The brand: how mail looks and signs, with a letter beside it that shows each change."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.content import brand
from appliance.core import errors
from appliance.storage.work import call, commit, render
from ui import looks, mail, rights, talk, together, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_brand", url_prefix="/brand")


@pages.get("/", name="show", strict_slashes=False)
@signed_in
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """The form with what is known; colours of the address stand in it as proposals."""
    form = together.opened(looks.form_of(await call(brand.get, visit.account_id)), looks.PARTS)
    form.values |= {name: request.args[name][0] for name in looks.COLOURS if request.args.get(name)}
    return await _page(request, visit, form)


@pages.post("/", name="save", strict_slashes=False)
@signed_in
@together.meeting
async def save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep the brand."""
    form = Form.of(request)
    together.meet(form, looks.PARTS, await call(_kept, visit.account_id))
    if form.met:
        return await _page(request, visit, form, 409)
    try:
        args = (audit.noting, visit.by, "brand_update", brand.update, visit.account_id, looks.write_of(form))
        await commit(together.still, form, looks.PARTS, lambda: _kept(visit.account_id), *args)
    except errors.Invalid as refused:
        return await _page(request, visit, looks.noted(form, refused), 422)
    view.say(request, "Saved. Emails that are not sent yet look like this from now on.")
    return view.go(request, "/brand")


@pages.get("/sample", name="sample")
@signed_in
async def sample(request: Request, visit: Visit) -> HTTPResponse:
    """A letter in the brand, with the values that were typed and not kept yet."""
    asked = {name: values[0][:2000] for name, values in request.args.items() if values}
    return mail.frame(await render(looks.sample, visit.account_id, asked))


@pages.get("/look", name="look")
@signed_in
async def look(request: Request, visit: Visit) -> HTTPResponse:
    """The sample and the marks of what was typed."""
    form = Form({name: values[0][:2000] for name, values in request.args.items() if values})
    return await _page(request, visit, form)


@pages.post("/logo", name="logo", stream=True)
@signed_in
async def logo(request: Request, visit: Visit) -> HTTPResponse:
    """Take a picture as the logo, and propose its colours."""
    back = "/welcome/brand" if request.args.get("first") else "/brand"
    try:
        filename, picture = await talk.picture(request, visit.account_id)
    except errors.Invalid as refused:
        view.say(request, words.sentence(refused.fields["file"][0]))
        return view.go(request, back)
    found = await looks.keep_logo(visit.account_id, filename, picture)
    view.say(request, "This is your logo now." + (" Its colours are proposed below." if found else ""))
    return view.go(request, back)


def _kept(account_id: int) -> Form:
    return looks.form_of(brand.get(account_id))


async def _page(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    about = await looks.shown(visit.account_id, form)
    may_change = rights.may(visit.user.role, "POST", "/brand")
    return view.page(request, "brand/show.html", status, form=form, may_change=may_change, **about)
