"""The stop switch of an account and the file STOP of an installation: accepted, kept, and sent when it is let go."""

import time

import pytest

from tests.conftest import FreshServer
from tests.journeys.test_sending import completed, create_list, send
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

SINGLE = {"subject": "Receipt", "body": "<p>Thanks</p>", "from_email": "ana@bakery.example"}
SEEN_SECONDS = 1.0


@pytest.fixture
def relay(fresh_server: FreshServer, smtp_server: SmtpServer) -> Server:
    """A server that hands everything to the SMTP server of the test."""
    return fresh_server(relay=smtp_server.port)


def codes(api: Client) -> set[str]:
    """Return what stands in the way of the account, as errors."""
    return {one["code"] for one in api.get("/account").expect(200)["blockers"] if one["severity"] == "error"}


def test_the_switch_keeps_everything_and_lets_it_go(relay: Server, smtp_server: SmtpServer) -> None:
    """Stopped, sends are accepted and wait as queued; let go, each arrives once and the reason is forgotten."""
    api = relay.client()
    stopped = api.patch("/account", {"sending_stopped": True, "stop_reason": "wrong prices"}).expect(200)
    made = send(api, create_list(api, 4))
    single = api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    time.sleep(2.5)
    waiting = {row["status"] for row in api.get("/messages").json}

    assert (stopped["sending_stopped"], stopped["stop_reason"], stopped["can_send"]) == (True, "wrong prices", False)
    assert any("wrong prices" in one["message"] for one in stopped["blockers"])
    assert (made["status"], waiting, smtp_server.messages) == ("active", {"queued"}, [])
    free = api.patch("/account", {"sending_stopped": False}).expect(200)
    assert (free["sending_stopped"], free["stop_reason"], free["can_send"]) == (False, None, True)
    completed(api, made)
    api.wait(f"/messages/{single['id']}", lambda row: row["status"] == "sent")
    assert len(smtp_server.messages) == 5


def test_a_reason_is_kept_only_while_it_is_true(relay: Server) -> None:
    """Without a stop there is no reason for one; what is no reason, or no switch, is refused under its name."""
    api = relay.client()
    assert api.patch("/account", {"stop_reason": "no"}).expect(200)["stop_reason"] is None
    refused = api.patch("/account", {"sending_stopped": None, "stop_reason": "a\r\nb"}).expect(422)
    assert set(refused["validation_errors"]) == {"sending_stopped", "stop_reason"}
    reader = relay.client(relay.new_key("reader", "--scope", "account:read"))
    assert reader.patch("/account", {"sending_stopped": True}).expect(403)["required_scope"] == "account:write"


def test_the_file_stops_a_campaign_in_the_middle(relay: Server, smtp_server: SmtpServer) -> None:
    """Within a second nothing more leaves, bodies included; sends are taken; without the file all goes on by itself."""
    smtp_server.rules.delay("body", 0.1)
    api = relay.client()
    made = send(api, create_list(api, 60))
    smtp_server.wait_for(8)
    (relay.data / "STOP").touch()
    time.sleep(SEEN_SECONDS)
    before = len(smtp_server.phases("body"))
    api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    time.sleep(2.5)
    stats = api.get(f"/campaigns/{made['id']}").json["stats"]

    assert len(smtp_server.phases("body")) == before < 60
    assert stats["pending"] == 60 - before and stats["failed"] == 0
    assert "stop_file" in codes(api)
    (relay.data / "STOP").unlink()
    smtp_server.rules.clear()
    done = completed(api, made)
    smtp_server.wait_for(61)
    assert (done["stats"]["sent"], len(smtp_server.messages), codes(api)) == (60, 61, set())


def test_a_body_that_was_asked_for_stays_here(relay: Server, smtp_server: SmtpServer) -> None:
    """The file is looked at again once the server asks for the message; the row waits and costs no attempt."""
    gate = smtp_server.rules.hold("data", times=1)
    api = relay.client()
    made = api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    gate.wait_reached()
    (relay.data / "STOP").touch()
    gate.release()
    waiting = api.wait(f"/messages/{made['id']}", lambda row: row["status"] == "queued")

    assert (waiting["attempts"], waiting["error"], smtp_server.messages) == (0, None, [])
    (relay.data / "STOP").unlink()
    assert api.wait(f"/messages/{made['id']}", lambda row: row["status"] == "sent")["attempts"] == 1
    assert len(smtp_server.messages) == 1


def test_a_stop_outlives_the_process(relay: Server, smtp_server: SmtpServer) -> None:
    """A service that starts beside the file sends nothing until it is gone."""
    (relay.data / "STOP").touch()
    api = relay.client()
    made = api.post("/messages", {"to": "bo@people.example", **SINGLE}).expect(201)
    relay.restart()
    time.sleep(2)

    assert (api.get(f"/messages/{made['id']}").json["status"], smtp_server.messages) == ("queued", [])
    (relay.data / "STOP").unlink()
    smtp_server.wait_for(1)
