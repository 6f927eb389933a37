"""The account's brand: how it looks, sounds and signs."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import clock, media
from appliance.db.work import writing
from appliance.designs.theme import Look
from appliance.errors import Faults, NotFound
from appliance.fields import Colour, Data, HttpUrl, Line, Long, Short, given
from appliance.tables import Brand, Media


class BrandLinkWrite(Struct):
    """A link of the brand: http, https or mailto."""

    url: Short
    icon: Line | None = None
    title: Line | None = None


class BrandWrite(Struct):
    """The writable fields of a brand; absent keeps, null clears."""

    brand_color: Colour | None | UnsetType = UNSET
    text_color: Colour | None | UnsetType = UNSET
    bg_color: Colour | None | UnsetType = UNSET
    font_heading: Line | None | UnsetType = UNSET
    font_body: Line | None | UnsetType = UNSET
    style_notes: Long | None | UnsetType = UNSET
    tone: Long | None | UnsetType = UNSET
    company_description: Long | None | UnsetType = UNSET
    industry: Line | None | UnsetType = UNSET
    physical_address: Annotated[str, Meta(max_length=1000)] | None | UnsetType = UNSET
    company_name: Line | None | UnsetType = UNSET
    logo: Annotated[str, Meta(max_length=2000)] | None | UnsetType = UNSET
    example_copy: Annotated[list[Long], Meta(max_length=50)] | None | UnsetType = UNSET
    links: Annotated[list[BrandLinkWrite], Meta(max_length=50)] | None | UnsetType = UNSET
    default_header: Data | None | UnsetType = UNSET
    default_footer: Data | None | UnsetType = UNSET
    default_theme: Data | None | UnsetType = UNSET


_EMPTY: dict[str, Any] = {"links": [], "default_header": {}, "default_footer": {}, "default_theme": {}}


def get(account_id: int) -> Brand:
    """Answer the brand, which every account has from the start."""
    found = Brand.get_or_none(Brand.account == account_id)
    if found is None:
        raise NotFound
    return found


def update(account_id: int, request: BrandWrite) -> Brand:
    """Change what was sent; raises Invalid with all faults."""
    writing()
    faults = Faults()
    _check(account_id, request, faults)
    faults.check()
    brand = get(account_id)
    for name, value in given(request).items():
        if name == "links" and value:
            value = [{"url": link.url, "icon": link.icon or "", "title": link.title or ""} for link in value]
        if value is None or value == "":
            value = _EMPTY.get(name)
        setattr(brand, name, value)
    brand.updated_at = clock.now_ms()
    brand.save()
    return brand


def _check(account_id: int, request: BrandWrite, faults: Faults) -> None:
    from msgspec import ValidationError, convert

    for index, link in enumerate(request.links or [] if request.links is not UNSET else []):
        if not link.url.lower().startswith(("http://", "https://", "mailto:")):
            faults.add(f"links[{index}].url", "is invalid")
    if isinstance(request.logo, str) and request.logo:
        try:
            convert(request.logo, HttpUrl)
            is_url = request.logo.lower().startswith(("http://", "https://"))
        except ValidationError:
            is_url = False
        if not is_url and Media.get_or_none(Media.account == account_id, Media.signed_id == request.logo) is None:
            faults.add("logo", "is invalid")


def look(brand: Brand) -> Look:
    """Answer what of a brand shows in a mail; an account that has not named its company signs with its own name."""
    return Look(
        company_name=brand.company_name or brand.account.name,
        physical_address=brand.physical_address,
        brand_color=brand.brand_color,
        text_color=brand.text_color,
        bg_color=brand.bg_color,
        font_heading=brand.font_heading,
        font_body=brand.font_body,
        logo_url=media.shown(brand.logo),
        links=tuple((_link_name(link), link["url"]) for link in brand.links or [] if link.get("url")),
        theme=brand.default_theme or {},
        header=brand.default_header or {},
        footer=brand.default_footer or {},
    )


def _link_name(link: dict[str, str]) -> str:
    """Answer what a link is called: its title, its icon, or where it leads."""
    named = (link.get("title") or "").strip() or (link.get("icon") or "").strip()
    place = urlsplit(link["url"])
    return named or (place.hostname or place.path).removeprefix("www.")


def is_complete(brand: Brand) -> bool:
    """Say whether colour and company name are both set (specification, Brand)."""
    return bool(brand.brand_color and brand.company_name)
