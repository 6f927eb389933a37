"""Designs to begin from: they are good documents, render without a complaint, and fetch nothing from anybody."""

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
KEYS = [one.key for one in starters.build_starters(BARE)]


def test_there_are_six() -> None:
    """Each with a name of its own, a description, a subject and a preview line."""
    found = starters.build_starters(BARE)
    assert len(found) == len({one.key for one in found}) == len({one.label for one in found}) == 6
    assert all(one.description and one.subject and one.preheader for one in found)
    assert starters.find_starter(BARE, "nothing") is None


@pytest.mark.parametrize("look", [BARE, FULL], ids=["bare", "full"])
@pytest.mark.parametrize("key", KEYS)
def test_a_starter_is_a_good_document(key: str, look: Look) -> None:
    """No fault, no unknown kind, no advice but about pictures that are not chosen yet; words of our own."""
    found = starters.find_starter(look, key)
    assert found is not None
    faults: list[tuple[str, str]] = []
    document.validate(found.design, lambda path, words: faults.append((path, words)))
    rendered = render_design(found.design, look)

    assert faults == [] and document.find_unknown(found.design) == []
    assert {one.code for one in rendered.advice} <= {"image_missing"}
    assert not re.search(r"lorem|ipsum|todo", rendered.text, re.IGNORECASE)
    assert [one["id"] for one in found.design["sections"]] == [
        f"s{n + 1}" for n in range(len(found.design["sections"]))
    ]


@pytest.mark.parametrize("key", KEYS)
def test_a_starter_loads_nothing_and_greets_everybody(key: str) -> None:
    """No picture from anywhere; somebody without a name is greeted too; one can leave, and sees who wrote."""
    found = starters.find_starter(FULL, key)
    assert found is not None
    rendered = render_design(found.design, FULL)
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
