"""A/B tests in the browser: building one, its preview and review, sending it, and choosing the winner."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, lent_page, reuse_session
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.scriptless_browser import ScriptlessBrowser, notice_text
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.ui.composer_world import clock, draft, recipients_of, server, smtp

__all__ = ["clock", "server", "smtp"]

DESIGN = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Fresh bread"}}]}


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; responses with 409 are expected, other errors fail the test."""
    problems = Problems()
    problems.allow("status of 409")
    with lent_page(browser, server.url, problems, width=1360) as opened:
        yield reuse_session(opened, server)
    assert not problems.found


def open_card(page: Page, campaign_id: int) -> None:
    """Open the card of the A/B test in the composer."""
    page.goto(f"/campaigns/{campaign_id}?open=experiment")
    expect(page.locator("#card-experiment")).to_have_attribute("open", "")


def get_test(api: Client, campaign_id: int) -> Any:
    """Return the stored test of a campaign, or None."""
    return api.get(f"/campaigns/{campaign_id}").expect(200)["experiment"]


def with_test(api: Client, name: str, *variants: dict[str, Any], **settings: Any) -> int:
    """Create a draft with a test of its content and other variants, and return its id."""
    campaign_id = draft(api, name)
    test = {"variants": [{}, *variants], **settings}
    api.patch(f"/campaigns/{campaign_id}", {"experiment": test}).expect(200)
    return campaign_id


def test_building_a_test(page: Page, api: Client) -> None:
    """Variants are added, written, duplicated and removed, and each change is saved by itself."""
    campaign_id = draft(api, "Bread today")
    open_card(page, campaign_id)
    card = page.locator("#card-experiment")
    card.get_by_role("button", name="Add an A/B test").click()
    expect(card.locator(".variant")).to_have_count(2)
    subject = card.get_by_label("Subject of B")
    subject.press_sequentially("Warm bread", delay=20)
    expect(page.locator("#side .inboxes li").nth(1)).to_contain_text("Warm bread")
    expect(subject).to_be_focused()
    card.get_by_label("Name of variant B").fill("Short")
    card.get_by_role("checkbox", name="Sender").check()
    card.get_by_label("From name of B").fill("Ana")
    expect(page.locator("#side .inboxes li").nth(1)).to_contain_text("Ana")
    card.get_by_role("button", name="Duplicate Short").click()
    expect(card.locator(".variant")).to_have_count(3)
    expect(card.get_by_label("Subject of C")).to_have_text("Warm bread")
    expect(card.get_by_label("Name of variant C")).to_have_value("Short 2")
    card.get_by_text("Test first, then send the winner").click()
    card.get_by_label("Share of recipients in the test").fill("50")
    expect(card).to_contain_text("in the test,")
    card.get_by_label("Winner decided by").select_option("event")
    expect(card.get_by_label("Event that counts as a conversion")).to_have_value("order_paid")
    card.get_by_label("Compare revenue").check()
    card.get_by_text("I choose", exact=True).click()
    card.get_by_label("Holdout group").check()
    card.get_by_label("Share of recipients that gets nothing").fill("10")
    expect(card.locator(".sumline")).to_contain_text("each variant needs about")
    assert axe.find_violations_in_light_and_dark(page) == []
    card.get_by_role("button", name="Remove Short 2").click()
    expect(card.locator(".variant")).to_have_count(2)
    page.reload()

    stored = get_test(api, campaign_id)
    variant = stored["variants"][1]
    assert (variant["name"], variant["subject"], variant["from_name"]) == ("Short", "Warm bread", "Ana")
    assert (stored["test_share"], stored["holdout"], stored["decided_by"]) == (0.5, 0.1, "person")
    assert (stored["metric"], stored["event"], stored["by_amount"]) == ("event", "order_paid", True)


_PLACEHOLDER_HEIGHTS = """field => [getComputedStyle(field, "::before").height, getComputedStyle(field).lineHeight]"""


def test_a_long_subject_stays_in_its_field_on_a_phone(page: Page, api: Client) -> None:
    """The subject of A, which the empty field of B shows, is cut at one line and does not run out of the field."""
    subject = "Come to our autumn workshops on three Saturdays in the old greenhouse"
    campaign_id = draft(api, "Long", subject=subject)
    api.patch(f"/campaigns/{campaign_id}", {"experiment": {"variants": [{}, {"from_name": "Ana"}]}}).expect(200)
    page.set_viewport_size({"width": 390, "height": 800})
    open_card(page, campaign_id)
    page.locator("#card-experiment").get_by_role("checkbox", name="Subject").check()
    field = page.locator("#card-experiment").get_by_label("Subject of B")
    expect(field).to_have_attribute("data-placeholder", subject)
    placeholder, line = (float(height.removesuffix("px")) for height in field.evaluate(_PLACEHOLDER_HEIGHTS))
    assert 0 < placeholder <= line


def test_undo_restores_a_removed_variant_and_a_removed_test(user: ScriptlessBrowser, api: Client) -> None:
    """Undo brings back texts and own content, also after the whole test was removed."""
    campaign_id = with_test(api, "Undone", {"subject": "B"}, {"name": "Third", "subject": "C", "body": "<p>Mine</p>"})
    page = HtmlPage(user, f"/campaigns/{campaign_id}?open=experiment").press("Remove Third")
    assert page.has(".toast", "Third removed.") and len(page.all(".variant")) == 2
    page = page.press("Undo")
    assert len(page.all(".variant")) == 3 and page.value("Email HTML of C") == "<p>Mine</p>"
    page = page.press("Remove A/B test")
    assert page.named("button", "Add an A/B test") and get_test(api, campaign_id) is None
    assert len(page.press("Undo").all(".variant")) == 3

    variants = get_test(api, campaign_id)["variants"]
    assert [(variant["subject"], variant["has_own_content"]) for variant in variants] == [
        (None, False), ("B", False), ("C", True),
    ]  # fmt: skip


@pytest.mark.full
def test_own_content_is_edited_in_the_editor(page: Page, api: Client) -> None:
    """Own content starts as a copy, the editor names the variant, and the way back leads to the card."""
    campaign_id = with_test(api, "Designed", {"subject": "Other"})
    path = f"/campaigns/{campaign_id}"
    api.patch(path, {"template_attributes": {"body": None, "design": DESIGN}}).expect(200)
    open_card(page, campaign_id)
    page.locator("#card-experiment").get_by_role("checkbox", name="Content").check()
    page.get_by_role("link", name="Edit content of B").click()
    expect(page.get_by_role("heading", name="Designed, variant B")).to_be_visible()
    expect(page.frame_locator("iframe").first.get_by_text("Fresh bread")).to_be_visible()
    expect(page.locator("#inboxrow")).to_contain_text("Other")
    page.get_by_role("link", name="Done").click()
    expect(page.locator("#card-experiment")).to_have_attribute("open", "")
    assert get_test(api, campaign_id)["variants"][1]["has_own_content"]
    page.locator("#card-experiment").get_by_role("checkbox", name="Content").uncheck()
    expect(page.locator(".toast")).to_contain_text("content of A again")
    expect(page.get_by_role("link", name="Edit content of B")).to_have_count(0)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("link", name="Edit content of B")).to_be_visible()


@pytest.mark.full
def test_errors_are_at_their_fields(page: Page, api: Client) -> None:
    """An invalid text or number is not saved, and the error is at its field."""
    campaign_id = with_test(api, "Wrong", {"subject": "B"}, test_share=0.5)
    open_card(page, campaign_id)
    page.get_by_label("Share of recipients in the test").fill("140")
    expect(page.locator("#f-share-err")).to_contain_text("Enter a percentage from 1 to 100.")
    expect(page.locator("#saved")).to_contain_text("Not saved yet")
    page.get_by_role("link", name="Review and send").click()
    expect(page.get_by_label("Share of recipients in the test")).to_be_focused()
    assert not page.get_by_role("dialog").is_visible(), "the review would be of the stored share"
    page.get_by_label("Share of recipients in the test").fill("30")
    page.get_by_label("Test ends after").fill("0")
    expect(page.locator("#f-end-err")).to_be_visible()
    page.get_by_label("Test ends after").fill("2")
    page.get_by_label("Subject of B").fill("{{ open")
    expect(page.locator("[id^=f-subject-][id$=-err]")).to_be_visible()
    assert get_test(api, campaign_id)["variants"][1]["subject"] == "B"


@pytest.mark.full
def test_a_conflict_names_the_variant(page: Page, api: Client) -> None:
    """A text of a variant that a colleague changed meanwhile is asked about; what only they changed is taken over."""
    campaign_id = with_test(api, "Together", {"subject": "B"}, {"subject": "C"})
    open_card(page, campaign_id)
    first, second, third = (variant["id"] for variant in get_test(api, campaign_id)["variants"])
    theirs = [{"id": first}, {"id": second, "subject": "Theirs"}, {"id": third, "subject": "New C"}]
    api.patch(f"/campaigns/{campaign_id}", {"experiment": {"variants": theirs}}).expect(200)
    page.get_by_label("Subject of B").fill("Mine")
    expect(page.locator("#card-experiment .banner")).to_contain_text("B: Subject")
    page.get_by_role("button", name="Keep mine: B: Subject").click()
    expect(page.locator("#card-experiment .banner")).to_have_count(0)

    assert [variant["subject"] for variant in get_test(api, campaign_id)["variants"]] == [None, "Mine", "New C"]


def test_the_checklist_leads_to_the_variant(user: ScriptlessBrowser, api: Client) -> None:
    """A finding names the variant, and its link opens the card."""
    page = HtmlPage(user, f"/campaigns/{with_test(api, 'Alike', {})}")
    [finding, *_] = page.all("#checklist a[href]", "Variant B")
    assert "open" in page.follow(finding).one("#card-experiment").attrib


def test_previews_and_review_have_every_variant(user: ScriptlessBrowser, api: Client) -> None:
    """The review shows all variants and who gets what; a preview can be switched between them."""
    campaign_id = with_test(api, "Reviewed", {"subject": "Other words", "body": "<p>Second version</p>"})
    page = HtmlPage(user, f"/campaigns/{campaign_id}/send")
    assert len(page.all(".inboxes li")) == 2
    assert page.has("main .kv", "Each variant goes to about 4 contacts.")
    page = page.follow(page.named(".inboxes a[href]", "Variant B")[0])
    assert page.has(".mailrow", "Other words")
    assert "Second version" in HtmlPage(user, page.one("iframe").attrib["src"]).text
    [first] = [link for link in page.all("nav[aria-label='Variant'] a") if text_of(link) == "A"]
    assert page.follow(first).has(".mailrow", "Reviewed")


def test_a_test_email_shows_the_chosen_variant(user: ScriptlessBrowser, api: Client, smtp: SmtpServer) -> None:
    """A variant without a text of its own is tested with that of the campaign."""
    campaign_id = with_test(api, "Tried", {"preheader": "Only here", "body": "<p>Second version</p>"})
    page = HtmlPage(user, f"/campaigns/{campaign_id}").follow("Send test email")
    page.fill("To", "trier@example.com")
    page.fill("Variant", "2")
    assert page.press("Send test email").has(".toast", "Sending a test")
    smtp.wait_until(lambda: "trier@example.com" in recipients_of(smtp, "[Test] Tried"), "the test")
    [message] = [message for message in list(smtp.messages) if message.to == "trier@example.com"]
    assert "Second version" in str(message.parsed)


def test_sending_and_choosing_the_winner(page: Page, api: Client, smtp: SmtpServer, clock: TestClock) -> None:
    """A person sends the rest of a variant, and the report says who chose it; the others got one variant each."""
    campaign_id = with_test(api, "First words", {"name": "Short", "subject": "Second words"}, test_share=0.4,
                            decided_by="person", holdout=0.1, event="order_paid")  # fmt: skip
    list_id = create_list(api, 80, "chosen")
    api.patch(f"/campaigns/{campaign_id}", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    path = f"/campaigns/{campaign_id}"
    page.goto(f"{path}/send")
    page.get_by_role("button", name="Send to about 72 contacts").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    clock.advance(20)
    result = api.wait(f"{path}/experiment", lambda row: row["state"] == "testing" and sum(
        variant["statuses"].get("sent", 0) for variant in row["variants"]
    ) == sum(variant["recipients"] for variant in row["variants"]) > 0, 60)  # fmt: skip
    assert result["waiting"] and result["held_out"]
    page.goto(path)
    expect(page.locator("#ab-test h3")).to_contain_text("Too early to tell: 0 clicks so far.")
    expect(page.locator("#ab-test")).to_contain_text(f"{result['waiting']} contacts wait for the winner")
    expect(page.locator("#control")).to_contain_text("Got nothing")
    page.get_by_role("link", name="Send B to the rest now").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Send Short to the other {result['waiting']} contacts?")
    dialog.get_by_role("button", name="Keep testing").click()
    page.get_by_role("link", name="Send B to the rest now").click()
    dialog.get_by_role("button", name=f"Send to {result['waiting']} contacts").click()
    expect(page.locator(".toast")).to_contain_text("Short is being sent")
    api.wait(path, lambda row: row["status"] == "completed", 60)
    page.goto(path)
    expect(page.locator("#ab-test")).to_contain_text("Short was chosen by owner")
    expect(page.locator("#ab-test .is-winner")).to_contain_text(f"{result['waiting']} as the winner")
    expect(page.get_by_role("link", name=re.compile("Send the rest"))).to_have_count(0)
    assert axe.find_violations_in_light_and_dark(page) == []
    page.locator("#ab-test .is-winner td").nth(1).get_by_role("link").click()
    second = api.get(f"{path}/experiment").json["variants"][1]["recipients"]
    expect(page.locator(".chip[aria-current]")).to_have_text(f"Short{second}")
    page.goto("/campaigns")
    expect(page.locator("tr", has_text="First words")).to_contain_text("A/B test")

    first, other = recipients_of(smtp, "First words"), recipients_of(smtp, "Second words")
    assert len(other) == second and len(first) + second + result["held_out"] == 80
    assert not set(first) & set(other)


def test_a_test_without_javascript(api: Client) -> None:
    """The card is a form whose buttons work without scripts, and whose notice offers to undo a removal."""
    campaign_id = draft(api, "Plain form")
    visitor, path = ScriptlessBrowser(api), f"/campaigns/{campaign_id}/experiment"
    visitor.post(path, act="start")
    visitor.post(path, act="start")  # a double click
    first, second = (variant["id"] for variant in get_test(api, campaign_id)["variants"])
    form = {
        "variant": [first, second],
        "checkboxes": "settings",
        f"checkboxes_{second}": "yes",
        f"differs_{second}": "subject",
    }
    visitor.post(path, **form, **{f"subject_{second}": "Second", "split": "all", "metric": "clicks"})
    assert get_test(api, campaign_id)["variants"][1]["subject"] == "Second"
    page_text = visitor.post(path, act="off", **form)
    assert get_test(api, campaign_id) is None
    visitor.undo(page_text)
    assert get_test(api, campaign_id)["variants"][1]["subject"] == "Second"


@pytest.mark.parametrize("variants", [[], "AB", [1], [{"id": []}], [{}]])
def test_an_edited_undo_changes_nothing(variants: Any, api: Client) -> None:
    """A field of the notice that somebody edited is refused with a text, whatever it has as variants."""
    campaign_id = draft(api, f"Edited {variants}")
    before = get_test(api, campaign_id)
    back = json.dumps({"holdout": 0.1, "event": "order", "variants": variants})
    page_text = ScriptlessBrowser(api).post(f"/campaigns/{campaign_id}/experiment/undo", back=back)
    assert "so it could not be restored" in notice_text(page_text)
    assert get_test(api, campaign_id) == before


def test_an_sms_has_text_variants(user: ScriptlessBrowser, api: Client) -> None:
    """The variants of an SMS differ in their text; opens cannot decide."""
    request = {"name": "By text", "channel": "sms", "template_attributes": {"body": "Bread at six"}}
    campaign_id = int(api.post("/campaigns", request).expect(201)["id"])
    page = HtmlPage(user, f"/campaigns/{campaign_id}?open=experiment").press("Add an A/B test")
    page.fill("SMS text of B", "Warm bread")
    metrics = [text_of(option) for option in select(page.field("Winner decided by"), "option")]
    assert metrics == ["Clicks", "Conversions (an event)"]
    page.press(page.all("#card-experiment button", "Save")[0])
    assert HtmlPage(user, f"/campaigns/{campaign_id}").texts("#side .inboxes li")[1].endswith("Warm bread")


def test_a_holdout_group_alone(user: ScriptlessBrowser, api: Client) -> None:
    """The card says what is counted, for how long and whether the group is large enough; the report names the event."""
    campaign_id = draft(api, "Only a holdout")
    page = HtmlPage(user, f"/campaigns/{campaign_id}?open=experiment").press("Add a holdout group only")
    card = page.one("#card-experiment")
    assert text_of(select(card, "h2")[0]) == "Holdout group" and page.value("Count conversions for") == "7"
    assert "shows only a very large effect" in text_of(select(card, ".sumline")[0])
    page.fill("Share of recipients that gets nothing", "5")
    page.fill("Count conversions for", "3")
    page = page.press(page.one("#card-experiment button[hidden]"))
    assert "probably no contact is left out" in text_of(page.one("#card-experiment .sumline"))
    page.fill("Share of recipients that gets nothing", "50")
    page = page.press(page.one("#card-experiment button[hidden]"))
    stored = get_test(api, campaign_id)
    assert (stored["holdout"], stored["decide_after_minutes"], stored["event"]) == (0.5, 3 * 24 * 60, "order_paid")
    assert "Will be sent to about" in page.text
    review = HtmlPage(user, f"/campaigns/{campaign_id}/send")
    assert "“Placed an order (paid)” is counted in both groups for 3 days." in review.text


def test_the_control_group_of_the_account(user: ScriptlessBrowser, api: Client) -> None:
    """The share is entered as a percentage; an invalid one is an error, and an empty one is not a control group."""
    page, share = HtmlPage(user, "/settings/consent"), "Share of all contacts, in percent"
    page.fill(share, "70")
    page = page.press("Save")
    assert "from 0 to 50" in text_of(page.one("#f-control-share-err"))
    page.fill(share, "2.5")
    page = page.press("Save")
    assert page.has(".toast", "Saved.") and page.value(share) == "2.5"
    assert api.get("/account").expect(200)["control_share"] == 0.025
    page.fill(share, "")
    assert page.press("Save").value(share) == ""
    assert api.get("/account").expect(200)["control_share"] is None


def test_the_attribution_window_of_the_account(user: ScriptlessBrowser, api: Client) -> None:
    """Reports say and use for how many days after a click orders count; the limits are from 1 to 90."""
    page, days = HtmlPage(user, "/settings/consent"), "Days after a click"
    assert page.value(days) == "7"
    for wrong in ("0", "91", "a week", "9" * 5_000):
        page.fill(days, wrong)
        page = page.press("Save")
        assert "from 1 to 90" in text_of(page.one("#f-attribution-days-err"))
    page.fill(days, "14")
    assert page.press("Save").value(days) == "14"
    assert api.get("/account").expect(200)["attribution_days"] == 14
    path = send_campaign(api, create_list(api, 1, "window"))
    wait_until_completed(api, path)
    assert "within 14 days of a click" in HtmlPage(user, path).text
    errors = api.patch("/account", {"attribution_days": 0}).expect(422)["validation_errors"]
    assert errors.keys() == {"attribution_days"}
    api.patch("/account", {"attribution_days": 7}).expect(200)


def test_what_all_campaigns_change(page: Page, api: Client, clock: TestClock) -> None:
    """The page compares the control group with the others; it says what is missing as long as it cannot."""
    api.patch("/account", {"control_share": None}).expect(200)
    page.goto("/settings/consent")
    page.get_by_role("link", name="What your campaigns change").click()
    expect(page.get_by_role("link", name="Set up a control group")).to_be_visible()
    api.patch("/account", {"control_share": 0.3}).expect(200)
    page.reload()
    expect(page.locator("main")).to_contain_text("The comparison begins with the next campaign that you send.")
    try:
        path = send_campaign(api, create_list(api, 200, "controlled"))
        wait_until_completed(api, path)
    finally:
        api.patch("/account", {"control_share": None}).expect(200)
    groups: dict[str, list[int]] = {"skipped": [], "sent": []}
    for message in api.get("/messages", campaign_id=path.rpartition("/")[2], limit=100).expect(200):
        groups[message["status"]].append(message["contact_id"])
    stats = api.get(path).expect(200)["stats"]
    page.reload()
    expect(page.locator(".verdict")).to_contain_text("No conversions so far.")
    clock.advance(minutes=1)
    for contact_id in [*groups["sent"][:50], groups["skipped"][0]]:
        api.post("/events", {"event": "order_paid", "contact_id": contact_id}).expect(201)
    page.reload()
    expect(page.locator(".verdict h3")).to_contain_text("Your campaigns led to about")
    rows = page.locator("tbody tr")
    expect(rows.nth(0).locator("td")).to_have_text(["Got campaigns", str(stats["sent"]), "50", re.compile("%")])
    expect(rows.nth(1).locator("td").nth(1)).to_have_text(str(stats["skipped"]))
    expect(rows.nth(1).locator("td").nth(2)).to_have_text("1")
    page.get_by_label("Event that counts as a conversion").select_option("Order shipped")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".verdict")).to_contain_text("“Order shipped” was recorded for no contact")
    assert axe.find_violations_in_light_and_dark(page, is_complete=True) == []
