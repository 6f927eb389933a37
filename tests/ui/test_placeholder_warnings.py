"""Emails with placeholders are not called ready: sending them needs a confirmation."""

from typing import Any

from playwright.sync_api import Page, expect

from appliance.content.designs.theme import Look
from appliance.content.templates import starters
from tests.kit import axe
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer
from tests.ui.composer_world import clock, draft, page, recipients_of, server, smtp

__all__ = ["clock", "page", "server", "smtp"]


def draft_from_starter(api: Client, key: str, name: str) -> int:
    """Create a draft to the newsletter with the content of a starter, and return its id."""
    starter_design = next(
        starter_design for starter_design in starters.build_starters(Look()) if starter_design.key == key
    )
    campaign_id = draft(api, name)
    content: dict[str, Any] = {
        "body": None,
        "design": starter_design.design,
        "subject": name,
        "preheader": starter_design.preheader,
    }
    api.patch(f"/campaigns/{campaign_id}", {"template_attributes": content}).expect(200)
    return campaign_id


def test_sending_placeholders_needs_a_confirmation(page: Page, api: Client, smtp: SmtpServer) -> None:
    """The composer counts placeholders and links to their sections; sending requires a checkbox."""
    campaign_id = draft_from_starter(api, "letter", "Unfinished letter")
    page.goto(f"/campaigns/{campaign_id}")
    side = page.locator("#side")
    expect(side).to_contain_text("3 unfinished")
    expect(side).not_to_contain_text("ready to send")
    for card in ("from", "content"):
        expect(page.locator(f"#card-{card} .mark-ok")).to_have_count(0)
    expect(side.get_by_role("link", name="“It is easier said in a letter")).to_be_visible()
    page.get_by_role("link", name="Review and send").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Not finished yet")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    dialog.get_by_role("button", name="Send to 8 people").click()
    expect(dialog.locator("#f-unfinished-err")).to_have_text("Confirm that you want to send it as it is.")
    assert api.get(f"/campaigns/{campaign_id}").json["phase"] == "draft"
    dialog.get_by_label("Send it with 3 things unfinished").check()
    dialog.get_by_role("button", name="Send to 8 people").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    page.locator("#side").get_by_role("link", name="“Your name").click()
    expect(page.locator("#inspector")).to_contain_text("Text")
    assert recipients_of(smtp, "Unfinished letter") == []


def test_a_finished_email_is_ready(page: Page, api: Client) -> None:
    """An email without placeholders is called ready, and sending has no checkbox."""
    campaign_id = draft(api, "Finished letter", preheader="Ours")
    page.goto(f"/campaigns/{campaign_id}")
    expect(page.locator("#side")).to_contain_text("ready to send")
    page.get_by_role("link", name="Review and send").click()
    expect(page.get_by_role("dialog")).to_contain_text("Send to 8 people?")
    expect(page.locator("#f-unfinished")).to_have_count(0)


def test_a_test_send_names_placeholders(page: Page, api: Client) -> None:
    """The test is sent, and the toast names the placeholders."""
    campaign_id = draft_from_starter(api, "letter", "Tested letter")
    page.goto(f"/campaigns/{campaign_id}/test")
    page.get_by_label("To", exact=True).fill("me@example.org")
    page.get_by_role("button", name="Send test").click()
    expect(page.locator(".toast")).to_contain_text("is still placeholder text. And 2 more things to finish.")


def test_activating_a_flow_with_placeholders(page: Page, api: Client) -> None:
    """Starting a flow with placeholders requires a checkbox; one without does not."""
    email = starters.build_flow_emails("https://bakery.example")["birthday"]
    request = {"name": "Unfinished flow", "trigger": {"event": "order_paid"}, "steps": [email]}
    flow_id = api.post("/flows", request).expect(201)["id"]
    page.goto(f"/flows/{flow_id}")
    page.get_by_role("button", name="Start…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("“A little something for you.” in the preview text is still placeholder text.")
    dialog.get_by_role("button", name="Start the flow").click()
    expect(page.locator("#f-unfinished-err")).to_have_text("Confirm that you want to send it as it is.")
    assert api.get(f"/flows/{flow_id}").json["status"] == "draft"
    page.get_by_label("Go live with 2 things unfinished").check()
    page.get_by_role("button", name="Start the flow").click()
    expect(page.locator("#state")).to_contain_text("Live")
    content = {"subject": "Ours", "preheader": "Ours", "body": "<p>Ours</p>"}
    other_id = api.post("/flows", request | {"name": "Finished flow", "steps": [content]}).expect(201)["id"]
    page.goto(f"/flows/{other_id}")
    page.get_by_role("button", name="Start…").click()
    page.get_by_role("button", name="Start the flow").click()
    expect(page.locator("#state")).to_contain_text("Live")
