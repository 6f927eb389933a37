"""Rules for translated guides: up to date, the same structure, links and code, and names as the interface has them."""

import hashlib
import re
import sys
from functools import cache
from html import unescape
from itertools import starmap

import pytest
from babel.messages.pofile import read_po

from appliance.core.i18n import DEFAULT_LANGUAGE, LANGUAGES
from tests.kit.server import ROOT
from ui import documentation

sys.path.insert(0, str(ROOT / "packaging"))
import catalogues

BASE = "http://127.0.0.1:8080"
GUIDES = ROOT / "ui" / "guides"
TRANSLATED = documentation.GROUPS[0].names
OTHER_LANGUAGES = sorted(set(LANGUAGES) - {DEFAULT_LANGUAGE})
CASES = [(language, name) for language in OTHER_LANGUAGES for name in TRANSLATED]
COMMENT = "<!-- Translation of {name}.md {digest} -->"


@cache
def read_original(name: str) -> str:
    """Return the Markdown of an English guide."""
    return (GUIDES / f"{name}.md").read_text("utf-8")


def read_translation(language: str, name: str) -> tuple[str, str]:
    """Return the first line of a translated guide and its Markdown."""
    comment, _, text = (GUIDES / language / f"{name}.md").read_text("utf-8").partition("\n")
    return comment, text


@cache
def read_names(language: str) -> dict[str, set[str]]:
    """Return the translations of each text of the interface, without tags."""
    with catalogues.path_of(language).open("rb") as file:
        catalogue = read_po(file)
    names: dict[str, set[str]] = {}
    for message in catalogue:
        texts = message.id if isinstance(message.id, (tuple, list)) else (message.id,)
        translations = message.string if isinstance(message.string, (tuple, list)) else (message.string,)
        for text in map(strip_tags, texts):
            names.setdefault(text, set()).update(map(strip_tags, translations))
    return names


def strip_tags(text: str) -> str:
    """Return a text of the interface without tags and references."""
    return unescape(re.sub(r"<[^<>]+>", "", text)).strip()


def list_kinds(text: str) -> list[str]:
    """Return what each line of a guide is: its mark of a heading, list, table or picture, or a paragraph."""
    lines = (line.lstrip() for line in text.strip().split("\n"))
    return [mark[0] if (mark := re.match(r"#+ |- |\d+\. |\||!\[", line)) else "text"[: len(line)] for line in lines]


def list_bold(text: str) -> list[str]:
    """Return the bold texts of a guide in order."""
    return re.findall(r"\*\*(.+?)\*\*", text)


@pytest.mark.parametrize("language", OTHER_LANGUAGES)
def test_guides_for_everyone_are_translated(language: str) -> None:
    """Each guide for people who do not program is in each language, and no other file is there."""
    assert sorted(path.stem for path in (GUIDES / language).iterdir()) == sorted(TRANSLATED)


@pytest.mark.parametrize("name", TRANSLATED)
def test_translations_are_up_to_date(name: str) -> None:
    """The first line of a translation names the English guide as it is today: change both together."""
    digest = hashlib.sha256(read_original(name).encode()).hexdigest()[:12]
    expected = COMMENT.format(name=name, digest=digest)
    assert {language: read_translation(language, name)[0] for language in OTHER_LANGUAGES} == dict.fromkeys(
        OTHER_LANGUAGES, expected
    )


@pytest.mark.parametrize(("language", "name"), CASES, ids=starmap("{}-{}".format, CASES))
def test_a_translation_has_the_structure_of_its_original(language: str, name: str) -> None:
    """Headings, paragraphs, lists and tables are the same line by line; links, pictures and code are the same."""
    original, (_, text) = read_original(name), read_translation(language, name)
    assert list_kinds(text) == list_kinds(original)
    # Only the words that stand in for a missing value are those of the language
    text, original = (re.sub(r'default: "[^"]*"', "default", guide) for guide in (text, original))
    for pattern in (r"\]\(([^)]*)\)", r"`([^`]+)`"):
        assert sorted(re.findall(pattern, text)) == sorted(re.findall(pattern, original))


@pytest.mark.parametrize(("language", "name"), CASES, ids=starmap("{}-{}".format, CASES))
def test_a_translation_names_the_interface_as_it_is(language: str, name: str) -> None:
    """Each bold name of the English guide is there in a translation of the catalogue, and no other name is bold."""
    names, bold = read_names(language), list_bold(read_translation(language, name)[1])
    expected = [names[text] for text in dict.fromkeys(list_bold(read_original(name)))]
    assert [translations for translations in expected if not translations & set(bold)] == []
    assert set(bold) <= set().union(*expected)


def test_a_translated_guide_is_served_with_the_ids_of_the_english_one() -> None:
    """Links to a heading work in each language; the examples use the address of the installation."""
    for language, name in CASES:
        original, guide = documentation.load_guide(name, BASE), documentation.load_guide(name, BASE, language)
        assert guide.language == language.replace("_", "-") and guide.title != original.title
        assert [heading_id for heading_id, _ in guide.headings] == [heading_id for heading_id, _ in original.headings]
        assert "<!--" not in guide.title + guide.lead + guide.body and "&lt;!--" not in guide.body


@pytest.mark.parametrize(
    ("language", "query", "name"),
    [("de", "Wie importiere ich Kontakte?", "importing-contacts"), ("fr", "comment créer un segment", "segments"),
     ("ja", "セグメント", "segments"), ("pl", "formularze zapisu", "sign-up-forms"),
     ("es", "informe de campaña", "reports")],
)  # fmt: skip
def test_a_search_in_another_language(language: str, query: str, name: str) -> None:
    """A search finds the guides in the language of the interface, also by other forms of a word."""
    guides = [guide for _, group in documentation.list_guides(BASE, language) for guide in group]
    index = documentation.SearchIndex((part for guide in guides for part in guide.parts), language)
    results = index.search(query)
    assert any(result.part.href.startswith(f"/docs/guides/{name}") for result in results[:3])
    assert all(result.part.language == language for result in results[:3])
    assert any(is_match for result in results[:3] for _, is_match in result.excerpt)
