"""The stop switch of an account and the STOP file: sends are accepted, wait, and are sent after the stop."""

import time

from tests.journeys.test_sending import completed, create_list, send
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

SINGLE = {"subject": "Receipt", "body": "<p>Thanks</p>", "from_email": "ana@bakery.example"}
SEEN_SECONDS = 1.0


def blocker_codes(api: Client) -> set[str]:
    """Return the codes of the account's blockers that are errors."""
    return {
        blocker["code"] for blocker in api.get("/account").expect(200)["blockers"] if blocker["severity"] == "error"
    }


def test_the_stop_switch(sending_server: Server, smtp_server: SmtpServer) -> None:
    """While stopped, sends are accepted and queued; afterwards each is sent once and the reason is removed."""
    api = sending_server.client()
    stopped = api.patch("/account", {"sending_stopped": True, "stop_reason": "wrong prices"}).expect(200)
    campaign = send(api, create_list(api, 4))
    message = api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    time.sleep(2.5)
    statuses = {row["status"] for row in api.get("/messages").json}

    assert (stopped["sending_stopped"], stopped["stop_reason"], stopped["can_send"]) == (True, "wrong prices", False)
    assert any("wrong prices" in blocker["message"] for blocker in stopped["blockers"])
    assert (campaign["status"], statuses, smtp_server.messages) == ("active", {"queued"}, [])
    resumed = api.patch("/account", {"sending_stopped": False}).expect(200)
    assert (resumed["sending_stopped"], resumed["stop_reason"], resumed["can_send"]) == (False, None, True)
    completed(api, campaign)
    api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")
    assert len(smtp_server.messages) == 5


def test_the_stop_reason(sending_server: Server) -> None:
    """Without a stop there is no reason; invalid values are rejected at their field."""
    api = sending_server.client()
    assert api.patch("/account", {"stop_reason": "no"}).expect(200)["stop_reason"] is None
    errors = api.patch("/account", {"sending_stopped": None, "stop_reason": "a\r\nb"}).expect(422)
    assert set(errors["validation_errors"]) == {"sending_stopped", "stop_reason"}
    reader = sending_server.client(sending_server.new_key("reader", "--scope", "account:read"))
    assert reader.patch("/account", {"sending_stopped": True}).expect(403)["required_scope"] == "account:write"


def test_the_stop_file_stops_a_running_campaign(sending_server: Server, smtp_server: SmtpServer) -> None:
    """Within a second nothing more leaves; without the file sending resumes by itself."""
    smtp_server.rules.delay("body", 0.1)
    api = sending_server.client()
    campaign = send(api, create_list(api, 60))
    smtp_server.wait_for(8)
    (sending_server.data / "STOP").touch()
    time.sleep(SEEN_SECONDS)
    before = len(smtp_server.phases("body"))
    api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    time.sleep(2.5)
    stats = api.get(f"/campaigns/{campaign['id']}").json["stats"]

    assert len(smtp_server.phases("body")) == before < 60
    assert stats["pending"] == 60 - before and stats["failed"] == 0
    assert "stop_file" in blocker_codes(api)
    (sending_server.data / "STOP").unlink()
    smtp_server.rules.clear()
    completed_campaign = completed(api, campaign)
    smtp_server.wait_for(61)
    assert (completed_campaign["stats"]["sent"], len(smtp_server.messages), blocker_codes(api)) == (60, 61, set())


def test_the_stop_file_is_checked_before_the_data(sending_server: Server, smtp_server: SmtpServer) -> None:
    """With the STOP file the message is not transmitted after DATA was accepted, and no attempt is counted."""
    gate = smtp_server.rules.hold("data", times=1)
    api = sending_server.client()
    message = api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    gate.wait_reached()
    (sending_server.data / "STOP").touch()
    time.sleep(0.2)  # the sender looks for the file every 50 ms
    gate.release()
    waiting = api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "queued")

    assert (waiting["attempts"], waiting["error"], smtp_server.messages) == (0, None, [])
    (sending_server.data / "STOP").unlink()
    assert api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")["attempts"] == 1
    assert len(smtp_server.messages) == 1


def test_the_stop_file_survives_a_restart(sending_server: Server, smtp_server: SmtpServer) -> None:
    """A service that starts with a STOP file sends nothing until the file is removed."""
    (sending_server.data / "STOP").touch()
    api = sending_server.client()
    message = api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    sending_server.restart()
    time.sleep(2)

    assert (api.get(f"/messages/{message['id']}").json["status"], smtp_server.messages) == ("queued", [])
    (sending_server.data / "STOP").unlink()
    smtp_server.wait_for(1)
