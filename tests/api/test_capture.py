"""The built-in inbox over the API, and simulated events of captured emails."""

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


def send_captured(api: Client, address: str, **body: Any) -> tuple[Any, Any]:
    """Send a message and return it with the captured message."""
    api.post("/contacts", {"email": address})
    message = api.post("/messages", {"to": address, "subject": f"To {address}", "body": "<p>Hello</p>", **body}).expect(
        201
    )
    [row] = api.wait("/capture", bool, message_id=message["id"])
    return message, row


def simulate(api: Client, row: Any, action: str, **more: Any) -> Any:
    """Simulate an event and return the captured message."""
    return api.post(f"/capture/{row['id']}/simulate", {"action": action, **more}).expect(200)


def recipient(api: Client, message: Any) -> Any:
    """Return the contact of a message."""
    return api.get(f"/contacts/{message['contact_id']}").expect(200)


def events_after_sending(api: Client, message: Any) -> list[str]:
    """Return the sorted names of the events of a message, without `email_sent`."""
    result = api.get("/events", resource_uid=f"message:{message['id']}").expect(200)
    return sorted(row["event"] for row in result if row["event"] != "email_sent")


def test_read_captured_emails(api: Client, server: Server) -> None:
    """Captured emails are listed newest first, searched, read with parts and headers, and downloaded as raw bytes."""
    created, row = send_captured(api, "look@example.org", text="Hello in text")
    assert (row["to"], row["subject"], row["preview"]) == ("look@example.org", "To look@example.org", "Hello")
    assert row["mail_from"].startswith("b+") and row["message_id"] == created["id"]
    other = send_captured(api, "newer@example.org")[1]
    assert [row["id"] for row in api.get("/capture", limit=2).expect(200)] == [other["id"], row["id"]]
    assert [row["id"] for row in api.get("/capture", search="LOOK@").expect(200)] == [row["id"]]
    whole = api.get(f"/capture/{row['id']}").expect(200)
    assert "Hello" in whole["html"] and whole["text"].strip() == "Hello in text"
    assert {"name": "Subject", "value": "To look@example.org"} in whole["headers"]
    assert whole["message"]["id"] == created["id"]
    raw = api.get(f"/capture/{row['id']}/raw")
    assert (raw.status, raw.headers["Content-Type"], len(raw.body)) == (200, "message/rfc822", row["bytes"])
    assert b"Subject: To look@example.org\r\n" in raw.body
    for path in ("/capture/99999", "/capture/99999/raw", "/capture/x"):
        assert api.get(path).status == 404
    assert api.post("/capture/99999/simulate", {"action": "open"}).status == 404
    assert api.post(f"/capture/{row['id']}/simulate", {"action": "dance"}).expect(422)["validation_errors"] == {
        "action": ["is not included in the list"]
    }
    headed = send_captured(api, "rule@example.org", body="<h1>Hello</h1><hr><p>News</p>")[1]
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
def test_simulated_email_events(action: str, api: Client) -> None:
    """Each simulated event has the effects of the real one, and a repeated one is recorded once."""
    status, expected, address, moment = PLAYS[action]
    created, row = send_captured(api, f"act-{action.replace('_', '-')}@example.org", **MARKETING)
    response = simulate(api, row, action)
    assert response["message"]["status"] == status
    assert moment is None or response["message"][moment] is not None
    if action != "reply":
        simulate(api, row, action)
    assert events_after_sending(api, created) == expected
    channel = recipient(api, created)["channels"][0]
    assert (channel["subscribed"], channel["suppression_reason"], channel["verified"]) == address
    interacted = recipient(api, created)["last_interacted_at"] is not None
    assert interacted is (action in ("open", "click", "reply"))


def test_simulate_a_click_on_a_link(api: Client) -> None:
    """The link is chosen by its number; a number without a link is an error."""
    created, row = send_captured(api, "links@example.org", **MARKETING)
    simulate(api, row, "click", link=2)
    [clicked] = api.get("/events", event="email_clicked", resource_uid=f"message:{created['id']}").expect(200)
    assert clicked["resource_url"] == "https://example.com/b" and clicked["data"]["verdict"] == "human"
    plain = send_captured(api, "plain@example.org")[1]
    for captured, link in ((row, 99), (plain, 1)):
        error = api.post(f"/capture/{captured['id']}/simulate", {"action": "click", "link": link}).expect(422)
        assert error["validation_errors"] == {"link": ["must exist"]}


def test_stop_is_only_for_sms(api: Client) -> None:
    """`stop` is an invalid action for an email."""
    row = send_captured(api, "stop@example.org")[1]
    error = api.post(f"/capture/{row['id']}/simulate", {"action": "stop"}).expect(422)
    assert list(error["validation_errors"]) == ["action"]


def test_simulated_events_of_test_messages(api: Client, server: Server) -> None:
    """Events of a test message are marked as tests; the contact and the suppression list do not change."""
    tester = server.client(server.new_key("tests", "--test"))
    live = send_captured(api, "live@example.org")[1]
    error = tester.post(f"/capture/{live['id']}/simulate", {"action": "bounce"})
    assert (error.status, error.json["code"]) == (403, "forbidden")
    for action, (status, expected, _, _) in PLAYS.items():
        if action == "unsubscribe":
            continue  # an opt-out counts, even from a test message
        created, row = send_captured(tester, f"test-{action.replace('_', '-')}@example.org", **MARKETING)
        before = recipient(api, created)
        assert simulate(tester, row, action)["message"]["status"] == status
        reported = [action for action in expected if action != "opt_out"]
        assert events_after_sending(api, created) == reported
        result = api.get("/events", resource_uid=f"message:{created['id']}").expect(200)
        assert all(row["test"] for row in result)
        assert recipient(api, created) == before
    assert api.get("/suppressions").expect(200) == [
        row for row in api.get("/suppressions").expect(200) if not row["address"].startswith("test-")
    ]


def test_empty_the_inbox(api: Client) -> None:
    """DELETE removes all captured messages and returns their number; messages of the ledger stay."""
    created, row = send_captured(api, "gone@example.org")
    count = int(api.get("/capture", limit=1).headers["X-Total-Count"])
    assert api.delete("/capture").expect(200) == {"deleted": count}
    assert api.get("/capture").expect(200) == [] and api.delete("/capture").expect(200) == {"deleted": 0}
    assert api.get(f"/messages/{created['id']}").expect(200)["id"] == created["id"]
    assert api.get(f"/capture/{row['id']}").status == api.get(f"/capture/{row['id']}/raw").status == 404
    newer = send_captured(api, "newest@example.org")[1]
    assert [row["id"] for row in api.get("/capture").expect(200)] == [newer["id"]]


def test_emptied_messages_are_deleted_in_the_background(api: Client, server: Server) -> None:
    """Thousands are hidden at once and deleted soon afterwards; newer ones stay."""
    database = apsw.Connection(str(server.data / "campanero.db"))
    database.set_busy_timeout(10_000)
    database.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) INSERT INTO captured_message "
        "(account_id, "
        "channel, mail_from, rcpt_to, size, source, received_at) SELECT (SELECT id FROM account LIMIT 1), 'email', "
        "'a@example.org', i || '@example.org', 5, 'words', (SELECT max(received_at) FROM captured_message) FROM n"
    )
    assert api.delete("/capture").expect(200)["deleted"] >= 3000
    assert api.get("/capture").expect(200) == []
    newer = send_captured(api, "last@example.org")[1]
    wait_until(lambda: database.execute("SELECT count(*) FROM captured_message").get == 1)
    database.close()
    assert [row["id"] for row in api.get("/capture").expect(200)] == [newer["id"]]


def test_scopes_of_the_inbox(server: Server) -> None:
    """Reading needs `account:read` and `contacts:read`, and everything else `account:write`."""
    other = server.client(server.new_key("contacts", "--scope", "contacts:write,messages:read"))
    reader = server.client(server.new_key("reader", "--scope", "account:read,contacts:read"))
    assert other.get("/capture").expect(403)["required_scope"] == "account:read"
    assert reader.get("/capture").status == 200
    for response in (reader.delete("/capture"), reader.post("/capture/1/simulate", {"action": "open"})):
        assert response.expect(403)["required_scope"] == "account:write"


@pytest.mark.parametrize(
    ("preheader", "line"), [("Baked for {{ first_name | default: 'you' }}", "Baked for you"), (None, "Bakery The oven")]
)
def test_preview_of_a_captured_email(api: Client, server: Server, preheader: str | None, line: str) -> None:
    """The preview is the preview text, or else the first words of the email without URLs."""
    words = '<p>The oven <a href="https://bakery.example">is on</a></p>'
    header = {"type": "header", "props": {"wordmark_text": "Bakery"}}
    design = {"sections": [header, {"type": "text", "props": {"content": words}}]}
    asked = {"name": "Line", "subject": "Line", "preheader": preheader, "design": design}
    row = api.post("/templates", asked).expect(201)["id"]
    created = api.post(f"/templates/{row}/send_test", {"email": "me@example.org"}).expect(200)["results"][0]
    [captured] = api.wait("/capture", bool, message_id=created["message_id"])
    assert captured["preview"].startswith(line) and "https://" not in captured["preview"]
    assert (captured["preview"] == line) == (preheader is not None)
