"""A campaign through the relay, as the relay sees it."""

import re
import threading
from collections import Counter
from typing import Any

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

BODY = "<h1>Hello {{ contact.first_name | default: 'friend' }}</h1><p>Code {{ contact.data.code }}</p>"


def create_list(api: Client, count: int, name: str = "People") -> int:
    """Create a list of contacts, each with its own code."""
    list_id: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for index in range(count):
        body = {"email": f"p{index}@{name.lower()}.example", "first_name": f"Name{index} <&>", "list_ids": [list_id],
                "data": {"code": f"code-{index}-x"}}  # fmt: skip
        api.post("/contacts", body).expect(201)
    return list_id


def send(api: Client, list_id: int, **more: Any) -> dict[str, Any]:
    """Send a campaign to a list and return the response."""
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)
    body = {
        "trigger_attributes": {"contact_list_id": list_id},
        "template_attributes": {"subject": "For {{ first_name }}", "body": BODY, "from_email": "ana@bakery.example"},
        **more,
    }
    response: dict[str, Any] = api.post(f"/campaigns/{campaign['id']}/send", body).expect(200)
    return response


def completed(api: Client, campaign: dict[str, Any], timeout: float = 60) -> dict[str, Any]:
    """Wait until a campaign is completed and return it."""
    path = f"/campaigns/{campaign['id']}"
    row: dict[str, Any] = api.wait(path, lambda row: row["status"] == "completed", timeout)
    return row


def test_personalised_messages(sending_server: Server, smtp_server: SmtpServer) -> None:
    """Each recipient gets one message with its own content and all marketing headers."""
    api = sending_server.client()
    list_id = create_list(api, 12)
    campaign = completed(api, send(api, list_id))

    assert campaign["stats"] | {"audience": 12, "sent": 12, "accepted": 12, "pending": 0} == campaign["stats"]
    assert Counter(message.to for message in smtp_server.messages) == {f"p{n}@people.example": 1 for n in range(12)}
    for message in smtp_server.messages:
        number = message.to.split("@")[0][1:]
        assert message.subject == f"For Name{number} <&>"
        assert f"Hello Name{number} &lt;&amp;&gt;" in (message.html() or "")
        assert f"Hello Name{number} <&>" in (message.text() or "")
        assert re.findall(r"code-\d+-x", message.html() or "") == [f"code-{number}-x"]
        assert message.header("To") == message.to
        assert message.mail_from == "ana@bakery.example"
        assert (message.header("From") or "").endswith("<ana@bakery.example>")
        assert message.header("Precedence") == "bulk"
        assert message.header("List-Unsubscribe-Post") == "List-Unsubscribe=One-Click"
        assert re.fullmatch(
            rb"<http://127\.0\.0\.1:\d+/u/[\w-]{30}>", (message.raw_header("List-Unsubscribe") or "").encode()
        )
        assert (message.header("List-Id") or "").endswith(f"<list-{list_id}.bakery.example>")
        assert (message.header("Message-ID") or "").endswith("@bakery.example>")
        assert all(len(line) <= 998 for line in message.raw.split(b"\r\n"))
        assert b"\n" not in message.raw.replace(b"\r\n", b"") and b"\r" not in message.raw.replace(b"\r\n", b"")
    assert len({message.header("Message-ID") for message in smtp_server.messages}) == 12
    assert len(api.get("/events", event="email_sent").json) == 12


def test_rejections_affect_only_their_message(sending_server: Server, smtp_server: SmtpServer) -> None:
    """A rejected recipient fails with the server's text, one with a render error is skipped, and others are sent."""
    smtp_server.rules.reject("rcpt", "p1@*", code=550, text="5.1.1 no such person")
    smtp_server.rules.reject("body", "p2@*", code=554, text="5.7.1 looks like spam")
    api = sending_server.client()
    list_id = create_list(api, 5)
    contact = api.get("/contacts", search="p3@people.example").json[0]
    api.patch(f"/contacts/{contact['id']}", {"data": {"code": list(range(2000))}}).expect(200)
    body = BODY + "{% for x in contact.data.code %}{{ x }}{% endfor %}"
    campaign = send(
        api, list_id, template_attributes={"subject": "s", "body": body, "from_email": "ana@bakery.example"}
    )
    completed_campaign = completed(api, campaign)

    assert (
        completed_campaign["stats"] | {"audience": 5, "sent": 2, "failed": 2, "skipped": 1}
        == completed_campaign["stats"]
    )
    rows = {row["to"].split("@")[0]: row for row in api.get("/messages", campaign_id=campaign["id"]).json}
    assert rows["p1"]["error"] == {
        "code": "refused",
        "smtp": 550,
        "enhanced": "5.1.1",
        "text": "550 5.1.1 no such person",
    }
    assert (rows["p2"]["status"], rows["p2"]["attempts"], rows["p2"]["error"]["smtp"]) == ("failed", 1, 554)
    assert (rows["p3"]["status"], rows["p3"]["skip_reason"]) == ("skipped", "render_error")
    assert "loop" in rows["p3"]["error"]["text"]
    assert len(smtp_server.phases("rcpt", "p1@people.example")) == 1
    assert {message.to for message in smtp_server.messages} == {"p0@people.example", "p4@people.example"}


def test_deferred_messages_are_retried(sending_server: Server, smtp_server: SmtpServer) -> None:
    """After a 450 and a 421 each message is sent once."""
    smtp_server.rules.reject("rcpt", "p0@*", code=450, text="4.2.1 try later", times=2)
    smtp_server.rules.reject("mail", "*", code=421, text="4.7.0 busy", times=1)
    api = sending_server.client()
    campaign = send(api, create_list(api, 3))
    completed_campaign = completed(api, campaign)

    assert (completed_campaign["stats"]["sent"], completed_campaign["stats"]["failed"]) == (3, 0)
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1
    row = next(row for row in api.get("/messages", campaign_id=campaign["id"]).json if row["to"].startswith("p0@"))
    # The 421 may have been for any recipient
    assert (row["attempts"] in (3, 4), row["error"]) == (True, None)


def test_a_lost_reply_is_resent_once(sending_server: Server, smtp_server: SmtpServer) -> None:
    """A message that was stored without a reply is sent again once, with the same Message-ID and body (P3)."""
    smtp_server.rules.store_then_close("p1@*", times=1)
    api = sending_server.client()
    campaign = send(api, create_list(api, 3))
    completed_campaign = completed(api, campaign)
    copies = smtp_server.to("p1@people.example")

    assert completed_campaign["stats"]["sent"] == 3
    assert len(copies) == 2 and len(smtp_server.messages) == 4
    assert copies[0].header("Message-ID") == copies[1].header("Message-ID")
    assert copies[0].raw.partition(b"\r\n\r\n")[2] == copies[1].raw.partition(b"\r\n\r\n")[2]


def test_a_second_lost_reply_is_uncertain(sending_server: Server, smtp_server: SmtpServer) -> None:
    """After two lost replies there is no third copy; the message is `uncertain`."""
    smtp_server.rules.store_then_close("p1@*")
    api = sending_server.client()
    campaign = send(api, create_list(api, 2))
    completed_campaign = completed(api, campaign)

    assert completed_campaign["stats"] | {"sent": 1, "uncertain": 1, "pending": 0} == completed_campaign["stats"]
    assert len(smtp_server.to("p1@people.example")) == 2


def test_hold_resends_nothing(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """With `in_doubt = hold` an uncertain message is not sent again."""
    smtp_server.rules.store_then_close("p0@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__IN_DOUBT": "hold"}).client()
    completed_campaign = completed(api, send(api, create_list(api, 2)))

    assert (completed_campaign["stats"]["uncertain"], len(smtp_server.to("p0@people.example"))) == (1, 1)


def test_opting_out_after_the_send(sending_server: Server, smtp_server: SmtpServer) -> None:
    """A contact that opts out after the audience was fixed is skipped (P4)."""
    gate = smtp_server.rules.hold("mail")
    api = sending_server.client()
    list_id = create_list(api, 12)
    campaign = send(api, list_id)
    gate.wait_reached()
    last = api.get("/contacts", list_id=list_id).json[0]
    api.patch(f"/contacts/{last['id']}", {"subscribed_email": False}).expect(200)
    gate.release()
    completed_campaign = completed(api, campaign)

    assert (completed_campaign["stats"]["sent"], completed_campaign["stats"]["skipped"]) == (11, 1)
    assert last["channels"][0]["value"] not in {message.to for message in smtp_server.messages}
    row = next(row for row in api.get("/messages", campaign_id=campaign["id"]).json if row["contact_id"] == last["id"])
    assert row["skip_reason"] == "unsubscribed"


def test_pause_resume_and_cancel(sending_server: Server, smtp_server: SmtpServer) -> None:
    """After a pause at most four messages leave; the rest is sent or cancelled."""
    gate = smtp_server.rules.hold("mail")
    api = sending_server.client()
    path = f"/campaigns/{send(api, create_list(api, 20))['id']}"
    gate.wait_reached()
    paused = api.post(f"{path}/pause").expect(200)
    gate.release()
    threading.Event().wait(1.5)
    sent_while_paused = len(smtp_server.messages)
    while_paused = api.get(path).json
    resumed = api.post(f"{path}/resume").expect(200)
    smtp_server.wait_for(sent_while_paused + 1)
    smtp_server.rules.hold("mail")
    cancelled = api.post(f"{path}/cancel")

    assert (paused["status"], paused["phase"]) == ("paused", "paused")
    assert sent_while_paused <= 4 and while_paused["stats"]["pending"] == 20 - sent_while_paused
    assert resumed["status"] == "active"
    if cancelled.status == 200:
        assert (cancelled.json["phase"], cancelled.json["cancelled_at"] is not None) == ("cancelled", True)
    smtp_server.rules.clear()
    final = api.wait(path, lambda row: row["stats"]["pending"] == 0)
    assert final["stats"]["sent"] + final["stats"]["cancelled"] == 20
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1


def test_an_unreachable_relay_counts_no_attempt(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Messages wait without counted attempts and are sent once the relay is back (P6)."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__PROBE_AFTER": "1s"})
    api = server.client()
    list_id = create_list(api, 5)
    smtp_server.stop()
    campaign = send(api, list_id)
    threading.Event().wait(2)
    waiting = api.get("/messages", campaign_id=campaign["id"]).json
    smtp_server.start()
    completed(api, campaign)

    assert {(row["status"], row["attempts"]) for row in waiting} <= {("queued", 0), ("sending", 0)}
    assert len(smtp_server.messages) == 5
    assert {row["attempts"] for row in api.get("/messages", campaign_id=campaign["id"]).json} == {1}


def test_twenty_sender_rejections_pause_the_campaign(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Rejections that are not about a recipient fail no message, and pause the campaign after about twenty (P7)."""
    rule = smtp_server.rules.reject("mail", code=530, text="5.7.0 authentication required")
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__PROBE_AFTER": "1s"})
    api = server.client()
    path = f"/campaigns/{send(api, create_list(api, 40))['id']}"
    paused = api.wait(path, lambda row: row["status"] == "paused")
    tried = rule.used

    assert (paused["pause_reason"], paused["stats"]["failed"], paused["stats"]["pending"]) == ("transport", 0, 40)
    assert 20 <= tried <= 24
    smtp_server.rules.clear()
    api.post(f"{path}/resume").expect(200)
    assert api.wait(path, lambda row: row["status"] == "completed")["stats"]["sent"] == 40


def test_hostile_contact_data_stays_text(sending_server: Server, smtp_server: SmtpServer) -> None:
    """Merge tags, header injections and markup in contact data are text in the message (T01, T06, T07)."""
    api = sending_server.client()
    list_id = api.post("/lists", {"name": "Hostile"}).json["id"]
    hostile_names = ["{{ 7 | plus: 7 }}{% for i in (1..9) %}x{% endfor %}", "=?utf-8?q?hi=0D=0ABcc:_v@x.y?=",
            "<script>1</script>",
            "a\u2028Bcc: x@y.z", ".\u0085.", "\u202eevil"]  # fmt: skip
    for index, name in enumerate(hostile_names):
        body = {"email": f"h{index}@example.org", "data": {"name": name}, "list_ids": [list_id]}
        api.post("/contacts", body).expect(201)
    content = {"subject": "Hi {{ contact.data.name }}", "body": "<p>{{ contact.data.name }}</p>\n.\n",
               "from_email": "ana@bakery.example", "from_name": "{{ contact.data.name }}"}  # fmt: skip
    completed(api, send(api, list_id, template_attributes=content))

    assert len(smtp_server.messages) == len(hostile_names)
    for message in smtp_server.messages:
        for name in ("From", "To", "Subject", "Date", "Message-ID"):
            assert len(message.headers(name)) == 1, name
        for name in ("Bcc", "Cc", "X-Evil"):
            assert message.headers(name) == []
        assert "<script>" not in (message.html() or "")
    assert "{{ 7 | plus: 7 }}" in (smtp_server.to("h0@example.org")[0].html() or "")


def test_two_campaigns_are_sent_in_turns(sending_server: Server, smtp_server: SmtpServer) -> None:
    """Two campaigns are sent alternately, and both complete."""
    gate = smtp_server.rules.hold("connect")
    api = sending_server.client()
    first = send(api, create_list(api, 60, "First"))
    gate.wait_reached()
    second = send(api, create_list(api, 60, "Second"))
    gate.release()
    completed(api, first)
    completed(api, second)
    middle_domains = [message.to.split("@")[1] for message in smtp_server.messages[10:60]]

    assert len(smtp_server.messages) == 120
    assert min(Counter(middle_domains)["first.example"], Counter(middle_domains)["second.example"]) > 5


def test_a_test_key_sends_to_the_capture_inbox(sending_server: Server, smtp_server: SmtpServer) -> None:
    """A campaign sent with a test key is captured, marked as a test and not counted."""
    api = sending_server.client()
    list_id = create_list(api, 2)
    test_api = sending_server.client(sending_server.new_key("rehearsal", "--test"))
    campaign = send(test_api, list_id)
    completed_campaign = completed(test_api, campaign)

    assert (completed_campaign["stats"]["sent"], completed_campaign["sent_count"], smtp_server.messages) == (2, 0, [])
    assert {(row["test"], row["provider"]) for row in api.get("/messages", campaign_id=campaign["id"]).json} == {
        (True, "capture")
    }
    assert api.get("/events", event="email_sent", test="true").headers["X-Total-Count"] == "2"
