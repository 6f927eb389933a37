"""Kills of the service while users work: saved data is consistent, typed text stays, and sending continues."""

import random
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

# Console messages of a browser whose server is gone
GONE = "ERR_CONNECTION|ERR_EMPTY|ERR_SOCKET|Failed to fetch|NetworkError|ViewTransition|ERR_INCOMPLETE|status of 503"
CONNECTIONS = 4
# A page, its API path, and two fields that are saved together
PAGES = (
    ("/settings", "/account", ("email_from_name", "email_reply_to")),
    ("/brand", "/brand", ("company_name", "industry")),
    ("/lists/1/edit", "/lists/1", ("name", "double_opt_in")),
)


@pytest.fixture
def server(fresh_server: FreshServer, smtp_server: SmtpServer) -> Server:
    """A server with the SMTP test server as its relay."""
    return fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS | {"CAMPANERO_EMAIL__PROBE_AFTER": "1s"})


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner, which tolerates connection errors."""
    problems = Problems()
    problems.allow(GONE)
    opened = sign_in(new_page(browser, server.url, problems))
    yield opened
    opened.context.close()
    assert problems.found == []


def _fill(page: Page, names: tuple[str, ...], text: str, ticked: bool) -> tuple[object, ...]:
    """Fill both fields and return the values that the API must return."""
    values: list[object] = []
    for name in names:
        field = page.locator(f"main [name={name}]")
        if field.get_attribute("type") == "checkbox":
            field.set_checked(ticked)
            values.append(ticked)
        else:
            field.fill(text)
            values.append(text)
    return tuple(values)


def _save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).last.click()
    # The first page after a start is slow
    expect(page.locator(".toast")).to_contain_text("Saved", timeout=30_000)


@pytest.mark.full
def test_kills_while_saving_settings_during_a_send(server: Server, smtp_server: SmtpServer, page: Page) -> None:
    """After a kill both fields are old or both new, and the campaign loses no message."""
    api, rng = server.client(validate=False), random.Random(7)
    list_id = create_list(api, 900)
    assert list_id == 1
    smtp_server.rules.delay("body", 0.3)
    path = send_campaign(api, list_id)
    for index, (url, resource, names) in enumerate(PAGES):
        page.goto(url)
        old = _fill(page, names, f"old{index}@bakery.example", False)
        _save(page)
        page.goto(url)
        new = _fill(page, names, f"new{index}@bakery.example", True)
        smtp_server.wait_for(30 * (index + 1), timeout=60)
        assert api.get(path).expect(200)["status"] == "active"
        with page.expect_request(lambda request: request.method == "POST"):
            page.get_by_role("button", name="Save", exact=True).last.click(no_wait_after=True)
        time.sleep(rng.uniform(0, 0.03))
        server.kill()
        server.start()
        row = api.get(resource).expect(200)
        assert tuple(row[name] for name in names) in (old, new)
        if page.get_by_role("alert").filter(has_text="No response from the server").count():
            _save(page)
            row = api.get(resource).expect(200)
            assert tuple(row[name] for name in names) == new
        page.goto(url)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    smtp_server.rules.clear()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    assert (books.audience, books.accepted, books.missing, books.uncertain) == (900, 900, 0, 0)
    assert books.copies <= len(PAGES) * 2 * CONNECTIONS


def test_typed_text_survives_a_kill(server: Server, page: Page) -> None:
    """Editor, composer and a form keep typed text over a kill and save it without a new sign-in."""
    api = server.client()
    contact_id = api.post("/contacts", {"email": "ann@example.org", "first_name": "Ann"}).expect(201)["id"]
    campaign = f"/campaigns/{api.post('/campaigns', {'name': 'Letter'}).expect(201)['id']}"
    design = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Hi"}}]}
    template = f"/templates/{api.post('/templates', {'name': 'T', 'design': design}).expect(201)['id']}"
    composer, form = page.context.new_page(), page.context.new_page()
    with page.expect_response("**/presence"):
        page.goto(f"{template}/edit?s=s1")
    composer.goto(f"{campaign}?open=from")
    form.goto(f"/contacts/{contact_id}/edit")
    heading = page.locator("#inspector").get_by_role("textbox").first
    subject = composer.get_by_role("textbox", name="Subject")
    first, save = form.get_by_label("First name"), form.get_by_role("button", name="Save", exact=True).last
    heading.fill("Before")
    subject.fill("Before")
    api.wait(campaign, lambda row: row["template"]["subject"] == "Before")
    api.wait(template, lambda row: "Before" in str(row["design"]))
    first.fill("Before")
    server.kill()
    heading.fill("Between")
    subject.fill("Between")
    first.fill("Between")
    save.click()
    expect(page.locator("#saved")).to_have_text("Not saved: you are offline. Retrying…")
    expect(composer.locator("#saved-text")).to_contain_text("Not saved: no response from the server. Retrying…")
    expect(form.get_by_role("alert")).to_contain_text("No response from the server")
    server.start()
    api.wait(template, lambda row: "Between" in str(row["design"]))
    api.wait(campaign, lambda row: row["template"]["subject"] == "Between")
    expect(page.locator("#saved")).to_contain_text(re.compile("^Saved"))
    expect(composer.locator("#saved-text")).to_contain_text(re.compile("^Saved"))
    expect(first).to_have_value("Between")
    save.click()
    expect(form.locator(".toast")).to_contain_text("Saved")
    assert api.get(f"/contacts/{contact_id}").expect(200)["first_name"] == "Between"
    for tab in (page, composer, form):
        expect(tab.get_by_text("You were signed out")).to_have_count(0)
        expect(tab.locator("dialog[open]")).to_have_count(0)


@pytest.mark.full
def test_undo_of_a_bulk_action_survives_a_kill(server: Server, page: Page) -> None:
    """A bulk action continues after a kill, and its undo is listed under Activity."""
    api: Client = server.client()
    create_list(api, 620)
    page.goto("/contacts?limit=25")
    page.get_by_label("Select all rows on this page").check()
    page.get_by_label("All 620").check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_label("Tag", exact=True).fill("vip")
    page.get_by_label("Tag", exact=True).press("Enter")
    expect(page.locator(".toast")).to_contain_text("vip")
    server.kill()
    server.start()
    page.goto("/activity")
    page.get_by_role("link", name="Bulk actions").click()
    row = page.get_by_role("listitem").filter(has_text="Tag “vip” added to 620 contacts.")
    expect(row).to_be_visible(timeout=30_000)
    assert len(api.all("/contacts", tag="vip")) == 620
    row.get_by_role("button", name="Undo").click()
    page.goto("/contacts/acts")
    expect(page.get_by_text("Tag vip removed from 620 contacts.")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    assert api.all("/contacts", tag="vip") == []
