"""JWTs of people: only our own, of now, whose sign-in still holds, open anything."""

import base64
import json
from pathlib import Path
from typing import Any

import jwt as pyjwt
import pytest

from appliance.accounts import jwt, roles, sessions, users
from appliance.accounts.acting import By
from appliance.core import clock, tokens
from appliance.storage import work
from appliance.storage.models import Session, User
from tests.domain.home import Home


@pytest.fixture
def editor(home: Home) -> User:
    """Somebody who writes and sends."""
    return work.write(users.add, home.account_id, users.NewUser("e@example.org", "E", "x"), "editor")


def issued(user: User) -> str:
    """Sign in for a program."""
    return work.write(jwt.issue, user, "192.0.2.1", "curl").token


def payload(token: str) -> dict[str, Any]:
    """Read what a token says, as anybody can."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def signed(claims: dict[str, Any], key: bytes | None = None, algorithm: str | None = "HS256", **headers: Any) -> str:
    """Sign claims, by default as the installation itself would."""
    return pyjwt.encode(claims, tokens.derive("jwt") if key is None else key, algorithm, headers=headers or None)


def test_a_token_is_somebody_as_they_are_now(home: Home, editor: User) -> None:
    """It reaches what the role reaches, and another role counts at the next request; it holds twelve hours."""
    token = issued(editor)
    found = jwt.find(token)
    assert found is not None and found.credential.role == "editor" and found.credential.user_id == editor.id
    assert found.credential.scopes == roles.scopes("editor") and found.credential.account_id == home.account_id
    User.update(role="viewer").where(User.id == editor.id).execute()
    found = jwt.find(token)
    assert found is not None and not found.credential.reaches("contacts:write")
    claims = payload(token)
    assert set(claims) == {"sub", "acc", "aud", "jti", "iat", "exp"} and claims["exp"] - claims["iat"] == 12 * 3600
    home.advance(12 * 3600 + 1)
    assert jwt.find(token) is None


def test_what_ends_a_token(home: Home, editor: User) -> None:
    """Shutting somebody out, a new password, and ending the sign-in; each for that person alone."""
    owner = work.write(users.add, home.account_id, users.NewUser("o@example.org", "O", "x"), "owner")
    kept = issued(owner)
    by, ruler = By("user:1"), By(f"user:{owner.id}", None, owner.id)
    for end in (
        lambda: work.write(users.close, ruler, editor.id),
        lambda: work.write(users.give_password, ruler, editor.id, "y"),
        lambda: work.write(users.choose_password, editor.id, "z", 0),
        lambda: work.write(sessions.close_all, editor.id, None, by),
    ):
        token = issued(editor)
        assert jwt.find(token) is not None
        end()
        assert jwt.find(token) is None
        User.update(disabled_at=None).where(User.id == editor.id).execute()
        assert jwt.find(token) is None
    assert jwt.find(kept) is not None


def test_a_cookie_is_no_token_and_a_token_no_cookie(editor: User) -> None:
    """Neither secret opens the other's door, though both are rows of one table."""
    token = issued(editor)
    assert sessions.find(payload(token)["jti"]) is None
    cookie = work.write(sessions.begin, editor.id, None, None)
    assert jwt.find(signed({**payload(token), "jti": cookie})) is None


@pytest.mark.parametrize("lacking", ["sub", "acc", "aud", "jti", "iat", "exp"])
def test_every_claim_is_needed(editor: User, lacking: str) -> None:
    """A token without one of them opens nothing, even with our signature."""
    claims = payload(issued(editor))
    assert jwt.find(signed(claims)) is not None
    del claims[lacking]
    assert jwt.find(signed(claims)) is None


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
    assert [one for one in forged if jwt.find(one) is not None] == []
    assert jwt.find(token) is not None
    Session.delete().execute()
    assert jwt.find(signed({**claims, "exp": now + 10**6})) is None


def test_what_is_remembered_of_signatures(home: Home, editor: User, tmp_path: Path) -> None:
    """Only good ones, not without end, and for the key that they were made with alone."""
    token = issued(editor)
    claims = payload(token)
    assert jwt.find(token) is not None and jwt.find(token) is not None
    before = len(jwt._good)
    head, body, mac = token.split(".")
    for forged in (f"{head}.{body}.{mac[:-2]}AA", f"{head}.{body}.", token[:-1], "a.b.c"):
        assert jwt.find(forged) is None and jwt.find(forged) is None
    assert len(jwt._good) == before
    for number in range(jwt._MAX_KEPT + 10):
        jwt.find(signed({**claims, "jti": f"made up {number}"}))
    assert len(jwt._good) == jwt._MAX_KEPT
    assert jwt.find(token) is not None and jwt.find(token) is not None
    other = tmp_path / "other"
    other.mkdir()
    try:
        tokens.create_key(other)
        assert jwt.find(token) is None
    finally:
        tokens.create_key(home.directory)
    assert jwt.find(token) is not None
