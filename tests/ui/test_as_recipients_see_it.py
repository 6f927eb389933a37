"""Composer, review, lists and titles show an email as its recipients see it, never the source of its merge tags."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.client import Client
from tests.kit.server import Server
from tests.ui.composer_world import clock, draft, page, server, smtp

__all__ = ["clock", "page", "server", "smtp"]

SUBJECT = "Fresh bread for {{ contact.first_name | default: 'you' }}"
BARE = "{{ first_name }}, the oven is on"
RAW = re.compile(r"\{\{|\{%")


def test_the_composer_and_the_review_show_the_email_itself(page: Page, api: Client) -> None:
    """The email is rendered for the first recipient beside its inbox line, in the composer and before a send."""
    number = draft(api, "Shown", subject=SUBJECT, preheader="Baked for {{ first_name }}")
    page.goto(f"/campaigns/{number}")
    row = page.locator("#side .mailrow")
    expect(row.locator(".subj")).to_have_text("Fresh bread for Ann0")
    expect(row.locator(".pre")).to_have_text("Baked for Ann0")
    expect(page.frame_locator("#side iframe").locator("h1")).to_have_text("Hello Ann0")
    page.get_by_role("link", name="Review and send").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".pre")).to_have_text("Baked for Ann0")
    expect(page.frame_locator("#dialog iframe").locator("h1")).to_have_text("Hello Ann0")
    assert axe.faults_in_both_looks(page) == []


def test_without_a_preview_text_the_first_words_are_shown(page: Page, api: Client) -> None:
    """The inbox line is the beginning of the email, as inboxes show it; nothing is invented."""
    number = draft(api, "First words")
    page.goto(f"/campaigns/{number}")
    expect(page.locator("#side .pre")).to_have_text(re.compile("^Hello Ann0 Bread"))
    page.goto(f"/campaigns/{number}/send")
    expect(page.locator(".mailrow .pre")).to_have_text(re.compile("^Hello Ann0 Bread"))
    page.goto(f"/campaigns/{number}/previews")
    expect(page.locator(".mailrow .pre")).to_have_text(re.compile("^Hello Ann"))
    empty = draft(api, "Nothing yet", body="")
    page.goto(f"/campaigns/{empty}")
    expect(page.locator("#side .pre")).to_have_text("No text yet")


def test_a_review_with_a_page_of_its_own_shows_its_errors_there(page: Page, api: Client) -> None:
    """The page of a review, opened by its address, answers with the page; a second review in a dialog hid the error."""
    number = draft(api, "Unfinished", body="<p>Lorem ipsum dolor sit amet</p>")
    page.goto(f"/campaigns/{number}/send")
    page.get_by_role("button", name=re.compile("^Send")).last.click()
    expect(page.locator("#f-unfinished-err")).to_be_visible()
    expect(page.locator("form.asks")).to_have_count(1)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_counter_counts_what_recipients_get(page: Page, api: Client) -> None:
    """The source of a merge tag is not counted, in the composer as in the editor."""
    number = draft(api, "Counted", subject=SUBJECT)
    page.goto(f"/campaigns/{number}?open=from")
    expect(page.locator("#f-subject-count")).to_have_text(str(len("Fresh bread for Ann0")))
    page.get_by_label("Subject", exact=True).fill(f"{SUBJECT}!!")
    expect(page.locator("#f-subject-count")).to_have_text(str(len("Fresh bread for Ann0!!")))
    design = {"sections": [{"type": "text", "props": {"content": "<p>Fresh</p>"}}]}
    row = api.post("/templates", {"name": "Counted", "subject": SUBJECT, "design": design}).expect(201)["id"]
    page.goto(f"/templates/{row}/edit?s=")
    page.locator("#o-").click()
    expect(page.locator("#inboxrow .subj")).to_have_text("Fresh bread for Anna")
    expect(page.locator("#inboxrow .pre")).to_contain_text("Fresh")
    expect(page.locator("#subject-length")).to_have_text(str(len("Fresh bread for Anna")))
    page.get_by_label("Subject", exact=True).fill(f"{SUBJECT}!!")
    expect(page.locator("#inboxrow .subj")).to_have_text("Fresh bread for Anna!!")
    expect(page.locator("#subject-length")).to_have_text(str(len("Fresh bread for Anna!!")))


@pytest.fixture(scope="module")
def tagged(server: Server) -> dict[str, Any]:
    """One of everything whose subject or text has merge tags: campaign, SMS, template, flow, messages."""
    api = server.client()
    made: dict[str, Any] = {"campaign": draft(api, "Tagged", subject=BARE, from_name="{{ brand.company_name }} team")}
    sms = {"name": "Tagged SMS", "channel": "sms", "template_attributes": {"body": BARE}}
    made["sms"] = api.post("/campaigns", sms).expect(201)["id"]
    design = {"sections": [{"type": "heading", "props": {"text": BARE}}]}
    made["template"] = api.post("/templates", {"name": "Tagged", "subject": BARE, "design": design}).expect(201)["id"]
    steps = [{"subject": BARE, "body": "<p>x</p>"}, {"type": "sms", "body": BARE}]
    flow = {"name": "Tagged", "trigger": {"event": "order_paid"}, "steps": steps}
    made["flow"] = api.post("/flows", flow).expect(201)["id"]
    api.post("/suppressions", {"address": "gone@example.com", "reason": "manual"}).expect(201)
    made["contact"] = api.post("/contacts", {"email": "gone@example.com"}).expect(201)["id"]
    message = {"to": "gone@example.com", "subject": BARE, "body": "x", "transactional": False}
    made["message"] = api.post("/messages", message).expect(422)["message_id"]
    return made


@pytest.mark.parametrize(
    "path",
    [
        "/campaigns", "/campaigns/{campaign}", "/campaigns/{campaign}/send", "/campaigns/{sms}", "/campaigns/new",
        "/campaigns/new?channel=sms", "/templates", "/templates/{template}/edit", "/templates/{template}/history",
        "/flows/{flow}", "/flows/{flow}/try", "/contacts/{contact}", "/contacts/{contact}/messages/{message}",
        "/outbox/{message}", "/jump?q=Tagged",
    ],
)  # fmt: skip
def test_no_list_and_no_title_shows_the_source_of_a_tag(page: Page, tagged: dict[str, Any], path: str) -> None:
    """Fields to type in hold it, and nothing else: not a title, a heading, a list, a card or a label."""
    page.goto(path.format(**tagged))
    assert not RAW.search(page.title())
    for one in page.locator("details").all():
        one.evaluate("element => element.open = true")
    shown = page.evaluate(
        "() => { const copy = document.body.cloneNode(true);"
        " copy.querySelectorAll('textarea, input, script, style, merge-field, pre, noscript').forEach(e => e.remove());"
        " return [copy.textContent, ...[...copy.querySelectorAll('[title], [aria-label]')]"
        ".map(e => `${e.title} ${e.getAttribute('aria-label')}`)].join('\\n') }"
    )
    assert not RAW.search(shown), [line for line in shown.splitlines() if RAW.search(line)][:5]


def test_a_copy_named_by_its_subject_has_a_readable_name(page: Page, api: Client, tagged: dict[str, Any]) -> None:
    """What a campaign says has no name of its own: a template made of it is called as its subject reads."""
    number = api.get(f"/campaigns/{tagged['campaign']}").expect(200)["template"]["id"]
    page.goto("/templates")
    page.evaluate("id => fetch(`/templates/${id}/duplicate`, { method: 'POST' })", number)
    names = [one["name"] for one in api.get("/templates", standalone="true").expect(200)]
    assert "[First name], the oven is on (copy)" in names
