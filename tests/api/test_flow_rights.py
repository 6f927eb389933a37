"""Who may do what to a flow: scopes, approval, test keys, and what the account forbids (docs/decisions.md#12)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from tests.api.test_flows import LETTER, STARTS, at, draft
from tests.kit.client import Client
from tests.kit.server import Server


@contextmanager
def account_with(server: Server, column: str, value: int) -> Iterator[None]:
    """Let the account be set otherwise for a while."""
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.set_busy_timeout(10_000)
    here.execute(f"UPDATE account SET {column} = ?", (value,))
    try:
        yield
    finally:
        here.execute(f"UPDATE account SET {column} = ?", (not value,))
        here.close()


@pytest.fixture
def careful(server: Server) -> Iterator[Client]:
    """A client that may not approve, of an account where somebody has to."""
    with account_with(server, "approval_required", 1):
        yield server.client(server.new_key("author", "--scope", "flows:write,campaigns:send,templates:write"))


def test_scopes(api: Client, server: Server) -> None:
    """Writing flows does not include letting them send; pausing needs no more than writing."""
    writer = server.client(server.new_key("writer", "--scope", "flows:write"))
    flow = writer.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    for refused in (
        writer.post(at(flow, "activate")), writer.patch(at(flow), {"status": "active"}),
        writer.post("/flows", {"trigger": STARTS, "steps": [LETTER], "status": "live"}),
    ):  # fmt: skip
        assert refused.expect(403)["required_scope"] == "campaigns:send"
    assert writer.post(at(flow, "approve")).expect(403)["required_scope"] == "campaigns:approve"
    api.post(at(flow, "activate")).expect(200)
    assert writer.patch(at(flow), {"status": "active", "name": "Same"}).expect(200)["name"] == "Same"
    assert writer.post(at(flow, "pause")).expect(200)["status"] == "paused"
    reader = server.client(server.new_key("reader", "--scope", "flows:read"))
    assert reader.get(at(flow)).status == 200 and reader.delete(at(flow)).status == 403


def test_approval(api: Client, careful: Client) -> None:
    """Where somebody has to approve, nothing goes live or changes live without that; whoever may approve does so."""
    flow = careful.post("/flows", {"trigger": STARTS, "steps": [LETTER]}).expect(201)
    assert careful.post(at(flow, "activate")).expect(422)["reason"] == "approval_required"
    assert api.post(at(flow, "approve")).expect(200)["approval_state"] == "approved"
    assert careful.post(at(flow, "activate")).expect(200)["status"] == "active"
    # A name is no content
    assert careful.patch(at(flow), {"name": "Other"}).expect(200)["approval_state"] == "approved"
    edited = careful.patch(at(flow), {"steps": [{**flow["steps"][0], "subject": "New"}]}).expect(200)
    assert (edited["status"], edited["approval_state"], edited["version"]) == ("paused", "pending_review", 1)
    assert careful.post(at(flow, "activate")).expect(422)["reason"] == "approval_required"
    rejected = api.post(at(flow, "reject"), {"note": "Say it shorter"}).expect(200)
    assert (rejected["approval_state"], rejected["approval_note"]) == ("rejected", "Say it shorter")
    assert api.post(at(flow, "activate")).expect(422)["reason"] == "approval_required"
    api.patch(at(flow), {"steps": [{**flow["steps"][0], "subject": "Short"}]}).expect(200)
    # The owner's own activation is an approval
    live = api.post(at(flow, "activate")).expect(200)
    assert (live["approval_state"], live["approval_note"], live["version"]) == ("approved", None, 2)
    # The words alone are content too
    careful.patch(f"/templates/{flow['steps'][0]['template_id']}", {"subject": "Newer"}).expect(200)
    assert (api.get(at(flow)).json["status"], api.get(at(flow)).json["version"]) == ("paused", 2)


@pytest.mark.parametrize("way", ["start", "condition of the start", "split", "split in a branch", "view of a segment"])
def test_other_people_are_looked_at_again(way: str, api: Client, careful: Client, server: Server) -> None:
    """Whoever changes a segment changes who goes where in an approved flow: it waits for another look, paused if live.

    Whoever may approve does so by changing the segment.
    """
    segment = api.post("/segments", {"name": f"Some, {way}", "filters": named("Ana")}).expect(201)["id"]
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
    nested = {"filters": named("Bo"), "no": [split]}
    steps = {"split": [split], "split in a branch": [nested]}.get(way, [LETTER])
    live, waiting, other = (
        api.post("/flows", {"trigger": on, "steps": what}).expect(201)
        for on, what in ((trigger, steps), (trigger, steps), (STARTS, [LETTER]))
    )
    for one in (live, waiting, other):
        api.post(at(one, "approve")).expect(200)
    for one in (live, other):
        careful.post(at(one, "activate")).expect(200)

    def states() -> list[tuple[str, str]]:
        now = [api.get(at(one)).json for one in (live, waiting, other)]
        return [(one["status"], one["approval_state"]) for one in now]

    changer = server.client(server.new_key("changer", "--scope", "contacts:write"))
    changer.patch(f"/segments/{segment}", {"name": f"Another name, {way}"}).expect(200)
    assert states() == [("active", "approved"), ("draft", "approved"), ("active", "approved")]
    api.patch(f"/segments/{segment}", {"filters": named("Bo")}).expect(200)
    assert states() == [("active", "approved"), ("draft", "pending_review"), ("active", "approved")]
    changer.patch(f"/segments/{segment}", {"filters": named("Cy")}).expect(200)
    assert states() == [("paused", "pending_review"), ("draft", "pending_review"), ("active", "approved")]
    assert careful.post(at(live, "activate")).expect(422)["reason"] == "approval_required"


def named(name: str) -> list[dict[str, str]]:
    """Return filters for everybody of a first name."""
    return [{"name": "contact_first_name", "predicate": "eq", "value": name}]


def test_a_live_flow_is_stopped_by_a_rejection(api: Client) -> None:
    """What is rejected takes nobody in any more."""
    flow = draft(api, status="active")
    assert api.post(at(flow, "reject")).expect(200)["status"] == "paused"


def test_service_messages_can_be_switched_off(api: Client, server: Server) -> None:
    """Without them no step may be one, neither when it is written nor when it goes live."""
    flow = draft(api, {**LETTER, "transactional": True})
    with account_with(server, "transactional_allowed", 0):
        refused = api.post("/flows", {"steps": [{**LETTER, "transactional": True}]}).expect(422)
        assert refused["reason"] == "transactional_disabled" and [*refused["validation_errors"]] == [
            "steps[0].transactional"
        ]
        assert [*api.post(at(flow, "activate")).expect(422)["validation_errors"]] == ["steps[0].transactional"]


def test_a_test_key_takes_in_tests(api: Client, server: Server) -> None:
    """A flow that a test key activated is started by test events alone; what is live for real it does not move."""
    tester = server.client(server.new_key("tester", "--test"))
    person = api.post("/contacts", {"email": "tester@example.org"}).expect(201)["id"]
    trial = tester.post("/flows", {"trigger": {"event": "trial_event"}, "steps": [{"duration": 999}]}).expect(201)
    assert tester.post(at(trial, "activate")).expect(200)["test"] is True
    api.post("/events", {"event": "trial_event", "contact_id": person}).expect(201)
    tester.post("/events", {"event": "trial_event", "contact_id": person}).expect(201)
    entered = api.wait("/events", lambda found: found != [], event="flow_enter", contact_id=person)
    assert [one["test"] for one in entered] == [True] and api.get(at(trial)).json["stats"]["entered"] == 0
    real = draft(api, status="active")
    assert tester.post(at(real, "pause")).status == 403 == tester.patch(at(real), {"status": "paused"}).status
    assert api.post(at(real, "pause")).expect(200)["test"] is False


def test_a_test_key_changes_nothing_that_people_get(api: Client, server: Server) -> None:
    """A change of a live flow goes live: a test key makes none, neither there nor in its words, and deletes none."""
    tester = server.client(server.new_key("changer", "--test"))
    real, own = draft(api, status="active"), draft(api)
    words = f"/templates/{real['steps'][0]['template_id']}"
    for refused in (
        tester.patch(at(real), {"steps": [{**real["steps"][0], "subject": "Trial"}]}),
        tester.patch(words, {"subject": "Trial"}), tester.delete(at(real)),
    ):  # fmt: skip
        assert "test key" in refused.expect(403)["message"]
    assert api.get(at(real)).json["version"] == real["version"] and api.get(words).json["subject"] != "Trial"
    # What nobody gets yet it may change, and what it has set live itself
    assert tester.patch(at(own), {"name": "Trial"}).expect(200)["name"] == "Trial"
    tester.post(at(own, "activate")).expect(200)
    assert tester.patch(f"/templates/{own['steps'][0]['template_id']}", {"subject": "Trial"}).status == 200
    assert tester.delete(at(own)).status == 200
