"""The authorization servers of Google and Microsoft for tests, on one loopback port (RFC 6749, 7636, 8628).

They are written from the providers' documentation and share no code with `appliance/sending/delivery/oauth`. For
example::

    with FakeMailboxProvider("microsoft") as provider, SmtpServer(accepts_token=provider.accepts_token) as smtp:
        server = fresh_server(relay=smtp.port, env=provider.env)
"""

import base64
import hashlib
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

MAILBOX = "ana@bakery.example"
CLIENT_ID, CLIENT_SECRET, TENANT = "client-1", "a~secret", "bakery.example"
_PATHS = {
    "google": ("/o/oauth2/v2/auth", "/token", ""),
    "microsoft": tuple(f"/{TENANT}/oauth2/v2.0/{name}" for name in ("authorize", "token", "devicecode")),
}


@dataclass
class _Code:
    redirect_url: str
    challenge: str
    scope: str


class FakeMailboxProvider:
    """A thread that serves one provider; use it as a context manager.

    `failure` is the error (code, description) that the token endpoint answers, `expires_in` the life of access tokens
    in seconds, and `refresh_expires_in` that of refresh tokens, if the answers name it. `raw` is sent instead of all
    other bodies, and `access_token` is the only one that is given, if it is not empty.
    """

    def __init__(self, name: str, access_token: str = "") -> None:
        self.name, self._access_token = name, access_token
        self.failure: tuple[str, str] | None = None
        self.raw: bytes | None = None
        self.status = 400
        self.expires_in, self.refresh_expires_in = 3599, 0
        self.rotates = name == "microsoft"
        self.has_entered_code = self.denies = False
        self.grants: list[dict[str, str]] = []
        self.refresh_tokens: set[str] = set()
        self.access_tokens: set[str] = set()
        self.scopes: list[str] = []
        self._codes: dict[str, _Code] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(provider.authorize(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                self._answer(provider.respond(self.path, form))

            def _answer(self, answer: tuple[int, dict[str, Any], str]) -> None:
                status, body, location = answer
                content = json.dumps(body).encode() if provider.raw is None else provider.raw
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                if location:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a server whose authorization server this is."""
        return {f"CAMPANERO_EMAIL__{self.name.upper()}__LOGIN_URL": self.url}

    @property
    def client(self) -> dict[str, str]:
        """The settings of the app that is registered here, by the name of their form field."""
        tenant = {"email.microsoft.tenant": TENANT} if self.name == "microsoft" else {}
        prefix = f"email.{self.name}."
        return tenant | {f"{prefix}client_id": CLIENT_ID, f"{prefix}client_secret": CLIENT_SECRET}

    def accepts_token(self, user: str, token: str) -> bool:
        """Return whether an access token is valid for a mailbox."""
        return user == MAILBOX and token in self.access_tokens

    def revoke(self) -> None:
        """End the consent: the refresh tokens and the access tokens are rejected from now on."""
        self.refresh_tokens.clear()
        self.access_tokens.clear()

    def count(self, kind: str) -> int:
        """Return how many requests of a grant type were answered."""
        return sum(grant["grant_type"] == kind for grant in self.grants)

    def authorize(self, target: str) -> tuple[int, dict[str, Any], str]:
        """Return the response to a browser: the owner of the mailbox consents, or denies it."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query, strict_parsing=True).items()}
        assert parts.path == _PATHS[self.name][0] and query["response_type"] == "code"
        assert query["client_id"] == CLIENT_ID and query["code_challenge_method"] == "S256"
        if self.name == "google":
            assert (query["access_type"], query["prompt"]) == ("offline", "consent")
        self.scopes.append(query["scope"])
        if self.denies:
            answer = {"error": "access_denied", "error_description": "The resource owner denied the request."}
        else:
            code = f"code-{next(self._numbers)}"
            self._codes[code] = _Code(query["redirect_uri"], query["code_challenge"], query["scope"])
            answer = {"code": code}
        return 302, {}, f"{query['redirect_uri']}?{urlencode(answer | {'state': query['state']})}"

    def respond(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any], str]:
        """Return the response to a request for tokens or for a device code."""
        with self._lock:
            _, token_path, device_path = _PATHS[self.name]
            if path == device_path and path:
                assert form["client_id"] == CLIENT_ID
                self.scopes.append(form["scope"])
                return 200, {
                    "user_code": "GTHQ-7WBX", "device_code": "device-1", "expires_in": 900, "interval": 5,
                    "verification_uri": "https://microsoft.com/devicelogin",
                }, ""  # fmt: skip
            assert path == token_path, path
            self.grants.append(form)
            return self._answer_grant(form)

    def _answer_grant(self, form: dict[str, str]) -> tuple[int, dict[str, Any], str]:
        if self.failure is not None:
            code, words = self.failure
            return self.status, {"error": code, "error_description": words}, ""
        if (form["client_id"], form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client", "error_description": "The client secret is wrong."}, ""
        fault = _GRANTS[form["grant_type"]](self, form)
        if fault:
            return 400, {"error": fault, "error_description": f"{fault}: it is not valid any more."}, ""
        access_token = self._access_token or f"access-{next(self._numbers)}"
        self.access_tokens.add(access_token)
        answer: dict[str, Any] = {
            "access_token": access_token, "token_type": "Bearer", "expires_in": self.expires_in,
            "id_token": _encode_id_token(),
        }  # fmt: skip
        if form["grant_type"] != "refresh_token" or self.rotates:
            answer["refresh_token"] = f"refresh-{next(self._numbers)}"
            self.refresh_tokens.add(answer["refresh_token"])
        if self.refresh_expires_in:
            answer["refresh_token_expires_in"] = self.refresh_expires_in
        return 200, answer, ""

    def _take_code(self, form: dict[str, str]) -> str:
        code = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        is_right = code is not None and (code.redirect_url, code.challenge) == (form["redirect_uri"], challenge)
        return "" if is_right else "invalid_grant"

    def _take_refresh_token(self, form: dict[str, str]) -> str:
        return "" if form["refresh_token"] in self.refresh_tokens else "invalid_grant"

    def _take_device_code(self, form: dict[str, str]) -> str:
        assert form["device_code"] == "device-1"
        return "" if self.has_entered_code else "authorization_pending"


_GRANTS: dict[str, Callable[[FakeMailboxProvider, dict[str, str]], str]] = {
    "authorization_code": FakeMailboxProvider._take_code,
    "refresh_token": FakeMailboxProvider._take_refresh_token,
    "urn:ietf:params:oauth:grant-type:device_code": FakeMailboxProvider._take_device_code,
}


def _encode_id_token() -> str:
    """Return an ID token with the address of the mailbox; nobody may trust its signature."""
    parts = ({"alg": "RS256"}, {"sub": "1", "email": MAILBOX, "preferred_username": MAILBOX})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])
