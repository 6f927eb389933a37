"""Results of campaigns: in the list, on Home, as a finished report, and what one does next."""

import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.api.test_reports import sent_campaign as sent_campaign
from tests.kit import axe
from tests.kit.client import Client


def test_the_list_shows_results(browser_page: Page, sent_campaign: Any, api: Client) -> None:
    """A sent campaign shows recipients, opens and clicks, a draft what is missing; rates can be sorted by."""
    page = browser_page
    api.post("/campaigns", {"name": "Nothing yet"}).expect(201)
    page.goto("/campaigns?sort=-opened")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text(sent_campaign["name"])
    report = api.get(f"/campaigns/{sent_campaign['id']}/report").expect(200)
    for name, label in (("opens", "Opens (estimated)"), ("clicks", "Clicks")):
        cell = rows.first.locator(f"td[data-l='{label}']")
        expect(cell).to_contain_text(re.compile(rf"^\d+(\.\d)?%{report[name]['people']['count']}$"))
    expect(rows.filter(has_text="Nothing yet")).to_contain_text("Next: select recipients")
    page.goto("/campaigns?sort=clicked")
    expect(rows.last).to_contain_text(sent_campaign["name"])
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name=f"More actions for {sent_campaign['name']}").click()
    menu = page.locator(".menu:popover-open")
    labels = [text.strip() for text in menu.locator("a, button").all_inner_texts()]
    assert labels == ["View report", "Duplicate", "Resend to non-openers", "Save as template", "Copy ID", "Delete"]


def test_a_report_is_saved_as_a_template(browser_page: Page, sent_campaign: Any, api: Client) -> None:
    """The content is saved under a name; the notice leads to the template, and its undo deletes it."""
    page = browser_page
    here = f"/campaigns/{sent_campaign['id']}"
    for path in (here, f"{here}/links"):
        page.goto(path)
        page.get_by_role("button", name="More actions").click()
        page.locator(".menu:popover-open").get_by_role("button", name="Save as template").click()
        page.get_by_label("Template name").fill("Best of spring")
        page.get_by_role("button", name="Save template").click()
        expect(page.locator(".toast")).to_contain_text("Saved as the template Best of spring.")
        expect(page).to_have_url(re.compile(rf"{here}$"))
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("Best of spring deleted.")
    [template] = api.get("/templates", search="Best of spring").expect(200)
    assert template["subject"] == sent_campaign["template_attributes"]["subject"]
