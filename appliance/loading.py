"""Handlers whose modules are loaded when somebody first asks: a start need not load what nobody asks for yet.

Whoever asks first waits for it on another thread, while the loop goes on for others. Soon after a start
`appliance/later.py` has loaded all of it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

# A module that stands in `sys.modules` may be half of one, which another thread loads
_whole: dict[str, Any] = {}


async def module(name: str) -> Any:
    """Answer a module, loaded if it is not yet."""
    found = _whole.get(name)
    if found is None:
        found = _whole[name] = await asyncio.get_running_loop().run_in_executor(None, import_module, name)
    return found


def handler(name: str, function: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Answer what stands for an asynchronous function of a module, and loads that when it is first called."""

    async def handle(*arguments: Any, **values: Any) -> Any:
        return await getattr(await module(name), function)(*arguments, **values)

    return handle
