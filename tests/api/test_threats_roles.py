"""Ways round a role or a scope: what is armed, under way or live is no back door for those who may not send."""

from typing import Any

import pytest

from tests.api.test_approval import at, draft
from tests.api.test_flow_rights import account_with
from tests.api.test_flows import LETTER, STARTS
from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import add_user, user_client
from tests.kit.client import Client
from tests.kit.server import EMAIL, Server

PAST, FUTURE = "2020-01-01T09:00:00Z", "2099-01-01T09:00:00Z"


@pytest.fixture(scope="module")
def author(server: Server) -> Client:
    """Who writes and does not send, signed in."""
    return add_user(server, "author")


@pytest.fixture(scope="module")
def crowd(api: Client) -> int:
    """A list with somebody in it."""
    number = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    api.post("/contacts", {"email": "reader@example.org", "list_ids": [number]}).expect(201)
    return number


def armed(api: Client, crowd: int) -> Any:
    """Make a campaign whose time is to come."""
    campaign = draft(api, crowd, scheduled_at=FUTURE)
    assert api.post(at(campaign, "send")).expect(200)["phase"] == "scheduled"
    return campaign


def said(api: Client, campaign: dict[str, Any]) -> Any:
    """Return what a campaign says, to whom and when; a form that changes nothing still moves its time of change."""
    now = api.get(at(campaign)).expect(200)
    return {**now, "updated_at": "", "trigger": {**now["trigger"], "updated_at": ""}}


def test_what_is_armed_is_out_of_an_authors_hands(server: Server, api: Client, author: Client, crowd: int) -> None:
    """Neither earlier nor to others nor in other words, nor not at all; over pages as over the API."""
    campaign = armed(api, crowd)
    before = said(api, campaign)
    changes: list[tuple[str, str, Any]] = [
        ("PATCH", at(campaign), {"scheduled_at": PAST}),
        ("PATCH", at(campaign), {"scheduled_at": None}),
        ("PATCH", at(campaign), {"trigger_attributes": {"contact_list_id": None}}),
        ("PATCH", at(campaign), {"template_attributes": {"subject": "Taken"}}),
        ("PATCH", f"/templates/{campaign['template']['id']}", {"subject": "Taken"}),
        ("DELETE", at(campaign), None),
    ]
    for method, path, body in changes:
        assert author.send(method, path, body).expect(403)["required_scope"] == "campaigns:send", (method, path, body)
    page, forms = Visitor(server, "author@example.org"), campaign["template"]["id"]
    offers = [page.send("GET", at(one, "test")).text for one in (campaign, draft(api, crowd))]
    assert ["Send test</button>" in text for text in offers] == [False, True]
    for path, form in (
        (at(campaign, "when"), {"when": "now"}),
        (at(campaign, "to"), {"who": "all", "sure": "yes"}),
        (at(campaign, "from"), {"subject": "Taken", "from_name": "Taken"}),
        (at(campaign, "template"), {"starter": "plain"}),
        (at(campaign, "delete"), {}),
        ("/campaigns/acts", {"act": "delete_sure", "ids": campaign["id"]}),
        (f"/templates/{forms}/sections", {"kind": "text"}),
        (f"/templates/{forms}", {"subject": "Taken", "body": "<p>Taken</p>"}),
    ):  # fmt: skip
        page.send("POST", path, form)
        assert said(api, campaign) == before, path
    assert author.patch(at(campaign), {"name": "Only a name"}).expect(200)["name"] == "Only a name"
    api.delete(at(campaign)).expect(200)


def test_a_key_that_may_not_send_moves_no_moment(server: Server, api: Client, crowd: int) -> None:
    """A time that has passed means now: to say so is to send."""
    campaign = armed(api, crowd)
    writer = server.client(server.new_key("writer", "--scope", "campaigns:write,templates:write"))
    for moment in (PAST, None):
        refused = writer.patch(at(campaign), {"scheduled_at": moment}).expect(403)
        assert refused["required_scope"] == "campaigns:send"
    assert api.get(at(campaign)).json["phase"] == "scheduled"
    assert writer.patch(at(campaign), {"scheduled_at": FUTURE, "name": "Same"}).expect(200)["phase"] == "scheduled"
    api.delete(at(campaign)).expect(200)


def test_a_test_key_moves_nothing_that_is_real(server: Server, api: Client, crowd: int) -> None:
    """It neither changes, stops, ends nor sends on what a live key has sent; a draft is everybody's."""
    tester = server.client(server.new_key("tester", "--test"))
    campaign = armed(api, crowd)
    words = {"template_attributes": {"subject": "Taken"}}
    for method, path, body in (
        ("PATCH", at(campaign), {"scheduled_at": PAST}), ("PATCH", at(campaign), {"status": "paused"}),
        ("PATCH", at(campaign), words), ("POST", at(campaign, "send"), words), ("DELETE", at(campaign), None),
        ("PATCH", f"/templates/{campaign['template']['id']}", {"subject": "Taken"}),
    ):  # fmt: skip
        assert tester.send(method, path, body).status == 403, (method, path, body)
    api.patch(at(campaign), {"status": "paused"}).expect(200)
    for method, path, body in (
        ("POST", at(campaign, "send"), {}), ("PATCH", at(campaign), {"status": "active"}),
        ("PATCH", at(campaign), {"status": "cancelled"}), ("DELETE", at(campaign), None),
    ):  # fmt: skip
        assert tester.send(method, path, body).status == 403, (method, path, body)
    assert api.get(at(campaign)).json["status"] == "paused"
    api.delete(at(campaign)).expect(200)
    mine = draft(tester, crowd)
    assert tester.delete(at(mine)).status == 200


def test_the_words_of_a_live_flow_are_out_of_an_authors_hands(api: Client, author: Client) -> None:
    """Its template by itself is no way past the flow; that of a draft is theirs to write."""
    flow = api.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    words = f"/templates/{flow['steps'][0]['template_id']}"
    assert author.patch(words, {"subject": "Mine"}).status == 200
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    assert author.patch(words, {"subject": "Taken"}).expect(403)["required_scope"] == "campaigns:send"
    assert api.get(words).json["subject"] == "Mine"
    api.delete(f"/flows/{flow['id']}").expect(200)


def test_nobody_approves_of_what_they_wrote_with_a_token(server: Server, api: Client, crowd: int) -> None:
    """Whoever wrote the words of a campaign or a flow last is known, whatever way they wrote them."""
    owner, admin = user_client(server), add_user(server, "admin")
    of_owner, of_admin = (
        server.client(one.post("/api_keys", {"name": "A program", "scope": "full"}).expect(201)["key"])
        for one in (owner, admin)
    )
    with account_with(server, "approval_required", 1), account_with(server, "approval_by_another", 1):
        campaign = draft(api, crowd)
        flow = api.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
        for path, template in (
            (at(campaign), campaign["template"]["id"]), (f"/flows/{flow['id']}", flow["steps"][0]["template_id"])
        ):  # fmt: skip
            owner.post(f"{path}/approve").expect(200)
            owner.patch(f"/templates/{template}", {"subject": "Mine"}).expect(200)
            assert owner.get(path).json["approval_state"] == "pending_review"
            owner.post(f"{path}/approve").expect(403)
            # Nor with a key of their own, neither by approving nor by letting it go out; a key of somebody else may
            for verb in ("approve", "send" if path == at(campaign) else "activate"):
                assert of_owner.post(f"{path}/{verb}").status in (403, 422), verb
            assert owner.get(path).json["approval_state"] == "pending_review"
            of_admin.post(f"{path}/approve").expect(200)
        # A template that was chosen on the page is content too
        api.post(f"{at(campaign)}/approve").expect(200)
        other = api.post("/templates", {"name": "Other", "subject": "x", "body": "<p>Other.</p>"}).expect(201)["id"]
        Visitor(server, EMAIL).send("POST", at(campaign, "template"), {"template": other})
        assert api.get(at(campaign)).json["approval_state"] == "pending_review"
        owner.post(at(campaign, "approve")).expect(403)
    api.delete(f"/flows/{flow['id']}").expect(200)
