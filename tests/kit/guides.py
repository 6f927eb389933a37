"""The guides as they are served: their blocks of code, what they promise of them, and their links."""

import ast
import html
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_CODE = re.compile(r'<code class="language-(\w+)"(?: data-(\w+))?>(.*?)</code></pre>', re.DOTALL)
_MARK = "@@ block "
# Stands in an answer for what is another each time
ANYTHING = "…"


class Block(NamedTuple):
    """A block of code: its language, what it is marked as (`run`, `answer` or nothing), and its text."""

    language: str
    mark: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of code of a page, in their order."""
    return [Block(language, mark or "", html.unescape(text)) for language, mark, text in _CODE.findall(page)]


def program(some: list[Block], language: str) -> str:
    """Return what to run: all blocks of a language, one after the other, each announced in the output."""
    say = {"sh": "printf '\\n%s%s\\n' '{}' {}\n", "python": "print('\\n' + '{}' + '{}')\n"}[language]
    parts = (
        say.format(_MARK, number) + one.text + "\n"
        for number, one in enumerate(some) if (one.language, one.mark) == (language, "run")
    )  # fmt: skip
    return "".join(parts)


def said(output: str) -> dict[int, str]:
    """Return what each block wrote, by its number."""
    found = re.split(rf"^{_MARK}(\d+)\n", output, flags=re.MULTILINE)[1:]
    return {int(number): text for number, text in zip(found[::2], found[1::2], strict=True)}


def promises(some: list[Block]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each block that is run, with the answer that stands below it."""
    waiting: list[int] = []
    for number, one in enumerate(some):
        if one.mark == "run":
            waiting = [other for other in waiting if some[other].language != one.language] + [number]
        elif one.mark == "answer":
            yield from ((other, json.loads(one.text)) for other in waiting)
            waiting = []


def last_value(text: str) -> Any:
    """Return what the last line says, as JSON or as Python writes it."""
    line = text.strip().rsplit("\n", 1)[-1]
    try:
        return json.loads(line)
    except ValueError:
        return ast.literal_eval(line)


def differences(promised: Any, found: Any, where: str = "") -> list[str]:
    """Return where an answer is not what was promised; what it has beyond that is fine."""
    if promised == ANYTHING:
        return []
    if isinstance(promised, dict) and isinstance(found, dict):
        return [
            fault for name, value in promised.items()
            for fault in differences(value, found.get(name), f"{where}.{name}".lstrip("."))
        ]  # fmt: skip
    return [] if promised == found else [f"{where}: {found!r} instead of {promised!r}"]
