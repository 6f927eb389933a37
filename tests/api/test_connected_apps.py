"""Apps connect by OAuth 2.1: consent, tokens, rights, and their end (RFC 6749, 7009, 7591, 7636, 8414, 9207, 9728)."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.kit.api_users import add_user, user_client
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.connected_app import REDIRECT_URI, ConnectedApp, answer_of, client_documents
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server

DOCUMENT_URL = "https://assistant.example/oauth/client.json"
DOCUMENT = {
    "client_id": DOCUMENT_URL, "client_name": "Assistant", "redirect_uris": ["https://assistant.example/callback"],
    "token_endpoint_auth_method": "none",
}  # fmt: skip
JSON = {"Content-Type": "application/json"}
BAD_DOCUMENTS = {
    "other-id": (200, JSON, json.dumps({**DOCUMENT, "client_id": DOCUMENT_URL}).encode()),
    "secret": (200, JSON, b'{"client_id": "https://assistant.example/secret", "redirect_uris": ["https://a.example/"], '
               b'"client_secret": "x"}'),
    "not-json": (200, JSON, b"<html>"),
    "html": (200, {"Content-Type": "text/html"}, json.dumps(DOCUMENT).encode()),
    "moved": (302, {"Location": DOCUMENT_URL, **JSON}, b""),
    "large": (200, JSON, b" " * 20_000),
    "no-redirect": (200, JSON, b'{"client_id": "https://assistant.example/no-redirect", "redirect_uris": []}'),
    "script": (200, JSON, b'{"client_id": "https://assistant.example/script", "redirect_uris": ["data:text/html,x"]}'),
}  # fmt: skip


@pytest.fixture(scope="module")
def time(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """Return the clock of the server."""
    return TestClock(tmp_path_factory.mktemp("clock") / "clock")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, time: TestClock) -> Iterator[Server]:
    """Yield a server with a clock, for which assistant.example is this computer."""
    documents = {f"https://assistant.example/{name}": document for name, document in BAD_DOCUMENTS.items()}
    documents[DOCUMENT_URL] = (200, JSON, json.dumps(DOCUMENT).encode())
    with (
        client_documents(tmp_path_factory.mktemp("documents"), documents) as hosts,
        Server(clock=time, env={"CAMPANERO_TEST_HOSTS": str(hosts)}).set_up() as running,
    ):
        yield running


@pytest.fixture
def app(server: Server, time: TestClock) -> ConnectedApp:
    """Return an app that registered itself, ten minutes after the last one, because registrations are limited."""
    time.advance(minutes=10)
    return ConnectedApp(server.url)


def test_metadata(server: Server) -> None:
    """The metadata name this service, its endpoints and only what is supported, also at the paths that clients try."""
    http = Client(server.url, validate=False)
    for suffix in ("", "/mcp"):
        resource = http.request("GET", f"/.well-known/oauth-protected-resource{suffix}").expect(200)
        assert resource["resource"] == server.url + suffix and resource["authorization_servers"] == [server.url]
        assert "campaigns:read" in resource["scopes_supported"] and "campaigns:send" not in resource["scopes_supported"]
        for name in ("oauth-authorization-server", "openid-configuration"):
            metadata = http.request("GET", f"/.well-known/{name}{suffix}").expect(200)
            assert metadata["issuer"] == server.url and metadata["code_challenge_methods_supported"] == ["S256"]
            assert metadata["authorization_response_iss_parameter_supported"] is True
            assert metadata["client_id_metadata_document_supported"] is True
    assert http.request("GET", "/.well-known/oauth-protected-resource/else").status == 404


def test_an_app_connects_and_acts_as_an_agent(server: Server, app: ConnectedApp, user: ScriptlessBrowser) -> None:
    """A user sees who asks for what; the app then reads and drafts under its own name, and cannot send."""
    page = HtmlPage(user, app.authorize_path())
    assert "Connect “Helper” to Bakery?" in page.text and "Unverified" in page.text
    assert "a program on this computer" in page.text and "Send, schedule or start anything" in page.text
    location = app.consent(user)
    assert location.startswith(f"{REDIRECT_URI}?code=")
    answer = answer_of(location)
    assert (answer["state"], answer["iss"]) == ("s t&1", server.url)
    tokens = app.exchange(answer["code"])
    assert tokens.headers["Cache-Control"] == "no-store"
    app.tokens = tokens.expect(200)
    assert app.tokens["scope"] == "campaigns:read campaigns:write contacts:read" and app.tokens["expires_in"] == 3600
    api = app.api()
    campaign = api.post("/campaigns", {"name": "Spring"}).expect(201)
    assert api.post(f"/campaigns/{campaign['id']}/send").status == 403
    assert api.get("/templates").status == 403
    entries = user_client(server).get("/audit", subject=f"campaign:{campaign['id']}").json
    keys = [key for key in user_client(server).get("/api_keys").expect(200) if key["name"] == "Helper"]
    assert not entries or entries[0]["actor"] == f"key:{keys[0]['id']}"
    connected = user_client(server).get("/audit", action="app_connect").expect(200)[0]
    assert connected["actor"] == "user:1" and connected["subject"] == f"key:{keys[0]['id']}"
    listing = HtmlPage(user, "/settings/apps")
    assert "Helper" in listing.text and "Never" not in listing.text


def test_an_app_with_a_document_is_shown_by_its_host(server: Server, user: ScriptlessBrowser) -> None:
    """The host of the document's URL is shown, and nothing says that it is unverified."""
    app = ConnectedApp(server.url, DOCUMENT_URL, "https://assistant.example/callback")
    page = HtmlPage(user, app.authorize_path())
    assert "The app comes from assistant.example." in page.text and "Unverified" not in page.text
    policy = user.request("GET", app.authorize_path()).headers["content-security-policy"]
    assert "form-action 'self' https://assistant.example;" in policy and "frame-ancestors 'none'" in policy
    assert app.connect(user).api().get("/contacts").status == 200


def test_read_only_is_the_users_choice(app: ConnectedApp, user: ScriptlessBrowser) -> None:
    """With Read only, the app gets no scope that writes, although it asked for one."""
    app.connect(user, access="Read only")
    assert app.tokens["scope"] == "campaigns:read contacts:read"
    assert app.api().post("/campaigns", {"name": "x"}).status == 403


def test_cancel_tells_the_app(app: ConnectedApp, user: ScriptlessBrowser, server: Server) -> None:
    """The app gets access_denied with its state and the issuer, and no code."""
    answer = answer_of(app.consent(user, "Cancel"))
    assert answer == {"error": "access_denied", "state": "s t&1", "iss": server.url}


def test_refresh_rotates_and_reuse_ends_the_app(app: ConnectedApp, user: ScriptlessBrowser, time: TestClock) -> None:
    """Access tokens end after an hour; a refresh token works once, and its second use ends all tokens of the app."""
    first = app.connect(user).tokens
    time.advance(hours=1, seconds=1)
    assert app.api().get("/contacts").status == 401
    app.tokens = app.refresh().expect(200)
    assert app.tokens["refresh_token"] != first["refresh_token"] and app.api().get("/contacts").status == 200
    narrow = ConnectedApp(app.base, app.client_id)
    narrow.tokens = app.refresh(scope="contacts:read").expect(200)
    assert narrow.tokens["scope"] == "contacts:read"
    assert narrow.api().get("/campaigns").status == 403 and narrow.api().get("/contacts").status == 200
    assert narrow.refresh(scope="contacts:read messages:read").json["error"] == "invalid_scope"
    assert app.refresh(first["refresh_token"]).expect(400)["error"] == "invalid_grant"
    assert narrow.api().get("/contacts").status == 401
    assert narrow.refresh().expect(400)["error"] == "invalid_grant"


def test_a_second_use_of_a_code_ends_the_app(app: ConnectedApp, user: ScriptlessBrowser, time: TestClock) -> None:
    """Whoever redeems a stolen code first loses it again; codes expire after two minutes."""
    code = answer_of(app.consent(user))["code"]
    app.tokens = app.exchange(code).expect(200)
    assert app.api().get("/contacts").status == 200
    assert app.exchange(code).expect(400)["error"] == "invalid_grant"
    assert app.api().get("/contacts").status == 401
    late = answer_of(app.consent(user))["code"]
    time.advance(minutes=2, seconds=1)
    assert app.exchange(late).expect(400)["error"] == "invalid_grant"


def test_apps_end_with_revocation_and_disconnect(server: Server, app: ConnectedApp, user: ScriptlessBrowser) -> None:
    """The app revokes its token, the user disconnects it, or an admin revokes its key: each ends it at once."""
    app.connect(user)
    assert app.post("/oauth/revoke", {"token": "camp_ref_unknown"}).status == 200
    assert app.post("/oauth/revoke", {"token": app.tokens["refresh_token"], "client_id": "other"}).status == 200
    assert app.api().get("/contacts").status == 200
    assert app.post("/oauth/revoke", {"token": app.tokens["refresh_token"], "client_id": app.client_id}).status == 200
    assert app.api().get("/contacts").status == 401
    app.connect(user)
    page = HtmlPage(user, "/settings/apps")
    form = page.all("form[action$='/disconnect']")[0]
    assert "is disconnected" in user.post(str(form.get("action")))
    assert app.api().get("/contacts").status == 401 and app.refresh().json["error"] == "invalid_grant"
    app.connect(user)
    owner = user_client(server)
    owner.delete(f"/api_keys/{owner.get('/api_keys').expect(200)[0]['id']}").expect(200)
    assert app.api().get("/contacts").status == 401 and app.refresh().json["error"] == "invalid_grant"


def test_rights_follow_the_user(server: Server, app: ConnectedApp) -> None:
    """A lower role narrows an app at once; a new password and a disabled user end it."""
    editor = add_user(server, "author", name="ann")
    number = editor.get("/profile").expect(200)["id"] if editor.get("/profile").status == 200 else 2
    ann = ScriptlessBrowser(server.client(), "ann@example.org")
    owner = user_client(server)
    app.connect(ann)
    assert app.api().post("/campaigns", {"name": "Draft"}).status == 201
    owner.patch(f"/users/{number}", {"role": "viewer"}).expect(200)
    assert app.api().post("/campaigns", {"name": "Draft"}).status == 403 and app.api().get("/campaigns").status == 200
    viewer = ConnectedApp(server.url).connect(ann)
    assert viewer.tokens["scope"] == "campaigns:read contacts:read"
    waiting = answer_of(viewer.consent(ann))["code"]
    owner.patch(f"/users/{number}", {"password": PASSWORD + "!"}).expect(200)
    assert app.api().get("/campaigns").status == viewer.api().get("/campaigns").status == 401
    assert viewer.exchange(waiting).json["error"] == "invalid_grant"
    owner.patch(f"/users/{number}", {"password": PASSWORD}).expect(200)
    again = ConnectedApp(server.url).connect(ScriptlessBrowser(server.client(), "ann@example.org"))
    owner.patch(f"/users/{number}", {"disabled": True}).expect(200)
    assert again.api().get("/campaigns").status == 401
    owner.patch(f"/users/{number}", {"disabled": False}).expect(200)
    assert again.api().get("/campaigns").status == 401 and again.refresh().status == 400


def test_users_see_and_end_only_their_own_apps(server: Server, app: ConnectedApp, user: ScriptlessBrowser) -> None:
    """A member sees no app of the owner and cannot end it; somebody of another account cannot either."""
    app.connect(user)
    path = str(HtmlPage(user, "/settings/apps").all("form[action$='/disconnect']")[0].get("action"))
    add_user(server, "editor", name="bob")
    number = int(server.cli("account", "add", "Elsewhere").stdout)
    add_user(server, "owner", number, name="eve")
    for email in ("bob@example.org", "eve@example.org"):
        other = ScriptlessBrowser(server.client(), email)
        assert "Helper" not in HtmlPage(other, "/settings/apps").text
        other.submit(path)
    assert app.api().get("/contacts").status == 200
    eve = ConnectedApp(server.url).connect(ScriptlessBrowser(server.client(), "eve@example.org"))
    assert eve.api().get("/contacts").expect(200) == []


def test_unused_apps_expire(server: Server, app: ConnectedApp, user: ScriptlessBrowser, time: TestClock) -> None:
    """An app that is not used for 30 days, and a registration that nobody connects, are gone after a restart."""
    app.connect(user)
    idle = ConnectedApp(server.url)
    time.advance(days=31)
    assert app.refresh().expect(400)["error"] == "invalid_grant"
    server.restart()
    fresh = ScriptlessBrowser(server.client())
    server.wait_for_line("housekeeping: deleted .* apps that nobody connected")
    assert "Helper" not in HtmlPage(fresh, "/settings/apps").text
    assert fresh.request("GET", idle.authorize_path()).status == 400
    assert fresh.request("GET", app.authorize_path()).status == 200


def test_no_secret_is_stored_or_logged(server: Server, app: ConnectedApp) -> None:
    """Codes and tokens are neither in a file of the data directory nor in the log."""
    browser = ScriptlessBrowser(server.client())
    location = app.consent(browser)
    code = answer_of(location)["code"]
    app.tokens = app.exchange(code).expect(200)
    app.exchange(code + "x")
    secrets = [code, app.tokens["access_token"], app.tokens["refresh_token"], app.verifier]
    files: list[Path] = [path for path in server.data.rglob("*") if path.is_file()]
    for secret in secrets:
        assert [path.name for path in files if secret.encode() in path.read_bytes()] == []
        assert secret not in server.output
    assert urlsplit(location).netloc == "127.0.0.1:43117"


@pytest.mark.parametrize("document_url", [None, DOCUMENT_URL], ids=["registers itself", "has a document"])
def test_the_official_client_connects(server: Server, document_url: str | None) -> None:
    """The client of the protocol's authors finds everything by itself, and asks the user once."""
    # Imported here, because its library takes each process that collects this module half a second
    from tests.kit import official_app

    user, storage = ScriptlessBrowser(server.client()), official_app.AppStorage()
    redirect_uri = "https://assistant.example/callback" if document_url else REDIRECT_URI
    result = official_app.call_tool(server.url, user, storage, redirect_uri, "status", document_url=document_url)
    assert not result.is_error and storage.client is not None and storage.tokens is not None
    assert storage.client.client_id == document_url or storage.client.client_id.startswith("camp_client_")
    assert len(storage.consents) == 1 and f"resource={quote(server.url + '/mcp', safe='')}" in storage.consents[0]
    assert not official_app.call_tool(server.url, user, storage, redirect_uri, "status").is_error
    assert len(storage.consents) == 1


def test_apps_stop_with_all_agents(server: Server, app: ConnectedApp) -> None:
    """The switch for agents stops an app, too, and lets it go on; its key is listed as that of an agent."""
    owner = user_client(server)
    api = app.connect(ScriptlessBrowser(server.client())).api()
    assert owner.get("/api_keys").expect(200)[0]["agent"] is True
    owner.post("/agents/stop").expect(200)
    assert api.get("/contacts").expect(403)["reason"] == "agents_stopped"
    owner.post("/agents/resume").expect(200)
    assert api.get("/contacts").status == 200
