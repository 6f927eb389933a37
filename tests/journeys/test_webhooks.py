"""Webhooks with a real receiver that fails, hangs or restarts; and a service that is killed."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.openapi_client import OpenApiClient, open_api_client
from tests.kit.server import EMAIL, Server
from tests.kit.webhook_receiver import Receiver, is_signed_by

ALLOWED = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "0"}
# The first retry delays of docs/decisions.md#13, in seconds
RETRY_DELAYS = [30, 60, 120]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """A running webhook receiver."""
    with Receiver(tmp_path) as running:
        yield running


@pytest.fixture
def timed(fresh_server: FreshServer, clock: TestClock) -> Server:
    """A server with a simulated clock."""
    return fresh_server(env=ALLOWED, clock=clock)


def create_webhook(api: OpenApiClient, receiver: Receiver, *events: str) -> dict[str, Any]:
    """Create a webhook to the receiver."""
    webhook: dict[str, Any] = api.webhooks.create({"url": receiver.url, "events": list(events)})
    return webhook


def record_event(api: OpenApiClient, name: str, number: int = 0) -> int:
    """Record an event and return its id."""
    body = {"event": name, "contact_email": "ann@example.org", "create_contact": True, "data": {"number": number}}
    event_id: int = api.events.create(body)["id"]
    return event_id


def wait_for_attempts(api: OpenApiClient, hook: dict[str, Any], event_id: int, attempts: int) -> dict[str, Any]:
    """Wait until the delivery of an event has this number of attempts, and return it."""
    rows = api.webhooks.deliveries.wait(
        hook["id"], until=lambda rows: bool(rows) and rows[0]["attempts"] == attempts, event_id=event_id
    )
    delivery: dict[str, Any] = rows[0]
    return delivery


def retry_delay(delivery: dict[str, Any], read: Callable[[str], float]) -> int:
    """Return the seconds from the last attempt to the next."""
    return round(read(delivery["next_attempt_at"]) - read(delivery["last_attempt_at"]))


def parse_seconds(moment: str) -> float:
    """Return a timestamp of the API in seconds."""

    return datetime.fromisoformat(moment).timestamp()


def test_deliveries_are_retried_until_the_receiver_is_back(timed: Server, clock: TestClock, receiver: Receiver) -> None:
    """While the receiver is down each event is retried after the documented delays; later all arrive."""
    api = open_api_client(timed.client())
    webhook = create_webhook(api, receiver, "thing_seen")
    first = record_event(api, "thing_seen")
    receiver.wait(lambda delivery_row: len(delivery_row) == 1)
    wait_for_attempts(api, webhook, first, 1)
    receiver.down()
    lost_ids = [record_event(api, "thing_seen", number) for number in range(1, 6)]
    for attempt, delay in enumerate(RETRY_DELAYS[:2]):
        for event_id in lost_ids:
            delivery_row = wait_for_attempts(api, webhook, event_id, attempt + 1)
            assert (
                retry_delay(delivery_row, parse_seconds),
                delivery_row["status"],
                delivery_row["response_status"],
            ) == (
                delay,
                "pending",
                None,
            )
        if attempt == 1:
            receiver.up()
        clock.advance(delay)
    arrived = receiver.wait(lambda delivery_row: len(delivery_row) == 6)
    assert sorted(delivery.event["id"] for delivery in arrived) == [first, *lost_ids]
    assert all(is_signed_by(webhook["secret"], delivery.headers, delivery.body) for delivery in arrived)
    webhook_row = api.webhooks.get.wait(webhook["id"], until=lambda row: row["pending_count"] == 0)
    assert webhook_row["failing_since"] is None and webhook_row["enabled"]


def test_three_days_of_failure_disable_a_webhook(timed: Server, clock: TestClock, receiver: Receiver) -> None:
    """The webhook is disabled; an event, an email to the owner and its row say so and since when."""
    api = open_api_client(timed.client())
    webhook = create_webhook(api, receiver, "thing_seen")
    receiver.respond_with(500)
    first = wait_for_attempts(api, webhook, record_event(api, "thing_seen"), 1)
    since = first["last_attempt_at"]
    for day in range(1, 3):
        clock.advance(days=1)
        wait_for_attempts(api, webhook, record_event(api, "thing_seen", day), 1)
        state = api.webhooks.get(webhook["id"])
        assert state["failing_since"] == since and state["enabled"]
    clock.advance(days=1)
    disabled = api.webhooks.get.wait(webhook["id"], until=lambda row: not row["enabled"])
    assert (disabled["disabled_reason"], disabled["failing_since"]) == ("failing", since)
    disabled_events = api.events.list(event="webhook_disabled")
    assert [entry["data"] for entry in disabled_events] == [
        {"webhook_id": webhook["id"], "reason": "failing", "failing_since": since}
    ]
    (email,) = api.capture.list.wait(until=bool)
    assert email["to"] == EMAIL and "webhook" in email["subject"]
    text = api.capture.get(email["id"])["text"]
    since_date = f"{datetime.fromisoformat(since):%A, %-d %B %Y}"
    assert "127.0.0.1" in text and since_date in text and "/hook" not in text
    arrived_before = len(receiver.requests)
    record_event(api, "thing_seen", 9)
    receiver.respond_with()
    waiting = api.webhooks.get(webhook["id"])["pending_count"]
    assert waiting > 0
    assert api.webhooks.update(webhook["id"], {"enabled": True})["failing_since"] is None
    clock.advance(days=1)
    api.webhooks.get.wait(webhook["id"], until=lambda row: row["pending_count"] == 0)
    assert [entry.event["data"]["number"] for entry in receiver.requests[arrived_before:]].count(9) == 0


def test_a_hanging_receiver_delays_no_other(fresh_server: FreshServer, receiver: Receiver, tmp_path: Path) -> None:
    """Webhooks of a hanging receiver do not delay those of another."""
    with Receiver(tmp_path) as slow:
        api = open_api_client(fresh_server(env=ALLOWED).client())
        slow.respond_with(seconds=60)
        for _ in range(3):
            create_webhook(api, slow, "thing_seen")
        create_webhook(api, receiver, "thing_seen", "thing_done")
        for number in range(20):
            record_event(api, "thing_seen", number)
        receiver.wait(lambda arrived: len(arrived) == 20)
        record_event(api, "thing_done")
        receiver.wait(lambda arrived: len(arrived) == 21)
        assert slow.requests == []


def test_a_kill_loses_no_delivery(fresh_server: FreshServer, receiver: Receiver) -> None:
    """After a kill each event arrives; a repeated delivery has the same id."""
    server = fresh_server(env=ALLOWED)
    api = open_api_client(server.client())
    create_webhook(api, receiver, "thing_seen")
    receiver.respond_with(seconds=0.1)
    sent = [record_event(api, "thing_seen", number) for number in range(60)]
    receiver.wait(lambda arrived: len(arrived) >= 10)
    server.kill()
    server.start()
    receiver.wait(lambda arrived: set(sent) == {delivery.event["id"] for delivery in arrived})
    deliveries = receiver.requests
    names = {(delivery.name, delivery.event["id"]) for delivery in deliveries}
    assert len(names) == len(sent) == 60
    repeats = Counter(delivery.name for delivery in deliveries)
    # The number of concurrent deliveries
    assert sum(count - 1 for count in repeats.values()) <= 4
