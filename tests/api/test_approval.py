"""Campaigns that need approval: request, approve, reject (docs/decisions.md#6)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.test_flow_rights import account_with
from tests.api.test_flows import LETTER, STARTS
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server

PAYING = {"name": "contact_data.paying", "predicate": "true", "value": True}
CONFIRMED = {"confirm_send_to_all": True}
WRITER = "campaigns:write,campaigns:send,templates:write"


def campaign_path(campaign: dict[str, Any], verb: str = "") -> str:
    """Return the path of a campaign, or of an action on it."""
    return f"/campaigns/{campaign['id']}{'/' if verb else ''}{verb}"


@pytest.fixture(scope="module")
def list_id(api: Client) -> int:
    """Return the id of a list with one contact."""
    number = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    api.post("/contacts", {"email": "reader@example.org", "list_ids": [number]}).expect(201)
    return number


@pytest.fixture
def writer(server: Server) -> Iterator[Client]:
    """Yield a client that may send and may not approve, in an account that requires approval."""
    with account_with(server, "approval_required", 1):
        yield server.client(server.new_key("writer", "--scope", WRITER))


def draft(api: Client, list_id: int, **more: Any) -> Any:
    """Create a campaign that is ready to be sent."""
    fields = {"subject": "News", "body": "<p>Bread.</p>"}
    asked = {
        "name": "Letter",
        "trigger_attributes": {"contact_list_id": list_id},
        "template_attributes": fields,
        **more,
    }
    return api.post("/campaigns", asked).expect(201)


def test_sending_requires_an_approval(api: Client, writer: Client, list_id: int) -> None:
    """A send is rejected with `approval_required`; once the campaign is approved, the same user may send it."""
    campaign = draft(writer, list_id)
    assert (campaign["approval_state"], campaign["approval_note"]) == ("pending_review", None)
    assert campaign["asked_at"] is None
    error = writer.post(campaign_path(campaign, "send")).expect(422)
    assert error["reason"] == "approval_required" and [blocker["code"] for blocker in error["blockers"]] == [
        "approval_required"
    ]
    assert writer.patch(campaign_path(campaign), {"status": "active"}).expect(422)["reason"] == "approval_required"
    assert (
        not writer.get(campaign_path(campaign, "preflight")).json["ok"]
        and api.get(campaign_path(campaign, "preflight")).json["ok"]
    )
    assert writer.post(campaign_path(campaign, "approve")).expect(403)["required_scope"] == "campaigns:approve"
    assert writer.post(campaign_path(campaign, "reject")).expect(403)["required_scope"] == "campaigns:approve"
    assert api.post(campaign_path(campaign, "approve")).expect(200)["approval_state"] == "approved"
    assert writer.post(campaign_path(campaign, "send")).expect(200)["status"] == "active"
    for verb in ("approve", "reject", "ask_approval"):
        assert api.post(campaign_path(campaign, verb)).expect(422)["reason"] == "campaign_locked"


def test_sending_with_the_approve_scope_approves(api: Client, writer: Client, list_id: int) -> None:
    """A key with `campaigns:approve` sends without another step."""
    campaign = draft(writer, list_id)
    sent = api.post(campaign_path(campaign, "send")).expect(200)
    assert (sent["status"], sent["approval_state"]) == ("active", "approved")


def test_a_rejected_campaign_must_be_edited(api: Client, writer: Client, list_id: int) -> None:
    """After a rejection, requesting and sending fail until an edit; the note stays until the next request."""
    campaign = draft(writer, list_id)
    rejected = api.post(campaign_path(campaign, "reject"), {"note": " Say it shorter "}).expect(200)
    assert (rejected["approval_state"], rejected["approval_note"]) == ("rejected", "Say it shorter")
    assert api.post(campaign_path(campaign, "send")).expect(422)["reason"] == "approval_required"
    assert writer.post(campaign_path(campaign, "ask_approval")).expect(422)["reason"] == "approval_required"
    edited = writer.patch(campaign_path(campaign), {"template_attributes": {"subject": "Short"}}).expect(200)
    # The note of the rejection stays until the next request
    assert (edited["approval_state"], edited["approval_note"]) == ("pending_review", "Say it shorter")
    asked = writer.post(campaign_path(campaign, "ask_approval")).expect(200)
    assert asked["approval_note"] is None and asked["asked_at"]
    assert asked["id"] in [row["id"] for row in api.get("/campaigns", awaiting_approval=True).json]
    assert asked["id"] not in [row["id"] for row in api.get("/campaigns", approval_state="approved").json]
    approved = api.post(campaign_path(campaign, "approve")).expect(200)
    assert (approved["approval_state"], approved["asked_at"]) == ("approved", None)
    assert asked["id"] not in [row["id"] for row in api.get("/campaigns", awaiting_approval=True).json]


def test_an_incomplete_campaign_cannot_request_approval(api: Client, writer: Client) -> None:
    """The error lists all blockers."""
    campaign = writer.post("/campaigns", {"name": "Empty"}).expect(201)
    error = writer.post(campaign_path(campaign, "ask_approval")).expect(422)
    assert {blocker["code"] for blocker in error["blockers"]} == {"audience_required", "content_required"}


def test_an_edit_revokes_the_approval(api: Client, writer: Client, list_id: int) -> None:
    """A change of content or audience revokes it, also of a scheduled campaign; a change of the name does not."""
    campaign = draft(writer, list_id, scheduled_at="2099-01-01T09:00:00Z")
    for change in (
        lambda: writer.patch(campaign_path(campaign), {"template_attributes": {"subject": "New"}}),
        lambda: writer.patch(
            campaign_path(campaign), {"trigger_attributes": {"data": {"exclude_contact_list_ids": []}}}
        ),
        lambda: writer.patch(f"/templates/{campaign['template']['id']}", {"subject": "Newer"}),
    ):
        api.post(campaign_path(campaign, "approve")).expect(200)
        assert writer.patch(campaign_path(campaign), {"name": "Other"}).expect(200)["approval_state"] == "approved"
        assert writer.post(campaign_path(campaign, "send")).expect(200)["phase"] == "scheduled"
        change().expect(200)
        now = writer.get(campaign_path(campaign)).json
        assert (now["phase"], now["approval_state"]) == ("draft", "pending_review")
    api.post(campaign_path(campaign, "approve")).expect(200)
    writer.post(campaign_path(campaign, "send")).expect(200)
    # Also content that is sent with the send action
    slipped = writer.post(campaign_path(campaign, "send"), {"template_attributes": {"subject": "Slipped in"}})
    assert slipped.expect(422)["reason"] == "approval_required"
    assert writer.get(campaign_path(campaign)).json["template"]["subject"] == "Newer"
    assert api.post(campaign_path(campaign, "reject")).expect(200)["phase"] == "draft"


def test_an_approval_of_the_version_that_was_read(api: Client, writer: Client, list_id: int) -> None:
    """With `updated_at` as read, a decision after an edit is a 409 and changes nothing; so is a start of a flow."""
    segment = api.post("/segments", {"name": "Few", "filters": [PAYING]}).expect(201)["id"]
    edits = (
        lambda row: writer.patch(campaign_path(row), {"template_attributes": {"subject": "New"}}),
        lambda row: writer.patch(f"/templates/{row['template']['id']}", {"subject": "Newer"}),
        lambda row: api.patch(f"/segments/{segment}", {"filters": []}),
    )
    for edit in edits:
        campaign = draft(writer, list_id, trigger_attributes={"segment_id": segment, "data": CONFIRMED})
        read = writer.post(campaign_path(campaign, "ask_approval")).expect(200)
        edit(campaign).expect(200)
        refused = api.post(campaign_path(campaign, "approve"), {"updated_at": read["updated_at"]}).expect(409)
        now = api.get(campaign_path(campaign)).json
        assert (refused["code"], refused["updated_at"]) == ("conflict", now["updated_at"])
        assert now["approval_state"] == "pending_review" and now["asked_at"] == read["asked_at"]
        approved = api.post(campaign_path(campaign, "approve"), {"updated_at": now["updated_at"]}).expect(200)
        assert approved["approval_state"] == "approved"
    assert api.post(campaign_path(campaign, "approve"), {"updated_at": "soon"}).expect(422)["validation_errors"]

    body = {"trigger": STARTS, "steps": [LETTER], "data": {"split": 1}}
    flow = api.post("/flows", body).expect(201)
    path = f"/flows/{flow['id']}"
    api.patch(path, {"steps": [{**LETTER, "subject": "Not what was read"}]}).expect(200)
    for action in ("approve", "activate"):
        assert api.post(f"{path}/{action}", {"updated_at": flow["updated_at"]}).expect(409)["code"] == "conflict"
    now = api.get(path).expect(200)
    assert (now["status"], now["approval_state"]) == ("draft", "pending_review")
    now = api.post(f"{path}/approve", {"updated_at": now["updated_at"]}).expect(200)
    assert api.post(f"{path}/activate", {"updated_at": now["updated_at"]}).expect(200)["status"] == "active"


def test_approval_is_not_required_by_default(api: Client, server: Server, list_id: int) -> None:
    """A send approves by default; both settings can be read and changed."""
    sender = server.client(server.new_key("sender", "--scope", WRITER))
    assert sender.post(campaign_path(draft(sender, list_id), "send")).expect(200)["approval_state"] == "approved"
    assert not api.get("/account").json["approval_required"]
    both = {"approval_required": True, "approval_by_another": True}
    result = api.patch("/account", both).expect(200)
    assert {name: result[name] for name in both} == both
    api.patch("/account", dict.fromkeys(both, False)).expect(200)


def test_a_test_key_cannot_approve_a_live_campaign(server: Server, api: Client, list_id: int) -> None:
    """Approving, rejecting and requesting approval are forbidden."""
    tests = server.client(server.new_key("tests", "--test"))
    campaign = draft(api, list_id)
    for verb in ("approve", "reject", "ask_approval"):
        assert tests.post(campaign_path(campaign, verb)).expect(403)["code"] == "forbidden"


WAYS = ["segment", "of a segment", "mirrored list", "exclusion", "other list", "excluded list"]


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_segment_revokes_the_approval(way: str, api: Client, writer: Client, list_id: int) -> None:
    """A change of the filters of a segment revokes the approval of each campaign whose audience depends on it."""
    named = [{"name": "contact_first_name", "predicate": "eq", "value": "Ana"}]
    segment = api.post("/segments", {"name": f"By name, {way}", "filters": named}).expect(201)["id"]
    inside = [{"name": "segment_id", "predicate": "eq", "value": segment}]
    trigger: dict[str, Any] = {"segment_id": segment}
    if way == "of a segment":
        trigger = {"segment_id": api.post("/segments", {"name": "Outer", "filters": inside}).expect(201)["id"]}
    view = api.post("/lists", {"name": f"View, {way}", "segment_id": segment}).expect(201)["id"]
    if way == "mirrored list":
        trigger = {"contact_list_id": view}
    if way in ("other list", "excluded list"):
        name = "contact_list_ids" if way == "other list" else "exclude_contact_list_ids"
        trigger = {"contact_list_id": list_id, "data": {name: [view]}}
    if way == "exclusion":
        trigger = {"contact_list_id": list_id, "data": {"exclude_segment_ids": [segment]}}
    later = {"scheduled_at": "2099-01-01T10:00:00Z"}
    api.post("/contacts", {"email": "ana@example.org", "first_name": "Ana", "list_ids": [list_id]})
    campaign = draft(writer, list_id, trigger_attributes=trigger, **later)
    untouched = draft(writer, list_id, **later)
    for campaign_id in (campaign, untouched):
        api.post(campaign_path(campaign_id, "approve")).expect(200)
        assert writer.patch(campaign_path(campaign_id), {"status": "active"}).expect(200)["phase"] == "scheduled"

    api.patch(f"/segments/{segment}", {"name": "Another name", "filters": named}).expect(200)
    assert api.get(campaign_path(campaign)).json["phase"] == "scheduled"
    others = [{"name": "contact_first_name", "predicate": "not_eq", "value": "Ana"}]
    api.patch(f"/segments/{segment}", {"filters": others}).expect(200)
    results = [api.get(campaign_path(campaign_id)).json for campaign_id in (campaign, untouched)]
    assert [(result["phase"], result["approval_state"]) for result in results] == [
        ("draft", "pending_review"), ("scheduled", "approved"),
    ]  # fmt: skip
    assert writer.patch(campaign_path(campaign), {"status": "active"}).expect(422)["reason"] == "approval_required"
    for campaign_id in results:
        api.delete(campaign_path(campaign_id)).expect(200)


def test_turning_a_list_into_a_mirror_revokes_approval(api: Client, writer: Client) -> None:
    """An approved campaign to a list needs approval again when the list becomes a mirror."""
    number = api.post("/lists", {"name": "By hand"}).expect(201)["id"]
    segment = api.post("/segments", {"name": "Everybody", "filters": []}).expect(201)["id"]
    campaign = draft(writer, number)
    api.post(campaign_path(campaign, "approve")).expect(200)
    api.patch(f"/lists/{number}", {"name": "By my hand"}).expect(200)
    assert api.get(campaign_path(campaign)).json["approval_state"] == "approved"
    api.patch(f"/lists/{number}", {"segment_id": segment}).expect(200)
    assert api.get(campaign_path(campaign)).json["approval_state"] == "pending_review"


def test_users_cannot_approve_what_their_own_key_changed(server: Server, api: Client, list_id: int) -> None:
    """With approval by another user, a change with an API key counts as one of the user who created the key."""
    signed_in = []
    for name in ("ann", "bea", "cem"):
        server.cli("user", "add", "--email", f"{name}@example.org", "--role", "admin", stdin=f"{PASSWORD}\n")
        body = {"email": f"{name}@example.org", "password": PASSWORD}
        signed_in.append(Client(server.url, Client(server.url).post("/v1/login", body).expect(200)["token"]))
    ann, bea, cem = signed_in
    key = server.client(ann.post("/api_keys", {"name": "own", "scope": "full"}).expect(201)["key"])
    changed = {"subject": "Other news", "body": "<p>Rolls.</p>"}
    step = {"type": "email", "subject": "Welcome", "body": "<p>Bread.</p>"}
    flow_body = {"name": "Letters", "trigger": {"event": "list_add"}, "steps": [step]}
    with account_with(server, "approval_required", 1), account_with(server, "approval_by_another", 1):
        paths = [campaign_path(draft(key, list_id))]
        paths.append(campaign_path(draft(bea, list_id)))
        key.patch(paths[-1], {"template_attributes": changed}).expect(200)
        campaign = draft(bea, list_id)
        key.patch(f"/templates/{campaign['template']['id']}", changed).expect(200)
        paths.append(campaign_path(campaign))
        paths.append(campaign_path(key.post(campaign_path(campaign, "duplicate")).expect(201)))
        paths.append(campaign_path(draft(bea, list_id)))
        key.post(f"{paths[-1]}/ask_approval").expect(200)
        segment = key.post("/segments", {"name": "All", "filters": []}).expect(201)["id"]
        campaign = draft(bea, list_id, trigger_attributes={"segment_id": segment})
        ann.post(campaign_path(campaign, "approve")).expect(200)
        filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Ann"}]
        key.patch(f"/segments/{segment}", {"filters": filters}).expect(200)
        paths.append(campaign_path(campaign))
        paths.append(f"/flows/{key.post('/flows', flow_body).expect(201)['id']}")
        paths.append(f"/flows/{bea.post('/flows', flow_body).expect(201)['id']}")
        key.patch(paths[-1], {"steps": [step | changed]}).expect(200)
        flow = bea.post("/flows", flow_body).expect(201)
        key.patch(f"/templates/{flow['steps'][0]['template_id']}", changed).expect(200)
        paths.append(f"/flows/{flow['id']}")
        assert {path: ann.post(f"{path}/approve").status for path in paths} == dict.fromkeys(paths, 403)
        assert {path: key.post(f"{path}/approve").status for path in paths} == dict.fromkeys(paths, 403)
        assert {path: cem.post(f"{path}/approve").status for path in paths} == dict.fromkeys(paths, 200)


STYLED = "<style>p{color:red}</style><p>Bread.</p>"


def test_request_approval_of_styled_html_after_a_restart(fresh_server: FreshServer) -> None:
    """HTML that is sanitized in the child process is sanitized before the write, which must not wait for it."""
    server = fresh_server()
    api = server.client()
    number = api.post("/lists", {"name": "Readers"}).expect(201)["id"]
    api.post("/contacts", {"email": "reader@example.org", "list_ids": [number]}).expect(201)
    content = {"template_attributes": {"subject": "News", "body": STYLED}}
    first, second = draft(api, number, **content), draft(api, number, **content)
    server.restart()
    assert api.post(campaign_path(first, "ask_approval")).expect(200)["asked_at"]
    server.restart()
    browser = ScriptlessBrowser(api)
    assert browser.submit(f"/campaigns/{second['id']}/ask").status == 303
    assert api.get(campaign_path(second)).expect(200)["asked_at"]


def test_resume_flows_with_styled_html_after_a_restart(fresh_server: FreshServer) -> None:
    """The bulk action and its undo compile the messages of flows before the write, too."""
    server = fresh_server()
    api = server.client()
    flow = api.post("/flows", {"trigger": STARTS, "steps": [LETTER | {"body": STYLED}]}).expect(201)
    path = f"/flows/{flow['id']}"
    api.post(f"{path}/activate").expect(200)
    api.post(f"{path}/pause").expect(200)
    changed = {"subject": "News", "body": f"{STYLED}<p>Changed</p>"}
    for action, form in (
        ("acts", {"act": "continue", "ids": [flow["id"]]}),
        ("put-back", {"stood": f"{flow['id']}:active"}),
    ):
        api.patch(f"/templates/{flow['templates'][0]['id']}", changed | {"subject": action}).expect(200)
        server.restart()
        assert ScriptlessBrowser(api).submit(f"/flows/{action}", **form).status == 303
        assert api.get(path).expect(200)["status"] == "active"
        api.post(f"{path}/pause").expect(200)
