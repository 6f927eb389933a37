"""Long patterns, compiled when they are first used: hundreds of words take a start milliseconds each."""

import re
from functools import cached_property


class Late:
    """A pattern that is compiled when it is first used."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def _made(self) -> "re.Pattern[str]":
        return re.compile(self._text, self._flags)

    def search(self, text: str) -> "re.Match[str] | None":
        """Look for it anywhere in a text."""
        return self._made.search(text)

    def match(self, text: str) -> "re.Match[str] | None":
        """Look for it at the beginning of a text."""
        return self._made.match(text)

    def fullmatch(self, text: str) -> "re.Match[str] | None":
        """Say whether it is all of a text."""
        return self._made.fullmatch(text)

    def sub(self, by: str, text: str) -> str:
        """Put something else in its place."""
        return self._made.sub(by, text)
