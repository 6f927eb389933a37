"""The token request of the authorization code flow, and the checks of the ID token that answers it.

OpenID Connect Core 1.0, sections 3.1.3 and 3.1.3.7; RFC 6749, section 4.1.3; RFC 7636 (PKCE); RFC 8725 (JWT best
practices); RFC 9700, section 2.1. PyJWT verifies the signature. This module decides which algorithms, keys and claims
are accepted, with the clock of the service.
"""

import base64
import re
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus, urlencode

import msgspec

from appliance.accounts.oidc.metadata import (
    ALGORITHMS,
    GOOGLE,
    TENANT,
    Metadata,
    ProviderError,
    clean_words,
    fetch_keys,
    is_microsoft,
    schemes_of,
    unreachable,
)
from appliance.core import addresses, clock
from appliance.core.i18n import gettext
from appliance.sending.delivery import safe_http

if TYPE_CHECKING:
    from jwt.types import Options

MAX_RESPONSE_BYTES = 262_144
MAX_TOKEN_CHARACTERS = 65_536
MAX_NAME_CHARACTERS = 100
MAX_SUBJECT_CHARACTERS = 255  # OpenID Connect Core 1.0, section 2
CLOCK_SKEW_SECONDS = 60
_TIMEOUT_SECONDS = 10.0
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TENANT_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REQUIRED = ("iss", "sub", "aud", "exp", "iat", "nonce")
# The claims are checked here: the times with the clock of the service, the others more strictly than PyJWT does.
_OPTIONS: "Options" = {
    "require": list(_REQUIRED), "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
    "verify_iss": False, "verify_sub": False, "enforce_minimum_key_length": True,
}  # fmt: skip
# The values of `amr` that stand for more than one factor (RFC 8176, section 2).
_MFA = "mfa"


class Client(NamedTuple):
    """This service as an OAuth client of a provider; `secret` is "" for a public client."""

    client_id: str
    secret: str
    redirect_uri: str


class Claims(NamedTuple):
    """Who signed in. `email` is "" unless the provider names an address that can be one."""

    issuer: str
    subject: str
    email: str = ""
    email_is_verified: bool = False
    name: str = ""
    hosted_domain: str = ""  # `hd` of Google: the organization that owns the account
    has_mfa: bool = False  # whether the provider says that it checked several factors

    @property
    def domain(self) -> str:
        """The domain of the address, in lower case; "" without an address."""
        return self.email.rpartition("@")[2]


class TokenResponse(NamedTuple):
    """The tokens that a code was exchanged for; `access_token` is "" if there is none."""

    id_token: str
    access_token: str


async def exchange(metadata: Metadata, client: Client, code: str, verifier: str) -> TokenResponse:
    """Exchange an authorization code for an ID token; raises ProviderError."""
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": client.redirect_uri,
            "code_verifier": verifier}  # fmt: skip
    status, details = await post(metadata, client, form)
    if status != 200 or "error" in details:
        raise ProviderError(_describe_error(details, status))
    id_token, access_token = details.get("id_token"), details.get("access_token")
    if not isinstance(id_token, str) or not id_token:
        raise ProviderError(gettext("The provider answered without an ID token. The scope openid must be allowed."))
    return TokenResponse(id_token, access_token if isinstance(access_token, str) else "")


async def check_client(metadata: Metadata, client: Client) -> None:
    """Ask the token endpoint whether it knows the client and its secret; raises ProviderError if it does not.

    The request has an invalid code, so a provider that accepts the client answers `invalid_grant` (RFC 6749, section
    5.2).
    """
    form = {"grant_type": "authorization_code", "code": "connection-test", "redirect_uri": client.redirect_uri,
            "code_verifier": "x" * 43}  # fmt: skip
    status, details = await post(metadata, client, form)
    if status == 401 or details.get("error") in ("invalid_client", "unauthorized_client"):
        raise ProviderError(_describe_error(details, status))


async def post(metadata: Metadata, client: Client, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Post a form to the token endpoint as this client, and return the status and the JSON object of the answer.

    The client sends its secret as the provider supports it: in a header, or in the form (RFC 6749, section 2.3.1).
    Raises ProviderError if the provider cannot be reached, or supports neither.
    """
    url = metadata.token_endpoint
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if client.secret and "client_secret_basic" in metadata.auth_methods:
        credentials = f"{quote_plus(client.client_id)}:{quote_plus(client.secret)}"
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    elif client.secret and "client_secret_post" not in metadata.auth_methods:
        raise ProviderError(gettext("The provider accepts no client secret (client_secret_basic, client_secret_post)."))
    else:
        form = {**form, "client_id": client.client_id} | ({"client_secret": client.secret} if client.secret else {})
    try:
        response = await safe_http.request(
            "POST", url, headers=headers, content=urlencode(form).encode(), schemes=schemes_of(url),
            max_bytes=MAX_RESPONSE_BYTES, timeout_seconds=_TIMEOUT_SECONDS,
        )  # fmt: skip
    except safe_http.RequestFailed:
        raise unreachable(url) from None
    return response.status, _decode(response.body)


def _decode(body: bytes) -> dict[str, Any]:
    try:
        details = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return details if isinstance(details, dict) else {}


def _describe_error(details: dict[str, Any], status: int) -> str:
    error = clean_words(details.get("error"))
    words = clean_words(details.get("error_description")) or error
    if error in ("invalid_client", "unauthorized_client") or status == 401:
        return gettext("The provider does not accept the client ID or its secret: %(words)s", words=words or status)
    return gettext("The provider did not accept the sign-in: %(words)s", words=words or status)


def describe_refusal(error: str, description: str) -> str:
    """Return the words for an error of an authorization response (RFC 6749, section 4.1.2.1)."""
    if error == "access_denied":
        return gettext("The sign-in was cancelled at the provider, or you may not use this app there.")
    words = clean_words(description) or clean_words(error)
    return gettext("The provider did not accept the sign-in: %(words)s", words=words)


async def verify(metadata: Metadata, client: Client, token: str, nonce: str) -> Claims:
    """Return who an ID token is about, after all checks of OpenID Connect Core 1.0, section 3.1.3.7.

    The token must be signed by a key of the provider with one of `ALGORITHMS`, name its issuer, this client as the only
    audience and this nonce, and be valid now, give or take `CLOCK_SKEW_SECONDS`. Raises ProviderError, whose text names
    the claim but not its value.
    """
    claims, key = await _verify_signature(metadata, token)
    issuer = _check_issuer(metadata, claims, key)
    audience = claims["aud"]
    # Further audiences would have to be trusted, and none is (3.1.3.7, item 3), so `azp` can only be this client.
    if audience not in (client.client_id, [client.client_id]):
        raise _rejected("aud")
    if claims.get("azp", client.client_id) != client.client_id:
        raise _rejected("azp")
    if claims["nonce"] != nonce:
        raise _rejected("nonce")
    _check_times(claims)
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS or not subject.isascii():
        raise _rejected("sub")
    return read_person(issuer, subject, claims)


async def _verify_signature(metadata: Metadata, token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (claims, key) of a token with a valid signature."""
    import jwt

    if len(token) > MAX_TOKEN_CHARACTERS or not _COMPACT.fullmatch(token):
        raise _rejected("signature")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise _rejected("header") from None
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if algorithm not in ALGORITHMS:
        raise _rejected("alg")
    # Another kind of token of the same provider is no ID token (RFC 8725, section 3.11).
    if not isinstance(kind, str) or kind.upper() != "JWT" or (kid is not None and not isinstance(kid, str)):
        raise _rejected("header")
    keys = [key for key in await fetch_keys(metadata, kid) if key.get("alg", algorithm) == algorithm]
    for key in keys:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                claims = jwt.decode(token, jwt.PyJWK(key, algorithm), algorithms=[algorithm], options=_OPTIONS)
        except jwt.MissingRequiredClaimError as error:
            raise _rejected(error.claim) from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            continue
        return claims, key
    raise _rejected("signature")


def _check_issuer(metadata: Metadata, claims: dict[str, Any], key: dict[str, Any]) -> str:
    """Return the issuer of a token, which must be that of the provider.

    Microsoft signs for many tenants. There the issuer contains the tenant of the token's claim `tid`, and a key that
    names an issuer is valid only for that issuer ("Validate the issuer" and "Validate the signing key issuer" in
    "Microsoft identity platform access tokens").
    """
    issuer = claims["iss"]
    if not metadata.has_tenants:
        if issuer != metadata.issuer:
            raise _rejected("iss")
        return str(issuer)
    tenant = claims.get("tid")
    if not isinstance(tenant, str) or not _TENANT_ID.fullmatch(tenant):
        raise _rejected("tid")
    if issuer != metadata.issuer.replace(TENANT, tenant):
        raise _rejected("iss")
    if str(key.get("issuer", metadata.issuer)).replace(TENANT, tenant) != issuer:
        raise _rejected("iss")
    return str(issuer)


def _check_times(claims: dict[str, Any]) -> None:
    now = clock.now()
    for name in ("exp", "iat", "nbf"):
        moment = claims.get(name)
        if moment is None and name == "nbf":
            continue
        if not isinstance(moment, int | float) or isinstance(moment, bool) or not abs(moment) < 1e12:
            raise _rejected(name)
        if (name == "exp" and moment <= now - CLOCK_SKEW_SECONDS) or (
            name != "exp" and moment > now + CLOCK_SKEW_SECONDS
        ):
            raise ProviderError(
                gettext("The provider’s answer is not valid now (%(name)s). Check the clocks of both machines.",
                        name=name)
            )  # fmt: skip


def _rejected(name: str) -> ProviderError:
    return ProviderError(gettext("The provider’s answer is not valid (%(name)s). Start again.", name=name))


def read_person(issuer: str, subject: str, claims: dict[str, Any]) -> Claims:
    """Return the claims about a person from the claims of a verified token.

    An address counts as verified if `email_verified` is true (OpenID Connect Core 1.0, section 5.1). Microsoft lets
    administrators of any tenant enter any address, so there the claim `xms_edov` decides, which is true if the tenant
    owns the domain ("Optional claims reference").
    """
    email = claims.get("email")
    try:
        key = addresses.parse_email(email).key if isinstance(email, str) and len(email) <= 254 else ""
    except ValueError:
        key = ""
    if is_microsoft(issuer):
        verified = claims.get("xms_edov") in (True, "1", "true")
    else:
        verified = claims.get("email_verified") is True
    methods = claims.get("amr")
    domain = claims.get("hd") if issuer == GOOGLE else ""
    return Claims(
        issuer, subject, key, bool(key) and verified, clean_words(claims.get("name"))[:MAX_NAME_CHARACTERS],
        domain.lower() if isinstance(domain, str) else "", isinstance(methods, list) and _MFA in methods,
    )  # fmt: skip


async def fetch_person(metadata: Metadata, claims: Claims, access_token: str) -> Claims:
    """Return the claims with the address and name of the UserInfo endpoint, if the ID token has no address.

    OpenID Connect Core 1.0, sections 5.3.2 and 5.4: a provider may send them there only. The response must have the
    subject of the ID token. The claims are returned unchanged if the endpoint does not answer as it should.
    """
    url = metadata.userinfo_endpoint
    if claims.email or not url or not access_token or not access_token.isascii() or not access_token.isprintable():
        return claims
    try:
        response = await safe_http.request(
            "GET", url, headers={"Authorization": f"Bearer {access_token}"}, schemes=schemes_of(url),
            max_bytes=MAX_RESPONSE_BYTES,
        )  # fmt: skip
    except safe_http.RequestFailed:
        return claims
    details = _decode(response.body) if response.status == 200 else {}
    if details.get("sub") != claims.subject:
        return claims
    person = read_person(claims.issuer, claims.subject, details)
    return person._replace(hosted_domain=claims.hosted_domain, has_mfa=claims.has_mfa, name=person.name or claims.name)
