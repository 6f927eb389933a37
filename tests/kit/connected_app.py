"""A program that connects itself by OAuth 2.1, written from the RFCs, and the web server of its metadata document."""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.kit.certificates import self_signed
from tests.kit.client import Client, Response
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser

REDIRECT_URI = "http://127.0.0.1:43117/callback"
ALL_SCOPES = "campaigns:read campaigns:write contacts:read"


def new_verifier() -> tuple[str, str]:
    """Return a verifier and its challenge (RFC 7636, sections 4.1 and 4.2)."""
    verifier = secrets.token_urlsafe(48)
    return verifier, base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class ConnectedApp:
    """A program with a client id at one service."""

    def __init__(self, base: str, client_id: str = "", redirect_uri: str = REDIRECT_URI, name: str = "Helper") -> None:
        self.base, self.redirect_uri = base, redirect_uri
        self.http = Client(base, validate=False)
        self.tokens: dict[str, Any] = {}
        self.verifier, self.challenge = new_verifier()
        self.client_id = client_id or self.register(redirect_uris=[redirect_uri], client_name=name).json["client_id"]

    def register(self, **metadata: Any) -> Response:
        """Send a registration (RFC 7591)."""
        return self.http.request(
            "POST", "/oauth/register", json.dumps(metadata).encode(), {"Content-Type": "application/json"}
        )

    def authorize_path(self, **changes: Any) -> str:
        """Return the path of the consent page; a parameter that is None is left out."""
        parameters: dict[str, Any] = {
            "response_type": "code", "client_id": self.client_id, "redirect_uri": self.redirect_uri, "state": "s t&1",
            "code_challenge": self.challenge, "code_challenge_method": "S256", "resource": self.base,
            "scope": ALL_SCOPES, **changes,
        }  # fmt: skip
        return "/oauth/authorize?" + urlencode({name: value for name, value in parameters.items() if value is not None})

    def consent(self, user: ScriptlessBrowser, button: str = "Connect", access: str = "", **changes: Any) -> str:
        """Press a button of the consent page, and return the URL that the browser is sent to."""
        page = HtmlPage(user, self.authorize_path(**changes))
        if access:
            page.check(access)
        response, _ = page.send(button)
        assert response.status == 303, (response.status, response.text)
        return str(response.headers["location"])

    def token(self, **form: Any) -> Response:
        """Send a token request."""
        return self.post("/oauth/token", {"client_id": self.client_id, **form})

    def post(self, path: str, form: dict[str, Any]) -> Response:
        """Send a form."""
        body = urlencode({name: value for name, value in form.items() if value is not None}, doseq=True).encode()
        return self.http.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})

    def exchange(self, code: str, **changes: Any) -> Response:
        """Exchange an authorization code."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect_uri,
                "code_verifier": self.verifier, "resource": self.base}  # fmt: skip
        return self.token(**form | changes)

    def refresh(self, refresh_token: str = "", **changes: Any) -> Response:
        """Exchange a refresh token, by default the last one."""
        token = refresh_token or self.tokens["refresh_token"]
        return self.token(grant_type="refresh_token", refresh_token=token, **changes)

    def connect(self, user: ScriptlessBrowser, access: str = "", **changes: Any) -> "ConnectedApp":
        """Connect the app as a user does, and keep its tokens."""
        code = answer_of(self.consent(user, access=access, **changes))["code"]
        self.tokens = self.exchange(code, resource=changes.get("resource", self.base)).expect(200)
        return self

    def api(self) -> Client:
        """Return a client of the API with the access token."""
        return Client(self.base, self.tokens["access_token"], validate=False)


def answer_of(location: str) -> dict[str, str]:
    """Return the query of a redirect."""
    return dict(parse_qsl(urlsplit(location).query))


@contextmanager
def client_documents(directory: Path, documents: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[Path]:
    """Serve documents by URL on https, and yield the file of CAMPANERO_TEST_HOSTS that leads to them.

    A document is (status, headers, body).
    """
    hosts = sorted({urlsplit(url).netloc for url in documents})
    pair = self_signed(*hosts)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = documents.get(f"https://{self.headers['host']}{self.path}", (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = pair.context().wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    (directory / "ca.pem").write_bytes(pair.certificate)
    names = dict.fromkeys(hosts, server.server_address[1])
    (directory / "hosts.json").write_text(json.dumps({"ca": str(directory / "ca.pem"), "hosts": names}))
    try:
        yield directory / "hosts.json"
    finally:
        server.shutdown()
        server.server_close()
