"""Campaigns that pause by themselves and resume only by a user's action (docs/decisions.md#6)."""

import pytest

from tests.conftest import FreshServer
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}
NO_SUCH_USER = "5.1.1 no such user"
# `fill` creates person1@, person2@ and so on, which are sent in this order
PEOPLE = 180


def send(api: Client) -> str:
    """Send a campaign to all contacts and return its path."""
    campaign = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": 1}}).expect(200)
    return path


def start_server(fresh_server: FreshServer, smtp_server: SmtpServer) -> Client:
    """Start a server with one connection whose contacts may all be mailed."""
    server = fresh_server(start=False, relay=smtp_server.port, env={"CAMPANERO_EMAIL__CONNECTIONS": "1"})
    insert_contacts(server.data / "campanero.db", PEOPLE, 1.0)
    server.start()
    return server.set_postal_address().client()


def test_a_high_bounce_rate_pauses_the_campaign(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Over 5 % of unknown addresses pause the campaign after 100 messages; it can be resumed to its end."""
    for number in (*range(1, 7), 104, 170, 175):
        smtp_server.rules.reject("rcpt", f"person{number}@*", code=550, text=NO_SUCH_USER)
    smtp_server.rules.delay("body", 0.02)
    api = start_server(fresh_server, smtp_server)
    path = send(api)
    paused = api.wait(path, lambda row: row["status"] == "paused")
    api.post(f"{path}/resume").expect(200)
    completed = api.wait(path, lambda row: row["status"] == "completed")

    assert paused["pause_reason"] == "bounce_rate"
    # Checked once a second and at the rejection of the 104th message
    assert 94 <= paused["stats"]["accepted"] < 130 and paused["stats"]["failed"] in (6, 7)
    assert (completed["stats"]["failed"], completed["stats"]["sent"], completed["pause_reason"]) == (
        9,
        PEOPLE - 9,
        None,
    )


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1, 2, 3, 4, 5), NO_SUCH_USER),
        (tuple(range(1, 30)), "5.2.2 mailbox full"),
        ((10, 30, 50, 70, 90), NO_SUCH_USER),
    ],
)
def test_rejections_that_pause_no_campaign(
    numbers: tuple[int, ...], text: str, fresh_server: FreshServer, smtp_server: SmtpServer
) -> None:
    """Exactly 5 %, rejections that are not about the address, and few among many do not pause a campaign."""
    for number in numbers:
        smtp_server.rules.reject("rcpt", f"person{number}@*", code=550, text=text)
    api = start_server(fresh_server, smtp_server)
    path = send(api)
    ended = api.wait(path, lambda row: row["status"] in ("completed", "paused"))

    assert (ended["status"], ended["stats"]["failed"]) == ("completed", len(numbers))


@pytest.mark.full
def test_dkim_rejections_pause_the_campaign(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Rejections for missing DKIM pause the campaign with the DNS record to add, and no message fails."""
    for number in (2, 5, 9, 14):
        smtp_server.rules.reject("body", f"person{number}@*", code=550, text="5.7.30 DKIM does not pass", times=1)
    smtp_server.rules.delay("body", 0.05)
    api = start_server(fresh_server, smtp_server)
    path = send(api)
    paused = api.wait(path, lambda row: row["status"] == "paused")
    api.post(f"{path}/resume").expect(200)
    completed = api.wait(path, lambda row: row["status"] == "completed")

    assert paused["pause_reason"] == "transport" and paused["stats"]["failed"] == 0
    assert "5.7.30" in paused["data"]["pause_detail"] and "_domainkey" in paused["data"]["pause_detail"]
    assert (completed["stats"]["sent"], completed["stats"]["failed"]) == (PEOPLE, 0)
    assert api.get("/suppressions").expect(200) == []
