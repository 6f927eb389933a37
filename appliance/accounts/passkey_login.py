"""Sign-in with a passkey, alone or after the password, and what adding and removing passkeys changes for a user.

A passkey counts as two factors if it verified the user, by PIN, fingerprint or face: something that the user has, and
something that the user knows or is. So it is enough for a sign-in, without a code (docs/decisions.md#36).
"""

import asyncio

from appliance.accounts import login, members, passkeys, passwords, request_limits, sessions
from appliance.accounts.audit import Actor
from appliance.accounts.passkeys import NewPasskey, PasskeyRefused, Response, Site
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.storage.models import Identity, Passkey, SignInProvider, User
from appliance.storage.transactions import commit, fetch, require_write_transaction


def second_factor_binding(browser: str, token: str) -> str:
    """Return the text that binds a challenge to a browser and to a sign-in with a right password.

    `token` is that of `CodeRequired`.
    """
    return f"{browser}\n{token}"


async def sign_in(text: str, site: Site, browser: str, ip: str) -> User:
    """Return the user who signs in with a passkey alone, which must have verified the user.

    Raises PasskeyRefused, or RateLimitExceeded after too many failures of the client.
    """
    with request_limits.limit_attempt(request_limits.client_key(ip)) as attempt:
        try:
            response = passkeys.read_response(text, "sign-in", browser)
            passkey = await fetch(passkeys.find_by_credential, response.credential_id)
            if passkey is None:
                raise PasskeyRefused(
                    "unknown", gettext("This passkey is not known here. It may have been removed. Use another way.")
                )
            await _use(response, site, passkey, True, ip)
        except PasskeyRefused:
            attempt.fail()
            raise
    user: User = passkey.user
    return user


async def sign_in_after_password(
    token: str, text: str, site: Site, browser: str, ip: str, purpose: str = login.SECOND_FACTOR_PURPOSE
) -> User | None:
    """Return the user who uses a passkey after the password; None if `token` is invalid or has expired.

    `token` is the token of `login.CodeRequired`, for this `purpose`. Raises PasskeyRefused, also for a passkey of
    another user, or RateLimitExceeded after too many failed attempts.
    """
    user = await fetch(passwords.find_token_user, purpose, token)
    if user is None:
        return None
    name = request_limits.email_key(user.email)
    with request_limits.limit_attempt(name, request_limits.client_key(ip)) as attempt:
        try:
            response = passkeys.read_response(text, "second factor", second_factor_binding(browser, token))
            passkey = await fetch(passkeys.find_by_credential, response.credential_id)
            if passkey is None or passkey.user_id != user.id:
                raise PasskeyRefused("not theirs")
            await _use(response, site, passkey, False, ip)
        except PasskeyRefused:
            attempt.fail()
            login.record_failure(user, ip)
            raise
    request_limits.clear_failures(name)
    return user


async def _use(response: Response, site: Site, passkey: Passkey, must_verify_user: bool, ip: str) -> None:
    try:
        use = await asyncio.to_thread(passkeys.verify_use, response, site, passkey, must_verify_user)
    except PasskeyRefused:
        login.record_failure(passkey.user, ip)
        raise
    if not await commit(passkeys.record_use, passkey.id, use, ip):
        raise PasskeyRefused(
            "counter",
            gettext("This passkey was refused because a copy of it may exist. Sign in another way and remove it."),
        )


def add(user_id: int, new: NewPasskey, name: str, session_id: int, by: Actor) -> list[str]:
    """Store a verified passkey, and return new recovery codes if the user had no second factor, else an empty list.

    The first one ends all other sessions of the user, as any second factor does. Raises the errors of
    `passkeys.insert`.
    """
    require_write_transaction()
    user = User.get_by_id(user_id)
    is_first = not login.has_second_factor(user)
    passkeys.insert(user, new, name, by)
    if not is_first:
        return []
    sessions.delete_all(user.id, session_id)
    return login.store_recovery_codes(user)


def remove(user_id: int, passkey_id: int, session_id: int | None, by: Actor) -> User:
    """Remove a passkey, and end all sessions of the user except `session_id`, because it may have begun some of them.

    If no second factor is left, the recovery codes are deleted, too, and the password is enough for a sign-in. Raises
    NotFound, and Invalid for the last way to sign in. The caller must have verified the user's identity.
    """
    require_write_transaction()
    user, passkey = User.get_by_id(user_id), passkeys.get(user_id, passkey_id)
    if _is_last_way_in(user):
        raise Invalid({"base": [gettext("This passkey is your only way to sign in. Add another one first.")]})
    passkeys.delete(user, passkey, by)
    if not login.has_second_factor(user):
        login.clear_second_factor(user)
    sessions.delete_all(user.id, session_id)
    return user


def _is_last_way_in(user: User) -> bool:
    """Return whether a user could not sign in without the passkey that is left.

    That is so if no account of the user allows passwords, and the user signs in with no OpenID Connect provider.
    """
    if user.passkey_count > 1 or any(row.account.password_sign_in for row in members.list_of(user.id)):
        return False
    identities = Identity.select().join(SignInProvider).where(Identity.user == user.id, SignInProvider.enabled)
    return not identities.exists()
