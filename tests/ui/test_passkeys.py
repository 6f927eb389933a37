"""Passkeys in Chromium, with a virtual authenticator: adding, both ways of signing in, renaming and removing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.server import PASSWORD, Server

PROFILE = "/settings/you"


class VirtualAuthenticator:
    """An authenticator of a browser (Chrome DevTools Protocol, domain WebAuthn)."""

    def __init__(self, page: Page, **options: Any) -> None:
        self.session = page.context.new_cdp_session(page)
        self.session.send("WebAuthn.enable", {"enableUI": False})
        settings = {
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
            "isUserVerified": True, "automaticPresenceSimulation": True, **options,
        }  # fmt: skip
        self.id = self.session.send("WebAuthn.addVirtualAuthenticator", {"options": settings})["authenticatorId"]

    def send(self, command: str, **parameters: Any) -> Any:
        """Send a command about this authenticator."""
        return self.session.send(f"WebAuthn.{command}", {"authenticatorId": self.id, **parameters})

    def credentials(self) -> list[dict[str, Any]]:
        """Return the credentials that it stores."""
        return list(self.send("getCredentials")["credentials"])


@pytest.fixture(scope="module")
def passkey_server() -> Iterator[Server]:
    """A server whose base URL is `localhost`, where browsers allow passkeys without https."""
    server = Server(env={"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "100"})
    server.url = server.url.replace("127.0.0.1", "localhost")
    server.env["CAMPANERO_BASE_URL"] = server.url
    with server.set_up() as running:
        yield running
        running.stop()


@contextmanager
def open_page(
    browser: Browser, server: Server, problems: Problems, suggests: bool = False, **options: Any
) -> Iterator[Page]:
    """Open a page at the base URL; only with `suggests`, the browser suggests passkeys in the sign-in form.

    A virtual authenticator takes a suggestion by itself, before anybody can click.
    """
    page = new_page(browser, server.url, problems, **options)
    if not suggests:
        page.add_init_script("PublicKeyCredential.isConditionalMediationAvailable = async () => false")
    page.goto("/login")  # the policy of the first page replaces its process, and an authenticator with it
    yield page
    page.context.close()


def add_user(server: Server, name: str) -> str:
    """Add a user by the command line and return its email address."""
    server.cli("user", "add", "--email", f"{name}@example.org", "--role", "editor", stdin=PASSWORD + "\n")
    return f"{name}@example.org"


def add_passkey(page: Page, name: str = "") -> None:
    """Add a passkey through the pages of the profile."""
    page.goto(PROFILE)
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    if name:
        page.get_by_label("Name of the passkey").fill(name)
    page.get_by_role("button", name="Create passkey").click()
    page.get_by_text("Passkey added.").wait_for()


def test_adding_and_signing_in_alone(browser: Browser, passkey_server: Server, browser_problems: Problems) -> None:
    """A passkey that was added signs in alone, from the button; the profile says when it was last used."""
    with open_page(browser, passkey_server, browser_problems) as page:
        device = VirtualAuthenticator(page)
        sign_in(page, add_user(passkey_server, "alone"))
        add_passkey(page, "My laptop")
        expect(page.get_by_label("Recovery codes", exact=True)).to_be_visible()
        save_screenshot(page, "passkey-added")
        assert len(device.credentials()) == 1 and device.credentials()[0]["rpId"] == "localhost"
        page.context.clear_cookies()
        page.goto("/login?next=/lists")
        save_screenshot(page, "login")
        page.get_by_role("button", name="Sign in with a passkey").click()
        page.wait_for_url(lambda url: url.endswith("/lists") and "/login" not in url)
        page.goto(PROFILE)
        row = page.get_by_role("row").filter(has_text="My laptop")
        expect(row).to_contain_text("Only on one device")
        expect(row).not_to_contain_text("Never")


def test_the_second_factor(browser: Browser, passkey_server: Server, browser_problems: Problems) -> None:
    """After the password the form asks for the passkey; a closed prompt is said, and a recovery code works instead."""
    with open_page(browser, passkey_server, browser_problems, width=360, dark=True) as page:
        device, email = VirtualAuthenticator(page), add_user(passkey_server, "second")
        sign_in(page, email)
        add_passkey(page)
        code = page.get_by_label("Recovery codes", exact=True).input_value().split()[0]
        device.send("setAutomaticPresenceSimulation", enabled=False)

        def enter_password() -> None:
            page.context.clear_cookies()
            page.goto("/login")
            page.get_by_label("Email").fill(email)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in", exact=True).click()
            page.get_by_text("Only if your passkey is not at hand.").wait_for()

        enter_password()
        save_screenshot(page, "passkey-second-factor-phone-dark")
        device.send("setUserVerified", isUserVerified=False)
        device.send("setAutomaticPresenceSimulation", enabled=True)
        page.get_by_role("button", name="Sign in with a passkey").click()
        page.wait_for_url(lambda url: "/login" not in url)

        # The passkey was deleted on the device: the browser has none to offer
        [credential] = device.credentials()
        device.send("removeCredential", credentialId=credential["credentialId"])
        enter_password()
        page.get_by_role("button", name="Sign in with a passkey").click()
        page.get_by_text("The passkey was not used").wait_for()
        save_screenshot(page, "passkey-refused-phone-dark")
        page.get_by_label("Recovery code").fill(code)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url(lambda url: "/login" not in url)
        page.goto(PROFILE)
        save_screenshot(page, "passkeys-phone-dark")
        assert axe.find_violations(page) == []


@pytest.mark.full
def test_suggestions(browser: Browser, passkey_server: Server, browser_problems: Problems) -> None:
    """The sign-in form offers the passkey among the suggestions of its first field; the browser signs in with it."""
    with open_page(browser, passkey_server, browser_problems, suggests=True) as page:
        VirtualAuthenticator(page)
        sign_in(page, add_user(passkey_server, "auto"))
        add_passkey(page)
        page.context.clear_cookies()
        page.goto("/login?next=/lists")  # a virtual authenticator takes the suggestion by itself
        page.wait_for_url(lambda url: url.endswith("/lists") and "/login" not in url)


@pytest.mark.full
def test_a_cancelled_creation_and_a_second_passkey(
    browser: Browser, passkey_server: Server, browser_problems: Problems
) -> None:
    """A device without a check of the user, or with a passkey already, adds none, and the page says so."""
    with open_page(browser, passkey_server, browser_problems) as page:
        device = VirtualAuthenticator(page)
        sign_in(page, add_user(passkey_server, "twice"))
        add_passkey(page)
        page.get_by_role("link", name="Add a passkey").click()
        save_screenshot(page, "passkey-password")
        page.get_by_label("Your password").fill(PASSWORD)
        page.get_by_role("button", name="Continue").click()
        save_screenshot(page, "passkey-create")
        page.get_by_role("button", name="Create passkey").click()
        page.get_by_text("This device has a passkey for Campanero already.").wait_for()
        device.send("removeVirtualAuthenticator")
        second = VirtualAuthenticator(page, isUserVerified=False)
        page.get_by_role("button", name="Create passkey").click()
        page.get_by_text("The passkey was not used").wait_for()
        assert second.credentials() == []
        assert axe.find_violations(page) == []
        page.goto(PROFILE)
        page.get_by_role("link", name="Edit Unknown browser").click()
        page.get_by_label("Name of the passkey").fill("Blue key")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("link", name="Edit Blue key").click()
        save_screenshot(page, "passkey-edit")
        assert axe.find_violations(page) == []
        page.get_by_label("Your password").fill(PASSWORD)
        page.get_by_role("button", name="Remove").click()
        page.get_by_text("Passkey “Blue key” removed.").wait_for()


@pytest.mark.full
def test_the_session_dialog(browser: Browser, passkey_server: Server, browser_problems: Problems) -> None:
    """In the dialog of a page whose session has ended, the passkey signs in, and the page stays."""
    browser_problems.allow("status of 401")
    with open_page(browser, passkey_server, browser_problems) as page:
        VirtualAuthenticator(page)
        sign_in(page, add_user(passkey_server, "dialog"))
        add_passkey(page)
        page.goto("/lists/new")
        page.get_by_label("Name").fill("Kept")
        page.context.clear_cookies()
        page.get_by_role("button", name="Create").click()
        page.get_by_role("dialog").get_by_role("button", name="Sign in with a passkey").click()
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_label("Name")).to_have_value("Kept")
        page.goto(PROFILE)
        page.get_by_role("table").last.get_by_role("link").first.click()
        page.get_by_label("Name of the device").fill("Kitchen laptop")
        save_screenshot(page, "session")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("link", name="Kitchen laptop")).to_be_visible()
        page.get_by_role("link", name="Kitchen laptop").click()
        assert axe.find_violations(page) == []
