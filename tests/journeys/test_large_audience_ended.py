"""Audiences that are too large for one transaction: cancelled, taken back and deleted, in the middle and later."""

import time
from collections.abc import Iterator

import apsw
import pytest

from tests.journeys.conftest import MANY, Crowd
from tests.journeys.test_large_audience import CONTENT, ledger, send, until
from tests.kit.smtp import SmtpServer


@pytest.mark.parametrize("frozen", [False, True])
def test_cancel(crowd: Crowd, smtp_server: SmtpServer, frozen: bool) -> None:
    """Complete at once and silent, whether all rows stand or not; they end as cancelled, through a kill as well."""
    server = crowd(relay=smtp_server.port, share=0.9)
    api = server.client()
    path = send(api, hold_seconds=3600)
    if frozen:
        until(api, path, lambda one: not one["freezing"])
    cancelled = api.post(f"{path}/cancel").expect(200)
    server.kill()
    api = server.start().client()
    done = until(api, path, lambda one: not one["stats"]["pending"])

    assert (cancelled["status"], cancelled["phase"], cancelled["freezing"]) == ("completed", "cancelled", None)
    assert done["stats"]["cancelled"] + done["stats"]["skipped"] == done["audience_count"]
    assert done["audience_count"] == MANY or not frozen
    assert api.post(f"{path}/resume").expect(422)["reason"] == "invalid_transition"
    assert smtp_server.messages == []


@pytest.mark.parametrize("frozen", [False, True])
def test_undo_and_send_again(crowd: Crowd, smtp_server: SmtpServer, frozen: bool) -> None:
    """A draft at once; sent again it waits for the old rows to be gone, and everybody gets it once."""
    server = crowd(relay=smtp_server.port)
    api = server.client()
    path = send(api, hold_seconds=3600)
    if frozen:
        until(api, path, lambda one: not one["freezing"])
    undone = api.patch(path, {"status": "draft"}).expect(200)
    if frozen:
        server.kill()
        api = server.start().client()
    tries = [again := api.post(f"{path}/send")]
    while again.status == 503:
        assert again.headers["Retry-After"]
        time.sleep(0.1)
        tries.append(again := api.post(f"{path}/send"))
    done = until(api, path, lambda one: one["status"] == "completed")
    server.stop()
    addresses = [message.to for message in smtp_server.messages]

    assert (undone["status"], undone["audience_count"], undone["freezing"]) == ("draft", 0, None)
    assert {one.status for one in tries} <= {200, 503} and (len(tries) > 1 or not frozen)
    assert (done["audience_count"], done["stats"]["sent"]) == (MANY, len(addresses))
    assert len(set(addresses)) == len(addresses) > 20


def test_taken_back_and_sent_to_others(crowd: Crowd) -> None:
    """What was drawn for one send is never written for the next: the others get it, and nobody of the first."""
    contacts = 120_000
    server = crowd(contacts, 0.9)
    api = server.client()
    few = api.post("/lists", {"name": "Few", "contact_ids": [7, 8, 9]}).expect(201)["id"]
    many = api.post("/lists", {"name": "Many"}).expect(201)["id"]
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.execute("INSERT INTO membership SELECT ?, id, 0 FROM contact WHERE id % 2", (many,)).fetchall()
    here.close()
    made = api.post("/campaigns", {"name": "Large", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{made['id']}"
    for group in (1, few, 1, many):
        body = {"trigger_attributes": {"contact_list_id": group}, "hold_seconds": 3600}
        while (answer := api.post(f"{path}/send", body)).status == 503:
            time.sleep(0.1)
        answer.expect(200)
        if group != many:
            api.patch(path, {"status": "draft"}).expect(200)
    done = until(api, path, lambda one: not one["freezing"])
    server.stop()
    rows = ledger(server, "SELECT contact_id FROM message ORDER BY id")

    assert done["audience_count"] == contacts // 2
    assert [number for (number,) in rows] == list(range(1, contacts + 1, 2))


def test_delete_while_freezing(crowd: Crowd, smtp_server: SmtpServer) -> None:
    """It is gone at once; what has a row ends as cancelled, nothing leaves, and no list stays behind."""
    server = crowd(relay=smtp_server.port, share=0.9)
    api = server.client()
    path = send(api, hold_seconds=3600)
    until(api, path, lambda one: one["freezing"] is None or one["freezing"]["done"])
    was = api.delete(path).expect(200)
    gone = api.get(path).status

    def waiting() -> Iterator[int]:
        while True:
            yield ledger(server, "SELECT count(*) FROM message WHERE status IN ('held', 'queued')")[0][0]
            time.sleep(0.05)

    end = time.monotonic() + 30
    assert next(count for count in waiting() if count == 0 or time.monotonic() > end) == 0
    server.stop()

    assert (was["status"], gone, smtp_server.messages) == ("active", 404, [])
    assert not list((server.data / "audiences").iterdir())
