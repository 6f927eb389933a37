"""The second factor: the codes of the RFCs, each once, and codes for whoever lost their device."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import login, users
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.models import User
from tests.domain.home import Home

# RFC 6238, appendix B (SHA-1), its last six digits
_VECTORS = [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"),
            (2000000000, "279037"), (20000000000, "353130")]  # fmt: skip
_KEY = base64.b32encode(b"12345678901234567890").decode()


@pytest.mark.parametrize(("second", "code"), _VECTORS)
def test_the_codes_are_those_of_the_rfc(second: int, code: str) -> None:
    """The vectors of RFC 6238 come out."""
    assert login.otp_code(_KEY, second // 30) == code


@pytest.fixture
def person(home: Home) -> User:
    """Somebody who may be given a second factor."""
    return transactions.write(users.create, home.account_id, users.NewUser("p@example.org", "P", "x"), "owner")


def now_step() -> int:
    """Return the half minute that is now."""
    return clock.now_ms() // 1000 // 30


def test_a_code_counts_once_and_for_a_minute_and_a_half(home: Home, person: User) -> None:
    """The one of now, before and after count, each once and never an older one than the last."""
    key = login.generate_otp_key()
    transactions.write(login.store_second_factor, person, key, now_step() - 1)
    home.advance(30 - clock.now_ms() / 1000 % 30)
    here = now_step()
    use = lambda step: transactions.write(login.use_code, person.id, login.otp_code(key, step))  # noqa: E731
    assert [use(here + far) for far in (-2, 2)] == [False, False]
    assert use(here) and not use(here) and not use(here - 1)
    assert use(here + 1) and not use(here + 1)
    home.advance(90)
    assert transactions.write(
        login.use_code,
        person.id,
        f" {login.otp_code(key, here + 3)[:3]} {login.otp_code(key, here + 3)[3:]} ",
    )


def test_recovery_codes_count_once(person: User) -> None:
    """Ten of them, in whatever case they come; none is in the database as it is, nor is the key."""
    key = login.generate_otp_key()
    codes = transactions.write(login.store_second_factor, person, key, now_step())
    assert len(set(codes)) == 10
    assert transactions.write(login.use_code, person.id, codes[0].upper().replace("-", " "))
    assert not transactions.write(login.use_code, person.id, codes[0])
    assert transactions.write(login.use_code, person.id, codes[1])
    row = User.get_by_id(person.id)
    assert len(row.otp_codes) == 8
    assert not any(word in f"{row.otp_secret}{row.otp_codes}" for word in (key, *codes))


@given(st.text(max_size=20))
def test_what_is_no_code_is_refused(typed: str) -> None:
    """Whatever somebody types is a code of the half minute, or nothing."""
    key = _KEY
    around = {login.otp_code(key, now_step() + far) for far in (-1, 0, 1)}
    assert (login.find_otp_step(key, typed) is not None) == ("".join(typed.split()) in around)


def test_another_ones_key_opens_nothing(person: User) -> None:
    """A sealed key in the row of somebody else is worth nothing there."""
    key = login.generate_otp_key()
    transactions.write(login.store_second_factor, person, key, now_step() - 1)
    other = transactions.write(users.create, person.account_id, users.NewUser("q@example.org", "Q", "x"), "owner")
    User.update(otp_secret=User.get_by_id(person.id).otp_secret).where(User.id == other.id).execute()
    assert not transactions.write(login.use_code, other.id, login.otp_code(key, now_step()))
    assert transactions.write(login.use_code, person.id, login.otp_code(key, now_step()))
