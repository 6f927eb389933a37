"""The guides as they are served: their code blocks, expected results and links."""

import ast
import html
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_CODE = re.compile(r'<code class="language-(\w+)"(?: data-(\w+))?>(.*?)</code></pre>', re.DOTALL)
_MARK = "@@ block "
# In an expected result: a value that differs each time
ANYTHING = "…"


class Block(NamedTuple):
    """A code block: its language, its mark (`run`, `answer` or none), and its text."""

    language: str
    mark: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    return [Block(language, mark or "", html.unescape(text)) for language, mark, text in _CODE.findall(page)]


def join_blocks(code_blocks: list[Block], language: str) -> str:
    """Return a program of all blocks of a language, which prints a separator before each."""
    separators = {"sh": "printf '\\n%s%s\\n' '{}' {}\n", "python": "print('\\n' + '{}' + '{}')\n"}[language]
    parts = (
        separators.format(_MARK, number) + block.text + "\n"
        for number, block in enumerate(code_blocks) if (block.language, block.mark) == (language, "run")
    )  # fmt: skip
    return "".join(parts)


def split_output(output: str) -> dict[int, str]:
    """Return the output of each block by its number, given the output of a program of `join_blocks`."""
    parts = re.split(rf"^{_MARK}(\d+)\n", output, flags=re.MULTILINE)[1:]
    return {int(number): text for number, text in zip(parts[::2], parts[1::2], strict=True)}


def expected_results(code_blocks: list[Block]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each block that is run, with the expected result below it."""
    waiting: list[int] = []
    for number, block in enumerate(code_blocks):
        if block.mark == "run":
            waiting = [other for other in waiting if code_blocks[other].language != block.language] + [number]
        elif block.mark == "answer":
            yield from ((other, json.loads(block.text)) for other in waiting)
            waiting = []


def last_value(text: str) -> Any:
    """Return the value in the last line, which is JSON or a Python literal."""
    line = text.strip().rsplit("\n", 1)[-1]
    try:
        return json.loads(line)
    except ValueError:
        return ast.literal_eval(line)


def differences(expected: Any, actual: Any, where: str = "") -> list[str]:
    """Return where a result differs from the expected one; additional keys are allowed."""
    if expected == ANYTHING:
        return []
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            fault for name, value in expected.items()
            for fault in differences(value, actual.get(name), f"{where}.{name}".lstrip("."))
        ]  # fmt: skip
    return [] if expected == actual else [f"{where}: {actual!r} instead of {expected!r}"]
