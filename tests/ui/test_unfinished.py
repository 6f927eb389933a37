"""An email that still holds placeholders is not called ready: whoever sends it all the same confirms that."""

from typing import Any

from playwright.sync_api import Page, expect

from appliance.content.designs.theme import Look
from appliance.content.templates import starters
from tests.kit import axe
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer
from tests.ui.composer_world import clock, draft, page, recipients_of, server, smtp

__all__ = ["clock", "page", "server", "smtp"]


def starter(api: Client, key: str, name: str) -> int:
    """Make a draft to the newsletter that says what a starter says."""
    one = next(one for one in starters.build_starters(Look()) if one.key == key)
    number = draft(api, name)
    content: dict[str, Any] = {"body": None, "design": one.design, "subject": name, "preheader": one.preheader}
    api.patch(f"/campaigns/{number}", {"template_attributes": content}).expect(200)
    return number


def test_a_starter_as_it_came_has_to_be_confirmed(page: Page, api: Client, smtp: SmtpServer) -> None:
    """The composer counts what is unfinished, each line leads to its section, and a send asks for a tick first."""
    number = starter(api, "letter", "Unfinished letter")
    page.goto(f"/campaigns/{number}")
    side = page.locator("#side")
    expect(side).to_contain_text("3 unfinished")
    expect(side).not_to_contain_text("ready to send")
    for card in ("from", "content"):
        expect(page.locator(f"#card-{card} .mark-ok")).to_have_count(0)
    expect(side.get_by_role("link", name="“It is easier said in a letter")).to_be_visible()
    page.get_by_role("link", name="Review and send").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Not finished yet")).to_be_visible()
    assert axe.faults_in_both_looks(page) == []
    dialog.get_by_role("button", name="Send to 8 people").click()
    expect(dialog.locator("#f-unfinished-err")).to_have_text("Confirm that you want to send it as it is.")
    assert api.get(f"/campaigns/{number}").json["phase"] == "draft"
    dialog.get_by_label("Send it with 3 things unfinished").check()
    dialog.get_by_role("button", name="Send to 8 people").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    page.locator("#side").get_by_role("link", name="“Your name").click()
    expect(page.locator("#inspector")).to_contain_text("Text")
    assert recipients_of(smtp, "Unfinished letter") == []


def test_what_is_finished_is_ready(page: Page, api: Client) -> None:
    """A message of one's own is called ready, and is sent without a further question."""
    number = draft(api, "Finished letter", preheader="Ours")
    page.goto(f"/campaigns/{number}")
    expect(page.locator("#side")).to_contain_text("ready to send")
    page.get_by_role("link", name="Review and send").click()
    expect(page.get_by_role("dialog")).to_contain_text("Send to 8 people?")
    expect(page.locator("#f-unfinished")).to_have_count(0)


def test_a_test_says_what_is_unfinished(page: Page, api: Client) -> None:
    """The test goes out, and the toast names what it still holds."""
    number = starter(api, "letter", "Tested letter")
    page.goto(f"/campaigns/{number}/test")
    page.get_by_label("To", exact=True).fill("me@example.org")
    page.get_by_role("button", name="Send test").click()
    expect(page.locator(".toast")).to_contain_text("is still placeholder text. And 2 more things to finish.")


def test_a_flow_asks_before_its_placeholders_go_live(page: Page, api: Client) -> None:
    """Starting and publishing a flow with placeholders wants a tick; one with words of its own does not."""
    email = starters.build_flow_emails("https://bakery.example")["birthday"]
    asked = {"name": "Unfinished flow", "trigger": {"event": "order_paid"}, "steps": [email]}
    number = api.post("/flows", asked).expect(201)["id"]
    page.goto(f"/flows/{number}")
    page.get_by_role("button", name="Start…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("“A little something for you.” in the preview text is still placeholder text.")
    dialog.get_by_role("button", name="Start the flow").click()
    expect(page.locator("#f-unfinished-err")).to_have_text("Confirm that you want to send it as it is.")
    assert api.get(f"/flows/{number}").json["status"] == "draft"
    page.get_by_label("Go live with 2 things unfinished").check()
    page.get_by_role("button", name="Start the flow").click()
    expect(page.locator("#state")).to_contain_text("Live")
    own = {"subject": "Ours", "preheader": "Ours", "body": "<p>Ours</p>"}
    other = api.post("/flows", asked | {"name": "Finished flow", "steps": [own]}).expect(201)["id"]
    page.goto(f"/flows/{other}")
    page.get_by_role("button", name="Start…").click()
    page.get_by_role("button", name="Start the flow").click()
    expect(page.locator("#state")).to_contain_text("Live")
