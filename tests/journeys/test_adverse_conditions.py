"""Conditions that must not stop the service: slow servers, odd senders and templates, a locked database."""

import threading
import time
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout

CONTENT = {"subject": "s", "body": "<p>Hi {{ first_name }}</p>", "from_email": "ana@bakery.example"}


def create_list(api: Client, count: int, name: str = "Crowd") -> int:
    """Create a list of `count` contacts."""
    list_id: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for index in range(count):
        body = {"email": f"{name.lower()}{index}@example.org", "first_name": f"N{index}", "list_ids": [list_id]}
        api.post("/contacts", body).expect(201)
    return list_id


def send(api: Client, list_id: int, **content: Any) -> str:
    """Send a campaign and return its path."""
    campaign = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT | content}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    return path


def test_a_hanging_transaction_delays_no_other_message(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """While one SMTP transaction hangs, a new message is sent."""
    gate = smtp_server.rules.hold("body", "slow@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__REPLY_TIMEOUT": "60s"}).client()
    body = {"subject": "s", "body": "b", "from_email": "ana@bakery.example"}
    api.post("/messages", body | {"to": "slow@example.org"}).expect(201)
    gate.wait_reached()
    quick = api.post("/messages", body | {"to": "quick@example.org"}).expect(201)
    api.wait(f"/messages/{quick['id']}", lambda row: row["status"] == "sent", timeout=50)
    gate.release()

    assert smtp_server.messages[0].to == "quick@example.org"


def test_messages_behind_a_hanging_transaction_are_sent(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Messages behind a hanging transaction are sent once over other connections (P3)."""
    gate = smtp_server.rules.hold("body", "crowd0@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__REPLY_TIMEOUT": "60s"}).client()
    path = send(api, create_list(api, 12))
    gate.wait_reached()
    smtp_server.wait_for(11, timeout=50)
    gate.release()
    completed = api.wait(path, lambda row: row["status"] == "completed")

    assert (completed["stats"]["sent"], completed["stats"]["uncertain"]) == (12, 0)
    assert sorted(message.to for message in smtp_server.messages) == sorted(f"crowd{n}@example.org" for n in range(12))


def test_a_recipient_that_always_disconnects_fails(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """A message at which the server always hangs up costs its own attempts and fails in the end; others are sent."""
    smtp_server.rules.drop("data", "crowd1@*")
    env = {"CAMPANERO_EMAIL__GIVE_UP": "1h", "CAMPANERO_EMAIL__PROBE_AFTER": "1s"}
    api = fresh_server(relay=smtp_server.port, env=env, clock=clock).client()
    path = send(api, create_list(api, 12))
    api.wait(path, lambda row: row["stats"]["sent"] == 11)
    clock.advance(hours=2)
    completed = api.wait(path, lambda row: row["status"] == "completed")

    assert (completed["stats"]["sent"], completed["stats"]["failed"]) == (11, 1)


def test_a_sender_outside_ascii(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A local part outside ASCII is sent where SMTPUTF8 is offered, else its messages are skipped."""
    api = fresh_server(relay=smtp_server.port).client()
    list_id = create_list(api, 2)
    accepted_path = send(api, list_id, from_email="jürgen@bakery.example", reply_to="info@bücher.example")
    assert api.wait(accepted_path, lambda row: row["status"] == "completed")["stats"]["sent"] == 2
    assert {message.raw_header("Reply-To") for message in smtp_server.messages} == {"info@xn--bcher-kva.example"}
    smtp_server.smtputf8 = False
    skipped_path = send(api, list_id, from_email="jürgen@bakery.example")
    completed = api.wait(skipped_path, lambda row: row["status"] == "completed")

    assert (completed["stats"]["sent"], completed["stats"]["skipped"]) == (0, 2)


def test_hostile_bodies_take_less_than_two_seconds(fresh_server: FreshServer) -> None:
    """Unclosed tags, nested tags and broken markup are answered within two seconds."""
    api = fresh_server().client()
    hostile = [
        "{{" * 7000,
        "{% comment %}" + "{{" * 20000,
        "<p " * 60000,
        "<!--" * 60000,
        "{{a}}" * 40000,
        "<td>" * 60000,
    ]
    for body in hostile:
        started = time.monotonic()
        response = api.post("/messages", {"to": "x@example.org", "subject": "s", "body": "<p>" + body})
        assert response.status in (201, 422)
        assert time.monotonic() - started < extend_timeout(2), body[:20]


def test_placeholder_characters_in_a_body_are_text(fresh_server: FreshServer, clock: TestClock) -> None:
    """A body with the renderer's own placeholder characters is sent, as is a campaign scheduled beside it."""
    api = fresh_server(clock=clock).client()
    list_id = create_list(api, 1)
    paths = []
    for body in ("<p>\ue0005\ue001</p>", "<p>fine</p>"):
        scheduled_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 600))
        created = api.post(
            "/campaigns", {"name": "x", "scheduled_at": scheduled_at, "template_attributes": CONTENT | {"body": body}}
        )
        paths.append(f"/campaigns/{created.expect(201)['id']}")
        api.post(f"{paths[-1]}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    clock.advance(minutes=11)

    for path in paths:
        completed = api.wait(path, lambda row: row["status"] == "completed")
        assert (completed["stats"]["sent"], completed["approval_state"]) == (1, "approved")


@pytest.mark.full
def test_aborted_requests_while_the_database_is_locked(fresh_server: FreshServer) -> None:
    """While the database is locked writes return 503; aborted requests write nothing, and later writes succeed."""
    server = fresh_server()
    api = server.client()
    other = apsw.Connection(str(server.data / "campanero.db"))
    other.execute("BEGIN IMMEDIATE").fetchall()
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(api.post("/contacts", {"first_name": "waiting"}).status)

    def give_up() -> None:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=2)
        headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/my/contacts", b'{"first_name": "impatient"}', headers)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()

    threads = [threading.Thread(target=client) for client in (give_up, ask, give_up, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.execute("ROLLBACK").fetchall()
    other.close()

    assert statuses == [503, 503]
    assert api.post("/contacts", {"first_name": "after"}).status == 201
    assert {row["first_name"] for row in api.get("/contacts").json} == {"after"}


def test_a_reassigned_address_gets_no_message_of_its_former_owner(fresh_server: FreshServer) -> None:
    """A message for one contact is skipped if its address belongs to another contact by then."""
    api = fresh_server().client()
    list_id = create_list(api, 1)
    campaign = api.post("/campaigns", {"name": "x", "template_attributes": CONTENT}).json
    body = {"trigger_attributes": {"contact_list_id": list_id}, "hold_seconds": 2}
    api.post(f"/campaigns/{campaign['id']}/send", body).expect(200)
    first = api.get("/contacts", list_id=list_id).json[0]
    api.patch(f"/contacts/{first['id']}", {"email": "moved@example.org"}).expect(200)
    api.post("/contacts", {"email": "crowd0@example.org", "first_name": "Bob"}).expect(201)
    completed = api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed")

    assert (completed["stats"]["sent"], completed["stats"]["skipped"]) == (0, 1)


def test_a_scheduled_message_keeps_its_content(fresh_server: FreshServer) -> None:
    """Deleting the template after the message was accepted does not change the message."""
    api = fresh_server().client()
    template = api.post("/templates", {"subject": "Hello", "body": "<p>Original</p>"}).json
    send_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
    message = api.post("/messages", {"to": "x@example.org", "template_id": template["id"], "send_at": send_at}).expect(
        201
    )
    api.delete(f"/templates/{template['id']}").expect(200)
    sent = api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")

    assert sent["subject"] == "Hello" and "Original" in sent["html"]


def test_a_rejected_sender_pauses_only_its_campaign(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A From address that the relay rejects pauses its campaign, and another campaign is sent."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__PROBE_AFTER": "1s"})
    api = server.client()
    list_id = create_list(api, 30)
    smtp_server.rules.reject("mail", "bad@*", code=550, text="5.7.1 sender rejected")
    bad = send(api, list_id, from_email="bad@bakery.example")
    good = send(api, list_id)

    assert api.wait(good, lambda row: row["status"] == "completed")["stats"]["sent"] == 30
    assert api.wait(bad, lambda row: row["status"] == "paused")["pause_reason"] == "transport"


def test_an_empty_key_file_prevents_the_start(fresh_server: FreshServer) -> None:
    """An empty key file stops the start with one clear line."""
    server = fresh_server(start=False)
    (server.data / "secret.key").write_text("")

    assert "secret.key is not a key" in server.cli("serve", expect=1).stderr


def test_the_template_of_a_locked_campaign_is_locked(fresh_server: FreshServer, clock: TestClock) -> None:
    """Editing a scheduled campaign's template withdraws the approval; five minutes before the start it is locked."""
    api = fresh_server(clock=clock).client()
    scheduled_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 3600))
    campaign = api.post("/campaigns", {"name": "x", "scheduled_at": scheduled_at, "template_attributes": CONTENT}).json
    path, template = f"/campaigns/{campaign['id']}", f"/templates/{campaign['template']['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": create_list(api, 1)}}).expect(200)
    api.patch(template, {"subject": "changed"}).expect(200)
    assert api.get(path).json["approval_state"] == "pending_review"
    clock.advance(minutes=56)

    assert api.patch(template, {"subject": "too late"}).expect(422)["reason"] == "campaign_locked"
