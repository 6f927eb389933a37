"""How an account's brand, with its defaults, appears in emails."""

from typing import Any

from appliance.content import brand, media
from appliance.content.designs.theme import Look, resolve_theme
from appliance.core import validation
from appliance.storage import transactions
from appliance.storage.models import Brand
from tests.domain.home import Home


def update_brand(home: Home, **body: Any) -> Brand:
    """Update the brand as the API does."""
    return transactions.write(brand.update, home.account_id, validation.read(brand.BrandWrite, body))


def test_a_new_brand_uses_the_account_name(home: Home) -> None:
    """Without a brand, the company name is the account's name and all else is empty."""
    assert brand.build_look(brand.get(home.account_id)) == Look(
        company_name="Acme", icons_url=media.public_url(media.ICONS_DIRECTORY)
    )


def test_the_look_contains_the_brand_as_saved(home: Home) -> None:
    """Name, address, colours, fonts, logo and defaults of the brand are in the look, and its theme sets the width."""
    update_brand(
        home, company_name="Bakery", physical_address="1 Mill Lane", brand_color="#0f617d", text_color="#222222",
        bg_color="#ffffff", font_heading="Georgia", font_body="Helvetica", logo="https://example.org/logo.png",
        default_theme={"width": 640}, default_header={"layout": "centered"}, default_footer={"text": "Bye"},
    )  # fmt: skip
    look = brand.build_look(brand.get(home.account_id))

    assert look == Look(
        "Bakery", "1 Mill Lane", "#0f617d", "#222222", "#ffffff", "Georgia", "Helvetica",
        "https://example.org/logo.png", (), {"width": 640}, {"layout": "centered"}, {"text": "Bye"},
        media.public_url(media.ICONS_DIRECTORY),
    )  # fmt: skip
    assert resolve_theme({}, look).width == 640


def test_a_social_link_is_named_by_title_icon_or_host(home: Home) -> None:
    """A link's name is its title, else its icon, else its host or address."""
    links = [
        {"url": "https://instagram.com/bakery", "icon": "instagram", "title": "Our pictures"},
        {"url": "https://instagram.com/bakery", "icon": "instagram", "title": " "},
        {"url": "https://www.example.org/shop"},
        {"url": "mailto:hi@example.org"},
    ]
    update_brand(home, links=links)

    assert [name for name, _ in brand.build_look(brand.get(home.account_id)).links] == [
        "Our pictures", "instagram", "example.org", "hi@example.org",
    ]  # fmt: skip
