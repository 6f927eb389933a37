"""Comparing text without case, in SQL and in Python alike.

Case is folded letter by letter (Unicode's simple folding), and no letter outside ASCII ever becomes one inside. So a
value of ASCII letters can be compared by SQLite's own NOCASE and lower(), at full speed and from an index; only other
values need the function `folded` that is registered here.
"""

from functools import lru_cache

from appliance.db.open import database


@lru_cache(maxsize=4096)
def _letter(char: str) -> str:
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1 and not folded.isascii():
            return folded
    return char


def fold(text: str) -> str:
    """Answer a text in the form in which two that differ only by case are the same."""
    if text.isascii():
        return text.lower()
    return "".join(char.lower() if char.isascii() else _letter(char) for char in text)


def _folded(value: object) -> str | None:
    return fold(value) if isinstance(value, str) else None


database.register_function(_folded, "folded", 1)
