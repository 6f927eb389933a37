"""Permissions for flows: scopes, approval, test keys, and account settings (docs/decisions.md#12)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from appliance.accounts import access
from tests.api.test_flows import LETTER, STARTS, create_flow, flow_path
from tests.kit.client import Client
from tests.kit.server import Server


@contextmanager
def account_with(server: Server, column: str, value: int) -> Iterator[None]:
    """Set a column of the account until the context ends."""
    database = apsw.Connection(str(server.data / "campanero.db"))
    database.set_busy_timeout(10_000)
    database.execute(f"UPDATE account SET {column} = ?", (value,))
    try:
        yield
    finally:
        database.execute(f"UPDATE account SET {column} = ?", (not value,))
        database.close()


@pytest.fixture
def author(server: Server) -> Iterator[Client]:
    """Yield a client that may not approve, in an account that requires approval."""
    with account_with(server, "approval_required", 1):
        yield server.client(server.new_key("author", "--scope", "flows:write,campaigns:send,templates:write"))


def test_scopes_of_flows(api: Client, server: Server) -> None:
    """Writing a flow does not include activating it; pausing needs the write scope only."""
    writer = server.client(server.new_key("writer", "--scope", "flows:write"))
    flow = writer.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    for error in (
        writer.post(flow_path(flow, "activate")), writer.patch(flow_path(flow), {"status": "active"}),
        writer.post("/flows", {"trigger": STARTS, "steps": [LETTER], "status": "live"}),
    ):  # fmt: skip
        assert error.expect(403)["required_scope"] == "campaigns:send"
    assert writer.post(flow_path(flow, "approve")).expect(403)["required_scope"] == "campaigns:approve"
    api.post(flow_path(flow, "activate")).expect(200)
    assert writer.patch(flow_path(flow), {"status": "active", "name": "Same"}).expect(200)["name"] == "Same"
    assert writer.post(flow_path(flow, "pause")).expect(200)["status"] == "paused"
    reader = server.client(server.new_key("reader", "--scope", "flows:read"))
    assert reader.get(flow_path(flow)).status == 200 and reader.delete(flow_path(flow)).status == 403


@pytest.mark.parametrize(
    ("steps", "trigger", "scope"),
    [
        ([{"type": "notify", "via": "slack", "slack_url": "https://hooks.slack.com/services/x"}], {}, "contacts:read"),
        ([{"type": "random_split", "metric": "event", "event_name": "order_paid",
           "branches": [{"share": 50}, {"share": 50}]}], {}, "contacts:read"),
        ([], {"data": {"holdout": 0.5, "holdout_event": "order_paid"}}, "contacts:read"),
    ],
)  # fmt: skip
def test_what_would_show_contacts_needs_their_scope(
    steps: list[Any], trigger: dict[str, Any], scope: str, server: Server
) -> None:
    """A message to Slack names contacts; tests and holdout groups tell whether they had an event (T45)."""
    narrow = server.client(server.new_key("narrow", "--scope", "flows:write,flows:read,campaigns:send"))
    body = {"trigger": {**STARTS, **trigger}, "steps": steps}
    assert narrow.post("/flows", body).expect(403)["required_scope"] == scope
    able = server.client(server.new_key("able", "--scope", "flows:write,flows:read,campaigns:send,contacts:read"))
    flow = able.post("/flows", body).expect(201)
    assert narrow.patch(flow_path(flow), {"steps": flow["steps"], "name": "Kept"}).expect(200)["name"] == "Kept"
    if steps and "metric" in steps[0]:
        amounts = [{**flow["steps"][0], "by_amount": True}]
        assert able.patch(flow_path(flow), {"steps": amounts}).expect(403)["required_scope"] == "events:read"


def test_a_test_key_chooses_no_branch_of_a_live_flow(api: Client, server: Server) -> None:
    """As for campaigns, it may act only on what test keys have started."""
    split = {"type": "random_split", "metric": "clicks", "branches": [{"share": 50}, {"share": 50}]}
    flow = api.post("/flows", {"trigger": STARTS, "steps": [split]}).expect(201)
    api.post(flow_path(flow, "activate")).expect(200)
    tester = server.client(server.new_key("tester", "--scope", "campaigns:send,flows:write,contacts:read", "--test"))
    (step,) = flow["steps"]
    choice = {"step": step["id"], "branch": step["branches"][1]["key"]}
    assert tester.post(flow_path(flow, "winner"), choice).status == 403
    assert api.post(flow_path(flow, "winner"), choice).expect(200)["state"] == "decided"


def test_flows_need_approval(api: Client, author: Client) -> None:
    """Nothing is activated or changed in an active flow without approval; an activation by an approver approves."""
    flow = author.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    assert author.post(flow_path(flow, "activate")).expect(422)["reason"] == "approval_required"
    assert api.post(flow_path(flow, "approve")).expect(200)["approval_state"] == "approved"
    assert author.post(flow_path(flow, "activate")).expect(200)["status"] == "active"
    # A change of the name needs no approval
    assert author.patch(flow_path(flow), {"name": "Other"}).expect(200)["approval_state"] == "approved"
    edited = author.patch(flow_path(flow), {"steps": [{**flow["steps"][0], "subject": "New"}]}).expect(200)
    assert (edited["status"], edited["approval_state"], edited["version"]) == ("paused", "pending_review", 1)
    assert author.post(flow_path(flow, "activate")).expect(422)["reason"] == "approval_required"
    rejected = api.post(flow_path(flow, "reject"), {"note": "Say it shorter"}).expect(200)
    assert (rejected["approval_state"], rejected["approval_note"]) == ("rejected", "Say it shorter")
    assert api.post(flow_path(flow, "activate")).expect(422)["reason"] == "approval_required"
    api.patch(flow_path(flow), {"steps": [{**flow["steps"][0], "subject": "Short"}]}).expect(200)
    # An activation by the owner approves
    live = api.post(flow_path(flow, "activate")).expect(200)
    assert (live["approval_state"], live["approval_note"], live["version"]) == ("approved", None, 2)
    # A change of the template alone needs approval too
    author.patch(f"/templates/{flow['steps'][0]['template_id']}", {"subject": "Newer"}).expect(200)
    assert (api.get(flow_path(flow)).json["status"], api.get(flow_path(flow)).json["version"]) == ("paused", 2)


@pytest.mark.parametrize("way", ["start", "condition of the start", "split", "split in a branch", "view of a segment"])
def test_a_changed_segment_revokes_flow_approvals(way: str, api: Client, author: Client, server: Server) -> None:
    """A change of a segment revokes the approval of each flow that depends on it, and pauses active ones.

    A change by an approver keeps it.
    """
    segment = api.post("/segments", {"name": f"Some, {way}", "filters": first_name_filters("Ana")}).expect(201)["id"]
    inside = [{"name": "segment_id", "predicate": "eq", "value": segment}]
    split: dict[str, Any] = {"filters": inside, "yes": [LETTER]}
    trigger: dict[str, Any] = STARTS
    if way == "start":
        trigger = {"event": "segment_enter", "segment_id": segment}
    if way == "condition of the start":
        trigger = {**STARTS, "data": {"where": inside}}
    if way == "view of a segment":
        view = api.post("/lists", {"name": "View of some", "segment_id": segment}).expect(201)["id"]
        trigger = {**STARTS, "data": {"where": [{"name": "list_id", "predicate": "eq", "value": view}]}}
    nested = {"filters": first_name_filters("Bo"), "no": [split]}
    steps = {"split": [split], "split in a branch": [nested]}.get(way, [LETTER])
    live, waiting, other = (
        api.post("/flows", {"trigger": on, "steps": what}).expect(201)
        for on, what in ((trigger, steps), (trigger, steps), (STARTS, [LETTER]))
    )
    for flow_id in (live, waiting, other):
        api.post(flow_path(flow_id, "approve")).expect(200)
    for flow_id in (live, other):
        author.post(flow_path(flow_id, "activate")).expect(200)

    def states() -> list[tuple[str, str]]:
        now = [api.get(flow_path(flow_id)).json for flow_id in (live, waiting, other)]
        return [(flow["status"], flow["approval_state"]) for flow in now]

    changer = server.client(server.new_key("changer", "--scope", "contacts:write"))
    changer.patch(f"/segments/{segment}", {"name": f"Another name, {way}"}).expect(200)
    assert states() == [("active", "approved"), ("draft", "approved"), ("active", "approved")]
    api.patch(f"/segments/{segment}", {"filters": first_name_filters("Bo")}).expect(200)
    assert states() == [("active", "approved"), ("draft", "pending_review"), ("active", "approved")]
    changer.patch(f"/segments/{segment}", {"filters": first_name_filters("Cy")}).expect(200)
    assert states() == [("paused", "pending_review"), ("draft", "pending_review"), ("active", "approved")]
    assert author.post(flow_path(live, "activate")).expect(422)["reason"] == "approval_required"


def first_name_filters(name: str) -> list[dict[str, str]]:
    """Return filters for a first name."""
    return [{"name": "contact_first_name", "predicate": "eq", "value": name}]


def test_a_rejection_pauses_an_active_flow(api: Client) -> None:
    """A rejected flow is paused."""
    flow = create_flow(api, status="active")
    assert api.post(flow_path(flow, "reject")).expect(200)["status"] == "paused"


def test_transactional_steps_can_be_disabled(api: Client, server: Server) -> None:
    """Without `transactional_allowed` a transactional step can neither be written nor activated."""
    flow = create_flow(api, {**LETTER, "transactional": True})
    with account_with(server, "transactional_allowed", 0):
        error = api.post("/flows", {"steps": [{**LETTER, "transactional": True}]}).expect(422)
        assert error["reason"] == "transactional_disabled" and [*error["validation_errors"]] == [
            "steps[0].transactional"
        ]
        assert [*api.post(flow_path(flow, "activate")).expect(422)["validation_errors"]] == ["steps[0].transactional"]


def test_a_test_key_activates_a_test_flow(api: Client, server: Server) -> None:
    """Only test events start it; a live flow cannot be paused with a test key."""
    tester = server.client(server.new_key("tester", "--test"))
    person = api.post("/contacts", {"email": "tester@example.org"}).expect(201)["id"]
    trial = tester.post("/flows", {"trigger": {"event": "trial_event"}, "steps": [{"duration": 999}]}).expect(201)
    assert tester.post(flow_path(trial, "activate")).expect(200)["test"] is True
    api.post("/events", {"event": "trial_event", "contact_id": person}).expect(201)
    tester.post("/events", {"event": "trial_event", "contact_id": person}).expect(201)
    entered = api.wait("/events", lambda rows: rows != [], event="flow_enter", contact_id=person)
    assert [event["test"] for event in entered] == [True] and api.get(flow_path(trial)).json["stats"]["entered"] == 0
    real = create_flow(api, status="active")
    assert (
        tester.post(flow_path(real, "pause")).status
        == 403
        == tester.patch(flow_path(real), {"status": "paused"}).status
    )
    assert api.post(flow_path(real, "pause")).expect(200)["test"] is False


def test_a_test_key_cannot_change_a_live_flow(api: Client, server: Server) -> None:
    """A test key cannot edit an active flow, its templates, or delete it, but drafts and test flows."""
    tester = server.client(server.new_key("changer", "--test"))
    real, own = create_flow(api, status="active"), create_flow(api)
    words = f"/templates/{real['steps'][0]['template_id']}"
    for error in (
        tester.patch(flow_path(real), {"steps": [{**real["steps"][0], "subject": "Trial"}]}),
        tester.patch(words, {"subject": "Trial"}), tester.delete(flow_path(real)),
    ):  # fmt: skip
        assert "test key" in error.expect(403)["message"]
    assert api.get(flow_path(real)).json["version"] == real["version"] and api.get(words).json["subject"] != "Trial"
    # A test key may change drafts, and flows that it has activated itself
    assert tester.patch(flow_path(own), {"name": "Trial"}).expect(200)["name"] == "Trial"
    tester.post(flow_path(own, "activate")).expect(200)
    assert tester.patch(f"/templates/{own['steps'][0]['template_id']}", {"subject": "Trial"}).status == 200
    assert tester.delete(flow_path(own)).status == 200


def test_conditions_on_contacts_need_the_contacts_scope(api: Client, server: Server) -> None:
    """Without `contacts:read`, a key can neither choose the filters of a branch nor the date of a trigger (T45)."""
    writer = server.client(server.new_key("writer", "--scope", "flows:write,campaigns:send"))
    reader = server.client(server.new_key("reader", "--scope", "flows:write,contacts:read"))

    def branch(value: str, **more: Any) -> dict[str, Any]:
        filters = [{"name": "contact_data.secret", "predicate": "start", "value": value}]
        return {"type": "split", "filters": filters, "yes": [{"type": "exit"}], "no": [], **more}

    on_date = {"event": "date_reached", "data": {"path": "data.birthday", "yearly": True, "at": "09:00"}}
    bodies: list[dict[str, Any]] = [
        {"trigger": STARTS, "steps": [branch("a")]},
        {"trigger": on_date, "steps": [LETTER]},
    ]
    plain = writer.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    for body in bodies:
        assert writer.post("/flows", body).expect(403)["required_scope"] == "contacts:read"
        assert writer.patch(flow_path(plain), body).expect(403)["required_scope"] == "contacts:read"
        flow = reader.post("/flows", body).expect(201)
        same = {"name": "Same", "steps": flow["steps"]}
        if body["trigger"] is on_date:
            same["trigger"] = flow["trigger"]
        assert writer.patch(flow_path(flow), same).expect(200)["name"] == "Same"
        for steps in ([branch("b")], [branch("a", yes=[branch("b")])]):
            assert writer.patch(flow_path(flow), {"steps": steps}).expect(403)["required_scope"] == "contacts:read"
    assert writer.post("/flows", {"starter": "birthday"}).expect(201)["trigger"]["event"] == "date_reached"
    assert api.get(flow_path(plain)).json["steps"][0]["type"] == "email"


def test_a_narrow_test_key_sends_to_no_contact(api: Client, server: Server) -> None:
    """Without `contacts:read`, a test key can neither send a campaign nor activate a flow or enroll contacts (T45)."""
    scopes = "campaigns:write,campaigns:send,flows:write"
    narrow = server.client(server.new_key("narrow", "--scope", scopes, "--test"))
    wide = server.client(server.new_key("wide", "--scope", f"{scopes},contacts:read", "--test"))
    list_id = api.post("/lists", {"name": "Readers"}).expect(201)["id"]
    contact = {"email": "values@example.org", "list_ids": [list_id]}
    contact_id = api.post("/contacts", contact).expect(201)["id"]
    letter = {"subject": "News", "body": "<p>Bread.</p>"}
    audience = {"trigger_attributes": {"contact_list_id": list_id}, "template_attributes": letter}
    campaign = f"/campaigns/{narrow.post('/campaigns', {'name': 'Letter', **audience}).expect(201)['id']}"
    flow = flow_path(narrow.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201))
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"{campaign}/send", {}), ("PATCH", campaign, {"status": "active"}),
        ("POST", f"{flow}/activate", {}), ("PATCH", flow, {"status": "active"}),
        ("POST", f"{flow}/enroll", {"contact_ids": [contact_id]}),
    ]  # fmt: skip
    for method, path, body in requests:
        assert narrow.send(method, path, body).expect(403)["required_scope"] == "contacts:read", path
    assert wide.post(f"{campaign}/send").expect(200)["id"] and wide.post(f"{flow}/activate").expect(200)["id"]


@pytest.mark.parametrize("kind", ["test", "live"])
def test_a_narrow_key_cannot_change_what_a_wider_test_key_sends(kind: str, api: Client, server: Server) -> None:
    """Without `contacts:read`, a key changes neither an active test flow nor a scheduled test campaign (T45)."""
    scopes = "campaigns:write,campaigns:send,flows:write,templates:write"
    narrow = server.client(server.new_key("narrow", "--scope", scopes, *(["--test"] if kind == "test" else [])))
    wide = server.client(server.new_key("wide", "--scope", f"{scopes},contacts:read", "--test"))
    draft = wide.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    drafted = narrow.patch(flow_path(draft), {"steps": [{**draft["steps"][0], "subject": "Draft"}]}).expect(200)
    assert drafted["steps"][0]["subject"] == "Draft"
    flow = wide.post(flow_path(draft, "activate")).expect(200)
    list_id = api.post("/lists", {"name": f"Readers, {kind}"}).expect(201)["id"]
    api.post("/contacts", {"email": f"{kind}@example.org", "list_ids": [list_id]}).expect(201)
    letter = {"subject": "News", "body": "<p>Bread.</p>"}
    audience = {"trigger_attributes": {"contact_list_id": list_id}, "template_attributes": letter}
    later = {"scheduled_at": "2090-01-01T09:00:00Z"}
    campaign = wide.post("/campaigns", {"name": "Letter", **audience, **later}).expect(201)
    campaign_path = f"/campaigns/{campaign['id']}"
    assert wide.post(f"{campaign_path}/send").expect(200)["status"] == "active"

    guess = "{% if contact.data.secret == 'a' %}Yes{% else %}No{% endif %}"
    changes: list[tuple[str, dict[str, Any]]] = [
        (flow_path(flow), {"steps": [{**flow["steps"][0], "subject": guess}]}),
        (flow_path(flow), {"trigger": {"event": "other_event"}}),
        (f"/templates/{flow['steps'][0]['template_id']}", {"subject": guess}),
        (campaign_path, {"template_attributes": {"subject": guess}}),
        (campaign_path, {"scheduled_at": "2091-01-01T09:00:00Z"}),
        (f"/templates/{campaign['template']['id']}", {"subject": guess}),
    ]
    for path, change in changes:
        assert narrow.patch(path, change).expect(403)["required_scope"] == "contacts:read", (path, change)
    assert api.get(flow_path(flow)).json["version"] == flow["version"]
    assert api.get(campaign_path).json["template"]["subject"] == "News"
    # A change of the name sends nothing; a pause and an end of the flow stop its messages.
    assert narrow.patch(flow_path(flow), {"name": "Same", "steps": flow["steps"]}).expect(200)["name"] == "Same"
    assert narrow.patch(campaign_path, {"name": "Same"}).expect(200)["name"] == "Same"
    assert narrow.post(flow_path(flow, "pause")).expect(200)["status"] == "paused"
    wide.post(flow_path(flow, "activate")).expect(200)
    for path, change in changes:
        assert wide.patch(path, change).status == 200, (path, change)


ABOUT_CONTACT = {"name": "contact_data.secret", "predicate": "start", "value": "a"}
ABOUT_EVENT = {"name": "event.secret", "predicate": "start", "value": "a"}
ABOUT_HISTORY = {"name": "event", "predicate": "performed", "value": {"event": "order_paid", "where": [ABOUT_EVENT]}}


def in_group(condition: dict[str, Any]) -> dict[str, Any]:
    """Return a filter that is true if the condition is."""
    return {"name": "group", "predicate": "any", "value": [condition]}


def split_on(condition: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a flow that branches on a condition and sends nothing."""
    return [{"type": "split", "filters": [condition], "yes": [{"type": "exit"}], "no": []}]


def test_conditions_of_a_trigger_need_the_scope_of_what_they_ask(api: Client, server: Server) -> None:
    """Runs answer the conditions of a trigger: on contacts with `contacts:read`, on events with `events:read` (T45)."""
    scopes = "flows:write,campaigns:send"
    without = {
        "contacts:read": server.client(server.new_key("no contacts", "--scope", f"{scopes},events:read")),
        "events:read": server.client(server.new_key("no events", "--scope", f"{scopes},contacts:read")),
    }
    list_id = api.post("/lists", {"name": "Asked about"}).expect(201)["id"]
    segment_id = api.post("/segments", {"name": "Asked about", "filters": [ABOUT_CONTACT]}).expect(201)["id"]
    on_contact: list[dict[str, Any]] = [
        {"data": {"where": [ABOUT_CONTACT]}}, {"data": {"where": [in_group(ABOUT_CONTACT)]}},
        {"data": {"tag": "vip"}}, {"contact_list_id": list_id}, {"segment_id": segment_id},
    ]  # fmt: skip
    on_event: list[dict[str, Any]] = [
        {"data": {"where": [ABOUT_EVENT]}}, {"data": {"where": [in_group(ABOUT_EVENT)]}},
        {"data": {"keywords": ["pregnant"]}},
    ]  # fmt: skip
    both = {"data": {"where": [ABOUT_HISTORY]}}
    events = {"event": "list_add", "contact_list_id": list_id}, {"event": "segment_enter", "segment_id": segment_id}
    for scope, client in without.items():
        plain = client.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
        allowed, refused = (on_event, on_contact) if scope == "contacts:read" else (on_contact, on_event)
        for conditions in (*refused, both):
            trigger = {**STARTS, **conditions}
            body = {"trigger": trigger, "steps": [LETTER]}
            assert client.post("/flows", body).expect(403)["required_scope"] == scope, trigger
            assert client.patch(flow_path(plain), {"trigger": trigger}).expect(403)["required_scope"] == scope, trigger
            flow = api.post("/flows", body).expect(201)
            # The conditions that a flow has may stay, be removed, and have another frequency, but not another event.
            same = {"name": "Same", "trigger": flow["trigger"]}
            assert client.patch(flow_path(flow), same).expect(200)["name"] == "Same"
            rarer = {"data": {**flow["trigger"]["data"], "frequency": "once"}}
            assert client.patch(flow_path(flow), {"trigger": rarer}).status == 200
            moved = client.patch(flow_path(flow), {"trigger": {"event": "other_event"}})
            assert moved.expect(403)["required_scope"] == scope, trigger
            removed = {"event": "other_event", "data": {}, "contact_list_id": None, "segment_id": None}
            assert client.patch(flow_path(flow), {"trigger": removed}).status == 200
        for conditions in allowed:
            assert client.post("/flows", {"trigger": {**STARTS, **conditions}}).status == 201, conditions
        for event in events:
            assert client.post("/flows", {"trigger": event}).status == 201, event
    assert api.get(flow_path(plain)).json["trigger"]["data"] == {}


def test_conditions_on_events_need_the_events_scope(api: Client, server: Server) -> None:
    """Without `events:read`, a key chooses no condition on event data, in branches, simulations or segments (T45)."""
    scopes = "flows:write,campaigns:send,contacts:write"
    narrow = server.client(server.new_key("no events", "--scope", scopes))
    contact_id = api.post("/contacts", {"email": "asked@example.org"}).expect(201)["id"]
    plain = narrow.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    segment = narrow.post("/segments", {"name": "Secret", "filters": [ABOUT_CONTACT]}).expect(201)["id"]
    attempts: list[tuple[str, str, dict[str, Any]]] = []
    for condition in (ABOUT_EVENT, ABOUT_HISTORY, in_group(ABOUT_HISTORY)):
        attempts += [
            ("POST", "/flows", {"trigger": STARTS, "steps": split_on(condition)}),
            ("PATCH", flow_path(plain), {"steps": split_on(condition)}),
        ]
    for condition in (ABOUT_HISTORY, in_group(ABOUT_HISTORY)):
        attempts += [
            ("POST", flow_path(plain, "simulate"), {"contact_id": contact_id, "steps": split_on(condition)}),
            ("POST", "/segments", {"name": "Asks", "filters": [condition]}),
            ("PATCH", f"/segments/{segment}", {"filters": [condition]}),
            ("POST", "/segments/count", {"filters": [condition]}),
        ]
    attempts.append(("POST", flow_path(plain, "simulate_all"), {}))
    passed_on = {"type": "emit_event", "event_name": "order_paid", "forward_event_data": True}
    attempts += [
        ("POST", "/flows", {"trigger": STARTS, "steps": [passed_on]}),
        ("PATCH", flow_path(plain), {"steps": [passed_on]}),
    ]
    for method, path, body in attempts:
        assert narrow.send(method, path, body).expect(403)["required_scope"] == "events:read", (method, path, body)
        assert api.send(method, path, body).status in (200, 201), (method, path, body)
    performed = {"name": "event", "predicate": "performed", "value": {"event": "order_paid"}}
    assert narrow.post("/segments", {"name": "Buyers", "filters": [performed]}).status == 201
    assert narrow.post("/flows", {"trigger": STARTS, "steps": split_on(performed)}).status == 201
    # A segment of others keeps its filters.
    asked = api.post("/segments", {"name": "Asked", "filters": [ABOUT_HISTORY]}).expect(201)
    renamed = {"name": "Asked again", "filters": asked["filters"]}
    assert narrow.patch(f"/segments/{asked['id']}", renamed).expect(200)["name"] == "Asked again"


def test_no_role_lacks_the_scopes_of_conditions() -> None:
    """Every role, `full` and `read` may read contacts and events, so that no page refuses a condition."""
    for scopes in (*map(access.role_scopes, access.ROLES), access.expand_scopes("full"), access.expand_scopes("read")):
        assert {"contacts:read", "events:read"} <= scopes


@pytest.mark.parametrize("step", [
    {"type": "wait_until", "until": "date", "path": "data.birthday"},
    {"type": "wait_until", "until": "time", "at": "09:00"},
    {"type": "wait_until", "until": "event", "event_name": "order", "timeout": 60,
     "filters": [{"name": "event.amount", "predicate": "gt", "value": 100}]},
    {"type": "split_value", "field": "data.plan", "branches": [{"values": ["gold"], "steps": []}], "else": []},
])  # fmt: skip
def test_a_step_that_asks_about_contacts_needs_their_scope(server: Server, step: dict[str, Any]) -> None:
    """Runs show when a wait ends and which branch was taken, so the key could read any field of any contact."""
    narrow = server.client(server.new_key("narrow", "--scope", "flows:read,flows:write,campaigns:send"))
    assert narrow.post("/flows", {"trigger": STARTS, "steps": [step]}).expect(403)["required_scope"] == "contacts:read"
    flow = narrow.post("/flows", {"trigger": STARTS, "steps": []}).expect(201)
    assert narrow.patch(flow_path(flow), {"steps": [step]}).expect(403)["required_scope"] == "contacts:read"
    by_account_time = {"type": "wait_until", "until": "time", "at": "09:00", "time_zone": "account"}
    by_event = {"type": "wait_until", "until": "event", "event_name": "order", "timeout": 60}
    assert narrow.patch(flow_path(flow), {"steps": [by_account_time, by_event]}).status == 200


def test_a_condition_of_the_flow_is_not_moved_to_another_event(api: Client, server: Server) -> None:
    """The owner's condition on orders would tell about salaries."""
    filters = [{"name": "event.amount", "predicate": "gt", "value": 100}]
    step = {"type": "wait_until", "until": "event", "event_name": "order", "timeout": 60, "filters": filters}
    flow = api.post("/flows", {"trigger": STARTS, "steps": [step]}).expect(201)
    narrow = server.client(server.new_key("narrow", "--scope", "flows:read,flows:write,campaigns:send"))
    assert narrow.patch(flow_path(flow), {"steps": [{**step, "timeout": 90}]}).status == 200
    moved = narrow.patch(flow_path(flow), {"steps": [{**step, "event_name": "salary"}]})
    assert moved.expect(403)["required_scope"] == "contacts:read"
