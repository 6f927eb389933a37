"""Text without case, as SQL and Python see it alike.

Case is folded letter by letter (Unicode's simple folding), and no letter outside ASCII ever becomes one inside.
"""

import unicodedata
from functools import lru_cache


@lru_cache(maxsize=4096)
def _letter(char: str) -> str:
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1 and not folded.isascii():
            return folded
    return char


def fold(text: str) -> str:
    """Return a text in the form in which two that differ only by case are the same."""
    if text.isascii():
        return text.lower()
    return "".join(char.lower() if char.isascii() else _letter(char) for char in text)


def name_key(text: str) -> str:
    """Return the form in which two names of one thing are the same: without case, surrounding space, and composed."""
    return fold(unicodedata.normalize("NFC", text.strip()))


def folded(value: object) -> str | None:
    """Return what SQL's function of that name does: a text folded, NULL for anything else."""
    return fold(value) if isinstance(value, str) else None
