"""The set-up in the browser, from the printed link to the brand."""

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import FreshServer
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, save_screenshot
from tests.kit.client import Client
from tests.kit.pictures import encode_image, photo

WORDS = "correct horse battery"


def check_screen(page: Page, name: str) -> None:
    """Check the screen against WCAG, and take a screenshot."""
    assert find_violations_in_light_and_dark(page) == [], name
    save_screenshot(page, f"first-{name}")


def check_home(page: Page) -> None:
    """Check that Home greets the new user, and that its first steps are as wide as the page."""
    expect(page.get_by_role("heading", level=1)).to_contain_text("Ana")
    # Every step can be taken, not only the next one
    steps = page.get_by_role("region", name="Getting started")
    expect(steps.get_by_role("link", name="Import", exact=True)).to_be_visible()
    expect(steps.get_by_role("link", name="New email")).to_be_visible()
    widths = page.locator(".home, .home > :nth-child(2)").evaluate_all("all => all.map(one => one.offsetWidth)")
    assert widths[0] == widths[1]


def add_domain(page: Page) -> None:
    """Add a sending domain, and go on while its DNS records are still missing."""
    expect(page.get_by_role("heading", level=1)).to_have_text("Verify your sending domain")
    expect(page.get_by_label("Domain")).to_have_value("northwind.example")
    check_screen(page, "domain")
    page.get_by_role("button", name="Add domain").click()
    records = page.get_by_role("link", name="Show DNS records")
    expect(records).to_have_attribute("href", re.compile(r"^/settings/domains/\d+$"))
    page.get_by_role("link", name="Continue").click()


def check_proposed_account_name(page: Page) -> None:
    """Check that the domain of the email address proposes a name, which the user can change, and webmail none."""
    email, team = page.get_by_label("Email"), page.get_by_label("Team or company")
    email.press_sequentially("anna@blumen-weber.de")
    email.press("Tab")
    expect(team).to_be_focused()
    expect(team).to_have_value("Blumen Weber")
    expect(team).to_have_accessible_description(re.compile("Suggested from your domain"))
    email.fill("anna.weber@gmail.com")
    email.blur()
    expect(team).to_have_value("")
    team.fill("Northwind Traders")
    email.fill("ana@northwind.example")
    with page.expect_response("**/account-name"):
        email.blur()
    expect(team).to_have_value("Northwind Traders")
    team.fill("")
    email.fill("ana@mail.northwind.example")
    email.blur()
    expect(team).to_have_value("Northwind")
    email.fill("ana@northwind.example")
    email.blur()


def upload_logo(page: Page, file: Path) -> None:
    """Choose a logo, which uploads it at once, undo that, and choose it again."""
    file.write_bytes(encode_image(photo(), "PNG"))
    page.get_by_label("Image file").set_input_files(file)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("The logo is as before.")).to_be_visible()
    expect(page.get_by_role("img", name="Your logo")).to_have_count(0)
    page.get_by_label("Image file").set_input_files(file)
    expect(page.get_by_role("img", name="Your logo")).to_be_visible()


def test_the_set_up_screens(
    browser: Browser, fresh_server: FreshServer, browser_problems: Problems, tmp_path: Path
) -> None:
    """Five screens are each saved; the logo proposes colours, and the sample email shows unsaved ones."""
    server = fresh_server(set_up=False, address=False)
    page = new_page(browser, server.url, browser_problems)
    page.goto(server.setup_link)
    check_screen(page, "you")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_contain_text("4 fields need attention")
    expect(page.get_by_role("alert")).to_contain_text("Password: use at least 10 characters.")
    page.get_by_label("Your name").fill("Ana")
    check_proposed_account_name(page)
    page.get_by_label("Password").press_sequentially(WORDS[:4])
    expect(page.locator("progress.is-paused")).to_be_visible()
    page.get_by_label("Password").fill(WORDS)
    expect(page.locator("progress.is-paused")).to_have_count(0)
    page.context.new_cdp_session(page).send("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Berlin"})
    page.get_by_role("button", name="Continue").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Sender details")
    expect(page.get_by_role("button", name="Time zone: (UTC+0")).to_contain_text("Berlin, Vienna, Zurich")
    check_screen(page, "sender")
    page.get_by_label("Postal address", exact=True).fill("4 Mill Lane, Leeds")
    page.get_by_role("button", name="Save and continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Set up email sending")
    check_screen(page, "mail")
    page.get_by_role("button", name="Save and continue").click()
    add_domain(page)

    expect(page.get_by_role("heading", level=1)).to_have_text("Brand")
    expect(page.locator("#f-bg-color-well")).to_have_value("#f4f4f1")
    upload_logo(page, tmp_path / "logo.png")
    proposed = page.get_by_role("link", name=re.compile("^#[0-9a-f]{6}$")).first
    colour = proposed.inner_text().strip()
    proposed.click()
    page.wait_for_url("**/brand?brand_color=*")  # waits for the scripts of the page
    expect(page.locator("#f-brand-color")).to_have_value(colour)
    page.locator("#f-bg-color").fill("#eeeeee")
    sample_email = page.frame_locator("iframe[title='Sample email in your brand']")
    expect(sample_email.locator("[bgcolor='#eeeeee'], [style*='#eeeeee']").first).to_be_attached()
    check_screen(page, "brand")
    page.get_by_role("button", name="Finish set-up").click()
    toast = page.locator(".toast")
    expect(toast).to_contain_text("Set-up is complete. Send yourself a first email.")
    expect(toast.get_by_role("link", name="New email")).to_have_attribute("href", "/campaigns/new")
    check_home(page)
    kept = server.client(server.new_key()).get("/brand").expect(200)
    assert (kept["brand_color"], kept["bg_color"], kept["physical_address"]) == (
        colour,
        "#eeeeee",
        "4 Mill Lane, Leeds",
    )
    check_unsaved_colours(page, tmp_path / "logo.png")
    page.context.close()
    assert not browser_problems.found


def check_unsaved_colours(page: Page, file: Path) -> None:
    """Check that a logo is not uploaded at once if the page has changes that the upload would lose."""
    page.goto("/brand")
    page.locator("#f-text-color").fill("#333333")
    page.get_by_label("New logo").set_input_files(file)
    expect(page.get_by_role("button", name="Upload logo")).to_be_visible()
    expect(page.locator("#f-text-color")).to_have_value("#333333")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved. Emails that are not sent yet use the new brand.")).to_be_visible()


@pytest.mark.full
def test_choosing_the_language_of_the_set_up(
    browser: Browser, fresh_server: FreshServer, browser_problems: Problems
) -> None:
    """A language of the set-up page is that of its errors, of all pages after it, and of the account."""
    server = fresh_server(set_up=False, address=False)
    page = new_page(browser, server.url, browser_problems)
    page.goto(server.setup_link)
    page.get_by_role("navigation", name="Language").get_by_role("link", name="Deutsch").click()
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.get_by_role("link", name="Deutsch")).to_have_attribute("aria-current", "true")
    page.get_by_role("button", name="Weiter").click()
    expect(page.get_by_role("alert")).to_contain_text("4 Felder prüfen")
    expect(page.get_by_role("alert")).to_contain_text("Passwort: ")
    expect(page.get_by_role("alert")).to_contain_text("10 Zeichen")
    page.get_by_label("Ihr Name").fill("Jana")
    page.get_by_label("Team oder Unternehmen").fill("Bäckerei")
    page.get_by_label("E\u2011Mail").fill("jana@example.org")
    page.get_by_label("Passwort").fill(WORDS)
    page.get_by_role("button", name="Weiter").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Angaben zum Absender")
    assert server.client(server.new_key()).get("/account").expect(200)["locale"] == "de"
    page.context.close()
    assert not browser_problems.found


def test_the_language_of_a_new_account(fresh_server: FreshServer) -> None:
    """Recipients get the language of the browser that the account was set up with, until it is changed."""
    server = fresh_server(set_up=False, address=False)
    form = {"name": "Jana", "account_name": "Bäckerei", "email": "jana@example.org", "password": WORDS}
    headers = {
        "Accept-Language": "de-DE,en;q=0.5",
        "Sec-Fetch-Site": "same-origin",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    path = server.setup_link.removeprefix(server.url)
    client = Client(server.url, validate=False)
    assert client.request("POST", path, urlencode(form).encode(), headers).status == 303
    assert server.client(server.new_key()).get("/account").expect(200)["locale"] == "de"
