"""The pages of sign-up forms, for users and for visitors."""

import io
import re
from html import unescape

import pytest
import segno
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, choose_option, new_page, save_screenshot
from tests.kit.forms import create_form, find_contact, get_link, wait_for_system_emails
from tests.kit.sampling import full_only
from tests.kit.server import EMAIL, Server
from ui.widgets.charts import BORDER


def test_creating_and_submitting_a_form(server: Server, browser_page: Page) -> None:
    """A form is created after its errors are fixed, submitted by a visitor, and confirmed."""
    page = browser_page
    server.client().post("/lists", {"name": "Letter"}).expect(201)
    page.goto("/forms")
    page.get_by_role("link", name="Create form").first.click()
    page.get_by_role("button", name="Create form").click()
    expect(page.get_by_text("Enter a title")).to_be_visible()
    page.get_by_label("Title", exact=True).fill("Weekly letter")
    choose_option(page, "Form language", "English")
    page.get_by_role("button", name="Add field").click()
    page.get_by_role("button", name="Short text").click()
    page.locator("#field-3").get_by_label("Label").fill("City")
    page.get_by_label("Consent text").fill("A letter every week")
    page.get_by_label("Allowed origins").fill("shop.example")
    page.get_by_role("checkbox", name="Letter").first.check()
    page.get_by_role("button", name="Create form").click()
    expect(page.get_by_text("without a path")).to_be_visible()
    page.get_by_label("Allowed origins").fill("https://shop.example")
    page.get_by_role("button", name="Create form").click()
    expect(page.get_by_role("heading", name="Weekly letter")).to_be_visible()
    save_screenshot(page, "forms-show")
    (form,) = server.client().get("/forms").expect(200)
    assert form["language"] == "en"
    assert [field["name"] for field in form["fields"]] == ["email", "first_name", "data.city"]
    assert form["origins"] == ["https://shop.example"]

    page.goto(f"/f/{form['public_key']}")
    expect(page.get_by_text("A letter every week")).to_be_visible()
    page.get_by_label("Email address").fill("nobody")
    page.wait_for_timeout(800)
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_text("Please enter an email address")).to_be_visible()
    page.get_by_label("Email address").fill("reader@example.org")
    page.get_by_label("City").fill("Bath")
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("heading", name="Almost done")).to_be_visible()
    page.goto(get_link(wait_for_system_emails(server, "reader@example.org")[0]))
    page.get_by_role("button", name="Yes, subscribe me").click()
    expect(page.get_by_role("heading", name="Thank you, you are subscribed")).to_be_visible()
    new_contact = find_contact(server, "reader@example.org")
    assert new_contact is not None and new_contact["data"] == {"city": "Bath"}
    page.goto("/forms")
    assert re.findall(r"\d+", page.locator("tbody tr").inner_text())[:2] == ["1", "1"]


def test_a_very_fast_submission_is_asked_again(server: Server, anonymous_page: Page) -> None:
    """A submission faster than reading keeps its values and needs one more press."""
    form = create_form(server, "Quick")
    anonymous_page.goto(f"/f/{form['public_key']}")
    anonymous_page.evaluate("document.querySelector('[name=email]').value = 'quick@example.org'")
    # As fast as a program, on however slow a machine
    anonymous_page.evaluate("document.querySelector('form').submit()")
    repeated_request = anonymous_page.get_by_text("press the button once more")
    confirmation_sent = anonymous_page.get_by_role("heading", name="Almost done")
    expect(repeated_request.or_(confirmation_sent)).to_be_visible()
    if repeated_request.is_visible():
        expect(anonymous_page.get_by_label("Email address")).to_have_value("quick@example.org")
        anonymous_page.wait_for_timeout(800)
        anonymous_page.get_by_role("button", name="Sign up").click()
    expect(confirmation_sent).to_be_visible()


@pytest.mark.full
def test_the_html_snippet_of_a_form(server: Server, browser: Browser, browser_problems: Problems) -> None:
    """The snippet, pasted into another page without a script, signs visitors up."""
    form = create_form(server, "Elsewhere", fields=["email", "data.city"], consent_text="<b>Yes</b> & thanks")
    shown = Visitor(server, EMAIL).send("GET", f"/forms/{form['id']}?look=plain").text
    html = unescape(shown.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0])
    assert "<b>" not in html and "script" not in html
    page = new_page(browser, server.url, browser_problems)
    page.set_content(f"<h1>Shop</h1>{html}")
    page.get_by_label("Email address").fill("shopper@example.org")
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("heading", name="Almost done")).to_be_visible()
    page.context.close()
    assert len(wait_for_system_emails(server, "shopper@example.org")) == 1 and not browser_problems.found


@pytest.mark.parametrize("width", [390, full_only(1280)])
def test_forms_fit_the_screen(width: int, server: Server, browser: Browser, browser_problems: Problems) -> None:
    """A form with very long names does not scroll sideways on phone and desktop."""
    form = create_form(server, "W" * 60 + str(width), consent_text="x" * 300, fields=["email", "data." + "y" * 60])
    page = new_page(browser, server.url, browser_problems, width=width, dark=True)
    page.goto(f"/f/{form['public_key']}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()
    assert not browser_problems.found


def test_erasing_a_contact_on_request(server: Server, browser_page: Page) -> None:
    """The page of a contact has an erase button only if an erasure was requested that no email can confirm."""
    api = server.client()
    contact_id = api.post("/contacts", {"email": "forget@example.org", "first_name": "Zoe"}).expect(201)["id"]
    message = {"to": "forget@example.org", "subject": "s", "body": "<a href='{{ preferences_url }}'>p</a>"}
    message_id = api.post("/messages", message).expect(201)["id"]
    match = re.search(r"/p/[\w-]+", api.get(f"/messages/{message_id}").expect(200)["html"])
    assert match is not None
    browser_page.goto(f"/contacts/{contact_id}")
    expect(browser_page.get_by_role("button", name="Delete now")).to_have_count(0)
    api.post("/suppressions", {"address": "forget@example.org", "reason": "hard_bounce"}).expect(201)
    browser_page.goto(match[0])
    browser_page.get_by_role("button", name="Delete my data").click()
    expect(browser_page.get_by_role("heading", name="Your request is noted")).to_be_visible()
    browser_page.goto(f"/contacts/{contact_id}")
    browser_page.get_by_role("button", name="Delete now").click()
    browser_page.get_by_role("button", name="Delete permanently", exact=True).click()
    expect(browser_page.get_by_text("“Zoe” was permanently deleted.")).to_be_visible()
    assert find_contact(server, "forget@example.org") is None


def test_the_qr_code_of_a_form(server: Server, browser_page: Page) -> None:
    """The QR code contains the exact URL, on the page and in the SVG and PNG files."""
    form = create_form(server, "Poster")
    url, page = form["url"], browser_page
    page.goto(f"/forms/{form['id']}")
    expected_modules = [[bool(module) for module in row] for row in segno.make_qr(url, error="q").matrix]
    image = page.get_by_role("img", name=f"QR code of {url}")
    expect(image).to_be_visible()
    assert svg_modules(image.locator("path").get_attribute("d") or "", len(expected_modules)) == expected_modules
    assert find_violations_in_light_and_dark(page) == []
    expect(page.get_by_text("Don’t print it yet")).to_be_visible()  # its URL is local
    for label, signature in (("Download SVG", b"<?xml"), ("Download PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.get_by_role("link", name=label).click()
        source = download.value.path().read_bytes()
        assert source.startswith(signature) and download.value.suggested_filename.startswith("form-")
        if signature != b"<?xml":
            assert png_modules(source, len(expected_modules)) == expected_modules


def svg_modules(path: str, side: int) -> list[list[bool]]:
    """Return the modules that an SVG path draws."""
    dark = {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", path)}
    return [[(x, y) in dark for x in range(side)] for y in range(side)]


def png_modules(png: bytes, side: int) -> list[list[bool]]:
    """Return the modules of a PNG, read at the centre of each, and check its white border."""
    picture = Image.open(io.BytesIO(png)).convert("L")
    scale = picture.width // (side + 2 * BORDER)
    assert picture.width == picture.height == scale * (side + 2 * BORDER)
    centers = [scale * (BORDER + number) + scale // 2 for number in range(side)]
    border_pixels = {picture.getpixel((x, y)) for x in range(picture.width) for y in (0, scale * BORDER - 1)}
    assert border_pixels == {255}
    return [[picture.getpixel((x, y)) == 0 for x in centers] for y in centers]
