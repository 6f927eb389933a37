"""Guessing is slowed down: by mailbox and by line, also where everything comes at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import rate_limits
from appliance.core.errors import TooMany
from tests.domain.home import Home


@pytest.fixture(autouse=True)
def _forgotten(home: Home) -> None:
    rate_limits._failed.clear()
    rate_limits._open.clear()


def fail(*names: str) -> None:
    """Fail once."""
    with rate_limits.attempt(*names) as one:
        one.wrong()


def test_ten_failures_and_no_more(home: Home) -> None:
    """The eleventh waits, by either name, and a quarter of an hour later it counts anew."""
    for _ in range(10):
        fail("email:a", "client:b")
    for names in (("email:a", "client:c"), ("email:d", "client:b")):
        with pytest.raises(TooMany) as refused:
            fail(*names)
        assert 890 <= refused.value.retry_after <= 901
    fail("email:d", "client:c")
    home.advance(15 * 60 + 1)
    fail("email:a", "client:b")


def test_what_is_open_counts() -> None:
    """A hundred at once are ten; those that were right or broke off give their place back."""
    held = [rate_limits.attempt("email:a") for _ in range(10)]
    for one in held:
        one.__enter__()
    with pytest.raises(TooMany) as refused:
        fail("email:a")
    assert refused.value.retry_after == 1
    for one in held:
        one.__exit__(None, None, None)
    for _ in range(50):
        with rate_limits.attempt("email:a"):
            pass
    with pytest.raises(ZeroDivisionError), rate_limits.attempt("email:a"):
        raise ZeroDivisionError
    assert not rate_limits._open and not rate_limits._failed


def test_one_mailbox_and_one_line_have_one_name() -> None:
    """However an address is written it is the same mailbox; an IPv6 line is one client."""
    assert len({rate_limits.of_address(text) for text in (
        "Ann@bücher.example", " ann@BÜCHER.example", "ANN@xn--bcher-kva.example")}) == 1  # fmt: skip
    assert rate_limits.of_client("2001:db8::1") == rate_limits.of_client("2001:db8::ffff:2")
    assert rate_limits.of_client("192.0.2.1") != rate_limits.of_client("192.0.2.2")


@given(st.lists(st.sampled_from(["wrong", "right", "open", "close"]), max_size=60))
def test_no_order_of_things_gives_more_than_ten(acts: list[str]) -> None:
    """Whatever comes in whatever order: open and failed ones together are never more than ten."""
    rate_limits._failed.clear()
    rate_limits._open.clear()
    held = []
    for act in acts:
        if act == "close" and held:
            held.pop().__exit__(None, None, None)
            continue
        one = rate_limits.attempt("x")
        try:
            place = one.__enter__()
        except TooMany:
            continue
        held.append(one)
        if act in ("wrong", "right"):
            held.pop()
            place.is_wrong = act == "wrong"
            one.__exit__(None, None, None)
        assert rate_limits._open["x"] + len(rate_limits._failed.get("x", ())) <= 10
