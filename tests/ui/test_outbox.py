"""The outbox: rejected, uncertain and queued messages are viewed, sent again or cancelled."""

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import request_page, session_cookie

LETTER = {"subject": "Your order", "body": "<p>Thank you</p>"}


@pytest.mark.full
def test_resending_a_rejected_message(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """A rejected message is shown with the server's text and its source, and can be sent again."""
    smtp_server.rules.reject("data", code=554, text="5.3.4 Message too big for this system")
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    ids = [api.post("/messages", {"to": f"{name}@example.org", **LETTER}).expect(201)["id"] for name in ("one", "two")]
    for number in ids:
        api.wait(f"/messages/{number}", lambda row: row["status"] == "failed")
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto("/")
    page.locator("#queue-state").click()
    expect(page.get_by_text("No queued messages")).to_be_visible()
    page.get_by_role("link", name="Failed").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="one@example.org").click()
    expect(page.locator("main")).to_contain_text("Message too big for this system")
    page.get_by_role("link", name="Raw source").click()
    expect(page.locator("pre")).to_contain_text("Subject: Your order")
    page.get_by_role("link", name="Message", exact=True).click()
    expect(page.frame_locator("main iframe").locator("body")).to_contain_text("Thank you")
    smtp_server.rules.clear()
    page.goto("/outbox?state=failed")
    page.get_by_label("Message to two@example.org").check()
    page.get_by_role("button", name="Resend selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Resend").click()
    expect(page.get_by_text("Sending 1 message again.")).to_be_visible()
    api.wait(f"/messages/{ids[1]}", lambda row: row["status"] == "sent")
    page.context.close()

    assert [message.to for message in smtp_server.messages] == ["two@example.org"]
    assert not browser_problems.found


def test_cancelling_a_queued_message(fresh_server: FreshServer) -> None:
    """While sending is stopped a queued message can be cancelled, and is never sent."""
    server = fresh_server()
    api = server.client()
    api.patch("/account", {"sending_stopped": True, "stop_reason": "a slip in the footer"}).expect(200)
    message_id = api.post("/messages", {"to": "one@example.org", **LETTER}).expect(201)["id"]
    user = ScriptlessBrowser(api)
    assert HtmlPage(user, "/").has("#queue-state", "Sending is stopped · 1 queued")
    page = HtmlPage(user, "/outbox")
    assert len(page.all(".banner", "a slip in the footer")) == 1
    assert page.texts("#queue-status") == ["1 message is queued until sending resumes."]
    page = page.follow("one@example.org").press("Cancel message")
    assert "Message cancelled. It will not be sent." in page.text
    api.patch("/account", {"sending_stopped": False}).expect(200)

    assert api.get(f"/messages/{message_id}").expect(200)["status"] == "cancelled"


def test_an_author_only_reads_the_outbox(fresh_server: FreshServer) -> None:
    """An author sees the outbox and gets a 403 for each action."""
    server = fresh_server()
    api = server.client()
    message_id = api.post("/messages", {"to": "one@example.org", **LETTER}).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")
    server.cli("user", "add", "--email", "author@example.org", "--role", "author", stdin=PASSWORD + "\n")
    cookie = session_cookie(server, "author@example.org")

    assert request_page(server, "GET", f"/outbox/{message_id}", cookie)[0] == 200
    paths = (
        "/outbox/retry",
        f"/outbox/{message_id}/retry",
        f"/outbox/{message_id}/assume",
        f"/outbox/{message_id}/cancel",
    )
    assert [request_page(server, "POST", path, cookie)[0] for path in paths] == [403] * 4


def test_tags_and_data_of_a_message_are_shown(user: ScriptlessBrowser, api: Client) -> None:
    """The page of a message names the tags and the data that a program sent with it; without them it has neither."""
    plain = api.post("/messages", {"to": "one@example.org", **LETTER}).expect(201)["id"]
    labelled = api.post("/messages", {
        "to": "one@example.org", **LETTER, "tags": {"tag": ["shop", "order"], "team": "north"},
        "data": {"order": {"number": "A-17"}},
    }).expect(201)["id"]  # fmt: skip
    page = HtmlPage(user, f"/outbox/{labelled}")
    assert page.texts("dl.kv .tag") == ["shop", "order", "team: north"]
    assert '"number": "A-17"' in page.texts("section[aria-labelledby=data] pre")[0]
    page = HtmlPage(user, f"/outbox/{plain}")
    assert not page.all("dl.kv .tag") and not page.all("section[aria-labelledby=data]")
