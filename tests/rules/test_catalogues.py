"""Rules for texts that people read: each is marked, in every catalogue, translated, and its holes are kept."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from appliance.core import i18n
from tests.kit.server import ROOT
from tests.rules import unmarked

sys.path.insert(0, str(ROOT / "packaging"))
import catalogues

read_catalogue = cache(catalogues.read)
LANGUAGES = sorted(set(i18n.LANGUAGES) - {i18n.DEFAULT_LANGUAGE})
# What a translation must keep: values, merge tags, and the tags and entities of HTML.
_HOLES = re.compile(
    r"%\(\w+\)s|%%|\{\{.*?\}\}|\{\w*\}|</?\w+[^<>]*>|&lt;|&gt;|\bhttps?://[\w./?=&%#-]*(?<!\.)", re.ASCII
)


# A greeting may say another word for an unknown name, or leave it out by a condition
_FALLBACKS = re.compile(r""" \| default: "\w+"|\{%% (?:if [\w.]+|else|endif) %%\}""")


def holes(text: str) -> list[str]:
    """Return the parts of a text that a translation must keep, sorted."""
    return sorted(_HOLES.findall(_FALLBACKS.sub("", text)))


@pytest.mark.parametrize("tree", ["ui", "static/js"])
def test_every_text_is_marked(tree: str) -> None:
    """No page, template or script has a text that no catalogue has."""
    files = sorted(path for path in (ROOT / tree).rglob("*") if path.suffix in (".html", ".py", ".js"))
    offenders = [item for path in files for item in unmarked.in_file(path)]
    lines = [f"{Path(item.path).relative_to(ROOT)}:{item.line}: {item.text}" for item in offenders]
    assert not lines, "\n".join(lines)


# Modules whose errors no page shows: the API, hooks of providers, and what runs before there are pages.
NO_PAGES = ("appliance/api/", "appliance/inbound/providers/", "appliance/sending/sms/providers/")


def test_every_error_is_marked() -> None:
    """No error of a request has a text that no catalogue has, because pages show these errors."""
    files = [
        path
        for path in sorted((ROOT / "appliance").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(NO_PAGES)
    ]
    offenders = [item for path in files for item in unmarked.in_errors(path)]
    lines = [f"{Path(item.path).relative_to(ROOT)}:{item.line}: {item.text}" for item in offenders]
    assert not lines, "\n".join(lines)


def test_no_text_is_marked_inside_an_f_string() -> None:
    """Python 3.11 reads an f-string as one string, so that no catalogue gets a text that is marked inside it."""
    offenders = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for tree in ("appliance", "ui")
        for path in sorted((ROOT / tree).rglob("*.py"))
        if (text := path.read_text(encoding="utf-8")) and "gettext(" in text
        for f_string in ast.walk(ast.parse(text))
        if isinstance(f_string, ast.JoinedStr)
        for call in ast.walk(f_string)
        if isinstance(call, ast.Call) and "gettext" in ast.unparse(call.func)
        if any(isinstance(argument, ast.Constant) for argument in call.args)
    ]
    assert not offenders, "\n".join(offenders)


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue_has_the_texts_of_the_sources(language: str) -> None:
    """`packaging/catalogues.py` was run after the last change of a text."""
    in_sources = {(message.context, message.id) for message in catalogues.extract() if message.id}
    in_catalogue = {(message.context, message.id) for message in read_catalogue(language) if message.id}
    assert in_catalogue == in_sources


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language: str) -> None:
    """No page is half in English; `test_catalogue_has_the_texts_of_the_sources` checks that no text is missing."""
    entries = [message for message in read_catalogue(language) if message.id]
    assert len(entries) > 1_000
    assert not [message.id for message in entries if not catalogues.is_complete(message)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_keep_values_merge_tags_and_markup(language: str) -> None:
    """A translation has the holes, merge tags and HTML tags of its text, none more and none less."""
    faults = []
    for message in read_catalogue(language):
        if not message.id or not catalogues.is_complete(message):
            continue
        if isinstance(message.id, str):
            allowed, translations = [holes(message.id)], [message.string]
        else:
            # A form for one thing may say the number in words
            allowed, translations = [holes(text) for text in message.id], list(message.string)
        faults += [f"{message.id!r}: {text!r}" for text in translations if holes(text) not in allowed]
    assert not faults, "\n".join(faults)


def test_plural_forms_have_the_values_of_the_singular() -> None:
    """Each form of a text may be used for any number: Japanese has one form only."""
    faults = []
    for message in catalogues.extract():
        if message.id and not isinstance(message.id, str):
            singular, plural = (set(re.findall(r"%\((\w+)\)s", text)) | {"num"} for text in message.id)
            faults += [message.id] if singular != plural else []
    assert not faults


def test_every_text_can_be_filled_in() -> None:
    """A percent sign in a text is doubled, because all texts are filled in with `%`."""
    faults = []
    for message in catalogues.extract():
        for text in (message.id,) if isinstance(message.id, str) else message.id:
            try:
                text % dict.fromkeys(re.findall(r"%\((\w+)\)s", text), "")
            except (ValueError, TypeError) as error:
                faults.append(f"{text!r}: {error}")
    assert not faults, "\n".join(faults)


_VERBS_THAT_ARE_NOUNS = (
    "Archive",
    "Change",
    "Copy",
    "Draft",
    "Export",
    "Open",
    "Order",
    "Pause",
    "Review",
    "Share",
    "Test",
)


def test_buttons_that_could_be_nouns_have_a_context() -> None:
    """A button such as Copy is marked as a verb, because other languages have another word for the noun."""
    unmarked = re.compile(rf"""_\(["']({"|".join(_VERBS_THAT_ARE_NOUNS)})["']\)""")
    assert [path.name for path in Path("ui/html").rglob("*.html") if unmarked.search(path.read_text())] == []


# The quotation marks of each language, with the narrow spaces of French inside them.
_QUOTATION_MARKS = {
    "de": ("„", "“"), "es": ("“", "”"), "fr": ("«\u202f", "\u202f»"), "it": ("“", "”"), "ja": ("「", "」"),
    "nl": ("“", "”"), "pl": ("„", "”"), "pt_BR": ("“", "”"),
}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_quote_what_the_text_quotes(language: str) -> None:
    """A value in quotation marks has those of the language in its translation."""
    before, after = map(re.escape, _QUOTATION_MARKS[language])
    faults, quoted = [], 0
    for message in read_catalogue(language):
        if not message.id:
            continue
        text = message.id if isinstance(message.id, str) else message.id[-1]
        values = re.findall(r"“%\((\w+)\)s”", text)
        quoted += len(values)
        for translation in [message.string] if isinstance(message.string, str) else message.string:
            faults += [
                f"{name}: {translation!r}"
                for name in values
                if not re.search(rf"{before}%\({name}\)s{after}", translation)
            ]
    assert not faults and quoted > 100, "\n".join(faults)


# What notices and questions say of the name of a list, campaign, file or other thing that users name.
_NAMED = re.compile(
    r"(?:Account|Campaign|Form|List|Segment|Tag|form|tag|template|copy of|merged into|(?:added to|removed from|from)) "
    r"%\(name\)s[.: ?]|^(?:Archive|Cancel|Close|Delete|Disconnect|Permanently delete|Reject|Resume|Revoke|Start) "
    r"%\(name\)s\?$|^%\(name\)s (?:archived|deleted|restored|added\.|is "
    r"(?:archived|in use|live|paused|ready|scheduled)|was (?:added|deleted|discarded|paused|permanently|rejected))"
)


def test_notices_and_questions_quote_names() -> None:
    """“Delete me” was deleted: without quotation marks, a name of several words reads as part of the sentence."""
    texts = [
        text
        for message in catalogues.extract()
        for text in ((message.id,) if isinstance(message.id, str) else message.id)
    ]
    assert not [text for text in texts if _NAMED.search(text)]
    assert sum(bool(_NAMED.search(text.translate({ord("“"): None, ord("”"): None}))) for text in texts) > 50


def test_texts_say_no_longer() -> None:
    """A text says "is no longer open", not "is not open any more"; of things, "any more" is right."""
    texts = [
        text
        for message in catalogues.extract()
        for text in ((message.id,) if isinstance(message.id, str) else message.id)
        if re.search(r"\bany ?more\b", text) and "we will not send you any more. If you" not in text
    ]
    assert not texts
