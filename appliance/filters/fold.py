"""Comparing text without case, in SQL and in Python alike (`appliance/db/case_folding.py`).

A value of ASCII letters can be compared by SQLite's own NOCASE and LIKE, at full speed and from an index; only other
values need its function `folded`.
"""

import re

from appliance.db.case_folding import fold as fold
from appliance.filters.scope import Binder


def pattern(shape: str, text: str) -> str:
    """Return the LIKE pattern that has a text at the `{}` of a shape, every letter standing for itself."""
    return shape.format(re.sub(r"([\\%_])", r"\\\1", text))


def like(expression: str, shape: str, text: str, binder: Binder) -> str:
    """Compare with a pattern without case; only for a text of ASCII letters."""
    wanted = pattern(shape, text)
    escape = " ESCAPE '\\'" if "\\" in wanted else ""
    return f"{expression} LIKE {binder.add(wanted)}{escape}"
