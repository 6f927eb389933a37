"""Roles and scopes cannot be bypassed on scheduled, active and live objects."""

from typing import Any

import pytest

from tests.api.test_approval import campaign_path, draft, list_id
from tests.api.test_flow_rights import account_with
from tests.api.test_flows import LETTER, STARTS
from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import add_user, user_client
from tests.kit.client import Client
from tests.kit.server import EMAIL, Server

__all__ = ["list_id"]
PAST, FUTURE = "2020-01-01T09:00:00Z", "2099-01-01T09:00:00Z"


@pytest.fixture(scope="module")
def author(server: Server) -> Client:
    """Return a client of a user who may write and not send."""
    return add_user(server, "author")


def schedule_campaign(api: Client, list_id: int) -> Any:
    """Create a scheduled campaign."""
    campaign = draft(api, list_id, scheduled_at=FUTURE)
    assert api.post(campaign_path(campaign, "send")).expect(200)["phase"] == "scheduled"
    return campaign


def comparable_campaign(api: Client, campaign: dict[str, Any]) -> Any:
    """Return a campaign without its times of change."""
    now = api.get(campaign_path(campaign)).expect(200)
    return {**now, "updated_at": "", "trigger": {**now["trigger"], "updated_at": ""}}


def test_an_author_cannot_change_a_scheduled_campaign(
    server: Server, api: Client, author: Client, list_id: int
) -> None:
    """Time, audience, content and deletion are forbidden over the API and pages; the name may change."""
    campaign = schedule_campaign(api, list_id)
    before = comparable_campaign(api, campaign)
    changes: list[tuple[str, str, Any]] = [
        ("PATCH", campaign_path(campaign), {"scheduled_at": PAST}),
        ("PATCH", campaign_path(campaign), {"scheduled_at": None}),
        ("PATCH", campaign_path(campaign), {"trigger_attributes": {"contact_list_id": None}}),
        ("PATCH", campaign_path(campaign), {"template_attributes": {"subject": "Taken"}}),
        ("PATCH", f"/templates/{campaign['template']['id']}", {"subject": "Taken"}),
        ("DELETE", campaign_path(campaign), None),
    ]
    for method, path, body in changes:
        assert author.send(method, path, body).expect(403)["required_scope"] == "campaigns:send", (method, path, body)
    page, forms = Visitor(server, "author@example.org"), campaign["template"]["id"]
    offers = [
        page.send("GET", campaign_path(campaign_id, "test")).text for campaign_id in (campaign, draft(api, list_id))
    ]
    assert ["Send test email</button>" in text for text in offers] == [False, True]
    for path, form in (
        (campaign_path(campaign, "when"), {"when": "now"}),
        (campaign_path(campaign, "to"), {"who": "all", "sure": "yes"}),
        (campaign_path(campaign, "from"), {"subject": "Taken", "from_name": "Taken"}),
        (campaign_path(campaign, "template"), {"starter": "plain"}),
        (campaign_path(campaign, "delete"), {}),
        ("/campaigns/acts", {"act": "delete_sure", "ids": campaign["id"]}),
        (f"/templates/{forms}/sections", {"kind": "text"}),
        (f"/templates/{forms}", {"subject": "Taken", "body": "<p>Taken</p>"}),
    ):  # fmt: skip
        page.send("POST", path, form)
        assert comparable_campaign(api, campaign) == before, path
    assert author.patch(campaign_path(campaign), {"name": "Only a name"}).expect(200)["name"] == "Only a name"
    api.delete(campaign_path(campaign)).expect(200)


def test_a_changed_role_applies_to_running_sessions(server: Server, api: Client) -> None:
    """A lower or higher role applies to the next request of a cookie and a token, without a new sign-in (T15)."""
    program = add_user(server, "editor", name="turning")
    page, owner = Visitor(server, "turning@example.org"), user_client(server, EMAIL)
    number = next(user["id"] for user in owner.all("/users") if user["email"] == "turning@example.org")

    def try_writes(name: str) -> tuple[int, int]:
        response = page.send("POST", "/lists", {"name": f"{name} by cookie"})
        return response.status, program.post("/lists", {"name": f"{name} by token"}).status

    assert try_writes("As editor") == (303, 201)
    owner.patch(f"/users/{number}", {"role": "viewer"}).expect(200)
    assert try_writes("As viewer") == (403, 403)
    assert (page.send("GET", "/lists").status, page.send("GET", "/settings/keys").status) == (200, 403)
    owner.patch(f"/users/{number}", {"role": "admin"}).expect(200)
    assert try_writes("As admin") == (303, 201) and page.send("GET", "/settings/keys").status == 200
    names = {row["name"] for row in api.all("/lists") if row["name"].startswith("As ")}
    assert names == {f"As {role} by {way}" for role in ("editor", "admin") for way in ("cookie", "token")}


def test_a_key_without_send_scope_cannot_change_the_time(server: Server, api: Client, list_id: int) -> None:
    """A past time or null would send at once, so it needs the scope to send."""
    campaign = schedule_campaign(api, list_id)
    writer = server.client(server.new_key("writer", "--scope", "campaigns:write,templates:write"))
    for moment in (PAST, None):
        error = writer.patch(campaign_path(campaign), {"scheduled_at": moment}).expect(403)
        assert error["required_scope"] == "campaigns:send"
    assert api.get(campaign_path(campaign)).json["phase"] == "scheduled"
    assert (
        writer.patch(campaign_path(campaign), {"scheduled_at": FUTURE, "name": "Same"}).expect(200)["phase"]
        == "scheduled"
    )
    api.delete(campaign_path(campaign)).expect(200)


def test_a_key_without_send_scope_cannot_change_what_is_live(server: Server, api: Client, list_id: int) -> None:
    """Content and audience of a scheduled campaign, and an active flow with its template, need the scope to send."""
    scopes = "campaigns:write,templates:write,flows:write,contacts:read"
    writer = server.client(server.new_key("editor of drafts", "--scope", scopes))
    campaign = schedule_campaign(api, list_id)
    flow = api.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    words, audience = {"subject": "Taken"}, {"contact_list_ids": [list_id], "segment_ids": []}
    changes: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("PATCH", campaign_path(campaign), {"template_attributes": words}),
        (
            "PATCH",
            campaign_path(campaign),
            {"trigger_attributes": {"data": audience}},
        ),
        ("PATCH", f"/templates/{campaign['template']['id']}", words),
        ("PATCH", f"/flows/{flow['id']}", {"steps": [LETTER | {"subject": "Taken"}]}),
        ("PATCH", f"/templates/{flow['steps'][0]['template_id']}", words),
    )
    for change in changes[3:]:
        assert writer.send(*change).status == 200, change
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    for change in changes:
        assert writer.send(*change).expect(403)["required_scope"] == "campaigns:send", change
    api.delete(f"/flows/{flow['id']}").expect(200)
    api.delete(campaign_path(campaign)).expect(200)


def test_a_test_key_cannot_change_a_live_campaign(server: Server, api: Client, list_id: int) -> None:
    """A test key cannot change, pause, cancel or delete a campaign that a live key has sent; drafts it can."""
    tester = server.client(server.new_key("tester", "--test"))
    campaign = schedule_campaign(api, list_id)
    words = {"template_attributes": {"subject": "Taken"}}
    for method, path, body in (
        ("PATCH", campaign_path(campaign), {"scheduled_at": PAST}),
        ("PATCH", campaign_path(campaign), {"status": "paused"}),
        ("PATCH", campaign_path(campaign), words),
        ("POST", campaign_path(campaign, "send"), words),
        ("DELETE", campaign_path(campaign), None),
        ("PATCH", f"/templates/{campaign['template']['id']}", {"subject": "Taken"}),
    ):  # fmt: skip
        assert tester.send(method, path, body).status == 403, (method, path, body)
    api.patch(campaign_path(campaign), {"status": "paused"}).expect(200)
    for method, path, body in (
        ("POST", campaign_path(campaign, "send"), {}), ("PATCH", campaign_path(campaign), {"status": "active"}),
        ("PATCH", campaign_path(campaign), {"status": "cancelled"}), ("DELETE", campaign_path(campaign), None),
    ):  # fmt: skip
        assert tester.send(method, path, body).status == 403, (method, path, body)
    assert api.get(campaign_path(campaign)).json["status"] == "paused"
    api.delete(campaign_path(campaign)).expect(200)
    mine = draft(tester, list_id)
    assert tester.delete(campaign_path(mine)).status == 200


def test_an_author_cannot_change_a_template_of_an_active_flow(api: Client, author: Client) -> None:
    """The template of a draft flow can be changed by an author, that of an active one cannot."""
    flow = api.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    words = f"/templates/{flow['steps'][0]['template_id']}"
    assert author.patch(words, {"subject": "Mine"}).status == 200
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    assert author.patch(words, {"subject": "Taken"}).expect(403)["required_scope"] == "campaigns:send"
    assert api.get(words).json["subject"] == "Mine"
    api.delete(f"/flows/{flow['id']}").expect(200)


def test_users_cannot_approve_their_own_content(server: Server, api: Client, list_id: int) -> None:
    """The last author of a campaign or flow cannot approve it, neither with a session nor with an own key."""
    owner, admin = user_client(server), add_user(server, "admin")
    of_owner, of_admin = (
        server.client(user_client.post("/api_keys", {"name": "A program", "scope": "full"}).expect(201)["key"])
        for user_client in (owner, admin)
    )
    with account_with(server, "approval_required", 1), account_with(server, "approval_by_another", 1):
        campaign = draft(api, list_id)
        flow = api.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
        for path, template in (
            (campaign_path(campaign), campaign["template"]["id"]),
            (f"/flows/{flow['id']}", flow["steps"][0]["template_id"]),
        ):  # fmt: skip
            owner.post(f"{path}/approve").expect(200)
            owner.patch(f"/templates/{template}", {"subject": "Mine"}).expect(200)
            assert owner.get(path).json["approval_state"] == "pending_review"
            owner.post(f"{path}/approve").expect(403)
            # Neither can a key of the same user approve, send or activate; a key of another user can
            for verb in ("approve", "send" if path == campaign_path(campaign) else "activate"):
                assert of_owner.post(f"{path}/{verb}").status in (403, 422), verb
            assert owner.get(path).json["approval_state"] == "pending_review"
            of_admin.post(f"{path}/approve").expect(200)
        # Choosing another template on the page counts as a change of content
        api.post(f"{campaign_path(campaign)}/approve").expect(200)
        other = api.post("/templates", {"name": "Other", "subject": "x", "body": "<p>Other.</p>"}).expect(201)["id"]
        Visitor(server, EMAIL).send("POST", campaign_path(campaign, "template"), {"template": other})
        assert api.get(campaign_path(campaign)).json["approval_state"] == "pending_review"
        owner.post(campaign_path(campaign, "approve")).expect(403)
    api.delete(f"/flows/{flow['id']}").expect(200)
