"""JWTs of people: only our own, of now, whose sign-in still holds, open anything."""

import base64
import json
from pathlib import Path
from typing import Any

import jwt as pyjwt
import pytest

from appliance.accounts import access, sessions, users
from appliance.accounts.audit import Actor
from appliance.core import clock, crypto
from appliance.storage import transactions
from appliance.storage.models import Session, User
from tests.domain.home import Home


@pytest.fixture
def editor(home: Home) -> User:
    """Somebody who writes and sends."""
    return transactions.write(users.create, home.account_id, users.NewUser("e@example.org", "E", "x"), "editor")


def issued(user: User) -> str:
    """Sign in for a program."""
    return transactions.write(sessions.issue_token, user, "192.0.2.1", "curl").token


def payload(token: str) -> dict[str, Any]:
    """Read what a token says, as anybody can."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def signed(claims: dict[str, Any], key: bytes | None = None, algorithm: str | None = "HS256", **headers: Any) -> str:
    """Sign claims, by default as the installation itself would."""
    return pyjwt.encode(claims, crypto.derive_key("jwt") if key is None else key, algorithm, headers=headers or None)


def test_a_token_is_somebody_as_they_are_now(home: Home, editor: User) -> None:
    """It reaches what the role reaches, and another role counts at the next request; it holds twelve hours."""
    token = issued(editor)
    found = sessions.find_by_token(token)
    assert found is not None and found.credential.role == "editor" and found.credential.user_id == editor.id
    assert found.credential.scopes == access.role_scopes("editor") and found.credential.account_id == home.account_id
    User.update(role="viewer").where(User.id == editor.id).execute()
    found = sessions.find_by_token(token)
    assert found is not None and not found.credential.has_scope("contacts:write")
    claims = payload(token)
    assert set(claims) == {"sub", "acc", "aud", "jti", "iat", "exp"} and claims["exp"] - claims["iat"] == 12 * 3600
    home.advance(12 * 3600 + 1)
    assert sessions.find_by_token(token) is None


def test_what_ends_a_token(home: Home, editor: User) -> None:
    """Shutting somebody out, a new password, and ending the sign-in; each for that person alone."""
    owner = transactions.write(users.create, home.account_id, users.NewUser("o@example.org", "O", "x"), "owner")
    kept = issued(owner)
    by, ruler = Actor("user:1"), Actor(f"user:{owner.id}", None, owner.id)
    for end in (
        lambda: transactions.write(users.disable, ruler, editor.id),
        lambda: transactions.write(users.set_password, ruler, editor.id, "y"),
        lambda: transactions.write(users.change_password, editor.id, "z", 0),
        lambda: transactions.write(sessions.revoke_others, editor.id, None, by),
    ):
        token = issued(editor)
        assert sessions.find_by_token(token) is not None
        end()
        assert sessions.find_by_token(token) is None
        User.update(disabled_at=None).where(User.id == editor.id).execute()
        assert sessions.find_by_token(token) is None
    assert sessions.find_by_token(kept) is not None


def test_a_cookie_is_no_token_and_a_token_no_cookie(editor: User) -> None:
    """Neither secret opens the other's door, though both are rows of one table."""
    token = issued(editor)
    assert sessions.find_by_cookie(payload(token)["jti"]) is None
    cookie = transactions.write(sessions.create_browser_session, editor.id, None, None)
    assert sessions.find_by_token(signed({**payload(token), "jti": cookie})) is None


@pytest.mark.parametrize("lacking", ["sub", "acc", "aud", "jti", "iat", "exp"])
def test_every_claim_is_needed(editor: User, lacking: str) -> None:
    """A token without one of them opens nothing, even with our signature."""
    claims = payload(issued(editor))
    assert sessions.find_by_token(signed(claims)) is not None
    del claims[lacking]
    assert sessions.find_by_token(signed(claims)) is None


def test_forged_tokens(home: Home, editor: User) -> None:
    """Other algorithms, keys, audiences, people and moments, and whatever is no token, open nothing (RFC 8725)."""
    token = issued(editor)
    claims = payload(token)
    head, body, mac = token.split(".")
    now = clock.now_ms() // 1000

    def headed(**header: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps({"typ": "JWT", **header}).encode()).decode().rstrip("=")

    forged = [
        *(f"{headed(alg=name)}.{body}.{given}" for name in ("none", "None", "NONE", "hs256", "RS256")
          for given in ("", mac)),
        signed(claims, b"k" * 32), signed(claims, algorithm="HS512"),
        signed({**claims, "exp": now - 1}), signed({**claims, "nbf": now + 3600}),
        signed({**claims, "iat": now + 3600}),
        signed({**claims, "exp": "never"}), signed({**claims, "exp": now + 0.5}),
        signed({**claims, "aud": "another"}), signed({**claims, "aud": [claims["aud"][:-1]]}),
        signed({**claims, "sub": "1000000"}), signed({**claims, "acc": home.account_id + 1}),
        signed({**claims, "jti": "made up"}), signed(claims, crit=["unheard-of"], **{"unheard-of": True}),
        f"{head}.{body}.", f"{head}.{body}", f".{body}.{mac}", f"{token}.{mac}", token[:-1], token + "=",
        f"{head}.{body}.{'B' if mac[0] == 'A' else 'A'}{mac[1:]}",
        f"{headed(alg='HS256', kid='../../dev/null')}.{body}.{mac}", "..", "a.b.c", "\x00.\x00.\x00", "[" * 2000 + "..",
    ]  # fmt: skip
    assert [one for one in forged if sessions.find_by_token(one) is not None] == []
    assert sessions.find_by_token(token) is not None
    Session.delete().execute()
    assert sessions.find_by_token(signed({**claims, "exp": now + 10**6})) is None


def test_what_is_remembered_of_signatures(home: Home, editor: User, tmp_path: Path) -> None:
    """Only good ones, not without end, and for the key that they were made with alone."""
    token = issued(editor)
    claims = payload(token)
    assert sessions.find_by_token(token) is not None and sessions.find_by_token(token) is not None
    before = len(sessions._verified)
    head, body, mac = token.split(".")
    for forged in (f"{head}.{body}.{mac[:-2]}AA", f"{head}.{body}.", token[:-1], "a.b.c"):
        assert sessions.find_by_token(forged) is None and sessions.find_by_token(forged) is None
    assert len(sessions._verified) == before
    for number in range(sessions._MAX_CACHED + 10):
        sessions.find_by_token(signed({**claims, "jti": f"made up {number}"}))
    assert len(sessions._verified) == sessions._MAX_CACHED
    assert sessions.find_by_token(token) is not None and sessions.find_by_token(token) is not None
    other = tmp_path / "other"
    other.mkdir()
    try:
        crypto.create_key(other)
        assert sessions.find_by_token(token) is None
    finally:
        crypto.create_key(home.directory)
    assert sessions.find_by_token(token) is not None
