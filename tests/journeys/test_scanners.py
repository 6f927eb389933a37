"""Link scanners change nothing; the one-click POST and the button of the page do."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.kit.browser import Problems, new_page
from tests.kit.client import Client
from tests.kit.forms import create_form, get_link, request_as_visitor, submit_form, wait_for_system_emails
from tests.kit.server import Server

AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/130.0", "Barracuda Sentinel (EE)", "Mimecast URL Protection",
    "Mozilla/5.0 (compatible; Proofpoint URL Defense)", "Slackbot-LinkExpanding 1.0", "curl/8.5.0", "",
)  # fmt: skip
CONSENT = ("subscribed", "opt_out_at", "opt_in_at", "verified", "suppression_reason")
BODY = "<p>Hi {{ first_name }}</p><a href='https://shop.example/x'>x</a> <a href='{{ preferences_url }}'>less</a>"


def campaign(api: Client, count: int) -> list[dict[str, Any]]:
    """Send a campaign to `many` contacts and return its messages with their content."""
    list_id = api.post("/lists", {"name": "Readers", "public": True}).expect(201)["id"]
    contacts = [{"email": f"reader{n}@example.org", "list_ids": [list_id], "first_name": f"R{n}"} for n in range(count)]
    for row in contacts:
        api.post("/contacts", row).expect(201)
    created = api.post("/campaigns", {"name": "c", "template_attributes": {"subject": "s", "body": BODY}}).expect(201)
    api.post(f"/campaigns/{created['id']}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{created['id']}", lambda row: row["status"] == "completed", timeout=120)
    rows = api.all("/messages", campaign_id=created["id"])
    assert len(rows) == count
    return [api.get(f"/messages/{row['id']}").expect(200) for row in rows]


def consent(api: Client) -> list[Any]:
    """Return the consent of all contacts, with its evidence."""
    states: list[Any] = []
    for contact in api.all("/contacts"):
        channel_states = [[channel[name] for name in CONSENT] for channel in contact["channels"]]
        rows = api.get(f"/contacts/{contact['id']}/consents").expect(200)
        states.append(
            (contact["id"], channel_states, contact["list_ids"], contact["tracking"], [row["id"] for row in rows])
        )
    return states


def paths(message: dict[str, Any]) -> set[str]:
    """Return the paths of our links in a message, including its headers."""
    text = f"{message['html']} {message['text']} {message['headers']}"
    return set(re.findall(r"http://127\.0\.0\.1:\d+(/[a-z]/[\w.-]+)", text))


@pytest.fixture(scope="module")
def mails(server: Server, full: bool) -> list[dict[str, Any]]:
    """Delivered marketing, and one confirmation email."""
    form = create_form(server, "Asked")
    submit_form(server, form, email="asked@example.org").expect(202)
    return [*wait_for_system_emails(server, "asked@example.org"), *campaign(server.client(), 200 if full else 4)]


def test_link_scanners_change_nothing(server: Server, mails: list[dict[str, Any]], full: bool) -> None:
    """GET, HEAD and OPTIONS of every link, and POSTs without the one-click body, change no consent (T23, T25)."""
    api = server.client()
    before = consent(api)
    client = server.client(None, validate=False, keep_alive=True)
    seen = set()
    for mail in mails:
        for path in sorted(paths(mail)):
            seen.add(path[:3])
            for turn in range(20 if full else 7):
                for method in ("GET", "HEAD", "OPTIONS"):
                    response = client.request(method, path, None, {"User-Agent": AGENTS[turn % len(AGENTS)]})
                    assert response.status in (200, 302, 404) and "Set-Cookie" not in response.headers, (method, path)
            for body in (None, b"", b"x=1", b'{"List-Unsubscribe":"One-Click"}'):
                client.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})
    assert {"/u/", "/p/", "/d/"} <= seen
    assert consent(api) == before
    for name in ("opt_out", "list_remove", "double_opt_in_confirmed", "erase_requested"):
        assert api.get("/events", event=name).json == [], name


def test_a_scanner_with_javascript_changes_nothing(
    server: Server, mails: list[dict[str, Any]], browser: Browser
) -> None:
    """Opening every page in a browser, as the sandboxes of mail services do, changes no consent."""
    api = server.client()
    before = consent(api)
    problems = Problems()
    page = new_page(browser, server.url, problems)
    for mail in mails[:3]:
        for path in sorted(link_path for link_path in paths(mail) if link_path[:3] in ("/u/", "/p/", "/d/")):
            page.goto(path, wait_until="networkidle")
            page.evaluate(
                "document.dispatchEvent(new Event('visibilitychange')); window.dispatchEvent(new Event('focus'))"
            )
            page.mouse.move(200, 200)
    page.context.close()
    assert problems.found == [] and consent(api) == before
    assert api.get("/events", event="opt_out").json == []


def test_one_click_and_the_button_opt_out(server: Server, mails: list[dict[str, Any]], browser: Browser) -> None:
    """The one-click POST (RFC 8058) and the button opt out their recipient only; the confirmation button opts in."""
    api = server.client()
    confirmation, first, second, *others = mails
    unsubscribe_paths = {
        row["id"]: next(path for path in paths(row) if path.startswith("/u/")) for row in (first, second)
    }
    for _ in range(2):
        response = request_as_visitor(server, "POST", unsubscribe_paths[first["id"]], {"List-Unsubscribe": "One-Click"})
        assert response.status == 200 and "Location" not in response.headers and "Set-Cookie" not in response.headers
    page = new_page(browser, server.url, Problems())
    page.goto(unsubscribe_paths[second["id"]])
    page.get_by_role("button", name="Unsubscribe").click()
    page.get_by_role("heading", name="You are unsubscribed").wait_for()
    page.goto(get_link(confirmation))
    page.get_by_role("button", name="Yes, subscribe me").click()
    page.get_by_role("heading", name="Thank you, you are subscribed").wait_for()
    page.context.close()
    opted_out = {row["to"] for row in (first, second)}
    for row in api.all("/contacts"):
        (channel,) = row["channels"]
        assert channel["subscribed"] is (channel["value"] not in opted_out), channel["value"]
    assert [row["data"]["source"] for row in api.get("/events", event="opt_out").json] == ["link", "one_click"]
    assert len(others) >= 2 and len(api.get("/events", event="double_opt_in_confirmed").json) == 1
