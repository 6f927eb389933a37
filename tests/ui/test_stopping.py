"""Pages while the service stops: they say so, keep typed text, and opt-outs are still stored."""

import signal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.https_clients import wait_until
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.smtp import SmtpServer

_HEADING = "Campanero is shutting down"
_EXPECTED_PROBLEMS = "status of 503|ERR_CONNECTION|Failed to fetch|ViewTransition"


def _check_stopping_page(page: Page, anonymous: Page) -> None:
    """Check that pages return a styled 503 page, signed in or not."""
    for tab, name in ((page, "stopping"), (anonymous, "stopping_signed_out")):
        response = tab.goto("/campaigns")
        assert response is not None and response.status == 503 and response.headers["retry-after"] == "5"
        expect(tab.get_by_role("heading", level=1)).to_have_text(_HEADING)
        color = tab.evaluate("getComputedStyle(document.querySelector('.btn.primary')).backgroundColor")
        assert color != "rgba(0, 0, 0, 0)"
        save_screenshot(tab, name)


def _check_form_dialog(form: Page) -> None:
    form.get_by_label("First name").fill("Anna")
    form.get_by_role("button", name="Save", exact=True).last.click()
    box = form.get_by_role("dialog")
    expect(box.get_by_role("heading")).to_have_text(_HEADING)
    save_screenshot(form, "stopping_dialog")
    box.get_by_role("button", name="Back to the page").click()
    expect(form.get_by_label("First name")).to_have_value("Anna")


def _check_composer_retries(composer: Page) -> None:
    composer.get_by_role("textbox", name="Subject").fill("After")
    expect(composer.locator("#saved-text")).to_have_text("Not saved: the server is unavailable. Retrying…")
    expect(composer.locator("#saved .icon")).to_be_hidden()
    expect(composer.get_by_role("dialog")).to_have_count(0)
    save_screenshot(composer, "stopping_composer")


@pytest.mark.full
def test_pages_while_the_service_stops(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """Until an open SMTP transaction ends, pages return 503, forms keep their text, and an opt-out is stored."""
    server = fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS)
    api = server.client(validate=False)
    create_list(api, 1)
    wait_until_completed(api, send_campaign(api, 1))
    unsubscribe_path = urlsplit(
        (smtp_server.messages[0].header("List-Unsubscribe") or "").split("<")[-1].strip(">")
    ).path
    campaign_url = f"/campaigns/{api.post('/campaigns', {'name': 'Letter'}).expect(201)['id']}"
    browser_problems.allow(_EXPECTED_PROBLEMS)
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto("/")
    form, composer, anonymous = page.context.new_page(), page.context.new_page(), browser.new_page(base_url=server.url)
    form.goto("/contacts/1/edit")
    composer.goto(f"{campaign_url}?open=from")
    gate = smtp_server.rules.hold("data", times=1)
    send_campaign(api, 1)
    gate.wait_reached()
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: api.get("/account").status == 503)

    assert api.get("/account").json["code"] == "unavailable"
    _check_stopping_page(page, anonymous)
    _check_form_dialog(form)
    _check_composer_retries(composer)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert api.request("POST", unsubscribe_path, b"List-Unsubscribe=One-Click", headers).status == 200
    gate.release()
    server.stop()
    server.start()

    api.wait(campaign_url, lambda row: row["template"]["subject"] == "After")
    expect(composer.locator("#saved-text")).to_contain_text("Saved")
    assert api.get("/contacts/1").expect(200)["channels"][0]["opted_out_by"] == "recipient"
    form.get_by_role("button", name="Save", exact=True).last.click()
    expect(form.locator(".toast")).to_contain_text("Saved")
    page.get_by_role("link", name="Try again").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Campaigns")
    anonymous.close()
    page.context.close()
    assert not browser_problems.found
