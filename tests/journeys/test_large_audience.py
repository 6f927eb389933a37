"""Audiences that are too large for one transaction: fixed and cancelled in chunks, across kills."""

import re
import time
from collections.abc import Callable
from typing import Any

import apsw
import pytest

from tests.journeys.conftest import CONTACTS, StartLarge
from tests.kit.client import Client
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout
from tests.ui.test_roles import FORM, session_cookie

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}


def send(api: Client, **body: Any) -> str:
    """Send a campaign to all contacts and return its path."""
    campaign = api.post("/campaigns", {"name": "Large", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": 1}, **body}).expect(200)
    return path


def get_campaign(api: Client, path: str) -> dict[str, Any]:
    """Return a campaign after checking that its counts add up."""
    campaign: dict[str, Any] = api.get(path).expect(200)
    stats = campaign["stats"]
    terms = [value for name, value in stats.items() if name not in ("audience", "accepted")]
    assert stats["audience"] == campaign["audience_count"] == sum(terms)
    return campaign


def wait_until(
    api: Client, path: str, condition: Callable[[dict[str, Any]], Any], seconds: float = 240
) -> dict[str, Any]:
    """Poll a campaign, checking its counts, until a condition is true; return the campaign."""
    end = time.monotonic() + seconds
    while not condition(row := get_campaign(api, path)):
        assert time.monotonic() < end, row
        time.sleep(0.02)
    return row


def query(server: Server, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return all rows of a query on the database of a server."""
    connection = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def check_rows(server: Server, contacts: int = CONTACTS) -> None:
    """Check that each contact has one message, in order and with consecutive ids, and each skipped one its event."""
    rows = query(server, "SELECT id, contact_id FROM message WHERE campaign_id = 1 ORDER BY id")
    first = rows[0][0]
    assert rows == [(first + number, number + 1) for number in range(contacts)]
    skipped = {row for (row,) in query(server, "SELECT 'message:' || id FROM message WHERE status = 'skipped'")}
    event_uids = [row for (row,) in query(server, "SELECT resource_uid FROM event WHERE event = 'email_skipped'")]
    assert len(event_uids) == len(skipped) and set(event_uids) == skipped


@pytest.mark.full
def test_sending_starts_before_the_audience_is_complete(large_server: StartLarge, smtp_server: SmtpServer) -> None:
    """Counts add up at every poll, the campaign completes only after all rows exist, and each contact gets it once."""
    contacts = 120_000
    server = large_server(contacts, relay=smtp_server.port)
    api = server.client()
    path = send(api)
    polls: list[dict[str, Any]] = []

    def is_completed(row: dict[str, Any]) -> bool:
        polls.append(row)
        return bool(row["status"] == "completed")

    completed = wait_until(api, path, is_completed)
    server.stop()
    check_rows(server, contacts)
    first_attempt = query(server, "SELECT min(first_attempt_at) FROM message")[0][0]
    last_skip = query(server, "SELECT max(updated_at) FROM message WHERE status = 'skipped'")[0][0]
    sendable = query(server, "SELECT value FROM channel WHERE subscribed = 1 ORDER BY 1")

    assert polls[0]["freezing"] is not None and polls[0]["status"] == "active"
    assert all(poll["status"] == "active" for poll in polls if poll["freezing"])
    assert (completed["freezing"], completed["audience_count"], completed["stats"]["sent"]) == (
        None,
        contacts,
        len(sendable),
    )
    assert first_attempt < last_skip
    assert sorted(message.to for message in smtp_server.messages) == [value for (value,) in sendable]
    assert not list((server.data / "audiences").iterdir())


def test_kills_while_fixing_the_audience(large_server: StartLarge) -> None:
    """After repeated kills between chunks the rows are the same as without."""
    contacts = 60_000
    server = large_server(contacts, 0.9)
    path = send(server.client(), hold_seconds=3600)
    server.kill()
    reached = []
    for _ in range(6):
        server.start()
        row = wait_until(
            server.client(), path, lambda campaign: not campaign["freezing"] or campaign["freezing"]["done"]
        )
        reached.append(row["audience_count"])
        if not row["freezing"]:
            break
        server.kill()
    else:
        server.start()
    final = wait_until(server.client(), path, lambda campaign: not campaign["freezing"])
    server.stop()

    assert (final["phase"], final["audience_count"]) == ("holding", contacts)
    assert len([count for count in reached if 0 < count < contacts]) >= 2
    check_rows(server, contacts)


@pytest.mark.full
def test_a_missing_audience_file_is_recreated(large_server: StartLarge) -> None:
    """Without its file, as after a restore, the audience continues after the last row."""
    contacts = 120_000
    server = large_server(contacts, 0.9)
    path = send(server.client(), hold_seconds=3600)
    wait_until(server.client(), path, lambda campaign: campaign["freezing"]["done"])
    server.kill()
    for name in (server.data / "audiences").iterdir():
        name.unlink()
    rows_before = query(server, "SELECT count(*) FROM message")[0][0]
    server.start()
    wait_until(server.client(), path, lambda campaign: not campaign["freezing"])
    server.stop()
    rows = query(server, "SELECT contact_id FROM message ORDER BY id")

    assert 0 < rows_before < contacts
    assert [number for (number,) in rows] == list(range(1, contacts + 1))


@pytest.mark.full
def test_the_report_shows_the_progress_of_the_audience(large_server: StartLarge) -> None:
    """While rows are written the report shows their number and the total, and updates itself."""
    server = large_server(120_000, 0.9)
    cookie = session_cookie(server, EMAIL)
    path = send(server.client(), hold_seconds=3600)
    wait_until(server.client(), path, lambda campaign: campaign["freezing"]["total"])
    shown = server.client().request("GET", path, headers=FORM | {"Cookie": cookie}).text
    wait_until(server.client(), path, lambda campaign: not campaign["freezing"])
    after = server.client().request("GET", path, headers=FORM | {"Cookie": cookie}).text

    assert re.search(r"Building the recipient list: <b>[\d,]+</b> of 120,000 contacts", shown)
    assert 'hx-trigger="every' in shown and "Building the recipient list" not in after


def test_a_pause_while_the_audience_is_fixed(large_server: StartLarge, smtp_server: SmtpServer) -> None:
    """After a pause rows are still written, but nothing leaves; after resuming the campaign completes."""
    server = large_server(relay=smtp_server.port)
    api = server.client()
    gate = smtp_server.rules.hold("body")
    path = send(api)
    paused = api.post(f"{path}/pause").expect(200)
    gate.release()
    frozen = wait_until(api, path, lambda campaign: not campaign["freezing"])
    time.sleep(1)
    sent_meanwhile = len(smtp_server.messages)
    api.post(f"{path}/resume").expect(200)
    completed = wait_until(api, path, lambda campaign: campaign["status"] == "completed")

    assert (paused["status"], frozen["status"], frozen["audience_count"]) == ("paused", "paused", CONTACTS)
    assert sent_meanwhile <= 4 and completed["stats"]["sent"] == len(smtp_server.messages) > 20


def test_a_large_audience_does_not_block_writes(large_server: StartLarge) -> None:
    """While a large audience is fixed and cancelled, updates of contacts stay fast."""
    contacts = 60_000
    server = large_server(contacts, 0.9)
    api = server.client(validate=False, keep_alive=True)
    waits: list[float] = []

    def update_contact(row: dict[str, Any]) -> bool:
        started = time.monotonic()
        api.patch(f"/contacts/{len(waits) + 1}", {"first_name": "New"}).expect(200)
        waits.append(time.monotonic() - started)
        return not row["freezing"]

    path = send(api, hold_seconds=3600)
    wait_until(api, path, update_contact)
    updates_while_freezing = len(waits)
    api.post(f"{path}/cancel").expect(200)
    wait_until(api, path, lambda campaign: update_contact(campaign) and not campaign["stats"]["pending"])

    assert updates_while_freezing > 3 and sorted(waits)[len(waits) * 9 // 10] < extend_timeout(0.1)


def test_a_large_segment_with_an_excluded_list(large_server: StartLarge) -> None:
    """The audience of a segment with all kinds of values, less a list, has the size that the preflight counted."""
    contacts = 60_000
    server = large_server(contacts, 0.9)
    api = server.client()
    filters = [
        {"name": "contact_data.visits", "predicate": "gteq", "value": 1.5},
        {"name": "contact_first_name", "predicate": "not_eq", "value": "O'Neill \u00e4"},
        {"name": "contact_created_at", "predicate": "lt", "value": "2100-01-01"},
        {"name": "subscribed_email", "predicate": "eq", "value": True},
    ]
    segment = api.post("/segments", {"name": "Often", "filters": filters}).expect(201)["id"]
    excluded_list = api.post("/lists", {"name": "Out", "contact_ids": list(range(1, 200))}).expect(201)["id"]
    campaign = api.post("/campaigns", {"name": "Large", "template_attributes": CONTENT}).expect(201)
    trigger = {"segment_id": segment, "contact_list_id": 1, "data": {"exclude_contact_list_ids": [excluded_list]}}
    path = f"/campaigns/{campaign['id']}"
    api.patch(path, {"trigger_attributes": trigger}).expect(200)
    counted = api.get(f"{path}/preflight").expect(200)["facts"]["audience"]
    sent = api.post(f"{path}/send", {"hold_seconds": 3600}).expect(200)
    completed = wait_until(api, path, lambda campaign: not campaign["freezing"])

    assert sent["freezing"] is not None
    assert completed["audience_count"] == counted > 20_000
