"""What of a brand shows in a mail, with what stands in for what nobody wrote."""

from typing import Any

from appliance.content import brand
from appliance.content.designs.theme import Look, resolve_theme
from appliance.core import validation
from appliance.storage import transactions
from appliance.storage.models import Brand
from tests.domain.home import Home


def put(home: Home, **body: Any) -> Brand:
    """Change the brand as the API does."""
    return transactions.write(brand.update, home.account_id, validation.read(brand.BrandWrite, body))


def test_a_fresh_brand_signs_with_the_account(home: Home) -> None:
    """Without anything written, the account's name stands for the company and nothing else is made up."""
    assert brand.build_look(brand.get(home.account_id)) == Look(company_name="Acme")


def test_what_is_written_shows(home: Home) -> None:
    """Name, address, colours, fonts, logo, links and defaults come through as they are."""
    put(
        home, company_name="Bakery", physical_address="1 Mill Lane", brand_color="#0f617d", text_color="#222222",
        bg_color="#ffffff", font_heading="Georgia", font_body="Helvetica", logo="https://example.org/logo.png",
        default_theme={"width": 640}, default_header={"layout": "centered"}, default_footer={"text": "Bye"},
    )  # fmt: skip
    seen = brand.build_look(brand.get(home.account_id))

    assert seen == Look(
        "Bakery", "1 Mill Lane", "#0f617d", "#222222", "#ffffff", "Georgia", "Helvetica",
        "https://example.org/logo.png", (), {"width": 640}, {"layout": "centered"}, {"text": "Bye"},
    )  # fmt: skip
    assert resolve_theme({}, seen).width == 640


def test_a_link_is_called_by_title_icon_or_place(home: Home) -> None:
    """The first of the three that says anything names a link."""
    links = [
        {"url": "https://instagram.com/bakery", "icon": "instagram", "title": "Our pictures"},
        {"url": "https://instagram.com/bakery", "icon": "instagram", "title": " "},
        {"url": "https://www.example.org/shop"},
        {"url": "mailto:hi@example.org"},
    ]
    put(home, links=links)

    assert [name for name, _ in brand.build_look(brand.get(home.account_id)).links] == [
        "Our pictures", "instagram", "example.org", "hi@example.org",
    ]  # fmt: skip
