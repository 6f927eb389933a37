"""Composing and sending an email in the browser: in numbers before it happens, and with a way back."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.patience import soon
from tests.kit.server import PASSWORD, Server
from tests.kit.smtp import SmtpServer
from ui.composing import said

BODY = "<h1>Hello {{ first_name | default: 'friend' }}</h1><p><a href='https://bakery.example'>Bread</a></p>"


@pytest.fixture(scope="module")
def smtp() -> Iterator[SmtpServer]:
    """Where real messages go."""
    with SmtpServer() as running:
        yield running


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """What time it is for the server."""
    return TestClock(Path(tmp_path_factory.mktemp("clock"), "offset"))


@pytest.fixture(scope="module")
def server(smtp: SmtpServer, clock: TestClock) -> Iterator[Server]:
    """A server that sends for real, with people of every kind in three lists, and a segment."""
    with Server(relay=smtp.port, clock=clock).set_up() as running:
        api = running.client()
        api.put("/brand", {"physical_address": "4 Mill Lane"}).expect(200)
        api.patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
        lists = [api.post("/lists", {"name": name}).expect(201)["id"] for name in ("Newsletter", "Workshop", "Staff")]
        for number in range(12):
            inside = [lists[0]] * (number < 9) + [lists[1]] * (number > 6) + [lists[2]] * (number in (0, 8))
            body = {"email": f"p{number}@example.com", "list_ids": inside}
            body |= {} if number == 4 else {"first_name": f"Ann{number}"}
            api.post("/contacts", body).expect(201)
        api.post("/suppressions", {"address": "p1@example.com", "reason": "manual"}).expect(201)
        rule = {"name": "contact_first_name", "predicate": "present"}
        api.post("/segments", {"name": "With a name", "filters": [rule]}).expect(201)
        api.post("/templates", {"name": "Monthly", "subject": "News", "body": BODY}).expect(201)
        yield running


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The owner at a browser, in which nothing may go wrong."""
    problems = Problems()
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


def named(smtp: SmtpServer, subject: str) -> list[str]:
    """Return to whom messages with a subject went."""
    return [one.to for one in list(smtp.messages) if one.subject == subject]


def draft(api: Client, name: str, **content: str) -> int:
    """Make a draft to the newsletter that could be sent."""
    asked = {"name": name, "template_attributes": {"subject": name, "body": BODY, **content},
             "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    return int(api.post("/campaigns", asked).expect(201)["id"])


def test_the_number_on_the_button_is_the_number_of_rows(
    page: Page, api: Client, smtp: SmtpServer, clock: TestClock
) -> None:
    """Two lists, cut with a segment, less a list: arithmetic, groups, button, rows and messages agree."""
    number = draft(api, "Arithmetic")
    page.goto(f"/campaigns/{number}?open=to")
    page.get_by_label("Workshop").check()
    expect(page.locator(".sums")).to_contain_text("12 in Newsletter, Workshop")
    page.get_by_label("Of them only who is in this segment").select_option("With a name")
    expect(page.locator(".sums")).to_contain_text("11 in")
    page.get_by_label("Leave out").select_option("Staff")
    expect(page.locator(".out")).to_have_text("without Staff")
    expect(page.locator(".sums")).to_contain_text(re.compile("2 left out.*1 on the do-not-send list.*8 people"))
    page.locator(".sums a", has_text="left out").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name=re.compile("^Get it")).click()
    expect(page.locator("tbody tr")).to_have_count(8)
    page.goto(f"/campaigns/{number}")
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Send to 8 people").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    assert api.get(f"/campaigns/{number}").json["stats"]["pending"] == 8
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Draft", exact=True)).to_be_visible()
    assert api.get(f"/campaigns/{number}").json["audience_count"] == 0
    clock.advance(20)
    other = draft(api, "After it")
    api.post(f"/campaigns/{other}/send").expect(200)
    smtp.wait_until(lambda: len(named(smtp, "After it")) == 8, "what was sent after it")
    assert named(smtp, "Arithmetic") == []
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Send to 8 people").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    clock.advance(20)
    smtp.wait_until(lambda: len(named(smtp, "Arithmetic")) == 8, "as many as the button said")
    expect(page.get_by_text("8 of 9 handed over")).to_be_visible(timeout=15_000)
    assert len(set(named(smtp, "Arithmetic"))) == len(named(smtp, "Arithmetic")) == 8


def test_everybody_asks_once_more(page: Page, api: Client) -> None:
    """All contacts want a word of their own, which the checklist says."""
    number = draft(api, "For all")
    page.goto(f"/campaigns/{number}?open=to")
    page.get_by_text("Everybody", exact=True).click()
    expect(page.locator("#side .checklist")).to_contain_text("Confirm that everyone gets it")
    page.get_by_label("Yes, everybody of this account").check()
    expect(page.locator("#side .checklist")).not_to_contain_text("Confirm")
    expect(page.locator(".sums .total")).to_have_text("=11 people")


def test_what_is_typed_is_kept(page: Page, api: Client) -> None:
    """Typing over the saving loses no letter and no focus; what was typed is there when the page is opened anew."""
    number = draft(api, "Typing")
    page.goto(f"/campaigns/{number}?open=from")
    text = "Three things that we learned while baking less bread"
    subject = page.get_by_label("Subject", exact=True)
    subject.fill("")
    subject.press_sequentially(text, delay=25)
    expect(subject).to_be_focused()
    expect(subject).to_have_text(text)
    expect(page.locator("#side .mailrow")).to_contain_text(text)
    expect(page.locator("#f-subject-count")).to_contain_text(f"{len(text)} · phones show about 45")
    page.get_by_label("Preview line").fill("For {{ first_name | default: 'you' }}, and more")
    expect(page.locator("#side .mailrow")).to_contain_text("For ")
    page.get_by_label("Address people see").fill("not an address")
    expect(page.locator("#f-from-email-err")).to_contain_text("name@example.com")
    expect(page.locator("#saved")).to_contain_text("Not saved yet")
    page.reload()
    expect(page.get_by_label("Subject", exact=True)).to_have_text(text)
    expect(page.get_by_label("Preview line").locator(".merge")).to_contain_text("First name")
    page.get_by_label("Subject", exact=True).fill("Typed and gone")
    page.goto("/campaigns")
    end = time.monotonic() + soon(5)
    while api.get(f"/campaigns/{number}").expect(200)["templates"][0]["subject"] != "Typed and gone":
        assert time.monotonic() < end


def test_a_template_and_the_way_back(page: Page, api: Client) -> None:
    """Choosing shows each as a picture; the copy is in place, and one click brings back what was there."""
    number = draft(api, "Chosen", body="<p>Mine</p>")
    page.goto(f"/campaigns/{number}?open=content")
    page.get_by_role("link", name="Choose another").click()
    page.get_by_role("dialog").get_by_role("button", name="Newsletter").click()
    expect(page.get_by_text("It has its own copy now.")).to_be_visible()
    expect(page.locator("#card-content summary")).to_contain_text("sections")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_label("HTML of the email")).to_have_value("<p>Mine</p>")
    page.get_by_role("link", name="Choose another").click()
    page.get_by_role("dialog").get_by_role("link", name="Keep what is there").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_html_is_pasted_over_what_was_designed(page: Page, api: Client) -> None:
    """Pasting is offered beside the sections too; they come back with one click, and nothing is kept of nothing."""
    design = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Designed"}}]}
    number = draft(api, "Pasted", body=None, design=design)
    page.goto(f"/campaigns/{number}?open=content")
    page.get_by_role("link", name="Paste HTML").click()
    box = page.get_by_role("dialog")
    box.get_by_role("button", name="Use this HTML").click()
    expect(box.get_by_label("HTML of the email")).to_be_focused()
    expect(box).to_contain_text("Paste the HTML of the email.")
    assert axe.faults_in_both_looks(page) == []
    box.get_by_label("HTML of the email").fill("<p>Made elsewhere</p>")
    box.get_by_role("button", name="Use this HTML").click()
    expect(page.locator(".toast")).to_contain_text("It says what you pasted now.")
    row = api.get(f"/campaigns/{number}").expect(200)["template"]
    assert (row["body"], row["design"]["sections"]) == ("<p>Made elsewhere</p>", [])
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("link", name="Paste HTML")).to_be_visible()
    row = api.get(f"/campaigns/{number}").expect(200)["template"]
    assert (row["body"], row["design"]["sections"][0]["id"]) == (None, "s1")


def test_a_test_of_it(page: Page, api: Client, smtp: SmtpServer) -> None:
    """A test goes to who is named, with the values of who is chosen, marked; the addresses are remembered."""
    number = draft(api, "Tested")
    page.goto(f"/campaigns/{number}")
    expect(page.locator("#side")).to_contain_text("Nobody got a test")
    page.get_by_role("link", name="Send test").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To", exact=True).fill("boss@bakery.example nobody")
    dialog.get_by_role("button", name="Send test").click()
    expect(dialog).to_contain_text("nobody is not an address")
    dialog.get_by_label("To", exact=True).fill("boss@bakery.example, me@bakery.example")
    dialog.get_by_label("Find somebody else").fill("ann6")
    dialog.get_by_label(re.compile("^Ann6")).check()
    dialog.get_by_role("button", name="Send test").click()
    expect(page.get_by_text("A test is on its way to boss@bakery.example and me@bakery.example.")).to_be_visible()
    smtp.wait_until(lambda: bool(smtp.to("boss@bakery.example") and smtp.to("me@bakery.example")), "both tests")
    [message] = smtp.to("boss@bakery.example")
    assert message.subject == "[Test] Tested"
    assert "Hello Ann6" in (message.html() or "")
    page.get_by_role("link", name="Send test").click()
    expect(page.get_by_role("dialog").get_by_label("To", exact=True)).to_have_value(
        "boss@bakery.example, me@bakery.example"
    )
    expect(page.locator("#side")).not_to_contain_text("Nobody got a test")


def test_later_and_not_after_all(page: Page, api: Client) -> None:
    """A time in the past is refused; one to come is armed, taken back with a way to arm it again."""
    number = draft(api, "Later")
    page.goto(f"/campaigns/{number}?open=when")
    page.locator("#card-when .seg").get_by_text("Later").click()
    page.get_by_label("Date").fill("2020-01-01")
    expect(page.locator("#f-day-err")).to_contain_text("in the future")
    page.get_by_label("Date").fill("2098-05-04")
    page.get_by_label("Time").fill("07:30")
    expect(page.locator("#card-when .sumline")).to_contain_text("4 May 2098, 07:30")
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Schedule for 8 people").click()
    expect(page.get_by_role("heading", name="Goes out 4 May 2098, 07:30")).to_be_visible()
    page.get_by_role("button", name="Back to draft").click()
    expect(page.get_by_text("It is a draft again")).to_be_visible()
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name="Goes out 4 May 2098, 07:30")).to_be_visible()


def test_the_checklist_is_the_refusal_of_the_api(page: Page, api: Client) -> None:
    """What the page lists as needed is what a send over the API is refused for, one for one, with a way to mend it."""
    cases = {
        "Nothing": {},
        "Broken": {"template_attributes": {"subject": "{{ first_name", "body": "<p>{% if %}</p>"}},
        "For all": {"trigger_attributes": {"data": {"audience_type": "all_contacts"}},
                    "template_attributes": {"subject": "x"}},
    }  # fmt: skip
    told = 0
    for name, more in cases.items():
        answer = api.post("/campaigns", {"name": name, **more})
        number = answer.json["id"] if answer.status == 201 else draft(api, name, body="")
        blockers = api.post(f"/campaigns/{number}/send").expect(422)["blockers"]
        page.goto(f"/campaigns/{number}")
        needed = page.locator("#side .checklist li:has(.bad)")
        expect(needed).to_have_text([said(SimpleNamespace(**one)) for one in blockers])
        expect(page.locator("#side")).to_contain_text(f"{len(blockers)} needed")
        assert needed.locator("a").count() == len(blockers)
        page.goto(f"/campaigns/{number}/send")
        expect(page.locator(".asks li:has(.bad)")).to_have_count(len(blockers))
        told += len(blockers)
    assert told >= 5


def test_one_person_after_the_other(page: Page, api: Client) -> None:
    """Who gets it is browsed by buttons and arrows, narrowed to whoever has no first name, at two widths."""
    number = draft(api, "Browsed")
    page.goto(f"/campaigns/{number}/previews")
    frame = page.frame_locator("iframe.frame")
    expect(frame.locator("h1")).to_have_text("Hello Ann0")
    expect(page.get_by_text("1 of 8")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(frame.locator("h1")).to_have_text("Hello Ann2")
    page.get_by_role("link", name="Without a first name").click()
    expect(frame.locator("h1")).to_have_text("Hello friend")
    expect(page.locator(".who a")).to_have_count(1)
    page.get_by_role("link", name="Phone").click()
    assert page.locator("iframe.frame").bounding_box()["width"] == 375  # type: ignore[index]  # it is visible, so it has a box


def _design(page: Page, tab_to: Callable[[str], None]) -> None:
    """Put a heading and a footer into an email in the editor, write into the one, and come back to the campaign."""
    page.wait_for_url("**/content")
    words = "Baked by keyboard"
    for kind in ("heading", "footer"):
        tab_to("#tab-sections, #o-")
        page.keyboard.press("a")
        expect(page.locator("#palette :focus")).to_be_visible()
        tab_to(f"#palette button[value={kind}]")
        page.keyboard.press("Enter")
        expect(page.locator(f"#outline li[data-kind={kind}]")).to_be_visible()
        if kind == "heading":
            tab_to("#inspector .ed")
            page.keyboard.press("Control+a")
            page.keyboard.type(words)
            expect(page.frame_locator("#canvas").get_by_role("heading", name=words)).to_be_visible()
    tab_to("a.primary[href*='/campaigns/']")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/campaigns/\d+(\?.*)?$"))


def test_by_keyboard_alone(page: Page, api: Client, smtp: SmtpServer, clock: TestClock) -> None:
    """Made, designed, tested and sent without a mouse, up to the messages."""
    page.goto("/campaigns")
    page.keyboard.press("c")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("By keyboard")

    def tab_to(target: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("at => document.activeElement.matches(at)", target):
                return
        raise AssertionError(f"the keyboard does not reach {target}")

    tab_to("#list-picks input")
    page.keyboard.press("Space")
    expect(page.locator(".sums .total")).to_have_text("=8 people")
    tab_to("#card-from summary")
    page.keyboard.press("Enter")
    tab_to("#card-from .ed")
    page.keyboard.type("Typed")
    expect(page.locator("#side .mailrow")).to_contain_text("Typed")
    tab_to("#card-content summary")
    page.keyboard.press("Enter")
    tab_to(".begins a[href$='/content']")
    page.keyboard.press("Enter")
    _design(page, tab_to)
    expect(page.locator("#card-content summary")).to_contain_text("2 sections")
    tab_to(".acts a[href$='/test']")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Send test")).to_be_visible()
    tab_to("dialog button.primary")
    page.keyboard.press("Enter")
    expect(page.get_by_text("A test is on its way")).to_be_visible()
    tab_to(".acts a[href$='/send']")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Keep editing")).to_be_focused()
    tab_to("dialog button.primary")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    clock.advance(20)
    smtp.wait_until(lambda: len(named(smtp, "Typed")) == 8, "what was typed")
    tested = next(one for one in smtp.messages if one.subject == "[Test] Typed")
    sent = next(one for one in smtp.messages if one.subject == "Typed")
    assert all("Baked by keyboard" in (one.html() or "") for one in (tested, sent))


def test_who_may_not_send_sees_no_button(browser: Browser, server: Server, api: Client) -> None:
    """An author writes and reviews; a viewer looks. Neither is shown what would be refused."""
    number = draft(api, "Looked at")
    for role, may_write in (("author", True), ("viewer", False)):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=PASSWORD + "\n")
        problems = Problems()
        page = sign_in(new_page(browser, server.url, problems), f"{role}@example.org")
        page.goto(f"/campaigns/{number}?open=to")
        assert page.get_by_label("Workshop").is_enabled() == may_write
        assert (page.get_by_role("link", name="Send test").count() == 1) == may_write
        page.get_by_role("link", name="Review", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("Somebody who may send has to send it")
        expect(page.get_by_role("dialog").get_by_role("button")).to_have_count(0)
        page.context.close()
        assert not problems.found


def test_without_javascript(browser: Browser, server: Server, api: Client) -> None:
    """Every card is a form with a button, a test and a send are pages."""
    number = draft(api, "Plain")
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    page = sign_in(context.new_page())
    page.goto(f"/campaigns/{number}?open=to")
    page.get_by_label("Workshop").check()
    page.locator("#card-to").get_by_role("button", name="Save").click()
    expect(page.locator("#card-to .sums")).to_contain_text("12 in Newsletter, Workshop")
    page.get_by_role("link", name="Send test").click()
    page.get_by_label("To", exact=True).fill("plain@bakery.example")
    page.get_by_role("button", name="Send test").click()
    expect(page.get_by_text("A test is on its way to plain@bakery.example.")).to_be_visible()
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Send to 11 people").click()
    assert api.get(f"/campaigns/{number}").json["phase"] == "holding"
    context.close()
