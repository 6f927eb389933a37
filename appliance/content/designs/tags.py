"""Merge tags and clean HTML on their way through MJML: words that nothing touches stand for them.

MJML is XML and mails are HTML, and neither knows Liquid: a quote inside a tag would be escaped, a `<` would end it. So
every tag is a plain word while a document is made, and itself again at the end.
"""

import re
import secrets
from typing import Any

# What no text of a mail needs, and XML refuses
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
# In what is known to be a template; texts of unknown make are cut by `split`
TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
# What begins a merge tag, and what ends it
_ENDS = {"{{": "}}", "{%": "%}"}
_BEGIN = re.compile(r"\{[{%]")


def split(text: str) -> list[str]:
    """Cut a text at its merge tags: every second part is one. In one pass, however many of them never end."""
    parts: list[str] = []
    position = cut = 0
    ends = dict(_ENDS)
    while ends and (found := _BEGIN.search(text, position)) is not None:
        position = found.end()
        if found[0] not in ends:
            continue
        end = text.find(ends[found[0]], position)
        if end < 0:
            # Where one does not end, no later one of its make does
            del ends[found[0]]
            continue
        parts += (text[cut : found.start()], text[found.start() : end + 2])
        position = cut = end + 2
    return [*parts, text[cut:]]


def clean(text: str) -> str:
    """Take out control characters."""
    return _CONTROL.sub("", text)


class Tokens:
    """The words that stand for something in one document."""

    def __init__(self) -> None:
        # Nobody can write it into a document, for it is made anew for each; none of it is in what comes out
        self._word = f"q{secrets.token_hex(8)}"
        self._kept: list[str] = []
        self._find = re.compile(f"{self._word}x(\\d+)z")

    def keep(self, text: str) -> str:
        """Return a word that stands for a text until `restore`; words in that text are put back at once."""
        self._kept.append(self.restore(text))
        return f"{self._word}x{len(self._kept) - 1}z"

    def protect(self, value: Any) -> Any:
        """Put words for the merge tags of every string in a document, and take control characters out."""
        if isinstance(value, str):
            value = clean(value)
            if "{" not in value:
                return value
            return "".join(self.keep(part) if index % 2 else part for index, part in enumerate(split(value)))
        if isinstance(value, dict):
            return {key: self.protect(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.protect(one) for one in value]
        return value

    def unprotect(self, value: Any) -> Any:
        """Return a part of a document as it was before `protect`."""
        if isinstance(value, str):
            return self.restore(value)
        if isinstance(value, dict):
            return {key: self.unprotect(one) for key, one in value.items()}
        return [self.unprotect(one) for one in value] if isinstance(value, list) else value

    def starts(self, text: str) -> bool:
        """Return whether a text begins with such a word."""
        return self._find.match(text) is not None

    def has(self, text: str) -> bool:
        """Return whether such a word is in a text."""
        return self._find.search(text) is not None

    def restore(self, text: str) -> str:
        """Put back what the words stand for, in one pass: kept texts have none."""
        return self._find.sub(self._meant, text)

    def _meant(self, found: re.Match[str]) -> str:
        number = found[1]
        # A number that was never given out stays as it stands
        return self._kept[int(number)] if len(number) < 10 and int(number) < len(self._kept) else found[0]
