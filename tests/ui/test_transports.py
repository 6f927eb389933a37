"""Further transports and rules on the settings page: adding, testing, ordering, and what must not be lost."""

import pytest

from tests.conftest import FreshServer
from tests.kit.html_page import HtmlPage
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, Server, relay_settings
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import request_page, session_cookie

PAGE = "/settings/sending"
SECRET = "a password of its own"


@pytest.fixture
def server(fresh_server: FreshServer, smtp_server: SmtpServer) -> Server:
    """A server whose default transport is a relay that a file sets, so that pages only add to it."""
    return fresh_server(env=relay_settings(smtp_server.port) | NO_RATE_LIMITS).set_postal_address()


def add_relay(user: ScriptlessBrowser, name: str, port: int, password: str = "") -> HtmlPage:
    """Add a relay on this machine and return the page that follows."""
    page = HtmlPage(user, PAGE).follow("Add transport").follow("Relay")
    page.fill("Name", name)
    page.fill("Server", "127.0.0.1")
    page.fill("Port", str(port))
    page.fill("Encryption", "none")
    page.fill("Username", "ana" if password else "")
    page.fill("Password", password)
    return page.press("Add transport")


def test_adding_transports_and_rules(server: Server, smtp_server: SmtpServer) -> None:
    """A relay is tested, added and used by a rule at once; it cannot be deleted before the rule."""
    user = ScriptlessBrowser(server.client(validate=False))
    with SmtpServer() as second:
        page = HtmlPage(user, PAGE).follow("Add transport").follow("Relay")
        assert "is required" in page.press("Add transport").text
        page.fill("Name", "Receipts")
        page.fill("Server", "127.0.0.1")
        page.fill("Port", str(second.port))
        page.fill("Encryption", "none")
        tested = page.press("Test connection")
        assert "127.0.0.1 is ready" in tested.text and second.connections == 1
        page = tested.press("Add transport")
        assert "“Receipts” added. Now add a rule that uses it." in page.text and "Rules" in page.text

        page = page.follow("Add rule")
        page.fill("Email", "transactional")
        page.fill("Recipients at", "Gmail, example.org")
        assert "Give at least one transport a share above 0." in page.press("Add rule").text
        page.fill("Receipts", "1")
        page.fill("Default (Relay)", "0")
        page = page.press("Add rule")
        assert "Transactional email to Google and example.org" in page.text
        assert "Takes over: Default (Relay)" in page.text

        message = {"to": "ana@example.org", "from_email": "ana@bakery.example", "subject": "Bread", "body": "<p>x</p>"}
        api = server.client(validate=False)
        number = api.post("/messages", message | {"transactional": True}).expect(201)["id"]
        row = api.wait(f"/messages/{number}", lambda row: row["status"] == "sent", 30)
        assert row["provider"] == "receipts" and len(second.messages) == 1 and not smtp_server.messages
        assert "Receipts" in HtmlPage(user, f"/outbox/{number}").text

        page = HtmlPage(user, PAGE).follow("Receipts")
        refused = page.press(page.one("dialog button.danger"))
        assert "A rule uses this transport: remove it there first (rule 1)." in refused.text
        page = HtmlPage(user, PAGE)
        page = page.press(page.one("button[aria-label='Delete rule 1']"))
        page = page.follow("Receipts")
        assert "“Receipts” deleted." in page.press(page.one("dialog button.danger")).text


def test_rules_keep_their_order(server: Server) -> None:
    """Rules move up and down; a button of an old page changes no other rule."""
    user = ScriptlessBrowser(server.client(validate=False))
    add_relay(user, "Second", 2525)
    for domain in ("a.example", "b.example"):
        page = HtmlPage(user, f"{PAGE}/rules/new")
        page.fill("Sending domains", domain)
        page.fill("Second", "1")
        page.press("Add rule")
    old = HtmlPage(user, PAGE)
    moved = old.press(old.one("button[aria-label='Move rule 2 up']"))
    texts = [text for text in moved.texts("#rules a.name") if "example" in text]
    assert texts == ["All email from b.example", "All email from a.example"]
    response, _ = old.send(old.one("button[aria-label='Delete rule 2']"))
    assert response.status == 404 and len(HtmlPage(user, PAGE).texts("#rules tbody tr")) == 2


def test_secrets_of_a_transport(server: Server) -> None:
    """A password is on no page and not in the database, and is not sent to a server that it was not entered for."""
    user, cookie = ScriptlessBrowser(server.client(validate=False)), session_cookie(server, EMAIL)
    with SmtpServer(users={"ana": SECRET}) as second, SmtpServer(users={"ana": SECRET}) as other:
        assert "“Second” added" in add_relay(user, "Second", second.port, SECRET).text
        page = HtmlPage(user, f"{PAGE}/transports/second")
        assert SECRET not in page.text and "127.0.0.1 is ready" in page.press("Test connection").text
        for path in server.data.iterdir():
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
        page.fill("Port", str(other.port))
        for button in ("Test connection", "Save"):
            assert "The saved password is for another server." in page.press(button).text
        assert other.connections == 0
        page.fill("Port", str(second.port))
        page.fill("Maximum emails per hour", "many")
        assert "Enter a whole number." in page.press("Save").text
        page.fill("Maximum emails per hour", "500")
        assert "Saved." in page.press("Save").text
        page = HtmlPage(user, f"{PAGE}/transports/second")
        assert page.value("Maximum emails per hour") == "500"
        assert "127.0.0.1 is ready" in page.press("Test connection").text
    for path in ("transports/none", "rules/9"):
        assert request_page(server, "GET", f"{PAGE}/{path}", cookie)[0] == 404


def test_changes_of_others_are_not_lost(server: Server) -> None:
    """Two users who change the same transport: other fields are merged, the same field asks."""
    user = ScriptlessBrowser(server.client(validate=False))
    add_relay(user, "Second", 2525)
    first, second = (HtmlPage(user, f"{PAGE}/transports/second") for _ in range(2))
    first.fill("Name", "Backup")
    first.press("Save")
    second.fill("Maximum emails per hour", "70")
    second.press("Save")
    page = HtmlPage(user, f"{PAGE}/transports/second")
    assert (page.value("Name"), page.value("Maximum emails per hour")) == ("Backup", "70")
