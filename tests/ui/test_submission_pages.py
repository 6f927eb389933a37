"""SMTP submission in the browser: what programs have to enter, and what each key sent."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.submission import Ports


@pytest.fixture(scope="module")
def submitting(ports: Ports) -> Iterator[Server]:
    """Yield a server with SMTP submission."""
    with Server(env=ports.env | {"CAMPANERO_SUBMISSION__HOST": "mail.bakery.example"}).set_up().start() as server:
        yield server
        server.stop()


def test_a_program_is_connected_with_what_the_pages_show(submitting: Server, ports: Ports) -> None:
    """The page of the settings names host and ports; a key made on a page sends, and the page counts it."""
    user = ScriptlessBrowser(submitting.client())
    block = HtmlPage(user, "/settings/sending").one("section#smtp-submission")
    for words in ("mail.bakery.example", str(ports.starttls), str(ports.tls), "the name of an API key"):
        assert words in HtmlPage(user, "/settings/sending").text and block is not None
    page = HtmlPage(user, "/settings/keys")
    page.fill("Name", "Shop")
    page.fill("SMTP limit", "many")
    page = page.press("Create key")
    assert "Enter a number, such as 1000." in page.text
    page.fill("SMTP limit", "50")
    page = page.press("Create key")
    key = page.value("API key")
    with ports.connect(key, "Shop") as client:
        client.sendmail("", ["a@example.org"], b"From: shop@bakery.example\r\nSubject: Order\r\n\r\nHello\r\n")
    page = HtmlPage(user, "/settings/keys")
    assert "1 email by SMTP" in page.text and "SMTP limit: 50 recipients per hour" in page.text
    [row] = submitting.client().get("/messages").expect(200)
    page = HtmlPage(user, f"/outbox/{row['id']}?view=message")
    assert "Order" in page.text
    assert "Hello" in HtmlPage(user, f"/outbox/{row['id']}/html").text


def test_the_pages_are_accessible(submitting: Server, browser: Browser) -> None:
    """axe finds nothing on the settings and the page of keys."""
    problems = Problems()
    page = sign_in(new_page(browser, submitting.url, problems))
    for name in ("sending", "keys"):
        page.goto(f"/settings/{name}")
        save_screenshot(page, f"submission-{name}")
        assert find_violations_in_light_and_dark(page) == []
    page.context.close()
    assert problems.found == []
