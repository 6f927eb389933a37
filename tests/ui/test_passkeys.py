"""Passkeys in Chromium, with a virtual authenticator: adding, both ways of signing in, renaming and removing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.server import EMAIL, PASSWORD, Server

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
def open_page(browser: Browser, server: Server, problems: Problems, **options: Any) -> Iterator[Page]:
    """Open a page at the base URL."""
    page = new_page(browser, server.url, problems, **options)
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
        device.send("setAutomaticPresenceSimulation", enabled=False)
        page.goto("/login?next=/lists")
        page.get_by_role("button", name="Sign in with a passkey").click()
        device.send("setAutomaticPresenceSimulation", enabled=True)
        page.wait_for_url("**/lists")
        page.goto(PROFILE)
        row = page.get_by_role("row").filter(has_text="My laptop")
        expect(row).to_contain_text("Only on one device")
        expect(row).not_to_contain_text("Never")
        assert axe.find_violations(page) == []  # ends the authenticator
