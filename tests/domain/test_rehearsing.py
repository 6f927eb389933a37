"""Rehearsals wait for each other, and nobody else waits for them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.errors import RateLimitExceeded
from appliance.flows import simulation_bulk
from appliance.storage import transactions
from tests.domain.home import Home


def test_rehearsals_leave_room_for_those_who_read(home: Home) -> None:
    """While several are asked for, one runs, and whoever reads is answered; also once those who asked have gone."""
    transactions.start()
    go_on, begun = threading.Event(), []

    def long() -> None:
        begun.append(1)
        assert go_on.wait(20)

    async def ask() -> None:
        asked = [asyncio.create_task(simulation_bulk.run_in_turn(long)) for _ in range(4)]
        while not begun:
            await asyncio.sleep(0.001)
        assert await asyncio.wait_for(transactions.fetch(lambda: len(begun)), 10) == 1
        for task in asked[:2]:
            task.cancel()
        assert await asyncio.wait_for(transactions.fetch(lambda: len(begun)), 10) == 1
        go_on.set()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 2 + [type(None)] * 2

    asyncio.run(ask())
    assert len(begun) == 3


def test_a_long_queue_takes_nobody_in(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many wait the next is told to come back, but not who has changed something already."""
    transactions.start()
    monkeypatch.setattr(simulation_bulk, "_MAX_WAITING", 0)

    async def ask(function: Callable[[], Any], **options: bool) -> Any:
        return await simulation_bulk.run_in_turn(function, **options)

    with pytest.raises(RateLimitExceeded):
        asyncio.run(ask(lambda: 5))
    assert asyncio.run(ask(lambda: 5, refuses=False)) == 5
