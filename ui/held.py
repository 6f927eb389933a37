"""What somebody had typed when they turned out to be signed out: carried by the sign-in page, never kept here."""

import msgspec
from sanic import Request

# Nothing that must not stand in a page
_SECRET = ("password", "secret", "token")
_READS = msgspec.json.Decoder(list[tuple[str, str]])


def of(request: Request) -> str:
    """Return the fields of a posted form as a text; empty where there is nothing to hold."""
    posted: dict[str, list[str]] = dict(request.get_form(keep_blank_values=True) or {})
    fields = [
        (name, value)
        for name, values in posted.items()
        if not any(word in name for word in _SECRET)
        for value in values
    ]
    return msgspec.json.encode(fields).decode() if fields else ""


def fields(text: str) -> list[tuple[str, str]]:
    """Return the fields of such a text; none where it was tampered with."""
    try:
        return _READS.decode(text)
    except msgspec.DecodeError:
        return []
