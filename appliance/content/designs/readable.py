"""Texts with merge tags as people read them: in lists and titles, where there is no contact to fill them with."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from appliance.content.designs import tags
from appliance.content.designs.merge import MergeError, compile_template

_BLOCK = re.compile(r"\{%-?\s*([a-z]+)")
_PATH = re.compile(r"\{\{-?\s*([A-Za-z][A-Za-z0-9_.]*)")
# A title of a list holds no more; a body is cut to what a list shows of it
MAX_CHARACTERS = 2_000


def label(name: str) -> str:
    """Return what a merge tag is called: `contact.first_name` is First name."""
    return name.rpartition(".")[2].replace("_", " ").capitalize()


@lru_cache(maxsize=2_048)
def readable(text: str) -> str:
    """Return a text with each merge tag as its default, else as its name in brackets: `Hi [First name]`.

    Of conditions the first branch is shown. What cannot be parsed keeps its words and loses its tags.
    """
    text = text[:MAX_CHARACTERS]
    if "{{" not in text and "{%" not in text:
        return text
    try:
        compiled = compile_template(text, "text")
        values: dict[str, Any] = {}
        for name, default in compiled.defaults:
            if not default:
                _put(values, name, f"[{label(name)}]")
        return " ".join(compiled.render(values).split())
    except MergeError:
        return " ".join("".join(_first_branches(tags.split(text))).split())


def _put(values: dict[str, Any], name: str, words: str) -> None:
    """Put words where a path leads; a name that is both a value and a path stays a path."""
    *way, last = name.split(".")
    for one in way:
        if not isinstance(values.get(one), dict):
            values[one] = {}
        values = values[one]
    values.setdefault(last, words)


def _first_branches(parts: list[str]) -> Iterator[str]:
    """Yield what stands between the tags, and each value by its name; nothing of further branches."""
    depth = skipped = 0
    for index, part in enumerate(parts):
        block = _BLOCK.match(part) if index % 2 else None
        if block is None:
            if not skipped:
                yield _named(part) if index % 2 else part.replace("{{", "").replace("{%", "")
        elif block[1].startswith("end"):
            skipped = 0 if skipped == depth else skipped
            depth -= 1
        elif block[1] in ("else", "elsif"):
            skipped = skipped or depth
        else:
            depth += 1


def _named(tag: str) -> str:
    match = _PATH.match(tag)
    return f"[{label(match[1])}]" if match else ""
