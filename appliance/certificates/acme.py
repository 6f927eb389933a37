"""Talk to a certificate authority by ACME (RFC 8555): account, order, challenges, download and renewal information.

The library `acme` of Certbot is not used: it has no TLS-ALPN-01, does not return the Retry-After of a rate limit, and
cannot continue an order by its URL (docs/decisions.md#17).
"""

import asyncio
import base64
import hashlib
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from appliance.core import clock
from appliance.core.errors import ConnectionFailed, Uncertain
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse, decode_response

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

_ERROR_PREFIX = "urn:ietf:params:acme:error:"
_REQUEST_TIMEOUT_SECONDS = 30.0
# A CA may reject a nonce at any time; Pebble rejects some on purpose.
_MAX_NONCE_ATTEMPTS = 10
# The longest time for which an authorization or an order is polled. Both continue at the CA, and the next attempt reads
# their result.
MAX_POLL_SECONDS = 120.0
_MIN_POLL_SECONDS, _MAX_PAUSE_SECONDS = 0.25, 10.0
_MAX_RETRY_AFTER_SECONDS = 7 * 86_400.0


class AcmeError(Exception):
    """The CA refused something, or could not be reached (`code` is then "unreachable").

    `code` is the type of the problem without its prefix (RFC 8555, 6.7), such as `rateLimited`. `retry_after` are the
    seconds after which the CA allows another attempt, or None if it does not say.
    """

    def __init__(self, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.retry_after = code, retry_after


class Challenge(NamedTuple):
    """A challenge of an authorization: its type such as `http-01`, its URL, its token and its status."""

    kind: str
    url: str
    token: str
    status: str


class Authorization(NamedTuple):
    """The proof for one name that an order needs; `error` says why it is invalid."""

    url: str
    name: str
    status: str
    challenges: tuple[Challenge, ...]
    error: str


class Order(NamedTuple):
    """An order: `status` is pending, ready, processing, valid or invalid (RFC 8555, 7.1.6)."""

    url: str
    status: str
    authorizations: tuple[str, ...]
    finalize: str
    certificate: str
    error: str


class ExternalAccount(NamedTuple):
    """The account at the CA that a new ACME account is bound to (RFC 8555, 7.3.4); the key is in base64url."""

    key_id: str
    hmac_key: str


class RenewalInfo(NamedTuple):
    """When the CA suggests renewing a certificate (RFC 9773).

    `start` and `end` are the window in Unix seconds; `retry_after` is the number of seconds until the next request.
    """

    start: float
    end: float
    retry_after: float


def to_base64url(data: bytes) -> str:
    """Return bytes in base64url without padding (RFC 7515, section 2)."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class AcmeClient:
    """The client of one ACME account; use it in one event loop. Every method raises AcmeError."""

    def __init__(self, directory_url: str, key: "EllipticCurvePrivateKey", account_url: str = "") -> None:
        self._directory_url, self._key, self.account_url = directory_url, key, account_url
        self._directory: dict[str, Any] = {}
        self._nonces: list[str] = []

    @property
    def thumbprint(self) -> str:
        """Return the thumbprint of the account key (RFC 7638), the second part of each key authorization."""
        canonical = msgspec.json.encode(dict(sorted(self._public_jwk().items())))
        return to_base64url(hashlib.sha256(canonical).digest())

    async def register(self, email: str, external: ExternalAccount | None) -> str:
        """Create the account, or find it if it exists, and return its URL. The terms of service are accepted."""
        directory = await self._load_directory()
        payload: dict[str, Any] = {"termsOfServiceAgreed": True}
        if email:
            payload["contact"] = [f"mailto:{email}"]
        if external is not None:
            payload["externalAccountBinding"] = self._bind(external, directory["newAccount"])
        elif (directory.get("meta") or {}).get("externalAccountRequired"):
            raise AcmeError(
                "externalAccountRequired",
                "the CA requires an account with it: set acme.eab_key_id and acme.eab_hmac_key",
            )
        response = await self._post(directory["newAccount"], payload)
        self.account_url = response.headers.get("location", "")
        return self.account_url

    async def create_order(self, names: list[str], replaces: str = "") -> Order:
        """Order a certificate for these names; `replaces` is the `certificate_id` of the one that it renews."""
        directory = await self._load_directory()
        payload: dict[str, Any] = {"identifiers": [{"type": "dns", "value": name} for name in names]}
        if replaces and "renewalInfo" in directory:
            payload["replaces"] = replaces
        response = await self._post(directory["newOrder"], payload)
        return _read_order(response.headers.get("location", ""), response)

    async def fetch_order(self, url: str) -> Order:
        """Return the current state of an order."""
        return _read_order(url, await self._post(url, None))

    async def fetch_authorization(self, url: str) -> Authorization:
        """Return the current state of an authorization."""
        return _read_authorization(url, await self._post(url, None))

    async def accept_challenge(self, challenge: Challenge) -> None:
        """Notify the CA that the response to a challenge can be fetched now."""
        await self._post(challenge.url, {})

    async def wait_for_authorization(self, url: str) -> Authorization:
        """Return an authorization once it is no longer pending, or as it is after `MAX_POLL_SECONDS`."""
        deadline, pause = time.monotonic() + MAX_POLL_SECONDS, _MIN_POLL_SECONDS
        while True:
            response = await self._post(url, None)
            authorization = _read_authorization(url, response)
            if authorization.status != "pending" or time.monotonic() >= deadline:
                return authorization
            pause = await _pause(response, pause)

    async def finalize(self, order: Order, request_der: bytes) -> None:
        """Send the certificate signing request of an order that is ready."""
        await self._post(order.finalize, {"csr": to_base64url(request_der)})

    async def wait_for_order(self, url: str) -> Order:
        """Return an order once it is valid or invalid, or as it is after `MAX_POLL_SECONDS`."""
        deadline, pause = time.monotonic() + MAX_POLL_SECONDS, _MIN_POLL_SECONDS
        while True:
            response = await self._post(url, None)
            order = _read_order(url, response)
            if order.status in ("valid", "invalid") or time.monotonic() >= deadline:
                return order
            pause = await _pause(response, pause)

    async def download(self, order: Order) -> str:
        """Return the certificate of a valid order with its chain, as PEM."""
        response = await self._post(order.certificate, None, accept="application/pem-certificate-chain")
        return response.body.decode("ascii", "replace")

    async def fetch_renewal_info(self, certificate_id: str) -> RenewalInfo | None:
        """Return when the CA suggests renewing a certificate, or None if it makes no suggestions (RFC 9773).

        Without a Retry-After header, `retry_after` is six hours.
        """
        base = (await self._load_directory()).get("renewalInfo")
        if not isinstance(base, str):
            return None
        response = await self._fetch(HttpRequest("GET", f"{base.rstrip('/')}/{certificate_id}", {}))
        if response.status != 200:
            raise _read_problem(response)
        try:
            window = msgspec.convert(decode_response(response)["suggestedWindow"], _Window)
        except (KeyError, msgspec.ValidationError):
            raise AcmeError("malformed", "the CA sent invalid renewal information") from None
        return RenewalInfo(window.start.timestamp(), window.end.timestamp(), _read_retry_after(response) or 6 * 3600)

    async def _load_directory(self) -> dict[str, Any]:
        if not self._directory:
            response = await self._fetch(HttpRequest("GET", self._directory_url, {}))
            if response.status != 200:
                raise _read_problem(response)
            directory = decode_response(response)
            if not all(isinstance(directory.get(name), str) for name in ("newNonce", "newAccount", "newOrder")):
                raise AcmeError("malformed", f"{self._directory_url} is not the directory of an ACME CA")
            self._directory = directory
        return self._directory

    async def _fetch(self, request: HttpRequest) -> HttpResponse:
        if not request.url.startswith("https://"):
            raise AcmeError("malformed", f"the CA sent a URL that is not https: {request.url[:200]}")
        try:
            response = await http_client.fetch(request, _REQUEST_TIMEOUT_SECONDS)
        except (ConnectionFailed, Uncertain) as error:
            raise AcmeError("unreachable", str(error)) from None
        if nonce := response.headers.get("replay-nonce"):
            self._nonces.append(nonce)
        return response

    async def _post(
        self, url: str, payload: Mapping[str, Any] | None, accept: str = "application/json"
    ) -> HttpResponse:
        """Send a signed request and return the response; without a payload it is POST-as-GET (RFC 8555, 6.3)."""
        content = b"" if payload is None else msgspec.json.encode(payload)
        for attempt in range(1, _MAX_NONCE_ATTEMPTS + 1):
            body = self._sign(url, content, await self._take_nonce())
            headers = {"Content-Type": "application/jose+json", "Accept": accept}
            response = await self._fetch(HttpRequest("POST", url, headers, body))
            if response.status < 400:
                return response
            problem = _read_problem(response)
            if problem.code != "badNonce" or attempt == _MAX_NONCE_ATTEMPTS:
                raise problem
        raise AssertionError  # the last attempt returned or raised

    async def _take_nonce(self) -> str:
        if not self._nonces:
            await self._fetch(HttpRequest("GET", (await self._load_directory())["newNonce"], {}))
        if not self._nonces:
            raise AcmeError("malformed", "the CA sent no nonce")
        return self._nonces.pop()

    def _sign(self, url: str, content: bytes, nonce: str) -> bytes:
        is_known = self.account_url and url != self._directory.get("newAccount")
        signer = {"kid": self.account_url} if is_known else {"jwk": self._public_jwk()}
        return _to_flattened(content, self._key, "ES256", {**signer, "nonce": nonce, "url": url})

    def _bind(self, external: ExternalAccount, url: str) -> msgspec.Raw:
        try:
            key = base64.b64decode(external.hmac_key + "=" * (-len(external.hmac_key) % 4), b"-_", validate=True)
        except ValueError:
            raise AcmeError("malformed", "acme.eab_hmac_key is not in base64url") from None
        content = msgspec.json.encode(self._public_jwk())
        return msgspec.Raw(_to_flattened(content, key, "HS256", {"kid": external.key_id, "url": url}))

    def _public_jwk(self) -> dict[str, str]:
        from jwt.algorithms import ECAlgorithm

        jwk = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {name: str(jwk[name]) for name in ("crv", "kty", "x", "y")}


def certificate_id(leaf: "Certificate") -> str:
    """Return the identifier of a certificate in renewal information (RFC 9773, 4.1), or "" if it names no issuer."""
    from cryptography import x509

    try:
        authority = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return ""
    serial = leaf.serial_number
    serial_bytes = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    return f"{to_base64url(authority)}.{to_base64url(serial_bytes)}" if authority else ""


class _Window(msgspec.Struct):
    start: datetime
    end: datetime


class _Problem(msgspec.Struct):
    type: str = ""
    detail: str = ""
    subproblems: "list[_Problem]" = []


def _to_flattened(content: bytes, key: Any, algorithm: str, headers: dict[str, Any]) -> bytes:
    """Return a JWS in the flattened form that ACME requires (RFC 8555, 6.2)."""
    from jwt import PyJWS

    protected, payload, signature = PyJWS().encode(content, key, algorithm, {"typ": None, **headers}).split(".")
    return msgspec.json.encode({"protected": protected, "payload": payload, "signature": signature})


def _read_problem(response: HttpResponse) -> AcmeError:
    """Return the error that a response describes (RFC 7807), with the texts of its parts."""
    try:
        problem = msgspec.json.decode(response.body, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        problem = _Problem()
    details = [http_client.clean_text(part.detail) for part in (problem, *problem.subproblems[:10]) if part.detail]
    text = "; ".join(details) or f"HTTP {response.status}: {http_client.excerpt(response)}"
    code = problem.type.removeprefix(_ERROR_PREFIX)
    if response.status == 429:
        code = "rateLimited"
    elif not code and response.status >= 500:
        code = "unreachable"
    return AcmeError(code or "malformed", text, _read_retry_after(response))


def _read_retry_after(response: HttpResponse) -> float | None:
    """Return the seconds of the Retry-After header, a number or a date, or None; at most a week."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return min(float(value[:9]), _MAX_RETRY_AFTER_SECONDS)
    until, now = (clock.parse_http_date(text) for text in (value, response.headers.get("date", "")))
    return None if until is None or now is None else min(max((until - now) / 1000, 0.0), _MAX_RETRY_AFTER_SECONDS)


def _error_text(value: Any) -> str:
    """Return the text of the `error` of an order or a challenge, "" without one."""
    return http_client.clean_text(value.get("detail")) if isinstance(value, dict) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _read_order(url: str, response: HttpResponse) -> Order:
    body = decode_response(response)
    if not url or not isinstance(body.get("status"), str) or not isinstance(body.get("finalize"), str):
        raise AcmeError("malformed", "the CA sent an invalid order")
    return Order(
        url, body["status"], _texts(body.get("authorizations")), body["finalize"], str(body.get("certificate") or ""),
        _error_text(body.get("error")),
    )  # fmt: skip


def _read_authorization(url: str, response: HttpResponse) -> Authorization:
    body = decode_response(response)
    name = body["identifier"].get("value") if isinstance(body.get("identifier"), dict) else None
    if not isinstance(name, str) or not isinstance(body.get("status"), str):
        raise AcmeError("malformed", "the CA sent an invalid authorization")
    parts = [part for part in body.get("challenges") or [] if isinstance(part, dict)]
    challenges = tuple(
        Challenge(*(str(part.get(name)) for name in ("type", "url", "token", "status"))) for part in parts
    )
    errors = [text for part in parts if (text := _error_text(part.get("error")))]
    return Authorization(url, name, body["status"], challenges, "; ".join(errors))


async def _pause(response: HttpResponse, pause: float) -> float:
    """Sleep before the next request, at least as long as the CA asks, and return the pause after it."""
    await asyncio.sleep(min(max(pause, _read_retry_after(response) or 0.0), _MAX_PAUSE_SECONDS))
    return min(pause * 1.5, _MAX_PAUSE_SECONDS)
