"""Warm-up: a campaign from a new domain is spread over days, also across a kill (D22)."""

from collections import Counter

import pytest

from tests.direct.conftest import StartDirect, post, send_to, wait_for_status
from tests.kit.clock import TestClock
from tests.kit.mail_network import MailNetwork
from tests.kit.recipients import wait_until_completed
from tests.kit.timeouts import becomes_idle


@pytest.mark.full
def test_a_campaign_spreads_over_days(direct: StartDirect, world: MailNetwork, clock: TestClock) -> None:
    """The daily quota holds despite a kill, campaign and status name it, and the rest goes out the next day."""
    mx = world.mail("mx.people.example", "people.example")
    # At noon, so that midnight does not come during the test
    clock.advance(86_400 - (clock.now() + 43_200) % 86_400)
    server = direct(clock=clock, direct__warm_up="true")
    api = server.client()
    addresses = [f"p{n}@people.example" for n in range(120)]
    path = send_to(api, *addresses)
    mx.wait_for(20)
    server.kill()
    server.start()
    mx.wait_for(50)
    row = api.wait(path, lambda row: (row["waiting"] or {}).get("reason") == "warm_up")
    status = api.get("/delivery/status").expect(200)
    wait_for_status(api, post(api, "bo@people.example"), "sent")
    first = Counter(message.to for message in mx.messages)

    # A message in flight at the kill may be sent twice, up to the concurrency limit (P3)
    assert 50 <= sum(first.values()) - first["bo@people.example"] <= 58
    assert "day 1 of 13" in row["waiting"]["text"] and "50" in row["waiting"]["text"]
    assert status["open"] and [entry["code"] for entry in status["obstacles"]] == ["warm_up"]
    assert [(entry["domain"], entry["cap"], entry["day"]) for entry in status["warm_up"]] == [("bakery.example", 50, 1)]
    clock.advance(days=1)
    campaign = wait_until_completed(api, path)
    received = Counter(message.to for message in mx.messages)
    assert campaign["stats"]["sent"] == 120 and set(addresses) <= set(received)
    assert sum(received.values()) <= 121 + 8


@pytest.mark.full
def test_waiting_for_the_next_day_uses_no_cpu(direct: StartDirect, world: MailNetwork) -> None:
    """While a campaign waits for the next day's quota, the process sleeps."""
    mx = world.mail("mx.patient.example", "patient.example")
    server = direct(direct__warm_up="true", connections="20")
    api = server.client()
    path = send_to(api, *[f"p{n}@patient.example" for n in range(700)])
    mx.wait_for(50)
    api.wait(path, lambda row: (row["waiting"] or {}).get("reason") == "warm_up")
    assert becomes_idle(server.pid)
