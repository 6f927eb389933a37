"""Files made while they are sent: nothing of them is kept, however large they are."""

import logging
from collections.abc import Iterable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.db.work import call

log = logging.getLogger("campanero.pages")


async def send(request: Request, name: str, kind: str, pieces: Iterable[bytes | str]) -> HTTPResponse | None:
    """Send what is made piece by piece as a file; what fails before the first piece is a refusal like any other.

    A failure after it can only break the connection, which tells the browser that the file is not whole.
    """
    made = iter(pieces)
    piece = await call(next, made, None)
    headers = {
        "content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store",
        "x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'",
    }  # fmt: skip
    response: Any = await request.respond(status=200, headers=headers, content_type=kind)
    try:
        while piece is not None:
            if piece:
                await response.send(piece)
            piece = await call(next, made, None)
    except Exception:
        log.exception("the file %s broke off", name)
        if request.transport is not None:
            request.transport.abort()  # type: ignore[attr-defined]  # the library declares less than what it passes
        return None
    await response.eof()
    return None
