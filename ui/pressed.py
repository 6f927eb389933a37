"""One press, one thing: a form that makes or sends something does so once, however often its button is pressed."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from ui import view
from ui.session import Visit

# What comes within it, word for word the same, is the same press; who means it twice sends it again afterwards
_SECONDS = 3.0
_MAX_KEYS = 500
Act = Callable[..., Awaitable[HTTPResponse]]


class _Press:
    """What was sent, while it is done and for a moment after it: where it led, and when."""

    def __init__(self) -> None:
        self.lock, self.led, self.at = asyncio.Lock(), "", 0.0


_presses: "OrderedDict[tuple[int, str, bytes], _Press]" = OrderedDict()


def one_press(function: Act) -> Act:
    """Let the second press of a form wait for the first and lead where that led; a refused one is asked again."""

    @wraps(function)
    async def wrapped(request: Request, visit: Visit, *args: Any, **kwargs: Any) -> HTTPResponse:
        key = (visit.session.id, request.path, hashlib.sha256(request.body).digest())
        press = _presses.setdefault(key, _Press())
        _presses.move_to_end(key)
        while len(_presses) > _MAX_KEYS:
            _presses.popitem(last=False)
        async with press.lock:
            if press.led and time.monotonic() - press.at < _SECONDS:
                return view.go(request, press.led)
            response = await function(request, visit, *args, **kwargs)
            press.led = str(response.headers.get("location") or response.headers.get("hx-redirect") or "")
            press.at = time.monotonic()
            return response

    return wrapped
