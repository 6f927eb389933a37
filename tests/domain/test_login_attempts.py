"""Failed sign-in attempts are limited by mailbox and by client, also when many come at once."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import request_limits
from appliance.core.errors import RateLimitExceeded
from tests.domain.home import Home


@pytest.fixture(autouse=True)
def _clear_attempts(home: Home) -> None:
    request_limits._failures.clear()
    request_limits._running.clear()


def fail(*names: str) -> None:
    """Record one failed attempt under these names."""
    with request_limits.limit_attempt(*names) as attempt:
        attempt.fail()


def test_the_eleventh_failed_attempt_is_rejected(home: Home) -> None:
    """After ten failures either name is blocked for about 15 minutes; other names are not."""
    for _ in range(10):
        fail("email:a", "client:b")
    for names in (("email:a", "client:c"), ("email:d", "client:b")):
        with pytest.raises(RateLimitExceeded) as error_info:
            fail(*names)
        assert 890 <= error_info.value.retry_after <= 901
    fail("email:d", "client:c")
    home.advance(15 * 60 + 1)
    fail("email:a", "client:b")


def test_running_attempts_count_towards_the_limit() -> None:
    """Ten running attempts block the eleventh; successful attempts and attempts that raised do not count."""
    attempts = [request_limits.limit_attempt("email:a") for _ in range(10)]
    for attempt in attempts:
        attempt.__enter__()
    with pytest.raises(RateLimitExceeded) as error_info:
        fail("email:a")
    assert error_info.value.retry_after == 1
    for attempt in attempts:
        attempt.__exit__(None, None, None)
    for _ in range(50):
        with request_limits.limit_attempt("email:a"):
            pass
    with pytest.raises(ZeroDivisionError), request_limits.limit_attempt("email:a"):
        raise ZeroDivisionError
    assert not request_limits._running and not request_limits._failures


def test_spellings_of_a_mailbox_and_client_share_a_limit() -> None:
    """All spellings of an address have one key; IPv6 clients are keyed by network, IPv4 clients by address."""
    assert len({request_limits.email_key(text) for text in (
        "Ann@bücher.example", " ann@BÜCHER.example", "ANN@xn--bcher-kva.example")}) == 1  # fmt: skip
    assert request_limits.client_key("2001:db8::1") == request_limits.client_key("2001:db8::ffff:2")
    assert request_limits.client_key("192.0.2.1") != request_limits.client_key("192.0.2.2")


@given(st.lists(st.sampled_from(["wrong", "right", "open", "close"]), max_size=60))
def test_any_order_of_attempts_keeps_the_limit(acts: list[str]) -> None:
    """In any order of attempts, running and failed ones together are never more than ten."""
    request_limits._failures.clear()
    request_limits._running.clear()
    open_attempts = []
    for act in acts:
        if act == "close" and open_attempts:
            open_attempts.pop().__exit__(None, None, None)
            continue
        attempt = request_limits.limit_attempt("x")
        try:
            result = attempt.__enter__()
        except RateLimitExceeded:
            continue
        open_attempts.append(attempt)
        if act in ("wrong", "right"):
            open_attempts.pop()
            result.has_failed = act == "wrong"
            attempt.__exit__(None, None, None)
        assert request_limits._running["x"] + len(request_limits._failures.get("x", ())) <= 10


def test_a_long_text_has_a_key_within_milliseconds() -> None:
    """The key of two megabytes of letters that change when they are composed takes no longer than one of an address."""
    for letter in ("\u0130", "\u0344", "\u00df"):
        text = letter * 1_000_000
        started_at = time.perf_counter()
        assert len(request_limits.email_key(text)) <= 270
        assert time.perf_counter() - started_at < 0.1, letter
