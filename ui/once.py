"""Secrets that are shown once: kept in memory from the form that made them to the page that shows them."""

from typing import Any

_kept: dict[int, Any] = {}


def keep(session_id: int, shown: Any) -> None:
    """Keep something for the next page of a session that asks for it."""
    if len(_kept) > 1000:
        _kept.clear()
    _kept[session_id] = shown


def take(session_id: int) -> Any:
    """Answer it, for the first and only time."""
    return _kept.pop(session_id, None)
