"""Connect a mailbox with OAuth 2.0, send with it over SMTP, and what happens when the consent ends."""

import http.client
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.conftest import FreshServer
from tests.journeys.test_doctor_mail import run_doctor
from tests.kit.clock import TestClock
from tests.kit.email_api_vendors import ACCESS_TOKEN
from tests.kit.email_apis import FakeEmailApi, fails_with
from tests.kit.html_page import HtmlPage
from tests.kit.mailbox_provider import MAILBOX, FakeMailboxProvider
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer
from tests.kit.smtp_message import Message

PUBLIC = {"CAMPANERO_BASE_URL": "https://mail.bakery.example"}
LOCAL = {"CAMPANERO_BASE_URL": "http://localhost:8080"}  # both providers allow it, and the test clock needs it
NO_PUBLIC_ADDRESS = {"CAMPANERO_BASE_URL": "http://10.1.2.3:8080"}
LABELS = {"google": "Google", "microsoft": "Microsoft"}


class World(NamedTuple):
    """A service, a user of its first account, the provider of a mailbox, and its SMTP server."""

    server: Server
    user: ScriptlessBrowser
    provider: FakeMailboxProvider
    smtp: SmtpServer

    def send(self, name: str = "bob") -> int:
        """Queue a single email and return its id."""
        body = {"to": f"{name}@example.org", "from_email": MAILBOX, "subject": "Bread", "body": "<p>Fresh</p>"}
        return int(self.server.client().post("/messages", body).expect(201)["id"])

    def list_notices(self) -> list[Message]:
        """Return the emails to the owner, without those about a sign-in on a new device."""
        return [mail for mail in self.smtp.to(EMAIL) if "/settings/you" not in (mail.text() or "")]

    def wait_until_sent(self, number: int) -> None:
        """Wait until a message is sent, with one attempt."""
        row = self.server.client().wait(f"/messages/{number}", lambda row: row["status"] == "sent", 20)
        assert row["attempts"] == 1, row

    def save_client(self) -> HtmlPage:
        """Select the login with OAuth 2.0 and enter the app; return the page that connects the mailbox."""
        form = {"part": "email", "email.transport": "relay", "email.relay.login": self.provider.name}
        response = self.user.submit("/settings/sending", **form)
        assert response.status == 303 and response.headers["location"] in (self.path, "/settings/sending")
        page = HtmlPage(self.user, self.path)
        for name, value in self.provider.client.items():
            page.fill(_label(name), value)
        return page.press("Save")

    @property
    def path(self) -> str:
        """The page that connects the mailbox."""
        return f"/settings/sending/connect/{self.provider.name}"

    def sign_in(self, page: HtmlPage) -> str:
        """Consent at the provider, and return the address that it leads the browser to."""
        link = page.one("a[rel=noreferrer]", f"Sign in with {LABELS[self.provider.name]}")
        return self.authorize(link.get("href") or "")

    def authorize(self, url: str) -> str:
        """Open the consent page of the provider, and return the address that it leads the browser to."""
        usual = {"google": "accounts.google.com", "microsoft": "login.microsoftonline.com"}
        assert usual[self.provider.name] not in url and url.startswith(self.provider.url)
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        connection.request("GET", f"{parts.path}?{parts.query}")
        location = connection.getresponse().headers["Location"]
        connection.close()
        return location

    def connect(self) -> None:
        """Enter the app, consent, and come back."""
        address = self.sign_in(self.save_client())
        parts = urlsplit(address)
        response = self.user.request("GET", f"{parts.path}?{parts.query}")
        assert (response.status, response.headers["location"]) == (303, "/settings/sending"), response.text


def _label(name: str) -> str:
    return {
        "email.google.client_id": "OAuth client ID", "email.google.client_secret": "OAuth client secret",
        "email.microsoft.tenant": "Tenant", "email.microsoft.client_id": "Application (client) ID",
        "email.microsoft.client_secret": "Client secret optional",
    }[name]  # fmt: skip


@contextmanager
def running(
    name: str, fresh_server: FreshServer, clock: TestClock | None = None, **environment: str
) -> Iterator[World]:
    """Run a service whose relay is the SMTP server of a provider."""
    with FakeMailboxProvider(name) as provider:
        smtp = SmtpServer(accepts_token=provider.accepts_token)
        with smtp:
            more = {"CAMPANERO_EMAIL__PROBE_AFTER": "1s", "CAMPANERO_EMAIL__CONNECTIONS": "1", **environment}
            server = fresh_server(relay=smtp.port, env={**provider.env, **more}, clock=clock)
            server.set_postal_address()
            yield World(server, ScriptlessBrowser(server.client()), provider, smtp)


@pytest.mark.parametrize("name", LABELS)
def test_a_mailbox_is_connected_and_sends(name: str, fresh_server: FreshServer) -> None:
    """After the consent emails leave over XOAUTH2; tokens and secrets are neither shown, logged nor stored readably."""
    with running(name, fresh_server, **PUBLIC) as world:
        world.connect()
        page = HtmlPage(world.user, "/settings/sending")
        assert f"Connected {MAILBOX}" in page.text and page.value("Username") == MAILBOX
        world.wait_until_sent(world.send())
        assert [scope.rpartition(" ")[2] for scope in world.provider.scopes] == [
            {"google": "https://mail.google.com/", "microsoft": "https://outlook.office.com/SMTP.Send"}[name]
        ]
        page = page.press("Test connection")
        assert "is ready" in page.text
        secrets = [*world.provider.refresh_tokens, *world.provider.access_tokens, "a~secret"]
        shown = [HtmlPage(world.user, path).text for path in ("/settings/sending", world.path, "/settings/audit")]
        stored = [path.read_bytes() for path in world.server.data.iterdir() if path.is_file()]
        for secret in secrets:
            assert secret not in world.server.output and not any(secret in text for text in shown)
            assert not any(secret.encode() in content for content in stored)


def test_a_code_is_entered_where_no_public_address_exists(fresh_server: FreshServer) -> None:
    """Without a public https address, Microsoft gets a code that the user enters in any browser."""
    with running("microsoft", fresh_server, **NO_PUBLIC_ADDRESS) as world:
        page = world.save_client().press("Get a code")
        assert "GTHQ-7WBX" in [field.get("value") for field in page.all("input")]
        page = page.press("Continue")
        assert "The code was not entered yet." in page.text
        world.provider.has_entered_code = True
        assert f"Connected {MAILBOX}" in page.press("Continue").text
        world.wait_until_sent(world.send())


def test_an_address_is_pasted_where_no_public_address_exists(fresh_server: FreshServer) -> None:
    """Without a public https address, the user copies the address of the last page that Google leads to."""
    with running("google", fresh_server, **NO_PUBLIC_ADDRESS) as world:
        page = world.save_client()
        address = world.sign_in(page)
        assert address.startswith("http://localhost:8767/?")
        page.fill("Address of the last page", "http://localhost:8767/")
        page = page.press("Connect the mailbox")
        assert "This address does not contain the code." in page.text
        page.fill("Address of the last page", address)
        assert f"Connected {MAILBOX}" in page.press("Connect the mailbox").text
        world.wait_until_sent(world.send())


def test_forged_and_old_answers_connect_nothing(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The answer of a provider counts once, for ten minutes, and only for the user who began the sign-in."""
    clock = TestClock(tmp_path / "clock")
    with running("google", fresh_server, clock=clock, **LOCAL) as world:
        server = world.server
        server.cli("user", "add", "--email", "eve@example.org", "--role", "admin", stdin=f"{PASSWORD}\n")
        eve = ScriptlessBrowser(server.client(), "eve@example.org")
        parts = urlsplit(world.sign_in(world.save_client()))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        target = f"{parts.path}?code={query['code']}&state="
        for user, state in ((eve, query["state"]), (world.user, ""), (world.user, "x" * 300), (world.user, "%C3%A9"),
                            (world.user, query["state"][:-6] + "AAAAA=")):  # fmt: skip
            response = user.request("GET", target + state)
            assert response.status == 422 and "This sign-in is too old" in response.text
        assert world.provider.grants == []
        for parameters in ("error=access_denied", "error=server_error&error_description=Try+later+%3Cb%3E", "code="):
            response = world.user.request("GET", f"{parts.path}?{parameters}&state={query['state']}")
            assert response.status == 422 and "<b>Try" not in response.text
        assert world.user.request("GET", target + query["state"]).status == 303
        response = world.user.request("GET", target + query["state"])
        assert response.status == 422 and "nvalid_grant: it is not valid any more" in response.text
        late = urlsplit(world.sign_in(HtmlPage(world.user, world.path)))
        clock.advance(601)
        assert "This sign-in is too old" in world.user.request("GET", f"{late.path}?{late.query}").text


def test_other_accounts_connect_nothing(fresh_server: FreshServer) -> None:
    """Only the first account connects the mailbox of the installation; an unknown provider is not found."""
    with running("google", fresh_server) as world:
        world.server.cli("account", "add", "Other")
        world.server.cli("user", "add", "--email", "b@example.org", "--account", "2", stdin=f"{PASSWORD}\n")
        other = ScriptlessBrowser(world.server.client(), "b@example.org")
        for method, path in (("GET", ""), ("POST", ""), ("POST", "/device"), ("POST", "/finish"), ("POST", "/remove")):
            assert other.status(method, world.path + path) == 403, path
            assert world.user.status(method, f"/settings/sending/connect/nobody{path}") == 404
        assert other.status("GET", "/settings/sending/callback?code=x&state=y") == 403
        assert world.user.status("POST", f"{world.path}/device") == 404, "Google allows no code for these scopes"


def test_access_tokens_are_replaced(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A token is requested once for many messages, again before it expires, and again if the server rejects it."""
    clock = TestClock(tmp_path / "clock")
    with running("google", fresh_server, clock=clock, **LOCAL) as world:
        world.connect()
        for number in range(3):
            world.wait_until_sent(world.send(f"a{number}"))
        assert world.provider.count("refresh_token") == 1
        clock.advance(3599 - 290)
        world.wait_until_sent(world.send("early"))
        assert world.provider.count("refresh_token") == 2
        world.provider.access_tokens.clear()
        world.wait_until_sent(world.send("revoked"))
        assert world.provider.count("refresh_token") == 3


def test_a_revoked_consent_holds_emails_and_is_told(fresh_server: FreshServer) -> None:
    """Emails wait without an attempt, every page says why, the owner gets an email, and all is sent after a sign-in."""
    with running("microsoft", fresh_server, **PUBLIC) as world:
        world.connect()
        world.wait_until_sent(world.send("before"))
        world.provider.revoke()
        api, number = world.server.client(), world.send("held")
        status = api.wait("/delivery/status", lambda row: not row["open"], 20)
        words = "Microsoft no longer accepts the consent: invalid_grant: it is not valid any more."
        assert any(words in str(obstacle) for obstacle in status["obstacles"]), status
        page = HtmlPage(world.user, "/settings/sending")
        assert "Access has ended" in page.text and words in page.text
        assert words in page.press("Test connection").text
        [finding] = run_doctor(world.server, expect=1)["consent"]
        assert finding["level"] == "fail" and words in finding["words"] and finding["fix"].endswith(world.path)
        row = api.get(f"/messages/{number}").expect(200)
        assert (row["status"], row["attempts"]) == ("queued", 0)
        refreshes = world.provider.count("refresh_token")
        time.sleep(2.5)
        assert world.provider.count("refresh_token") <= refreshes + 1, "a rejected consent is not asked about each time"

        world.connect()
        world.wait_until_sent(number)
        assert len(world.smtp.to("held@example.org")) == 1
        world.smtp.wait_until(lambda: len(world.list_notices()) == 1)
        [notice] = world.list_notices()
        assert notice.header("Subject") == "Microsoft has ended the access of Campanero"
        assert run_doctor(world.server)["consent"][0]["level"] == "ok"


def test_a_provider_that_fails_only_delays(fresh_server: FreshServer) -> None:
    """While the authorization server fails, emails wait, and the consent counts as valid."""
    with running("google", fresh_server, **PUBLIC) as world:
        world.connect()
        world.provider.failure, world.provider.status = ("server_error", "Try later."), 503
        number = world.send()
        world.server.client().wait("/delivery/status", lambda row: not row["open"], 20)
        assert "Connected" in HtmlPage(world.user, "/settings/sending").text
        world.provider.failure = None
        world.wait_until_sent(number)


def test_a_consent_is_kept_alive_and_its_end_is_told(fresh_server: FreshServer, tmp_path: Path) -> None:
    """An unused consent is refreshed every six hours; three days before its end, the owner gets one email."""
    clock = TestClock(tmp_path / "clock")
    with running("google", fresh_server, clock=clock, **LOCAL) as world:
        world.provider.refresh_expires_in = 4 * 86_400
        world.connect()
        assert run_doctor(world.server)["consent"][0]["level"] == "ok"
        clock.advance(7 * 3600)
        world.smtp.wait_until(lambda: world.provider.count("refresh_token") >= 1, "refreshed")
        world.provider.refresh_expires_in = 2 * 86_400 + 3600
        clock.advance(7 * 3600)
        world.smtp.wait_until(lambda: len(world.list_notices()) == 1, "told")
        clock.advance(7 * 3600)
        world.smtp.wait_until(lambda: world.provider.count("refresh_token") >= 3, "refreshed")
        [finding] = run_doctor(world.server)["consent"]
        assert finding["level"] == "warn" and "in 2 days" in finding["words"]
        assert "Access ends in 2 days" in HtmlPage(ScriptlessBrowser(world.server.client()), "/settings/sending").text
        assert len(world.list_notices()) == 1


def test_a_new_refresh_token_replaces_the_old_one(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Microsoft returns a new refresh token each time; it is stored once a day and used after a restart."""
    clock = TestClock(tmp_path / "clock")
    with running("microsoft", fresh_server, clock=clock, **LOCAL) as world:
        world.connect()
        world.wait_until_sent(world.send("a"))
        first = world.provider.grants[-1]["refresh_token"]
        clock.advance(25 * 3600)
        world.wait_until_sent(world.send("b"))
        world.server.restart()
        world.wait_until_sent(world.send("c"))
        assert world.provider.grants[-1]["refresh_token"] != first
        with sqlite3.connect(f"file:{world.server.data}/campanero.db?mode=ro", uri=True) as database:
            assert database.execute("SELECT count(*) FROM mailbox_grant").fetchall() == [(1,)]


@pytest.mark.parametrize("name", LABELS)
def test_an_http_api_sends_for_a_connected_mailbox(name: str, fresh_server: FreshServer) -> None:
    """The page leads from the choice of the service to the sign-in; a rejected token is replaced once."""
    prefix = f"CAMPANERO_EMAIL__{name.upper()}__BASE_URL"
    more = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true", "CAMPANERO_EMAIL__PROBE_AFTER": "1s", **PUBLIC}
    with FakeEmailApi(name) as api, FakeMailboxProvider(name, ACCESS_TOKEN) as provider:
        server = fresh_server(env={prefix: api.url, **provider.env, **more}).set_postal_address()
        world = World(server, ScriptlessBrowser(server.client()), provider, SmtpServer())
        form = {"part": "email", "email.transport": name, **provider.client}
        response = world.user.submit("/settings/sending", **form)
        assert (response.status, response.headers["location"]) == (303, world.path)
        assert world.user.submit("/welcome/mail", **form).headers["location"] == world.path
        number = world.send("early")
        server.client().wait("/delivery/status", lambda row: not row["open"], 20)
        parts = urlsplit(world.sign_in(HtmlPage(world.user, world.path)))
        assert world.user.request("GET", f"{parts.path}?{parts.query}").status == 303
        assert "gmail.send" in provider.scopes[0] or "graph.microsoft.com/Mail.Send" in provider.scopes[0]
        world.wait_until_sent(number)
        api.rules.append(fails_with("login", times=1))
        world.wait_until_sent(world.send("again"))
        assert [email.to for email in api.accepted] == ["early@example.org", "again@example.org"]
        assert provider.count("refresh_token") == 2
        page = HtmlPage(world.user, "/settings/sending")
        assert f"Connected {MAILBOX}" in page.text
        assert f"It accepts the consent of {MAILBOX}." in page.press("Test connection").text


HOSTILE = (
    b"", b"[]", b"{", b"\xff", b'"x"', b'{"access_token": 7}', b'{"access_token": "a b", "refresh_token": "r"}',
    b'{"access_token": "a\\r\\nX: y", "refresh_token": "r"}', b'{"access_token": "a"}', b"[" * 100_000,
    b'{"access_token": "a", "refresh_token": "r\\n", "expires_in": 1e999}', b"{" + b'"x":' * 5000,
    b'{"error": ["x"], "error_description": {"a": "<script>"}}', b"x" * 2_000_000,
)  # fmt: skip


def test_hostile_answers_connect_nothing(fresh_server: FreshServer) -> None:
    """Whatever an authorization server answers, no mailbox is connected, and the page says that it failed."""
    with running("google", fresh_server, **PUBLIC) as world:
        page = world.save_client()
        for body in HOSTILE:
            parts = urlsplit(world.sign_in(page))
            world.provider.raw = body
            response = world.user.request("GET", f"{parts.path}?{parts.query}")
            world.provider.raw = None
            assert response.status == 422 and "The mailbox is not connected" in response.text, body[:60]
            assert "<script>" not in response.text.partition("<main")[2]
        assert "Not connected" in HtmlPage(world.user, world.path).text


def test_a_password_is_not_kept_for_another_login(fresh_server: FreshServer) -> None:
    """Selecting OAuth 2.0 deletes the stored password, also with another server, so that it is never sent there."""
    server = fresh_server()
    user = ScriptlessBrowser(server.client())
    relay = {"part": "email", "email.transport": "relay", "email.relay.host": "old.bakery.example",
             "email.relay.username": "ana", "email.relay.password": "a stored password"}  # fmt: skip
    assert user.submit("/settings/sending", **relay).status == 303
    moved = relay | {"email.relay.host": "new.bakery.example", "email.relay.password": ""}
    assert user.submit("/settings/sending", **moved).status == 422, "the password was entered for another server"
    assert user.submit("/settings/sending", **moved, **{"email.relay.login": "google"}).status == 303
    with sqlite3.connect(f"file:{server.data}/campanero.db?mode=ro", uri=True) as database:
        names = {name for (name,) in database.execute("SELECT name FROM setting")}
    assert "email.relay.login" in names and "email.relay.password" not in names
    page = HtmlPage(user, "/settings/sending")
    page.fill("Login", "password")
    assert "Saved. Type to replace it." not in page.text and page.press("Save").value("Server") == "new.bakery.example"


def test_a_mailbox_is_disconnected(fresh_server: FreshServer) -> None:
    """Disconnecting deletes the refresh token; emails wait until a mailbox is connected again."""
    with running("google", fresh_server, **PUBLIC) as world:
        world.connect()
        page = HtmlPage(world.user, world.path).press("Disconnect")
        assert "Not connected" in page.text
        number = world.send()
        status = world.server.client().wait("/delivery/status", lambda row: not row["open"], 20)
        assert "no mailbox is connected with Google" in str(status["obstacles"])
        world.connect()
        world.wait_until_sent(number)
