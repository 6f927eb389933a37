"""Flows in the browser: building, simulating, publishing changes, and contacts in a flow."""

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
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server

LETTER = {
    "subject": "Welcome, {{ first_name | default: 'friend' }}",
    "body": "<h1>Hello</h1><a href='https://x.example'>x</a>",
}
# Tables that the service changes by itself
INTERNAL_TABLES = ("cursor", "sqlite_sequence")
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
BRANCH = [{"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": "flow_start"}}]


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; the module fails on any console error."""
    problems = Problems()
    problems.allow("Blocked script execution")
    # A page that is left before its transition ends
    problems.allow("Transition was aborted")
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


@pytest.fixture(scope="module")
def live(api: Client) -> int:
    """An active flow with three waiting contacts, and a fourth that did not match its trigger."""
    list_id = api.post("/lists", {"name": "Newsletter"}).expect(201)["id"]
    steps: list[dict[str, Any]] = [
        LETTER, {"duration": 3 * 86_400},
        {"filters": BRANCH, "yes": [{"subject": "Five", "body": "<p>5</p>"}], "no": [{"duration": 86_400}]},
    ]  # fmt: skip
    trigger = {"event": "list_add", "contact_list_id": list_id}
    flow = api.post("/flows", {"name": "Readers", "trigger": trigger, "steps": steps, "status": "active"}).expect(201)
    other_list_id = api.post("/lists", {"name": "Other"}).expect(201)["id"]
    for number in range(4):
        person = {"first_name": f"P{number}", "email": f"p{number}@example.com", "opt_in": True}
        api.post("/contacts", {**person, "list_ids": [list_id if number else other_list_id]}).expect(201)
    number = int(flow["id"])
    for _ in range(100):
        waiting = api.get(f"/flows/{number}/runs", step=2, outcome="waiting").expect(200)
        if len(waiting) == 3 and len(api.get("/messages", status="sent").expect(200)) == 3:
            return number
        time.sleep(0.1)
    raise AssertionError("the contacts did not reach the wait")


def card(page: Page, title: str) -> Any:
    """Return the link of a step's card."""
    return page.locator("#tree .node .n", has_text=title)


def order(page: Page) -> list[str]:
    """Return the titles of the top-level steps, in order."""
    return page.locator("#tree > .way > li > .node .n").all_inner_texts()


def expect_order(page: Page, titles: list[str]) -> None:
    """Wait until the top-level steps are in this order."""
    expect(page.locator("#tree > .way > li > .node .n")).to_have_text(titles)


def test_building_a_flow_by_keyboard(page: Page, api: Client) -> None:
    """Steps are added, edited, moved, removed and restored without a mouse, and saved by themselves."""
    page.goto("/flows/new")
    page.get_by_role("button", name="Start blank").press("Enter")
    page.wait_for_url(re.compile(r"/flows/\d+$"))
    page.locator(".plus").first.press("Enter")
    page.get_by_role("button", name="Email", exact=True).press("Enter")
    page.get_by_role("textbox", name="Subject").fill("First letter")
    expect(card(page, "First letter")).to_be_visible()
    card(page, "First letter").press("a")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Duration").fill("5")
    expect(card(page, "Wait 5 days")).to_be_visible()
    card(page, "Wait 5 days").press("Alt+ArrowUp")
    expect(page.locator("#move-status")).to_have_text("Wait 5 days: 1 of 2")
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
    assert [(step["type"], step["subject"]) for step in flow["steps"]] == [("wait", ""), ("email", "First letter")]


def test_leaving_an_unsaved_step_asks(page: Page, api: Client) -> None:
    """Names of branches that were typed and not saved stay until their loss is confirmed, also after an error."""
    split = {"type": "random_split", "branches": [{"share": 50}, {"share": 50}]}
    steps = [split, {"type": "wait", "duration": 86_400}]
    flow_id = api.post("/flows", {"name": "Asks", "steps": steps}).expect(201)["id"]
    shared_flow = page.url
    page.goto(f"/flows/{flow_id}")
    card(page, "A 50%").click()
    name = page.locator("#step-form input[name$=_name]").first
    name.fill("Free shipping")
    page.get_by_label("Find the winner by").select_option("event")
    expect(page.get_by_label("Event", exact=True)).to_be_visible()
    page.locator("#step-form").get_by_role("button", name="Save").click()
    expect(page.locator("#step-form .err")).to_be_visible()
    questions: list[str] = []
    page.once("dialog", lambda dialog: (questions.append(dialog.message), dialog.dismiss()))
    card(page, "Wait 1 day").click()
    expect(name).to_have_value("Free shipping")
    page.once("dialog", lambda dialog: dialog.accept())
    card(page, "Wait 1 day").click()
    expect(page.get_by_role("textbox", name="Duration")).to_be_visible()
    assert questions == ["Leave without saving your changes?"]
    page.goto(shared_flow)


def test_blockers_link_to_their_step(page: Page) -> None:
    """The start dialog lists what is missing, and each entry links to its step."""
    page.get_by_role("button", name="Start…").click()
    dialog = page.get_by_role("dialog", name="Not ready yet")
    expect(dialog.get_by_role("link", name="First letter: write the message.")).to_be_visible()
    dialog.get_by_role("link", name="Select a trigger.").click()
    page.get_by_role("combobox", name="Trigger", exact=True).select_option("order_paid")
    expect(page.locator("#tree .node .n").first).to_contain_text("Placed an order (paid)")
    expect(page.locator("#saved")).to_contain_text("Saved")


def _drag_first_card(page: Page) -> list[str]:
    """Drag the first card below the second without releasing, and return the former order."""
    before = order(page)
    first, second = (page.locator("#tree > .way > li > .node").nth(at).bounding_box() for at in (0, 1))
    assert first and second
    # A page cannot be dragged on during its transition
    page.wait_for_function("at => document.elementFromPoint(at.x + 40, at.y + 20)?.closest('.node')", arg=first)
    page.mouse.move(first["x"] + 40, first["y"] + 20)
    page.mouse.down()
    page.mouse.move(first["x"] + 42, first["y"] + 26, steps=3)
    # Drag events come rarely: release once the card has moved, as a user does
    for step in range(100):
        page.mouse.move(second["x"] + 40 + step % 2, second["y"] + second["height"] - 4 + step % 30)
        if order(page) == before[::-1]:
            break
        page.wait_for_timeout(20)
    return before


@pytest.mark.full
def test_a_cancelled_drag_of_a_step(page: Page) -> None:
    """Escape during a drag restores the order, on the page and on the server."""
    before = _drag_first_card(page)
    expect_order(page, before[::-1])
    page.keyboard.press("Escape")
    page.mouse.up()
    page.wait_for_timeout(300)
    expect_order(page, before)
    page.reload()
    expect_order(page, before)


def test_dragging_a_step(page: Page) -> None:
    """A card dropped below the next one is moved there, also on the server."""
    before = _drag_first_card(page)
    page.mouse.up()
    expect(page.locator("#move-status")).to_contain_text("2 of 2")
    expect_order(page, before[::-1])
    page.reload()
    expect_order(page, before[::-1])


def test_connectors_on_a_phone(page: Page, live: int) -> None:
    """On a phone the connectors are thin, stand in one line, and the last one meets the number of completed runs."""
    size = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/flows/{live}")
    lines = page.locator("#tree > .way > li > .join rect, #tree > .join rect")
    boxes = [line.bounding_box() for line in lines.all()]
    assert len(boxes) == 4
    assert {round(box["width"], 1) for box in boxes if box} == {1.5}
    assert len({round(box["x"]) for box in boxes if box}) == 1
    fork, last, end = page.locator("#tree .fork").bounding_box(), boxes[-1], page.locator("#tree .end").bounding_box()
    assert fork and last and end
    assert abs(fork["x"] - last["x"]) <= 1
    assert end["x"] < last["x"] < end["x"] + end["width"] and abs(end["y"] - last["y"] - last["height"]) <= 1
    page.set_viewport_size(size or {"width": 1360, "height": 900})


def test_starters_count_emails_and_steps_of_all_branches(user: ScriptlessBrowser) -> None:
    """The card of a starter has the numbers of the flow that it makes."""
    page = HtmlPage(user, "/flows/new")
    [starter] = [tile for tile in page.all(".tile") if text_of(select(tile, "h2, h3")[0]) == "Welcome"]
    assert "3 emails, 5 steps" in text_of(starter)
    [button] = [button for button in select(starter, "button") if "Use this flow" in page.name_of(button)]
    page = page.press(button)
    assert len(page.all("#tree li[data-step]")) == 5
    assert len(page.all("#tree .s", "Email")) == 3
    page = HtmlPage(user, f"{page.path.partition('?')[0]}?step=start")
    # The default is offered once
    options = [text_of(option) for option in select(page.field("Re-entry"), "option")]
    assert options == ["Once (default)", "Every time", "At most once every … days"]


def test_recent_contacts_of_the_trigger(page: Page, live: int) -> None:
    """The trigger lists the last contacts with its event, and why one of them does not enter."""
    page.goto(f"/flows/{live}")
    met = page.locator("#met")
    expect(met.get_by_role("listitem")).to_have_count(4)
    expect(met.get_by_role("listitem").filter(has_text="P0")).to_contain_text("The trigger is only for the list")


def test_events_are_named_in_plain_words(page: Page, user: ScriptlessBrowser, api: Client) -> None:
    """Triggers, goals and simulations name events by their labels, and an event that never came is explained."""
    trigger = {"event": "trial_started"}
    flow = api.post("/flows", {"name": "Words", "trigger": trigger, "steps": [{"duration": 90}]}).expect(201)["id"]
    page.goto(f"/flows/{flow}")
    panel = page.locator("#panel")
    expect(page.locator("#met")).to_contain_text(
        "Campanero has not received “Trial started” from your shop or app yet."
    )
    expect(panel).to_contain_text("Your shop or app must send this event to Campanero.")
    page.get_by_label("Goal").select_option("other")
    expect(page.get_by_label("Name of the goal’s event")).to_have_attribute("placeholder", "Order paid")
    expect(panel).not_to_contain_text("_")
    names = page.locator("#goal-events option").evaluate_all("options => options.map(option => option.value)")
    assert "Order paid" in names and not [name for name in names if "_" in name]
    simulation = HtmlPage(user, f"/flows/{flow}/try")
    log = text_of(simulation.one(".run-log"))
    assert "Enters the flow: Trial started" in log and "_" not in log
    assert simulation.texts(".trying header .small")[0] == "UTC"
    api.patch("/account", {"time_zone": "America/New_York"}).expect(200)
    page.goto(f"/flows/{flow}/try")
    expect(page.locator(".trying header .small").first).to_have_text(re.compile(r"New York \(UTC.0[45]:00\)"))
    api.patch("/account", {"time_zone": "UTC"}).expect(200)
    assert axe.find_violations_in_light_and_dark(page) == []


def test_a_simulation_writes_nothing(user: ScriptlessBrowser, server: Server, live: int) -> None:
    """A simulation shows the path and its alternatives and opens emails; no table of the database changes."""

    def all_rows() -> dict[str, list[Any]]:
        with closing(sqlite3.connect(server.data / "campanero.db")) as db:
            names = [name for (name,) in db.execute(_TABLES)]
            return {
                name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in names if name not in INTERNAL_TABLES
            }

    before = all_rows()
    page = HtmlPage(user, f"/flows/{live}/try")
    assert page.has(".run-log", "Branch: No")
    assert page.has("#tree .node .n", "Wait 1 day")
    assert page.texts(".node.off .n") == ["Five"]
    page = page.follow("What if: clicked a link")
    assert page.has(".run-log", "Branch: Yes")
    assert page.texts(".node.off .n") == ["Wait 1 day"]
    assert "Open email" in page.texts(".mailed summary")[0]
    mail = HtmlPage(user, page.all(".mailed iframe")[0].attrib["src"])
    assert mail.texts("h1") == ["Hello"]
    page.check("P1")
    page = page.press("Run simulation")
    assert "P1" in page.texts(".card h2")[0]
    assert "3" in text_of(HtmlPage(user, f"/flows/{live}/crowd").one(".stat", "Met the trigger"))
    assert all_rows() == before


def test_saving_a_simulation_as_a_test(user: ScriptlessBrowser, live: int) -> None:
    """A saved simulation is run with the current flow and passes; it can be deleted."""
    page = HtmlPage(user, f"/flows/{live}/try?do=3.email_clicked")
    page.fill("Name", "Clicks right away")
    page = page.press("Save test")
    assert page.has("section", "1 of 1 passed")
    page = page.press("Delete test Clicks right away")
    assert page.has(".toast", "Test “Clicks right away” deleted.")


def test_publishing_changes_of_a_live_flow(page: Page, api: Client, live: int) -> None:
    """Changes apply after publishing only; waiting contacts take the new wait time if wanted."""
    page.goto(f"/flows/{live}?step=2")
    page.get_by_role("textbox", name="Duration").fill("2")
    banner = page.locator("#banner")
    expect(banner).to_contain_text("Unpublished changes: 1 step changed")
    assert api.get(f"/flows/{live}").expect(200)["steps"][1]["duration"] == 3 * 86_400
    page.get_by_role("link", name="Publish…").click()
    dialog = page.locator("#dialog")
    expect(dialog).to_contain_text("3 contacts are waiting in “Wait 2 days” (was 3 days)")
    dialog.get_by_text("Use the new duration").click()
    dialog.get_by_role("button", name="Publish 1 change").click()
    expect(page.locator(".toast")).to_contain_text("Published")
    expect(banner).not_to_contain_text("Unpublished")
    assert api.get(f"/flows/{live}").expect(200)["steps"][1]["duration"] == 2 * 86_400
    for run in api.get(f"/flows/{live}/runs", step=2, outcome="waiting").expect(200):
        # Two days after they entered, not three
        assert datetime.fromisoformat(run["due_at"]) < datetime.now(UTC) + timedelta(days=2.5)


def test_moving_contacts_in_a_flow(user: ScriptlessBrowser, api: Client, live: int) -> None:
    """A count links to its contacts; one skips the wait, another is removed."""
    page = HtmlPage(user, f"/flows/{live}")
    [count] = [link for link in page.all("#tree a.c") if "step=2" in link.attrib["href"]]
    page = page.follow(count)
    assert page.title == "Contacts waiting in “Wait 2 days”"
    page.check("Select P3")
    page = page.press("Skip the wait")
    assert page.has(".toast", "Wait skipped for 1 contact.")
    page.check("Select P2")
    page = page.press("Remove contacts")
    assert page.has(".toast", "1 contact removed from the flow.")
    api.wait(f"/flows/{live}/runs", lambda rows: len(rows) == 1, step=2, outcome="waiting")
    assert page.follow("P1").has(".run-log", "waiting until")


@pytest.mark.full
def test_flow_pages_are_accessible(page: Page, live: int) -> None:
    """axe finds no faults, and nothing scrolls sideways on a small phone, in what `test_pages` does not open."""
    paths = [f"/flows/{live}", *(f"/flows/{live}?step={step}" for step in (1, 3))]
    paths += [f"/flows/{live}?at=after-1&add=emit_event", f"/flows/{live}/publish"]
    paths += [f"/flows/{live}/{subpage}" for subpage in ("crowd", "people", "people/1")]
    for path in paths:
        page.set_viewport_size({"width": 1360, "height": 900})
        page.goto(path)
        assert axe.find_violations_in_light_and_dark(page) == [], path
        page.set_viewport_size({"width": 320, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
    page.set_viewport_size({"width": 1360, "height": 900})


@pytest.mark.full
def test_an_unsubscribe_step_names_the_flow_in_the_history_of_a_contact(
    page: Page, user: ScriptlessBrowser, api: Client
) -> None:  # fmt: skip
    """The step is added at once, the panel changes its channel, and the contact's history names the flow."""
    flow = api.post("/flows", {"name": "Say goodbye", "trigger": {"event": "left_us"}}).expect(201)["id"]
    page.goto(f"/flows/{flow}")
    page.locator(".plus").first.click()
    page.get_by_role("button", name="Unsubscribe", exact=True).click()
    expect(card(page, "Unsubscribe from email")).to_be_visible()
    page.get_by_role("combobox", name="Channel").select_option("SMS")
    expect(card(page, "Unsubscribe from SMS")).to_be_visible()
    save_screenshot(page, "flow-unsubscribe")
    page.get_by_role("combobox", name="Channel").select_option("Email")
    expect(card(page, "Unsubscribe from email")).to_be_visible()
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["type"], step["channel"]) == ("unsubscribe", "email")
    # The page was not loaded again since the edits: what it starts is what it shows
    page.get_by_role("button", name="Start…").click()
    page.get_by_role("button", name="Start flow").click()
    expect(page.get_by_text("The flow is live.")).to_be_visible()
    contact = api.post("/contacts", {"email": "goodbye@example.com", "opt_in": True}).expect(201)["id"]
    api.post("/events", {"event": "left_us", "contact_id": contact}).expect(201)
    for _ in range(100):
        if not api.get(f"/contacts/{contact}").expect(200)["subscribed_email"]:
            break
        time.sleep(0.1)
    assert re.search("Unsubscribed .* by Say goodbye · flow", HtmlPage(user, f"/contacts/{contact}").text)


def test_building_a_flow_without_javascript(user: ScriptlessBrowser, api: Client) -> None:
    """Steps are added, saved and moved with links and buttons."""
    flow = api.post("/flows", {"name": "Plain", "steps": [{"duration": 60}]}).expect(201)["id"]
    page = HtmlPage(user, f"/flows/{flow}").follow("Add a step after Wait 1 minute").press("Record event")
    page.fill("Event name", "Became reader")
    page = page.press("Add step")
    assert page.texts("#tree .node .n")[1:] == ["Wait 1 minute", "Record “Became reader”"]
    page = page.press("Move up")
    assert page.texts("#tree .node .n")[1:] == ["Record “Became reader”", "Wait 1 minute"]


def test_a_viewer_cannot_change_a_flow(server: Server, api: Client, live: int) -> None:
    """A viewer sees the flow without buttons that would be rejected."""
    server.cli("user", "add", "--email", "v@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    page = HtmlPage(ScriptlessBrowser(api, "v@example.org"), f"/flows/{live}?step=2")
    assert page.all("#tree .node")
    for name in ("Pause", "Publish…", "Remove", "Delete flow", "Rename"):
        assert page.named("main button", name) == []
    assert page.all(".plus, #step-form") == []


@pytest.mark.full
def test_an_email_of_a_flow_begins_from_a_starter(page: Page, api: Client) -> None:
    """A new email of a flow offers the starters and templates that a campaign does, and gets a copy of its own."""
    flow_id = api.post("/flows", {"name": "Starters"}).expect(201)["id"]
    page.goto(f"/flows/{flow_id}")
    page.locator(".plus").first.click()
    page.get_by_role("button", name="Email", exact=True).click()
    page.get_by_role("link", name="Select a template").click()
    expect(page.locator("#dialog")).to_contain_text("The flow gets its own copy of the template.")
    save_screenshot(page, "flow-starters")
    page.locator("#dialog").get_by_role("button", name="Newsletter", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Template copied into this step.")
    expect(page).to_have_url(re.compile(rf"/flows/{flow_id}\?step=\d+$"))
    page.get_by_role("link", name="Edit content").click()
    expect(page.locator("#list li[data-kind=heading]").first).to_be_visible()
    assert page.locator("#list li").count() > 3
