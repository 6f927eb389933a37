"""The pages of proposals: the key of an agent, what a user sees and decides, and the switch."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.api.test_proposals import STEPS, SUBSCRIBED, TEXT, propose
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server


@pytest.fixture(scope="module")
def agent(server: Server, user: ScriptlessBrowser) -> Iterator[Client]:
    """Return a client of an agent whose key was created on the page."""
    page = HtmlPage(user, "/settings/keys")
    page.fill("Name", "Assistant")
    page.check("AI agent")
    created = page.press("Create key")
    assert created.has(".tag", "agent")
    match = re.search(r'value="(camp_live_\w{36})"', created.html)
    assert match is not None
    yield server.client(match[1])


@pytest.fixture(scope="module")
def list_id(api: Client) -> int:
    """Return the id of a list with two contacts."""
    number = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    for name in "ab":
        api.post("/contacts", {"email": f"{name}@example.org", "opt_in": True, "list_ids": [number]}).expect(201)
    return number


def draft(agent: Client, list_id: int) -> Any:
    """Draft a campaign to the list."""
    body = {"name": "News", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": TEXT}
    return agent.post("/campaigns", body).expect(201)


def test_a_key_of_an_agent_is_no_test_key(user: ScriptlessBrowser) -> None:
    """The form says so at its field."""
    page = HtmlPage(user, "/settings/keys")
    page.fill("Name", "Tester")
    page.check("AI agent")
    page.check("Test key")
    assert "must be false for an agent" in page.press("Create key").text.lower()


def test_a_user_approves_what_the_page_shows(user: ScriptlessBrowser, api: Client, agent: Client, list_id: int) -> None:
    """The page has reason, recipients, preflight and values; a change in between is shown instead of sent."""
    campaign = draft(agent, list_id)
    proposal = propose(agent, "send_campaign", campaign["id"], note="<b>It is Friday.</b>")
    listed = HtmlPage(user, "/proposals")
    assert listed.has(".nav .count", "1") and listed.has("td", "Assistant")
    page = listed.follow("Send campaign: News")
    assert "<b>It is Friday.</b>" in page.text and page.has("dd", "2") and page.has("h2", "Preflight")
    agent.patch(f"/campaigns/{campaign['id']}", {"template_attributes": {"subject": "Other"}}).expect(200)
    response, _ = page.send("Approve and send")
    assert response.status == 409 and "has changed since you saw it" in response.text
    assert api.get(f"/campaigns/{campaign['id']}").expect(200)["phase"] == "draft"
    again = HtmlPage(user, f"/proposals/{proposal['id']}")
    assert "changed since it was proposed" in again.text and again.has(".after", "Other")
    assert "Approved" in again.press("Approve and send").text
    assert api.get(f"/campaigns/{campaign['id']}").expect(200)["phase"] in ("holding", "sending")


def test_a_source_is_closed_only_if_the_preview_shows_its_words(
    user: ScriptlessBrowser, agent: Client, list_id: int
) -> None:
    """The preview has sample values and no plain-text version, so conditions and that version are shown open."""
    footer = "{{ unsubscribe_url }}"
    design = {"sections": [{"type": "text", "props": {"content": "Hi"}}, {"type": "footer"}]}
    for content, is_closed in (
        ({"subject": "S", "body": f"<p>Hello {footer}</p>"}, True),
        (
            {"subject": "S", "body": "<p>{% if first_name %}Hi{% else %}Pay{% endif %} " + footer + "</p>"},
            False,
        ),
        ({"subject": "S", "body": f"Pay <now> {footer}", "design": design}, False),
    ):
        body = {"name": "N", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content}
        proposal = propose(agent, "send_campaign", agent.post("/campaigns", body).expect(201)["id"])
        page = HtmlPage(user, f"/proposals/{proposal['id']}")
        assert ("HTML source" in page.text) == is_closed, content
        agent.post(f"/proposals/{proposal['id']}/withdraw").expect(200)


def test_emails_are_shown_before_and_after(
    server: Server, user: ScriptlessBrowser, api: Client, agent: Client, browser: Browser, list_id: int
) -> None:
    """Frames show them without images of other servers; the source is folded away, but no other value is."""
    html = '<p>Thanks {{ unsubscribe_url }}</p><img src="https://images.example.org/x?read=secret" alt="a">'
    receipt = api.post("/templates", {"name": "Receipt", **TEXT}).expect(201)["id"]
    changes = {"subject": "<b>Hi</b>", "body": html}
    proposals = [propose(agent, "change_template", receipt, changes=changes)]
    flow = api.post("/flows", {"name": "Thanks", "trigger": {"event": "paid"}, "steps": STEPS}).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    steps = [
        {**flow["steps"][0], "body": html},
        {"filters": SUBSCRIBED, "yes": [{"subject": "New", "body": "<p>New</p>"}]},
    ]
    proposals.append(propose(agent, "change_flow", flow["id"], changes={"steps": steps}))
    proposals.append(propose(agent, "send_campaign", draft(agent, list_id)["id"]))
    proposals.append(propose(agent, "start_flow", agent.post("/flows", {
        "name": "D", "trigger": {"event": "paid"}, "steps": STEPS}).expect(201)["id"]))  # fmt: skip
    sides = [
        re.findall(r"preview\?n=(\d)&(?:amp;)?side=(\w+)", user.get(f"/proposals/{row['id']}")) for row in proposals
    ]
    both, new = [("1", "before"), ("1", "after")], [("1", "after")]
    assert sides == [both, [*both, ("2", "after")], new, new]
    path = f"/proposals/{proposals[0]['id']}"
    framed = user.request("GET", f"{path}/preview?n=1&side=after")
    assert "Thanks" in framed.text and "img-src https:" not in framed.headers["content-security-policy"]
    assert "sandbox" in framed.headers["content-security-policy"]
    assert user.status("GET", f"{path}/preview?n=7&side=after") == 404
    page = HtmlPage(user, path)
    assert page.has(".after details", "images.example.org") and not page.has(".after details", "<b>Hi</b>")
    assert page.has(".after .words", "<b>Hi</b>")
    framed_urls: list[str] = []
    failures: list[tuple[str, str | None]] = []
    shown = sign_in(new_page(browser, server.url, Problems()))
    shown.on("request", lambda request: framed_urls.append(request.url))
    shown.on("requestfailed", lambda request: failures.append((request.url, request.failure)))
    shown.goto(path)
    shown.frame_locator("iframe >> nth=1").get_by_text("Thanks").wait_for()
    assert not shown.get_by_text("images.example.org").is_visible()
    shown.context.close()
    assert any("side=after" in url for url in framed_urls)
    assert [(url.partition("?")[0], why) for url, why in failures] == [("https://images.example.org/x", "csp")]


def test_a_user_returns_a_proposal_with_a_note(user: ScriptlessBrowser, agent: Client) -> None:
    """The page of a flow has the replay; the agent reads the note."""
    flow = agent.post("/flows", {"name": "F", "trigger": {"event": "order"}, "steps": STEPS}).expect(201)
    proposal = propose(agent, "start_flow", flow["id"])
    page = HtmlPage(user, f"/proposals/{proposal['id']}")
    assert page.has("h2", "The last 90 days, simulated") and page.has("button", "Approve and start")
    user.submit(f"/proposals/{proposal['id']}/return", note="Wait a week.")
    assert agent.get(f"/proposals/{proposal['id']}").expect(200)["answer"] == "Wait a week."
    assert "Wait a week." in page.reload().text and not page.reload().has("button", "Approve and start")


def test_a_replay_of_something_else_is_not_shown(user: ScriptlessBrowser, api: Client, agent: Client) -> None:
    """What the agent replays besides, with other steps or another time, says nothing about the proposal."""
    flow = agent.post("/flows", {"name": "Swap", "trigger": {"event": "order"}, "steps": STEPS}).expect(201)
    path = f"/flows/{flow['id']}"
    agent.post(f"{path}/replay", {"days": 1}).expect(202)  # It may run when the proposal is made.
    starting = propose(agent, "start_flow", flow["id"])
    others: list[dict[str, Any]] = [{"until": "2026-02-01T00:00:00Z"}, {"steps": [{"duration": 60}]}, {"days": 1}]
    for kind in ("start_flow", "change_flow"):
        proposal = starting
        if kind == "change_flow":
            agent.post(f"/proposals/{starting['id']}/withdraw").expect(200)
            api.post(f"{path}/activate").expect(200)
            steps = [*api.get(path).expect(200)["steps"], {"duration": 86_400}, *STEPS]
            proposal = propose(agent, kind, flow["id"], changes={"steps": steps})
        page_path = f"/proposals/{proposal['id']}"
        api.wait(f"{path}/replay", lambda row: row["state"] == "complete")
        assert "sumline" in HtmlPage(user, page_path).html, kind
        for other in others:
            agent.post(f"{path}/replay", other).expect(202)
            api.wait(f"{path}/replay", lambda row: row["state"] == "complete")
            page = HtmlPage(user, page_path)
            assert "sumline" not in page.html and "The replay has no result." in page.text, other


def test_one_button_stops_all_agents(user: ScriptlessBrowser, agent: Client) -> None:
    """The page says since when, and lets them go on."""
    user.submit("/proposals/agents", stopped="yes")
    assert agent.get("/campaigns").status == 403
    page = HtmlPage(user, "/proposals")
    assert "All agents have been stopped since" in page.text
    page.press("Let agents go on")
    assert agent.get("/campaigns").status == 200


def test_the_pages_fit_a_phone_and_are_accessible(
    browser: Browser, server: Server, agent: Client, list_id: int
) -> None:
    """Neither page has a violation in light or dark, or is wider than a phone."""
    proposal = propose(agent, "send_campaign", draft(agent, list_id)["id"], note="It is Friday. " * 20)
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=390))
    for path in ("/proposals", f"/proposals/{proposal['id']}"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert find_violations_in_light_and_dark(page) == [], path
    page.context.close()
    assert problems.found == []
