"""The cost-aware cache: one thread computes a value while others wait, and old values stay available."""

import threading
from concurrent.futures import ThreadPoolExecutor

from appliance.core.cache import CostAwareCache


def test_concurrent_requests_compute_once() -> None:
    """Ten threads that request a key at once get the value computed by one of them."""
    cache: CostAwareCache[int] = CostAwareCache(min_age_seconds=60)
    computed, barrier = [], threading.Barrier(10)

    def compute() -> int:
        computed.append(1)
        return len(computed)

    def request() -> int:
        barrier.wait(30)
        return cache.get("key", compute)

    with ThreadPoolExecutor(10) as pool:
        assert {future.result() for future in [pool.submit(request) for _ in range(10)]} == {1}
    assert computed == [1]


def test_the_old_value_is_available_while_computing() -> None:
    """`peek` returns the old value meanwhile, and other keys are not blocked."""
    cache: CostAwareCache[int] = CostAwareCache(cost_factor=0)
    assert cache.peek("key") is None and cache.get("key", lambda: 1) == 1
    started, may_end = threading.Event(), threading.Event()

    def compute_slowly() -> int:
        started.set()
        may_end.wait(30)
        return 2

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(cache.get, "key", compute_slowly)
        assert started.wait(30)
        assert (cache.peek("key"), cache.get("other", lambda: 3)) == (1, 3)
        may_end.set()
        assert future.result() == 2
    assert cache.peek("key") == 2


def test_a_failed_computation_is_not_cached() -> None:
    """The error is raised to the caller, and the next call computes the value."""
    cache: CostAwareCache[int] = CostAwareCache(min_age_seconds=60)
    try:
        cache.get("key", lambda: 1 // 0)
    except ZeroDivisionError:
        assert cache.get("key", lambda: 5) == 5
    else:
        raise AssertionError("the error was swallowed")
