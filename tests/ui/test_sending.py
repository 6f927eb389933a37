"""The email transport in the browser: testing the relay, saving it, and settings fixed by the environment."""

import re
import time
import urllib.request

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.journeys.test_sending import completed, create_list, send
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.html_page import HtmlPage
from tests.kit.ports import open_ports
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, PASSWORD, Server, free_port
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import request_page, session_cookie

UNVERIFIED = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true", "CAMPANERO_EMAIL__RETRY_AFTER": "1,1,1"}
SECRET = "a password of its own"


def test_connecting_a_mail_server(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """Errors appear at their field or in the server's words; the saved relay is used by the next campaign."""
    server = fresh_server()
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto("/settings/sending")
    page.get_by_role("radio", name="Relay (SMTP server)").check()
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator("#f-email-relay-host-err")).to_contain_text("Enter the name of the server")
    page.get_by_label("Allowed sending domains").select_option("true")
    page.get_by_label("Port", exact=True).fill("99999")
    page.evaluate("scrollTo(0, 0)")
    expect(page.get_by_role("button", name="Save").first).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Save").first.click()
    expect(page.locator("#f-email-relay-port-err")).to_contain_text("Enter a number from 1 to 65535")
    assert find_violations_in_light_and_dark(page) == []

    page.get_by_label("Server", exact=True).fill("127.0.0.1")
    port = free_port()
    page.get_by_label("Port", exact=True).fill(str(port))
    page.get_by_label("Encryption").select_option("none")
    page.get_by_role("button", name="Test connection").click()
    status = page.get_by_role("status").filter(has_text=f"127.0.0.1:{port} cannot be reached")
    # The reason does not repeat the title
    expect(status.locator(".whole")).to_have_text(
        re.compile("^Connection refused, nothing is listening on this port. Check host and port")
    )
    page.get_by_label("Server", exact=True).fill("nobody.invalid")
    page.get_by_role("button", name="Test connection").click()
    expect(page.get_by_role("status").filter(has_text="DNS does not know this host name")).to_be_visible()
    page.get_by_label("Server", exact=True).fill("127.0.0.1")
    save_screenshot(page, "sending-refused")
    page.get_by_label("Port", exact=True).fill(str(smtp_server.port))
    page.get_by_role("button", name="Test connection").click()
    expect(page.get_by_role("status").filter(has_text="is ready")).to_be_visible()
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_text("Saved. New settings apply to all messages sent from now on.")).to_be_visible()
    expect(page.locator("#email-way header .pill")).to_have_text("Live")
    page.goto("/")
    # A mail server that sends from any domain does not need a verified one
    domain = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="Verify your sending domain"))
    expect(domain).to_contain_text("Optional.")

    api = server.set_postal_address().client()
    completed(api, send(api, create_list(api, 3)))
    assert len(smtp_server.messages) == 3
    server.restart()
    assert server.client().get("/account").expect(200)["transport"]["email"] == "relay"
    page.context.close()
    assert not browser_problems.found


def test_presets_offer_another_port(fresh_server: FreshServer) -> None:
    """A preset has a link to the port of its provider that is rarely blocked; an unknown port changes nothing."""
    user = ScriptlessBrowser(fresh_server().client())
    ports = {"brevo": "2525", "mailgun": "2525", "mailjet": "2525", "postmark": "2525", "sendgrid": "2525",
             "ses": "2587", "resend": "2587"}  # fmt: skip
    for preset, port in ports.items():
        page = HtmlPage(user, f"/settings/sending?preset={preset}")
        assert page.value("Port") == "587", preset
        assert page.follow(f"Use port {port}").value("Port") == port, preset
    assert HtmlPage(user, "/welcome/mail?preset=brevo").follow("Use port 2525").value("Port") == "2525"
    assert HtmlPage(user, "/settings/sending?preset=brevo&port=99").value("Port") == "587"


def test_a_blocked_port_is_explained(fresh_server: FreshServer) -> None:
    """The test of a connection to a closed port names an open port of the same server, or that none is open."""
    page = HtmlPage(ScriptlessBrowser(fresh_server().client()), "/settings/sending?preset=brevo")
    page.fill("Server", "127.0.0.73")
    page.fill("Port", str(free_port()))
    page.fill("Username", "")
    with open_ports("127.0.0.73", 2587):
        page = page.press("Test connection")
    assert page.text.count("Port 2587 of this server can be reached: use it with STARTTLS.") == 1
    page = page.press("Test connection")
    assert page.text.count("No other SMTP port of this server can be reached either") == 1


def get_page(server: Server, path: str, cookie: str) -> str:
    """Return the text of a page."""
    request = urllib.request.Request(server.url + path, headers={"Cookie": cookie})
    with urllib.request.urlopen(request, timeout=20) as response:
        return str(response.read().decode())


def test_secrets_and_fixed_settings(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A password appears on no page and not in the database; a setting of the environment cannot be changed."""
    server = fresh_server(env={"CAMPANERO_EMAIL__TRANSPORT": "capture"})
    cookie = session_cookie(server, EMAIL)
    form = {
        "part": "email",
        "email.transport": "relay",
        "email.relay.host": "127.0.0.1",
        "email.relay.password": SECRET,
    }
    assert request_page(server, "POST", "/settings/sending", cookie, **form)[0] == 303
    page_text = get_page(server, "/settings/sending", cookie)
    assert SECRET not in page_text and "Saved. Type to replace it." in page_text
    assert "Set by an environment variable" in page_text
    assert server.client().get("/account").expect(200)["transport"]["email"] == "capture"
    for path in server.data.iterdir():
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in server.output

    # The stored password is sent to no other server than the one it was entered for
    other_server = form | {"email.relay.port": str(smtp_server.port), "email.relay.tls": "none"}
    other_server["email.relay.password"] = ""
    for path in ("/settings/sending/test", "/welcome/mail/test", "/settings/sending"):
        assert request_page(server, "POST", path, cookie, **other_server)[0] == 422, path
    server.cli("account", "add", "Other")
    server.cli("user", "add", "--email", "b@example.org", "--account", "2", stdin=f"{PASSWORD}\n")
    other_cookie = session_cookie(server, "b@example.org")
    assert request_page(server, "POST", "/settings/sending/test", other_cookie, **other_server)[0] == 403
    assert smtp_server.connections == 0
    assert (
        request_page(server, "POST", "/settings/sending/test", cookie, **other_server | {"email.relay.password": "x"})[
            0
        ]
        == 200
    )
    assert smtp_server.connections == 1


def test_rates_have_a_maximum(fresh_server: FreshServer) -> None:
    """A rate with too many digits is an error at its field, and the pages that show the rate still open."""
    server = fresh_server()
    cookie = session_cookie(server, EMAIL)
    form = {"part": "email", "email.transport": "capture"}
    for rate, status in (("9" * 18, 422), ("9" * 300, 422), ("999999", 303)):
        rates = form | {"email.rate_per_hour": rate}
        assert request_page(server, "POST", "/settings/sending", cookie, **rates)[0] == status
    for path in ("/", "/outbox", "/settings/sending"):
        assert request_page(server, "GET", path, cookie)[0] == 200


@pytest.mark.full
def test_changing_the_relay_during_a_send(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """When the relay changes during a campaign, each recipient gets it once, from one relay or the other."""
    other = SmtpServer().start()
    try:
        server = fresh_server(env=UNVERIFIED | {"CAMPANERO_EMAIL__RATE_PER_SECOND": "40"})
        cookie = session_cookie(server, EMAIL)
        form = {"part": "email", "email.transport": "relay", "email.relay.host": "127.0.0.1", "email.relay.tls": "none"}
        assert (
            request_page(server, "POST", "/settings/sending", cookie, **form, **{"email.relay.port": str(other.port)})[
                0
            ]
            == 303
        )
        api = server.set_postal_address().client()
        campaign = send(api, create_list(api, 90))
        while len(other.messages) < 10:
            time.sleep(0.02)
        change = form | {"email.relay.port": str(smtp_server.port)}
        assert request_page(server, "POST", "/settings/sending", cookie, **change)[0] == 303
        stats = completed(api, campaign)["stats"]
        recipients = [message.to for message in (*other.messages, *smtp_server.messages)]
        assert (stats["sent"], len(recipients), len(set(recipients))) == (90, 90, 90)
        assert smtp_server.messages and other.messages
    finally:
        other.stop()
