"""Catalogues of two made-up languages, in which a page shows at a glance which of its texts are not translated.

Each text is put in brackets and lengthened by two fifths, as in German or Finnish: `⟦Save changes ǂǂǂǂǂ⟧`. A text
without brackets is not marked for translation, and two pairs of brackets in one sentence are a sentence made of parts.
A server shows them with `Server(env=pseudo_languages.environment(directory))`.
"""

import fcntl
import hashlib
import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po

from tests.kit.server import ROOT

# The codes of languages whose dates and plural forms Babel knows, and which no catalogue of the product has.
LONG, RIGHT_TO_LEFT = "fi", "he"
OPENING, CLOSING, FILLER = "⟦", "⟧", "ǂ"
_GROWTH = 0.4
# The parts of a text that must stay as they are: values, percent signs, HTML tags and entities
_KEPT = re.compile(r"%\(\w+\)s|%%|<[^<>]*>|&\w+;")


def transform(text: str) -> str:
    """Return a text in a made-up language, with its values, HTML tags and entities."""
    visible = len(_KEPT.sub("", text))
    # Words of seven letters, so that a browser can break the line between them
    words = [FILLER * 7] * (round(visible * _GROWTH) // 8) + [FILLER * (round(visible * _GROWTH) % 8)]
    return f"{OPENING}{' '.join([text, *filter(None, words)])}{CLOSING}"


@cache
def _extract() -> list[tuple[Any, str | None]]:
    """Return text and context of each message of the sources; a text with a plural is a list of both.

    They are looked for once for all processes that test the same sources, because it takes seconds of a processor.
    """
    sys.path.append(str(ROOT / "packaging"))
    import catalogues

    stored = ROOT / "build" / "texts" / f"{_sources_digest(catalogues.list_files())}.json"
    stored.parent.mkdir(parents=True, exist_ok=True)
    with (stored.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            for outdated in stored.parent.glob("*.json"):
                outdated.unlink()
            messages = [(message.id, message.context) for message in catalogues.extract() if message.id]
            stored.write_text(json.dumps(messages), encoding="utf-8")
    return [(text, context) for text, context in json.loads(stored.read_text(encoding="utf-8"))]


def _sources_digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def build_catalogue(language: str, texts: Sequence[str] = ()) -> bytes:
    """Return the catalogue (`.po`) of a made-up language with these texts, by default with all texts of the sources."""
    result = Catalog(language, charset="utf-8")
    for message, context in [(text, None) for text in texts] or _extract():
        forms = [transform(text) for text in ([message] if isinstance(message, str) else message)]
        # The first plural form is for one, all others are for more
        translation = (forms[0], *[forms[-1]] * (result.num_plurals - 1)) if len(forms) > 1 else forms[0]
        result.add(message, translation, context=context)
    content = io.BytesIO()
    write_po(content, result, width=0)  # to wrap the lines takes longer than all the rest
    return content.getvalue()


def environment(directory: Path, texts: Sequence[str] = ()) -> dict[str, str]:
    """Write the catalogues into a directory, and return the environment of a server that supports their languages.

    They have all texts of the sources, or only `texts`: to look for all takes seconds.
    """
    for language in (LONG, RIGHT_TO_LEFT):
        (directory / f"{language}.po").write_bytes(build_catalogue(language, texts))
    return {"CAMPANERO_TEST_CATALOGUES": str(directory)}
