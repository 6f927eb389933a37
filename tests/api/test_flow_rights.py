"""Permissions for flows: scopes, approval, test keys, and account settings (docs/decisions.md#12)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from tests.api.test_flows import LETTER, STARTS, create_flow, flow_path
from tests.kit.client import Client
from tests.kit.server import Server


@contextmanager
def account_with(server: Server, column: str, value: int) -> Iterator[None]:
    """Set a column of the account until the context ends."""
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.set_busy_timeout(10_000)
    here.execute(f"UPDATE account SET {column} = ?", (value,))
    try:
        yield
    finally:
        here.execute(f"UPDATE account SET {column} = ?", (not value,))
        here.close()


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
    for one in (live, waiting, other):
        api.post(flow_path(one, "approve")).expect(200)
    for one in (live, other):
        author.post(flow_path(one, "activate")).expect(200)

    def states() -> list[tuple[str, str]]:
        now = [api.get(flow_path(one)).json for one in (live, waiting, other)]
        return [(one["status"], one["approval_state"]) for one in now]

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
    entered = api.wait("/events", lambda found: found != [], event="flow_enter", contact_id=person)
    assert [one["test"] for one in entered] == [True] and api.get(flow_path(trial)).json["stats"]["entered"] == 0
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
