"""How an account shows itself to the people it writes to: name, colours, language."""

from typing import NamedTuple

from appliance.content import brand as brands
from appliance.content.designs import theme
from appliance.content.designs.theme import Palette
from appliance.storage.models import Account, Brand, Media
from appliance.tracking import words


class Face(NamedTuple):
    """What all pages of an account share; the logo is one of our own uploads, so that nothing is fetched elsewhere."""

    company: str
    language: str
    light: Palette
    dark: Palette
    font: str
    logo: str | None


def of(account_id: int) -> Face:
    """Return the face of an account."""
    account = Account.get_by_id(account_id)
    brand = brands.get(account_id)
    look = theme.resolve({}, brands.look(brand))
    return Face(
        brand.company_name or account.name, words.language(account.locale), look.light, look.dark, look.font_body,
        _logo(brand),
    )  # fmt: skip


def _logo(brand: Brand) -> str | None:
    own = brand.logo and Media.select().where(Media.account == brand.account_id, Media.signed_id == brand.logo).exists()
    return brand.logo if own else None


def mask(address: str) -> str:
    """Show enough of an address to recognise one's own: `a…a@e…e.org`."""
    if "@" not in address:
        return f"{address[:3]}…{address[-2:]}"
    local, _, domain = address.partition("@")
    name, dot, rest = domain.rpartition(".")
    return f"{_short(local)}@{_short(name)}{dot}{rest}"


def _short(word: str) -> str:
    return f"{word[0]}…{word[-1]}" if len(word) > 2 else f"{word[:1]}…"
