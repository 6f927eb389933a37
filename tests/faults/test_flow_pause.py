"""Pausing, resuming and deleting a flow while its messages are being sent."""

from collections import Counter

from tests.faults.conftest import StartRelayed
from tests.kit.client import Client
from tests.kit.recipients import create_list
from tests.kit.smtp import SmtpServer

PEOPLE, CONNECTIONS = 40, 4


def start_flow(api: Client, people: int = PEOPLE, *more_steps: dict[str, int]) -> int:
    """Create an active flow with two messages and more steps, and enroll all contacts."""
    list_id = create_list(api, people)
    steps = [{"subject": "One", "body": "one"}, {"subject": "Two", "body": "two"}, *more_steps]
    flow = api.post("/flows", {"trigger": {"event": "begin"}, "steps": steps, "status": "active"}).expect(201)["id"]
    members = [contact["id"] for contact in api.all("/contacts", list_id=list_id)]
    assert api.post(f"/flows/{flow}/enroll", {"contact_ids": members}).expect(200)["enrolled"] == people
    return int(flow)


def statuses(api: Client, flow: int) -> Counter[str]:
    """Count the messages of a flow by status."""
    return Counter(row["status"] for row in api.all("/messages", flow_id=flow))


def test_a_paused_flow_sends_nothing(relayed: StartRelayed, smtp_server: SmtpServer) -> None:
    """After the pause only messages in flight leave; after activation each message is sent once (P5)."""
    api = relayed().client(validate=False)
    gate = smtp_server.rules.hold("body")
    flow = start_flow(api)
    gate.wait_reached()
    in_hand_before = len(smtp_server.messages)
    api.post(f"/flows/{flow}/pause").expect(200)
    smtp_server.rules.clear()
    gate.release()
    api.wait("/messages", lambda rows: not rows, flow_id=flow, status="sending")
    assert len(smtp_server.messages) - in_hand_before <= CONNECTIONS
    api.wait("/messages", lambda rows: not rows, flow_id=flow, status="queued")
    assert statuses(api, flow) == {"held": 2 * PEOPLE - len(smtp_server.messages), "sent": len(smtp_server.messages)}
    api.post(f"/flows/{flow}/activate").expect(200)
    smtp_server.wait_for(2 * PEOPLE)
    for status in ("queued", "sending"):
        api.wait("/messages", lambda rows: not rows, flow_id=flow, status=status)
    assert statuses(api, flow) == {"sent": 2 * PEOPLE}
    assert set(Counter((message.rcpt_to[0], message.subject) for message in smtp_server.messages).values()) == {1}


def test_deleting_a_flow_cancels_its_messages(relayed: StartRelayed, smtp_server: SmtpServer) -> None:
    """Open messages are cancelled, also one that was deferred while in flight."""
    api = relayed().client(validate=False)
    gate = smtp_server.rules.hold("mail")
    flow = start_flow(api)
    gate.wait_reached()
    api.delete(f"/flows/{flow}").expect(200)
    smtp_server.rules.clear()
    smtp_server.rules.reject("body", code=452, text="4.2.2 full")
    gate.release()
    api.wait("/messages", lambda rows: not rows, flow_id=flow, status="sending")
    for status in ("queued", "held"):
        api.wait("/messages", lambda rows: not rows, flow_id=flow, status=status)
    counts = statuses(api, flow)
    assert counts["cancelled"] + counts["sent"] == 2 * PEOPLE and counts["sent"] == len(smtp_server.messages)


def test_a_removed_contact_gets_no_claimed_message(relayed: StartRelayed, smtp_server: SmtpServer) -> None:
    """A message that is claimed is not sent if its contact is removed from the flow before its body (P5)."""
    api = relayed(connections="1").client(validate=False)
    gate = smtp_server.rules.hold("rcpt", times=1)
    flow = start_flow(api, 1, {"duration": 3600})
    gate.wait_reached()
    api.wait("/messages", lambda rows: len(rows) == 1, flow_id=flow, status="sending")
    [run] = api.get(f"/flows/{flow}/runs").expect(200)
    api.post(f"/flows/{flow}/runs/{run['id']}/take_out").expect(200)
    gate.release()
    api.wait("/messages", lambda rows: not rows, flow_id=flow, status="sending")
    api.wait("/messages", lambda rows: not rows, flow_id=flow, status="queued")
    assert not smtp_server.messages
    assert set(statuses(api, flow)) == {"cancelled"}
