"""Kills amid an A/B test: while the audience is fixed, while the test is sent, and while the winner is released.

After each, every recipient has one variant, that of the stored assignment, and the sums add up.
"""

import time
from collections.abc import Callable
from typing import Any

from tests.journeys.conftest import StartLarge
from tests.kit.clock import TestClock
from tests.kit.experiment_rows import check_sums, count_groups, query
from tests.kit.server import Server

CONTENT = {"subject": "First", "body": "<p>Hi</p>"}
EXPERIMENT = {
    "variants": [{}, {"subject": "Second"}, {"subject": "Third", "body": "<p>Third</p>"}],
    "test_share": 0.04, "holdout": 0.1, "event": "order", "decided_by": "person",
}  # fmt: skip
PATH = "/campaigns/1"


def kill_until(server: Server, is_done: Callable[[], bool], is_amid: Callable[[], bool], kills: int = 2) -> int:
    """Kill and restart a server amid something until it is done; return how many kills were amid it."""
    hits, deadline = 0, time.monotonic() + 120
    while not is_done():
        if hits < kills and is_amid():
            server.kill()
            hits += 1
            server.start()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return hits


def get_released(server: Server) -> tuple[Any, ...]:
    """Return whether any message waits, and whether any has got the winner."""
    waits = "EXISTS (SELECT 1 FROM message WHERE campaign_id = 1 AND status = 'held' AND variant = 0)"
    has_winner = "EXISTS (SELECT 1 FROM message WHERE campaign_id = 1 AND status = 'queued' AND variant > 0)"
    return query(server, f"SELECT {waits}, {has_winner}")[0]


def test_kills_leave_each_recipient_one_variant(large_server: StartLarge, clock: TestClock) -> None:
    """The groups stay those of the assignment, whatever moment the process dies at."""
    contacts = 30_000
    server = large_server(contacts, 0.9, clock=clock)
    api = server.client()
    body = {"name": "Large", "template_attributes": CONTENT, "experiment": EXPERIMENT}
    api.post("/campaigns", body).expect(201)
    api.post(f"{PATH}/send", {"trigger_attributes": {"contact_list_id": 1}, "hold_seconds": 600}).expect(200)
    stored = "SELECT count(*) FROM message"
    amid_fixing = kill_until(
        server, lambda: query(server, stored)[0][0] == contacts, lambda: query(server, stored)[0][0] > 0
    )
    fixed = count_groups(server, 1)
    assert amid_fixing and sum(fixed.values()) == contacts
    assert 0.08 < fixed[-1] / (contacts - fixed[None]) < 0.12
    assert all(abs(fixed[number] - fixed[1]) < 120 for number in (2, 3)) and fixed[1] > 250

    clock.advance(minutes=11)
    unsent = "SELECT count(*) FROM message WHERE variant > 0 AND status IN ('queued', 'held', 'sending')"
    sent = "SELECT count(*) FROM message WHERE status = 'sent'"
    amid_test = kill_until(server, lambda: query(server, unsent)[0][0] == 0, lambda: query(server, sent)[0][0] > 0)
    assert amid_test and count_groups(server, 1) == fixed
    result = check_sums(server.client(), PATH)
    assert [variant["test_recipients"] for variant in result["variants"]] == [fixed[1], fixed[2], fixed[3]]
    assert result["waiting"] == fixed[0]

    api = server.client()
    api.post(f"{PATH}/pause").expect(200)
    api.post(f"{PATH}/experiment/winner", {"variant": 3}).expect(200)
    released = "SELECT 1 FROM experiment WHERE state = 'decided'"
    amid_release = kill_until(server, lambda: bool(query(server, released)), lambda: all(get_released(server)))
    final = count_groups(server, 1)
    result = check_sums(server.client(), PATH)
    assert amid_release
    assert (final[0], final[1], final[2], final[3]) == (0, fixed[1], fixed[2], fixed[3] + fixed[0])
    assert (result["winner"], result["variants"][2]["test_recipients"]) == (3, fixed[3])
    assert result["variants"][2]["recipients"] == final[3]

    server.client().post(f"{PATH}/cancel").expect(200)
    cancelled = server.client().wait(PATH, lambda row: row["stats"]["pending"] == 0, 60)
    assert cancelled["stats"]["cancelled"] == fixed[0]
    check_sums(server.client(), PATH)
