"""Approval on the pages: an editor requests it, and an owner approves or rejects with a note."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.api.test_approval import campaign_path, draft
from tests.api.test_flows import LETTER, STARTS
from tests.api.test_threats_pages import Visitor
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.sampling import thin_out
from tests.kit.server import PASSWORD, Server


@pytest.fixture(scope="module")
def visitors(server: Server) -> dict[str, Visitor]:
    """A visitor for each role: owner, admin, editor, author."""
    for role in ("admin", "editor", "author"):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=f"{PASSWORD}\n")
    by_role = {role: Visitor(server, f"{role}@example.org") for role in ("admin", "editor", "author")}
    return by_role | {"owner": Visitor(server, "owner@example.com")}


@pytest.fixture(scope="module")
def list_id(api: Client) -> int:
    """The id of a list with one contact."""
    new_id = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    api.post("/contacts", {"email": "reader@example.org", "list_ids": [new_id]}).expect(201)
    return new_id


@pytest.fixture(autouse=True)
def required(visitors: dict[str, Visitor]) -> Iterator[None]:
    """Require approval during a test."""
    assert save_options(visitors["owner"], "approval_required").status == 303
    yield
    save_options(visitors["owner"])


def save_options(owner: Visitor, *names: str) -> Any:
    """Save the settings page with only these boxes checked."""
    return owner.send("POST", "/settings", {"name": "Acme", "checkboxes": "approval", **dict.fromkeys(names, "yes")})


def send_campaign(visitor: Visitor, campaign: dict[str, Any]) -> int:
    """Submit the send form of a campaign and return the status."""
    return visitor.send("POST", campaign_path(campaign, "send"), {"expected": "1"}).status


@pytest.mark.full
def test_an_owner_approves_an_editors_campaign(api: Client, visitors: dict[str, Visitor], list_id: int) -> None:
    """An editor cannot send before approval; the owner sees the request, rejects with a note, then approves."""
    campaign, editor, owner = draft(api, list_id), visitors["editor"], visitors["owner"]
    review = editor.send("GET", campaign_path(campaign, "send")).text
    assert "Request approval" in review and "Send to 1 contact" not in review
    assert send_campaign(editor, campaign) == 422
    for visitor in (editor, visitors["author"]):
        assert all(visitor.send("POST", campaign_path(campaign, verb)).status == 403 for verb in ("approve", "reject"))
    assert editor.send("POST", campaign_path(campaign, "ask")).status == 303
    assert "Awaiting approval" in owner.send("GET", "/").text
    page = owner.send("GET", "/campaigns?phase=asked").text
    assert f'/campaigns/{campaign["id"]}"' in page and re.search(r"Awaiting approval\W", page)
    assert "Request approval" not in editor.send("GET", campaign_path(campaign, "send")).text
    assert "requested approval" in owner.send("GET", campaign_path(campaign)).text
    assert owner.send("POST", campaign_path(campaign, "reject"), {"note": "Shorter <b>"}).status == 303
    assert "“Shorter &lt;b&gt;”" in editor.send("GET", campaign_path(campaign)).text
    editor.send("POST", campaign_path(campaign, "from"), {"subject": "Short"})
    editor.send("POST", campaign_path(campaign, "ask"))
    assert owner.send("POST", campaign_path(campaign, "approve")).status == 303
    assert send_campaign(editor, campaign) == 303
    assert api.get(campaign_path(campaign)).json["status"] == "active"


def test_pages_name_who_decided(api: Client, visitors: dict[str, Visitor], list_id: int) -> None:
    """Home counts what waits for a user; the campaign names who rejected or approved it."""
    campaign, editor, owner = draft(api, list_id), visitors["editor"], visitors["owner"]
    path, name = campaign_path(campaign), campaign["name"]
    assert "Review and request approval" in editor.send("GET", path).text
    review = editor.send("GET", campaign_path(campaign, "send")).text
    assert "When it is approved, you send it." in review and "You can undo this" not in review
    editor.send("POST", campaign_path(campaign, "ask"))
    page = editor.send("GET", path).text
    assert '<span class="pill sched">Awaiting approval</span>' in page and "Fix these before you send." not in page
    assert "needs your approval." in owner.send("GET", "/").text
    assert "need your approval." not in (home := editor.send("GET", "/").text) and "needs your approval." not in home

    owner.send("POST", campaign_path(campaign, "reject"), {"note": " "})
    assert api.get(path).json["approval_state"] == "pending_review"
    owner.send("POST", campaign_path(campaign, "reject"), {"note": "Shorter"})
    assert f"“{name}” was rejected: Shorter" in editor.send("GET", "/").text
    assert f"“{name}” was rejected: Shorter" not in owner.send("GET", "/").text
    for rejected in (editor.send("GET", path).text, editor.send("GET", campaign_path(campaign, "send")).text):
        assert re.search(r"Rejected by [^<,]+, today [^<]*: “Shorter”", rejected)

    editor.send("POST", campaign_path(campaign, "from"), {"subject": "Short"})
    editor.send("POST", campaign_path(campaign, "ask"))
    owner.send("POST", campaign_path(campaign, "approve"))
    page = editor.send("GET", path).text
    assert '<span class="pill done">Approved</span>' in page
    assert re.search(r"Approved by [^<,]+, today [^<]*\. A change needs a new approval", page)
    assert "Approved. Next: send" in editor.send("GET", "/campaigns").text
    editor.send("POST", campaign_path(campaign, "from"), {"subject": "Another"})
    assert "A change needs a new approval" not in editor.send("GET", path).text

    owner.send("POST", campaign_path(campaign, "send"), {"expected": "1"})
    owner.send("POST", campaign_path(campaign, "undo"))
    page = editor.send("GET", path).text
    assert "Approved. A change needs a new approval." in page and "Approved by" not in page


def test_approval_by_another_user(api: Client, visitors: dict[str, Visitor], list_id: int) -> None:
    """The last editor of a campaign can neither approve nor send it; another user can."""
    owner, admin = visitors["owner"], visitors["admin"]
    save_options(owner, "approval_required", "approval_by_another")
    campaign = draft(api, list_id)
    owner.send("POST", campaign_path(campaign, "from"), {"subject": "Mine"})
    assert send_campaign(owner, campaign) == 422
    assert owner.send("POST", campaign_path(campaign, "approve")).status == 403
    review = owner.send("GET", campaign_path(campaign, "send")).text
    assert "Someone other than the last editor must approve it" in review
    assert owner.send("POST", campaign_path(campaign, "ask")).status == 303
    admin.send("POST", campaign_path(campaign, "approve"))
    assert send_campaign(owner, campaign) == 303
    # A sole approver would be allowed, since no other user could approve
    number = re.search(r"/settings/team/(\d+)/disable[^>]*>", owner.send("GET", "/settings/team").text)
    assert number is None or int(number[1]) > 1
    own_campaign = draft(api, list_id)
    admin.send("POST", campaign_path(own_campaign, "from"), {"subject": "Theirs"})
    assert send_campaign(admin, own_campaign) == 422 and send_campaign(owner, own_campaign) == 303


def shown_state(page: str) -> str:
    """Return the hidden field that says which content a page shows."""
    match = re.search(r'name="shown" value="([^"]+)"', page)
    assert match
    return match[1]


def test_a_decision_is_about_what_the_page_showed(api: Client, visitors: dict[str, Visitor], list_id: int) -> None:
    """After an edit, neither an approval nor a send from a page that showed the old content has an effect."""
    editor, owner = visitors["editor"], visitors["owner"]
    campaign = draft(api, list_id)
    approve, letter = campaign_path(campaign, "approve"), campaign_path(campaign)
    editor.send("POST", campaign_path(campaign, "ask"))
    before = {"shown": shown_state(owner.send("GET", letter).text)}
    review = {"expected": "1", "shown": shown_state(owner.send("GET", campaign_path(campaign, "send")).text)}
    editor.send("POST", campaign_path(campaign, "from"), {"subject": "Not what the owner read"})
    assert owner.send("POST", approve, before).status == 303
    page = owner.send("GET", letter).text
    assert "The content has changed since you opened this page." in page
    assert api.get(letter).json["approval_state"] == "pending_review" and send_campaign(editor, campaign) == 422
    refused = owner.send("POST", campaign_path(campaign, "send"), review)
    assert refused.status == 422 and "The content has changed since you opened this page." in refused.text
    assert owner.send("POST", approve, {"shown": shown_state(page)}).status == 303
    assert api.get(letter).json["approval_state"] == "approved"
    assert owner.send("POST", campaign_path(campaign, "send"), {**review, "shown": shown_state(page)}).status == 303

    flow = f"/flows/{api.post('/flows', {'trigger': STARTS, 'steps': [LETTER]}).expect(201)['id']}"
    editor.send("POST", f"{flow}/ask")
    before = {"shown": shown_state(owner.send("GET", flow).text)}
    api.patch(flow, {"steps": [{**LETTER, "subject": "Not what the owner read"}]}).expect(200)
    owner.send("POST", f"{flow}/approve", before)
    assert api.get(flow).json["approval_state"] == "pending_review"
    owner.send("POST", f"{flow}/approve", {"shown": shown_state(owner.send("GET", flow).text)})
    assert api.get(flow).json["approval_state"] == "approved"


CHANGED = "The content has changed since you opened this page."


def test_a_changed_segment_is_a_change_of_what_was_shown(api: Client, visitors: dict[str, Visitor]) -> None:
    """An edit of its segment renews a request for approval that waits, and who made it cannot approve it."""
    owner, admin, editor = visitors["owner"], visitors["admin"], visitors["editor"]
    save_options(owner, "approval_required", "approval_by_another")
    filters = [{"name": "contact_email", "predicate": "start", "value": "reader"}]
    segment = api.post("/segments", {"name": "Some", "filters": filters}).expect(201)["id"]
    mirror = api.post("/lists", {"name": "Mirror", "segment_id": segment}).expect(201)["id"]
    campaign = draft(api, mirror)
    path = campaign_path(campaign)
    editor.send("POST", campaign_path(campaign, "ask"))
    before = {"shown": shown_state(owner.send("GET", path).text)}
    wider = {"name": "Some", "rules.0.name": "contact_email", "rules.0.predicate": "present"}
    assert admin.send("POST", f"/segments/{segment}", wider).status == 303
    assert api.get(f"/segments/{segment}").json["filters"] != filters
    owner.send("POST", f"{path}/approve", before)
    page = owner.send("GET", path).text
    assert CHANGED in page and api.get(path).json["approval_state"] == "pending_review"
    assert admin.send("POST", f"{path}/approve", {"shown": shown_state(page)}).status == 403
    owner.send("POST", f"{path}/approve", {"shown": shown_state(page)})
    assert api.get(path).json["approval_state"] == "approved"


def test_a_flow_starts_as_the_page_showed_it(api: Client, visitors: dict[str, Visitor]) -> None:
    """After an edit by another user, neither Start nor Publish has an effect, and the new state is shown."""
    owner, editor = visitors["owner"], visitors["editor"]
    save_options(owner)
    segment = api.post("/segments", {"name": "Narrow", "filters": []}).expect(201)["id"]
    member = {"name": "contact_segment", "predicate": "eq", "value": segment}
    split = {"filters": [member], "yes": [LETTER], "no": []}
    flow = f"/flows/{api.post('/flows', {'trigger': STARTS, 'steps': [LETTER, split]}).expect(201)['id']}"
    changes = (
        lambda: editor.send("POST", f"{flow}/steps/1", {"subject": "Not what the owner read"}),
        lambda: api.patch(f"/segments/{segment}", {"filters": [{"name": "contact_verified", "predicate": "true"}]}),
    )
    for change in changes:
        before = {"shown": shown_state(owner.send("GET", flow).text), "unfinished": "yes"}
        assert change().status in (200, 303)
        assert owner.send("POST", f"{flow}/activate", before).status == 303
        page = owner.send("GET", flow).text
        assert CHANGED in page and api.get(flow).json["status"] == "draft"
    started = owner.send("POST", f"{flow}/activate", {"shown": shown_state(page), "unfinished": "yes"})
    assert started.status == 303, re.findall(r'id="go-live-form".*?</form>', started.text, re.DOTALL)
    assert api.get(flow).json["status"] == "active"

    editor.send("POST", f"{flow}/steps/1", {"subject": "One change"})
    before = {"shown": shown_state(owner.send("GET", f"{flow}/publish").text), "unfinished": "yes"}
    editor.send("POST", f"{flow}/steps/1", {"subject": "Another change"})
    refused = owner.send("POST", f"{flow}/publish", before)
    assert refused.status == 422 and CHANGED in refused.text and "Another change" in refused.text
    version = api.get(flow).json["version"]
    assert (
        owner.send("POST", f"{flow}/publish", {"shown": shown_state(refused.text), "unfinished": "yes"}).status == 303
    )
    assert api.get(flow).json["version"] == version + 1


def test_pasted_html_withdraws_the_approval(api: Client, visitors: dict[str, Visitor], list_id: int) -> None:
    """It is an edit of the content like any other."""
    campaign = draft(api, list_id)
    api.post(campaign_path(campaign, "approve")).expect(200)
    editor = visitors["editor"]
    assert editor.send("POST", campaign_path(campaign, "html"), {"html": "<p>Other</p>"}).status == 303
    assert api.get(campaign_path(campaign)).json["approval_state"] == "pending_review"
    assert send_campaign(editor, campaign) == 422


def test_approval_of_flows(api: Client, visitors: dict[str, Visitor]) -> None:
    """An editor starts a flow only after approval; a rejection shows its note."""
    editor, owner = visitors["editor"], visitors["owner"]
    flow = f"/flows/{api.post('/flows', {'trigger': STARTS, 'steps': [LETTER]}).expect(201)['id']}"
    assert "Request approval" in editor.send("GET", flow).text
    assert editor.send("POST", f"{flow}/activate").status == 422
    assert editor.send("POST", f"{flow}/approve").status == 403
    assert editor.send("POST", f"{flow}/ask").status == 303
    assert flow in owner.send("GET", "/").text
    owner.send("POST", f"{flow}/reject", {"note": "Not on Sundays"})
    assert "“Not on Sundays”" in editor.send("GET", flow).text
    owner.send("POST", f"{flow}/approve")
    # Its link leads to a reserved example domain, which counts as unfinished
    assert editor.send("POST", f"{flow}/activate", {"unfinished": "yes"}).status == 303
    assert api.get(flow).json["status"] == "active"


def test_approval_banner_and_dialogs(
    api: Client,
    visitors: dict[str, Visitor],
    list_id: int,
    browser: Browser,
    server: Server,
    browser_problems: Problems,
) -> None:
    """The banner and the dialogs work and are accessible, on desktop and phone."""
    campaign = draft(api, list_id)
    flow = f"/flows/{api.post('/flows', {'trigger': STARTS, 'steps': [LETTER]}).expect(201)['id']}"
    visitors["editor"].send("POST", f"{flow}/ask")
    editor = sign_in(new_page(browser, server.url, browser_problems), "editor@example.org", PASSWORD)
    editor.goto(campaign_path(campaign))
    editor.get_by_role("link", name="Review and request approval").click()
    ask_button = editor.get_by_role("dialog").get_by_role("button", name="Request approval")
    expect(ask_button).to_be_visible()
    assert find_violations_in_light_and_dark(editor) == []
    ask_button.click()
    expect(editor.locator(".banner")).to_contain_text("An owner or admin must approve it")
    owner = sign_in(new_page(browser, server.url, browser_problems, width=390))
    for path in thin_out((campaign_path(campaign), flow), 2):
        owner.goto(path)
        banner = owner.locator(".banner").filter(has_text="requested approval")
        expect(banner.get_by_role("button", name="Approve")).to_be_in_viewport()
        banner.get_by_role("button", name="Reject").click()
        expect(owner.get_by_label("What should be changed")).to_be_focused()
        assert find_violations_in_light_and_dark(owner) == []
        owner.get_by_label("What should be changed").fill("Shorter.")
        owner.get_by_role("dialog").get_by_role("button", name="Reject").click()
        expect(owner.locator(".banner.bad")).to_contain_text("“Shorter.”")
        assert find_violations_in_light_and_dark(owner) == []
    editor.context.close()
    owner.context.close()
    assert not browser_problems.found
