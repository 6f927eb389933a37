"""What is dear is made by one while the others wait for it, and what was known stays known."""

import threading
from concurrent.futures import ThreadPoolExecutor

from appliance.core.cache import CostAwareCache


def test_many_ask_and_one_makes() -> None:
    """Ten at once get the one that was made."""
    rested: CostAwareCache[int] = CostAwareCache(min_age_seconds=60)
    made, all_ask = [], threading.Barrier(10)

    def make() -> int:
        made.append(1)
        return len(made)

    def ask() -> int:
        all_ask.wait(30)
        return rested.get("key", make)

    with ThreadPoolExecutor(10) as pool:
        assert {found.result() for found in [pool.submit(ask) for _ in range(10)]} == {1}
    assert made == [1]


def test_what_was_known_is_told_meanwhile() -> None:
    """While one makes it anew, others may take the old one; nobody waits for another key."""
    rested: CostAwareCache[int] = CostAwareCache(cost_factor=0)
    assert rested.peek("key") is None and rested.get("key", lambda: 1) == 1
    begun, goes_on = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        goes_on.wait(30)
        return 2

    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(rested.get, "key", slow)
        assert begun.wait(30)
        assert (rested.peek("key"), rested.get("other", lambda: 3)) == (1, 3)
        goes_on.set()
        assert made.result() == 2
    assert rested.peek("key") == 2


def test_what_cannot_be_made_leaves_nothing_behind() -> None:
    """A fault is told to whoever asked, and the next one makes it."""
    rested: CostAwareCache[int] = CostAwareCache(min_age_seconds=60)
    try:
        rested.get("key", lambda: 1 // 0)
    except ZeroDivisionError:
        assert rested.get("key", lambda: 5) == 5
    else:
        raise AssertionError("the fault was swallowed")
