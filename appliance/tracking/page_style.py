"""The appearance of an account's pages for recipients: name, language, colours, font and logo."""

from typing import NamedTuple

from markupsafe import Markup

from appliance.content import brand as brands
from appliance.content.designs import theme
from appliance.content.designs.theme import SANS_STACK, Palette
from appliance.core import recipient_texts
from appliance.storage.models import Account, Brand, Media

# The CSS variables of the pages for recipients, with the colour of the palette that each has.
_VARIABLES = {
    "paper": "page", "sheet": "card", "ink": "text", "quiet": "muted", "line": "line", "accent": "brand",
    "accent-ink": "on_brand", "link": "link",
}  # fmt: skip


class PageStyle(NamedTuple):
    """The appearance of an account's pages for recipients.

    `language` is a key of `recipient_texts.LANGUAGE_NAMES`. `logo` is the signed id of an uploaded picture, or None.
    """

    company: str
    language: str
    light: Palette
    dark: Palette
    font: str
    logo: str | None


def get_page_style(account_id: int, contact_language: str | None = None) -> PageStyle:
    """Return the appearance of an account's pages, from its brand, in the language of a contact if it is known."""
    account = Account.get_by_id(account_id)
    brand = brands.get(account_id)
    theme_values = theme.resolve_theme({}, brands.build_look(brand))
    return PageStyle(
        brand.company_name or account.name,
        recipient_texts.choose_language(contact_language, account.locale),
        theme_values.light,
        theme_values.dark,
        theme_values.font_body,
        _uploaded_logo(brand),
    )


def build_css(style: PageStyle) -> Markup:
    """Return the CSS variables of the pages for recipients.

    Nothing is escaped: colours are `#rrggbb`, and the font is a validated font stack.
    """
    rules = [
        f"--{name}:light-dark({getattr(style.light, key)},{getattr(style.dark, key)})"
        for name, key in _VARIABLES.items()
    ]
    font = "" if style.font == SANS_STACK else f";--font:{style.font}"
    return Markup(f":root{{{';'.join(rules)}{font}}}")  # noqa: S704 - the values are validated


def _uploaded_logo(brand: Brand) -> str | None:
    is_uploaded = (
        brand.logo and Media.select().where(Media.account == brand.account_id, Media.signed_id == brand.logo).exists()
    )
    return brand.logo if is_uploaded else None


def mask_address(address: str) -> str:
    """Return an email address or phone number with most characters hidden, such as `a…a@e…e.org`.

    Its owner still recognises it.
    """
    if "@" not in address:
        return f"{address[:3]}…{address[-2:]}"
    local, _, domain = address.partition("@")
    name, dot, top_level = domain.rpartition(".")
    return f"{_mask_word(local)}@{_mask_word(name)}{dot}{top_level}"


def _mask_word(word: str) -> str:
    return f"{word[0]}…{word[-1]}" if len(word) > 2 else f"{word[:1]}…"
