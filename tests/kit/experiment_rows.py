"""The ledger of a campaign with an A/B test, compared with the assignment that is stored for it."""

import json
from collections import Counter
from typing import Any

import apsw
from msgspec import convert

from appliance.experiments.assignment import Assignment, get_group
from tests.kit.client import Client
from tests.kit.server import Server


def query(server: Server, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return all rows of a query on the database of a server, which may be down."""
    database = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        database.set_busy_timeout(5_000)
        return list(database.execute(sql, values))
    finally:
        database.close()


def count_groups(server: Server, campaign_id: int) -> Counter[int | None]:
    """Return the number of messages of each variant (None: could not get the campaign).

    Raises AssertionError unless each contact has one row, whose variant is the group of the stored assignment.
    """
    [(stored,)] = query(server, "SELECT assignment FROM experiment WHERE campaign_id = ?", (campaign_id,))
    assignment = convert(json.loads(stored), Assignment)
    sql = "SELECT contact_id, variant, status, skip_reason FROM message WHERE campaign_id = ?"
    rows = query(server, sql, (campaign_id,))
    assert len({row[0] for row in rows}) == len(rows)
    for contact_id, variant, status, reason in rows:
        if variant is None:
            assert (status, reason != "held_out") == ("skipped", True)
        else:
            assert variant == get_group(assignment, contact_id)
            assert (variant == -1) == (reason == "held_out")
    return Counter(row[1] for row in rows)


def check_sums(api: Client, path: str) -> dict[str, Any]:
    """Return the figures of a test. Raises AssertionError unless they add up, in themselves and with the campaign's."""
    result: dict[str, Any] = api.get(f"{path}/experiment").expect(200)
    campaign = api.get(path).expect(200)
    variants = result["variants"]
    assert result["adds_up"], result
    assert all(variant["recipients"] == sum(variant["statuses"].values()) for variant in variants)
    total = sum(variant["recipients"] for variant in variants) + result["waiting"] + result["held_out"]
    assert total + result["skipped"] == campaign["stats"]["audience"] == result["audience"]
    return result
