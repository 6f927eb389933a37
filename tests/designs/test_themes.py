"""The theme of a document: checked like its sections, and what of it cannot be used is told."""

from typing import Any

import pytest

from appliance.content.designs import document
from appliance.content.designs.render import render_design
from appliance.content.designs.theme import Look

SECTIONS = [{"type": "header", "props": {}}]


def faults(theme: Any) -> dict[str, str]:
    """Return what is told about a document with a theme."""
    found: dict[str, str] = {}
    document.validate({"sections": SECTIONS, "theme": theme}, found.__setitem__)
    return found


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
def test_a_theme_is_checked_like_a_section(theme: Any, path: str) -> None:
    """What no document may hold is refused in its theme too, with the path."""
    assert list(faults(theme)) == [path]


def test_a_theme_that_can_be_used_is_taken() -> None:
    """Colours, fonts, a logo with a merge tag behind its host, and a width."""
    theme = {"brand_color": "#123", "text_color": "navy", "font_body": "Georgia", "width": 640,
             "logo_url": "https://x.test/{{ contact.data.team }}.png"}  # fmt: skip
    assert faults(theme) == {} == faults(None) == faults({})
    advice = render_design({"sections": SECTIONS, "theme": theme}, Look()).advice
    assert not [one for one in advice if one.path.startswith("theme")]


def test_a_colour_that_is_none_is_told() -> None:
    """The mail shows the brand's colour instead, and advice says which words were no colour."""
    theme = {"brand_color": "notacolour", "text_color": 5, "bg_color": ""}
    found = render_design({"sections": SECTIONS, "theme": theme}, Look(company_name="Acme")).advice

    assert [one.path for one in found if one.path.startswith("theme")] == ["theme.brand_color", "theme.text_color"]
    assert "'notacolour' is no colour" in found[0].message
