"""What an address says of the campaign that it is part of."""

from functools import lru_cache
from urllib.parse import parse_qsl, urlsplit

FIELDS = ("utm_source", "utm_medium", "utm_term", "utm_content", "utm_campaign")
_MAX_CHARACTERS, _MAX_PARTS = 255, 100
_NOTHING: tuple[str | None, ...] = (None,) * len(FIELDS)


@lru_cache(maxsize=4_096)
def of(url: str | None) -> tuple[str | None, ...]:
    """Return the values of `FIELDS` in an address; one that cannot be read says nothing."""
    if not url or "utm_" not in url:
        return _NOTHING
    try:
        query = urlsplit(url).query
    except ValueError:
        return _NOTHING
    said: dict[str, str] = {}
    for name, value in parse_qsl("&".join(query.split("&", _MAX_PARTS)[:_MAX_PARTS]), errors="replace"):
        said.setdefault(name, value[:_MAX_CHARACTERS])
    return tuple(said.get(name) for name in FIELDS)
