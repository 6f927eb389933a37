"""Composer, review, lists and titles show an email as its recipients see it, never the source of merge tags."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.sampling import every_nth, full_only
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.ui.composer_world import clock, draft, page, server, smtp

__all__ = ["clock", "page", "server", "smtp"]

SUBJECT = "Fresh bread for {{ contact.first_name | default: 'you' }}"
BARE = "{{ first_name }}, the oven is on"
RAW = re.compile(r"\{\{|\{%")


def test_the_composer_and_the_review_show_the_email_itself(page: Page, api: Client) -> None:
    """Composer and review show the email and its inbox line, rendered for the first recipient."""
    campaign_id = draft(api, "Shown", subject=SUBJECT, preheader="Baked for {{ first_name }}")
    page.goto(f"/campaigns/{campaign_id}")
    row = page.locator("#side .mailrow")
    expect(row.locator(".subj")).to_have_text("Fresh bread for Ann0")
    expect(row.locator(".pre")).to_have_text("Baked for Ann0")
    expect(page.frame_locator("#side iframe").locator("h1")).to_have_text("Hello Ann0")
    page.get_by_role("link", name="Review and send").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".pre")).to_have_text("Baked for Ann0")
    expect(page.frame_locator("#dialog iframe").locator("h1")).to_have_text("Hello Ann0")
    assert axe.find_violations_in_light_and_dark(page) == []


def test_the_first_words_replace_a_missing_preview_text(user: ScriptlessBrowser, api: Client) -> None:
    """The inbox line shows the beginning of the email, or that there is no text yet."""
    campaign_id = draft(api, "First words")
    for path, inbox_line in (("", "#side .pre"), ("/send", ".mailrow .pre"), ("/previews", ".mailrow .pre")):
        [line, *_] = HtmlPage(user, f"/campaigns/{campaign_id}{path}").texts(inbox_line)
        assert re.match("Hello Ann0 Bread", line), path
    empty_id = draft(api, "Nothing yet", body="")
    assert HtmlPage(user, f"/campaigns/{empty_id}").texts("#side .pre") == ["No text yet"]


def test_errors_on_the_review_page(page: Page, api: Client) -> None:
    """A review opened by its URL shows errors on the page, and not in a second dialog."""
    campaign_id = draft(api, "Unfinished", body="<p>Lorem ipsum dolor sit amet</p>")
    page.goto(f"/campaigns/{campaign_id}/send")
    page.get_by_role("button", name=re.compile("^Send")).last.click()
    expect(page.locator("#f-unfinished-err")).to_be_visible()
    expect(page.locator("form.dialog-body")).to_have_count(1)
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.full
def test_the_subject_counter_counts_the_rendered_subject(page: Page, api: Client) -> None:
    """Composer and editor count the subject with its merge tags filled in."""
    campaign_id = draft(api, "Counted", subject=SUBJECT)
    page.goto(f"/campaigns/{campaign_id}?open=from")
    expect(page.locator("#f-subject-count")).to_have_text(str(len("Fresh bread for Ann0")))
    page.get_by_label("Subject", exact=True).fill(f"{SUBJECT}!!")
    expect(page.locator("#f-subject-count")).to_have_text(str(len("Fresh bread for Ann0!!")))
    design = {"sections": [{"type": "text", "props": {"content": "<p>Fresh</p>"}}]}
    template_id = api.post("/templates", {"name": "Counted", "subject": SUBJECT, "design": design}).expect(201)["id"]
    page.goto(f"/templates/{template_id}/edit?s=")
    page.locator("#o-").click()
    expect(page.locator("#inboxrow .subj")).to_have_text("Fresh bread for Anna")
    expect(page.locator("#inboxrow .pre")).to_contain_text("Fresh")
    expect(page.locator("#subject-length")).to_have_text(str(len("Fresh bread for Anna")))
    page.get_by_label("Subject", exact=True).fill(f"{SUBJECT}!!")
    expect(page.locator("#inboxrow .subj")).to_have_text("Fresh bread for Anna!!")
    expect(page.locator("#subject-length")).to_have_text(str(len("Fresh bread for Anna!!")))


@pytest.mark.full
def test_composer_and_editor_show_the_same_recipient(page: Page, api: Client) -> None:
    """Canvas, inbox line, counter and examples of merge tags are the first recipient's in the editor of a campaign.

    A contact without an email address, who was added last, is nobody's example.
    """
    other = {"first_name": "Only", "last_name": "Phone", "phone": "+493012345678"}
    other_id = api.post("/contacts", other).expect(201)["id"]
    design = {"sections": [{"id": "t", "type": "text", "props": {"content": "<p>Dear {{ first_name }}</p>"}}]}
    asked = {"name": "Same", "template_attributes": {"subject": SUBJECT, "design": design},
             "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    number = int(api.post("/campaigns", asked).expect(201)["id"])
    page.goto(f"/campaigns/{number}?open=from")
    count = page.locator("#f-subject-count").inner_text()
    assert count == str(len("Fresh bread for Ann0"))
    page.goto(f"/campaigns/{number}/content")
    expect(page.locator("#inboxrow .subj")).to_have_text("Fresh bread for Ann0")
    expect(page.locator("#subject-length")).to_have_text(count)
    expect(page.frame_locator("#canvas").get_by_text("Dear Ann0")).to_be_visible()
    expect(page.locator("[data-as-name]").first).to_have_text("Ann0")
    page.get_by_role("button", name="Insert merge tag").first.click()
    menu = page.locator("#merge-menu")
    expect(menu.get_by_role("button", name=re.compile("^First name"))).to_contain_text("Ann0")
    expect(menu.get_by_role("button", name=re.compile("^Email"))).to_contain_text("p0@example.com")
    expect(menu).not_to_contain_text("Phone")
    api.delete(f"/contacts/{other_id}").expect(200)


@pytest.mark.parametrize("place", [full_only("composer"), "editor"])
def test_a_first_name_gets_a_fallback_in_composer_and_editor(page: Page, api: Client, place: str) -> None:
    """The merge tag chosen in the menu is written with its fallback in both, also while all contacts have a name."""
    section = {"id": "t", "type": "heading", "props": {"text": "Bread"}}
    asked = {"name": "Fallback", "template_attributes": {"subject": "Hi ", "design": {"sections": [section]}},
             "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    nameless = api.get("/contacts/search", q="p4@example.com").expect(200)[0]["id"]
    api.patch(f"/contacts/{nameless}", {"first_name": "Ann4"}).expect(200)
    number = int(api.post("/campaigns", asked).expect(201)["id"])
    page.goto(f"/campaigns/{number}{'/content' if place == 'editor' else '?open=from'}")
    page.get_by_role("button", name="Insert merge tag").first.click()
    page.locator("#merge-menu").get_by_role("button", name=re.compile("^First name")).click()
    expect(page.locator("merge-field .merge").first).to_have_text("First name ▸ friend")
    api.patch(f"/contacts/{nameless}", {"first_name": None}).expect(200)


@pytest.fixture(scope="module")
def tagged(server: Server) -> dict[str, Any]:
    """Ids of one object of each kind whose subject or text has merge tags."""
    api = server.client()
    ids: dict[str, Any] = {"campaign": draft(api, "Tagged", subject=BARE, from_name="{{ brand.company_name }} team")}
    sms = {"name": "Tagged SMS", "channel": "sms", "template_attributes": {"body": BARE}}
    ids["sms"] = api.post("/campaigns", sms).expect(201)["id"]
    design = {"sections": [{"type": "heading", "props": {"text": BARE}}]}
    ids["template"] = api.post("/templates", {"name": "Tagged", "subject": BARE, "design": design}).expect(201)["id"]
    steps = [{"subject": BARE, "body": "<p>x</p>"}, {"type": "sms", "body": BARE}]
    flow = {"name": "Tagged", "trigger": {"event": "order_paid"}, "steps": steps}
    ids["flow"] = api.post("/flows", flow).expect(201)["id"]
    api.post("/suppressions", {"address": "gone@example.com", "reason": "manual"}).expect(201)
    ids["contact"] = api.post("/contacts", {"email": "gone@example.com"}).expect(201)["id"]
    message = {"to": "gone@example.com", "subject": BARE, "body": "x", "transactional": False}
    ids["message"] = api.post("/messages", message).expect(422)["message_id"]
    return ids


PATHS = (
    "/campaigns", "/campaigns/{campaign}", "/campaigns/{campaign}/send", "/campaigns/{sms}", "/campaigns/new",
    "/campaigns/new?channel=sms", "/templates", "/templates/{template}/edit", "/templates/{template}/history",
    "/flows/{flow}", "/flows/{flow}/try", "/contacts/{contact}", "/contacts/{contact}/messages/{message}",
    "/outbox/{message}", "/jump?q=Tagged",
)  # fmt: skip
FIELDS = "textarea, input, script, style, merge-field, pre, noscript"


@pytest.mark.parametrize("path", every_nth(PATHS, 6))
def test_no_page_shows_the_source_of_a_merge_tag(user: ScriptlessBrowser, tagged: dict[str, Any], path: str) -> None:
    """Only input fields, and code that names what can be entered there, contain the source: no title or label does."""
    page = HtmlPage(user, path.format(**tagged))
    hidden = {each for field in page.all(FIELDS) for each in field.iter()}
    shown = [text_of(page.one("title"))]
    for element in page.all("*"):
        if element not in hidden and element.tag != "code":
            shown += [element.text or "", element.get("title", ""), element.get("aria-label", "")]
            shown += [child.tail or "" for child in element]
    assert [text for text in shown if RAW.search(text)] == []


def test_a_copy_named_by_its_subject_has_a_readable_name(
    user: ScriptlessBrowser, api: Client, tagged: dict[str, Any]
) -> None:
    """A template that is copied from a campaign is named after its rendered subject."""
    template_id = api.get(f"/campaigns/{tagged['campaign']}").expect(200)["template"]["id"]
    assert user.submit(f"/templates/{template_id}/duplicate").status == 303
    names = [template["name"] for template in api.get("/templates", standalone="true").expect(200)]
    assert "[First name], the oven is on (copy)" in names
