"""Composing and sending an email in the browser: counts, undo, tests, schedules and the checklist."""

import re
import time
from types import SimpleNamespace

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout
from tests.ui.composer_world import clock, draft, page, recipients_of, server, smtp
from ui.pages.approvals import finding_sentence

__all__ = ["clock", "page", "server", "smtp"]


@pytest.mark.full
def test_the_recipient_count_is_exact(page: Page, api: Client, smtp: SmtpServer, clock: TestClock) -> None:
    """For two lists, a segment and an excluded list, the sum, the button, the ledger and the messages agree."""
    campaign_id = draft(api, "Arithmetic")
    page.goto(f"/campaigns/{campaign_id}?open=to")
    page.get_by_label("Workshop").check()
    expect(page.locator(".sums")).to_contain_text("12 in Newsletter, Workshop")
    page.get_by_label("Narrow by segment").select_option("With a name")
    expect(page.locator(".sums")).to_contain_text("11 in")
    page.get_by_label("Exclude").select_option("Staff")
    expect(page.locator(".out")).to_have_text("Exclude Staff")
    arithmetic = re.compile(r"2 excluded.*suppressed \(added manually\): 1.*8 contacts")
    expect(page.locator(".sums")).to_contain_text(arithmetic)
    page.locator(".sums a", has_text="excluded").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name=re.compile("^Recipients")).click()
    expect(page.locator("tbody tr")).to_have_count(8)
    page.goto(f"/campaigns/{campaign_id}")
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Send to 8 contacts").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    assert api.get(f"/campaigns/{campaign_id}").json["stats"]["pending"] == 8
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Draft", exact=True)).to_be_visible()
    assert api.get(f"/campaigns/{campaign_id}").json["audience_count"] == 0
    clock.advance(20)
    other_id = draft(api, "After it")
    api.post(f"/campaigns/{other_id}/send").expect(200)
    smtp.wait_until(lambda: len(recipients_of(smtp, "After it")) == 8, "what was sent after it")
    assert recipients_of(smtp, "Arithmetic") == []
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Send to 8 contacts").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    clock.advance(20)
    smtp.wait_until(lambda: len(recipients_of(smtp, "Arithmetic")) == 8, "as many as the button said")
    expect(page.locator("#progress-title")).to_have_text(
        "Sent to 8 contacts. 1 skipped: suppressed (added manually)", timeout=15_000
    )
    assert len(set(recipients_of(smtp, "Arithmetic"))) == len(recipients_of(smtp, "Arithmetic")) == 8


def test_all_contacts_need_a_confirmation(page: Page, api: Client) -> None:
    """Sending to all contacts needs a confirmation, which the checklist lists."""
    campaign_id = draft(api, "For all")
    page.goto(f"/campaigns/{campaign_id}?open=to")
    page.locator("#card-to .seg").get_by_text("All contacts").click()
    expect(page.locator("#side .checklist").first).to_contain_text("Confirm that you want to send to all contacts")
    page.get_by_label("Yes, send to all contacts").check()
    expect(page.locator("#side")).not_to_contain_text("Confirm")
    expect(page.locator(".sums .total")).to_have_text("=11 contacts")


def test_typed_text_is_saved(page: Page, api: Client) -> None:
    """Autosave loses no character and no focus; text survives a reload, and invalid values show an error."""
    campaign_id = draft(api, "Typing")
    page.goto(f"/campaigns/{campaign_id}?open=from")
    text = "Three things that we learned while baking less bread"
    subject = page.get_by_label("Subject", exact=True)
    subject.fill("")
    subject.press_sequentially(text, delay=25)
    expect(subject).to_be_focused()
    expect(subject).to_have_text(text)
    expect(page.locator("#side .mailrow")).to_contain_text(text)
    expect(page.locator("#f-subject-count")).to_contain_text(f"{len(text)} · phones show about 45")
    page.get_by_label("Preview text").fill("For {{ first_name | default: 'you' }}, and more")
    expect(page.locator("#side .mailrow")).to_contain_text("For ")
    page.get_by_label("From address").fill("not an address")
    expect(page.locator("#f-from-email-err")).to_contain_text("name@example.com")
    expect(page.locator("#saved")).to_contain_text("Not saved yet")
    page.reload()
    expect(page.get_by_label("Subject", exact=True)).to_have_text(text)
    expect(page.get_by_label("Preview text").locator(".merge")).to_contain_text("First name")
    page.get_by_label("Subject", exact=True).fill("Typed and gone")
    page.goto("/campaigns")
    end = time.monotonic() + extend_timeout(5)
    while api.get(f"/campaigns/{campaign_id}").expect(200)["templates"][0]["subject"] != "Typed and gone":
        assert time.monotonic() < end


def test_choosing_a_template_and_undo(page: Page, api: Client) -> None:
    """Choosing a template copies its content, and undo restores the previous content.

    The card of a campaign whose content is its own says nothing of a template; the choice says that it is a copy.
    """
    campaign_id = draft(api, "Chosen", body="<p>Mine</p>")
    page.goto(f"/campaigns/{campaign_id}?open=content")
    expect(page.get_by_role("link", name="Change template")).to_be_visible()
    expect(page.locator("#card-content")).not_to_contain_text("own copy")
    page.get_by_role("link", name="Change template").click()
    expect(page.get_by_role("dialog")).to_contain_text("The campaign gets its own copy of the template.")
    page.get_by_role("dialog").get_by_role("button", name="Newsletter").click()
    expect(page.get_by_text("Template applied.")).to_be_visible()
    expect(page.locator("#card-content summary").first).to_contain_text("sections")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_label("Email HTML")).to_have_value("<p>Mine</p>")
    page.get_by_role("link", name="Change template").click()
    page.get_by_role("dialog").get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.full
def test_pasting_html_over_a_design(page: Page, api: Client) -> None:
    """Pasted HTML replaces the design, undo restores it, and empty HTML is rejected."""
    design = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Designed"}}]}
    campaign_id = draft(api, "Pasted", body=None, design=design)
    page.goto(f"/campaigns/{campaign_id}?open=content")
    page.get_by_role("link", name="Paste HTML").click()
    box = page.get_by_role("dialog")
    box.get_by_role("button", name="Use this HTML").click()
    expect(box.get_by_label("Email HTML")).to_be_focused()
    expect(box).to_contain_text("Paste the HTML of the email.")
    assert axe.find_violations_in_light_and_dark(page) == []
    box.get_by_label("Email HTML").fill("<p>Made elsewhere</p>")
    box.get_by_role("button", name="Use this HTML").click()
    expect(page.locator(".toast")).to_contain_text("Content replaced with your HTML.")
    row = api.get(f"/campaigns/{campaign_id}").expect(200)["template"]
    assert (row["body"], row["design"]["sections"]) == ("<p>Made elsewhere</p>", [])
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("link", name="Paste HTML")).to_be_visible()
    row = api.get(f"/campaigns/{campaign_id}").expect(200)["template"]
    assert (row["body"], row["design"]["sections"][0]["id"]) == (None, "s1")


def test_sending_a_test(page: Page, api: Client, smtp: SmtpServer) -> None:
    """A test goes to the given addresses with a chosen contact's values; the addresses are remembered."""
    campaign_id = draft(api, "Tested")
    page.goto(f"/campaigns/{campaign_id}")
    expect(page.locator("#side")).to_contain_text("You have not sent a test")
    page.get_by_role("link", name="Send test email").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To", exact=True).fill("boss@bakery.example nobody")
    dialog.get_by_role("button", name="Send test email").click()
    expect(dialog).to_contain_text("Invalid email addresses: nobody. Use the format name@example.com.")
    dialog.get_by_label("To", exact=True).fill("boss@bakery.example, me@bakery.example")
    dialog.get_by_label("Search contacts").fill("ann6")
    dialog.get_by_label(re.compile("^Ann6")).check()
    dialog.get_by_role("button", name="Send test email").click()
    expect(page.get_by_text("Sending a test to boss@bakery.example and me@bakery.example.")).to_be_visible()
    smtp.wait_until(lambda: bool(smtp.to("boss@bakery.example") and smtp.to("me@bakery.example")), "both tests")
    [message] = smtp.to("boss@bakery.example")
    assert message.subject == "[Test] Tested"
    assert "Hello Ann6" in (message.html() or "")
    page.get_by_role("link", name="Send test email").click()
    expect(page.get_by_role("dialog").get_by_label("To", exact=True)).to_have_value(
        "boss@bakery.example, me@bakery.example"
    )
    expect(page.locator("#side")).not_to_contain_text("You have not sent a test")


@pytest.mark.full
def test_a_form_on_its_own_page_is_shown_once_after_an_error(page: Page, api: Client) -> None:
    """On a page of its own a form that has an error stays there; only in a dialog it is answered in the dialog."""
    campaign_id = draft(api, "Once")
    for path, field in (("test", "To"), ("html", "Email HTML")):
        page.goto(f"/campaigns/{campaign_id}/{path}")
        page.get_by_label(field, exact=True).fill("")
        page.locator(".card button.primary").click()
        expect(page.locator("[aria-invalid=true]")).to_have_count(1)
        expect(page.locator("dialog[open]")).to_have_count(0)


def test_scheduling_and_unscheduling(page: Page, api: Client) -> None:
    """A past time is rejected; a scheduled campaign can become a draft again, and undo schedules it again."""
    campaign_id = draft(api, "Later")
    page.goto(f"/campaigns/{campaign_id}?open=when")
    page.locator("#card-when .seg").get_by_text("Schedule for later").click()
    page.get_by_label("Date").fill("2020-01-01")
    expect(page.locator("#f-day-err")).to_contain_text("in the future")
    page.get_by_label("Date").fill("2098-05-04")
    page.get_by_label("Time optional").fill("07:30")
    expect(page.locator("#card-when .sumline")).to_contain_text("4 May 2098, 07:30")
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Schedule for 8 contacts").click()
    expect(page.get_by_role("heading", name="Scheduled for 4 May 2098, 07:30")).to_be_visible()
    page.get_by_role("button", name="Unschedule").click()
    expect(page.get_by_text("The campaign is a draft again")).to_be_visible()
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name="Scheduled for 4 May 2098, 07:30")).to_be_visible()


@pytest.mark.full
def test_changing_the_time_of_a_scheduled_campaign(page: Page, api: Client, clock: TestClock) -> None:
    """A scheduled campaign gets another time in a dialog, or is sent now after the review; it never is a draft."""
    campaign_id = draft(api, "Moved")
    api.post(f"/campaigns/{campaign_id}/send", {"scheduled_at": "2098-05-04T07:30:00Z"}).expect(200)
    page.goto(f"/campaigns/{campaign_id}")
    page.get_by_role("link", name="Reschedule").click()
    expect(page.get_by_role("dialog").get_by_label("Date")).to_have_value("2098-05-04")
    page.get_by_role("dialog").get_by_label("Date").fill("2020-01-01")
    page.get_by_role("button", name="Reschedule").click()
    expect(page.locator("#f-day-err")).to_contain_text("in the future")
    assert api.get(f"/campaigns/{campaign_id}").json["scheduled_at"].startswith("2098-05-04")
    page.get_by_role("dialog").get_by_label("Date").fill("2098-05-06")
    page.get_by_role("button", name="Reschedule").click()
    expect(page.get_by_role("heading", name="Scheduled for 6 May 2098, 07:30")).to_be_visible()
    page.get_by_role("link", name="Send now").click()
    expect(page.get_by_role("dialog").get_by_role("heading", name="Send to 8 contacts?")).to_be_visible()
    expect(page.get_by_role("dialog")).not_to_contain_text("2098")
    page.get_by_role("link", name="Cancel").click()
    assert api.get(f"/campaigns/{campaign_id}").json["phase"] == "scheduled"
    page.get_by_role("link", name="Send now").click()
    page.get_by_role("button", name="Send to 8 contacts").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    assert api.get(f"/campaigns/{campaign_id}").json["phase"] == "holding"
    clock.advance(20)
    expect(page.locator("#progress-title")).to_contain_text("Sent to 8 contacts", timeout=15_000)
    page.goto(f"/campaigns/{campaign_id}/reschedule")
    assert page.url.endswith(f"/campaigns/{campaign_id}")


@pytest.mark.full
def test_the_button_that_sends_is_in_sight(page: Page, api: Client) -> None:
    """The review dialog shows its button without scrolling on a laptop and a phone; the draft shows its checklist."""
    campaign_id = draft(api, "In sight")
    for width, height in ((1366, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"/campaigns/{campaign_id}")
        if width > 1000:
            expect(page.get_by_role("heading", name="Checklist")).to_be_in_viewport()
        page.get_by_role("link", name="Review and send").click()
        expect(page.get_by_role("dialog").locator("iframe")).to_be_attached()
        expect(page.get_by_role("button", name="Send to 8 contacts")).to_be_in_viewport(ratio=1)


@pytest.mark.full
def test_a_merge_tag_stays_where_the_caret_was(page: Page, api: Client) -> None:
    """The subject is saved while the menu of tags is open; the tag still goes after the typed space."""
    number = draft(api, "Tag after a space")
    page.goto(f"/campaigns/{number}?open=from")
    subject = page.locator("#card-from merge-field").first
    subject.locator("[contenteditable]").fill("")
    subject.locator("[contenteditable]").press_sequentially("Hallo, ")
    with page.expect_response(re.compile(f"/campaigns/{number}/from")):
        subject.locator("[data-pick]").click()
    page.wait_for_timeout(300)
    expect(page.locator("#merge-search")).to_be_focused()
    page.locator('#merge-menu [data-label="First name"]').click()
    expect(subject.locator("input")).to_have_value(re.compile(r"^Hallo, \{\{ first_name"))


@pytest.mark.full
def test_later_without_a_date_never_sends_now(page: Page, api: Client) -> None:
    """A later time is tomorrow at first; an emptied date is an error at its field, and the schedule stays."""
    number = draft(api, "Later without a date")
    page.goto(f"/campaigns/{number}?open=when")
    page.locator("#card-when .seg").get_by_text("Schedule for later").click()
    expect(page.locator("#card-when .sumline")).to_contain_text("tomorrow 09:00")
    page.locator("#f-day").fill("")
    expect(page.locator("#f-day-err")).to_contain_text("Select a date")
    page.get_by_role("link", name="Review and send").click()
    expect(page.locator("#f-day")).to_be_focused()
    page.goto(f"/campaigns/{number}/send")
    expect(page.get_by_role("button", name="Schedule for 8 contacts")).to_be_visible()


def test_the_checklist_matches_the_blockers_of_the_api(user: ScriptlessBrowser, api: Client) -> None:
    """The checklist shows exactly the blockers of a rejected send, each with a link to fix it."""
    cases = {
        "Nothing": {},
        "Broken": {"template_attributes": {"subject": "{{ first_name", "body": "<p>{% if %}</p>"}},
        "For all": {"trigger_attributes": {"data": {"audience_type": "all_contacts"}},
                    "template_attributes": {"subject": "x"}},
    }  # fmt: skip
    blocker_count = 0
    for name, fields in cases.items():
        response = api.post("/campaigns", {"name": name, **fields})
        campaign_id = response.json["id"] if response.status == 201 else draft(api, name, body="")
        blockers = api.post(f"/campaigns/{campaign_id}/send").expect(422)["blockers"]
        page = HtmlPage(user, f"/campaigns/{campaign_id}")
        needed = [line for line in page.all("#side .checklist li") if select(line, ".bad")]
        assert [text_of(line) for line in needed] == [
            finding_sentence(SimpleNamespace(**blocker)) for blocker in blockers
        ]
        assert page.has("#side", f"{len(blockers)} required")
        assert all(len(select(line, "a[href]")) == 1 for line in needed)
        review = HtmlPage(user, f"/campaigns/{campaign_id}/send")
        assert len([line for line in review.all(".dialog-body li") if select(line, ".bad")]) == len(blockers)
        blocker_count += len(blockers)
    assert blocker_count >= 5


@pytest.mark.full
def test_browsing_previews(page: Page, api: Client) -> None:
    """Previews are browsed by keys, filtered to contacts without a first name, and shown at phone width."""
    campaign_id = draft(api, "Browsed")
    page.goto(f"/campaigns/{campaign_id}/previews")
    frame = page.frame_locator("iframe.frame")
    expect(frame.locator("h1")).to_have_text("Hello Ann0")
    expect(page.get_by_text("1 of 8")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(frame.locator("h1")).to_have_text("Hello Ann2")
    page.get_by_role("link", name="Without a first name").click()
    expect(frame.locator("h1")).to_have_text("Hello friend")
    expect(page.locator(".who a")).to_have_count(1)
    page.get_by_role("link", name="Mobile").click()
    expect(page.locator("iframe.frame")).to_have_css("width", "375px")


@pytest.mark.full
def test_a_refused_send_sets_no_inline_style(page: Page, api: Client) -> None:
    """A style that a script or an extension set in the dialog is not written on the answer, which the policy blocks."""
    number = draft(api, "Styled", body="<p>Lorem ipsum dolor sit amet</p>")
    page.goto(f"/campaigns/{number}")
    page.get_by_role("link", name="Review and send").click()
    box = page.get_by_role("dialog").get_by_role("checkbox")
    box.evaluate("node => node.style.setProperty('caret-color', 'transparent')")
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Send to")).click()
    expect(box).to_have_attribute("aria-invalid", "true")
    page.wait_for_timeout(300)  # the page fails this test if its console has an error
