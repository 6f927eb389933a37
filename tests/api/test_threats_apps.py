"""Attacks on the connection of apps by OAuth 2.1 (RFC 9700, T52)."""

import json
import socket
from urllib.parse import urlencode

import pytest

from tests.api.test_connected_apps import BAD_DOCUMENTS, JSON, app, server, time
from tests.kit.api_users import add_user
from tests.kit.client import Client, Response
from tests.kit.clock import TestClock
from tests.kit.connected_app import REDIRECT_URI, ConnectedApp, answer_of, new_verifier
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, PASSWORD, Server

__all__ = ["app", "server", "time"]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
HOSTILE_REDIRECTS = (
    "https://evil.example/callback", "javascript:alert(1)", "http://127.0.0.1:43117/callback/../x", "//evil.example",
    "http://127.0.0.1:43117/Callback", "http://127.0.0.1:43117/callback?x=1", "http://127.0.0.1:43117/callback#x",
    "http://localhost:43117/callback", "https://127.0.0.1:43117/callback", "http://127.0.0.1:43117@evil.example/callback",
    "http://127.0.0.1:43117/callback\r\nX: 1", "http://127.0.0.1.evil.example:43117/callback", "http://127.0.0.1:x/callback",
    "http://127.0.0.1:43117\\@evil.example/callback",
)  # fmt: skip
UNREGISTRABLE = (
    "http://evil.example/callback", "javascript:alert(1)", "//evil.example", "http://127.0.0.1/callback#x", "", "x",
    "http://127.0.0.1@evil.example/", "https://a.example/\r\nX: 1", "http://127.0.0.1.evil.example/", "data:x",
    "https://a.example:x/", "https://", "http://10.0.0.1/callback", "app.example:/callback", "https://a.example/ü",
)  # fmt: skip


def refuse(user: ScriptlessBrowser, path: str) -> Response:
    """Return the response to an authorization request, which must be a page that leads nowhere by itself."""
    response = user.request("GET", path)
    assert response.status == 400 and "location" not in response.headers, response.text
    assert "http-equiv" not in response.text and "was not connected" in response.text
    return response


FAULTS = (
    {"code_challenge_method": "plain"}, {"code_challenge_method": None}, {"code_challenge": None},
    {"code_challenge": "short"}, {"code_challenge": "a" * 44}, {"response_type": "token"}, {"response_type": None},
    {"response_mode": "fragment"}, {"request": "e30."}, {"request_uri": "https://evil.example"},
    {"resource": "https://other.example/mcp"}, {"resource": "x"}, {"scope": "campaigns:send admin"},
)  # fmt: skip


def test_faulty_requests_redirect_nobody(app: ConnectedApp, user: ScriptlessBrowser) -> None:
    """A request without PKCE by S256, for another service or for other rights is shown with a link, not answered."""
    for change in FAULTS:
        page = refuse(user, app.authorize_path(**change)).text
        assert 'href="http://127.0.0.1:43117/callback?error=' in page, change


def test_redirect_uris_are_exact(app: ConnectedApp, user: ScriptlessBrowser) -> None:
    """Only the port of this computer may differ; no other URI gets a link, a form or a code."""
    for uri in HOSTILE_REDIRECTS:
        assert "evil" not in refuse(user, app.authorize_path(redirect_uri=uri)).text, uri
    for uri in UNREGISTRABLE:
        assert app.register(redirect_uris=[uri]).expect(400)["error"] == "invalid_redirect_uri", uri
    other_port = "http://127.0.0.1:50001/callback"
    location = app.consent(user, redirect_uri=other_port)
    assert location.startswith(other_port + "?")
    code = answer_of(location)["code"]
    assert app.exchange(code, redirect_uri=REDIRECT_URI).expect(400)["error"] == "invalid_grant"
    assert app.exchange(code, redirect_uri=other_port).expect(400)["error"] == "invalid_grant"  # it was used up


def test_codes_belong_to_their_app_and_verifier(app: ConnectedApp, user: ScriptlessBrowser, server: Server) -> None:
    """A stolen code is of no use without the verifier, or to another app; the first wrong try uses it up."""
    thief = ConnectedApp(server.url)
    for attempt in (
        {"code_verifier": new_verifier()[0]}, {"code_verifier": app.challenge}, {"code_verifier": ""},
        {"client_id": thief.client_id, "code_verifier": app.verifier}, {"resource": server.url + "/mcp"},
        {"resource": "https://other.example"},
    ):  # fmt: skip
        code = answer_of(app.consent(user))["code"]
        assert app.exchange(code, **attempt).expect(400)["error"] in ("invalid_grant", "invalid_target"), attempt
        assert app.exchange(code).expect(400)["error"] == "invalid_grant", attempt
    app.connect(user)
    assert thief.refresh(app.tokens["refresh_token"]).expect(400)["error"] == "invalid_grant"
    assert app.api().get("/contacts").status == 401  # a refresh token in other hands ends the app


def test_tokens_are_for_one_resource(app: ConnectedApp, user: ScriptlessBrowser, server: Server) -> None:
    """A token for the Model Context Protocol is not a key of the API; tokens are accepted in the header only."""
    app.connect(user, resource=server.url + "/mcp")
    assert app.api().get("/contacts").status == 401
    ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    for path in ("/mcp", "/mcp/", "/mcp?pii=masked"):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {app.tokens['access_token']}"}
        assert app.http.request("POST", path, ping, headers).status == 200, path
    app.connect(user)
    token, bare = app.tokens["access_token"], Client(server.url, validate=False)
    for path, headers in (
        (f"/v1/my/contacts?access_token={token}", {}), ("/v1/my/contacts", {"Cookie": f"campanero={token}"}),
        ("/v1/my/contacts", {"Authorization": f"Basic {token}"}),
        ("/v1/my/contacts", {"Authorization": f"Bearer {app.tokens['refresh_token']}"}),
    ):  # fmt: skip
        assert bare.request("GET", path, headers=headers).status == 401, path
    assert bare.request("GET", "/contacts", headers={"Cookie": f"campanero={token}"}).status == 303
    in_query = bare.request("POST", f"/oauth/token?{urlencode({'client_id': 'x'})}", b"", FORM)
    assert in_query.expect(400)["error"] == "invalid_request"


def test_scopes_cannot_be_widened(app: ConnectedApp, user: ScriptlessBrowser, server: Server) -> None:
    """Whatever is asked for, an app never sends, approves, or reads keys, the team and the audit log."""
    wishes = "campaigns:read campaigns:write campaigns:send campaigns:approve messages:send full draft admin self"
    app.connect(user, scope=wishes)
    assert app.tokens["scope"] == "campaigns:read campaigns:write"
    wide = app.refresh(scope="campaigns:read contacts:read")
    assert wide.expect(400)["error"] == "invalid_scope"
    api = app.api()
    number = api.post("/campaigns", {"name": "Draft"}).expect(201)["id"]
    for method, path in (
        ("POST", f"/campaigns/{number}/send"), ("POST", f"/campaigns/{number}/approve"), ("POST", "/messages"),
        ("GET", "/api_keys"), ("POST", "/api_keys"), ("GET", "/users"), ("GET", "/audit"), ("GET", "/contacts"),
    ):  # fmt: skip
        assert api.send(method, path, {} if method == "POST" else None).status == 403, path
    assert api.request("DELETE", "/v1/logout", headers={"Authorization": f"Bearer {api.key}"}).status == 403
    page = HtmlPage(user, app.authorize_path(scope="contacts:read"))
    form = page.form_of(page.all("input[name='request']")[0])
    sealed = next(field.get("value") for field in form.iter() if field.get("name") == "request")
    posted = user.submit("/oauth/authorize", request=sealed, answer="allow", access="draft", scopes="campaigns:write")
    assert app.exchange(answer_of(posted.headers["location"])["code"]).expect(200)["scope"] == "contacts:read"


def test_consent_cannot_be_forged(app: ConnectedApp, user: ScriptlessBrowser, server: Server) -> None:
    """No consent from another site, by GET, from the page of another session, or with a changed request."""
    page = HtmlPage(user, app.authorize_path())
    sealed = str(page.all("input[name='request']")[0].get("value"))
    foreign = urlencode({"request": sealed, "answer": "allow", "access": "draft"}).encode()
    for site in ("cross-site", "same-site", "none"):
        assert user.request("POST", "/oauth/authorize", foreign, **{"Sec-Fetch-Site": site}).status == 403
    assert "code=" not in user.get(app.authorize_path(answer="allow", access="draft")).replace("code_", "")
    add_user(server, "admin", name="mallory")
    other = ScriptlessBrowser(server.client(), "mallory@example.org")
    for text in (sealed[:-8] + "AAAAAAA=", "", "x" * 300, "é"):
        assert user.submit("/oauth/authorize", request=text, answer="allow", access="draft").status == 400
    assert other.submit("/oauth/authorize", request=sealed, answer="allow", access="draft").status == 400
    bare = Client(server.url, validate=False)
    signed_out = bare.request("GET", app.authorize_path())
    assert signed_out.status == 303 and signed_out.headers["location"].startswith("/login?next=/oauth/authorize%3F")
    login = urlencode({"email": EMAIL, "password": PASSWORD, "next": app.authorize_path()}).encode()
    assert bare.request("POST", "/login", login, {**FORM, "Sec-Fetch-Site": "cross-site"}).status == 403
    assert bare.request("POST", "/oauth/authorize", foreign, {**FORM, "Sec-Fetch-Site": "same-origin"}).status == 401


def test_consent_is_for_the_account_that_the_page_names(app: ConnectedApp, server: Server) -> None:
    """A person with one account opens the page, joins a second account, and presses Connect while that one is open."""
    email = "joins@example.org"
    server.cli("user", "add", "--email", email, stdin=f"{PASSWORD}\n")
    person = ScriptlessBrowser(server.client(), email)
    page = HtmlPage(person, app.authorize_path())
    south = int(server.cli("account", "add", "South").stdout)
    server.cli("user", "add", "--email", email, "--account", str(south))
    assert person.submit("/accounts/open", account=south, next="/").status == 303
    response, _ = page.send("Connect")
    assert response.status == 400 and "location" not in response.headers
    assert person.submit("/accounts/open", account=1, next="/").status == 303
    response, _ = page.send("Connect")
    assert response.status == 303 and "code" in answer_of(response.headers["location"])


def test_client_documents_reach_no_internal_server(user: ScriptlessBrowser, server: Server) -> None:
    """A URL of a private host or another port, a redirect, a large or foreign document: the app is unknown."""
    with socket.create_server(("127.0.0.1", 0)) as internal:
        internal.settimeout(0.2)
        port = internal.getsockname()[1]
        for url in (
            f"https://127.0.0.1:{port}/client.json", f"https://localhost:{port}/client.json", "https://10.0.0.1/c",
            f"http://127.0.0.1:{port}/client.json", "https://169.254.169.254/latest/meta-data", "https://[::1]/c",
            "https://[::ffff:127.0.0.1]/c", "https://2130706433/c", "https://assistant.example:8443/oauth/client.json",
            "https://user@assistant.example/oauth/client.json", "https://assistant.example", "https://assistant.example/",
            "https://assistant.example/a/../oauth/client.json", "https://assistant.example/oauth/client.json#x",
            "file:///etc/passwd", "gopher://assistant.example/x", f"{server.url}/v1/my/account", "https://",
            *(f"https://assistant.example/{name}" for name in BAD_DOCUMENTS),
        ):  # fmt: skip
            stranger = ConnectedApp(server.url, url, "https://assistant.example/callback")
            assert 'href="https' not in refuse(user, stranger.authorize_path()).text, url
        with pytest.raises(TimeoutError):
            internal.accept()
    known = ConnectedApp(server.url, "https://assistant.example/oauth/client.json", "https://evil.example/callback")
    assert "evil" not in refuse(user, known.authorize_path()).text


def test_registrations_are_bounded(server: Server, app: ConnectedApp, time: TestClock, user: ScriptlessBrowser) -> None:
    """Large, malformed or too many registrations are rejected; a name has no markup and no hidden characters."""
    time.advance(hours=2)
    for body in (
        {"redirect_uris": []}, {}, {"redirect_uris": "x"}, {"redirect_uris": [REDIRECT_URI] * 11},
        {"redirect_uris": [REDIRECT_URI], "client_name": "x" * 20_000}, [], "x",
        {"redirect_uris": ["https://a.example/" + "x" * 3000]},
        {"redirect_uris": [REDIRECT_URI], "grant_types": ["client_credentials"]},
    ):  # fmt: skip
        sent = app.http.request("POST", "/oauth/register", json.dumps(body).encode(), JSON)
        assert sent.expect(400)["error"] in ("invalid_client_metadata", "invalid_redirect_uri"), body
    assert app.http.request("POST", "/oauth/register", b"{}", {"Content-Type": "text/plain"}).status == 400
    name = "<b>Cam\u202epanero\u200b</b>\n Admin"
    wanted = {"redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": "client_secret_basic"}
    named = app.register(client_name=name, **wanted).expect(201)
    assert (named["client_name"], named["token_endpoint_auth_method"]) == ("<b>Campanero</b> Admin", "none")
    shown = user.get(ConnectedApp(server.url, named["client_id"]).authorize_path())
    assert "&lt;b&gt;Campanero&lt;/b&gt; Admin" in shown and "<b>Campanero" not in shown
    statuses = [app.register(redirect_uris=[REDIRECT_URI]).status for _ in range(20)]
    assert statuses[-1] == 429 and statuses[0] == 201
    time.advance(hours=1, seconds=1)


def test_requests_with_repeated_or_missing_parameters(app: ConnectedApp, user: ScriptlessBrowser) -> None:
    """Which of two values counts would be a matter of taste, so neither does; nothing of a request is echoed."""
    refuse(user, app.authorize_path() + "&redirect_uri=https://evil.example")
    refuse(user, app.authorize_path() + "&x=1" * 40)
    refuse(user, app.authorize_path(client_id=None))
    refuse(user, app.authorize_path(client_id="camp_client_x<script>"))
    refuse(user, app.authorize_path(state="x" * 2_001))
    repeated = app.post("/oauth/token", {"client_id": app.client_id, "grant_type": ["refresh_token", "x"]})
    assert repeated.expect(400)["error"] == "invalid_request"
    nobody = app.post("/oauth/token", {"grant_type": "authorization_code", "code": "x"})
    assert nobody.expect(401)["error"] == "invalid_client"
    assert app.token(grant_type="password", username="x").expect(400)["error"] == "unsupported_grant_type"
    assert app.token(grant_type="authorization_code").expect(400)["error"] == "invalid_grant"
    assert app.http.request("POST", "/oauth/token", b"{}", {"Content-Type": "application/json"}).status == 400
    assert app.http.request("POST", "/oauth/token", b"client_id=x&code=" + b"y" * 20_000, FORM).status == 400
    assert app.http.request("POST", "/oauth/token", b"\xff=%ff&client_id=x", FORM).status == 400
    assert app.http.request("GET", "/oauth/token").status == 405


def test_the_name_of_an_app_is_not_in_the_email_about_its_proposal(
    server: Server, api: Client, user: ScriptlessBrowser, time: TestClock
) -> None:
    """An app chooses its name itself: a stranger would write in an email of the service."""
    time.advance(minutes=20)
    app = ConnectedApp(server.url, name="Your account is locked, visit evil.example")
    app.connect(user, access="Read and prepare drafts", scope="campaigns:read templates:read proposals:write")
    template = api.post("/templates", {"name": "T", "subject": "A", "body": "<p>B</p>"}).expect(201)["id"]
    body = {"kind": "change_template", "subject_id": template, "changes": {"subject": "C"}}
    app.api().post("/proposals", body).expect(201)
    queued = [api.get(f"/messages/{row['id']}").expect(200) for row in api.all("/messages")]
    queued = [email for email in queued if "/proposals/" in str(email["html"])]
    emails = [api.wait(f"/messages/{email['id']}", lambda row: row["subject"]) for email in queued]
    assert emails and all(email["subject"] == "A proposal is waiting for you" for email in emails)
    assert all("A connected app proposes a change" in email["html"] for email in emails)
    assert all("evil" not in str(email) and "locked" not in str(email) for email in emails)


def test_a_role_without_the_rights_connects_nothing(server: Server, app: ConnectedApp) -> None:
    """A viewer gives no app a right that writes: such a request is refused, a mixed one can only read."""
    add_user(server, "viewer", name="vera")
    vera = ScriptlessBrowser(server.client(), "vera@example.org")
    refuse(vera, app.authorize_path(scope="proposals:write messages:send"))
    page = HtmlPage(vera, app.authorize_path())
    assert "Read and prepare drafts" not in page.text and "drafts of campaigns" not in page.text
    assert app.connect(vera).tokens["scope"] == "campaigns:read contacts:read"
