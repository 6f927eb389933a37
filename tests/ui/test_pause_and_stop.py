"""Pausing, resuming and cancelling a campaign from its report, and its problems."""

import re

from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.smtp import SmtpServer

PEOPLE = 120


def test_pausing_continuing_and_stopping(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """The counts always add up to all recipients, and what is queued at the cancellation is never sent."""
    smtp_server.rules.delay("body", 0.4)
    smtp_server.rules.reject("rcpt", "p1@example.com", code=550, text="5.1.1 No such user here")
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    api.put("/brand", {"company_name": "Bakery", "physical_address": "4 Mill Lane"}).expect(200)
    list_id = api.post("/lists", {"name": "Newsletter"}).expect(201)["id"]
    for number in range(PEOPLE):
        api.post("/contacts", {"email": f"p{number}@example.com", "list_ids": [list_id]}).expect(201)
    content = {"subject": "News", "body": "<p>Hello</p>", "from_email": "ana@example.com"}
    body = {"name": "Slow", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content}
    campaign_id = api.post("/campaigns", body).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto(f"/campaigns/{campaign_id}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("navigation", name="Report").get_by_role("link", name="Problems").click()
    expect(page.locator("#problems")).to_contain_text("No such user here")
    page.get_by_role("link", name="Overview").click()
    # Messages that were handed over before the pause may arrive after it, on a busy machine seconds later
    message_count = -1
    while message_count != len(smtp_server.messages):
        message_count = len(smtp_server.messages)
        page.wait_for_timeout(2000)
    assert message_count < PEOPLE
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    smtp_server.wait_for(message_count + 2)
    page.get_by_role("button", name="Cancel campaign").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel campaign").click()
    expect(page.locator("#report .pill", has_text="Cancelled")).to_be_visible()
    # Messages in flight are completed, and the page follows them
    expect(page.locator("dl", has_text="Queued").locator("dd")).to_have_text("0", timeout=60_000)
    stats = api.get(f"/campaigns/{campaign_id}").expect(200)["stats"]
    assert stats["pending"] == 0 and stats["cancelled"] > 0
    counts = [int(re.findall(r"\d+", text)[0]) for text in page.locator("#live .stats dd").all_inner_texts()]
    assert sum(counts) == PEOPLE
    assert stats["accepted"] == len(smtp_server.messages)
    page.context.close()
    assert not browser_problems.found
