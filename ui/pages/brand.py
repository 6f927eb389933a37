"""The page of the brand: form, sample email, contrasts and logo."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.content import brand, media
from appliance.content.designs import theme
from appliance.content.designs.theme import DEFAULT_COLOURS, FONTS
from appliance.content.pictures import Picture, UnusablePicture, find_colours
from appliance.content.templates import revisions, starters
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.messages import preview
from appliance.storage.models import Brand
from appliance.storage.transactions import commit, fetch, render
from ui import formats, forms, view
from ui.forms import Form, FormPart, FormParts
from ui.guard import signed_in
from ui.pages import pictures
from ui.session import Pages, Visit

pages = Pages("ui_brand", url_prefix="/brand")


TEXT_FIELDS = (
    "company_name", "physical_address", "logo", "brand_color", "text_color", "bg_color", "font_heading", "font_body",
    "tone", "company_description", "industry",
)  # fmt: skip
BRAND_PARTS = FormParts(
    FormPart(gettext_noop("Company name"), ("company_name",)),
    FormPart(gettext_noop("Postal address"), ("physical_address",)),
    FormPart(gettext_noop("Logo URL"), ("logo",)),
    FormPart(gettext_noop("Brand colour"), ("brand_color",)),
    FormPart(gettext_noop("Text colour"), ("text_color",)),
    FormPart(gettext_noop("Background colour"), ("bg_color",)),
    FormPart(gettext_noop("Heading font"), ("font_heading",)),
    FormPart(gettext_noop("Body font"), ("font_body",)),
    FormPart(gettext_noop("Links"), ("links",)),
    FormPart(gettext_noop("Tone of voice"), ("tone",)),
    FormPart(gettext_noop("Company description"), ("company_description",)),
    FormPart(gettext_noop("Industry"), ("industry",)),
    FormPart(gettext_noop("Sample copy"), ("example_copy",)),
)
COLOURS = ("brand_color", "text_color", "bg_color")
# Fields that are visible in an email, and so are sent with the request of the sample.
_SAMPLE_FIELDS = ("company_name", "physical_address", "logo", *COLOURS, "font_heading", "font_body")
_SAMPLE_STARTER = "newsletter"
# The minimum contrast of readable text (WCAG 2.2, 1.4.3).
_MIN_CONTRAST = 4.5


class ContrastCheck(NamedTuple):
    """The contrast ratio of two colours, and whether it is at least `_MIN_CONTRAST`."""

    label: str
    ratio: float
    is_good: bool


def build_form(row: Brand) -> Form:
    """Return the form with the stored values of a brand; links and sample texts are fields of several lines."""
    form = Form({name: getattr(row, name) or "" for name in TEXT_FIELDS} | {"logo": media.resolve_url(row.logo) or ""})
    form.values["links"] = "\n".join(
        " ".join(filter(None, (link["url"], link.get("title")))) for link in row.links or []
    )
    form.values["example_copy"] = "\n---\n".join(row.example_copy or [])
    return form


def _complete_colours(form: Form) -> None:
    """Add the # that typed colours lack."""
    for name in COLOURS:
        if form[name] and not form[name].startswith("#"):
            form.values[name] = f"#{form[name]}"


def read_form(form: Form) -> brand.BrandWrite:
    """Return the changes in a posted form; a colour may lack its #. Raises Invalid for invalid values."""
    _complete_colours(form)
    raw: dict[str, Any] = {name: form.text(name) for name in TEXT_FIELDS if name in form.values}
    if "links" in form.values:
        lines = [line.split(None, 1) for line in form["links"].splitlines() if line.strip()]
        raw["links"] = [
            {"url": url_and_title[0], "title": url_and_title[1].strip() if url_and_title[1:] else None}
            for url_and_title in lines
        ]
    if "example_copy" in form.values:
        raw["example_copy"] = [part.strip() for part in form["example_copy"].split("\n---\n") if part.strip()]
    return validation.read(brand.BrandWrite, raw)


def add_errors(form: Form, error: errors.Invalid) -> Form:
    """Add the errors of an Invalid to the fields of the form as sentences, and return the form."""
    for name in error.fields:
        if name in COLOURS:
            form.add_error(name, gettext("Enter a colour, such as #0f617d."))
        if name == "logo":
            form.add_error(name, gettext("The address must start with https://"))
        if name.startswith("links"):
            form.add_error("links", gettext("Each line must start with an address, such as https://instagram.com/you"))
    other_errors = {name: messages for name, messages in error.fields.items() if not name.startswith("links")}
    return form.add_errors(errors.Invalid(other_errors)) if other_errors else form


def build_sample_query(form: Form) -> str:
    """Return the query string with which the sample email shows the values of a form."""
    return urlencode({name: form[name] for name in _SAMPLE_FIELDS if name in form.values})


def render_sample(account_id: int, filters: dict[str, str]) -> str:
    """Render the newsletter starter in the brand; valid values of `filters` replace the stored values."""
    raw: dict[str, Any] = {}
    for name in (name for name in _SAMPLE_FIELDS if name in filters):
        try:
            validation.read(brand.BrandWrite, {name: filters.get(name) or None})
        except errors.Invalid:
            continue
        raw[name] = filters.get(name) or None
    changed = validation.read(brand.BrandWrite, raw)
    look = brand.build_look(brand.preview_changes(account_id, changed))
    sample_starter = next(starter for starter in starters.build_starters(look) if starter.key == _SAMPLE_STARTER)
    text: dict[str, Any] = dict.fromkeys(revisions.CONTENT_FIELDS) | {
        "subject": sample_starter.email.subject,
        "preheader": sample_starter.email.preheader,
    }
    return preview.render_in_brand(account_id, text | {"design": sample_starter.email.design}, changed)


def check_contrasts(form: Form) -> list[ContrastCheck]:
    """Return the contrasts of the colours in a form; pairs with an invalid colour are left out."""
    brand_colour, text, page = (theme.parse_colour(form[name]) if form[name] else None for name in COLOURS)
    checks = []
    if text and page:
        checks.append(_check_contrast(gettext("Text on background"), text, page))
    if brand_colour:
        checks.append(_check_contrast(gettext("Button text"), theme.readable_colour(brand_colour), brand_colour))
        checks.append(_check_contrast(gettext("Links on white"), brand_colour, "#ffffff"))
    return checks


def _check_contrast(label: str, colour: str, background: str) -> ContrastCheck:
    ratio = theme.contrast_ratio(colour, background)
    return ContrastCheck(label, ratio, ratio >= _MIN_CONTRAST)


def font_options(form: Form) -> list[tuple[str, str]]:
    """Return the options of a font field: the available fonts, and those that the form contains already."""
    extra = [form[name] for name in ("font_heading", "font_body") if form[name] and form[name] not in FONTS]
    return [("", gettext("System font")), *((name, name) for name in (*FONTS, *dict.fromkeys(extra)))]


async def build_context(account_id: int, form: Form) -> dict[str, Any]:
    """Return the template context besides the form.

    The context has the query of the sample email, contrasts, fonts, and the colours found in the logo.
    """
    return {
        "sample_query": build_sample_query(form), "contrasts": check_contrasts(form), "fonts": font_options(form),
        "built_in": DEFAULT_COLOURS,
        "suggested_colours": await suggest_colours(account_id), "max_megabytes": media.MAX_UPLOAD_BYTES // 1_048_576,
    }  # fmt: skip


async def set_logo(account_id: int, filename: str, picture: Picture) -> tuple[str, tuple[str, ...]]:
    """Store a picture as the logo of the brand; return the previous logo (or "") and the colours of the picture."""

    def store_logo() -> str:
        previous = brand.get(account_id).logo or ""
        created = media.add(account_id, filename, picture)
        brand.update(account_id, validation.read(brand.BrandWrite, {"logo": created.signed_id}))
        return previous

    previous = await commit(store_logo)
    return previous, await _extract_colours(account_id, picture.content)


async def suggest_colours(account_id: int) -> tuple[str, ...]:
    """Return the colours found in the logo, or an empty tuple if the logo is not an uploaded picture."""

    def read() -> bytes | None:
        stored = media.find_served(brand.get(account_id).logo or "")
        return stored.content if stored else None

    content = await fetch(read)
    return await _extract_colours(account_id, content) if content else ()


async def _extract_colours(account_id: int, content: bytes) -> tuple[str, ...]:
    """Return the colours found in a picture.

    The result is empty if the picture cannot be decoded now, so that the page still works.
    """
    try:
        return await media.decode(account_id, find_colours, content)
    except (UnusablePicture, errors.Unavailable):
        return ()


@pages.get("/", strict_slashes=False)
@signed_in("account:read")
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """Show the brand form; colours in the query, such as those found in the logo, are filled in."""
    form = forms.open_form(build_form(await fetch(brand.get, visit.account_id)), BRAND_PARTS)
    form.values |= {name: request.args[name][0] for name in COLOURS if request.args.get(name)}
    return await _render_page(request, visit, form)


@pages.post("/", strict_slashes=False)
@signed_in("account:write")
@forms.retry_on_change
async def save(request: Request, visit: Visit) -> HTTPResponse:
    """Save the brand form."""
    form = Form.from_request(request)
    forms.merge_form(form, BRAND_PARTS, await fetch(load_form, visit.account_id))
    if form.conflicts:
        return await _render_page(request, visit, form, 409)
    try:
        args = (
            audit.update_and_record,
            visit.actor,
            "brand_update",
            brand.get,
            brand.update,
            visit.account_id,
            read_form(form),
        )
        await commit(forms.write_if_unchanged, form, BRAND_PARTS, lambda: load_form(visit.account_id), *args)
    except errors.Invalid as error:
        return await _render_page(request, visit, add_errors(form, error), 422)
    view.flash(request, gettext("Saved. Emails that are not sent yet use the new brand."))
    return view.redirect(request, "/brand")


@pages.get("/sample")
@signed_in("account:read")
async def show_sample(request: Request, visit: Visit) -> HTTPResponse:
    """Show the sample email in the brand, with the unsaved values of the query."""
    filters = {name: values[0][:2000] for name, values in request.args.items() if values}
    return view.render_email(await render(render_sample, visit.account_id, filters))


@pages.get("/look")
@signed_in("account:read")
async def show_changes(request: Request, visit: Visit) -> HTTPResponse:
    """Show the brand page with the unsaved values of the query, to update the sample and the contrast ratios."""
    form = Form({name: values[0][:2000] for name, values in request.args.items() if values})
    _complete_colours(form)
    return await _render_page(request, visit, form)


@pages.post("/logo", stream=True)
@signed_in("account:write")
async def upload_logo(request: Request, visit: Visit) -> HTTPResponse:
    """Store an uploaded picture as the logo; the notice says whether colours were found in it."""
    return_path = _logo_page(request)
    try:
        filename, picture = await pictures.receive_picture(request, visit.account_id)
    except errors.Invalid as error:
        view.flash(request, formats.sentence(error.fields["file"][0]))
        return view.redirect(request, return_path)
    previous, logo_colours = await set_logo(visit.account_id, filename, picture)
    text = gettext("Logo saved. See the suggested colours below.") if logo_colours else gettext("Logo saved.")
    undo_path = "/brand/logo/undo" + ("?first=1" if request.args.get("first") else "")
    view.flash(request, text, undo=(undo_path, {"logo": previous}))
    return view.redirect(request, return_path)


@pages.post("/logo/undo")
@signed_in("account:write")
async def undo_logo(request: Request, visit: Visit) -> HTTPResponse:
    """Set the logo that the brand had before an upload; an empty text removes it. The uploaded picture is kept."""
    changed = validation.read(brand.BrandWrite, {"logo": Form.from_request(request).text("logo")})
    await commit(
        audit.update_and_record, visit.actor, "brand_update", brand.get, brand.update, visit.account_id, changed
    )
    view.flash(request, gettext("The logo is as before."))
    return view.redirect(request, _logo_page(request))


def _logo_page(request: Request) -> str:
    """Return the URL of the page on which the logo was changed: the set-up's, or the brand page."""
    return "/welcome/brand" if request.args.get("first") else "/brand"


def load_form(account_id: int) -> Form:
    """Return the form of the stored brand."""
    return build_form(brand.get(account_id))


async def _render_page(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    about = await build_context(visit.account_id, form)
    may_change = visit.can("account:write")
    return view.render(request, "brand/show.html", status, form=form, may_change=may_change, **about)
