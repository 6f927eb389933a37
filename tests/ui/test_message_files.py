"""The files and recipients of a message, on its page and in the test inbox."""

import base64
from typing import Any

from playwright.sync_api import Page, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.server import Server

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def attachment(name: str, content: bytes, **more: Any) -> dict[str, Any]:
    """Return the JSON of a file."""
    return {"filename": name, "content": base64.b64encode(content).decode(), **more}


def test_files_are_listed_and_downloaded(browser_page: Page, api: Client, server: Server) -> None:
    """Both pages list the files and recipients; a file is only downloaded, and only from its own message."""
    body = {
        "to": "ann@example.org", "cc": ["bo@example.org"], "bcc": ["archive@example.org"], "subject": "Invoice 4711",
        "html": "<p>Hello<img src='cid:logo' alt='Logo'></p>",
        "attachments": [
            attachment("Rechnung „März“.html", b"<script>alert(1)</script>" * 99),
            attachment("terms.pdf", b"%PDF" * 9_000),
            attachment("logo.png", PIXEL, content_id="logo"),
        ],
    }  # fmt: skip
    message = api.post("/messages", body).expect(201)
    for recipient in message["recipients"]:
        [captured] = api.wait("/capture", bool, message_id=recipient["id"])
        assert api.wait(f"/messages/{recipient['id']}", lambda row: row["status"] == "sent")
    page = browser_page
    page.goto(f"/outbox/{message['id']}?view=message")
    expect(page.locator(".copies li")).to_have_count(3)
    expect(page.locator(".copies")).to_contain_text("archive@example.org")
    expect(page.locator(".files li")).to_have_count(3)
    expect(page.locator(".files")).to_contain_text("inline image")
    image = page.frame_locator("iframe").get_by_alt_text("Logo")
    expect(image).to_have_js_property("naturalWidth", 1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Rechnung „März“.html").click()
    assert download.value.suggested_filename == "Rechnung „März“.html"
    href = page.get_by_role("link", name="terms.pdf").get_attribute("href") or ""
    page.goto(f"/inbox/{captured['id']}")
    expect(page.locator(".mail .files li")).to_have_count(3)
    expect(page.frame_locator("iframe").get_by_alt_text("Logo")).to_have_js_property("naturalWidth", 1)

    visitor = Visitor(server, "owner@example.com")
    response = visitor.send("GET", href)
    assert (response.status, response.body) == (200, b"%PDF" * 9_000)
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Disposition"].startswith("attachment;")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    other = message["recipients"][1]["id"]
    assert visitor.send("GET", href.replace(f"/outbox/{message['id']}/", f"/outbox/{other}/")).status == 404
