"""Rehearsals wait for each other, and nobody else waits for them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.errors import TooMany
from appliance.flows import bulk_simulation
from appliance.storage import work
from tests.domain.home import Home


def test_rehearsals_leave_room_for_those_who_read(home: Home) -> None:
    """While several are asked for, one runs, and whoever reads is answered; also once those who asked have gone."""
    work.start()
    go_on, begun = threading.Event(), []

    def long() -> None:
        begun.append(1)
        assert go_on.wait(20)

    async def ask() -> None:
        asked = [asyncio.create_task(bulk_simulation.rehearse(long)) for _ in range(4)]
        while not begun:
            await asyncio.sleep(0.001)
        assert await asyncio.wait_for(work.call(lambda: len(begun)), 10) == 1
        for task in asked[:2]:
            task.cancel()
        assert await asyncio.wait_for(work.call(lambda: len(begun)), 10) == 1
        go_on.set()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 2 + [type(None)] * 2

    asyncio.run(ask())
    assert len(begun) == 3


def test_a_long_queue_takes_nobody_in(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many wait the next is told to come back, but not who has changed something already."""
    work.start()
    monkeypatch.setattr(bulk_simulation, "_MAX_WAITING", 0)

    async def ask(function: Callable[[], Any], **options: bool) -> Any:
        return await bulk_simulation.rehearse(function, **options)

    with pytest.raises(TooMany):
        asyncio.run(ask(lambda: 5))
    assert asyncio.run(ask(lambda: 5, refuses=False)) == 5
