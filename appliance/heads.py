"""What a request's head says: its path and its headers; `http_reading` refuses the heads that are malformed."""

from sanic import Request
from sanic.http.http1 import Http

# A credential that is far too long is refused as one that is wrong
HEAD_BYTES = 32_768
_LINE_BYTES = 8_192


async def read_as_text(request: Request) -> None:
    """Read what is no UTF-8 in a header as the sign for that: old programs send such names, and no row holds them."""
    if request.head.isascii():
        return
    said = [
        (name, value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        for name, value in request.headers.items()
    ]
    request.headers.clear()
    request.headers.extend(said)


def is_unread(request: Request) -> bool:
    """Return whether this stands for a request whose head could not be read: Sanic makes one up for its refusal."""
    return not request.head


def path(request: Request) -> str:
    """Return the path as the router reads it, without slashes at its end, also where a request could not be read."""
    if is_unread(request) and isinstance(request.stream, Http):
        line = bytes(request.stream.recv_buffer[:_LINE_BYTES]).split(b"\r\n", 1)[0].split(b" ")
        if len(line) > 1:
            return line[1].partition(b"?")[0].decode("latin-1").rstrip("/") or "/"
    return request.path.rstrip("/") or "/"
