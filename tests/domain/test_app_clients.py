"""Names and redirect URIs of programs that ask to be connected: what a page and a header can show as they are."""

import pytest

from appliance.accounts.app_clients import clean_name, find_redirect_fault


@pytest.mark.parametrize(
    "name", ["", "\u3164", "\u2800 \u2800", "\u115f", "\ufe0f", "\u034f\u0301", "\u200d", "\U000e0041"]
)
def test_a_name_that_nobody_sees_is_that_of_the_host(name: str) -> None:
    """Fillers, marks and blanks alone are not a name."""
    assert clean_name(name, "app.example") == "app.example"


def test_a_name_has_no_characters_that_nobody_sees() -> None:
    """They are removed from names that have others, which keep their accents and emoji."""
    assert clean_name("Cla\u034fu\u3164de \u202e\u00e9\u2800 👩\u200d👧", "x") == "Claude é 👩👧"


@pytest.mark.parametrize(
    "host", ["x.example;sandbox", "x.example,", "*", "*.example", "claude.ai%2eevil.example", "x&y", "a'b", "[::1", ""]
)
def test_a_host_is_plain(host: str) -> None:
    """The host is part of a header, where other characters would end a directive or stand for any host."""
    assert find_redirect_fault(f"https://{host}/callback") is not None


@pytest.mark.parametrize("uri", [
    "https://claude.ai/api/mcp/auth_callback", "https://a-b.example:8443/cb?x=%20;,*", "http://127.0.0.1:43117/cb",
    "http://[::1]:1/cb", "https://[2001:db8::1]/cb", "http://localhost/cb",
])  # fmt: skip
def test_usual_redirect_uris_can_be_registered(uri: str) -> None:
    """Hosts, addresses and ports as programs use them."""
    assert find_redirect_fault(uri) is None
