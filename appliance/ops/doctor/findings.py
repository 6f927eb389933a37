"""What a check says."""

from typing import Literal, NamedTuple

MAX_SHOWN = 10


class Line(NamedTuple):
    """What a check found, and what to paste or do about it where there is one such thing."""

    level: Literal["ok", "warn", "fail"]
    check: str
    words: str
    fix: str = ""


class Over(Exception):
    """Nothing more can be checked."""
