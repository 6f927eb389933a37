"""Comparing text without case, in SQL and in Python alike.

Case is folded letter by letter (Unicode's simple folding), and no letter outside ASCII ever becomes one inside. So a
value of ASCII letters can be compared by SQLite's own NOCASE and LIKE, at full speed and from an index; only other
values need the function `folded` that is registered here.
"""

import re
from functools import lru_cache

from appliance.db.open import database
from appliance.filters.scope import Binder


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


def pattern(shape: str, text: str) -> str:
    """Answer the LIKE pattern that has a text at the `{}` of a shape, every letter standing for itself."""
    return shape.format(re.sub(r"([\\%_])", r"\\\1", text))


def like(expression: str, shape: str, text: str, binder: Binder) -> str:
    """Compare with a pattern without case; only for a text of ASCII letters."""
    wanted = pattern(shape, text)
    escape = " ESCAPE '\\'" if "\\" in wanted else ""
    return f"{expression} LIKE {binder.add(wanted)}{escape}"


def _folded(value: object) -> str | None:
    return fold(value) if isinstance(value, str) else None


database.register_function(_folded, "folded", 1)
