"""Programs that read every link of a mail change nothing; the mailbox's one click and the page's button do."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.kit.browser import Problems, new_page
from tests.kit.client import Client
from tests.kit.forms import ask, letters, link, make_form, submit
from tests.kit.server import Server

AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/130.0", "Barracuda Sentinel (EE)", "Mimecast URL Protection",
    "Mozilla/5.0 (compatible; Proofpoint URL Defense)", "Slackbot-LinkExpanding 1.0", "curl/8.5.0", "",
)  # fmt: skip
CONSENT = ("subscribed", "opt_out_at", "opt_in_at", "verified", "suppression_reason")
BODY = "<p>Hi {{ first_name }}</p><a href='https://shop.example/x'>x</a> <a href='{{ preferences_url }}'>less</a>"


def campaign(api: Client, many: int) -> list[dict[str, Any]]:
    """Send to so many people and return their messages, with what each said."""
    group = api.post("/lists", {"name": "Readers", "public": True}).expect(201)["id"]
    people = [{"email": f"reader{n}@example.org", "list_ids": [group], "first_name": f"R{n}"} for n in range(many)]
    for one in people:
        api.post("/contacts", one).expect(201)
    made = api.post("/campaigns", {"name": "c", "template_attributes": {"subject": "s", "body": BODY}}).expect(201)
    api.post(f"/campaigns/{made['id']}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    api.wait(f"/campaigns/{made['id']}", lambda row: row["status"] == "completed", timeout=120)
    rows = api.all("/messages", campaign_id=made["id"])
    assert len(rows) == many
    return [api.get(f"/messages/{one['id']}").expect(200) for one in rows]


def consent(api: Client) -> list[Any]:
    """Return all that a person decides about themselves, of everybody, with its evidence."""
    found: list[Any] = []
    for one in api.all("/contacts"):
        kept = [[each[name] for name in CONSENT] for each in one["channels"]]
        rows = api.get(f"/contacts/{one['id']}/consents").expect(200)
        found.append((one["id"], kept, one["list_ids"], one["tracking"], [row["id"] for row in rows]))
    return found


def paths(message: dict[str, Any]) -> set[str]:
    """Return every link of ours in a message, headers included."""
    text = f"{message['html']} {message['text']} {message['headers']}"
    return set(re.findall(r"http://127\.0\.0\.1:\d+(/[a-z]/[\w.-]+)", text))


@pytest.fixture(scope="module")
def mails(server: Server, full: bool) -> list[dict[str, Any]]:
    """Delivered marketing, and one mail that asks for a confirmation."""
    form = make_form(server, "Asked")
    submit(server, form, email="asked@example.org").expect(202)
    return [*letters(server, "asked@example.org"), *campaign(server.client(), 200 if full else 4)]


def test_programs_that_read_links_change_nothing(server: Server, mails: list[dict[str, Any]], full: bool) -> None:
    """GET, HEAD and OPTIONS of every link, as whoever they say they are, and POSTs without the words (T23, T25)."""
    api = server.client()
    before = consent(api)
    client = server.client(None, validate=False, keep_alive=True)
    seen = set()
    for mail in mails:
        for path in sorted(paths(mail)):
            seen.add(path[:3])
            for turn in range(20 if full else 7):
                for method in ("GET", "HEAD", "OPTIONS"):
                    answer = client.request(method, path, None, {"User-Agent": AGENTS[turn % len(AGENTS)]})
                    assert answer.status in (200, 302, 404) and "Set-Cookie" not in answer.headers, (method, path)
            for body in (None, b"", b"x=1", b'{"List-Unsubscribe":"One-Click"}'):
                client.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})
    assert {"/u/", "/p/", "/d/"} <= seen
    assert consent(api) == before
    for name in ("opt_out", "list_remove", "double_opt_in_confirmed", "erase_requested"):
        assert api.get("/events", event=name).json == [], name


def test_a_browser_with_scripts_that_opens_the_pages_changes_nothing(
    server: Server, mails: list[dict[str, Any]], browser: Browser
) -> None:
    """As the sandboxes of large mail services do: every page is opened, run and left alone."""
    api = server.client()
    before = consent(api)
    problems = Problems()
    page = new_page(browser, server.url, problems)
    for mail in mails[:3]:
        for path in sorted(one for one in paths(mail) if one[:3] in ("/u/", "/p/", "/d/")):
            page.goto(path, wait_until="networkidle")
            page.evaluate(
                "document.dispatchEvent(new Event('visibilitychange')); window.dispatchEvent(new Event('focus'))"
            )
            page.mouse.move(200, 200)
    page.context.close()
    assert problems.found == [] and consent(api) == before
    assert api.get("/events", event="opt_out").json == []


def test_one_click_and_the_button_do_what_they_say(
    server: Server, mails: list[dict[str, Any]], browser: Browser
) -> None:
    """RFC 8058: a POST, no cookie, no redirect, as often as one likes, and only the owner is out; so the button."""
    api = server.client()
    asks, first, second, *others = mails
    leave = {one["id"]: next(path for path in paths(one) if path.startswith("/u/")) for one in (first, second)}
    for _ in range(2):
        answer = ask(server, "POST", leave[first["id"]], {"List-Unsubscribe": "One-Click"})
        assert answer.status == 200 and "Location" not in answer.headers and "Set-Cookie" not in answer.headers
    page = new_page(browser, server.url, Problems())
    page.goto(leave[second["id"]])
    page.get_by_role("button", name="Unsubscribe").click()
    page.get_by_role("heading", name="You are unsubscribed").wait_for()
    page.goto(link(asks))
    page.get_by_role("button", name="Yes, subscribe me").click()
    page.get_by_role("heading", name="Thank you, you are subscribed").wait_for()
    page.context.close()
    out = {one["to"] for one in (first, second)}
    for one in api.all("/contacts"):
        (channel,) = one["channels"]
        assert channel["subscribed"] is (channel["value"] not in out), channel["value"]
    assert [one["data"]["source"] for one in api.get("/events", event="opt_out").json] == ["link", "one_click"]
    assert len(others) >= 2 and len(api.get("/events", event="double_opt_in_confirmed").json) == 1
