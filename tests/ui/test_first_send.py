"""The main task in the browser: from the set-up link to three personalised messages in the test inbox."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, new_page
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.shared_clock import clock

__all__ = ["clock"]
PEOPLE = (("Mara", "mara@example.com"), ("Jonas", "jonas@example.com"), ("Ines", "ines@example.com"))


@pytest.fixture(scope="module")
def first_run(clock: TestClock) -> Iterator[Server]:
    """A server that is not set up."""
    with Server(clock=clock) as running:
        yield running
        running.stop()


@pytest.fixture(scope="module")
def page(browser: Browser, first_run: Server) -> Iterator[Page]:
    """A page that is used by all tests in turn; the module fails on any console error."""
    problems = Problems()
    opened = new_page(browser, first_run.url, problems, width=1360)
    yield opened
    opened.context.close()
    assert not problems.found


def test_setting_up(page: Page, first_run: Server) -> None:
    """The link creates the owner, who is signed in, enters a postal address and reaches the checklist."""
    page.goto(first_run.setup_link)
    page.get_by_label("Your name").fill("Ana Lind")
    page.get_by_label("Team or company").fill("Northwind")
    page.get_by_label("Email", exact=True).fill("ana@example.com")
    page.get_by_label("Password").fill("short")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#f-password-err")).to_contain_text("at least 10 characters")
    expect(page.get_by_label("Your name")).to_have_value("Ana Lind")
    page.get_by_label("Password").fill("a few words in a row")
    page.get_by_role("button", name="Continue").click()
    expect(page).to_have_url(re.compile("/welcome$"))
    page.get_by_label("Postal address").fill("4 Mill Lane, Leeds LS1 4DT")
    page.get_by_role("button", name="Save and continue").click()
    for screen in ("mail", "domain", "brand"):
        expect(page).to_have_url(re.compile(f"/welcome/{screen}$"))
        page.get_by_role("link", name="Skip for now").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Ana")
    expect(page.get_by_text("2 of 4 steps done")).to_be_visible()


def test_the_set_up_link_works_once(page: Page, first_run: Server) -> None:
    """A used or changed set-up link returns 404."""
    link = first_run.setup_link
    assert page.request.get(link).status == 404
    assert page.request.get(link[:-4] + "0000").status == 404
    assert page.request.get(f"{first_run.url}/setup/x").status == 404


def test_adding_contacts_to_a_new_list(page: Page) -> None:
    """The first list is created with the first contact, and two more are added to it."""
    expect(page.get_by_role("link", name="Import", exact=True)).to_have_attribute("href", "/contacts/imports/new")
    page.get_by_role("link", name="Add contact").click()
    for name, address in PEOPLE:
        if name == "Mara":
            page.get_by_label("Email", exact=True).fill("mara@example")
            page.get_by_label("Name of your first list").fill("Newsletter")
            expect(page.locator("#f-email-err")).to_have_text("Enter an email address like name@example.com.")
        else:
            page.goto("/contacts/new?list=1")
        page.get_by_label("First name").fill(name)
        page.get_by_label("Email", exact=True).fill(address)
        page.get_by_label("This contact agreed to receive emails").check()
        page.get_by_label("Proof of consent to emails").fill("Signed at the market")
        page.get_by_label("Email", exact=True).press("Tab")
        expect(page.locator(".err")).to_have_count(0)
        page.get_by_role("button", name="Add contact").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page.locator("#consent").get_by_text("Subscribed", exact=True)).to_be_visible()
    page.goto("/lists/1")
    expect(page.locator(".lead")).to_have_text("3 contacts · 3 can receive email")


def test_search_while_typing(page: Page) -> None:
    """The table is filtered while typing, the field keeps its focus, and the URL has the search."""
    page.goto("/contacts")
    page.get_by_label("Search contacts").press_sequentially("jon", delay=40)
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody a.name")).to_have_text("Jonas")
    expect(page).to_have_url(re.compile(r"/contacts\?search=jon$"))
    expect(page.get_by_label("Search contacts")).to_be_focused()
    page.get_by_label("Search contacts").fill("nobody like this")
    expect(page.get_by_text("No results for “nobody like this”")).to_be_visible()


def test_composing_and_sending(page: Page) -> None:
    """Each card saves itself, and the send button names the number of recipients."""
    page.goto("/campaigns")
    page.get_by_role("link", name="New email").first.click()
    page.get_by_label("Name").fill("October newsletter")
    page.get_by_role("button", name="Create campaign").click()
    page.get_by_role("checkbox", name="Newsletter").check()
    expect(page.locator(".sums .total")).to_have_text("=3 contacts")
    page.locator("#card-from summary").click()
    page.get_by_label("Subject").fill("Three things for {{ first_name }}")
    expect(page.locator("#side .mailrow")).to_contain_text("Three things for")
    page.locator("#card-content > summary").click()
    expect(page.get_by_label("Email HTML")).not_to_be_visible()
    page.get_by_text("Paste HTML or plain text").click()
    page.get_by_label("Email HTML").fill("<h1>Hello {{ first_name }}</h1><p style='color:#0f617d'>News.</p>")
    expect(page.frame_locator("#card-content iframe").locator("h1")).to_have_text("Hello Mara")
    page.get_by_role("link", name="Review and send").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Send to 3 contacts?")
    expect(dialog).to_contain_text("Mara, Jonas, Ines")
    dialog.get_by_role("button", name="Send to 3 contacts").click()
    expect(page.get_by_text("Sending to 3 contacts starts in")).to_be_visible()


def test_undoing_the_send(page: Page) -> None:
    """During the hold a send is undone: the campaign is a draft, and no message exists."""
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Draft", exact=True)).to_be_visible()
    page.goto("/inbox")
    expect(page.get_by_text("No messages yet")).to_be_visible()


def test_following_a_send(page: Page, clock: TestClock) -> None:
    """The report updates itself until the campaign is completed, and then stops polling."""
    page.goto("/campaigns/1/send")
    page.get_by_role("button", name="Send to 3 contacts").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    clock.advance(20)  # the time in which a send can be undone
    expect(page.get_by_text("Sent to 3 contacts")).to_be_visible(timeout=60_000)
    expect(page.locator("#report .pill", has_text="Sent")).to_be_visible()
    expect(page.locator("#live dl", has_text="Sent").locator("dd")).to_have_text("3 100%")
    expect(page.get_by_text("No results yet")).to_have_count(0, timeout=3_000)  # before the next poll
    expect(page.get_by_role("link", name="View in test inbox")).to_be_visible()
    requested_urls: list[str] = []
    page.on("request", lambda request: requested_urls.append(request.url))
    page.wait_for_timeout(1500)
    assert requested_urls == []


def test_personalised_messages_in_the_inbox(page: Page) -> None:
    """Each message is shown in a frame without scripts, with its headers, source and text."""
    page.goto("/inbox")
    rows = page.locator("#rows li a")
    expect(rows).to_have_count(3)
    seen = set()
    for index in range(3):
        rows.nth(index).click()
        expect(rows.nth(index)).to_have_attribute("aria-current", "true")
        address = rows.nth(index).locator("b").inner_text()
        name = next(name for name, email in PEOPLE if email == address)
        expect(page.get_by_role("heading", name=f"Three things for {name}")).to_be_visible()
        frame = page.frame_locator("#mail iframe")
        expect(frame.locator("h1")).to_have_text(f"Hello {name}")
        assert frame.locator("p").first.evaluate("e => getComputedStyle(e).color") == "rgb(15, 97, 125)"
        seen.add(name)
    assert seen == {name for name, _ in PEOPLE}
    page.get_by_role("link", name="Headers").click()
    expect(page.get_by_role("rowheader", name="List-Unsubscribe-Post")).to_be_visible()
    page.get_by_role("link", name="Source").click()
    expect(page.locator("#mail pre")).to_contain_text("Message-ID:")
    page.get_by_role("link", name="Plain text").click()
    expect(page.locator("#mail pre")).to_contain_text("Unsubscribe: http")


def test_home_and_activity_after_the_send(page: Page) -> None:
    """The start page shows the campaign instead of the checklist, and the activity lists its events."""
    page.goto("/")
    expect(page.get_by_role("heading", name="Getting started")).to_have_count(0)
    expect(page.locator("section", has=page.get_by_role("heading", name="Latest campaigns"))).to_contain_text(
        "October newsletter"
    )
    page.goto("/activity")
    page.get_by_label("Event type").select_option("email_sent")
    expect(page.locator("#rows [role=status]")).to_have_text("3 events")
    expect(page.locator("#rows")).to_contain_text("Mara")


def test_signing_out_and_in(page: Page) -> None:
    """Signing out ends the session; after a wrong and the right password the requested page opens."""
    page.get_by_role("button", name=re.compile("Ana Lind")).click()
    page.get_by_role("button", name="Sign out").first.click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    page.goto("/contacts/2")
    expect(page).to_have_url(re.compile(r"/login\?next=/contacts/2$"))
    page.get_by_label("Email", exact=True).fill("ana@example.com")
    page.get_by_label("Password").fill("not this one, no")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("The email address or the password is wrong")
    expect(page.get_by_label("Email", exact=True)).to_have_value("ana@example.com")
    page.get_by_label("Password").fill("a few words in a row")
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(r"/contacts/2$"))
