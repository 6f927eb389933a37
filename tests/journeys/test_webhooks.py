"""Webhooks with somebody who really listens: who fails, hangs, dies, comes back; and a service that is killed."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.receiver import Receiver, signed_by
from tests.kit.server import EMAIL, Server
from tests.kit.spoken import Spoken, speak

ALLOWED = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "0"}
# The first pauses of docs/decisions.md#13, in seconds
LADDER = [30, 60, 120]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """Somebody who listens."""
    with Receiver(tmp_path) as running:
        yield running


@pytest.fixture
def timed(fresh_server: FreshServer, clock: TestClock) -> Server:
    """A server whose days pass as fast as we like."""
    return fresh_server(env=ALLOWED, clock=clock)


def hook_to(api: Spoken, receiver: Receiver, *events: str) -> dict[str, Any]:
    """Make a webhook."""
    made: dict[str, Any] = api.webhooks.create({"url": receiver.url, "events": list(events)})
    return made


def happen(api: Spoken, name: str, number: int = 0) -> int:
    """Let an event happen and return its id."""
    body = {"event": name, "contact_email": "ann@example.org", "create_contact": True, "data": {"number": number}}
    made: int = api.events.create(body)["id"]
    return made


def attempted(api: Spoken, hook: dict[str, Any], event_id: int, attempts: int) -> dict[str, Any]:
    """Wait until an event was attempted so often, and return its delivery."""
    rows = api.webhooks.deliveries.wait(
        hook["id"], until=lambda rows: bool(rows) and rows[0]["attempts"] == attempts, event_id=event_id
    )
    found: dict[str, Any] = rows[0]
    return found


def pause(delivery: dict[str, Any], read: Callable[[str], float]) -> int:
    """Return the seconds from an attempt to the next."""
    return round(read(delivery["next_attempt_at"]) - read(delivery["last_attempt_at"]))


def seconds(moment: str) -> float:
    """Return a moment of the interface in seconds."""
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp()


def test_a_receiver_dies_and_comes_back(timed: Server, clock: TestClock, receiver: Receiver) -> None:
    """While nobody listens each event is tried again after the agreed pauses; once somebody does, all arrive."""
    api = speak(timed.client())
    hook = hook_to(api, receiver, "thing_seen")
    first = happen(api, "thing_seen")
    receiver.wait(lambda found: len(found) == 1)
    attempted(api, hook, first, 1)
    receiver.down()
    lost = [happen(api, "thing_seen", number) for number in range(1, 6)]
    for attempt, wanted in enumerate(LADDER[:2]):
        for event_id in lost:
            found = attempted(api, hook, event_id, attempt + 1)
            assert (pause(found, seconds), found["status"], found["response_status"]) == (wanted, "pending", None)
        if attempt == 1:
            receiver.up()
        clock.advance(wanted)
    came = receiver.wait(lambda found: len(found) == 6)
    assert sorted(one.event["id"] for one in came) == [first, *lost]
    assert all(signed_by(hook["secret"], one.headers, one.body) for one in came)
    done = api.webhooks.get.wait(hook["id"], until=lambda row: row["pending_count"] == 0)
    assert done["failing_since"] is None and done["enabled"]


def test_three_days_of_failure_switch_it_off(timed: Server, clock: TestClock, receiver: Receiver) -> None:
    """Then nobody asks there any more; an event, a mail to the owner and the webhook itself say so and since when."""
    api = speak(timed.client())
    hook = hook_to(api, receiver, "thing_seen")
    receiver.mood(500)
    first = attempted(api, hook, happen(api, "thing_seen"), 1)
    since = first["last_attempt_at"]
    for day in range(1, 3):
        clock.advance(days=1)
        attempted(api, hook, happen(api, "thing_seen", day), 1)
        state = api.webhooks.get(hook["id"])
        assert state["failing_since"] == since and state["enabled"]
    clock.advance(days=1)
    off = api.webhooks.get.wait(hook["id"], until=lambda row: not row["enabled"])
    assert (off["disabled_reason"], off["failing_since"]) == ("failing", since)
    told = api.events.list(event="webhook_disabled")
    assert [one["data"] for one in told] == [{"webhook_id": hook["id"], "reason": "failing", "failing_since": since}]
    (letter,) = api.capture.list.wait(until=bool)
    assert letter["to"] == EMAIL and "webhook" in letter["subject"]
    text = api.capture.get(letter["id"])["text"]
    assert "127.0.0.1" in text and since in text and "/hook" not in text
    asked = len(receiver.arrived)
    happen(api, "thing_seen", 9)
    receiver.mood()
    waiting = api.webhooks.get(hook["id"])["pending_count"]
    assert waiting > 0
    assert api.webhooks.update(hook["id"], {"enabled": True})["failing_since"] is None
    clock.advance(days=1)
    api.webhooks.get.wait(hook["id"], until=lambda row: row["pending_count"] == 0)
    assert [one.event["data"]["number"] for one in receiver.arrived[asked:]].count(9) == 0


def test_one_that_hangs_holds_up_no_other(fresh_server: FreshServer, receiver: Receiver, tmp_path: Path) -> None:
    """Whoever does not answer keeps only itself waiting."""
    with Receiver(tmp_path) as slow:
        api = speak(fresh_server(env=ALLOWED).client())
        slow.mood(seconds=60)
        for _ in range(3):
            hook_to(api, slow, "thing_seen")
        hook_to(api, receiver, "thing_seen", "thing_done")
        for number in range(20):
            happen(api, "thing_seen", number)
        receiver.wait(lambda found: len(found) == 20)
        happen(api, "thing_done")
        receiver.wait(lambda found: len(found) == 21)
        assert slow.arrived == []


def test_none_is_lost_when_the_service_is_killed(fresh_server: FreshServer, receiver: Receiver) -> None:
    """Killed amid deliveries, each event arrives; what arrives twice has the same name twice."""
    server = fresh_server(env=ALLOWED)
    api = speak(server.client())
    hook_to(api, receiver, "thing_seen")
    receiver.mood(seconds=0.1)
    sent = [happen(api, "thing_seen", number) for number in range(60)]
    receiver.wait(lambda found: len(found) >= 10)
    server.kill()
    server.start()
    receiver.wait(lambda found: set(sent) == {one.event["id"] for one in found})
    came = receiver.arrived
    names = {(one.name, one.event["id"]) for one in came}
    assert len(names) == len(sent) == 60
    repeats = Counter(one.name for one in came)
    # As many as are on their way at once
    assert sum(count - 1 for count in repeats.values()) <= 4
