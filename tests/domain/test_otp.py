"""The second factor: time-based codes (RFC 6238) and recovery codes, each accepted once."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import login, users
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.models import TeamMember, User
from tests.domain.home import Home

# RFC 6238, appendix B (SHA-1), the last six digits of each code
_VECTORS = [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"),
            (2000000000, "279037"), (20000000000, "353130")]  # fmt: skip
_KEY = base64.b32encode(b"12345678901234567890").decode()


@pytest.mark.parametrize(("second", "code"), _VECTORS)
def test_codes_match_rfc_6238(second: int, code: str) -> None:
    """The test vectors of RFC 6238 give their codes."""
    assert login.otp_code(_KEY, second // 30) == code


@pytest.fixture
def user(home: Home) -> User:
    """A user without a second factor."""
    return transactions.write(users.create, home.account_id, users.NewUser("p@example.org", "P", "x"), "owner")


def current_step() -> int:
    """Return the current time step of 30 seconds."""
    return clock.now_ms() // 1000 // 30


def test_codes_are_accepted_once_and_near_their_time(home: Home, user: User) -> None:
    """Codes two steps away, used ones and those before the last used one are rejected; spaces are ignored."""
    key = login.generate_otp_key()
    transactions.write(login.store_second_factor, user, key, current_step() - 1)
    home.advance(30 - clock.now_ms() / 1000 % 30)
    now = current_step()

    def use_code_of(step: int) -> bool:
        return transactions.write(login.use_code, user.id, login.otp_code(key, step))

    assert [use_code_of(now + offset) for offset in (-2, 2)] == [False, False]
    assert use_code_of(now) and not use_code_of(now) and not use_code_of(now - 1)
    assert use_code_of(now + 1) and not use_code_of(now + 1)
    home.advance(90)
    assert transactions.write(
        login.use_code,
        user.id,
        f" {login.otp_code(key, now + 3)[:3]} {login.otp_code(key, now + 3)[3:]} ",
    )


def test_recovery_codes_are_accepted_once(user: User) -> None:
    """Ten codes, in either case; neither they nor the key are stored in plain text."""
    key = login.generate_otp_key()
    codes = transactions.write(login.store_second_factor, user, key, current_step())
    assert len(set(codes)) == 10
    assert transactions.write(login.use_code, user.id, codes[0].upper().replace("-", " "))
    assert not transactions.write(login.use_code, user.id, codes[0])
    assert transactions.write(login.use_code, user.id, codes[1])
    row = User.get_by_id(user.id)
    assert len(row.otp_codes) == 8
    assert not any(word in f"{row.otp_secret}{row.otp_codes}" for word in (key, *codes))


@given(st.text(max_size=20))
def test_only_codes_of_adjacent_steps_match(typed: str) -> None:
    """A text matches only if it is the code of the previous, current or next step, apart from white space."""
    key = _KEY
    valid_codes = {login.otp_code(key, current_step() + offset) for offset in (-1, 0, 1)}
    assert (login.find_otp_step(key, typed) is not None) == ("".join(typed.split()) in valid_codes)


def test_an_encrypted_key_is_bound_to_its_user(user: User) -> None:
    """The encrypted key of one user, copied to another user's row, does not accept codes there."""
    key = login.generate_otp_key()
    transactions.write(login.store_second_factor, user, key, current_step() - 1)
    other = transactions.write(users.create, user.account_id, users.NewUser("q@example.org", "Q", "x"), "owner")
    User.update(otp_secret=User.get_by_id(user.id).otp_secret).where(User.id == other.id).execute()
    assert not transactions.write(login.use_code, other.id, login.otp_code(key, current_step()))
    assert transactions.write(login.use_code, user.id, login.otp_code(key, current_step()))


def test_proofs_of_a_changed_user_are_not_accepted(user: User) -> None:
    """A password verified before a change of password, second factor or access is not proof in a later transaction."""
    transactions.write(login.require_unchanged, user)
    changes = [
        User.update(password_hash="y").where(User.id == user.id),
        User.update(otp_secret="key").where(User.id == user.id),
        TeamMember.update(disabled_at=clock.now_ms()).where(TeamMember.user == user.id),
    ]
    for change in changes:
        verified = User.get_by_id(user.id)
        transactions.write(change.execute)
        with pytest.raises(login.InvalidCredentials):
            transactions.write(login.require_unchanged, verified)
