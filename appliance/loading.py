"""Handlers whose modules are loaded when somebody first asks: a start need not load what nobody asks for yet.

Whoever asks first waits for it on another thread, while the loop goes on for others. Soon after a start
`appliance/later.py` has loaded all of it, and lets those go first who ask meanwhile.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")
# What was asked for is made with what was loaded for it, which takes as long again
_HANDING_SECONDS = 1.0
# A module that stands in `sys.modules` may be half of one, which another thread loads
_whole: dict[str, Any] = {}
_under_way: dict[str, asyncio.Future[Any]] = {}
_until = 0.0


async def once(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """Return what a function does that loads modules, on another thread; who asks for the same name waits for that."""
    going: asyncio.Future[T] | None = _under_way.get(name)
    if going is None:
        going = asyncio.get_running_loop().run_in_executor(None, _joined, function, *arguments)
        _under_way[name] = going
        going.add_done_callback(partial(_done, name))
    # Who leaves does not take it away from the others
    return await asyncio.shield(going)


def join() -> None:
    """Load what others rely on without knowing of it (`appliance/joined.py`)."""
    import_module("appliance.joined")


def _joined(function: Callable[..., T], *arguments: Any) -> T:
    join()
    return function(*arguments)


def _done(name: str, future: "asyncio.Future[Any]") -> None:
    global _until
    del _under_way[name]
    if not future.cancelled() and future.exception() is None:
        _until = time.monotonic() + _HANDING_SECONDS


def is_asked() -> bool:
    """Return whether somebody waits for a module, or for what is made with it."""
    return bool(_under_way) or time.monotonic() < _until


async def module(name: str) -> Any:
    """Return a module, loaded if it is not yet."""
    found = _whole.get(name)
    if found is None:
        found = _whole[name] = await once(name, import_module, name)
    return found


def handler(name: str, function: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return what stands for an asynchronous function of a module, and loads that when it is first called."""

    async def handle(*arguments: Any, **values: Any) -> Any:
        return await getattr(await module(name), function)(*arguments, **values)

    return handle
