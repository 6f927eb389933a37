"""The brand: how mail looks and signs."""

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import brand, errors, fields, media
from appliance.db.work import call, commit
from ui import view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_brand", url_prefix="/brand")
_FIELDS = (
    "company_name", "physical_address", "logo", "brand_color", "text_color", "bg_color", "font_heading", "font_body",
    "tone", "company_description",
)  # fmt: skip


@pages.get("/", name="show", strict_slashes=False)
@signed_in
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """The form with what is known."""
    look = await call(brand.get, visit.account_id)
    form = Form({name: getattr(look, name) or "" for name in _FIELDS} | {"logo": media.shown(look.logo) or ""})
    return view.page(request, "brand/show.html", form=form)


@pages.post("/", name="save", strict_slashes=False)
@signed_in
async def save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep the brand."""
    form = Form.of(request)
    for name in ("brand_color", "text_color", "bg_color"):
        if form[name] and not form[name].startswith("#"):
            form.values[name] = f"#{form[name]}"
    try:
        asked = fields.read(brand.BrandWrite, {name: form.text(name) for name in _FIELDS if name in form.values})
        await commit(brand.update, visit.account_id, asked)
    except errors.Invalid as refused:
        return view.page(request, "brand/show.html", 422, form=_in_words(form, refused))
    view.say(request, "Saved.")
    return view.go(request, "/brand")


def _in_words(form: Form, refused: errors.Invalid) -> Form:
    for name in refused.fields:
        if name.endswith("_color"):
            form.wrong(name, "Write a colour like #0f617d.")
        if name == "logo":
            form.wrong(name, "Start the address of the picture with https://")
    return form.take(refused)
