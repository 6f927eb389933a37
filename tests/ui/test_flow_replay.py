"""The page of a replay: what a marketer reads before, while and after it runs."""

import time

import pytest

from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser

MAIL = {"subject": "Your cart", "body": "<p>x</p>"}


@pytest.fixture
def flow(api: Client) -> int:
    """Return a live flow that carts start, with an unpublished change, and two contacts with carts."""
    now, name = time.time(), f"cart_{time.time_ns()}"
    flow_id: int = api.post("/flows", {
        "name": "Carts", "trigger": {"event": name}, "steps": [{"duration": 3_600}, MAIL], "status": "active",
    }).expect(201)["id"]  # fmt: skip
    for number in range(2):
        contact = {"email": f"cart{flow_id}-{number}@example.org", "first_name": f"Cart{number}", "opt_in": True}
        contact_id = api.post("/contacts", contact).expect(201)["id"]
        for event, days in ((name, 4), ("order_paid", 2)):
            happened_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - days * 86_400))
            body = {"event": event, "contact_id": contact_id, "created_at": happened_at, "amount": 40.0 + number}
            api.post("/events", body).expect(201)
    return flow_id


def wait_for_result(user: ScriptlessBrowser, flow: int, text: str = "Result") -> HtmlPage:
    """Return the page of a flow's replay once it shows a text."""
    deadline = time.monotonic() + 60
    while text not in (page := HtmlPage(user, f"/flows/{flow}/replay")).text:
        assert time.monotonic() < deadline, page.text
        time.sleep(0.2)
    return page


def test_a_replay_compares_changes_with_the_live_version(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """From the menu of the flow to the numbers, the people and the file."""
    step_id = api.get(f"/flows/{flow}").expect(200)["steps"][0]["id"]
    page = HtmlPage(user, f"/flows/{flow}?step={step_id}")
    page.fill("Duration", "3")
    page.fill("Unit", "days")
    page.press("Save")
    page = HtmlPage(user, f"/flows/{flow}").follow("Replay the past")
    assert "No replay yet" in page.text
    page.press("Start replay")
    page = wait_for_result(user, flow)
    assert "as many messages would have been sent, but 2 contacts would have got others" in page.text
    assert "Cart0" in page.text and "Cart1" in page.text
    assert "81" in page.text and "followed a message that your changes would not have sent" in page.text
    file = user.get(f"/flows/{flow}/replay/file")
    assert file.splitlines()[0].startswith('"contact_id"') and file.count('"moved"') == 2


def test_a_flow_without_a_trigger_cannot_be_replayed(user: ScriptlessBrowser, api: Client) -> None:
    """The page says what is missing, and keeps the form."""
    flow_id = api.post("/flows", {"name": "Empty"}).expect(201)["id"]
    page = HtmlPage(user, f"/flows/{flow_id}/replay").press("Start replay")
    assert "Choose a trigger and add a step before you replay this flow." in page.text
    page.fill("Price of one SMS part", "cheap")
    assert "Choose a trigger" not in page.press("Start replay").text


def test_a_replay_of_an_unchanged_flow_says_so(user: ScriptlessBrowser, flow: int) -> None:
    """Without changes there is one column, and the SMS price is kept in the form."""
    page = HtmlPage(user, f"/flows/{flow}/replay")
    page.fill("Price of one SMS part", "0,05")
    page.press("Start replay")
    page = wait_for_result(user, flow)
    assert "This flow would have sent 2 messages to 2 contacts." in page.text
    assert "The flow has no unpublished changes" in page.text
