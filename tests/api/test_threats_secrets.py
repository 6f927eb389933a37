"""Secrets appear in no log, file, page or response (T39)."""

import base64
import json
import re
from collections.abc import Iterator

import apsw
import pytest

from appliance.core.logs import redact
from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.openapi_document import OpenApiDocument
from tests.kit.routes import page_routes
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer

RELAY, TOKEN, SIGNS, HOOKS = "CANARYrelayPassword1", "CANARYtwilioToken22", "CANARYhttpSecret333", "CANARYhooksSecret44"
TYPED = "CANARY typed wrong 55"


def save_secrets(smtp: SmtpServer, owner: Visitor) -> bytes:
    """Save secrets on settings pages, try them on servers, and return all responses."""
    relay = {
        "part": "email", "email.transport": "relay", "email.relay.host": "127.0.0.1", "email.relay.tls": "none",
        "email.relay.port": str(smtp.port), "email.relay.username": "bakery", "email.relay.password": RELAY,
    }  # fmt: skip
    ports = (str(smtp.port), "9")
    tried = [owner.send("POST", "/settings/sending/test", relay | {"email.relay.port": port}) for port in ports]
    assert [response.status for response in tried] == [200, 200]
    assert owner.send("POST", "/settings/sending", relay).status == 303
    texts = {
        "part": "sms", "sms.transport": "capture", "sms.twilio.account_sid": "AC" + "0" * 32,
        "sms.twilio.auth_token": TOKEN, "sms.http.url": "https://sms.example/send", "sms.http.secret": SIGNS,
    }  # fmt: skip
    assert owner.send("POST", "/settings/sending", texts).status == 303
    # A stored secret is not sent to another URL or account (T28)
    for moved in ({"sms.http.url": "https://evil.example/"}, {"sms.twilio.account_sid": "AC" + "1" * 32}):
        kept = texts | {"sms.http.secret": "", "sms.twilio.auth_token": ""} | moved
        tried.append(owner.send("POST", "/settings/sending", kept))
        assert tried[-1].status == 422
    return b"".join(response.body for response in tried)


def create_secrets(server: Server, owner: Visitor) -> dict[str, str]:
    """Create and use objects with secrets, cause errors, and return each secret that was shown once."""
    api = server.client()
    key = str(api.key)
    hook = api.post("/webhooks", {"url": "https://hooks.example/x", "events": ["a_b"]}).expect(201)
    api.post("/domains", {"domain": {"name": "canary.example"}}).expect(201)
    jwt = Client(server.url).request(
        "POST", "/v1/login", json.dumps({"email": EMAIL, "password": PASSWORD}).encode(),
        {"Content-Type": "application/json"},
    ).expect(200)["token"]  # fmt: skip
    api.post("/contacts", {"email": "reader@example.org"}).expect(201)
    message_id = api.post("/messages", {"to": "reader@example.org", "subject": "s", "body": "<p>x</p>"}).expect(201)[
        "id"
    ]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")
    owner.send("POST", "/login", {"email": EMAIL, "password": TYPED})
    for path in (f"/v1/my/contacts/{key}", f"/u/{jwt}", f"/v1/my/contacts?search={key}"):
        Client(server.url, validate=False).request("GET", path, None, {"Authorization": f"Bearer {TYPED}"})
    return {"key": key, "jwt": str(jwt), "whsec": str(hook["secret"]), "cookie": owner.cookie.partition("=")[2]}


def all_pages(server: Server, owner: Visitor, full: bool) -> bytes:
    """Return everything that the settings and the API show to an owner, and some of the other pages, with `--full` all.

    Pages of documents are left out, because their examples sign in as the tests do.
    """
    response = b""
    paths = [path for method, path in page_routes() if method == "GET" and not path.startswith("/docs")]
    for at, path in enumerate(paths):
        if full or path.startswith("/settings") or at % 4 == 0:
            response += owner.send("GET", re.sub(r"<[^>]+>", "title", re.sub(r"<\w+:int>", "1", path))).body
    api = server.client(validate=False)
    credential = {"Authorization": f"Bearer {api.key}"}
    for operation in OpenApiDocument(api).operations():
        if operation.method == "GET":
            response += api.request("GET", re.sub(r"\{\w+\}", "1", operation.path), None, credential).body
    return response


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    """Yield a relay that requires the password."""
    relay = SmtpServer(users={"bakery": RELAY}).start()
    yield relay
    relay.stop()


def test_secrets_are_stored_and_shown_nowhere(fresh_server: FreshServer, smtp: SmtpServer, full: bool) -> None:
    """No secret is in the log, database, write-ahead log, backup, pages or responses (T12, T39)."""
    server = fresh_server(
        env={
            "CAMPANERO_EMAIL__HOOKS__MAILGUN": HOOKS, "CAMPANERO_LOG__LEVEL": "debug",
            "CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true",
        }
    ).set_postal_address()  # fmt: skip
    owner = Visitor(server, EMAIL)
    answered = save_secrets(smtp, owner)
    result = create_secrets(server, owner)
    secrets = [RELAY, TOKEN, SIGNS, HOOKS, PASSWORD, TYPED, *result.values()]
    shown = answered + all_pages(server, owner, full)
    server.cli("check")
    copy = server.home / "backup.db"
    database = apsw.Connection(str(server.data / "campanero.db"))
    database.execute("VACUUM INTO ?", (str(copy),))
    database.close()
    files = {path: path.read_bytes() for path in (*server.data.rglob("*"), copy) if path.is_file()}
    assert any(path.name.endswith("-wal") for path in files)
    for secret in secrets:
        forms = {secret.encode(), base64.b64encode(secret.encode()), secret.encode().hex().encode()}
        for form in forms:
            assert form not in server.output.encode(), ("log", secret)
            assert form not in shown, ("page or answer", secret)
            assert not [path.name for path, content in files.items() if form in content], secret
    assert b"PRIVATE KEY" not in b"".join(files.values()) + shown + server.output.encode()
    # The stored password works: the relay accepted it
    recipients = [message.to for message in smtp.messages if "sign-in" not in message.subject]
    assert recipients == ["reader@example.org"]


def test_log_lines_are_redacted() -> None:
    """Tokens in links, API keys, JWTs and webhook secrets are removed from log lines."""
    jwt = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"HS256"}', b'{"a":1}', b"mac")
    )
    for text in (
        "/u/AAAAbbbbCCCC", "/reset/AAAAbbbbCCCC?x", "/setup/AAAAbbbbCCCC", "camp_live_AAAAbbbbCCCC",
        "camp_test_AAAAbbbbCCCC", "camp_pub_AAAAbbbbCCCC", "whsec_AAAAbbbbCCCC+/=", jwt,
    ):  # fmt: skip
        line = redact(f'GET {text} failed for "{text}"')
        assert "AAAAbbbb" not in line and jwt[20:] not in line and "failed for" in line
    assert redact("eyJ is how JSON begins, whsec_ is a mark") == "eyJ is how JSON begins, whsec_ is a mark"
