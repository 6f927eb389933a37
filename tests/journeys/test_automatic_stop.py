"""Campaigns that stop by themselves, and only go on when a person says so (docs/decisions.md#6)."""

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.crowd import fill
from tests.kit.smtp import SmtpServer

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}
NOBODY = "5.1.1 no such user"
# The addresses of `fill` are person1@, person2@ ...; they go out in this order
PEOPLE = 180


def send(api: Client) -> str:
    """Send a campaign to everybody and answer its path."""
    made = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": 1}}).expect(200)
    return path


def crowd(fresh_server: FreshServer, smtp_server: SmtpServer) -> Client:
    """Start a server with people who may all be written to, one connection at a time."""
    server = fresh_server(start=False, relay=smtp_server.port, env={"CAMPANERO_EMAIL__CONNECTIONS": "1"})
    fill(server.data / "campanero.db", PEOPLE, 1.0)
    server.start()
    return server.give_address().client()


def test_too_many_addresses_that_do_not_exist(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Over five in a hundred, from the hundredth message on; resumed, it goes on and does not stop for the same."""
    for number in (*range(1, 7), 104, 170, 175):
        smtp_server.rules.refuse("rcpt", f"person{number}@*", code=550, text=NOBODY)
    smtp_server.rules.delay("body", 0.02)
    api = crowd(fresh_server, smtp_server)
    path = send(api)
    stopped = api.wait(path, lambda row: row["status"] == "paused")
    api.post(f"{path}/resume").expect(200)
    done = api.wait(path, lambda row: row["status"] == "completed")

    assert stopped["pause_reason"] == "bounce_rate"
    # Looked at each second, and at the one behind the hundredth that is refused
    assert 94 <= stopped["stats"]["accepted"] < 130 and stopped["stats"]["failed"] in (6, 7)
    assert (done["stats"]["failed"], done["stats"]["sent"], done["pause_reason"]) == (9, PEOPLE - 9, None)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((1, 2, 3, 4, 5), NOBODY), (tuple(range(1, 30)), "5.2.2 mailbox full"), ((10, 30, 50, 70, 90), NOBODY)],
)
def test_what_does_not_stop_a_campaign(
    numbers: tuple[int, ...], text: str, fresh_server: FreshServer, smtp_server: SmtpServer
) -> None:
    """Five in a hundred do not; nor do refusals that say nothing about the address, nor few among many."""
    for number in numbers:
        smtp_server.rules.refuse("rcpt", f"person{number}@*", code=550, text=text)
    api = crowd(fresh_server, smtp_server)
    path = send(api)
    done = api.wait(path, lambda row: row["status"] in ("completed", "paused"))

    assert (done["status"], done["stats"]["failed"]) == ("completed", len(numbers))


def test_what_is_not_known_as_ours_stops_for_a_record(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Refusals for want of DKIM pause the campaign with what to enter, though others are taken; nobody is blamed."""
    for number in (2, 5, 9, 14):
        smtp_server.rules.refuse("body", f"person{number}@*", code=550, text="5.7.30 DKIM does not pass", times=1)
    smtp_server.rules.delay("body", 0.05)
    api = crowd(fresh_server, smtp_server)
    path = send(api)
    stopped = api.wait(path, lambda row: row["status"] == "paused")
    api.post(f"{path}/resume").expect(200)
    done = api.wait(path, lambda row: row["status"] == "completed")

    assert stopped["pause_reason"] == "transport" and stopped["stats"]["failed"] == 0
    assert "5.7.30" in stopped["data"]["pause_detail"] and "_domainkey" in stopped["data"]["pause_detail"]
    assert (done["stats"]["sent"], done["stats"]["failed"]) == (PEOPLE, 0)
    assert api.get("/suppressions").expect(200) == []
