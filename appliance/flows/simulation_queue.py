"""Rehearsals one after the other: each may take seconds, and there are few threads that read."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from appliance.db.work import call
from appliance.errors import TooMany

T = TypeVar("T")

# So many may wait; who comes then is told to come back
_MAX_WAITING = 20
_turn = asyncio.Semaphore(1)
_waiting = 0


async def rehearse(function: Callable[..., T], *arguments: Any, refuses: bool = True) -> T:
    """Run a rehearsal on the reader pool, when those before it are over; raises TooMany where too many wait."""
    global _waiting
    if refuses and _waiting >= _MAX_WAITING:
        raise TooMany("many other rehearsals are waiting", 10)
    _waiting += 1
    try:
        await _turn.acquire()
    finally:
        _waiting -= 1
    running = asyncio.ensure_future(call(function, *arguments))
    running.add_done_callback(_over)
    # Who goes away meanwhile ends nothing: the thread is at work until it is done
    return await asyncio.shield(running)


def _over(done: "asyncio.Future[Any]") -> None:
    _turn.release()
    if not done.cancelled():
        done.exception()  # somebody who has gone away does not hear of it
