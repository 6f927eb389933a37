"""The account's brand: how it looks, sounds and signs."""

from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.content import media
from appliance.content.designs import colours, props
from appliance.content.designs.kind import COMMON
from appliance.content.designs.props import colour, image, line
from appliance.content.designs.sections import footer, header
from appliance.content.designs.theme import Look
from appliance.core import addresses, clock
from appliance.core.errors import Faults, NotFound
from appliance.core.fields import Colour, Data, Line, Long, given
from appliance.core.validation import http_url
from appliance.storage.models import Brand, Media
from appliance.storage.work import writing


class BrandLinkWrite(Struct):
    """A link of the brand: http, https or mailto."""

    url: Annotated[str, Meta(max_length=2000, extra={"line": True})]
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


_THEME = (
    colour("brand_color", "Brand"), colour("text_color", "Text"), colour("bg_color", "Background"),
    line("font_body", "Text"), line("font_heading", "Headings"), image("logo_url", "Logo"),
)  # fmt: skip
_EMPTY: dict[str, Any] = {"links": [], "default_header": {}, "default_footer": {}, "default_theme": {}}


def get(account_id: int) -> Brand:
    """Return the brand, which every account has from the start."""
    found = Brand.get_or_none(Brand.account == account_id)
    if found is None:
        raise NotFound
    return found


def update(account_id: int, request: BrandWrite) -> Brand:
    """Change what was sent; raises Invalid with all faults."""
    writing()
    check(account_id, request)
    brand = get(account_id)
    for name, value in given(request).items():
        if name == "links" and value:
            value = [{"url": link.url, "icon": link.icon or "", "title": link.title or ""} for link in value]
        if isinstance(value, str):
            value = value.strip()
        if name == "logo" and value:
            value = media.named(account_id, value) or value
        if value is None or value == "":
            value = _EMPTY.get(name)
        setattr(brand, name, value)
    brand.updated_at = clock.now_ms()
    brand.save()
    return brand


def tried(account_id: int, request: BrandWrite) -> Brand:
    """Return the brand with these changes, kept nowhere; what `update` would refuse is left out."""
    brand, faults = get(account_id), Faults()
    _check(account_id, request, faults)
    wrong = {path.partition("[")[0].partition(".")[0] for path in faults.fields}
    for name, value in given(request).items():
        if name not in wrong and name != "links":
            setattr(brand, name, value or _EMPTY.get(name))
    return brand


def check(account_id: int, request: BrandWrite, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a change, beyond its types."""
    faults = Faults()
    _check(account_id, request, faults)
    faults.check()


def _check(account_id: int, request: BrandWrite, faults: Faults) -> None:
    for index, link in enumerate(request.links or []):
        if isinstance(link.url, str) and not _leads_somewhere(link.url):
            faults.add(f"links[{index}].url", "is invalid")
    if isinstance(request.logo, str) and request.logo.strip() and not _is_logo(account_id, request.logo.strip()):
        faults.add("logo", "is invalid")
    for name, kind in (("default_header", header.KIND), ("default_footer", footer.KIND)):
        written = getattr(request, name) or {}
        values = _layer(written)
        path = name if values is written else f"{name}.props"
        for prop in (*kind.props, *COMMON):
            props.faults(prop, prop.of(values), f"{path}.{prop.name}", faults.add)
    for prop in _THEME:
        value = (request.default_theme or {}).get(prop.name)
        props.faults(prop, value, f"default_theme.{prop.name}", faults.add)
        if prop.kind == "colour" and value not in (None, "") and not (isinstance(value, str) and colours.known(value)):
            faults.add(f"default_theme.{prop.name}", "is invalid")


def _is_logo(account_id: int, value: str) -> bool:
    """Return whether this is an address without merge tags, or the name of an upload of the account."""
    if "{{" in value or "{%" in value:
        return False
    if _is_address(value):
        return True
    return Media.select().where(Media.account == account_id, Media.signed_id == value).exists()


def _is_address(value: str) -> bool:
    try:
        return bool(http_url(value))
    except ValueError:
        return False


def _leads_somewhere(url: str) -> bool:
    """Return whether a link is http, https or mailto and says where to."""
    if not url.lower().startswith("mailto:"):
        return _is_address(url)
    try:
        return bool(addresses.email(unquote(url[7:].partition("?")[0])))
    except ValueError:
        return False


def _layer(values: dict[str, Any]) -> dict[str, Any]:
    """Return the properties that a brand gives its headers or footers: written as such, or as a whole section."""
    inner = values.get("props")
    return inner if isinstance(inner, dict) else values


def look(brand: Brand) -> Look:
    """Return what of a brand shows in a mail; an account that has not named its company signs with its own name."""
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
        header=_layer(brand.default_header or {}),
        footer=_layer(brand.default_footer or {}),
    )


def _link_name(link: dict[str, str]) -> str:
    """Return what a link is called: its title, its icon, or where it leads."""
    named = (link.get("title") or "").strip() or (link.get("icon") or "").strip()
    place = urlsplit(link["url"])
    return named or (place.hostname or place.path).removeprefix("www.")


def is_complete(brand: Brand) -> bool:
    """Return whether colour and company name are both set (specification, Brand)."""
    return bool(brand.brand_color and brand.company_name)
