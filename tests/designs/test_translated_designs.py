"""Translations of designs: every text people read has an id, and its translation is what they get."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.content.designs import document, render
from appliance.content.templates import translations
from appliance.core.errors import Invalid
from tests.designs.samples import LOOK, SAMPLES

_SECTIONS = st.sampled_from([section for design in SAMPLES.values() for section in design["sections"]])
# A text that stands out in a rendering, in the form that each kind of text allows
_MARKED = {
    "url": "https://de.example/w{}",
    "image": "https://de.example/w{}.png",
    "rich": "<p>Wort{}x</p>",
    "html": "<p>Wort{}x</p>",
}


def template(design: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the document of a template."""
    return {"subject": None, "preheader": None, "from_name": None, "body": None, "design": design,
            "translations": {}, **fields}  # fmt: skip


def translate_all(fields: dict[str, Any], chosen: list[bool]) -> dict[str, str]:
    """Translate the chosen texts of a template into German, and return the translations by id."""
    texts = {}
    for index, text in enumerate(translations.list_texts(fields)):
        if chosen[index % len(chosen)]:
            texts[text.id] = _MARKED.get(text.kind, "Wort{}x").format(index)
    fields["translations"] = translations.set_texts({}, fields, "de", texts)
    return texts


def show(design: dict[str, Any]) -> str:
    """Return the HTML and the text of a design as one text."""
    rendered = render.render_design(design, LOOK)
    return rendered.html + rendered.text


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(_SECTIONS, min_size=1, max_size=5), st.lists(st.booleans(), min_size=1, max_size=7))
def test_translated_texts_are_shown(sections: list[dict[str, Any]], chosen: list[bool]) -> None:
    """Ids are unique; each translation appears once translated, other texts stay, and the original does not change."""
    fields = template({"sections": [copy.deepcopy(section) for section in sections]}, subject="Hello", body="Some text")
    listed = translations.list_texts(fields)
    assert len({text.id for text in listed}) == len(listed)
    texts, before = translate_all(fields, chosen), copy.deepcopy(fields)
    translated = translations.translate_document(fields, "de")
    assert fields == before and "translations" not in translated
    after = {text.id: text.text for text in translations.list_texts(translated)}
    assert after == {text.id: texts.get(text.id, text.text) for text in listed}
    html, original = show(translated["design"]), show(fields["design"])
    assert not any(text in original for text in texts.values())
    for text_id, text in texts.items():
        shown = text.removeprefix("<p>").removesuffix("</p>")
        assert "/" not in text_id or shown in html or _is_hidden(fields, text_id), text_id
    summary = translations.summarize(fields, "de")
    optional = sum(text.kind in ("image", "url") and text.id not in texts for text in listed)
    missing = len(listed) - len(texts) - optional
    assert (summary.translated, summary.changed, summary.missing) == (len(texts), 0, missing)


def _is_hidden(fields: dict[str, Any], text_id: str) -> bool:
    """Return whether the original text is not shown either, such as the link of a product with a button."""
    original = next(text.text for text in translations.list_texts(fields) if text.id == text_id)
    sections = copy.deepcopy(fields["design"])
    marked = translations.set_texts({}, fields, "fr", {text_id: original})
    assert marked["fr"][text_id]["source"] == original
    changed = template(sections, translations={"fr": {text_id: {"source": original, "text": "https://never.example"}}})
    return show(translations.translate_document(changed, "fr")["design"]) == show(fields["design"])


def test_every_sample_has_texts() -> None:
    """The texts of all kinds of sections are listed in reading order, those in columns too."""
    fields = template({"sections": [
        {"id": "h", "type": "hero", "props": {"title": "Hi", "cta_text": "Buy", "cta_url": "https://acme.test/en"}},
        {"id": "c", "type": "columns", "props": {"columns": [
            {"sections": [{"id": "t", "type": "text", "props": {"content": "<p>Left</p>"}}]},
            {"sections": [{"id": "b", "type": "button", "props": {"label": "Go", "url": "{{ data.link }}"}}]},
        ]}},
        {"id": "p", "type": "product", "props": {"name": "Bell", "price": "€ 38", "image_url": "https://a.test/b.png"}},
        {"id": "i", "type": "image", "props": {"src": "https://a.test/b.png", "alt": "A bell"}},
        {"id": "l", "type": "list", "props": {"items": [{"icon": "★", "title": "One"}, {"title": "{{ data.two }}"}]}},
        {"id": "o", "type": "social", "props": {"links": [{"platform": "x", "url": "https://x.com/acme"}]}},
        {"id": "f", "type": "footer", "props": {}},
    ]}, subject="Hello", preheader="{{ first_name }}", from_name="Acme")  # fmt: skip
    assert [text.id for text in translations.list_texts(fields)] == [
        "subject", "from_name", "h/props.title", "h/props.cta_text", "h/props.cta_url", "t/props.content",
        "b/props.text", "p/props.name", "p/props.image_url", "i/props.src", "i/props.alt",
        "l/props.items.0.title", "o/props.links.0.url",
    ]  # fmt: skip
    assert {document.list_entries(design)[0].section.kind.name for design in SAMPLES.values()} >= {"hero", "list"}


@pytest.mark.parametrize(("contact_language", "expected"), [
    (None, None), ("de", "de"), ("de-AT", "de"), ("de-CH", "de-CH"), ("pt", "pt-BR"), ("pt-PT", "pt-BR"),
    ("fr", None), ("en-GB", None), ("en", None), ("zh-Hant-TW", "zh-Hant"), ("zh-Hans", "zh-Hant"),
])  # fmt: skip
def test_a_contact_gets_the_closest_language(contact_language: str | None, expected: str | None) -> None:
    """The exact language is chosen, else a less exact one, else the original in it, else one of another region."""
    texts = {"subject": {"source": "Hello", "text": "Hallo"}}
    languages = ("de", "de-CH", "en-US", "pt-BR", "zh-Hant")
    fields = template({}, subject="Hello", translations={**dict.fromkeys(languages, texts), "fr": {}})
    available = translations.get_available_languages(fields)
    assert translations.match_translation(available, contact_language, "en") == expected


def test_an_image_of_a_language() -> None:
    """An image may have a version with the text of a language; without one it is not missing, and is checked."""
    image = {"image_url": "https://a.test/en.png", "alt": "Bell", "dark_src": "{{ data.dark }}"}
    fields = template({"sections": [{"id": "i", "type": "image", "props": image}]})
    summary = translations.summarize({**fields, "translations": {"de": {}}}, "de")
    assert [state.state for state in summary.texts] == ["original", "missing"] and summary.total == 1

    own_texts = {"i/props.src": " https://a.test/de.png ", "i/props.alt": "Glocke"}
    document = {**fields, "translations": translations.set_texts({}, fields, "de", own_texts)}
    summary = translations.summarize(document, "de")
    assert (summary.translated, summary.total) == (2, 2)
    html = show(translations.translate_document(document, "de")["design"])
    assert "https://a.test/de.png" in html and "en.png" not in html and 'alt="Glocke"' in html
    with pytest.raises(Invalid) as refused:
        translations.set_texts({}, fields, "de", {"i/props.src": "mailto:a@acme.test"})
    assert refused.value.fields == {"i/props.src": ["is invalid"]}


def test_changes_are_noticed() -> None:
    """A changed text keeps its translation, marked as changed; the texts of a section that is gone are pruned."""
    fields = template({"sections": [
        {"id": "a", "type": "heading", "props": {"text": "Spring"}},
        {"id": "b", "type": "button", "props": {"text": "Go"}},
    ]}, subject="Hello")  # fmt: skip
    texts = {"subject": "Hallo", "a/props.text": "Frühling", "b/props.text": "Los"}
    fields["translations"] = translations.set_texts({}, fields, "de", texts)
    fields["design"]["sections"][0]["props"]["text"] = "Summer"
    del fields["design"]["sections"][1]
    summary = translations.summarize(fields, "de")
    assert [(state.text.id, state.state) for state in summary.texts] == [("subject", "translated"),
                                                                        ("a/props.text", "changed")]  # fmt: skip
    assert translations.translate_document(fields, "de")["design"]["sections"][0]["props"]["text"] == "Frühling"
    assert set(translations.prune(fields["translations"], fields)["de"]) == {"subject", "a/props.text"}
    again = translations.set_texts(fields["translations"], fields, "de", {"a/props.text": "Sommer", "subject": None})
    assert again == {"de": {"a/props.text": {"source": "Summer", "text": "Sommer"}}}
    assert translations.remove_language(again, "de") == {}


def test_wrong_translations_are_reported_together() -> None:
    """Each error is at the id of its text, and nothing is kept; rich text is sanitized."""
    fields = template({"sections": [
        {"id": "a", "type": "hero", "props": {"title": "Hi", "cta_text": "Buy", "cta_url": "https://acme.test"}},
        {"id": "t", "type": "text", "props": {"content": "<p>Hi</p>"}},
    ]}, subject="Hello")  # fmt: skip
    wrong = {"subject": "x" * 999, "a/props.title": "{{ open", "a/props.cta_url": "javascript:alert(1)", "z": "Hi",
             "t/props.content": "x" * 200_001, "gone": None}  # fmt: skip
    with pytest.raises(Invalid) as refused:
        translations.set_texts({}, fields, "de", wrong, prefix="texts.")
    assert set(refused.value.fields) == {f"texts.{text_id}" for text_id in wrong if text_id != "gone"}
    cleaned = translations.set_texts(
        {}, fields, "de", {"t/props.content": '<p onclick="x">Hallo<script>x</script></p>'}
    )
    assert cleaned["de"]["t/props.content"]["text"] == "<p>Hallo</p>"
    many = {f"{first}{second}": {} for first in "abc" for second in "abcdefg"}
    with pytest.raises(Invalid):
        translations.set_texts(many, fields, "de", {"subject": "Hallo"})
