"""Live updates of a running campaign: pages poll until it is completed, and nothing waits for them."""

import re
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout

CONNECTIONS = 4  # of the SMTP test server


def start_campaign(api: Client, people: int = 30) -> int:
    """Send a campaign to `people` contacts and return its id."""
    list_id = api.post("/lists", {"name": "Newsletter"}).expect(201)["id"]
    for number in range(people):
        api.post("/contacts", {"email": f"p{number}@example.com", "list_ids": [list_id]}).expect(201)
    content = {"subject": "News", "body": "<p>Hello</p>", "from_email": "ana@example.com"}
    body = {"name": "Slow", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content}
    campaign = int(api.post("/campaigns", body).expect(201)["id"])
    api.post(f"/campaigns/{campaign}/send").expect(200)
    return campaign


def record_htmx_requests(page: Page) -> list[str]:
    """Record the htmx requests of a page, and return the growing list of their URLs."""
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url) if request.headers.get("hx-request") else None)
    return urls


@pytest.mark.full
def test_polling_ends_with_the_campaign(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """The report updates itself while the campaign is sent, and stops polling once it is completed."""
    smtp_server.rules.delay("body", 0.3)
    server = fresh_server(relay=smtp_server.port)
    page = sign_in(new_page(browser, server.url, browser_problems))
    campaign = start_campaign(server.client(), 32)
    polls = record_htmx_requests(page)
    page.goto(f"/campaigns/{campaign}")
    expect(page.locator("#live[hx-trigger]")).to_be_visible()
    expect(page.locator("#live .pill", has_text="Sent")).to_be_visible(timeout=20_000)
    expect(page.locator("#live, #figures").and_(page.locator("[hx-trigger]"))).to_have_count(0, timeout=15_000)
    expect(page.locator("#progress-title")).to_have_text("Sent to 32 contacts")
    # A finished report has figures and no progress
    expect(page.locator("#live progress, #live [role=status]")).to_have_count(0)
    figures = page.locator("#live .stat").all_inner_texts()
    assert [" ".join(text.split()) for text in figures] == ["Sent 32 100%", "Skipped 0"]
    expect(page.locator("#queue-state")).to_contain_text("Queue idle", timeout=2_000)  # without the poll's pause
    before = len(polls)
    page.wait_for_timeout(1_500)  # longer than a poll waits

    assert before >= 1 and not [url for url in polls[before:] if "queue" not in url]
    page.context.close()
    assert not browser_problems.found


def read_sums(page: Page) -> tuple[int, int, int]:
    """Return the sent messages of a report's progress, and the sent and delivered ones of its results, as shown now."""
    texts: list[str] = page.evaluate("""() => [
        document.querySelector("#live dl a")?.textContent ?? "0",
        document.querySelector("#reading header .end").textContent]""")
    counted = re.fullmatch(r"(?:(\d+) of )?(\d+) (?:sent )?emails? delivered(?: so far)?", texts[1])
    assert counted, texts[1]
    return int(texts[0]), int(counted[2]), int(counted[1] or counted[2])


@pytest.mark.full
def test_all_sums_of_a_report_are_of_one_moment(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """While a campaign is sent, its progress and its results show the same number of messages."""
    smtp_server.rules.delay("body", 0.3)
    server = fresh_server(relay=smtp_server.port)
    page = sign_in(new_page(browser, server.url, browser_problems))
    campaign = start_campaign(server.client(), 90)
    smtp_server.wait_for(1)
    page.goto(f"/campaigns/{campaign}?by=day")
    expect(page.locator("#reading")).to_be_visible(timeout=10_000)
    seen = set()
    deadline = time.monotonic() + 30
    while page.locator("#live[hx-trigger]").count() and time.monotonic() < deadline:
        sent, counted, delivered = read_sums(page)
        assert sent == counted == delivered
        seen.add(sent)
        page.wait_for_timeout(200)
    assert len(seen) >= 3 and read_sums(page) == (90, 90, 90)
    expect(page.locator("#reading")).to_contain_text("90 emails delivered")
    expect(page.get_by_role("heading", name="Activity by day")).to_be_visible()
    page.context.close()
    assert not browser_problems.found


@pytest.mark.full
def test_pausing_from_the_report(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """After a pause only messages in flight leave; after Resume each recipient gets the mail once."""
    smtp_server.rules.delay("body", 0.3)
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    page = sign_in(new_page(browser, server.url, browser_problems))
    campaign = start_campaign(api)
    page.goto(f"/campaigns/{campaign}")
    smtp_server.wait_for(2)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    message_count = len(smtp_server.messages)
    expect(page.locator("#live .banner", has_text="Paused by owner, today")).to_be_visible()
    # Polls until the messages in flight are settled
    expect(page.locator("#live[hx-trigger]")).to_have_count(0, timeout=25_000)
    assert len(smtp_server.messages) <= message_count + CONNECTIONS
    stats = api.get(f"/campaigns/{campaign}").expect(200)["stats"]
    assert stats["pending"] + stats["accepted"] == 30 and stats["accepted"] == len(smtp_server.messages)
    smtp_server.rules.delay("body", 0)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#live .pill", has_text="Sent")).to_be_visible(timeout=20_000)

    assert sorted(message.to for message in smtp_server.messages) == sorted(f"p{n}@example.com" for n in range(30))
    page.context.close()
    assert not browser_problems.found


@pytest.mark.full
def test_list_rows_are_polled_together(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """One request updates all running rows; unknown ids are ignored."""
    smtp_server.rules.delay("body", 1)
    server = fresh_server(relay=smtp_server.port)
    page = sign_in(new_page(browser, server.url, browser_problems))
    campaign = start_campaign(server.client(), 8)
    headers = {"hx-request": "true", "hx-target": "div#live-campaigns"}
    path = f"/live/campaigns?ids={campaign},99,x"
    text = page.request.get(path, headers=headers).text()
    assert f'hx-get="/live/campaigns?ids={campaign}"' in text and text.count("<hx-partial") == 1
    assert re.search(r"\d of 8 sent", text)
    page.goto("/")
    expect(page.locator("#happening")).to_contain_text("of 8 sent")
    smtp_server.rules.delay("body", 0)
    expect(page.locator("#happening[hx-trigger]")).to_have_count(0, timeout=15_000)
    completed = page.request.get(path, headers=headers).text()

    assert "hx-trigger" not in completed and "Sent" in completed
    page.context.close()
    assert not browser_problems.found


def test_a_slowed_campaign(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """At its hourly limit the report says why and until when; polling does not delay stopping the service."""
    browser_problems.allow("ERR_|Failed to load resource|NetworkError|fetch")
    server: Server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__RATE_PER_HOUR": "3"})
    page = sign_in(new_page(browser, server.url, browser_problems))
    campaign = start_campaign(server.client(), 6)
    smtp_server.wait_for(3)
    page.goto(f"/campaigns/{campaign}")
    expect(page.locator("#waiting")).to_contain_text("Throttled: limit of 3 an hour, next at")
    expect(page.locator("#live .pill").first).to_have_text("Throttled")
    with page.expect_response(re.compile("/live$")):
        pass
    started = time.monotonic()
    server.stop()

    assert time.monotonic() - started < extend_timeout(2)
    page.context.close()
