"""Access tokens: request them with the refresh token of a consent, and cache them until shortly before they expire.

This is the only place that requests access tokens. The refresh tokens are settings (`email.google.refresh_token`),
which `messages/oauth_grants.py` stores; the signals here tell it about each answer of the provider.
"""

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import msgspec

from appliance.core import clock
from appliance.core.errors import ClientRejected, ConnectionFailed, DeliveryError, Uncertain
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.core.signals import Signal
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.delivery.oauth import PROVIDERS
from appliance.sending.delivery.oauth.providers import OAuthProvider, Use
from appliance.settings import config
from appliance.settings.schema import Email

_TIMEOUT_SECONDS = 20.0
# An access token is replaced this long before it expires, or a tenth of its life if that is less.
_MARGIN_SECONDS = 300.0
# A provider that has rejected a consent is not asked about the same one again for this time.
_REJECTED_SECONDS = 300.0
_DEFAULT_LIFE_SECONDS = 3600.0  # if the answer does not say (RFC 6749, section 5.1: "recommended")
_MAX_CACHED = 100

# Errors are stored in English, and translated where they are shown.
_NOT_CONNECTED = gettext_stored("no mailbox is connected with %(provider)s")
_REJECTED = gettext_stored("%(provider)s no longer accepts the consent: %(words)s")
_CLIENT_REJECTED = gettext_stored("%(provider)s does not accept the client ID and its secret: %(words)s")
_UNREACHABLE = gettext_stored("%(provider)s gives no access token at the moment: %(words)s")
CONNECT_AGAIN = gettext_noop("connect the mailbox again under Settings, Sending")
# The cause of errors about the consent (see `DeliveryError.cause`).
CONSENT, LOGIN = "consent", "login"


class TokenResponse(NamedTuple):
    """The answer of a token endpoint (RFC 6749, section 5.1); times are in Unix seconds.

    `refresh_token` is "" if the earlier one stays valid, `refresh_expires_at` None if the provider names no end, and
    `email` "" if the answer names no mailbox.
    """

    access_token: str
    expires_at: float
    refresh_token: str
    refresh_expires_at: float | None
    email: str


class OAuthError(Exception):
    """An error of an authorization server: its code (RFC 6749, section 5.2; RFC 8628, section 3.5) and its message."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


# Sent when a refresh token was accepted, with the provider's name, that token, and the answer.
grant_refreshed: Signal[[str, str, TokenResponse]] = Signal()
# Sent when a refresh token was rejected for good, with the provider's name, that token, and the provider's words.
grant_rejected: Signal[[str, str, str]] = Signal()


class _Cached(NamedTuple):
    token: str
    renew_at: float


_cache: dict[tuple[str, ...], _Cached] = {}
_rejections: dict[tuple[str, ...], tuple[float, ClientRejected]] = {}
_locks: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()


async def get_access_token(name: str, use: Use, email: Email, *, is_check: bool = False) -> str:
    """Return an access token of a provider for the consent in the settings.

    With `is_check`, the provider is asked in any case. Raises ClientRejected if no mailbox is connected or the consent
    or client is rejected, with `cause` and `help`; ConnectionFailed if the provider cannot be asked now.
    """
    provider = PROVIDERS[name]
    key = _cache_key(provider, use, email)
    if not provider.section(email).refresh_token:
        raise _with_help(ClientRejected(_NOT_CONNECTED % {"provider": provider.label}), CONSENT)
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not is_check:
            cached = _cache.get(key)
            if cached is not None and cached.renew_at > clock.now():
                return cached.token
            until, rejection = _rejections.get(key, (0.0, None))
            if rejection is not None and until > clock.now():
                raise _with_help(ClientRejected(rejection.text), rejection.cause)
        return (await refresh(name, use, email)).access_token


def discard(name: str, use: Use, email: Email) -> None:
    """Forget the cached access token, because a server has rejected it."""
    _cache.pop(_cache_key(PROVIDERS[name], use, email), None)


async def refresh(name: str, use: Use, email: Email) -> TokenResponse:
    """Request a new access token, cache it, and return the answer (RFC 6749, section 6).

    The signals are sent if the settings are those of the service, and not of a form. Raises the errors of
    `get_access_token`.
    """
    provider = PROVIDERS[name]
    key, token = _cache_key(provider, use, email), provider.section(email).refresh_token
    is_current = provider.section(email) == provider.section(config.current().email)
    form = {"grant_type": "refresh_token", "refresh_token": token, "scope": provider.scopes[use]}
    if name == "google":
        del form["scope"]  # The scope of a consent cannot be narrowed there.
    try:
        response = await request_token(provider, email, form)
    except OAuthError as error:
        rejection = to_delivery_error(provider, error)
        if isinstance(rejection, ClientRejected):
            _forget_oldest(_rejections)
            _rejections[key] = (clock.now() + _REJECTED_SECONDS, rejection)
            if is_current:
                grant_rejected.send(name, token, rejection.text)
        raise rejection from None
    _rejections.pop(key, None)
    _forget_oldest(_cache)
    life = response.expires_at - clock.now()
    _cache[key] = _Cached(response.access_token, response.expires_at - min(_MARGIN_SECONDS, life / 10))
    if is_current:
        grant_refreshed.send(name, token, response)
    return response


def _forget_oldest(entries: dict[Any, Any]) -> None:
    if len(entries) >= _MAX_CACHED:
        del entries[next(iter(entries))]


def _cache_key(provider: OAuthProvider, use: Use, email: Email) -> tuple[str, ...]:
    section = provider.section(email)
    secrets = f"{section.client_secret}\0{section.refresh_token}".encode()
    return provider.token_url(email), use, section.client_id, hashlib.sha256(secrets).hexdigest()


def to_delivery_error(provider: OAuthProvider, error: OAuthError) -> DeliveryError:
    """Return an error of a token endpoint as an error of sending, with its cause and help."""
    values = {"provider": provider.label, "words": error.words or error.code}
    if error.code in ("invalid_grant", "interaction_required", "invalid_scope", "consent_required"):
        return _with_help(ClientRejected(_REJECTED % values), CONSENT)
    if error.code in ("invalid_client", "unauthorized_client", "invalid_request", "access_denied"):
        return _with_help(ClientRejected(_CLIENT_REJECTED % values), LOGIN)
    return ConnectionFailed(_UNREACHABLE % values)


def _with_help(error: ClientRejected, cause: str) -> ClientRejected:
    error.cause, error.help = cause, CONNECT_AGAIN if cause == CONSENT else ""
    return error


async def request_token(provider: OAuthProvider, email: Email, form: Mapping[str, str]) -> TokenResponse:
    """Post a form with the client's ID and secret to the token endpoint, and return the answer.

    Raises OAuthError; its code is `unavailable` if the provider cannot be reached or does not answer as documented.
    """
    details = await post_form(provider.token_url(email), _with_client(provider, email, form))
    access_token = details.get("access_token")
    if not isinstance(access_token, str) or not http_client.is_token(access_token):
        raise OAuthError("unavailable", "the answer has no access token")
    refresh_token = details.get("refresh_token")
    now = clock.now()
    return TokenResponse(
        access_token,
        now + (_to_seconds(details.get("expires_in")) or _DEFAULT_LIFE_SECONDS),
        refresh_token if isinstance(refresh_token, str) and http_client.is_token(refresh_token) else "",
        now + seconds if (seconds := _to_seconds(details.get("refresh_token_expires_in"))) else None,
        _read_email(details.get("id_token")),
    )


def _with_client(provider: OAuthProvider, email: Email, form: Mapping[str, str]) -> dict[str, str]:
    section = provider.section(email)
    client = {"client_id": section.client_id} | (
        {"client_secret": section.client_secret} if section.client_secret else {}
    )
    return {**form, **client}


async def post_form(url: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Post a form and return the JSON object of a successful response. Raises OAuthError."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    try:
        response = await http_client.fetch(
            HttpRequest("POST", url, headers, urlencode(form).encode()), _TIMEOUT_SECONDS
        )
    except (ConnectionFailed, Uncertain) as error:
        raise OAuthError("unavailable", error.text) from None
    details = http_client.decode_response(response)
    if response.status != 200 or "error" in details:
        raise _to_error(response, details)
    return details


def _to_error(response: HttpResponse, details: Mapping[str, Any]) -> OAuthError:
    code = http_client.clean_text(details.get("error"), 100)
    words = http_client.clean_text(details.get("error_description"), 500) or code or http_client.excerpt(response)
    is_final = response.status < 500 and response.status != 429 and code != "temporarily_unavailable"
    return OAuthError(code if code and is_final else "unavailable", f"{words} (HTTP {response.status})")


def _to_seconds(value: Any) -> float | None:
    """Return a number of seconds of up to ten years, or None if the value is no such number."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds <= 315_360_000 else None


def _read_email(id_token: Any) -> str:
    """Return the address in an ID token, or "".

    The signature need not be checked, because the token came over TLS from the token endpoint (OpenID Connect Core 1.0,
    section 3.1.3.7). The address is only shown, and used as the user name of SMTP.
    """
    parts = str(id_token or "").split(".")
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (IndexError, ValueError, msgspec.DecodeError):
        return ""
    if not isinstance(claims, dict):
        return ""
    address = http_client.clean_text(claims.get("email") or claims.get("preferred_username"), 254)
    return address if "@" in address and " " not in address else ""
