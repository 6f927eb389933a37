"""Link tokens: what we signed opens its own door, and nothing else opens any."""

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
def test_a_token_comes_back(number: int, mac_bytes: int, home: Home) -> None:
    """A token gives its number back, and stands in a URL as it is."""
    token = crypto.sign_token("u", number, mac_bytes)
    assert set(token) <= set(ALPHABET)
    assert crypto.read_token("u", token, mac_bytes) == number


@pytest.mark.parametrize("mac_bytes", [8, 16])
def test_every_changed_character_is_refused(mac_bytes: int, home: Home) -> None:
    """No token with one character changed, dropped or doubled is ours."""
    token = crypto.sign_token("u", 123_456_789, mac_bytes)
    for place, sign in enumerate(token):
        for other in ALPHABET.replace(sign, "") + "=+/. \n":
            assert crypto.read_token("u", token[:place] + other + token[place + 1 :], mac_bytes) is None
        assert crypto.read_token("u", token[:place] + token[place + 1 :], mac_bytes) is None
        assert crypto.read_token("u", token[:place] + sign + token[place:], mac_bytes) is None


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_token_is_bound_to_its_purpose(purpose: str, home: Home) -> None:
    """A token of one purpose opens no other door."""
    token = crypto.sign_token(purpose, 7)
    assert [other for other in PURPOSES if crypto.read_token(other, token) is not None] == [purpose]


def test_a_short_token_is_no_long_one(home: Home) -> None:
    """The 64-bit token of a Message-ID does not open a door that wants 128 bit, nor the reverse."""
    assert crypto.read_token("u", crypto.sign_token("u", 7, 8)) is None
    assert crypto.read_token("u", crypto.sign_token("u", 7, 16), 8) is None


@given(number=NUMBERS)
def test_other_spellings_are_refused(number: int, home: Home) -> None:
    """The same bytes in another spelling of base64 are not the token we made."""
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
    # 22 bytes end in a character of which 4 bits count for nothing
    last = ALPHABET.replace(token[-1], "")
    others |= {token[:-1] + sign for sign in last}
    assert [other for other in others if crypto.read_token("u", other) is not None] == []


@given(text=st.text(max_size=60))
def test_any_text_is_read_without_error(text: str, home: Home) -> None:
    """Whatever stands in a link's place is read and refused, never an error."""
    assert crypto.read_token("u", text) is None


def test_another_installation_is_another_key(home: Home, tmp_path: Path) -> None:
    """A token of one installation means nothing to another; the key file is its owner's alone and stays."""
    token = crypto.sign_token("u", 7)
    other = tmp_path / "other"
    other.mkdir()
    crypto.create_key(other)
    assert crypto.read_token("u", token) is None
    assert (other / "secret.key").stat().st_mode & 0o777 == 0o600
    crypto.create_key(tmp_path)
    assert crypto.read_token("u", token) == 7


def test_addresses_are_remembered_by_a_keyed_hash(home: Home, tmp_path: Path) -> None:
    """The hash of an address depends on its kind and on the installation's key, and on nothing else."""
    first = crypto.hash_address("email", "ann@example.org")
    assert first == crypto.hash_address("email", "ann@example.org")
    assert first != crypto.hash_address("phone", "ann@example.org")
    other = tmp_path / "other"
    other.mkdir()
    crypto.create_key(other)
    assert first != crypto.hash_address("email", "ann@example.org")


@given(number=NUMBERS)
def test_a_return_path_survives_lower_case(number: int, home: Home) -> None:
    """The token of a return path is hexadecimal, lower-case and short enough for a local part."""
    token = crypto.sign_hex_token(links.BOUNCE, number)
    assert token == token.lower() and set(token) <= set(string.hexdigits)
    assert len(f"b+{token}") <= 64 and int(token[:12], 16) == number


@given(number=NUMBERS)
def test_a_return_path_names_its_message(number: int, home: Home) -> None:
    """What comes back to a return path of ours is known, in upper case too; a changed character is nobody's."""
    local = links.build_return_path(number, "bounce.example.org").partition("@")[0]
    assert links.read_return_path(local) == links.read_return_path(local.upper()) == number
    for place in range(2, len(local)):
        other = "0" if local[place] != "0" else "1"
        assert links.read_return_path(local[:place] + other + local[place + 1 :]) is None
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
