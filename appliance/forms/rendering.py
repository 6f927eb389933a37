"""Render sign-up forms: the form of the hosted page, its preview, and the HTML for other websites."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from appliance.content import brand as brands
from appliance.content import media
from appliance.content.brand import PageStyle
from appliance.content.designs.theme import SANS_STACK
from appliance.core import executable, recipient_texts
from appliance.forms.fields import Field, clean_hidden, list_fields
from appliance.storage.models import Form

Scheme = Literal["light", "dark"]
# The type and the autocomplete value of inputs that are not plain text.
_INPUTS = {
    "email": ("email", "email"), "phone": ("tel", "tel"), "first_name": ("text", "given-name"),
    "last_name": ("text", "family-name"),
}  # fmt: skip


@cache
def get_environment() -> Environment:
    """Return the Jinja environment with the templates of sign-up forms."""
    return Environment(
        loader=executable.template_loader("appliance/forms/html"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def render_form(
    form: Form, language: str, raw: Mapping[str, Any], errors: Mapping[str, str], shown_at: str = ""
) -> Markup:
    """Return the heading, texts and form of the hosted page.

    `raw` are the entered values by field name, and `errors` the keys of the texts of the errors.
    """
    return _render("form.html", form, language, raw=raw, errors=errors, shown_at=shown_at)


def render_embed(form: Form, style: PageStyle, is_branded: bool = True) -> str:
    """Return the HTML of a form for another website, without scripts and without requests to other servers.

    With `is_branded` it has styles of its own in the light colours and the font of the brand; otherwise it has none,
    and looks as the website does.
    """
    colours, font = style.light, "inherit" if style.font == SANS_STACK else Markup(style.font)  # noqa: S704 - validated
    return str(
        _render(
            "embed.html", form, style.language, raw={}, errors={}, colours=colours, font=font, is_branded=is_branded
        )
    )


def render_preview(form: Form, style: PageStyle, nonce: str, scheme: Scheme) -> str:
    """Return a document that looks like the hosted page of a form, in light or dark colours.

    `nonce` allows its styles in the content security policy.
    """
    return str(
        _render(
            "preview.html", form, style.language, raw={}, errors={}, shown_at="", style=style, nonce=nonce,
            look=brands.build_css(style), scheme=scheme, media_path=media.URL_PATH,
        )
    )  # fmt: skip


def _render(template: str, form: Form, language: str, **values: Any) -> Markup:
    say = recipient_texts.get_translator(language)
    text = get_environment().get_template(template).render(
        form=form, fields=list_fields(form), language=language, say=say, languages=recipient_texts.LANGUAGE_NAMES,
        label=lambda field: get_label(field, language), inputs=_INPUTS, hidden=clean_hidden, **values
    )  # fmt: skip
    return Markup(text)  # noqa: S704 - the template escapes its values


def get_label(field: Field, language: str) -> str:
    """Return the label of a field: its own, else the built-in one, else the key in words."""
    if field.label:
        return field.label
    if field.key is None:
        return recipient_texts.get_texts(language)[f"form_{field.name}"]
    return field.key.replace("_", " ").capitalize()
