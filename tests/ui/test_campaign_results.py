"""Results of campaigns: in the list, on Home, as a finished report, and what one does next."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.api.test_reports import sent_campaign as sent_campaign
from tests.kit import axe
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser


def test_the_list_shows_results(
    browser_page: Page, user: ScriptlessBrowser, sent_campaign: Any, api: Client
) -> None:  # fmt: skip
    """A sent campaign shows recipients, opens and clicks, a draft what is missing; rates can be sorted by."""
    api.post("/campaigns", {"name": "Nothing yet"}).expect(201)
    sorted_by_clicks = HtmlPage(user, "/campaigns?sort=clicked")
    assert sent_campaign["name"] in sorted_by_clicks.texts("tbody tr")[-1]
    assert "Next: select recipients" in text_of(sorted_by_clicks.one("tbody tr", "Nothing yet"))
    report = api.get(f"/campaigns/{sent_campaign['id']}/report").expect(200)
    page = browser_page
    page.goto("/campaigns?sort=-opened")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text(sent_campaign["name"])
    for name, label in (("opens", "Opens (estimated)"), ("clicks", "Clicks")):
        cell = rows.first.locator(f"td[data-l='{label}']")
        figure = report[name]["people"]
        expect(cell).to_have_text(f"{figure['rate']:.0%}{figure['count']}")
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name=f"More actions for {sent_campaign['name']}").click()
    menu = page.locator(".menu:popover-open")
    labels = [text.strip() for text in menu.locator("a, button").all_inner_texts()]
    assert labels == ["View report", "Duplicate", "Resend to non-openers", "Save as template", "Copy ID", "Delete"]


@pytest.mark.full
def test_a_report_is_saved_as_a_template(
    browser_page: Page, user: ScriptlessBrowser, sent_campaign: Any, api: Client
) -> None:  # fmt: skip
    """The content is saved under a name; the notice leads to the template, and its undo deletes it."""
    page, base = browser_page, f"/campaigns/{sent_campaign['id']}"
    assert HtmlPage(user, base).named("button", "Save as template")
    page.goto(f"{base}/links")
    page.get_by_role("button", name="More actions").click()
    page.locator(".menu:popover-open").get_by_role("button", name="Save as template").click()
    save_as(page, "Best of spring")
    expect(page).to_have_url(re.compile(rf"{base}$"))
    [template] = api.get("/templates", search="Best of spring").expect(200)
    assert template["subject"] == api.get(f"/campaigns/{sent_campaign['id']}").json["template"]["subject"]
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("“Best of spring” deleted.")
    assert api.get("/templates", search="Best of spring").expect(200) == []


def test_home_shows_results_and_growth(browser_page: Page, sent_campaign: Any, api: Client) -> None:
    """Home shows the last campaigns with their rates, and who joined and left in a period, also as a table."""
    page = browser_page
    news = api.post("/lists", {"name": "Growing"}).expect(201)
    ids = [api.post("/contacts", {"email": f"grow{n}@example.org"}).expect(201)["id"] for n in range(3)]
    for contact_id in ids:
        api.patch(f"/contacts/{contact_id}", {"list_ids": [news["id"]]}).expect(200)
    api.patch(f"/contacts/{ids[0]}", {"subscribed_email": False}).expect(200)
    page.goto("/")
    row = page.get_by_role("region", name="Latest campaigns").locator("tbody tr").first
    expect(row).to_contain_text(sent_campaign["name"])
    expect(row.locator("td[data-l='Clicks']")).to_contain_text("%")
    growth = page.locator("#growth")
    expect(growth.get_by_role("status")).to_contain_text("Net growth: ")
    for label, periods in (("7 days", 7), ("12 months", 12), ("90 days", 13), ("30 days", 30)):
        growth.get_by_role("link", name=label).click()
        expect(growth.locator("[aria-current]")).to_have_text(label)
        growth.get_by_text("Show as table").click()
        expect(growth.locator("tbody tr")).to_have_count(periods)
        joined, left, net = (int(text) for text in growth.locator("tbody tr").last.locator(".num").all_inner_texts())
        assert joined >= 3 and left >= 1 and net == joined - left
        growth.get_by_text("Show as table").click()
    assert axe.find_violations_in_light_and_dark(page) == []


def test_home_needs_attention_while_sending_is_stopped(
    user: ScriptlessBrowser, sent_campaign: Any, api: Client
) -> None:  # fmt: skip
    """Home says that nothing needs attention once the set-up is complete, but not while sending is stopped."""
    verdict = "Nothing needs attention"
    api.put("/brand", {"company_name": "Bakery", "physical_address": ""}).expect(200)
    page = HtmlPage(user, "/")
    assert page.has("section", "Getting started") and not page.named("a", verdict)
    api.put("/brand", {"physical_address": "4 Mill Lane, Leeds"}).expect(200)
    api.patch("/account", {"email_from_email": "ana@example.com"}).expect(200)
    assert page.reload().named("a", verdict)
    api.patch("/account", {"sending_stopped": True}).expect(200)
    page = page.reload()
    assert page.has(".banner", "Sending is stopped") and not page.named("a", verdict)
    api.patch("/account", {"sending_stopped": False}).expect(200)


@pytest.mark.full
def test_resending_to_non_openers(browser_page: Page, sent_campaign: Any, api: Client) -> None:
    """The report leads to a draft for who did not open, with the segment explained and a hint at the subject."""
    page = browser_page
    page.goto(f"/campaigns/{sent_campaign['id']}")
    steps = page.get_by_role("region", name="Next steps")
    expect(steps).to_contain_text("not opened this email yet (estimated). Wait a day or two")
    expect(steps.locator(".primary")).to_have_count(0)
    page.get_by_text("How these rates are calculated").click()
    expect(page.locator("#reading")).to_contain_text("as a share of emails delivered")
    assert axe.find_violations_in_light_and_dark(page) == []
    steps.get_by_role("button", name="Resend to non-openers").click()
    expect(page.locator("#composer")).to_contain_text("This is still the subject of the first send.")
    page.locator("#card-to summary").click()
    expect(page.locator("#card-to")).to_contain_text("did not open it. Opens are estimated")
    silent = api.post("/campaigns", {"name": "Untracked", "tracking": False}).expect(201)["id"]
    origin = page.url.split("/campaigns")[0]
    answer = page.request.post(f"/campaigns/{silent}/not-opened", headers={"origin": origin})
    assert "Cannot be resent: this is not an email campaign that was sent." in answer.text()


@pytest.mark.full
def test_the_pager_jumps(browser_page: Page, api: Client) -> None:
    """A number in the field leads to that page of a table, with its filters, also on a phone."""
    page = browser_page
    for number in range(60):
        api.post("/lists", {"name": f"Paged {number:02}"}).expect(201)
    page.goto("/lists?search=Paged&sort=name&limit=25")
    field = page.get_by_label("Page", exact=True)
    expect(page.locator("#page-count")).to_have_text("of 3")
    field.fill("3")
    field.press("Enter")
    expect(page).to_have_url(re.compile(r"/lists\?.*page=3"))
    expect(page.locator(".pager")).to_contain_text("51–60 of 60")
    expect(page.locator("tbody tr").first).to_contain_text("Paged 50")
    page.set_viewport_size({"width": 320, "height": 700})
    field.fill("2")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator(".pager")).to_contain_text("26–50 of 60")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert axe.find_violations_in_light_and_dark(page) == []


def test_every_email_is_saved_as_a_template(
    browser_page: Page, user: ScriptlessBrowser, sent_campaign: Any, api: Client
) -> None:  # fmt: skip
    """A draft, its editor, the email of a flow, a message in the test inbox and the list offer it."""
    design = {"sections": [{"type": "text", "props": {"html": "<p>Hi</p>"}}, {"type": "footer", "props": {}}]}
    content = {"template_attributes": {"subject": "Draft", "design": design}}
    draft = api.post("/campaigns", {"name": "My draft", **content}).expect(201)["id"]
    flow = api.post(
        "/flows",
        {"name": "My flow", "trigger": {"event": "order_paid"}, "steps": [{"subject": "Hi", "body": "<p>Hi</p>"}]},
    ).expect(201)
    step = flow["steps"][0]["id"]
    inbox = HtmlPage(user, f"/inbox?campaign={sent_campaign['id']}")
    message = inbox.all("main a[href^='/inbox/']")[0].attrib["href"]
    for number, path in enumerate((f"/campaigns/{draft}", f"/flows/{flow['id']}/steps/{step}/content", message)):
        page = HtmlPage(user, path)
        assert page.all("button[commandfor=save-template]", "Save as template"), path
        page.fill("Template name", f"Place {number}")
        assert page.press("Save template").has(".toast", f"Saved as the template “Place {number}”."), path
    page = HtmlPage(user, "/campaigns?search=My+draft").press("Save as template")
    assert page.has(".toast", "Saved as the template “My draft”.")
    assert re.fullmatch(r"/templates/\d+/edit", page.follow("Open template").path)
    browser_page.goto(f"/campaigns/{draft}/content")
    browser_page.get_by_role("button", name="More actions", exact=True).click()
    browser_page.locator(".menu:popover-open").get_by_role("button", name="Save as template").click()
    save_as(browser_page, "Place editor")


def save_as(page: Page, name: str) -> None:
    """Fill in the dialog and check its notice."""
    page.get_by_label("Template name").fill(name)
    page.get_by_role("button", name="Save template").click()
    expect(page.locator(".toast")).to_contain_text(f"Saved as the template “{name}”.")
