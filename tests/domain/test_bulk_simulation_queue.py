"""Bulk simulations run one after the other without delaying other reads."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.errors import RateLimitExceeded
from appliance.flows import simulation_bulk
from appliance.storage import transactions
from tests.domain.home import Home


def test_simulations_do_not_block_reads(home: Home) -> None:
    """One simulation runs at a time and reads continue meanwhile, also after requests were cancelled."""
    transactions.start()
    may_end, started = threading.Event(), []

    def run_long_simulation() -> None:
        started.append(1)
        assert may_end.wait(20)

    async def request_simulations() -> None:
        tasks = [asyncio.create_task(simulation_bulk.run_in_turn(run_long_simulation)) for _ in range(4)]
        while not started:
            await asyncio.sleep(0.001)
        assert await asyncio.wait_for(transactions.fetch(lambda: len(started)), 10) == 1
        for task in tasks[:2]:
            task.cancel()
        assert await asyncio.wait_for(transactions.fetch(lambda: len(started)), 10) == 1
        may_end.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2 + [type(None)] * 2

    asyncio.run(request_simulations())
    assert len(started) == 3


def test_a_full_queue_rejects_simulations(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `_MAX_WAITING` reached RateLimitExceeded is raised, unless `refuses` is false."""
    transactions.start()
    monkeypatch.setattr(simulation_bulk, "_MAX_WAITING", 0)

    async def run_in_turn(function: Callable[[], Any], **options: bool) -> Any:
        return await simulation_bulk.run_in_turn(function, **options)

    with pytest.raises(RateLimitExceeded):
        asyncio.run(run_in_turn(lambda: 5))
    assert asyncio.run(run_in_turn(lambda: 5, refuses=False)) == 5
