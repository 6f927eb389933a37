"""Ask the owner of a mailbox for consent: the authorization code flow with PKCE, and the device flow.

The state of a request is sealed into the parameter `state`, or into a field of the form, so nothing is stored before
the consent. It names the user who began, so that nobody can connect a mailbox in the name of another user (RFC 6749,
section 10.12), and ends after ten minutes.
"""

import base64
import hashlib
import ipaddress
import secrets
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
from msgspec import Struct

from appliance.core import clock, crypto
from appliance.sending.delivery import http_client
from appliance.sending.delivery.oauth import PROVIDERS, tokens
from appliance.sending.delivery.oauth.providers import MICROSOFT, Use
from appliance.sending.delivery.oauth.tokens import OAuthError, TokenResponse
from appliance.settings import config
from appliance.settings.schema import Config, Email

CALLBACK_PATH = "/settings/sending/callback"
_PURPOSE, _LABEL = "OAuth consent", "state"
_MAX_AGE_SECONDS = 600.0
# Nothing listens there: the user copies the address of the page that cannot be opened. Both providers accept any port
# of a loopback address for installed applications (RFC 8252, section 7.3).
_PASTE_URL = "http://localhost:8767/"


class Begun(Struct, frozen=True):
    """A request for consent that was begun at the time `at` (Unix seconds).

    `verifier` belongs to PKCE (RFC 7636), and the last three fields to the device flow.
    """

    provider: str
    use: Use
    user_id: int
    at: float
    redirect_url: str = ""
    verifier: str = ""
    device_code: str = ""
    user_code: str = ""
    device_url: str = ""


class DeviceCode(NamedTuple):
    """The code that the user enters, the URL of the page for it (RFC 8628, section 3.2), and the sealed state."""

    user_code: str
    url: str
    state: str


def show_device(begun: Begun) -> DeviceCode:
    """Return the code, and the page to enter it on, of a sign-in that was begun with `begin_device`."""
    return DeviceCode(begun.user_code, begun.device_url, _seal(begun))


def redirect_url(name: str, settings: Config) -> str:
    """Return the URL to which the browser comes back, or "" if the provider does not allow the base URL.

    It must be https, or of this machine, which Microsoft allows only as `localhost` ("Redirect URI restrictions").
    """
    base_url, host = config.base_url(settings), config.base_host(settings)
    try:
        is_loopback = host == "localhost" or (name != MICROSOFT.name and ipaddress.ip_address(host).is_loopback)
    except ValueError:
        is_loopback = False
    return f"{base_url}{CALLBACK_PATH}" if base_url.startswith("https://") or is_loopback else ""


def begin(name: str, use: Use, user_id: int, settings: Config) -> tuple[str, bool]:
    """Return the URL of the provider's consent page, and whether the browser comes back by itself.

    Otherwise the user pastes the address of the page that the provider leads to (`read_address`).
    """
    provider, verifier = PROVIDERS[name], secrets.token_urlsafe(48)
    url = redirect_url(name, settings)
    begun = Begun(name, use, user_id, clock.now(), url or _PASTE_URL, verifier)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    parameters = {
        "response_type": "code", "client_id": provider.section(settings.email).client_id,
        "redirect_uri": begun.redirect_url, "scope": provider.scopes[use], "state": _seal(begun),
        "code_challenge": challenge, "code_challenge_method": "S256", **provider.more,
    }  # fmt: skip
    return f"{provider.authorize_url(settings.email)}?{urlencode(parameters)}", bool(url)


def read_address(address: str) -> dict[str, str]:
    """Return the query parameters of the address that the user pasted, each with its first value; {} for no URL."""
    try:
        query = urlsplit(address.strip()).query
        return {name: values[0] for name, values in parse_qs(query, max_num_fields=50).items()}
    except ValueError:
        return {}


def open_state(state: str, user_id: int) -> Begun | None:
    """Return the consent that a user began, or None if the state is invalid, too old or of another user."""
    try:
        sealed = base64.urlsafe_b64decode(state.encode())
    except ValueError:
        return None
    plain = crypto.unseal(crypto.derive_key(_PURPOSE), _LABEL, sealed)
    if plain is None:
        return None
    begun = msgspec.json.decode(plain, type=Begun)
    is_fresh = 0 <= clock.now() - begun.at <= _MAX_AGE_SECONDS
    return begun if begun.user_id == user_id and is_fresh else None


def _seal(begun: Begun) -> str:
    sealed = crypto.seal(crypto.derive_key(_PURPOSE), _LABEL, msgspec.json.encode(begun))
    return base64.urlsafe_b64encode(sealed).decode()


async def exchange(begun: Begun, code: str, email: Email) -> TokenResponse:
    """Exchange an authorization code for tokens (RFC 6749, section 4.1.3). Raises OAuthError.

    The code of the error is `no_refresh_token` if the answer has none, so that sending would end within an hour.
    """
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": begun.redirect_url,
        "code_verifier": begun.verifier,
    }  # fmt: skip
    return _require_refresh_token(await tokens.request_token(PROVIDERS[begun.provider], email, form))


async def begin_device(name: str, use: Use, user_id: int, email: Email) -> DeviceCode:
    """Request the code that the user enters at the provider (RFC 8628, section 3.1). Raises OAuthError."""
    provider = PROVIDERS[name]
    form = {"client_id": provider.section(email).client_id, "scope": provider.scopes[use]}
    details = await tokens.post_form(provider.device_url(email), form)
    user_code, device_code = details.get("user_code"), details.get("device_code")
    url = str(details.get("verification_uri") or "")
    if not isinstance(user_code, str) or not isinstance(device_code, str) or not url.startswith("https://"):
        raise OAuthError("unavailable", "the answer has no device code")
    shown_code = http_client.clean_text(user_code, 40)
    begun = Begun(
        name, use, user_id, clock.now(), device_code=device_code, user_code=shown_code, device_url=url
    )  # fmt: skip
    return show_device(begun)


async def poll_device(begun: Begun, email: Email) -> TokenResponse | None:
    """Ask once whether the user has consented; None means not yet (RFC 8628, section 3.5). Raises OAuthError."""
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": begun.device_code}
    try:
        return _require_refresh_token(await tokens.request_token(PROVIDERS[begun.provider], email, form))
    except OAuthError as error:
        if error.code in ("authorization_pending", "slow_down"):
            return None
        raise


def _require_refresh_token(response: TokenResponse) -> TokenResponse:
    if not response.refresh_token:
        raise OAuthError("no_refresh_token", "the answer has no refresh token")
    return response
