"""The brand as forms ask for it: what it looks like with what was typed, and whether that can be read."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

from appliance.content import brand, media
from appliance.content.designs import colours
from appliance.content.designs.theme import BUILT_IN, FONTS
from appliance.content.pictures import process
from appliance.content.pictures.kinds import Picture, Unusable
from appliance.content.templates import revisions, starters
from appliance.core import errors, fields
from appliance.sending.messages import sample_render
from appliance.storage.models import Brand, Media
from appliance.storage.work import call, commit
from ui.forms import Form
from ui.together import Part, Parts

PLAIN = (
    "company_name", "physical_address", "logo", "brand_color", "text_color", "bg_color", "font_heading", "font_body",
    "tone", "company_description", "industry",
)  # fmt: skip
PARTS = Parts(
    Part("Company", ("company_name",)), Part("Postal address", ("physical_address",)),
    Part("Address of the logo", ("logo",)), Part("Brand", ("brand_color",)), Part("Text", ("text_color",)),
    Part("Background", ("bg_color",)), Part("Font of headings", ("font_heading",)),
    Part("Font of the text", ("font_body",)), Part("Links", ("links",)), Part("Tone", ("tone",)),
    Part("What you do", ("company_description",)), Part("Field", ("industry",)),
    Part("Examples of how you write", ("example_copy",)),
)  # fmt: skip
COLOURS = ("brand_color", "text_color", "bg_color")
# What of a form shows in a mail, so that a sample can be asked for with it.
_SHOWN = ("company_name", "physical_address", "logo", *COLOURS, "font_heading", "font_body")
_SAMPLE = "newsletter"
# Words that can be read are this much lighter or darker than what they stand on (WCAG 2.2, 1.4.3).
_READABLE = 4.5


class Mark(NamedTuple):
    """How well one colour can be read on another."""

    label: str
    ratio: float
    is_good: bool


def form_of(row: Brand) -> Form:
    """Return a form with what is kept."""
    form = Form({name: getattr(row, name) or "" for name in PLAIN} | {"logo": media.shown(row.logo) or ""})
    form.values["links"] = "\n".join(" ".join(filter(None, (one["url"], one.get("title")))) for one in row.links or [])
    form.values["example_copy"] = "\n---\n".join(row.example_copy or [])
    return form


def write_of(form: Form) -> brand.BrandWrite:
    """Return what a form asks to keep; raises Invalid. A colour may be written without its #."""
    for name in COLOURS:
        if form[name] and not form[name].startswith("#"):
            form.values[name] = f"#{form[name]}"
    raw: dict[str, Any] = {name: form.text(name) for name in PLAIN if name in form.values}
    if "links" in form.values:
        lines = [line.split(None, 1) for line in form["links"].splitlines() if line.strip()]
        raw["links"] = [{"url": words[0], "title": words[1].strip() if words[1:] else None} for words in lines]
    if "example_copy" in form.values:
        raw["example_copy"] = [part.strip() for part in form["example_copy"].split("\n---\n") if part.strip()]
    return fields.read(brand.BrandWrite, raw)


def noted(form: Form, refused: errors.Invalid) -> Form:
    """Note faults at their fields, in words for people."""
    for name in refused.fields:
        if name in COLOURS:
            form.wrong(name, "Write a colour like #0f617d.")
        if name == "logo":
            form.wrong(name, "Start the address of the picture with https://")
        if name.startswith("links"):
            form.wrong("links", "Start each line with an address: https://instagram.com/you")
    rest = {name: words for name, words in refused.fields.items() if not name.startswith("links")}
    return form.take(errors.Invalid(rest)) if rest else form


def question(form: Form) -> str:
    """Return the query of a sample that shows what stands in a form."""
    return urlencode({name: form[name] for name in _SHOWN if name in form.values})


def sample(account_id: int, asked: dict[str, str]) -> str:
    """Render a newsletter in the brand with these values; what is not asked for or no such value yet is as kept."""
    raw: dict[str, Any] = {}
    for name in (name for name in _SHOWN if name in asked):
        try:
            fields.read(brand.BrandWrite, {name: asked.get(name) or None})
        except errors.Invalid:
            continue
        raw[name] = asked.get(name) or None
    changed = fields.read(brand.BrandWrite, raw)
    look = brand.look(brand.tried(account_id, changed))
    one = next(starter for starter in starters.made(look) if starter.key == _SAMPLE)
    said: dict[str, Any] = dict.fromkeys(revisions.FIELDS) | {"subject": one.subject, "preheader": one.preheader}
    return sample_render.sample(account_id, said | {"design": one.design}, changed)


def marks(form: Form) -> list[Mark]:
    """Return what can be read on what, of the colours in a form; of what is no colour nothing."""
    brand_colour, text, page = (colours.known(form[name]) if form[name] else None for name in COLOURS)
    found = []
    if text and page:
        found.append(_mark("Text on the background", text, page))
    if brand_colour:
        found.append(_mark("Words on a button", colours.readable_on(brand_colour), brand_colour))
        found.append(_mark("Links on the sheet", brand_colour, "#ffffff"))
    return found


def _mark(label: str, one: str, other: str) -> Mark:
    ratio = colours.contrast(one, other)
    return Mark(label, ratio, ratio >= _READABLE)


def fonts(form: Form) -> list[tuple[str, str]]:
    """Return the fonts to choose from, with those a form has already."""
    extra = [form[name] for name in ("font_heading", "font_body") if form[name] and form[name] not in FONTS]
    return [("", "As the reader's machine has it"), *((name, name) for name in (*FONTS, *dict.fromkeys(extra)))]


async def shown(account_id: int, form: Form) -> dict[str, Any]:
    """Return what a page shows around the fields of a form: the sample's question, marks, fonts, the logo's colours."""
    return {
        "question": question(form), "marks": marks(form), "fonts": fonts(form), "built_in": BUILT_IN,
        "proposed": await proposed(account_id), "most": media.MAX_BYTES // 1_048_576,
    }  # fmt: skip


async def keep_logo(account_id: int, filename: str, picture: Picture) -> tuple[str, ...]:
    """Make a picture the logo, and answer the colours it proposes."""

    def both() -> Media:
        made = media.add(account_id, filename, picture)
        brand.update(account_id, fields.read(brand.BrandWrite, {"logo": made.signed_id}))
        return made

    await commit(both)
    return await _colours(account_id, picture.content)


async def proposed(account_id: int) -> tuple[str, ...]:
    """Return the colours of the logo, if it is a picture of ours."""

    def read() -> bytes | None:
        kept = media.served(brand.get(account_id).logo or "")
        return kept.content if kept else None

    content = await call(read)
    return await _colours(account_id, content) if content else ()


async def _colours(account_id: int, content: bytes) -> tuple[str, ...]:
    """Return the colours to propose of a picture; none while it cannot be decoded, for a page shows more than these."""
    try:
        return await media.decode(account_id, process.find_colours, content)
    except (Unusable, errors.Unavailable):
        return ()
