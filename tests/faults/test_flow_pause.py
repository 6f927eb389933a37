"""A flow that is paused, resumed or deleted while its messages are on their way."""

from collections import Counter

from tests.faults.conftest import Relayed
from tests.kit.client import Client
from tests.kit.recipients import crowd
from tests.kit.smtp import SmtpServer

PEOPLE, CONNECTIONS = 40, 4


def started(api: Client) -> int:
    """Make a live flow of two messages, and let everybody in."""
    people = crowd(api, PEOPLE)
    steps = [{"subject": "One", "body": "one"}, {"subject": "Two", "body": "two"}]
    flow = api.post("/flows", {"trigger": {"event": "begin"}, "steps": steps, "status": "active"}).expect(201)["id"]
    members = [one["id"] for one in api.all("/contacts", list_id=people)]
    assert api.post(f"/flows/{flow}/enroll", {"contact_ids": members}).expect(200)["enrolled"] == PEOPLE
    return int(flow)


def statuses(api: Client, flow: int) -> Counter[str]:
    """Count the messages of a flow by status."""
    return Counter(row["status"] for row in api.all("/messages", flow_id=flow))


def test_nothing_leaves_a_flow_that_is_paused_and_all_of_it_afterwards(
    relayed: Relayed, smtp_server: SmtpServer
) -> None:
    """After the answer no more leaves than was in hand; when the flow goes on each message leaves once (P5)."""
    api = relayed().client(validate=False)
    gate = smtp_server.rules.hold("body")
    flow = started(api)
    gate.wait_reached()
    in_hand_before = len(smtp_server.messages)
    api.post(f"/flows/{flow}/pause").expect(200)
    smtp_server.rules.clear()
    gate.release()
    api.wait("/messages", lambda found: not found, flow_id=flow, status="sending")
    assert len(smtp_server.messages) - in_hand_before <= CONNECTIONS
    api.wait("/messages", lambda found: not found, flow_id=flow, status="queued")
    assert statuses(api, flow) == {"held": 2 * PEOPLE - len(smtp_server.messages), "sent": len(smtp_server.messages)}
    api.post(f"/flows/{flow}/activate").expect(200)
    smtp_server.wait_for(2 * PEOPLE)
    api.wait("/messages", lambda found: not found, flow_id=flow, status="sending")
    assert statuses(api, flow) == {"sent": 2 * PEOPLE}
    assert set(Counter((one.rcpt_to[0], one.subject) for one in smtp_server.messages).values()) == {1}


def test_of_a_deleted_flow_nothing_stays_open(relayed: Relayed, smtp_server: SmtpServer) -> None:
    """Its open messages are cancelled, also one that a server put off while it was in hand."""
    api = relayed().client(validate=False)
    gate = smtp_server.rules.hold("mail")
    flow = started(api)
    gate.wait_reached()
    api.delete(f"/flows/{flow}").expect(200)
    smtp_server.rules.clear()
    smtp_server.rules.refuse("body", code=452, text="4.2.2 full")
    gate.release()
    api.wait("/messages", lambda found: not found, flow_id=flow, status="sending")
    for status in ("queued", "held"):
        api.wait("/messages", lambda found: not found, flow_id=flow, status=status)
    left = statuses(api, flow)
    assert left["cancelled"] + left["sent"] == 2 * PEOPLE and left["sent"] == len(smtp_server.messages)
