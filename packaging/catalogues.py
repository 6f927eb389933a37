"""Brings the catalogues of texts up to date with the sources: `.venv/bin/python packaging/catalogues.py`.

Without an argument it writes the texts of the sources into every catalogue; entries of texts that are gone are removed.
`missing LANGUAGE` prints the entries without a translation as JSON, and `fill LANGUAGE FILE` stores translations from
JSON of the same form: a list of objects with `text`, `plural` or null, `context` or null, and `translation` (a text, or
a list with one text for each plural form).
"""

import io
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from babel.core import Locale
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from appliance.core import i18n

_PYTHON_KEYWORDS: dict[str, Any] = {
    "gettext": None, "gettext_noop": None, "ngettext": (1, 2), "pgettext": ((1, "c"), 2), "t": None, "_": None,
    "pgettext_noop": ((1, "c"), 2), "gettext_stored": None,
}  # fmt: skip
_SOURCES = (("appliance", "**.py", "python"), ("ui", "**.py", "python"), ("ui/html", "**.html", "jinja2"),
    ("appliance/public", "**.html", "jinja2"), ("static/js", "**.js", "javascript"))  # fmt: skip
_UNUSED_HEADERS = tuple(
    b'"' + name
    for name in (
        b"Project",
        b"Report",
        b"POT-Creation",
        b"PO-Revision",
        b"Last-Translator",
        b"Language-Team",
        b"Generated",
    )
)
_OPTIONS = {"jinja2": {"trimmed": "true", "silent": "false", "trim_blocks": "true", "lstrip_blocks": "true"}}


def list_files() -> list[Path]:
    """Return the files that have texts."""
    return sorted(
        {file for directory, pattern, _ in _SOURCES for file in (ROOT / directory).glob(f"**/*{pattern[2:]}")}
    )


@cache
def extract() -> Catalog:
    """Return a catalogue of all texts of the sources, with the files that use them."""
    catalogue = Catalog(project="Campanero", charset="utf-8")
    for directory, pattern, method in _SOURCES:
        entries = extract_from_dir(
            ROOT / directory, [(pattern, method)], {pattern: _OPTIONS.get(method, {})}, _PYTHON_KEYWORDS, ("i18n:",)
        )
        for name, _, message, comments, context in entries:
            catalogue.add(message, None, [(f"{directory}/{name}", None)], auto_comments=comments, context=context)
    return catalogue


def path_of(language: str) -> Path:
    """Return the path of the catalogue of a language."""
    return ROOT / i18n.DIRECTORY / language / "LC_MESSAGES" / f"{i18n.DOMAIN}.po"


def read(language: str) -> Catalog:
    """Return the catalogue of a language; an empty one if there is none yet."""
    path = path_of(language)
    if not path.exists():
        return Catalog(Locale.parse(language), project="Campanero", charset="utf-8")
    return read_po(io.BytesIO(path.read_bytes()), locale=language)


def write(language: str, catalogue: Catalog) -> None:
    """Write a catalogue, sorted by text, so that two changes of it seldom meet."""
    path = path_of(language)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    catalogue.header_comment, catalogue.fuzzy = f"# The texts of Campanero in {catalogue.locale.english_name}.", False
    write_po(content, catalogue, width=120, sort_output=True, ignore_obsolete=True, include_lineno=False)
    # Of the header only what programs read: with times and names every two branches would conflict
    lines = content.getvalue().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if not line.startswith(_UNUSED_HEADERS)))


def update(language: str) -> Catalog:
    """Return the catalogue of a language with the texts of the sources; nothing is guessed from similar texts."""
    catalogue = read(language)
    catalogue.update(extract(), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    return catalogue


def is_complete(message: Message) -> bool:
    """Return whether an entry has a translation, in all plural forms."""
    texts = message.string if isinstance(message.string, tuple | list) else [message.string]
    return bool(texts) and all(texts) and not message.fuzzy


def missing(language: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a language without a translation."""
    for message in update(language):
        if message.id and not is_complete(message):
            text, plural = (message.id, None) if isinstance(message.id, str) else message.id
            where = sorted({name for name, _ in message.locations})
            yield {"text": text, "plural": plural, "context": message.context, "files": where, "translation": None}


def fill(language: str, path: Path) -> None:
    """Store translations from a file in a catalogue. Raises ValueError for a text that the sources do not have."""
    catalogue = update(language)
    for entry in json.loads(path.read_text(encoding="utf-8")):
        message = catalogue.get(entry["text"], entry.get("context"))
        if message is None:
            raise ValueError(f"no such text: {entry['text']}")
        if entry["translation"]:
            translation = entry["translation"]
            message.string = tuple(translation) if isinstance(translation, list) else translation
            message.flags.discard("fuzzy")
    write(language, catalogue)


def main(arguments: list[str]) -> None:
    """Run a command of the module's docstring."""
    match arguments:
        case []:
            for language in sorted(path.name for path in (ROOT / i18n.DIRECTORY).iterdir() if path.is_dir()):
                write(language, update(language))
        case ["missing", language]:
            print(json.dumps([*missing(language)], ensure_ascii=False, indent=1))
        case ["fill", language, name]:
            fill(language, Path(name))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
