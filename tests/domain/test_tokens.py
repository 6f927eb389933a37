"""Signed link tokens: only our own are accepted, and only for their purpose."""

import base64
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import crypto
from appliance.sending.messages import links
from tests.domain.home import Home

ALPHABET = string.ascii_letters + string.digits + "-_"
PURPOSES = (links.UNSUBSCRIBE, links.VIEW, links.MESSAGE_ID, links.BOUNCE, links.CLICK, links.OPEN)
NUMBERS = st.integers(0, 2**48 - 1)


@given(number=NUMBERS, mac_bytes=st.sampled_from([8, 16]))
def test_tokens_round_trip(number: int, mac_bytes: int, home: Home) -> None:
    """A token is read as the signed number and has only characters that are safe in a URL."""
    token = crypto.sign_token("u", number, mac_bytes)
    assert set(token) <= set(ALPHABET)
    assert crypto.read_token("u", token, mac_bytes) == number


@pytest.mark.parametrize("mac_bytes", [8, 16])
def test_changed_tokens_are_rejected(mac_bytes: int, home: Home) -> None:
    """A token with one character changed, removed or doubled is invalid."""
    token = crypto.sign_token("u", 123_456_789, mac_bytes)
    for index, character in enumerate(token):
        for other in ALPHABET.replace(character, "") + "=+/. \n":
            assert crypto.read_token("u", token[:index] + other + token[index + 1 :], mac_bytes) is None
        assert crypto.read_token("u", token[:index] + token[index + 1 :], mac_bytes) is None
        assert crypto.read_token("u", token[:index] + character + token[index:], mac_bytes) is None


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_token_is_bound_to_its_purpose(purpose: str, home: Home) -> None:
    """A token is not valid for another purpose."""
    token = crypto.sign_token(purpose, 7)
    assert [other for other in PURPOSES if crypto.read_token(other, token) is not None] == [purpose]


def test_short_and_long_tokens_are_not_interchangeable(home: Home) -> None:
    """A token with a 64-bit MAC is not accepted where 128 bits are expected, nor the reverse."""
    assert crypto.read_token("u", crypto.sign_token("u", 7, 8)) is None
    assert crypto.read_token("u", crypto.sign_token("u", 7, 16), 8) is None


@given(number=NUMBERS)
def test_other_encodings_of_a_token_are_rejected(number: int, home: Home) -> None:
    """The same bytes in another spelling of Base64 are not accepted."""
    token = crypto.sign_token("u", number)
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    others = {
        token + "=",
        token + "==",
        f" {token}",
        f"{token}\n",
        token[:4] + "\n" + token[4:],
        token[:5] + "*" + token[5:],
    }
    others |= {base64.b64encode(raw).decode(), base64.b64encode(raw).decode().rstrip("=")} - {token}
    # The last character of 22 encoded bytes has 4 unused bits
    last = ALPHABET.replace(token[-1], "")
    others |= {token[:-1] + character for character in last}
    assert [other for other in others if crypto.read_token("u", other) is not None] == []


@given(text=st.text(max_size=60))
def test_any_text_is_rejected_without_error(text: str, home: Home) -> None:
    """Text that is not a token is read as None."""
    assert crypto.read_token("u", text) is None


def test_tokens_are_bound_to_the_installation(home: Home, tmp_path: Path) -> None:
    """A token is invalid with another key; the key file has mode 0600 and is not replaced."""
    token = crypto.sign_token("u", 7)
    other_directory = tmp_path / "other"
    other_directory.mkdir()
    crypto.create_key(other_directory)
    assert crypto.read_token("u", token) is None
    assert (other_directory / "secret.key").stat().st_mode & 0o777 == 0o600
    crypto.create_key(tmp_path)
    assert crypto.read_token("u", token) == 7


def test_address_hashes_are_keyed(home: Home, tmp_path: Path) -> None:
    """The hash of an address depends on its kind and on the installation's key."""
    original = crypto.hash_address("email", "ann@example.org")
    assert original == crypto.hash_address("email", "ann@example.org")
    assert original != crypto.hash_address("phone", "ann@example.org")
    other_directory = tmp_path / "other"
    other_directory.mkdir()
    crypto.create_key(other_directory)
    assert original != crypto.hash_address("email", "ann@example.org")


@given(number=NUMBERS)
def test_hex_tokens_fit_a_local_part(number: int, home: Home) -> None:
    """The token of a return path is lower-case hexadecimal and short enough for a local part."""
    token = crypto.sign_hex_token(links.BOUNCE, number)
    assert token == token.lower() and set(token) <= set(string.hexdigits)
    assert len(f"b+{token}") <= 64 and int(token[:12], 16) == number


@given(number=NUMBERS)
def test_read_return_path(number: int, home: Home) -> None:
    """A return path of ours gives its message id, in either case; a changed one gives None."""
    local = links.build_return_path(number, "bounce.example.org").partition("@")[0]
    assert links.read_return_path(local) == links.read_return_path(local.upper()) == number
    for index in range(2, len(local)):
        digit = "0" if local[index] != "0" else "1"
        assert links.read_return_path(local[:index] + digit + local[index + 1 :]) is None
    for forged in (
        local[:-1],
        local + "0",
        local[1:],
        "c" + local[1:],
        local[:2] + " " + local[3:],
        "b+",
        "",
        "b+" + "é" * 28,
    ):
        assert links.read_return_path(forged) is None
