"""What an OpenID Connect provider publishes: its endpoints (discovery) and the public keys of its signatures.

OpenID Connect Discovery 1.0, sections 3 and 4; RFC 7517 (JSON Web Key). The URLs come from a settings page and from the
provider, so they are requested as `safe_http` does: public addresses only, no redirects, limits of time and size (T14
in docs/threats.md). Both documents are cached; if a token names an unknown key, the keys are read again, a few times in
an hour.
"""

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from cachetools import TTLCache

from appliance.core import clock
from appliance.core.hidden_characters import clean_text
from appliance.core.i18n import gettext
from appliance.sending.delivery import safe_http
from appliance.settings import config

WELL_KNOWN = "/.well-known/openid-configuration"
MAX_URL_CHARACTERS = 2_000
MAX_ISSUER_CHARACTERS = 500
MAX_DOCUMENT_BYTES = 262_144
MAX_KEYS = 100
CACHE_SECONDS = 3_600
# Within `CACHE_SECONDS`, the keys of a provider are read again at most this often because a key is unknown.
MAX_KEY_READS = 5
MAX_CACHED = 200
# Signatures by a private key only: `none` and HMAC with a public key as its secret are never accepted (RFC 8725,
# sections 2.1 and 3.1).
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
GOOGLE = "https://accounts.google.com"
# Microsoft signs tokens of many tenants with one issuer template ("Validate the issuer" in "Microsoft identity platform
# access tokens", and "OpenID Connect on the Microsoft identity platform").
MICROSOFT_HOSTS = ("login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn")
MICROSOFT_GROUPS = ("common", "organizations", "consumers")
TENANT = "{tenantid}"
_WORDS_LIMIT = 300
_HOST = re.compile(r"[A-Za-z0-9._-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?")


class ProviderError(Exception):
    """A sign-in failed at the provider or because of it; `words` says why, in the language of the request."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class Metadata(NamedTuple):
    """The endpoints of a provider; an endpoint that it does not have is ""."""

    issuer: str  # with `TENANT` in it if the provider signs for many tenants
    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str
    end_session_endpoint: str
    jwks_uri: str
    auth_methods: tuple[str, ...]
    sends_issuer: bool  # whether authorization responses have the parameter `iss` (RFC 9207, section 3)

    @property
    def has_tenants(self) -> bool:
        """Whether the issuer of a token depends on the tenant of the person."""
        return TENANT in self.issuer


class _Document(msgspec.Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    end_session_endpoint: str = ""
    response_types_supported: tuple[str, ...] = ("code",)
    code_challenge_methods_supported: tuple[str, ...] | None = None
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


_metadata: "TTLCache[str, Metadata]" = TTLCache(MAX_CACHED, CACHE_SECONDS, timer=clock.monotonic)
# By issuer and URL, so that one provider cannot use up the readings of another by naming its keys.
_keys: "TTLCache[tuple[str, str], list[dict[str, Any]]]" = TTLCache(MAX_CACHED, CACHE_SECONDS, timer=clock.monotonic)
_key_reads: "TTLCache[tuple[str, str], int]" = TTLCache(MAX_CACHED, CACHE_SECONDS, timer=clock.monotonic)


def find_url_fault(url: str) -> str | None:
    """Return why a URL of a provider cannot be used, in the language of the request, or None.

    It must be https; http is allowed for the hosts of the setting `network.allow_private_hosts`.
    """
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not _HOST.fullmatch(parts.netloc) or "#" in url:
        return gettext("is not a web address")
    if not is_secure_url(url):
        return gettext("must begin with https://")
    return gettext("is not a public web address") if safe_http.find_url_fault(url) is not None else None


def is_secure_url(url: str) -> bool:
    """Return whether a URL is https, or http to a host that the operator has allowed to be private."""
    parts = _split(url)
    if parts is None or not parts.hostname or len(url) > MAX_URL_CHARACTERS or not url.isascii():
        return False
    if not url.isprintable() or any(character in " \"'<>\\^`|" for character in url):
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in config.current().network.allow_private_hosts
    )


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def schemes_of(url: str) -> tuple[str, ...]:
    """Return the schemes that `safe_http` may use for a URL that is secure."""
    return (urlsplit(url).scheme,)


def normalize_issuer(issuer: str) -> str:
    """Return an issuer as it was typed, without spaces and without the path of its discovery document."""
    return issuer.strip().removesuffix(WELL_KNOWN)


def is_microsoft(issuer: str) -> bool:
    """Return whether an issuer is the identity platform of Microsoft, for one tenant or for many."""
    parts = _split(issuer)
    return parts is not None and parts.scheme == "https" and parts.netloc in MICROSOFT_HOSTS


def forget(issuer: str) -> None:
    """Remove what a provider has published from the cache."""
    metadata = _metadata.pop(issuer, None)
    if metadata is not None:
        _keys.pop((metadata.issuer, metadata.jwks_uri), None)


async def discover(issuer: str) -> Metadata:
    """Return the endpoints of an issuer, from the cache or its discovery document.

    Raises ProviderError if the document cannot be read, is of another issuer, or lacks what a sign-in needs.
    """
    if (cached := _metadata.get(issuer)) is not None:
        return cached
    if fault := find_url_fault(issuer):
        raise ProviderError(gettext("The issuer %(fault)s: %(url)s", fault=fault, url=issuer))
    url = issuer.removesuffix("/") + WELL_KNOWN
    try:
        document = msgspec.json.decode(await fetch_document(url), type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProviderError(
            gettext("The answer of %(url)s is not the description of a provider: %(words)s", url=url,
                    words=_clean(str(error)))
        ) from None  # fmt: skip
    _metadata[issuer] = metadata = _read(issuer, document)
    return metadata


def _read(issuer: str, document: _Document) -> Metadata:
    expected = _expected_issuer(issuer, document.issuer)
    if document.issuer != expected:
        # Discovery 1.0, section 4.3: otherwise one provider could answer in the name of another.
        raise ProviderError(
            gettext("The provider calls itself %(actual)s. Enter exactly this as its issuer.",
                    actual=_clean(document.issuer))
        )  # fmt: skip
    endpoints = {name: getattr(document, name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
    endpoints |= {
        name: url for name in ("userinfo_endpoint", "end_session_endpoint") if (url := getattr(document, name))
    }
    for name, url in endpoints.items():
        if not is_secure_url(url):
            raise ProviderError(gettext("The provider names an address that is not safe: %(name)s", name=name))
    if "code" not in document.response_types_supported:
        raise ProviderError(gettext("The provider does not support the authorization code flow."))
    methods = document.code_challenge_methods_supported
    if methods is not None and "S256" not in methods:
        raise ProviderError(gettext("The provider does not support PKCE with S256."))
    if not set(ALGORITHMS) & set(document.id_token_signing_alg_values_supported):
        raise ProviderError(gettext("The provider signs with no method that is safe, such as RS256 or ES256."))
    return Metadata(
        document.issuer, document.authorization_endpoint, document.token_endpoint, document.userinfo_endpoint,
        document.end_session_endpoint, document.jwks_uri, document.token_endpoint_auth_methods_supported,
        document.authorization_response_iss_parameter_supported,
    )  # fmt: skip


def _expected_issuer(issuer: str, actual: str) -> str:
    """Return the issuer that a discovery document must name: that of the settings, or the template of Microsoft.

    Only the three multi-tenant issuers of Microsoft (`MICROSOFT_GROUPS`) have a template, on the host of the issuer.
    """
    parts = urlsplit(issuer)
    segments = parts.path.strip("/").split("/")
    if is_microsoft(issuer) and segments[0] in MICROSOFT_GROUPS and segments[1:] == ["v2.0"]:
        template = f"https://{parts.netloc}/{TENANT}/v2.0"
        return template if actual == template else issuer
    return issuer


async def fetch_keys(metadata: Metadata, kid: str | None) -> list[dict[str, Any]]:
    """Return the signing keys of a provider, as JSON Web Keys, that may be those of a token with this key id.

    If no cached key has the id, the keys are read again, because the provider may have changed them, but at most
    `MAX_KEY_READS` times in `CACHE_SECONDS`. Raises ProviderError if they cannot be read.
    """
    name = metadata.issuer, metadata.jwks_uri
    keys = _keys.get(name)
    if keys is not None and not (matching := _match(keys, kid)):
        reads = _key_reads.get(name, 0)
        if reads >= MAX_KEY_READS:
            return matching
        _key_reads[name] = reads + 1
        keys = None
    if keys is None:
        _keys[name] = keys = await _read_keys(metadata.jwks_uri)
    return _match(keys, kid)


async def fetch_all_keys(metadata: Metadata) -> list[dict[str, Any]]:
    """Return all signing keys of a provider, without the cache; raises ProviderError if they cannot be read."""
    return await _read_keys(metadata.jwks_uri)


def _match(keys: list[dict[str, Any]], kid: str | None) -> list[dict[str, Any]]:
    """Return the keys with an id; for a token without one, the only key there is (OpenID Connect Core, 10.1)."""
    if kid is None:
        return keys if len(keys) == 1 else []
    return [key for key in keys if key.get("kid") == kid]


async def _read_keys(url: str) -> list[dict[str, Any]]:
    try:
        document = msgspec.json.decode(await fetch_document(url))
        keys = document["keys"]
        usable = [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        raise ProviderError(gettext("The answer of %(url)s is not a set of keys.", url=url)) from None
    # A published key is not secret, so neither a symmetric nor a private key is used. The factors of a private RSA key
    # would also be searched for in the event loop, which takes time with the cube of its length.
    return [key for key in usable if key.get("kty") in ("RSA", "EC", "OKP") and "d" not in key][:MAX_KEYS]


async def fetch_document(url: str) -> bytes:
    """Return the content of a URL of a provider; raises ProviderError unless it answers with status 200."""
    try:
        response = await safe_http.get(url, schemes=schemes_of(url), max_bytes=MAX_DOCUMENT_BYTES)
    except safe_http.RequestFailed:
        raise unreachable(url) from None
    if response.status != 200:
        raise ProviderError(
            gettext("%(url)s answered with the status %(status)s.", url=url, status=response.status)
        )  # fmt: skip
    return response.body


def unreachable(url: str) -> ProviderError:
    """Return the error for a URL of a provider that cannot be reached; `safe_http` does not say why."""
    return ProviderError(
        gettext(
            "%(host)s cannot be reached. If it is in a private network, add it to network.allow_private_hosts in the "
            "configuration.", host=urlsplit(url).netloc,
        )
    )  # fmt: skip


def _clean(words: str) -> str:
    return " ".join(clean_text(words).split())[:_WORDS_LIMIT]


def clean_words(words: Any) -> str:
    """Return a text of a provider as one line of up to `_WORDS_LIMIT` visible characters; "" for any other value."""
    return _clean(words) if isinstance(words, str) else ""
