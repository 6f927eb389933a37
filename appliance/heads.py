"""How a request's head is read: its path, its names, and what may have been read otherwise on its way here."""

from sanic import Request
from sanic.exceptions import BadRequest
from sanic.http.http1 import Http

from appliance.patterns import late

# A credential that is far too long is refused as one that is wrong
HEAD_BYTES = 32_768
_LINE_BYTES = 8_192
# A request's line and its headers: no space before a colon, no line that goes on with the next
_HEAD = late(rb"[^\r\n\0]+(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*)*")


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


async def refuse_malformed(request: Request) -> None:
    """Refuse a head that another program may have read otherwise: where two disagree, requests can be smuggled."""
    if _HEAD.fullmatch(request.head) or is_unread(request):
        return
    # What follows may be the rest of this request or another one; nobody knows, so nobody reads it
    assert isinstance(request.stream, Http), "a request that is handled has its stream"
    request.stream.keep_alive = False
    raise BadRequest("Bad Request")


def is_unread(request: Request) -> bool:
    """Say whether this stands for a request whose head could not be read: the library makes one up for its refusal."""
    return not request.head


def path(request: Request) -> str:
    """Answer the path that was asked for, also where a request was refused before it was read."""
    if is_unread(request) and isinstance(request.stream, Http):
        line = bytes(request.stream.recv_buffer[:_LINE_BYTES]).split(b"\r\n", 1)[0].split(b" ")
        if len(line) > 1:
            return line[1].partition(b"?")[0].decode("latin-1")
    return request.path
