"""The test of a store: one that hangs takes no thread from the requests of others."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.ops.copy_jobs import store_check
from appliance.ops.stores.base import Refused
from appliance.settings.copies import Copies
from ui.pages import backup_store


def test_tests_that_hang_leave_the_service_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request gets its answer in time; further tests are refused, and other work goes on."""
    ended = threading.Event()
    monkeypatch.setattr(store_check, "check_store", lambda copies: ended.wait(30))
    monkeypatch.setattr(backup_store, "_TEST_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(backup_store, "gettext", lambda text, **values: text)

    async def run() -> list[str]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        try:
            words = [(await backup_store._check(Copies()))["words"] for _ in range(5)]
            async with asyncio.timeout(2):
                assert await asyncio.to_thread(lambda: 1) == 1
            return words
        finally:
            ended.set()

    words = asyncio.run(run())
    for thread in threading.enumerate():
        if thread.name == "store-test":
            thread.join(10)  # until then it counts as running, for the next test too
    assert words[3:] == ["earlier tests of the storage have not ended yet"] * 2 and words[2].startswith("There was no")


def test_the_error_of_a_test_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the request that waits for it."""

    def fail(copies: Copies) -> None:
        raise Refused("no")

    monkeypatch.setattr(store_check, "check_store", fail)
    for _ in range(5):
        with pytest.raises(Refused):
            asyncio.run(store_check.check_in_thread(Copies()))
