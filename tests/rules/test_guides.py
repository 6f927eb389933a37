"""Rules for the guides under /docs: names of the interface, headings, links, pictures, and the help of each page."""

import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from appliance.core.i18n import DEFAULT_LANGUAGE, LANGUAGES
from tests.kit.server import ROOT
from ui import documentation

sys.path.insert(0, str(ROOT / "packaging"))
import catalogues

BASE = "http://127.0.0.1:8080"
# The guides for people who do not program.
FOR_EVERYONE = documentation.GROUPS[0].names
# Bold words that are not texts of the interface: beginnings of paragraphs in the guides for operators, and the key on a
# phone.
NO_NAMES = {
    "From 100,000", "From 1,000,000", "HTTPS", "Keys", "Machine", "Memory.", "No data is lost.", "Nothing is sent.",
    "Old links lead nowhere.", "Ended access stays ended.", "One file.", "One process.", "One writer.",
    "Opt-outs are kept.", "Restored", "What was sent since is not sent again.", "Towards 10,000,000", "Updates",
    "Up to 100,000 contacts",
}  # fmt: skip
MAX_PICTURE_BYTES, MAX_PICTURES_BYTES = 60_000, 1_500_000
MAX_TRANSLATED_PICTURES_BYTES = 560_000  # of each other language
PICTURES = ROOT / "static" / "guides"


def source_of(name: str) -> str:
    """Return the Markdown of a guide."""
    return Path(ROOT, "ui/guides", f"{name}.md").read_text(encoding="utf-8")


def bold_of(name: str) -> set[str]:
    """Return the bold texts of a guide outside of code."""
    prose = re.sub(r"^```.*?^```$", "", source_of(name), flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"\*\*(.+?)\*\*", prose))


@cache
def interface_texts() -> frozenset[str]:
    """Return the English texts of the interface without tags; a value in a text is kept as `%(name)s`."""
    # A catalogue has exactly the texts of the sources (`test_catalogues.py`), and is read in a fifth of the time
    messages = (message.id for message in catalogues.read("de") if message.id)
    texts = (text for message in messages for text in ((message,) if isinstance(message, str) else message))
    return frozenset(unescape(re.sub(r"<[^<>]+>", "", text)).strip() for text in texts)


@pytest.mark.parametrize("name", documentation.guide_names())
def test_bold_names_are_texts_of_the_interface(name: str) -> None:
    """A guide names buttons, menus, tabs and pages as the interface does."""
    assert bold_of(name) - interface_texts() - NO_NAMES == set()


def test_every_exception_is_needed() -> None:
    """The exceptions are bold in some guide, and no texts of the interface."""
    bold = {text for name in documentation.guide_names() for text in bold_of(name)}
    assert bold >= NO_NAMES and not NO_NAMES & interface_texts()


@pytest.mark.parametrize("name", FOR_EVERYONE)
def test_guides_for_everyone(name: str) -> None:
    """A guide has 400 to 900 words, tasks as headings, a picture, and no code blocks."""
    text = source_of(name)
    prose = re.sub(r"!\[.*?\]\(.*?\)", "", text)
    assert 400 <= len(prose.split()) <= 900
    assert len(re.findall(r"^## ", text, re.MULTILINE)) >= 5
    assert "```" not in text and "![" in text


@pytest.mark.parametrize("name", documentation.guide_names())
def test_links_of_a_guide_resolve(name: str) -> None:
    """Each link to a guide or a heading of one leads to what exists."""
    for path, _, anchor in re.findall(r"\]\((/docs[^)#]*)?(#)?([^)]*)\)", source_of(name)):
        if path and path.startswith("/docs/guides/"):
            guide = documentation.load_guide(path.removeprefix("/docs/guides/"), BASE)
            assert not anchor or f'id="{anchor}"' in guide.body, f"{path}#{anchor}"


def test_guides_are_all_listed() -> None:
    """Each file is in one group, and each group has files."""
    assert sorted(documentation.guide_names()) == sorted(path.stem for path in Path(ROOT, "ui/guides").glob("*.md"))


def test_headings_have_unique_ids() -> None:
    """No guide has two headings with the same id."""
    for name in documentation.guide_names():
        ids = re.findall(r'<h[23] id="([^"]+)"', documentation.load_guide(name, BASE).body)
        assert len(ids) == len(set(ids)), name


def test_pictures_are_small_and_used_once() -> None:
    """Every picture has an alt text, is in one guide, and keeps to the size that the executable may grow by."""
    used = [
        match for name in documentation.guide_names() for match in re.findall(r"!\[(.*?)\]\((.*?)\)", source_of(name))
    ]
    files = {path.name: path.stat().st_size for path in PICTURES.glob("*.webp")}
    assert sorted(file for _, file in used) == sorted(files)
    assert all(len(alt) > 30 for alt, _ in used)
    assert max(files.values()) <= MAX_PICTURE_BYTES and sum(files.values()) <= MAX_PICTURES_BYTES
    for language in set(LANGUAGES) - {DEFAULT_LANGUAGE}:
        translated = {path.name: path.stat().st_size for path in (PICTURES / language).iterdir()}
        assert translated.keys() <= files.keys(), language  # The English picture stands in for a missing one.
        assert sum(translated.values()) <= MAX_TRANSLATED_PICTURES_BYTES, language


@pytest.mark.parametrize("entry", documentation.HELP, ids=lambda entry: entry[0])
def test_the_help_of_each_page_exists(entry: tuple[str, str, str]) -> None:
    """A page of the product links to a guide, and to a heading of it."""
    _, name, heading = entry
    guide = documentation.load_guide(name, BASE)
    assert not heading or f'<h2 id="{heading}">' in guide.body


def test_every_part_of_the_navigation_has_its_own_help() -> None:
    """Only the start page and pages without a subject of their own have the general guide."""
    paths = (
        "/campaigns/7",
        "/flows/7/try",
        "/templates/3/edit",
        "/contacts/imports/2",
        "/segments/new",
        "/settings/team",
    )
    helps = [documentation.help_url(path) for path in paths]
    assert len(set(helps)) == len(paths) and documentation.help_url("/") not in helps
    assert documentation.help_url("/contacts/7/edit") == documentation.help_url("/contacts/7")
    assert documentation.help_url("/contactsx") == documentation.help_url("/")


class TestSearch:
    """The search of all guides."""

    @staticmethod
    def index() -> documentation.SearchIndex:
        """Return the index of all guides."""
        guides: list[Any] = [guide for _, group in documentation.list_guides(BASE) for guide in group]
        return documentation.SearchIndex(part for guide in guides for part in guide.parts)

    @pytest.mark.parametrize(
        ("query", "title", "heading"),
        [
            ("import contacts", "Import contacts", ""),
            ("How do I erase a contact?", "Protect the data of your contacts", "Erase a contact"),
            ("how can I erase a contact who asks for it", "Protect the data of your contacts", "Erase a contact"),
            ("signup", "Collect sign-ups with forms", ""),
            ("quiet hours", "Send SMS", "Set quiet hours"),
            ("undo import", "Import contacts", "Undo an import"),
            ("HTTPS", "Set up HTTPS", ""),
        ],
    )
    def test_the_best_result(self, query: str, title: str, heading: str) -> None:
        """The result that a reader means comes first."""
        part = self.index().search(query)[0].part
        assert (part.title, part.heading) == (title, heading)

    def test_excerpts(self) -> None:
        """The excerpt has the match marked; a search without a match finds nothing."""
        result = self.index().search("walled tracking pixel")[0]
        assert {text.lower() for text, is_match in result.excerpt if is_match} <= {"tracking", "pixel"}
        assert any(is_match for _, is_match in result.excerpt)
        assert self.index().search("zzzz") == [] == self.index().search("")
        assert documentation.make_excerpt("a (b", ["(b"]) == (("a (b", False),)
