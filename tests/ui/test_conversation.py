"""The conversation with a person: both ways in one place, an answer from there, and what an unclear answer means."""

from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import sign_in
from tests.kit.client import Client
from tests.kit.server import Server


def spoken_to(api: Client, number: str) -> tuple[int, int]:
    """Write to somebody new and return them, and the captured SMS."""
    person = api.post("/contacts", {"first_name": "Anna", "phone": number, "opt_in": True}).expect(201)["id"]
    made = api.post("/messages", {"channel": "sms", "to": number, "body": "Come by until 6 pm."}).expect(201)
    [row] = api.wait("/capture", bool, message_id=made["id"])
    return person, row["id"]


def hear(api: Client, captured: int, text: str) -> None:
    """Let them write back."""
    api.post(f"/capture/{captured}/simulate", {"action": "reply", "text": text}).expect(200)


def said(api: Client, person: int) -> list[Any]:
    """Return what was said, the newest first."""
    return list(api.get(f"/contacts/{person}/conversation").expect(200))


def test_an_answer_is_sent_from_the_conversation(browser_page: Page, api: Client) -> None:
    """What they wrote and what is answered stand side by side; the words arrive as they were typed."""
    page = browser_page
    person, captured = spoken_to(api, "+14155550101")
    hear(api, captured, "Is there <b>parking</b>?")
    page.goto(f"/contacts/{person}/conversation")
    expect(page.locator(".bubble:not(.mine)")).to_contain_text("Is there <b>parking</b>?")
    page.get_by_role("button", name="Send SMS").click()
    expect(page.get_by_text("Write what you want to say.")).to_be_visible()
    page.get_by_label("Answer").fill("Yes, {{ behind }} the house.")
    page.get_by_role("button", name="Send SMS").click()
    assert axe.faults_in_both_looks(page) == []
    expect(page.locator(".bubble.mine").last).to_contain_text("Yes, {{ behind }} the house.")
    expect(page.get_by_label("Answer")).to_have_value("")
    [row] = api.wait("/capture", bool, search="the house")
    assert row["to"] == "+14155550101"


def test_an_unclear_answer_is_decided_by_a_person(browser_page: Page, api: Client) -> None:
    """What may be a refusal asks somebody; as one it ends all SMS to them, and the form is gone."""
    page = browser_page
    person, captured = spoken_to(api, "+14155550102")
    hear(api, captured, "I told your colleague to stop this already")
    page.goto(f"/contacts/{person}/conversation")
    page.get_by_role("button", name="Send no more SMS").click()
    expect(page.get_by_text("They answered STOP")).to_be_visible()
    expect(page.get_by_label("Answer")).to_have_count(0)
    assert api.get("/suppressions", address="+14155550102").expect(200)[0]["reason"] == "stop_keyword"


def test_without_a_script_and_for_who_only_looks(browser: Browser, server: Server, api: Client) -> None:
    """The form works as a plain one; a viewer reads what was said and has no form."""
    person, _ = spoken_to(api, "+14155550103")
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin="correct horse battery\n")
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    bare = sign_in(context.new_page())
    bare.goto(f"/contacts/{person}/conversation")
    bare.get_by_label("Answer").fill("Without a script")
    bare.get_by_role("button", name="Send SMS").click()
    assert said(api, person)[0]["body"] == "Without a script"
    context.clear_cookies()
    sign_in(bare, "viewer@example.org", "correct horse battery")
    bare.goto(f"/contacts/{person}/conversation")
    assert "Without a script" in bare.locator("#conversation").inner_text()
    assert bare.locator("#conversation form").count() == 0
    context.close()


def test_answers_stand_in_one_place_until_somebody_decided(browser_page: Page, api: Client) -> None:
    """Whatever people wrote back is listed; what may be a refusal waits for a decision, from the stream of all."""
    page = browser_page
    _, captured = spoken_to(api, "+14155550104")
    hear(api, captured, "Lovely <i>thanks</i>")
    hear(api, captured, "I told your colleague to stop this already")
    page.goto("/activity")
    page.get_by_role("link", name="Answers 1 to look at").click()
    row = page.get_by_role("listitem").filter(has_text="I told your colleague")
    expect(row).to_be_visible()
    assert axe.faults_in_both_looks(page) == []
    row.get_by_role("button", name="It means something else").click()
    expect(page.get_by_text("Nothing to look at")).to_be_visible()
    page.get_by_role("link", name="Show all answers").click()
    expect(page.get_by_text("Lovely <i>thanks</i>")).to_be_visible()
    assert api.get("/suppressions", address="+14155550104").expect(200) == []


def test_what_an_answer_takes_is_counted_while_it_is_typed(browser_page: Page, api: Client) -> None:
    """Characters, parts and alphabet as they leave; a sign outside the short alphabet is named, focus stays."""
    page = browser_page
    person, _ = spoken_to(api, "+14155550105")
    page.goto(f"/contacts/{person}/conversation")
    box, meter = page.get_by_label("Answer"), page.locator("#sms-meter")
    expect(meter).to_contain_text("0 characters · 0 parts")
    box.press_sequentially("{{ x }} " + "a" * 153)
    expect(meter).to_contain_text("161 characters · 2 parts")
    expect(meter).to_contain_text("short alphabet (GSM-7)")
    box.fill("Crêpes → now")
    expect(meter).to_contain_text("12 characters · 1 part")
    expect(meter).to_contain_text("long alphabet (UCS-2)")
    expect(meter).to_contain_text("“ê”")
    expect(box).to_be_focused()
    assert axe.faults_in_both_looks(page) == []
    page.goto(f"/contacts/{person}")
    page.get_by_label("Answer").fill("Two words")
    expect(page.locator("#sms-meter")).to_contain_text("9 characters · 1 part")
    assert len(said(api, person)) == 1
