"""What the API answers about a brand."""

from msgspec import Struct

from appliance.api.shapes import Json, Moment


class BrandLink(Struct):
    """A link of the brand."""

    url: str
    icon: str
    title: str


class Brand(Struct):
    """How an account looks and sounds."""

    id: int
    account_id: int
    brand_color: str | None
    text_color: str | None
    bg_color: str | None
    font_heading: str | None
    font_body: str | None
    style_notes: str | None
    tone: str | None
    company_description: str | None
    industry: str | None
    example_copy: list[str] | None
    default_header: Json
    default_footer: Json
    default_theme: Json
    physical_address: str | None
    company_name: str | None
    source_url: str | None
    last_scraped_at: Moment | None
    links: list[BrandLink]
    logo: str | None
    complete: bool
    created_at: Moment
    updated_at: Moment
