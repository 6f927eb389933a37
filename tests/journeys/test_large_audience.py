"""Audiences that are too large for one transaction: frozen, cancelled and taken back in chunks, through kills."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.crowd import fill
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import FORM, signed_in

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}
MANY, SENDABLE = 30_000, 0.002

Crowd = Callable[..., Server]


@pytest.fixture
def crowd(fresh_server: FreshServer) -> Crowd:
    """Make a server with many contacts, few of whom may be written to; `crowd(relay=..., contacts=...)`."""

    def make(contacts: int = MANY, share: float = SENDABLE, **options: Any) -> Server:
        server = fresh_server(start=False, **options)
        fill(server.data / "campanero.db", contacts, share)
        server.start()
        return server.give_address() if options.get("relay") else server

    return make


def send(api: Client, **body: Any) -> str:
    """Send a campaign to everybody and answer its path."""
    made = api.post("/campaigns", {"name": "Large", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": 1}, **body}).expect(200)
    return path


def seen(api: Client, path: str) -> dict[str, Any]:
    """Answer a campaign; its books must balance at every moment."""
    found: dict[str, Any] = api.get(path).expect(200)
    stats = found["stats"]
    terms = [value for name, value in stats.items() if name not in ("audience", "accepted")]
    assert stats["audience"] == found["audience_count"] == sum(terms)
    return found


def until(api: Client, path: str, true: Callable[[dict[str, Any]], Any], seconds: float = 60) -> dict[str, Any]:
    """Look at a campaign again and again until something holds; answers the last look."""
    end = time.monotonic() + seconds
    while not true(found := seen(api, path)):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def ledger(server: Server, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Ask the database of a server."""
    here = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return here.execute(sql, values).fetchall()
    finally:
        here.close()


def check_rows(server: Server, contacts: int = MANY) -> None:
    """Everybody has one row, in the order of contacts under ids without a gap; who was skipped has the event."""
    rows = ledger(server, "SELECT id, contact_id FROM message WHERE campaign_id = 1 ORDER BY id")
    first = rows[0][0]
    assert rows == [(first + number, number + 1) for number in range(contacts)]
    skipped = {one for (one,) in ledger(server, "SELECT 'message:' || id FROM message WHERE status = 'skipped'")}
    told = [one for (one,) in ledger(server, "SELECT resource_uid FROM event WHERE event = 'email_skipped'")]
    assert len(told) == len(skipped) and set(told) == skipped


def test_everybody_has_one_row_and_sending_begins_before_the_last(crowd: Crowd, smtp_server: SmtpServer) -> None:
    """The books balance at every look, nothing is complete before all rows stand, and each gets it once."""
    contacts = 120_000
    server = crowd(contacts, relay=smtp_server.port)
    api = server.client()
    path = send(api)
    looks: list[dict[str, Any]] = []

    def over(found: dict[str, Any]) -> bool:
        looks.append(found)
        return bool(found["status"] == "completed")

    done = until(api, path, over)
    server.stop()
    check_rows(server, contacts)
    begun = ledger(server, "SELECT min(dated_at) FROM message")[0][0]
    written = ledger(server, "SELECT max(updated_at) FROM message WHERE status = 'skipped'")[0][0]
    sendable = ledger(server, "SELECT value FROM channel WHERE subscribed = 1 ORDER BY 1")

    assert looks[0]["freezing"] is not None and looks[0]["status"] == "active"
    assert all(one["status"] == "active" for one in looks if one["freezing"])
    assert (done["freezing"], done["audience_count"], done["stats"]["sent"]) == (None, contacts, len(sendable))
    assert begun < written
    assert sorted(message.to for message in smtp_server.messages) == [value for (value,) in sendable]
    assert not list((server.data / "audiences").iterdir())


def test_kills_in_the_middle_write_nobody_twice(crowd: Crowd) -> None:
    """Killed while the list is drawn and between chunks, again and again: the same rows as without."""
    contacts = 120_000
    server = crowd(contacts, 0.9)
    path = send(server.client(), hold_seconds=3600)
    server.kill()
    reached = []
    for _ in range(6):
        server.start()
        found = until(server.client(), path, lambda one: not one["freezing"] or one["freezing"]["done"])
        reached.append(found["audience_count"])
        if not found["freezing"]:
            break
        server.kill()
    else:
        server.start()
    done = until(server.client(), path, lambda one: not one["freezing"])
    server.stop()

    assert (done["phase"], done["audience_count"]) == ("holding", contacts)
    assert len([count for count in reached if 0 < count < contacts]) >= 2
    check_rows(server, contacts)


def test_a_list_that_is_gone_is_drawn_again(crowd: Crowd) -> None:
    """Without its file (a restored backup has none) a campaign goes on behind the last row."""
    contacts = 120_000
    server = crowd(contacts, 0.9)
    path = send(server.client(), hold_seconds=3600)
    until(server.client(), path, lambda one: one["freezing"]["done"])
    server.kill()
    for name in (server.data / "audiences").iterdir():
        name.unlink()
    half = ledger(server, "SELECT count(*) FROM message")[0][0]
    server.start()
    until(server.client(), path, lambda one: not one["freezing"])
    server.stop()
    rows = ledger(server, "SELECT contact_id FROM message ORDER BY id")

    assert 0 < half < contacts
    assert [number for (number,) in rows] == list(range(1, contacts + 1))


def test_the_page_says_how_far_it_is(crowd: Crowd) -> None:
    """While rows are written the report names how many of how many stand, and follows by itself."""
    server = crowd(120_000, 0.9)
    cookie = signed_in(server, EMAIL)
    path = send(server.client(), hold_seconds=3600)
    until(server.client(), path, lambda one: one["freezing"]["total"])
    shown = server.client().request("GET", path, headers=FORM | {"Cookie": cookie}).text
    until(server.client(), path, lambda one: not one["freezing"])
    after = server.client().request("GET", path, headers=FORM | {"Cookie": cookie}).text

    assert re.search(r"Writing down who gets it: <b>[\d\u202f,]+</b> of 120.000 people", shown)
    assert 'hx-trigger="every' in shown and "Writing down" not in after


def test_pause_while_freezing(crowd: Crowd, smtp_server: SmtpServer) -> None:
    """The rows are written on, nothing leaves; then it goes on to the end."""
    server = crowd(relay=smtp_server.port)
    api = server.client()
    gate = smtp_server.rules.hold("body")
    path = send(api)
    paused = api.post(f"{path}/pause").expect(200)
    gate.release()
    whole = until(api, path, lambda one: not one["freezing"])
    time.sleep(1)
    left = len(smtp_server.messages)
    api.post(f"{path}/resume").expect(200)
    done = until(api, path, lambda one: one["status"] == "completed")

    assert (paused["status"], whole["status"], whole["audience_count"]) == ("paused", "paused", MANY)
    assert left <= 4 and done["stats"]["sent"] == len(smtp_server.messages) > 20


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


def test_others_write_meanwhile(crowd: Crowd) -> None:
    """While a large audience is frozen and cancelled, a contact is changed without waiting for it."""
    contacts = 120_000
    server = crowd(contacts, 0.9)
    api = server.client(validate=False, keep_alive=True)
    waits: list[float] = []

    def look(found: dict[str, Any]) -> bool:
        begun = time.monotonic()
        api.patch(f"/contacts/{len(waits) + 1}", {"first_name": "New"}).expect(200)
        waits.append(time.monotonic() - begun)
        return not found["freezing"]

    path = send(api, hold_seconds=3600)
    until(api, path, look)
    frozen = len(waits)
    api.post(f"{path}/cancel").expect(200)
    until(api, path, lambda one: look(one) and not one["stats"]["pending"])

    # 100 ms is the goal of the bench; this one runs on machines that do other things too
    assert frozen > 3 and sorted(waits)[len(waits) * 9 // 10] < 0.25


def test_a_large_segment_less_a_list(crowd: Crowd) -> None:
    """Conditions of every kind of value are kept with the decision, and fix the same people as counting does."""
    contacts = 60_000
    server = crowd(contacts, 0.9)
    api = server.client()
    filters = [
        {"name": "contact_data.visits", "predicate": "gteq", "value": 1.5},
        {"name": "contact_first_name", "predicate": "not_eq", "value": "O'Neill \u00e4"},
        {"name": "contact_created_at", "predicate": "lt", "value": "2100-01-01"},
        {"name": "subscribed_email", "predicate": "eq", "value": True},
    ]
    segment = api.post("/segments", {"name": "Often", "filters": filters}).expect(201)["id"]
    left_out = api.post("/lists", {"name": "Out", "contact_ids": list(range(1, 200))}).expect(201)["id"]
    made = api.post("/campaigns", {"name": "Large", "template_attributes": CONTENT}).expect(201)
    trigger = {"segment_id": segment, "contact_list_id": 1, "data": {"exclude_contact_list_ids": [left_out]}}
    path = f"/campaigns/{made['id']}"
    api.patch(path, {"trigger_attributes": trigger}).expect(200)
    counted = api.get(f"{path}/preflight").expect(200)["facts"]["audience"]
    sent = api.post(f"{path}/send", {"hold_seconds": 3600}).expect(200)
    done = until(api, path, lambda one: not one["freezing"])

    assert sent["freezing"] is not None
    assert done["audience_count"] == counted > 20_000
