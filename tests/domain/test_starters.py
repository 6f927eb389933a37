"""Starters: valid designs that render without errors and load nothing from elsewhere."""

import re

import pytest

from appliance.content.designs import document, merge
from appliance.content.designs.render import render_design
from appliance.content.designs.theme import Look
from appliance.content.templates import starters

BARE = Look(company_name="Acme", physical_address="1 Mill Lane")
FULL = BARE._replace(
    brand_color="#0f617d", links=(("Shop", "https://acme.example/shop"), ("", "mailto:a@acme.example"))
)
KEYS = [starter.key for starter in starters.build_starters(BARE)]


def test_there_are_six_starters() -> None:
    """Each has a unique key and label, a description, a subject and a preheader."""
    all_starters = starters.build_starters(BARE)
    assert (
        len(all_starters)
        == len({starter.key for starter in all_starters})
        == len({starter.label for starter in all_starters})
        == 6
    )
    assert all(starter.description and starter.email.subject and starter.email.preheader for starter in all_starters)
    assert starters.find_starter(BARE, "nothing") is None


@pytest.mark.parametrize("look", [BARE, FULL], ids=["bare", "full"])
@pytest.mark.parametrize("key", KEYS)
def test_a_starter_is_a_valid_design(key: str, look: Look) -> None:
    """A starter has no errors, no unknown kinds, no advice except missing pictures, and no placeholder text."""
    starter = starters.find_starter(look, key)
    assert starter is not None
    errors: list[tuple[str, str]] = []
    document.validate(starter.email.design, lambda path, message: errors.append((path, message)))
    rendered = render_design(starter.email.design, look)

    assert errors == [] and document.find_unknown(starter.email.design) == []
    assert {item.code for item in rendered.advice} <= {"image_missing"}
    assert not re.search(r"lorem|ipsum|todo", rendered.text, re.IGNORECASE)
    assert [item["id"] for item in starter.email.design["sections"]] == [
        f"s{number + 1}" for number in range(len(starter.email.design["sections"]))
    ]


@pytest.mark.parametrize("key", KEYS)
def test_a_starter_renders_without_a_first_name(key: str) -> None:
    """A starter loads no pictures, greets without a name, and has postal address and unsubscribe link."""
    starter = starters.find_starter(FULL, key)
    assert starter is not None
    rendered = render_design(starter.email.design, FULL)
    values = {
        "brand": {"company_name": "Acme", "physical_address": "1 Mill Lane"},
        "unsubscribe_url": "https://x.example/u",
    }
    html, text = (merge.compile_template(part, context).render(values)
                  for part, context in ((rendered.html, "html"), (rendered.text, "text")))  # fmt: skip

    assert not re.search(r"<img[^>]+src=\"(?!\")[^\"]+\"", html) and "url(" not in html
    assert "https://x.example/u" in html and "https://x.example/u" in text
    assert "1 Mill Lane" in html and "{{" not in html
    assert not re.search(r"Hello\s*,|here,\s*[<.!]", text)
    assert key == "letter" or "https://acme.example/shop" in html
