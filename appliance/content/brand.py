"""The brand of an account: colours, fonts, tone of voice, sender details, and the look of emails and of pages."""

from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from markupsafe import Markup
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.content import media
from appliance.content.designs import theme
from appliance.content.designs.kind import COMMON, colour, image, line, validate_value
from appliance.content.designs.sections import footer, header
from appliance.content.designs.theme import SANS_STACK, Look, Palette
from appliance.core import addresses, clock, recipient_texts
from appliance.core.errors import Faults, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import Colour, Data, Line, Long, check_http_url, sent_fields
from appliance.storage.models import Account, Brand, Media
from appliance.storage.models.content import BRANDS
from appliance.storage.transactions import require_write_transaction


class BrandLinkWrite(Struct):
    """A link of the brand in a request."""

    url: Annotated[
        str, Meta(max_length=2000, extra={"line": True}), Meta(description="URL of the link: http, https or mailto")
    ]
    icon: Annotated[Line, Meta(description="name of the icon")] | None = None
    title: Annotated[Line, Meta(description="title of the link")] | None = None


class BrandWrite(Struct):
    """The writable fields of a brand; an absent field is left unchanged, null clears it."""

    brand_color: (
        Annotated[Colour, Meta(description="colour of buttons and links, such as `#0a7d52`")] | None | UnsetType
    ) = UNSET
    text_color: Annotated[Colour, Meta(description="text colour")] | None | UnsetType = UNSET
    bg_color: Annotated[Colour, Meta(description="background colour")] | None | UnsetType = UNSET
    font_heading: Annotated[Line, Meta(description="font of headings")] | None | UnsetType = UNSET
    font_body: Annotated[Line, Meta(description="font of text")] | None | UnsetType = UNSET
    style_notes: Annotated[Long, Meta(description="description of the visual style")] | None | UnsetType = UNSET
    tone: Annotated[Long, Meta(description="tone of voice")] | None | UnsetType = UNSET
    company_description: Annotated[Long, Meta(description="description of the company")] | None | UnsetType = UNSET
    industry: Annotated[Line, Meta(description="industry of the company")] | None | UnsetType = UNSET
    physical_address: (
        Annotated[str, Meta(max_length=1000), Meta(description="postal address, included in every marketing email")]
        | None
        | UnsetType
    ) = UNSET
    company_name: Annotated[Line, Meta(description="name of the company")] | None | UnsetType = UNSET
    logo: (
        Annotated[str, Meta(max_length=2000), Meta(description="URL of the image, or `signed_id` of an upload")]
        | None
        | UnsetType
    ) = UNSET
    example_copy: (
        Annotated[list[Long], Meta(max_length=50), Meta(description="sample texts in the brand's tone")]
        | None
        | UnsetType
    ) = UNSET
    links: (
        Annotated[list[BrandLinkWrite], Meta(max_length=50), Meta(description="links to websites and social profiles")]
        | None
        | UnsetType
    ) = UNSET
    default_header: Annotated[Data, Meta(description="default properties of headers")] | None | UnsetType = UNSET
    default_footer: Annotated[Data, Meta(description="default properties of footers")] | None | UnsetType = UNSET
    default_theme: Annotated[Data, Meta(description="default theme of designs")] | None | UnsetType = UNSET


_THEME = (
    colour("brand_color", "Brand"), colour("text_color", "Text"), colour("bg_color", "Background"),
    line("font_body", "Text"), line("font_heading", "Headings"), image("logo_url", "Logo"),
)  # fmt: skip
_EMPTY: dict[str, Any] = {"links": [], "default_header": {}, "default_footer": {}, "default_theme": {}}


def get(account_id: int) -> Brand:
    """Return the brand of an account, which is created with the account; raises NotFound for an unknown account."""
    brands = BRANDS.find("account_id = ?", (account_id,))
    if not brands:
        raise NotFound
    return brands[0]


def update(account_id: int, request: BrandWrite) -> Brand:
    """Update the fields of a brand that are present in the request; raises NotFound, or Invalid with all errors.

    A logo given as the URL of an upload is stored as its signed id.
    """
    require_write_transaction()
    validate(account_id, request)
    brand = get(account_id)
    for name, value in sent_fields(request).items():
        if name == "links" and value:
            value = [{"url": link.url, "icon": link.icon or "", "title": link.title or ""} for link in value]
        if isinstance(value, str):
            value = value.strip()
        if name == "logo" and value:
            value = media.find_signed_id(account_id, value) or value
        if value is None or value == "":
            value = _EMPTY.get(name)
        setattr(brand, name, value)
    brand.updated_at = clock.now_ms()
    brand.save()
    return brand


def preview_changes(account_id: int, request: BrandWrite) -> Brand:
    """Return the unsaved brand with the valid fields of the request.

    Links and invalid fields keep their stored values. Raises NotFound for an unknown account.
    """
    brand, faults = get(account_id), Faults()
    _collect_faults(account_id, request, faults)
    invalid_fields = {path.partition("[")[0].partition(".")[0] for path in faults.fields}
    for name, value in sent_fields(request).items():
        if name not in invalid_fields and name != "links":
            setattr(brand, name, value or _EMPTY.get(name))
    return brand


def validate(account_id: int, request: BrandWrite, _: int | None = None) -> None:
    """Raise Invalid with every error of a request that its types do not exclude.

    The last parameter is the id that `appliance.api.endpoints.validator` passes to every check; a brand needs none.
    """
    faults = Faults()
    _collect_faults(account_id, request, faults)
    faults.check()


def _collect_faults(account_id: int, request: BrandWrite, faults: Faults) -> None:
    for index, link in enumerate(request.links or []):
        if isinstance(link.url, str) and not _is_link(link.url):
            faults.add(f"links[{index}].url", gettext("is invalid"))
    if isinstance(request.logo, str) and request.logo.strip() and not _is_logo(account_id, request.logo.strip()):
        faults.add("logo", gettext("is invalid"))
    for name, kind in (("default_header", header.KIND), ("default_footer", footer.KIND)):
        section = getattr(request, name) or {}
        values = _section_props(section)
        path = name if values is section else f"{name}.props"
        for prop in (*kind.props, *COMMON):
            validate_value(prop, prop.get_value(values), f"{path}.{prop.name}", faults.add)
    for prop in _THEME:
        value = (request.default_theme or {}).get(prop.name)
        validate_value(prop, value, f"default_theme.{prop.name}", faults.add)
        if (
            prop.kind == "colour"
            and value not in (None, "")
            and not (isinstance(value, str) and theme.parse_colour(value))
        ):
            faults.add(f"default_theme.{prop.name}", gettext("is invalid"))


def _is_logo(account_id: int, value: str) -> bool:
    """Return whether a value is an http(s) URL without merge tags, or the signed id of an upload of the account."""
    if "{{" in value or "{%" in value:
        return False
    if _is_address(value):
        return True
    return Media.select().where(Media.account == account_id, Media.signed_id == value).exists()


def _is_address(value: str) -> bool:
    try:
        return bool(check_http_url(value))
    except ValueError:
        return False


def _is_link(url: str) -> bool:
    """Return whether a URL is a complete http or https URL, or `mailto:` with a valid email address."""
    if not url.lower().startswith("mailto:"):
        return _is_address(url)
    try:
        return bool(addresses.parse_email(unquote(url[7:].partition("?")[0])))
    except ValueError:
        return False


def _section_props(values: dict[str, Any]) -> dict[str, Any]:
    """Return the default properties of a header or footer: `values["props"]` if it is a dict, else `values`."""
    inner = values.get("props")
    return inner if isinstance(inner, dict) else values


def build_look(brand: Brand) -> Look:
    """Return the look that designs are rendered with; a brand without a company name uses the account's name."""
    return Look(
        company_name=brand.company_name or brand.account.name,
        physical_address=brand.physical_address,
        brand_color=brand.brand_color,
        text_color=brand.text_color,
        bg_color=brand.bg_color,
        font_heading=brand.font_heading,
        font_body=brand.font_body,
        logo_url=media.resolve_url(brand.logo),
        links=tuple((_link_name(link), link["url"]) for link in brand.links or [] if link.get("url")),
        theme=brand.default_theme or {},
        header=_section_props(brand.default_header or {}),
        footer=_section_props(brand.default_footer or {}),
        icons_url=media.public_url(media.ICONS_DIRECTORY),
        locale=brand.account.locale,
    )


def _link_name(link: dict[str, str]) -> str:
    """Return the label of a link: its title, else its icon name, else its host without `www.`."""
    label = (link.get("title") or "").strip() or (link.get("icon") or "").strip()
    place = urlsplit(link["url"])
    return label or (place.hostname or place.path).removeprefix("www.")


def is_complete(brand: Brand) -> bool:
    """Return whether the brand has both a colour and a company name."""
    return bool(brand.brand_color and brand.company_name)


# The CSS variables of the pages for recipients, with the colour of the palette that each has.
_PAGE_VARIABLES = {
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
    brand = get(account_id)
    theme_values = theme.resolve_theme({}, build_look(brand))
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
        for name, key in _PAGE_VARIABLES.items()
    ]
    font = "" if style.font == SANS_STACK else f";--font:{style.font}"
    return Markup(f":root{{{';'.join(rules)}{font}}}")  # noqa: S704 - the values are validated


def _uploaded_logo(brand: Brand) -> str | None:
    is_uploaded = (
        brand.logo and Media.select().where(Media.account == brand.account_id, Media.signed_id == brand.logo).exists()
    )
    return brand.logo if is_uploaded else None
