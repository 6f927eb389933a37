"""One account whose mirrors have costly conditions on events must not delay the mirrors of another one (T11)."""

import time

import pytest

from tests.kit.client import Client
from tests.kit.server import Server

_MAX_SECONDS = 15  # without a limit, the contact of the other account was in its list after 100 seconds


@pytest.mark.full  # records 30,000 events, and compares mirrors for a minute
def test_costly_mirrors_of_one_account_delay_no_mirror_of_another(server: Server, api: Client) -> None:
    """A contact is in the list of the other account within seconds, while three costly lists are compared."""
    account_id = server.cli("account", "add", "Elsewhere").stdout.strip()
    other = server.client(server.new_key("theirs", "--account", account_id))
    contact_id = api.post("/contacts", {"email": "ann@example.org"}).expect(201)["id"]
    costly_segments = [create_costly_segment(api, number) for number in range(3)]  # while they cost little to count
    batch = [{"event": "view", "contact_id": contact_id, "data": {"path": "/"}}] * 1_000
    for _ in range(30):
        api.post("/events/batch", {"events": batch}).expect(200)
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Victim"}]
    segment_id = other.post("/segments", {"name": "Theirs", "filters": filters}).expect(201)["id"]
    victim_id = other.post("/lists", {"name": "Theirs", "segment_id": segment_id}).expect(201)["id"]
    other.wait(f"/lists/{victim_id}", lambda row: not row["stale"], timeout=60)
    for costly_id in costly_segments:
        api.post("/lists", {"name": f"Costly {costly_id}", "segment_id": costly_id}).expect(201)
    time.sleep(2.5)  # until they are being compared
    started_at = time.monotonic()
    other.post("/contacts", {"email": "bob@example.org", "first_name": "Victim"}).expect(201)
    other.wait(f"/lists/{victim_id}", lambda row: row["contacts_count"] == 1, timeout=120)
    assert time.monotonic() - started_at < _MAX_SECONDS


def create_costly_segment(api: Client, number: int) -> int:
    """Create a segment of nine others with 24 conditions on events each, and return its id."""
    ids = []
    for group in range(9):
        seen = [
            {"name": "event", "predicate": "performed", "value": {"event": "view", "where": [
                {"name": "event.path", "predicate": "cont", "value": f"zzz{group}.{index}"}
            ]}}
            for index in range(24)
        ]  # fmt: skip
        filters = [{"name": "group", "predicate": "any", "value": seen}]
        body = {"name": f"Part {number}.{group}", "filters": filters}
        ids.append(api.post("/segments", body).expect(201)["id"])
    parts = [{"name": "contact_segment", "predicate": "eq", "value": segment_id} for segment_id in ids]
    filters = [{"name": "group", "predicate": "any", "value": parts}]
    return int(api.post("/segments", {"name": f"All {number}", "filters": filters}).expect(201)["id"])
