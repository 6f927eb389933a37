"""Uncertain messages on the pages: a user decides about one or all of them."""

import pytest
from playwright.sync_api import Browser, expect

from tests.api.test_messages_decided import HOLD, send_campaign, wait_until_completed
from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.server import PASSWORD
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import request_page, session_cookie


@pytest.mark.full
def test_deciding_about_uncertain_messages(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """A selected message is sent again, and the others are counted as sent, each after a confirmation."""
    smtp_server.rules.store_then_close(times=3)
    server = fresh_server(relay=smtp_server.port, env=HOLD)
    api = server.client()
    path = send_campaign(api, "one", "two", "three", "four")
    wait_until_completed(api, path)
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto(f"{path}/problems")
    expect(page.locator("#doubts tbody tr")).to_have_count(3)
    page.locator("#doubts").get_by_role("link", name="Review").click()
    # It is not known which three of the four lost their reply
    chosen = page.locator("tbody tr").first.get_by_role("checkbox")
    resent = (chosen.get_attribute("aria-label") or "").partition("@")[0]
    chosen.check()
    page.get_by_role("button", name="Resend").click()
    page.get_by_role("dialog").get_by_role("button", name="Resend").click()
    expect(page.get_by_text("Sending again to 1 contact.")).to_be_visible()
    expect(page.locator("#doubts tbody tr")).to_have_count(2)
    page.goto(f"{path}/decide")
    page.get_by_label("All 2").check()
    page.get_by_role("button", name="Mark as sent").click()
    page.get_by_role("dialog").get_by_role("button", name="Mark as sent").click()
    expect(page.get_by_text("2 messages marked as sent.")).to_be_visible()
    expect(page.locator("#doubts")).to_have_count(0)
    stats = wait_until_completed(api, path)["stats"]
    page.context.close()

    assert (stats["sent"], stats["uncertain"]) == (4, 0)
    assert sorted(message.to.partition("@")[0] for message in smtp_server.messages) == sorted(
        ["one", "two", "three", "four", resent]
    )
    assert not browser_problems.found


def test_an_author_cannot_decide(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """An author sees the uncertain messages but gets a 403 for decisions; an editor decides."""
    smtp_server.rules.store_then_close(times=1)
    server = fresh_server(relay=smtp_server.port, env=HOLD)
    path = send_campaign(server.client(), "one")
    wait_until_completed(server.client(), path)
    statuses = {}
    for role in ("author", "editor"):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=PASSWORD + "\n")
        cookie = session_cookie(server, f"{role}@example.org")
        assert request_page(server, "GET", f"{path}/decide", cookie)[0] == 200
        for verb in ("assume", "retry"):
            statuses[role, verb] = request_page(server, "POST", f"{path}/{verb}", cookie, status="uncertain", all="1")[
                0
            ]

    assert statuses == {("author", "assume"): 403, ("author", "retry"): 403, ("editor", "assume"): 303,
                       ("editor", "retry"): 303}  # fmt: skip
    assert wait_until_completed(server.client(), path)["stats"]["sent"] == 1
