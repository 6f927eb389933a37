"""JSON Web Tokens (JWT) of users: only a valid, unexpired token of an active session signs in."""

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
from appliance.storage.models import Session, TeamMember, User
from tests.domain.home import Home


@pytest.fixture
def editor(home: Home) -> User:
    """A user with the role `editor`."""
    return transactions.write(users.create, home.account_id, users.NewUser("e@example.org", "E", "x"), "editor")


def issue_token(user: User) -> str:
    """Sign a user in as a program does and return the JWT."""
    return transactions.write(sessions.issue_token, user, "192.0.2.1", "curl").token


def decode_payload(token: str) -> dict[str, Any]:
    """Decode a token's payload without checking its signature."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def sign_claims(
    claims: dict[str, Any], key: bytes | None = None, algorithm: str | None = "HS256", **headers: Any
) -> str:
    """Return a JWT of these claims, signed by default with the installation's own key."""
    return pyjwt.encode(claims, crypto.derive_key("jwt") if key is None else key, algorithm, headers=headers or None)


def test_a_token_has_the_current_role_of_its_user(home: Home, editor: User) -> None:
    """A token has the scopes of the user's role; a changed role counts at the next request.

    It expires after 12 hours.
    """
    token = issue_token(editor)
    session = sessions.find_by_token(token)
    assert session is not None and session.credential.role == "editor" and session.credential.user_id == editor.id
    assert (
        session.credential.scopes == access.role_scopes("editor") and session.credential.account_id == home.account_id
    )
    TeamMember.update(role="viewer").where(TeamMember.user == editor.id).execute()
    session = sessions.find_by_token(token)
    assert session is not None and not session.credential.has_scope("contacts:write")
    claims = decode_payload(token)
    assert set(claims) == {"sub", "acc", "aud", "jti", "iat", "exp"} and claims["exp"] - claims["iat"] == 12 * 3600
    home.advance(12 * 3600 + 1)
    assert sessions.find_by_token(token) is None


def test_tokens_are_revoked_with_their_session(home: Home, editor: User) -> None:
    """Disabling a user, setting or changing the password and revoking other sessions end that user's token alone."""
    owner = transactions.write(users.create, home.account_id, users.NewUser("o@example.org", "O", "x"), "owner")
    owner_token = issue_token(owner)
    api_key_actor, owner_actor = Actor("user:1"), Actor(f"user:{owner.id}", None, owner.id, account_id=1)
    for revoke in (
        lambda: transactions.write(users.disable, owner_actor, editor.id),
        lambda: transactions.write(users.set_password, owner_actor, editor.id, "y"),
        lambda: transactions.write(users.change_password, editor.id, "z", 0),
        lambda: transactions.write(sessions.revoke_others, editor.id, None, api_key_actor),
    ):
        token = issue_token(editor)
        assert sessions.find_by_token(token) is not None
        revoke()
        assert sessions.find_by_token(token) is None
        TeamMember.update(disabled_at=None).where(TeamMember.user == editor.id).execute()
        assert sessions.find_by_token(token) is None
    assert sessions.find_by_token(owner_token) is not None


def test_session_cookies_and_tokens_are_not_interchangeable(editor: User) -> None:
    """A token's id is not accepted as a session cookie, nor a cookie's secret as a token's id."""
    token = issue_token(editor)
    assert sessions.find_by_cookie(decode_payload(token)["jti"]) is None
    cookie = transactions.write(sessions.create_browser_session, editor.id, None, None)
    assert sessions.find_by_token(sign_claims({**decode_payload(token), "jti": cookie})) is None


@pytest.mark.parametrize("lacking", ["sub", "acc", "aud", "jti", "iat", "exp"])
def test_every_claim_is_required(editor: User, lacking: str) -> None:
    """A correctly signed token without one of the claims is rejected."""
    claims = decode_payload(issue_token(editor))
    assert sessions.find_by_token(sign_claims(claims)) is not None
    del claims[lacking]
    assert sessions.find_by_token(sign_claims(claims)) is None


def test_forged_tokens_are_rejected(home: Home, editor: User) -> None:
    """Tokens with another algorithm, key, audience, user or time, and malformed tokens, are rejected (RFC 8725)."""
    token = issue_token(editor)
    claims = decode_payload(token)
    head, body, mac = token.split(".")
    now = clock.now_ms() // 1000

    def encode_header(**header: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps({"typ": "JWT", **header}).encode()).decode().rstrip("=")

    forged = [
        *(f"{encode_header(alg=name)}.{body}.{signature_part}" for name in ("none", "None", "NONE", "hs256", "RS256")
          for signature_part in ("", mac)),
        sign_claims(claims, b"k" * 32), sign_claims(claims, algorithm="HS512"),
        sign_claims({**claims, "exp": now - 1}), sign_claims({**claims, "nbf": now + 3600}),
        sign_claims({**claims, "iat": now + 3600}),
        sign_claims({**claims, "exp": "never"}), sign_claims({**claims, "exp": now + 0.5}),
        sign_claims({**claims, "aud": "another"}), sign_claims({**claims, "aud": [claims["aud"][:-1]]}),
        sign_claims({**claims, "sub": "1000000"}), sign_claims({**claims, "acc": home.account_id + 1}),
        sign_claims({**claims, "jti": "made up"}), sign_claims(claims, crit=["unheard-of"], **{"unheard-of": True}),
        f"{head}.{body}.", f"{head}.{body}", f".{body}.{mac}", f"{token}.{mac}", token[:-1], token + "=",
        f"{head}.{body}.{'B' if mac[0] == 'A' else 'A'}{mac[1:]}",
        f"{encode_header(alg='HS256', kid='../../dev/null')}.{body}.{mac}", "..", "a.b.c",
        "\x00.\x00.\x00", "[" * 2000 + "..",
    ]  # fmt: skip
    assert [forged_token for forged_token in forged if sessions.find_by_token(forged_token) is not None] == []
    assert sessions.find_by_token(token) is not None
    Session.delete().execute()
    assert sessions.find_by_token(sign_claims({**claims, "exp": now + 10**6})) is None


def test_the_cache_of_verified_tokens(home: Home, editor: User, tmp_path: Path) -> None:
    """Only valid tokens are cached, at most `_MAX_CACHED` of them.

    After a change of the key the cache no longer counts.
    """
    token = issue_token(editor)
    claims = decode_payload(token)
    assert sessions.find_by_token(token) is not None and sessions.find_by_token(token) is not None
    cached_before = len(sessions._verified)
    head, body, mac = token.split(".")
    for forged in (f"{head}.{body}.{mac[:-2]}AA", f"{head}.{body}.", token[:-1], "a.b.c"):
        assert sessions.find_by_token(forged) is None and sessions.find_by_token(forged) is None
    assert len(sessions._verified) == cached_before
    for number in range(sessions._MAX_CACHED + 10):
        sessions.find_by_token(sign_claims({**claims, "jti": f"made up {number}"}))
    assert len(sessions._verified) == sessions._MAX_CACHED
    assert sessions.find_by_token(token) is not None and sessions.find_by_token(token) is not None
    other_directory = tmp_path / "other"
    other_directory.mkdir()
    try:
        crypto.create_key(other_directory)
        assert sessions.find_by_token(token) is None
    finally:
        crypto.create_key(home.directory)
    assert sessions.find_by_token(token) is not None
