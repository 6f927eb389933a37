"""The built-in inbox over the API, and what may happen to a captured message: by the ways of the real ones."""

from typing import Any

import apsw
import pytest

from tests.kit.client import Client
from tests.kit.https_clients import wait_until
from tests.kit.server import Server

MARKETING = {
    "transactional": False,
    "body": '<p><a href="https://example.com/a">A</a> <a href="https://example.com/b">B</a></p>',
}


def sent(api: Client, address: str, **body: Any) -> tuple[Any, Any]:
    """Send a message and return it with what was captured of it."""
    api.post("/contacts", {"email": address})
    made = api.post("/messages", {"to": address, "subject": f"To {address}", "body": "<p>Hello</p>", **body}).expect(
        201
    )
    [row] = api.wait("/capture", bool, message_id=made["id"])
    return made, row


def play(api: Client, row: Any, action: str, **more: Any) -> Any:
    """Let something happen and return the captured message."""
    return api.post(f"/capture/{row['id']}/simulate", {"action": action, **more}).expect(200)


def person(api: Client, message: Any) -> Any:
    """Return the contact of a message."""
    return api.get(f"/contacts/{message['contact_id']}").expect(200)


def events(api: Client, message: Any) -> list[str]:
    """Return the events of a message after it was sent."""
    found = api.get("/events", resource_uid=f"message:{message['id']}").expect(200)
    return sorted(one["event"] for one in found if one["event"] != "email_sent")


def test_what_was_captured(api: Client, server: Server) -> None:
    """Listed newest first with what a client shows, got whole with parts and headers, and as it came over the wire."""
    made, row = sent(api, "look@example.org", text="Hello in text")
    assert (row["to"], row["subject"], row["preview"]) == ("look@example.org", "To look@example.org", "Hello")
    assert row["mail_from"].startswith("b+") and row["message_id"] == made["id"]
    other = sent(api, "newer@example.org")[1]
    assert [one["id"] for one in api.get("/capture", limit=2).expect(200)] == [other["id"], row["id"]]
    assert [one["id"] for one in api.get("/capture", search="LOOK@").expect(200)] == [row["id"]]
    whole = api.get(f"/capture/{row['id']}").expect(200)
    assert "Hello" in whole["html"] and whole["text"].strip() == "Hello in text"
    assert {"name": "Subject", "value": "To look@example.org"} in whole["headers"]
    assert whole["message"]["id"] == made["id"]
    raw = api.get(f"/capture/{row['id']}/raw")
    assert (raw.status, raw.headers["Content-Type"], len(raw.body)) == (200, "message/rfc822", row["bytes"])
    assert b"Subject: To look@example.org\r\n" in raw.body
    for path in ("/capture/99999", "/capture/99999/raw", "/capture/x"):
        assert api.get(path).status == 404
    assert api.post("/capture/99999/simulate", {"action": "open"}).status == 404
    assert api.post(f"/capture/{row['id']}/simulate", {"action": "dance"}).expect(422)["validation_errors"] == {
        "action": ["is not included in the list"]
    }
    headed = sent(api, "rule@example.org", body="<h1>Hello</h1><hr><p>News</p>")[1]
    assert headed["preview"] == "Hello News"


# action: status, events, (subscribed, suppression, verified), has a time of
PLAYS: dict[str, tuple[str, list[str], tuple[bool, str | None, bool], str | None]] = {
    "open": ("sent", ["email_opened"], (True, None, False), "opened_at"),
    "click": ("sent", ["email_clicked"], (True, None, True), "clicked_at"),
    "bounce": ("bounced", ["email_bounced"], (True, "hard_bounce", False), "bounced_at"),
    "soft_bounce": ("bounced", ["email_soft_bounced"], (True, None, False), "bounced_at"),
    "complain": ("complained", ["email_complained", "opt_out"], (False, "complaint", False), None),
    "unsubscribe": ("sent", ["opt_out"], (False, None, False), None),
    "reply": ("sent", ["email_replied"], (True, None, True), None),
}


@pytest.mark.parametrize("action", PLAYS)
def test_what_may_happen(action: str, api: Client) -> None:
    """Each act ends as the real one does: status, event, address; said twice it is told once."""
    status, expected, address, moment = PLAYS[action]
    made, row = sent(api, f"act-{action.replace('_', '-')}@example.org", **MARKETING)
    answer = play(api, row, action)
    assert answer["message"]["status"] == status
    assert moment is None or answer["message"][moment] is not None
    if action != "reply":
        play(api, row, action)
    assert events(api, made) == expected
    channel = person(api, made)["channels"][0]
    assert (channel["subscribed"], channel["suppression_reason"], channel["verified"]) == address
    interacted = person(api, made)["last_interacted_at"] is not None
    assert interacted is (action in ("open", "click", "reply"))


def test_a_click_is_on_a_link(api: Client) -> None:
    """The link is chosen by its number; one that is not there is a fault, and so is a message without any."""
    made, row = sent(api, "links@example.org", **MARKETING)
    play(api, row, "click", link=2)
    [clicked] = api.get("/events", event="email_clicked", resource_uid=f"message:{made['id']}").expect(200)
    assert clicked["resource_url"] == "https://example.com/b" and clicked["data"]["verdict"] == "human"
    plain = sent(api, "plain@example.org")[1]
    for captured, link in ((row, 99), (plain, 1)):
        fault = api.post(f"/capture/{captured['id']}/simulate", {"action": "click", "link": link}).expect(422)
        assert fault["validation_errors"] == {"link": ["must exist"]}


def test_only_an_sms_is_answered_with_stop(api: Client) -> None:
    """STOP is a word of the phone."""
    row = sent(api, "stop@example.org")[1]
    fault = api.post(f"/capture/{row['id']}/simulate", {"action": "stop"}).expect(422)
    assert list(fault["validation_errors"]) == ["action"]


def test_what_happens_to_a_test(api: Client, server: Server) -> None:
    """Events of a test's message say so, and nothing is counted or held against anybody."""
    tester = server.client(server.new_key("tests", "--test"))
    live = sent(api, "live@example.org")[1]
    refused = tester.post(f"/capture/{live['id']}/simulate", {"action": "bounce"})
    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    for action, (status, expected, _, _) in PLAYS.items():
        if action == "unsubscribe":
            continue  # an opt-out is the person's, whatever brought it
        made, row = sent(tester, f"test-{action.replace('_', '-')}@example.org", **MARKETING)
        before = person(api, made)
        assert play(tester, row, action)["message"]["status"] == status
        told = [one for one in expected if one != "opt_out"]
        assert events(api, made) == told
        found = api.get("/events", resource_uid=f"message:{made['id']}").expect(200)
        assert all(one["test"] for one in found)
        assert person(api, made) == before
    assert api.get("/suppressions").expect(200) == [
        one for one in api.get("/suppressions").expect(200) if not one["address"].startswith("test-")
    ]


def test_emptying(api: Client) -> None:
    """DELETE throws all away and says how many; messages and what happened to them stay."""
    made, row = sent(api, "gone@example.org")
    count = int(api.get("/capture", limit=1).headers["X-Total-Count"])
    assert api.delete("/capture").expect(200) == {"deleted": count}
    assert api.get("/capture").expect(200) == [] and api.delete("/capture").expect(200) == {"deleted": 0}
    assert api.get(f"/messages/{made['id']}").expect(200)["id"] == made["id"]
    assert api.get(f"/capture/{row['id']}").status == api.get(f"/capture/{row['id']}/raw").status == 404
    newer = sent(api, "newest@example.org")[1]
    assert [one["id"] for one in api.get("/capture").expect(200)] == [newer["id"]]


def test_many_that_were_emptied_go_by_themselves(api: Client, server: Server) -> None:
    """However many there were, they are out of sight with the answer, and out of the database soon; newer ones stay."""
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.set_busy_timeout(10_000)
    here.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) INSERT INTO captured_message "
        "(account_id, "
        "channel, mail_from, rcpt_to, size, source, received_at) SELECT (SELECT id FROM account LIMIT 1), 'email', "
        "'a@example.org', i || '@example.org', 5, 'words', (SELECT max(received_at) FROM captured_message) FROM n"
    )
    assert api.delete("/capture").expect(200)["deleted"] >= 3000
    assert api.get("/capture").expect(200) == []
    newer = sent(api, "last@example.org")[1]
    wait_until(lambda: here.execute("SELECT count(*) FROM captured_message").get == 1)
    here.close()
    assert [one["id"] for one in api.get("/capture").expect(200)] == [newer["id"]]


def test_scopes(server: Server) -> None:
    """Reading needs `account:read`, and all else `account:write`."""
    other = server.client(server.new_key("contacts", "--scope", "contacts:write,messages:read"))
    reader = server.client(server.new_key("reader", "--scope", "account:read"))
    assert other.get("/capture").expect(403)["required_scope"] == "account:read"
    assert reader.get("/capture").status == 200
    for answer in (reader.delete("/capture"), reader.post("/capture/1/simulate", {"action": "open"})):
        assert answer.expect(403)["required_scope"] == "account:write"


@pytest.mark.parametrize(
    ("preheader", "line"), [("Baked for {{ first_name | default: 'you' }}", "Baked for you"), (None, "Bakery The oven")]
)
def test_the_inbox_line_is_the_preview_text_else_the_first_words(
    api: Client, server: Server, preheader: str | None, line: str
) -> None:
    """As an inbox shows it: the preview text alone, and without one what a reader sees first, without addresses."""
    words = '<p>The oven <a href="https://bakery.example">is on</a></p>'
    header = {"type": "header", "props": {"wordmark_text": "Bakery"}}
    design = {"sections": [header, {"type": "text", "props": {"content": words}}]}
    asked = {"name": "Line", "subject": "Line", "preheader": preheader, "design": design}
    row = api.post("/templates", asked).expect(201)["id"]
    made = api.post(f"/templates/{row}/send_test", {"email": "me@example.org"}).expect(200)["results"][0]
    [found] = api.wait("/capture", bool, message_id=made["message_id"])
    assert found["preview"].startswith(line) and "https://" not in found["preview"]
    assert (found["preview"] == line) == (preheader is not None)
