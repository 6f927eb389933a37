"""Guessing is slowed down: by mailbox and by line, also where everything comes at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import rate_limits
from appliance.core.errors import RateLimitExceeded
from tests.domain.home import Home


@pytest.fixture(autouse=True)
def _forgotten(home: Home) -> None:
    rate_limits._failures.clear()
    rate_limits._running.clear()


def fail(*names: str) -> None:
    """Fail once."""
    with rate_limits.limit_attempt(*names) as one:
        one.fail()


def test_ten_failures_and_no_more(home: Home) -> None:
    """The eleventh waits, by either name, and a quarter of an hour later it counts anew."""
    for _ in range(10):
        fail("email:a", "client:b")
    for names in (("email:a", "client:c"), ("email:d", "client:b")):
        with pytest.raises(RateLimitExceeded) as refused:
            fail(*names)
        assert 890 <= refused.value.retry_after <= 901
    fail("email:d", "client:c")
    home.advance(15 * 60 + 1)
    fail("email:a", "client:b")


def test_what_is_open_counts() -> None:
    """A hundred at once are ten; those that were right or broke off give their place back."""
    held = [rate_limits.limit_attempt("email:a") for _ in range(10)]
    for one in held:
        one.__enter__()
    with pytest.raises(RateLimitExceeded) as refused:
        fail("email:a")
    assert refused.value.retry_after == 1
    for one in held:
        one.__exit__(None, None, None)
    for _ in range(50):
        with rate_limits.limit_attempt("email:a"):
            pass
    with pytest.raises(ZeroDivisionError), rate_limits.limit_attempt("email:a"):
        raise ZeroDivisionError
    assert not rate_limits._running and not rate_limits._failures


def test_one_mailbox_and_one_line_have_one_name() -> None:
    """However an address is written it is the same mailbox; an IPv6 line is one client."""
    assert len({rate_limits.email_key(text) for text in (
        "Ann@bücher.example", " ann@BÜCHER.example", "ANN@xn--bcher-kva.example")}) == 1  # fmt: skip
    assert rate_limits.client_key("2001:db8::1") == rate_limits.client_key("2001:db8::ffff:2")
    assert rate_limits.client_key("192.0.2.1") != rate_limits.client_key("192.0.2.2")


@given(st.lists(st.sampled_from(["wrong", "right", "open", "close"]), max_size=60))
def test_no_order_of_things_gives_more_than_ten(acts: list[str]) -> None:
    """Whatever comes in whatever order: open and failed ones together are never more than ten."""
    rate_limits._failures.clear()
    rate_limits._running.clear()
    held = []
    for act in acts:
        if act == "close" and held:
            held.pop().__exit__(None, None, None)
            continue
        one = rate_limits.limit_attempt("x")
        try:
            place = one.__enter__()
        except RateLimitExceeded:
            continue
        held.append(one)
        if act in ("wrong", "right"):
            held.pop()
            place.has_failed = act == "wrong"
            one.__exit__(None, None, None)
        assert rate_limits._running["x"] + len(rate_limits._failures.get("x", ())) <= 10
