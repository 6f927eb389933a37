"""The theme of a document: validation and advice."""

from typing import Any

import pytest

from appliance.content.designs import document
from appliance.content.designs.render import render_design
from appliance.content.designs.theme import Look

SECTIONS = [{"type": "header", "props": {}}]


def errors_of(theme: Any) -> dict[str, str]:
    """Return the validation errors of a document with a theme, by path."""
    errors: dict[str, str] = {}
    document.validate({"sections": SECTIONS, "theme": theme}, errors.__setitem__)
    return errors


@pytest.mark.parametrize(
    ("theme", "path"),
    [
        ({"logo_url": "https://x.test/{{ oops"}, "theme.logo_url"),
        ({"logo_url": "https://{{ contact.data.host }}/a.png"}, "theme.logo_url"),
        ({"logo_url": "javascript:alert(1)"}, "theme.logo_url"),
        ({"logo_url": "https://x.test/" + "a" * 2_000}, "theme.logo_url"),
        ({"font_body": [1]}, "theme.font_body"),
        ({"font_heading": "{{ nobody | shout }}"}, "theme.font_heading"),
        ({"brand_color": {"a": 1}}, "theme.brand_color"),
        ("blue", "theme"),
    ],
)
def test_invalid_themes_are_rejected(theme: Any, path: str) -> None:
    """Each invalid value is reported with its path."""
    assert list(errors_of(theme)) == [path]


def test_valid_themes_are_accepted() -> None:
    """Colours, fonts, a width and a logo with a merge tag in its path cause no errors and no advice."""
    theme = {"brand_color": "#123", "text_color": "navy", "font_body": "Georgia", "width": 640,
             "logo_url": "https://x.test/{{ contact.data.team }}.png"}  # fmt: skip
    assert errors_of(theme) == {} == errors_of(None) == errors_of({})
    advice = render_design({"sections": SECTIONS, "theme": theme}, Look()).advice
    assert not [entry for entry in advice if entry.path.startswith("theme")]


def test_invalid_colors_of_a_theme_cause_advice() -> None:
    """A value that is not a colour causes advice with its text."""
    theme = {"brand_color": "notacolour", "text_color": 5, "bg_color": ""}
    advice = render_design({"sections": SECTIONS, "theme": theme}, Look(company_name="Acme")).advice

    assert [entry.path for entry in advice if entry.path.startswith("theme")] == [
        "theme.brand_color",
        "theme.text_color",
    ]
    assert "“notacolour” is not a valid colour" in advice[0].message
