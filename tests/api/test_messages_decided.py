"""Decisions about messages by a user: retry, cancel, assume_sent (docs/decisions.md#5 and #7)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}
HOLD = {"CAMPANERO_EMAIL__IN_DOUBT": "hold"}


@pytest.fixture(scope="module")
def server(relay: SmtpServer) -> Iterator[Server]:
    """Yield a server that sends through the relay and holds uncertain messages."""
    with Server(relay=relay.port, env=HOLD).set_up() as running:
        running.set_postal_address()
        yield running
        running.stop()


def send_campaign(api: Client, *names: str, **body: Any) -> str:
    """Send a campaign to these contacts and return its path."""
    list_id = api.post("/lists", {"name": f"Crowd of {', '.join(names)}"}).expect(201)["id"]
    for name in names:
        api.post("/contacts", {"email": f"{name}@example.org", "list_ids": [list_id]}).expect(201)
    campaign = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": list_id}, **body}).expect(200)
    return path


def message_with_status(api: Client, path: str, status: str) -> dict[str, Any]:
    """Return the only message of a campaign with a status."""
    result = api.get("/messages", campaign_id=path.rpartition("/")[2], status=status).expect(200)
    assert len(result) == 1
    row: dict[str, Any] = result[0]
    return row


def wait_until_completed(api: Client, path: str) -> dict[str, Any]:
    """Wait until a campaign is completed with no pending message, and return it."""
    campaign: dict[str, Any] = api.wait(path, lambda row: row["status"] == "completed" and not row["stats"]["pending"])
    return campaign


def adds_up(campaign: dict[str, Any]) -> bool:
    """Return whether the terms of the stats add up to the audience."""
    stats = campaign["stats"]
    terms = [value for name, value in stats.items() if name not in ("audience", "accepted")]
    return bool(stats["audience"] == campaign["audience_count"] == sum(terms))


def test_retry_an_uncertain_message(api: Client, relay: SmtpServer) -> None:
    """The retry sends the same bytes and Message-ID; the campaign stays completed and its counts add up."""
    relay.rules.store_then_close("lost@*", times=1)
    path = send_campaign(api, "lost", "fine")
    first = wait_until_completed(api, path)
    lost = message_with_status(api, path, "uncertain")
    gate = relay.rules.hold("body", "lost@*")
    again = api.post(f"/messages/{lost['id']}/retry").expect(200)
    gate.wait_reached()
    open_again = api.get(path).expect(200)
    gate.release()
    last = wait_until_completed(api, path)
    first_mail, two = relay.to("lost@example.org")

    assert (first["stats"]["uncertain"], first["stats"]["sent"]) == (1, 1)
    assert (again["status"], again["internet_message_id"]) == ("queued", lost["internet_message_id"])
    assert (open_again["status"], open_again["stats"]["pending"]) == ("completed", 1) and adds_up(open_again)
    assert (last["stats"]["sent"], last["sent_count"]) == (2, 2) and adds_up(last)
    assert first_mail.raw == two.raw and lost["internet_message_id"] in first_mail.raw_header("Message-ID")
    events = api.get("/events", event="campaign_completed", limit=100).json
    assert [str(event["data"]["campaign_id"]) for event in events].count(path.rpartition("/")[2]) == 1


def test_a_retry_with_uncertain_result_is_not_repeated(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A message that a user retried is not retried automatically again."""
    smtp_server.rules.store_then_close("lost@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__IN_DOUBT": "resend"}).client()
    path = send_campaign(api, "lost")
    wait_until_completed(api, path)
    api.post(f"/messages/{message_with_status(api, path, 'uncertain')['id']}/retry").expect(200)
    wait_until_completed(api, path)

    assert (message_with_status(api, path, "uncertain")["attempts"], len(smtp_server.to("lost@example.org"))) == (3, 3)


def test_assume_an_uncertain_message_sent(api: Client, relay: SmtpServer) -> None:
    """The message counts as sent, with its event, and is not sent again."""
    relay.rules.store_then_close("assumed@*", times=1)
    path = send_campaign(api, "assumed")
    wait_until_completed(api, path)
    lost = message_with_status(api, path, "uncertain")
    sent = api.post(f"/messages/{lost['id']}/assume_sent").expect(200)
    after = api.get(path).expect(200)
    shown = api.get(f"/messages/{lost['id']}").expect(200)
    again = api.post(f"/messages/{lost['id']}/assume_sent").expect(422)

    assert (sent["status"], sent["attempts"], sent["error"], bool(sent["sent_at"])) == ("sent", 1, None, True)
    assert (after["sent_count"], after["stats"]["accepted"]) == (1, 1) and adds_up(after)
    assert [event["event"] for event in shown["events"]] == ["email_sent"]
    assert (again["reason"], again["from"], again["to"], again["allowed"]) == ("invalid_transition", "sent", "sent", [])
    assert len(relay.to("assumed@example.org")) == 1


def test_retry_a_failed_message(api: Client, relay: SmtpServer) -> None:
    """A failed message is sent again; to a suppressed address the retry is rejected with the reason."""
    relay.rules.reject("rcpt", "policy@*", code=550, text="5.7.1 not today", times=1)
    relay.rules.reject("rcpt", "gone@*", code=550, text="5.1.1 no such user", times=1)
    path = send_campaign(api, "policy", "gone")
    wait_until_completed(api, path)
    failed = {row["to"]: row["id"] for row in api.get("/messages", status="failed").expect(200)}
    api.post(f"/messages/{failed['policy@example.org']}/retry").expect(200)
    error = api.post(f"/messages/{failed['gone@example.org']}/retry").expect(422)
    after = wait_until_completed(api, path)

    assert (error["reason"], error["skip_reason"]) == ("recipient_suppressed", "suppressed_hard_bounce")
    assert (after["stats"]["sent"], after["stats"]["failed"]) == (1, 1) and adds_up(after)
    assert (len(relay.to("policy@example.org")), relay.to("gone@example.org")) == (1, [])


def test_cancel_a_held_message(api: Client, relay: SmtpServer) -> None:
    """A cancelled message is not sent, and the campaign completes with the others."""
    path = send_campaign(api, "one", "two", hold_seconds=2)
    held = api.get("/messages", status="held").expect(200)
    back = api.post(f"/messages/{held[0]['id']}/cancel").expect(200)
    again = api.post(f"/messages/{held[0]['id']}/cancel").expect(422)
    after = wait_until_completed(api, path)

    assert (back["status"], again["reason"], again["allowed"]) == ("cancelled", "invalid_transition", [])
    assert (after["stats"]["sent"], after["stats"]["cancelled"]) == (1, 1) and adds_up(after)
    assert (relay.to(held[0]["to"]), len(relay.to(held[1]["to"]))) == ([], 1)


def test_no_retry_in_a_cancelled_campaign(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """An uncertain message of a cancelled campaign can be assumed sent, and not retried."""
    smtp_server.rules.store_then_close("lost@*", times=1)
    smtp_server.rules.reject("rcpt", "later@*", code=450, text="4.2.2 full")
    api = fresh_server(relay=smtp_server.port, env=HOLD | {"CAMPANERO_EMAIL__RETRY_AFTER": "3600"}).client()
    path = send_campaign(api, "lost", "later")
    api.wait(path, lambda row: row["stats"]["uncertain"] == 1)
    api.post(f"{path}/cancel").expect(200)
    lost = message_with_status(api, path, "uncertain")
    error = api.post(f"/messages/{lost['id']}/retry").expect(422)

    assert (error["reason"], error["from"], error["to"]) == ("invalid_transition", "uncertain", "queued")
    assert error["allowed"] == ["sent"]
    assert api.post(f"/messages/{lost['id']}/assume_sent").expect(200)["status"] == "sent"
    assert adds_up(api.get(path).expect(200))


def test_permissions_of_message_decisions(server: Server, api: Client) -> None:
    """They need `messages:send`, an existing message, and for a test key a test message."""
    message_id = api.post("/messages", {"to": "a@example.org", "subject": "s", "body": "b"}).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")

    reader = server.client(server.new_key("reader", "--scope", "messages:read"))
    tester = server.client(server.new_key("try", "--test"))
    for verb in ("retry", "cancel", "assume_sent"):
        assert api.post(f"/messages/{message_id}/{verb}").expect(422)["reason"] == "invalid_transition"
        assert api.post(f"/messages/4242/{verb}").status == 404
        assert reader.post(f"/messages/{message_id}/{verb}").expect(403)["required_scope"] == "messages:send"
        assert tester.post(f"/messages/{message_id}/{verb}").status == 403
