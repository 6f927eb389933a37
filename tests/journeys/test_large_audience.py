"""Audiences that are too large for one transaction: frozen, cancelled and taken back in chunks, through kills."""

import re
import time
from collections.abc import Callable
from typing import Any

import apsw

from tests.journeys.conftest import MANY, Crowd
from tests.kit.client import Client
from tests.kit.patience import soon
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import FORM, signed_in

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}


def send(api: Client, **body: Any) -> str:
    """Send a campaign to everybody and answer its path."""
    made = api.post("/campaigns", {"name": "Large", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": 1}, **body}).expect(200)
    return path


def seen(api: Client, path: str) -> dict[str, Any]:
    """Return a campaign; its books must balance at every moment."""
    found: dict[str, Any] = api.get(path).expect(200)
    stats = found["stats"]
    terms = [value for name, value in stats.items() if name not in ("audience", "accepted")]
    assert stats["audience"] == found["audience_count"] == sum(terms)
    return found


def until(api: Client, path: str, true: Callable[[dict[str, Any]], Any], seconds: float = 240) -> dict[str, Any]:
    """Look at a campaign again and again until something holds; returns the last look."""
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
    begun = ledger(server, "SELECT min(first_attempt_at) FROM message")[0][0]
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

    assert re.search(r"writing down who gets it, <b>[\d\u202f,]+</b> of 120.000 people", shown)
    assert 'hx-trigger="every' in shown and "writing down" not in after


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

    assert frozen > 3 and sorted(waits)[len(waits) * 9 // 10] < soon(0.1)


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
