"""Approval on the pages: an editor asks, an owner approves or says what to change, and nobody approves of their own."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.api.test_approval import at, draft
from tests.api.test_flows import LETTER, STARTS
from tests.api.test_threats_pages import Visitor
from tests.kit.axe import faults_in_both_looks
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.server import PASSWORD, Server


@pytest.fixture(scope="module")
def people(server: Server) -> dict[str, Visitor]:
    """Who there is: the owner, another admin, an editor and an author."""
    for role in ("admin", "editor", "author"):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=f"{PASSWORD}\n")
    found = {role: Visitor(server, f"{role}@example.org") for role in ("admin", "editor", "author")}
    return found | {"owner": Visitor(server, "owner@example.com")}


@pytest.fixture(scope="module")
def crowd(api: Client) -> int:
    """A list with somebody in it."""
    number = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    api.post("/contacts", {"email": "reader@example.org", "list_ids": [number]}).expect(201)
    return number


@pytest.fixture(autouse=True)
def required(people: dict[str, Visitor]) -> Iterator[None]:
    """Approval is wanted; afterwards it is not any more."""
    assert switched(people["owner"], "approval_required").status == 303
    yield
    switched(people["owner"])


def switched(owner: Visitor, *names: str) -> Any:
    """Tick these boxes on the page of settings and no other."""
    return owner.send("POST", "/settings", {"name": "Acme", "asks": "approval", **dict.fromkeys(names, "yes")})


def sent(who: Visitor, campaign: dict[str, Any]) -> int:
    """Press the button of the review and answer the status."""
    return who.send("POST", at(campaign, "send"), {"expected": "1"}).status


def test_an_editor_asks_and_an_owner_approves(api: Client, people: dict[str, Visitor], crowd: int) -> None:
    """Until then nothing can be sent; Home and a chip say what waits; afterwards the editor sends it."""
    campaign, editor, owner = draft(api, crowd), people["editor"], people["owner"]
    review = editor.send("GET", at(campaign, "send")).text
    assert "Ask for approval" in review and "Send to 1 person" not in review
    assert sent(editor, campaign) == 422
    for who in (editor, people["author"]):
        assert all(who.send("POST", at(campaign, verb)).status == 403 for verb in ("approve", "reject"))
    assert editor.send("POST", at(campaign, "ask")).status == 303
    assert "Waits for approval" in owner.send("GET", "/").text
    found = owner.send("GET", "/campaigns?phase=asked").text
    assert f'/campaigns/{campaign["id"]}"' in found and re.search(r"Waits for approval\W", found)
    assert "Ask for approval" not in editor.send("GET", at(campaign, "send")).text
    assert "asked for approval" in owner.send("GET", at(campaign)).text
    assert owner.send("POST", at(campaign, "reject"), {"note": "Shorter <b>"}).status == 303
    assert "Somebody rejected it: Shorter &lt;b&gt;" in editor.send("GET", at(campaign)).text
    editor.send("POST", at(campaign, "from"), {"subject": "Short"})
    editor.send("POST", at(campaign, "ask"))
    assert owner.send("POST", at(campaign, "approve")).status == 303
    assert sent(editor, campaign) == 303
    assert api.get(at(campaign)).json["status"] == "active"


def test_somebody_else_than_who_wrote_it(api: Client, people: dict[str, Visitor], crowd: int) -> None:
    """Whoever changed it last neither approves nor sends, on pages and with an approval of their own; another does."""
    owner, admin = people["owner"], people["admin"]
    switched(owner, "approval_required", "approval_by_another")
    campaign = draft(api, crowd)
    owner.send("POST", at(campaign, "from"), {"subject": "Mine"})
    assert sent(owner, campaign) == 422
    assert owner.send("POST", at(campaign, "approve")).status == 403
    assert "somebody else has to" in owner.send("GET", at(campaign, "send")).text
    assert owner.send("POST", at(campaign, "ask")).status == 303
    admin.send("POST", at(campaign, "approve"))
    assert sent(owner, campaign) == 303
    # Whoever is the only one may: there would be nobody to ask
    number = re.search(r"/settings/team/(\d+)/disable[^>]*>", owner.send("GET", "/settings/team").text)
    assert number is None or int(number[1]) > 1
    mine = draft(api, crowd)
    admin.send("POST", at(mine, "from"), {"subject": "Theirs"})
    assert sent(admin, mine) == 422 and sent(owner, mine) == 303


def test_flows_are_asked_about_too(api: Client, people: dict[str, Visitor]) -> None:
    """An editor may not start one without; what is rejected says why; what was approved starts."""
    editor, owner = people["editor"], people["owner"]
    flow = f"/flows/{api.post('/flows', {'trigger': STARTS, 'steps': [LETTER]}).expect(201)['id']}"
    assert "Ask for approval" in editor.send("GET", flow).text
    assert editor.send("POST", f"{flow}/activate").status == 422
    assert editor.send("POST", f"{flow}/approve").status == 403
    assert editor.send("POST", f"{flow}/ask").status == 303
    assert flow in owner.send("GET", "/").text
    owner.send("POST", f"{flow}/reject", {"note": "Not on Sundays"})
    assert "Somebody rejected it: Not on Sundays" in editor.send("GET", flow).text
    owner.send("POST", f"{flow}/approve")
    # Its link is to a name kept for examples
    assert editor.send("POST", f"{flow}/activate", {"unfinished": "yes"}).status == 303
    assert api.get(flow).json["status"] == "active"


def test_banner_and_dialogs_are_sound(
    api: Client, people: dict[str, Visitor], crowd: int, browser: Browser, server: Server, browser_problems: Problems
) -> None:
    """Asked about in a dialog, decided in a banner and a dialog: in both looks, on a desk and on a phone."""
    campaign = draft(api, crowd)
    flow = f"/flows/{api.post('/flows', {'trigger': STARTS, 'steps': [LETTER]}).expect(201)['id']}"
    people["editor"].send("POST", f"{flow}/ask")
    editor = sign_in(new_page(browser, server.url, browser_problems), "editor@example.org", PASSWORD)
    editor.goto(at(campaign))
    editor.get_by_role("link", name="Review and send").click()
    ask = editor.get_by_role("dialog").get_by_role("button", name="Ask for approval")
    expect(ask).to_be_visible()
    assert faults_in_both_looks(editor) == []
    ask.click()
    expect(editor.locator(".banner")).to_contain_text("An owner or admin decides")
    owner = sign_in(new_page(browser, server.url, browser_problems, width=390))
    for path in (at(campaign), flow):
        owner.goto(path)
        banner = owner.locator(".banner").filter(has_text="asked for approval")
        expect(banner.get_by_role("button", name="Approve")).to_be_in_viewport()
        assert faults_in_both_looks(owner) == []
        banner.get_by_role("button", name="Reject").click()
        expect(owner.get_by_label("What should be changed")).to_be_focused()
        assert faults_in_both_looks(owner) == []
        owner.get_by_label("What should be changed").fill("Shorter.")
        owner.get_by_role("dialog").get_by_role("button", name="Reject").click()
        expect(owner.locator(".banner.bad")).to_contain_text("rejected it: Shorter.")
        assert faults_in_both_looks(owner) == []
    editor.context.close()
    owner.context.close()
    assert not browser_problems.found
