"""OpenID Connect providers that answer whatever a test wants, on one loopback port, and the browser of a person.

They are written from the specifications and share no code with `appliance/accounts/oidc`. Each name of `HOSTS` is an
issuer of its own over https; the service finds them by `CAMPANERO_TEST_HOSTS`. For example::

    with HostileProviders(tmp_path) as providers, Server(env=providers.env).set_up() as server:
        person = Person(server.url)
        response = person.sign_in(provider, providers["idp.example"], claims={"email_verified": False})
"""

import base64
import hashlib
import html
import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.kit.certificates import self_signed
from tests.kit.client import Client, Response

HOSTS = ("idp.example", "other.example", "accounts.google.com", "login.microsoftonline.com")
CLIENT_ID, CLIENT_SECRET = "campanero", "a secret: with + and %"
TENANT = "11111111-2222-3333-4444-555555555555"
_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
FIRST_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def encode(part: Any) -> str:
    """Return bytes, or the JSON of another value, in base64url without padding (RFC 7515, section 2)."""
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def public_jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    """Return the public key of a private key as a JSON Web Key."""
    kinds: tuple[tuple[type, Any], ...] = (
        (rsa.RSAPrivateKey, jwt.algorithms.RSAAlgorithm), (ec.EllipticCurvePrivateKey, jwt.algorithms.ECAlgorithm),
        (ed25519.Ed25519PrivateKey, jwt.algorithms.OKPAlgorithm),
    )  # fmt: skip
    algorithm = next(algorithm for kind, algorithm in kinds if isinstance(key, kind))
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", **more}


class HostileProvider:
    """One issuer. A test changes its attributes to make it lie.

    `claims` are added to each ID token (None removes one), `header` to its header; `key`, `kid` and `alg` sign it.
    `build_token` replaces the whole token. `metadata` is added to the discovery document, `user_info` is what the
    UserInfo endpoint answers.
    """

    def __init__(self, host: str, path: str = "", issuer: str = "") -> None:
        self.host, self.base = host, f"https://{host}{path}"
        self.issuer = issuer or self.base  # as its documents and tokens name it
        self.reset()

    def reset(self) -> None:
        """Tell the truth again, with the first key."""
        self.key: Any = FIRST_KEY
        self.kid: str | None = "key-1"
        self.alg = "RS256"
        self.published: list[dict[str, Any]] = [public_jwk(self.key, "key-1")]
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.user_info: dict[str, Any] | None = None
        self.build_token: Callable[[dict[str, Any]], str] | None = None
        self.accepts_every_code = False
        self.answers_iss = False
        self.code_claims: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.token_requests: list[dict[str, str]] = []
        self.key_reads = 0
        self.last_token = ""

    def document(self) -> dict[str, Any]:
        """Return the discovery document (OpenID Connect Discovery 1.0, section 3)."""
        names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys",
                 "userinfo_endpoint": "userinfo", "end_session_endpoint": "logout"}  # fmt: skip
        return {
            "issuer": self.issuer, **{name: f"{self.base}/{path}" for name, path in names.items()},
            "response_types_supported": ["code"], "id_token_signing_alg_values_supported": ["RS256", "none"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"], **self.metadata,
        }  # fmt: skip

    def authorize(self, url: str, **claims: Any) -> dict[str, str]:
        """Return the parameters with which the browser is sent back after the person has signed in."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, strict_parsing=True))
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == self.document()["authorization_endpoint"]
        assert query["response_type"] == "code" and query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT_ID and set(query["scope"].split()) >= {"openid", "email"}
        assert len(query["state"]) >= 32 and len(query["nonce"]) >= 32
        code = secrets.token_urlsafe(16)
        self.codes[code], self.code_claims[code] = query, claims
        answer = {"code": code, "state": query["state"]}
        return answer | ({"iss": self.issuer} if self.answers_iss else {})

    def answer_token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return (status, body) of the token endpoint, which checks the client, the code and PKCE."""
        name, _, secret = base64.b64decode(authorization.partition(" ")[2]).decode().partition(":")
        if (unquote_plus(name), unquote_plus(secret)) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client", "error_description": "client authentication failed"}
        self.token_requests.append(form)
        request = self.codes.get(form["code"]) if self.accepts_every_code else self.codes.pop(form["code"], None)
        if request is None:
            return 400, {"error": "invalid_grant", "error_description": "grant request is invalid"}
        challenge = encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if (challenge, form["redirect_uri"]) != (request["code_challenge"], request["redirect_uri"]):
            return 400, {"error": "invalid_grant", "error_description": "PKCE or redirect_uri"}
        self.last_token = self._issue(request["nonce"], self.code_claims[form["code"]])
        return 200, {"access_token": "opaque", "token_type": "Bearer", "id_token": self.last_token}

    def _issue(self, nonce: str, more: dict[str, Any]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "sub": "subject-1", "aud": CLIENT_ID, "exp": now + 300, "iat": now, "nonce": nonce,
            "email": "ana@bakery.example", "email_verified": True, "name": "Ana", **self.claims, **more,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.build_token is not None:
            return self.build_token(claims)
        return jwt.encode(claims, self.key, self.alg, {"kid": self.kid, **self.header} if self.kid else self.header)


class HostileProviders:
    """A thread that serves an issuer for each name of `HOSTS`; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._providers = {host: HostileProvider(host) for host in HOSTS}
        template = "https://login.microsoftonline.com/{tenantid}/v2.0"
        self._providers["login.microsoftonline.com"] = HostileProvider(
            "login.microsoftonline.com", "/organizations/v2.0", template
        )  # fmt: skip

    def __getitem__(self, host: str) -> HostileProvider:
        return self._providers[host]

    def reset(self) -> None:
        """Reset all providers, so that they send correct documents and tokens again."""
        for provider in self._providers.values():
            provider.reset()

    def __enter__(self) -> Self:
        providers, pair = self._providers, self_signed(*HOSTS)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider = providers[self.headers["host"]]
                path = f"https://{self.headers['host']}{self.path}".removeprefix(provider.base)
                if path == "/.well-known/openid-configuration":
                    self._answer(200, provider.document())
                elif path == "/keys":
                    provider.key_reads += 1
                    self._answer(200, {"keys": provider.published})
                elif path == "/userinfo" and provider.user_info is not None:
                    assert self.headers["authorization"] == "Bearer opaque"
                    self._answer(200, provider.user_info)
                else:
                    self._answer(404, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body, strict_parsing=True).items()}
                provider = providers[self.headers["host"]]
                self._answer(*provider.answer_token(form, self.headers.get("authorization", "")))

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = pair.context().wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        (self._directory / "ca.pem").write_bytes(pair.certificate)
        hosts = dict.fromkeys(HOSTS, self._server.server_address[1])
        content = {"ca": str(self._directory / "ca.pem"), "hosts": hosts}
        (self._directory / "hosts.json").write_text(json.dumps(content))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def env(self) -> dict[str, str]:
        """The environment of a server that reaches the providers."""
        return {"CAMPANERO_TEST_HOSTS": str(self._directory / "hosts.json")}


class Person:
    """A browser without scripts that keeps cookies, as a person who signs in uses it."""

    def __init__(self, url: str) -> None:
        self.http, self.cookies = Client(url, validate=False), dict[str, str]()

    def send(self, method: str, path: str, form: dict[str, Any] | None = None) -> Response:
        """Send a request with the cookies of the browser, and keep those of the response."""
        body = None if form is None else urlencode(form).encode()
        cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        response = self.http.request(method, path, body, {**(_FORM if form is not None else {}), **cookie})
        for line in response.headers.get_all("set-cookie", []):
            for name, morsel in SimpleCookie(line).items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        return response

    def get(self, path: str) -> Response:
        """Get a page, without following redirects."""
        return self.send("GET", path)

    def post(self, path: str, **form: Any) -> Response:
        """Post a form."""
        return self.send("POST", path, form)

    def begin(self, provider: dict[str, Any], next_path: str = "/") -> str:
        """Press the button of a provider, and return the URL that the browser is sent to."""
        response = self.get(f"/login/oidc/{key_of(provider)}?{urlencode({'next': next_path})}")
        assert response.status == 303, text_of(response)
        return str(response.headers["location"])

    def come_back(self, provider: dict[str, Any], answer: dict[str, str]) -> Response:
        """Follow the redirect of a provider back to the service."""
        return self.get(f"/login/oidc/{key_of(provider)}/callback?{urlencode(answer)}")

    def sign_in(self, provider: dict[str, Any], issuer: HostileProvider, **claims: Any) -> Response:
        """Sign in at a provider, and return the response to the person who comes back."""
        return self.come_back(provider, issuer.authorize(self.begin(provider), **claims))

    @property
    def has_session(self) -> bool:
        """Whether the browser is signed in."""
        return "campanero" in self.cookies and self.get("/settings/you").status == 200


def key_of(provider: dict[str, Any]) -> str:
    """Return the key in the URLs of a provider, from its representation in the API."""
    return str(provider["sign_in_url"].rpartition("/")[2])


def text_of(response: Response) -> str:
    """Return the visible text of a page, roughly."""
    main = response.text.partition("<main")[2]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", main).split()))
