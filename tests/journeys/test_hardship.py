"""What must not stop the rest: slow servers, odd senders, odd templates, a locked database, an interrupted start."""

import threading
import time
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.patience import soon
from tests.kit.smtp import SmtpServer

CONTENT = {"subject": "s", "body": "<p>Hi {{ first_name }}</p>", "from_email": "ana@bakery.example"}


def crowd(api: Client, count: int, name: str = "Crowd") -> int:
    """Make a list of that many people."""
    group: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for index in range(count):
        body = {"email": f"{name.lower()}{index}@example.org", "first_name": f"N{index}", "list_ids": [group]}
        api.post("/contacts", body).expect(201)
    return group


def send(api: Client, group: int, **more: Any) -> str:
    """Send a campaign and answer its path."""
    made = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT | more}).expect(201)
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    return path


def test_one_slow_conversation_holds_up_nobody_else(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """While one recipient's server thinks, new messages go out."""
    gate = smtp_server.rules.hold("body", "slow@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__REPLY_TIMEOUT": "60s"}).client()
    body = {"subject": "s", "body": "b", "from_email": "ana@bakery.example"}
    api.post("/messages", body | {"to": "slow@example.org"}).expect(201)
    gate.wait_reached()
    quick = api.post("/messages", body | {"to": "quick@example.org"}).expect(201)
    api.wait(f"/messages/{quick['id']}", lambda row: row["status"] == "sent", timeout=50)
    gate.release()

    assert smtp_server.messages[0].to == "quick@example.org"


def test_nobody_waits_behind_a_slow_conversation(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A message that was offered behind one that hangs goes out by another connection meanwhile, once (P3)."""
    gate = smtp_server.rules.hold("body", "crowd0@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__REPLY_TIMEOUT": "60s"}).client()
    path = send(api, crowd(api, 12))
    gate.wait_reached()
    smtp_server.wait_for(11, timeout=50)
    gate.release()
    done = api.wait(path, lambda row: row["status"] == "completed")

    assert (done["stats"]["sent"], done["stats"]["uncertain"]) == (12, 0)
    assert sorted(message.to for message in smtp_server.messages) == sorted(f"crowd{n}@example.org" for n in range(12))


def test_a_message_that_nobody_can_stand_ends(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """A recipient at whom the next hop always hangs up costs attempts of its own and fails in the end; others go."""
    smtp_server.rules.drop("data", "crowd1@*")
    env = {"CAMPANERO_EMAIL__GIVE_UP": "1h", "CAMPANERO_EMAIL__PROBE_AFTER": "1s"}
    api = fresh_server(relay=smtp_server.port, env=env, clock=clock).client()
    path = send(api, crowd(api, 12))
    api.wait(path, lambda row: row["stats"]["sent"] == 11)
    clock.advance(hours=2)
    done = api.wait(path, lambda row: row["status"] == "completed")

    assert (done["stats"]["sent"], done["stats"]["failed"]) == (11, 1)


def test_a_sender_outside_ascii_is_no_trap(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A local part that needs SMTPUTF8 goes where it is taken, and is said plainly where it is not."""
    api = fresh_server(relay=smtp_server.port).client()
    group = crowd(api, 2)
    good = send(api, group, from_email="jürgen@bakery.example", reply_to="info@bücher.example")
    assert api.wait(good, lambda row: row["status"] == "completed")["stats"]["sent"] == 2
    assert {message.raw_header("Reply-To") for message in smtp_server.messages} == {"info@xn--bcher-kva.example"}
    smtp_server.smtputf8 = False
    poor = send(api, group, from_email="jürgen@bakery.example")
    done = api.wait(poor, lambda row: row["status"] == "completed")

    assert (done["stats"]["sent"], done["stats"]["skipped"]) == (0, 2)


def test_no_small_body_holds_the_service(fresh_server: FreshServer) -> None:
    """Unclosed tags, nested tags and broken markup are answered at once, and others are answered meanwhile."""
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
        begun = time.monotonic()
        answer = api.post("/messages", {"to": "x@example.org", "subject": "s", "body": "<p>" + body})
        assert answer.status in (201, 422)
        assert time.monotonic() - begun < soon(2), body[:20]


def test_one_campaign_that_cannot_start_stops_no_other(fresh_server: FreshServer, clock: TestClock) -> None:
    """Marks of our own in a body are only text; a scheduled campaign beside it starts and completes."""
    api = fresh_server(clock=clock).client()
    group = crowd(api, 1)
    paths = []
    for body in ("<p>\ue0005\ue001</p>", "<p>fine</p>"):
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 600))
        made = api.post(
            "/campaigns", {"name": "x", "scheduled_at": when, "template_attributes": CONTENT | {"body": body}}
        )
        paths.append(f"/campaigns/{made.expect(201)['id']}")
        api.post(f"{paths[-1]}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    clock.advance(minutes=11)

    for path in paths:
        done = api.wait(path, lambda row: row["status"] == "completed")
        assert (done["stats"]["sent"], done["approval_state"]) == (1, "approved")


def test_a_hung_up_client_and_a_locked_database_leave_the_service_working(fresh_server: FreshServer) -> None:
    """Who gives up waiting harms nobody; writes are refused with 503 while locked and work again afterwards."""
    server = fresh_server()
    api = server.client()
    other = apsw.Connection(str(server.data / "campanero.db"))
    other.execute("BEGIN IMMEDIATE").fetchall()
    answers: list[int] = []

    def ask() -> None:
        answers.append(api.post("/contacts", {"first_name": "waiting"}).status)

    def give_up() -> None:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=2)
        headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/my/contacts", b'{"first_name": "impatient"}', headers)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()

    threads = [threading.Thread(target=one) for one in (give_up, ask, give_up, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.execute("ROLLBACK").fetchall()
    other.close()

    assert answers == [503, 503]
    assert api.post("/contacts", {"first_name": "after"}).status == 201
    assert {row["first_name"] for row in api.get("/contacts").json} == {"after"}


def test_an_address_that_changed_hands_gets_nothing_of_its_former_owner(fresh_server: FreshServer) -> None:
    """What was written for one person never goes to another."""
    api = fresh_server().client()
    group = crowd(api, 1)
    made = api.post("/campaigns", {"name": "x", "template_attributes": CONTENT}).json
    body = {"trigger_attributes": {"contact_list_id": group}, "hold_seconds": 2}
    api.post(f"/campaigns/{made['id']}/send", body).expect(200)
    first = api.get("/contacts", list_id=group).json[0]
    api.patch(f"/contacts/{first['id']}", {"email": "moved@example.org"}).expect(200)
    api.post("/contacts", {"email": "crowd0@example.org", "first_name": "Bob"}).expect(201)
    done = api.wait(f"/campaigns/{made['id']}", lambda row: row["status"] == "completed")

    assert (done["stats"]["sent"], done["stats"]["skipped"]) == (0, 1)


def test_a_held_message_keeps_the_words_it_was_accepted_with(fresh_server: FreshServer) -> None:
    """Changing or deleting the template afterwards changes nothing."""
    api = fresh_server().client()
    template = api.post("/templates", {"subject": "Hello", "body": "<p>Original</p>"}).json
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
    made = api.post("/messages", {"to": "x@example.org", "template_id": template["id"], "send_at": when}).expect(201)
    api.delete(f"/templates/{template['id']}").expect(200)
    done = api.wait(f"/messages/{made['id']}", lambda row: row["status"] == "sent")

    assert done["subject"] == "Hello" and "Original" in done["html"]


def test_a_refused_sender_pauses_only_its_own_campaign(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """What the next hop has against one From address is no reason to stop another campaign."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__PROBE_AFTER": "1s"})
    api = server.client()
    group = crowd(api, 30)
    smtp_server.rules.refuse("mail", "bad@*", code=550, text="5.7.1 sender rejected")
    bad = send(api, group, from_email="bad@bakery.example")
    good = send(api, group)

    assert api.wait(good, lambda row: row["status"] == "completed")["stats"]["sent"] == 30
    assert api.wait(bad, lambda row: row["status"] == "paused")["pause_reason"] == "transport"


def test_a_key_file_that_is_no_key_is_said_plainly(fresh_server: FreshServer) -> None:
    """An empty key file stops the start with one clear line."""
    server = fresh_server(start=False)
    (server.data / "secret.key").write_text("")

    assert "secret.key is not a key" in server.cli("serve", expect=1).stderr


def test_the_template_of_a_locked_campaign_is_locked(fresh_server: FreshServer, clock: TestClock) -> None:
    """The way round the lock through the template is closed; before it, editing takes the approval back."""
    api = fresh_server(clock=clock).client()
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 3600))
    made = api.post("/campaigns", {"name": "x", "scheduled_at": when, "template_attributes": CONTENT}).json
    path, template = f"/campaigns/{made['id']}", f"/templates/{made['template']['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": crowd(api, 1)}}).expect(200)
    api.patch(template, {"subject": "changed"}).expect(200)
    assert api.get(path).json["approval_state"] == "pending_review"
    clock.advance(minutes=56)

    assert api.patch(template, {"subject": "too late"}).expect(422)["reason"] == "campaign_locked"
