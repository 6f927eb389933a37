"""Patterns that are compiled when they are first used, or after the start: three hundred are a tenth of it."""

import re
import time
from typing import Any, AnyStr, cast

_waiting: list["_Late"] = []
_BREATH_SECONDS = 0.001


class _Late:
    """Stands for a pattern; whatever it is asked first it has from then on, so that asking again costs the same."""

    def __init__(self, *wanted: Any) -> None:
        self._wanted = wanted

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # nobody asks a pattern for these but copiers and curious tools
        # The library keeps what it compiled, so two threads that ask at once, or for two things, have the same
        value = getattr(re.compile(*self._wanted), name)
        setattr(self, name, value)
        return value


def late(text: AnyStr, flags: int = 0) -> "re.Pattern[AnyStr]":
    """Return a pattern that `re.compile` would answer, but for errors in it, which come when it is first used."""
    _waiting.append(made := _Late(text, flags))
    return cast("re.Pattern[AnyStr]", made)


def compile_all() -> None:
    """Compile those that nobody used yet; in between, whoever uses one goes first."""
    while _waiting:
        _waiting.pop().fullmatch  # noqa: B018 - asking for it compiles it
        time.sleep(_BREATH_SECONDS)
