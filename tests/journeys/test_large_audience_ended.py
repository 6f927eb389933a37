"""Audiences that are too large for one transaction: cancelled, withdrawn and deleted."""

import time
from collections.abc import Iterator

import apsw
import pytest

from tests.journeys.conftest import CONTACTS, StartLarge
from tests.journeys.test_large_audience import CONTENT, query, send, wait_until
from tests.kit.smtp import SmtpServer


@pytest.mark.parametrize("frozen", [False, True])
def test_cancelling(large_server: StartLarge, smtp_server: SmtpServer, frozen: bool) -> None:
    """The campaign completes at once and sends nothing, whether all rows exist or not; the rows end as cancelled."""
    server = large_server(relay=smtp_server.port, share=0.9)
    api = server.client()
    path = send(api, hold_seconds=3600)
    if frozen:
        wait_until(api, path, lambda campaign: not campaign["freezing"])
    cancelled = api.post(f"{path}/cancel").expect(200)
    server.kill()
    api = server.start().client()
    completed = wait_until(api, path, lambda campaign: not campaign["stats"]["pending"])

    assert (cancelled["status"], cancelled["phase"], cancelled["freezing"]) == ("completed", "cancelled", None)
    assert completed["stats"]["cancelled"] + completed["stats"]["skipped"] == completed["audience_count"]
    assert completed["audience_count"] == CONTACTS or not frozen
    assert api.post(f"{path}/resume").expect(422)["reason"] == "invalid_transition"
    assert smtp_server.messages == []


@pytest.mark.parametrize("frozen", [False, True])
def test_undo_and_resend(large_server: StartLarge, smtp_server: SmtpServer, frozen: bool) -> None:
    """Undone, the campaign is a draft at once; a new send returns 503 until the old rows are gone."""
    server = large_server(relay=smtp_server.port)
    api = server.client()
    path = send(api, hold_seconds=3600)
    if frozen:
        wait_until(api, path, lambda attempt: not attempt["freezing"])
    undone = api.patch(path, {"status": "draft"}).expect(200)
    if frozen:
        server.kill()
        api = server.start().client()
    responses = [response := api.post(f"{path}/send")]
    while response.status == 503:
        assert response.headers["Retry-After"]
        time.sleep(0.1)
        responses.append(response := api.post(f"{path}/send"))
    completed = wait_until(api, path, lambda attempt: attempt["status"] == "completed")
    server.stop()
    addresses = [message.to for message in smtp_server.messages]

    assert (undone["status"], undone["audience_count"], undone["freezing"]) == ("draft", 0, None)
    assert {attempt.status for attempt in responses} <= {200, 503} and (len(responses) > 1 or not frozen)
    assert (completed["audience_count"], completed["stats"]["sent"]) == (CONTACTS, len(addresses))
    assert len(set(addresses)) == len(addresses) > 20


@pytest.mark.full
def test_undo_and_send_to_another_list(large_server: StartLarge) -> None:
    """After several undone sends only the last audience gets the campaign."""
    contacts = 120_000
    server = large_server(contacts, 0.9)
    api = server.client()
    few = api.post("/lists", {"name": "Few", "contact_ids": [7, 8, 9]}).expect(201)["id"]
    many = api.post("/lists", {"name": "Many"}).expect(201)["id"]
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.set_busy_timeout(10_000)  # the service may be writing what the requests before have left to it
    connection.execute("INSERT INTO membership SELECT ?, id, 0 FROM contact WHERE id % 2", (many,)).fetchall()
    connection.close()
    campaign = api.post("/campaigns", {"name": "Large", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    for list_id in (1, few, 1, many):
        body = {"trigger_attributes": {"contact_list_id": list_id}, "hold_seconds": 3600}
        while (response := api.post(f"{path}/send", body)).status == 503:
            time.sleep(0.1)
        response.expect(200)
        if list_id != many:
            api.patch(path, {"status": "draft"}).expect(200)
    completed = wait_until(api, path, lambda campaign_row: not campaign_row["freezing"])
    server.stop()
    rows = query(server, "SELECT contact_id FROM message ORDER BY id")

    assert completed["audience_count"] == contacts // 2
    assert [number for (number,) in rows] == list(range(1, contacts + 1, 2))


def test_deleting_while_the_audience_is_fixed(large_server: StartLarge, smtp_server: SmtpServer) -> None:
    """The campaign is gone at once, open rows end, nothing leaves, and no audience file remains."""
    server = large_server(relay=smtp_server.port, share=0.9)
    api = server.client()
    path = send(api, hold_seconds=3600)
    wait_until(api, path, lambda campaign: campaign["freezing"] is None or campaign["freezing"]["done"])
    deleted = api.delete(path).expect(200)
    status = api.get(path).status

    def waiting() -> Iterator[int]:
        while True:
            yield query(server, "SELECT count(*) FROM message WHERE status IN ('held', 'queued')")[0][0]
            time.sleep(0.05)

    end = time.monotonic() + 30
    assert next(count for count in waiting() if count == 0 or time.monotonic() > end) == 0
    server.stop()

    assert (deleted["status"], status, smtp_server.messages) == ("active", 404, [])
    assert not list((server.data / "audiences").iterdir())
