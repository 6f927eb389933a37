"""A campaign through the relay transport, as the next hop sees it."""

import re
import threading
from collections import Counter
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

BODY = "<h1>Hello {{ contact.first_name | default: 'friend' }}</h1><p>Code {{ contact.data.code }}</p>"


def people(api: Client, count: int, name: str = "People") -> int:
    """Make a list with people who each have a code of their own."""
    number: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for index in range(count):
        body = {"email": f"p{index}@{name.lower()}.example", "first_name": f"Name{index} <&>", "list_ids": [number],
                "data": {"code": f"code-{index}-x"}}  # fmt: skip
        api.post("/contacts", body).expect(201)
    return number


def send(api: Client, group: int, **more: Any) -> dict[str, Any]:
    """Send a campaign to a list and answer it as it was answered."""
    made = api.post("/campaigns", {"name": "Letter"}).expect(201)
    body = {
        "trigger_attributes": {"contact_list_id": group},
        "template_attributes": {"subject": "For {{ first_name }}", "body": BODY, "from_email": "ana@bakery.example"},
        **more,
    }
    answer: dict[str, Any] = api.post(f"/campaigns/{made['id']}/send", body).expect(200)
    return answer


def completed(api: Client, campaign: dict[str, Any], timeout: float = 60) -> dict[str, Any]:
    """Wait until a campaign is completed and answer it."""
    path = f"/campaigns/{campaign['id']}"
    done: dict[str, Any] = api.wait(path, lambda row: row["status"] == "completed", timeout)
    return done


@pytest.fixture
def relay(fresh_server: FreshServer, smtp_server: SmtpServer) -> Server:
    """A server that hands everything to the SMTP server of the test."""
    return fresh_server(relay=smtp_server.port)


def test_every_message_is_personal_and_complete(relay: Server, smtp_server: SmtpServer) -> None:
    """One recipient a message, the right words for each, the headers of marketing mail, one row each."""
    api = relay.client()
    group = people(api, 12)
    done = completed(api, send(api, group))

    assert done["stats"] | {"audience": 12, "sent": 12, "accepted": 12, "pending": 0} == done["stats"]
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
        assert (message.header("List-Id") or "").endswith(f"<list-{group}.bakery.example>")
        assert (message.header("Message-ID") or "").endswith("@bakery.example>")
        assert all(len(line) <= 998 for line in message.raw.split(b"\r\n"))
        assert b"\n" not in message.raw.replace(b"\r\n", b"") and b"\r" not in message.raw.replace(b"\r\n", b"")
    assert len({message.header("Message-ID") for message in smtp_server.messages}) == 12
    assert len(api.get("/events", event="email_sent").json) == 12


def test_refusals_end_in_their_own_rows(relay: Server, smtp_server: SmtpServer) -> None:
    """A refused recipient fails once with the server's words; one who cannot be rendered is skipped; the rest go."""
    smtp_server.rules.refuse("rcpt", "p1@*", code=550, text="5.1.1 no such person")
    smtp_server.rules.refuse("body", "p2@*", code=554, text="5.7.1 looks like spam")
    api = relay.client()
    group = people(api, 5)
    poison = api.get("/contacts", search="p3@people.example").json[0]
    api.patch(f"/contacts/{poison['id']}", {"data": {"code": list(range(2000))}}).expect(200)
    body = BODY + "{% for x in contact.data.code %}{{ x }}{% endfor %}"
    made = send(api, group, template_attributes={"subject": "s", "body": body, "from_email": "ana@bakery.example"})
    done = completed(api, made)

    assert done["stats"] | {"audience": 5, "sent": 2, "failed": 2, "skipped": 1} == done["stats"]
    rows = {row["to"].split("@")[0]: row for row in api.get("/messages", campaign_id=made["id"]).json}
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


def test_temporary_refusals_are_tried_again(relay: Server, smtp_server: SmtpServer) -> None:
    """450 and 421 cost an attempt, not the message; each arrives once."""
    smtp_server.rules.refuse("rcpt", "p0@*", code=450, text="4.2.1 try later", times=2)
    smtp_server.rules.refuse("mail", "*", code=421, text="4.7.0 busy", times=1)
    api = relay.client()
    made = send(api, people(api, 3))
    done = completed(api, made)

    assert (done["stats"]["sent"], done["stats"]["failed"]) == (3, 0)
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1
    row = next(row for row in api.get("/messages", campaign_id=made["id"]).json if row["to"].startswith("p0@"))
    # The 421 may have met anybody
    assert (row["attempts"] in (3, 4), row["error"]) == (True, None)


def test_a_lost_reply_is_repeated_once_with_the_same_bytes(relay: Server, smtp_server: SmtpServer) -> None:
    """Stored and closed before the 250: one copy more, the same Message-ID (P3)."""
    smtp_server.rules.store_then_close("p1@*", times=1)
    api = relay.client()
    made = send(api, people(api, 3))
    done = completed(api, made)
    copies = smtp_server.to("p1@people.example")

    assert done["stats"]["sent"] == 3
    assert len(copies) == 2 and len(smtp_server.messages) == 4
    assert copies[0].header("Message-ID") == copies[1].header("Message-ID")
    assert copies[0].raw.partition(b"\r\n\r\n")[2] == copies[1].raw.partition(b"\r\n\r\n")[2]


def test_a_second_doubt_ends_uncertain(relay: Server, smtp_server: SmtpServer) -> None:
    """Never a third copy: the row says that nobody knows."""
    smtp_server.rules.store_then_close("p1@*")
    api = relay.client()
    made = send(api, people(api, 2))
    done = completed(api, made)

    assert done["stats"] | {"sent": 1, "uncertain": 1, "pending": 0} == done["stats"]
    assert len(smtp_server.to("p1@people.example")) == 2


def test_held_doubts_are_never_repeated(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """With `in_doubt = hold` a doubtful message waits for a person."""
    smtp_server.rules.store_then_close("p0@*")
    api = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__IN_DOUBT": "hold"}).client()
    done = completed(api, send(api, people(api, 2)))

    assert (done["stats"]["uncertain"], len(smtp_server.to("p0@people.example"))) == (1, 1)


def test_opting_out_beats_the_queue(relay: Server, smtp_server: SmtpServer) -> None:
    """Who opts out after the audience was fixed gets nothing that was not in hand (P4)."""
    gate = smtp_server.rules.hold("mail")
    api = relay.client()
    group = people(api, 12)
    made = send(api, group)
    gate.wait_reached()
    last = api.get("/contacts", list_id=group).json[0]
    api.patch(f"/contacts/{last['id']}", {"subscribed_email": False}).expect(200)
    gate.release()
    done = completed(api, made)

    assert (done["stats"]["sent"], done["stats"]["skipped"]) == (11, 1)
    assert last["channels"][0]["value"] not in {message.to for message in smtp_server.messages}
    row = next(row for row in api.get("/messages", campaign_id=made["id"]).json if row["contact_id"] == last["id"])
    assert row["skip_reason"] == "unsubscribed"


def test_pause_resume_and_cancel(relay: Server, smtp_server: SmtpServer) -> None:
    """After the answer only what is in hand leaves (C = 4); the rest goes on or is cancelled."""
    gate = smtp_server.rules.hold("mail")
    api = relay.client()
    path = f"/campaigns/{send(api, people(api, 20))['id']}"
    gate.wait_reached()
    paused = api.post(f"{path}/pause").expect(200)
    gate.release()
    threading.Event().wait(1.5)
    during = len(smtp_server.messages)
    still = api.get(path).json
    again = api.post(f"{path}/resume").expect(200)
    smtp_server.wait_for(during + 1)
    smtp_server.rules.hold("mail")
    cancelled = api.post(f"{path}/cancel")

    assert (paused["status"], paused["phase"]) == ("paused", "paused")
    assert during <= 4 and still["stats"]["pending"] == 20 - during
    assert again["status"] == "active"
    if cancelled.status == 200:
        assert (cancelled.json["phase"], cancelled.json["cancelled_at"] is not None) == ("cancelled", True)
    smtp_server.rules.clear()
    final = api.wait(path, lambda row: row["stats"]["pending"] == 0)
    assert final["stats"]["sent"] + final["stats"]["cancelled"] == 20
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1


def test_a_relay_that_is_away_costs_nobody_an_attempt(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Unreachable is nobody's fault: rows wait, and go when the relay is back (P6)."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__PROBE_AFTER": "1s"})
    api = server.client()
    group = people(api, 5)
    smtp_server.stop()
    made = send(api, group)
    threading.Event().wait(2)
    waiting = api.get("/messages", campaign_id=made["id"]).json
    smtp_server.start()
    completed(api, made)

    assert {(row["status"], row["attempts"]) for row in waiting} <= {("queued", 0), ("sending", 0)}
    assert len(smtp_server.messages) == 5
    assert {row["attempts"] for row in api.get("/messages", campaign_id=made["id"]).json} == {1}


def test_twenty_refusals_of_us_pause_the_campaign(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Refusals that are our fault blame no recipient and stop after twenty (P7)."""
    rule = smtp_server.rules.refuse("mail", code=530, text="5.7.0 authentication required")
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__PROBE_AFTER": "1s"})
    api = server.client()
    path = f"/campaigns/{send(api, people(api, 40))['id']}"
    paused = api.wait(path, lambda row: row["status"] == "paused")
    tried = rule.used

    assert (paused["pause_reason"], paused["stats"]["failed"], paused["stats"]["pending"]) == ("transport", 0, 40)
    assert 20 <= tried <= 24
    smtp_server.rules.clear()
    api.post(f"{path}/resume").expect(200)
    assert api.wait(path, lambda row: row["status"] == "completed")["stats"]["sent"] == 40


def test_hostile_values_stay_values(relay: Server, smtp_server: SmtpServer) -> None:
    """What stands in contact data neither runs, nor adds headers, nor reaches a neighbour (T01, T06, T07)."""
    api = relay.client()
    group = api.post("/lists", {"name": "Hostile"}).json["id"]
    evil = ["{{ 7 | plus: 7 }}{% for i in (1..9) %}x{% endfor %}", "=?utf-8?q?hi=0D=0ABcc:_v@x.y?=",
            "<script>1</script>",
            "a\u2028Bcc: x@y.z", ".\u0085.", "\u202eevil"]  # fmt: skip
    for index, name in enumerate(evil):
        body = {"email": f"h{index}@example.org", "data": {"name": name}, "list_ids": [group]}
        api.post("/contacts", body).expect(201)
    content = {"subject": "Hi {{ contact.data.name }}", "body": "<p>{{ contact.data.name }}</p>\n.\n",
               "from_email": "ana@bakery.example", "from_name": "{{ contact.data.name }}"}  # fmt: skip
    completed(api, send(api, group, template_attributes=content))

    assert len(smtp_server.messages) == len(evil)
    for message in smtp_server.messages:
        for name in ("From", "To", "Subject", "Date", "Message-ID"):
            assert len(message.headers(name)) == 1, name
        for name in ("Bcc", "Cc", "X-Evil"):
            assert message.headers(name) == []
        assert "<script>" not in (message.html() or "")
    assert "{{ 7 | plus: 7 }}" in (smtp_server.to("h0@example.org")[0].html() or "")


def test_two_campaigns_take_turns(relay: Server, smtp_server: SmtpServer) -> None:
    """Neither waits for the other to end, and both complete."""
    gate = smtp_server.rules.hold("connect")
    api = relay.client()
    first = send(api, people(api, 60, "First"))
    gate.wait_reached()
    second = send(api, people(api, 60, "Second"))
    gate.release()
    completed(api, first)
    completed(api, second)
    half = [message.to.split("@")[1] for message in smtp_server.messages[10:60]]

    assert len(smtp_server.messages) == 120
    assert min(Counter(half)["first.example"], Counter(half)["second.example"]) > 5


def test_a_test_key_captures_and_never_counts(relay: Server, smtp_server: SmtpServer) -> None:
    """With a test key everything goes to the built-in inbox and nothing counts."""
    api = relay.client()
    group = people(api, 2)
    tester = relay.client(relay.new_key("rehearsal", "--test"))
    made = send(tester, group)
    done = completed(tester, made)

    assert (done["stats"]["sent"], done["sent_count"], smtp_server.messages) == (2, 0, [])
    assert {(row["test"], row["provider"]) for row in api.get("/messages", campaign_id=made["id"]).json} == {
        (True, "capture")
    }
    assert api.get("/events", event="email_sent", test="true").headers["X-Total-Count"] == "2"
