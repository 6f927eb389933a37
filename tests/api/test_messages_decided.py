"""What a person decides about messages: retry, cancel, assume_sent (docs/decisions.md#5 and #7)."""

from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}
HOLD = {"CAMPANERO_EMAIL__IN_DOUBT": "hold"}


def send(api: Client, *names: str, **body: Any) -> str:
    """Send a campaign to these people and answer its path."""
    group = api.post("/lists", {"name": "Crowd"}).expect(201)["id"]
    for name in names:
        api.post("/contacts", {"email": f"{name}@example.org", "list_ids": [group]}).expect(201)
    made = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": group}, **body}).expect(200)
    return path


def row(api: Client, path: str, status: str) -> dict[str, Any]:
    """Return the one message of a campaign in a status."""
    found = api.get("/messages", campaign_id=path.rpartition("/")[2], status=status).expect(200)
    assert len(found) == 1
    one: dict[str, Any] = found[0]
    return one


def done(api: Client, path: str) -> dict[str, Any]:
    """Wait until a campaign has nothing open, and answer it."""
    found: dict[str, Any] = api.wait(path, lambda one: one["status"] == "completed" and not one["stats"]["pending"])
    return found


def balanced(campaign: dict[str, Any]) -> bool:
    """Return whether the identity holds."""
    stats = campaign["stats"]
    terms = [value for name, value in stats.items() if name not in ("audience", "accepted")]
    return bool(stats["audience"] == campaign["audience_count"] == sum(terms))


def test_a_doubt_sent_again_is_the_same_message(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """It reopens the completed campaign until it has an answer; its bytes and Message-ID are those of the first."""
    smtp_server.rules.store_then_close("lost@*", times=1)
    api = fresh_server(relay=smtp_server.port, env=HOLD).client()
    path = send(api, "lost", "fine")
    first = done(api, path)
    lost = row(api, path, "uncertain")
    gate = smtp_server.rules.hold("body", "lost@*")
    again = api.post(f"/messages/{lost['id']}/retry").expect(200)
    gate.wait_reached()
    open_again = api.get(path).expect(200)
    gate.release()
    last = done(api, path)
    one, two = smtp_server.to("lost@example.org")

    assert (first["stats"]["uncertain"], first["stats"]["sent"]) == (1, 1)
    assert (again["status"], again["internet_message_id"]) == ("queued", lost["internet_message_id"])
    assert (open_again["status"], open_again["stats"]["pending"]) == ("completed", 1) and balanced(open_again)
    assert (last["stats"]["sent"], last["sent_count"]) == (2, 2) and balanced(last)
    assert one.raw == two.raw and lost["internet_message_id"] in one.raw_header("Message-ID")
    names = [event["event"] for event in api.get("/events", limit=100).json]
    assert names.count("campaign_completed") == 1


def test_a_second_doubt_is_not_repeated_by_itself(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """What a person sent again is sent once; when its answer is lost too, a person looks again."""
    smtp_server.rules.store_then_close("lost@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__IN_DOUBT": "resend"}).client()
    path = send(api, "lost")
    done(api, path)
    api.post(f"/messages/{row(api, path, 'uncertain')['id']}/retry").expect(200)
    done(api, path)

    assert (row(api, path, "uncertain")["attempts"], len(smtp_server.to("lost@example.org"))) == (3, 3)


def test_a_doubt_counted_as_sent(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """It is as if the answer had come: counted, with its event, and nothing more leaves."""
    smtp_server.rules.store_then_close("lost@*", times=1)
    api = fresh_server(relay=smtp_server.port, env=HOLD).client()
    path = send(api, "lost")
    done(api, path)
    lost = row(api, path, "uncertain")
    sent = api.post(f"/messages/{lost['id']}/assume_sent").expect(200)
    after = api.get(path).expect(200)
    shown = api.get(f"/messages/{lost['id']}").expect(200)
    again = api.post(f"/messages/{lost['id']}/assume_sent").expect(422)

    assert (sent["status"], sent["attempts"], sent["error"], bool(sent["sent_at"])) == ("sent", 1, None, True)
    assert (after["sent_count"], after["stats"]["accepted"]) == (1, 1) and balanced(after)
    assert [event["event"] for event in shown["events"]] == ["email_sent"]
    assert (again["reason"], again["from"], again["to"], again["allowed"]) == ("invalid_transition", "sent", "sent", [])
    assert len(smtp_server.messages) == 1


def test_a_refused_one_goes_when_the_reason_is_gone(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A failed message is tried once more; one on the do-not-send list by now is refused with the reason."""
    smtp_server.rules.reject("rcpt", "policy@*", code=550, text="5.7.1 not today", times=1)
    smtp_server.rules.reject("rcpt", "gone@*", code=550, text="5.1.1 no such user", times=1)
    api = fresh_server(relay=smtp_server.port).client()
    path = send(api, "policy", "gone")
    done(api, path)
    failed = {one["to"]: one["id"] for one in api.get("/messages", status="failed").expect(200)}
    api.post(f"/messages/{failed['policy@example.org']}/retry").expect(200)
    refused = api.post(f"/messages/{failed['gone@example.org']}/retry").expect(422)
    after = done(api, path)

    assert (refused["reason"], refused["skip_reason"]) == ("recipient_suppressed", "suppressed_hard_bounce")
    assert (after["stats"]["sent"], after["stats"]["failed"]) == (1, 1) and balanced(after)
    assert [message.to for message in smtp_server.messages] == ["policy@example.org"]


def test_a_waiting_message_is_taken_back(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Held and queued ones end as cancelled and never leave; the campaign completes with the others."""
    api = fresh_server(relay=smtp_server.port).client()
    path = send(api, "one", "two", hold_seconds=2)
    held = api.get("/messages", status="held").expect(200)
    back = api.post(f"/messages/{held[0]['id']}/cancel").expect(200)
    again = api.post(f"/messages/{held[0]['id']}/cancel").expect(422)
    after = done(api, path)

    assert (back["status"], again["reason"], again["allowed"]) == ("cancelled", "invalid_transition", [])
    assert (after["stats"]["sent"], after["stats"]["cancelled"]) == (1, 1) and balanced(after)
    assert [message.to for message in smtp_server.messages] == [held[1]["to"]]


def test_nothing_of_a_cancelled_campaign_goes_again(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Cancel is final: a doubt of it can be counted, not repeated."""
    smtp_server.rules.store_then_close("lost@*", times=1)
    smtp_server.rules.reject("rcpt", "later@*", code=450, text="4.2.2 full")
    api = fresh_server(relay=smtp_server.port, env=HOLD | {"CAMPANERO_EMAIL__RETRY_AFTER": "3600"}).client()
    path = send(api, "lost", "later")
    api.wait(path, lambda one: one["stats"]["uncertain"] == 1)
    api.post(f"{path}/cancel").expect(200)
    lost = row(api, path, "uncertain")
    refused = api.post(f"/messages/{lost['id']}/retry").expect(422)

    assert (refused["reason"], refused["from"], refused["to"]) == ("invalid_transition", "uncertain", "queued")
    assert refused["allowed"] == ["sent"]
    assert api.post(f"/messages/{lost['id']}/assume_sent").expect(200)["status"] == "sent"
    assert balanced(api.get(path).expect(200))


@pytest.mark.parametrize("verb", ["retry", "cancel", "assume_sent"])
def test_deciding_needs_the_scope_and_the_row(fresh_server: FreshServer, verb: str) -> None:
    """`messages:send` for it, 404 for what is not there, and a test key decides about test messages only."""
    server = fresh_server()
    api = server.client()
    made = api.post("/messages", {"to": "a@example.org", "subject": "s", "body": "b"}).expect(201)["id"]
    api.wait(f"/messages/{made}", lambda one: one["status"] == "sent")

    assert api.post(f"/messages/{made}/{verb}").expect(422)["reason"] == "invalid_transition"
    assert api.post(f"/messages/4242/{verb}").status == 404
    reader = server.client(server.new_key("reader", "--scope", "messages:read"))
    assert reader.post(f"/messages/{made}/{verb}").expect(403)["required_scope"] == "messages:send"
    assert server.client(server.new_key("try", "--test")).post(f"/messages/{made}/{verb}").status == 403
