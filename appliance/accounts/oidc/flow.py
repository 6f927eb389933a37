"""The authorization code flow of a sign-in, from the provider's button to the provider's response.

OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE, S256 only); RFC 9207 (`iss` of the response) and RFC 9700,
sections 2.1 and 4.4 (mix-up): each provider has a redirect URI of its own, and a response must be for the provider that
the sign-in was begun with. The request is sealed into a cookie of the browser, so nothing is stored for visitors who
are not signed in, and a response to a request of another browser is rejected (RFC 9700, section 4.7.1). A response is
accepted once, within ten minutes.
"""

import base64
import hashlib
import hmac
import secrets
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from cachetools import TTLCache
from msgspec import Struct

from appliance.accounts.oidc import metadata, providers, tokens
from appliance.accounts.oidc.metadata import ProviderError
from appliance.accounts.oidc.tokens import Claims
from appliance.core import clock, crypto
from appliance.core.i18n import gettext
from appliance.storage.models import SignInProvider

MAX_SECONDS = 600.0
MAX_NEXT_CHARACTERS = 500
MAX_COOKIE_CHARACTERS = 4_000
SCOPE = "openid email profile"
_PURPOSE = "OpenID Connect"
_MAX_USED = 20_000
T = TypeVar("T", "Begun", "Pending")
# The states that came back already. After a restart a provider still accepts its code only once (RFC 6749, 4.1.2).
_used: "TTLCache[bytes, bool]" = TTLCache(_MAX_USED, MAX_SECONDS, timer=clock.monotonic)


class Begun(Struct, frozen=True):
    """A sign-in that was begun. `user_id` and `session_id` are 0, unless a signed-in user links an identity.

    `invitation_id` and `invitation_token` are those of the link, if an invited person accepts with the provider.
    """

    key: str
    at: float
    state: str
    nonce: str
    verifier: str
    next: str
    user_id: int = 0
    session_id: int = 0
    invitation_id: int = 0
    invitation_token: str = ""


class Pending(Struct, frozen=True):
    """A person who came back from the provider, and whose password or code is still needed.

    `identity_id` is the linked identity whose user has to enter a code; 0 if the identity has to be linked first.
    """

    key: str
    at: float
    claims: Claims
    next: str
    identity_id: int = 0


class Request(NamedTuple):
    """The URL of the provider that the browser is sent to, and the sealed `Begun` for a cookie."""

    url: str
    cookie: str


async def begin(
    provider: SignInProvider, next_path: str, user_id: int = 0, session_id: int = 0,
    invitation: tuple[int, str] = (0, ""),
) -> Request:  # fmt: skip
    """Return the authorization request for a provider (OpenID Connect Core 1.0, section 3.1.2.1).

    `invitation` is the id and the token of an invitation that is accepted with the provider. Raises ProviderError if
    the provider cannot be asked for its endpoints.
    """
    published = await metadata.discover(provider.issuer)
    begun = Begun(
        provider.key, clock.now(), secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48),
        next_path if len(next_path) <= MAX_NEXT_CHARACTERS else "/", user_id, session_id, *invitation,
    )  # fmt: skip
    digest = hashlib.sha256(begun.verifier.encode()).digest()
    parameters = {
        "response_type": "code", "client_id": provider.client_id, "redirect_uri": providers.redirect_uri(provider),
        "scope": SCOPE, "state": begun.state, "nonce": begun.nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="), "code_challenge_method": "S256",
    }  # fmt: skip
    return Request(add_parameters(published.authorization_endpoint, parameters), seal(begun))


def add_parameters(url: str, parameters: dict[str, str]) -> str:
    """Return a URL with further parameters in its query (RFC 6749, section 3.1: it may have a query)."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


def seal(value: Begun | Pending) -> str:
    """Return a request or a person as an encrypted text for a cookie."""
    sealed = crypto.seal(crypto.derive_key(_PURPOSE), type(value).__name__, msgspec.json.encode(value))
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def unseal(text: str, kind: type[T], key: str) -> T | None:
    """Return the value that `seal` encrypted for the provider with this key.

    Return None if the text is not valid or older than ten minutes.
    """
    if len(text) > MAX_COOKIE_CHARACTERS or not text.isascii():
        return None
    try:
        sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    plain = crypto.unseal(crypto.derive_key(_PURPOSE), kind.__name__, sealed)
    value = msgspec.json.decode(plain, type=kind) if plain is not None else None
    if value is None or value.key != key or not 0 <= clock.now() - value.at <= MAX_SECONDS:
        return None
    return value


async def finish(provider: SignInProvider, begun: Begun | None, parameters: dict[str, str]) -> Claims:
    """Return the person that a provider's response is about.

    `begun` is the request in the cookie of the browser, and `parameters` is the query of the response. Raises
    ProviderError if the response belongs to another request or provider, reports an error, or fails a check.
    """
    state = parameters.get("state", "")
    if begun is None or not hmac.compare_digest(begun.state.encode(), state.encode("utf-8", "replace")):
        raise ProviderError(gettext("This sign-in is too old, or was begun in another browser. Start again."))
    state_hash = hashlib.sha256(state.encode()).digest()
    if state_hash in _used:
        raise ProviderError(gettext("This sign-in was used already. Start again."))
    _used[state_hash] = True
    published = await metadata.discover(provider.issuer)
    issuer = parameters.get("iss")
    if (issuer is None and published.sends_issuer) or (
        issuer is not None and not published.has_tenants and issuer != published.issuer
    ):
        raise ProviderError(gettext("The response came from another provider (iss). Start again."))
    if "error" in parameters or not parameters.get("code"):
        words = tokens.describe_refusal(parameters.get("error", "code"), parameters.get("error_description", ""))
        raise ProviderError(words)
    client = providers.to_client(provider)
    response = await tokens.exchange(published, client, parameters["code"], begun.verifier)
    claims = await tokens.verify(published, client, response.id_token, begun.nonce)
    if published.has_tenants and issuer is not None and issuer != claims.issuer:
        raise ProviderError(gettext("The response came from another provider (iss). Start again."))
    return await tokens.fetch_person(published, claims, response.access_token)


async def sign_out_url(provider: SignInProvider, return_url: str) -> str | None:
    """Return the URL at which a person also signs out of the provider, or None if it has none or cannot be asked.

    OpenID Connect RP-Initiated Logout 1.0, section 2. Without `id_token_hint`, which would have to be stored, the
    provider asks the person first.
    """
    try:
        published = await metadata.discover(provider.issuer)
    except ProviderError:
        return None
    if not published.end_session_endpoint:
        return None
    parameters = {"client_id": provider.client_id, "post_logout_redirect_uri": return_url}
    return add_parameters(published.end_session_endpoint, parameters)
