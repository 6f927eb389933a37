"""Secrets that are shown once: kept in memory from the form that made them to the page that shows them."""

from typing import Any

_kept: dict[tuple[int, str], Any] = {}


def keep(session_id: int, kind: str, shown: Any) -> None:
    """Keep something for the next page of its kind that a session asks for, whatever it looks at meanwhile."""
    if len(_kept) > 1000:
        _kept.clear()
    _kept[session_id, kind] = shown


def take(session_id: int, kind: str) -> Any:
    """Return it, for the first and only time."""
    return _kept.pop((session_id, kind), None)
