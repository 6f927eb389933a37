"""Flows in the browser: built by hand and by keys, tried, changed while they are live, and the people in them."""

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.server import Server

LETTER = {
    "subject": "Welcome, {{ first_name | default: 'friend' }}",
    "body": "<h1>Hello</h1><a href='https://x.example'>x</a>",
}
# Where the service notes what it does by itself
OWN = ("cursor", "sqlite_sequence")
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
BRANCH = [{"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": "flow_start"}}]


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The owner at one browser; any error on the console fails the module."""
    problems = Problems()
    problems.allow("Blocked script execution")
    # A page that is gone to before it has faded in
    problems.allow("Transition was aborted")
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


@pytest.fixture(scope="module")
def live(api: Client) -> int:
    """A live flow with three people who wait, and one who would have entered and did not."""
    group = api.post("/lists", {"name": "Newsletter"}).expect(201)["id"]
    steps: list[dict[str, Any]] = [
        LETTER, {"duration": 3 * 86_400},
        {"filters": BRANCH, "yes": [{"subject": "Five", "body": "<p>5</p>"}], "no": [{"duration": 86_400}]},
    ]  # fmt: skip
    trigger = {"event": "list_add", "contact_list_id": group}
    flow = api.post("/flows", {"name": "Readers", "trigger": trigger, "steps": steps, "status": "active"}).expect(201)
    other = api.post("/lists", {"name": "Other"}).expect(201)["id"]
    for number in range(4):
        person = {"first_name": f"P{number}", "email": f"p{number}@example.com", "opt_in": True}
        api.post("/contacts", {**person, "list_ids": [group if number else other]}).expect(201)
    number = int(flow["id"])
    for _ in range(100):
        waiting = api.get(f"/flows/{number}/runs", step=2, outcome="waiting").expect(200)
        if len(waiting) == 3 and len(api.get("/messages", status="sent").expect(200)) == 3:
            return number
        time.sleep(0.1)
    raise AssertionError("they did not come to the wait")


def card(page: Page, title: str) -> Any:
    """Return the link of a step's card."""
    return page.locator("#tree .node .n", has_text=title)


def order(page: Page) -> list[str]:
    """Return the titles of the steps at the top of the tree, in their order."""
    return page.locator("#tree > .way > li > .node .n").all_inner_texts()


def expect_order(page: Page, titles: list[str]) -> None:
    """Wait until the steps at the top of the tree stand in this order."""
    expect(page.locator("#tree > .way > li > .node .n")).to_have_text(titles)


def test_a_flow_is_built_with_keys_alone(page: Page, api: Client) -> None:
    """Steps are added, written, moved, removed and brought back without a mouse; what is typed is saved by itself."""
    page.goto("/flows/new")
    page.get_by_role("button", name="Begin blank").press("Enter")
    page.wait_for_url(re.compile(r"/flows/\d+$"))
    page.locator(".plus").first.press("Enter")
    page.get_by_role("button", name="Email", exact=True).press("Enter")
    page.get_by_role("textbox", name="Subject").fill("First letter")
    expect(card(page, "First letter")).to_be_visible()
    card(page, "First letter").press("a")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="How long").fill("5")
    expect(card(page, "Wait 5 days")).to_be_visible()
    card(page, "Wait 5 days").press("Alt+ArrowUp")
    expect(page.locator("#said")).to_have_text("Wait 5 days: 1 of 2")
    expect_order(page, ["Wait 5 days", "First letter"])
    expect(card(page, "Wait 5 days")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(card(page, "First letter")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#panel > header h2")).to_have_text("Email")
    expect(page.get_by_role("textbox", name="Subject")).to_be_focused()
    page.keyboard.press("Escape")
    expect(card(page, "First letter")).to_be_focused()
    page.keyboard.press("Delete")
    expect(card(page, "First letter")).to_have_count(0)
    page.get_by_role("button", name="Undo").press("Enter")
    expect(card(page, "First letter")).to_be_visible()
    flow = api.get("/flows/" + re.findall(r"/flows/(\d+)", page.url)[0]).expect(200)
    assert [(one["type"], one["subject"]) for one in flow["steps"]] == [("wait", ""), ("email", "First letter")]


def test_what_keeps_a_flow_from_starting_leads_to_its_place(page: Page) -> None:
    """The question before the start lists what is missing; each line goes to where it is mended."""
    page.get_by_role("button", name="Start…").click()
    dialog = page.get_by_role("dialog", name="Not ready yet")
    expect(dialog.get_by_role("link", name="First letter: write the message.")).to_be_visible()
    dialog.get_by_role("link", name="Choose what starts it.").click()
    page.get_by_label("Somebody enters when they").select_option("order_paid")
    expect(page.locator("#tree .node .n").first).to_contain_text("Pays an order")
    expect(page.locator("#saved")).to_contain_text("Saved")


def _pull(page: Page) -> list[str]:
    """Take hold of the first card and pull it below the next one; return the order from before."""
    before = order(page)
    first, second = (page.locator("#tree > .way > li > .node").nth(at).bounding_box() for at in (0, 1))
    assert first and second
    # A page that fades in cannot be taken hold of yet
    page.wait_for_function("at => document.elementFromPoint(at.x + 40, at.y + 20)?.closest('.node')", arg=first)
    page.mouse.move(first["x"] + 40, first["y"] + 20)
    page.mouse.down()
    page.mouse.move(first["x"] + 42, first["y"] + 26, steps=3)
    # The browser says only now and then where a drag is: let go when the card has moved, as a person does
    for step in range(100):
        page.mouse.move(second["x"] + 40 + step % 2, second["y"] + second["height"] - 4 + step % 30)
        if order(page) == before[::-1]:
            break
        page.wait_for_timeout(20)
    return before


def test_a_drag_of_a_step_that_is_given_up_moves_nothing(page: Page) -> None:
    """Escape puts the card back where it was, here and on the server."""
    before = _pull(page)
    expect_order(page, before[::-1])
    page.keyboard.press("Escape")
    page.mouse.up()
    page.wait_for_timeout(300)
    expect_order(page, before)
    page.reload()
    expect_order(page, before)


def test_steps_are_dragged_among_their_siblings(page: Page) -> None:
    """A card that is pulled below the next one stands there, on the server too."""
    before = _pull(page)
    page.mouse.up()
    expect(page.locator("#said")).to_contain_text("2 of 2")
    expect_order(page, before[::-1])
    page.reload()
    expect_order(page, before[::-1])


def test_who_would_have_entered_is_told_with_why(page: Page, live: int) -> None:
    """The start shows the last people its event happened to, and who of them does not enter."""
    page.goto(f"/flows/{live}")
    met = page.locator("#met")
    expect(met.get_by_role("listitem")).to_have_count(4)
    expect(met.get_by_role("listitem").filter(has_text="P0")).to_contain_text("It is about")


def test_trying_a_flow_writes_nothing(page: Page, server: Server, live: int) -> None:
    """The way is lit up, the other way can be chosen, messages open; no table of the database has changed."""

    def books() -> dict[str, list[Any]]:
        with closing(sqlite3.connect(server.data / "campanero.db")) as db:
            names = [name for (name,) in db.execute(_TABLES)]
            return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in names if name not in OWN}

    before = books()
    page.goto(f"/flows/{live}/try")
    told = page.locator(".told")
    expect(told).to_contain_text("Branch: No")
    expect(card(page, "Wait 1 day")).to_be_visible()
    expect(page.locator(".node.off .n")).to_have_text("Five")
    page.get_by_role("link", name="What if: clicked a link").click()
    expect(told).to_contain_text("Branch: Yes")
    expect(page.locator(".node.off .n")).to_have_text("Wait 1 day")
    page.get_by_text("Open the email").first.click()
    expect(page.frame_locator(".mailed iframe").first.get_by_role("heading")).to_have_text("Hello")
    page.get_by_role("radio", name="P1").check()
    page.get_by_role("button", name="Try").click()
    expect(page.locator(".card h2").first).to_contain_text("P1")
    page.goto(f"/flows/{live}/crowd")
    expect(page.locator(".stat", has_text="Met the start")).to_contain_text("3")
    assert books() == before


def test_a_rehearsal_is_kept_as_a_test(page: Page, live: int) -> None:
    """It is played with the flow as it stands, and says whether what was expected came."""
    page.goto(f"/flows/{live}/try?do=3.email_clicked")
    page.get_by_role("textbox", name="Name", exact=True).fill("Clicks at once")
    page.get_by_role("button", name="Keep").click()
    tests = page.get_by_role("region", name="Tests")
    expect(tests).to_contain_text("1 of 1 pass")
    tests.get_by_role("button", name="Forget Clicks at once").click()
    expect(page.locator(".toast")).to_contain_text("is gone")


def test_changes_of_a_live_flow_are_published_with_one_question(page: Page, api: Client, live: int) -> None:
    """What is live stays until then; the difference is shown, and people who wait take the new time where wanted."""
    page.goto(f"/flows/{live}?step=2")
    page.get_by_role("textbox", name="How long").fill("2")
    banner = page.locator("#banner")
    expect(banner).to_contain_text("Unpublished changes: 1 step changed")
    assert api.get(f"/flows/{live}").expect(200)["steps"][1]["duration"] == 3 * 86_400
    page.get_by_role("link", name="Publish…").click()
    dialog = page.locator("#dialog")
    expect(dialog).to_contain_text("3 people are waiting in “Wait 2 days” (was 3 days)")
    dialog.get_by_text("Use the new time").click()
    dialog.get_by_role("button", name="Publish 1 change").click()
    expect(page.locator(".toast")).to_contain_text("Published")
    expect(banner).not_to_contain_text("Unpublished")
    assert api.get(f"/flows/{live}").expect(200)["steps"][1]["duration"] == 2 * 86_400
    for run in api.get(f"/flows/{live}/runs", step=2, outcome="waiting").expect(200):
        # Two days after they came, not three
        assert datetime.fromisoformat(run["due_at"]) < datetime.now(UTC) + timedelta(days=2.5)


def test_the_people_behind_a_number_are_moved_by_hand(page: Page, api: Client, live: int) -> None:
    """A count leads to its people; one moves on at once, another is taken out."""
    page.goto(f"/flows/{live}")
    page.locator(".node", has_text="Wait 2 days").locator(".c").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Who waits in “Wait 2 days”")
    page.get_by_label("Choose P3").check()
    page.get_by_role("button", name="Move on now").click()
    expect(page.locator(".toast")).to_contain_text("1 person moved on")
    page.get_by_label("Choose P2").check()
    page.get_by_role("button", name="Take out of the flow…").click()
    page.get_by_role("button", name="Take them out").click()
    expect(page.locator(".toast")).to_contain_text("1 person taken out")
    api.wait(f"/flows/{live}/runs", lambda rows: len(rows) == 1, step=2, outcome="waiting")
    page.get_by_role("link", name="P1").click()
    expect(page.locator(".told")).to_contain_text("waits here")


def test_pages_of_flows_are_sound(page: Page, live: int) -> None:
    """axe finds nothing in either look, and nothing scrolls sideways on a small phone."""
    paths = ["/flows", "/flows/new", f"/flows/{live}", *(f"/flows/{live}?step={step}" for step in (1, 3))]
    paths += [f"/flows/{live}?at=after-1&add=emit_event", f"/flows/{live}/publish"]
    paths += [f"/flows/{live}/{one}" for one in ("try", "crowd", "people", "people/1")]
    for path in paths:
        page.set_viewport_size({"width": 1360, "height": 900})
        page.goto(path)
        assert axe.faults_in_both_looks(page) == [], path
        page.set_viewport_size({"width": 320, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
    page.set_viewport_size({"width": 1360, "height": 900})


def test_a_flow_is_built_without_a_script(browser: Browser, server: Server, api: Client) -> None:
    """Plus signs lead to a list of kinds, forms save by a button, moving goes by the arrows of the step."""
    flow = api.post("/flows", {"name": "Plain", "steps": [{"duration": 60}]}).expect(201)["id"]
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    page = sign_in(context.new_page())
    page.goto(f"/flows/{flow}")
    page.get_by_role("link", name="Add a step after Wait 1 minute").click()
    page.get_by_role("button", name="Record event").click()
    page.get_by_label("Event", exact=True).fill("Became reader")
    page.get_by_role("button", name="Add step").click()
    expect_order(page, ["Wait 1 minute", "Record “became_reader”"])
    page.get_by_role("button", name="Move up").click()
    expect_order(page, ["Record “became_reader”", "Wait 1 minute"])
    context.close()


def test_a_viewer_sees_a_flow_and_no_buttons(browser: Browser, server: Server, live: int) -> None:
    """Whoever may only look is offered nothing that would be refused to them."""
    server.cli("user", "add", "--email", "v@example.org", "--role", "viewer", stdin="correct horse battery\n")
    context = browser.new_context(base_url=server.url)
    page = sign_in(context.new_page(), "v@example.org", "correct horse battery")
    page.goto(f"/flows/{live}?step=2")
    expect(page.locator("#tree .node").first).to_be_visible()
    for name in ("Pause", "Publish…", "Remove", "Delete flow", "Rename"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.locator(".plus, #step-form")).to_have_count(0)
    context.close()
