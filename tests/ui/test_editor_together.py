"""The editor of an email by several people, without a line, and where an email belongs to something."""

import copy
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, new_page, shoot, sign_in
from tests.kit.client import Client
from tests.kit.emails import DESIGN, at_work, design_of, expect_order, make, section, settled
from tests.kit.patience import soon
from tests.kit.server import PASSWORD, Server


@pytest.fixture
def opened(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of somebody who is signed in."""
    with at_work(browser, server) as page:
        yield page


def test_leaving_in_the_middle_of_typing_loses_nothing(opened: Page, api: Client) -> None:
    """What was typed a moment ago is sent while the page goes."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit?s=title")
    opened.get_by_label("Text", exact=True).fill("Typed and gone")
    opened.goto("/templates")
    end = time.monotonic() + soon(5)
    while section(api, one, "title")["text"] != "Typed and gone":
        assert time.monotonic() < end


def test_a_browser_that_dies_loses_next_to_nothing(opened: Page, api: Client) -> None:
    """Whoever types without a pause is kept up with: the server has nearly all of it with the last letter."""
    one = make(api)
    text = "A long sentence, typed by somebody who never pauses"
    opened.goto(f"/templates/{one}/edit?s=title")
    field = opened.get_by_label("Text", exact=True)
    field.fill("")
    field.press_sequentially(text, delay=50)
    kept = section(api, one, "title")["text"]
    assert text.startswith(kept) and len(kept) > len(text) / 2


def test_two_write_at_once(browser: Browser, server: Server, opened: Page, api: Client) -> None:
    """Different sections both win; the same field tells both values, and keeps the typed one; who is here is seen."""
    one = make(api)
    server.cli("user", "add", "--email", "bea@example.org", stdin=PASSWORD + "\n")
    problems = Problems()
    problems.allow("status of 409")
    other = sign_in(new_page(browser, server.url, problems, width=1360), "bea@example.org")
    opened.goto(f"/templates/{one}/edit?s=press")
    other.goto(f"/templates/{one}/edit?s=title")
    other.get_by_label("Text", exact=True).fill("From Bea")
    settled(other)
    opened.get_by_label("Text", exact=True).fill("From me")
    settled(opened)
    assert (section(api, one, "title")["text"], section(api, one, "press")["text"]) == ("From Bea", "From me")
    other.goto(f"/templates/{one}/edit?s=press")
    other.get_by_label("Text", exact=True).fill("Bea again")
    settled(other)
    expect(other.locator("#state")).to_contain_text("also here")
    opened.get_by_label("Text", exact=True).fill("Mine again")
    expect(opened.locator(".clash")).to_contain_text("changed this at")
    expect(opened.locator(".clash")).to_contain_text("Bea again")
    expect(opened.get_by_label("Text", exact=True)).to_have_text("Mine again")
    shoot(opened, "editor-conflict")
    assert section(api, one, "press")["text"] == "Bea again"
    opened.get_by_role("button", name="Keep mine").click()
    settled(opened)
    expect(opened.locator(".clash")).to_have_count(0)
    assert section(api, one, "press")["text"] == "Mine again"
    other.get_by_role("textbox", name="Link").fill("no link")
    expect(other.locator("#inspector .err")).to_have_count(1)
    other.get_by_label("Text", exact=True).fill("Bea once more")
    expect(other.locator(".clash")).to_contain_text("Mine again")
    other.get_by_role("button", name="Use theirs").click()
    expect(other.get_by_label("Text", exact=True)).to_have_text("Mine again")
    expect(other.get_by_role("textbox", name="Link")).to_have_value("no link")
    expect(other.locator("#inspector .err")).to_have_count(1)
    other.get_by_label("Text", exact=True).fill("Bea at last")
    settled(other)
    assert section(api, one, "press")["text"] == "Bea at last"
    other.context.close()
    assert not problems.found


def test_without_a_line_it_is_tried_again(opened: Page, api: Client) -> None:
    """Offline is said; what was typed is kept as soon as the server is there again."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit?s=title")
    opened.wait_for_load_state("networkidle")
    opened.context.set_offline(True)
    opened.get_by_label("Text", exact=True).fill("Written on a train")
    expect(opened.locator("#saved")).to_have_text("Not saved: offline, trying again")
    opened.context.set_offline(False)
    settled(opened)
    assert section(api, one, "title")["text"] == "Written on a train"


def test_a_campaign_has_a_copy_of_its_own_and_closes(opened: Page, api: Client) -> None:
    """It is edited by the same page under its own address, and only looked at once the campaign is on its way."""
    template = make(api)
    opened.goto(f"/templates/{template}/edit")
    opened.get_by_role("button", name="More").click()
    opened.get_by_role("button", name="Use in a campaign").click()
    opened.wait_for_url("**/campaigns/*")
    campaign = int(opened.url.rpartition("/")[2].partition("?")[0])
    opened.goto(f"/campaigns/{campaign}/content?s=title")
    opened.get_by_label("Text", exact=True).fill("Only here")
    settled(opened)
    mine = api.get(f"/campaigns/{campaign}").expect(200)["templates"][0]
    assert mine["design"]["sections"][0]["props"]["text"] == "Only here"
    assert section(api, template, "title")["text"] == "Hello"
    opened.goto(f"/templates/{mine['id']}/edit")
    assert opened.url.endswith(f"/campaigns/{campaign}/content")
    expect(opened.get_by_role("link", name="Done")).to_have_attribute("href", f"/campaigns/{campaign}")


def test_what_somebody_took_out_is_said(opened: Page, api: Client) -> None:
    """Writing into a section that is gone says so and shows what is there now; HTML is written as a field."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit?s=press")
    left = [each for each in DESIGN["sections"] if each["id"] != "press"]
    api.patch(f"/templates/{one}", {"design": {"sections": left}}).expect(200)
    opened.get_by_role("textbox", name="Link").fill("https://example.org/too-late")
    expect(opened.locator("#told")).to_have_text("Somebody removed that section. The history has it still.")
    expect_order(opened, "title", "odd", "words", "foot")
    asked = {"name": "By hand", "template_attributes": {"subject": "S", "body": "<p>Before</p>"}}
    campaign = api.post("/campaigns", asked).expect(201)["id"]
    opened.goto(f"/campaigns/{campaign}/content")
    expect(opened.get_by_role("tab")).to_have_count(0)
    opened.get_by_label("HTML").fill("<p>After</p>")
    settled(opened)
    expect(opened.frame_locator("#canvas").get_by_text("After")).to_be_visible()
    assert api.get(f"/campaigns/{campaign}").expect(200)["templates"][0]["body"] == "<p>After</p>"


def test_a_section_for_some_people_only(opened: Page, api: Client) -> None:
    """Rules are written in rows, told as a sentence, and taken away again."""
    design = copy.deepcopy(DESIGN)
    rule = {"name": "contact_first_name", "predicate": "eq", "value": "Bea"}
    design["sections"][3]["props"]["show_if"] = [rule]
    one = make(api, design=design)
    opened.goto(f"/templates/{one}/edit?s=title")
    expect(opened.get_by_role("link", name="Choose who")).to_be_visible()
    opened.locator("#o-press").click()
    opened.get_by_role("link", name="Change the rules").click()
    opened.locator("input[name$='.value']").fill("Ana")
    opened.get_by_role("button", name="Save").click()
    expect(opened.locator("#inspector")).to_contain_text("first name is “Ana”")
    assert section(api, one, "press")["show_if"] == [rule | {"value": "Ana"}]
    opened.get_by_role("button", name="Everybody").click()
    settled(opened)
    expect(opened.locator("#inspector")).to_contain_text("Everybody who gets this email.")
    assert "show_if" not in section(api, one, "press")


def test_who_may_only_look_changes_nothing(browser: Browser, server: Server, api: Client) -> None:
    """A viewer sees the email and its fields, and nothing that would be refused."""
    one = make(api, "Looked at")
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=1360), "viewer@example.org")
    page.goto(f"/templates/{one}/edit?s=press")
    expect(page.frame_locator("#canvas").get_by_text("Press")).to_be_visible()
    expect(page.locator("#inspector .banner")).to_contain_text("You may look at this email, not change it.")
    for name in ("Remove", "Undo", "Send test", "Duplicate", "Add"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    expect(page.locator("[name='props.href']")).to_be_disabled()
    page.locator("#o-title").focus()
    page.keyboard.press("Delete")
    page.keyboard.press("Control+d")
    assert design_of(api, one) == DESIGN
    page.context.close()
    assert not problems.found
