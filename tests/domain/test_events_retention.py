"""What is too old goes, and nothing that anybody still has to see."""

import threading

import pytest

from appliance.core import clock
from appliance.core.errors import ConfigError
from appliance.events import log
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Flow, Run
from tests.domain.home import Home

DAY = 86_400_000


@pytest.fixture
def aged(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Events of a hundred days, one a day, all of one person, which are kept for thirty; small chunks."""
    monkeypatch.setattr(log, "_SELECT_EXPIRED", log._SELECT_EXPIRED.replace(f"LIMIT {log._CHUNK_EVENTS}", "LIMIT 7"))
    contact = home.contact("old@example.org").id
    now = clock.now_ms()
    transactions.write(run, "DELETE FROM event")
    for day in range(100):
        happen(home, contact, now - day * DAY)
    read_to(10**9)
    home.configure(events__keep="30d")
    return home


def happen(home: Home, contact: int, at: int) -> int:
    """Write an event and answer its id."""
    transactions.write(
        run,
        "INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, "
        "updated_at) VALUES (?, ?, 'order_paid', '{}', 0, 0, 0, 0, ?, ?)",
        (home.account_id, contact, at, at),
    )
    return int(scalar("SELECT max(id) FROM event"))


def read_to(event_id: int, name: str = "flows") -> None:
    """Let a reader of the log stand at an event."""
    transactions.write(
        run, "INSERT INTO cursor (name, event_id) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET event_id = ?2",
        (name, event_id),
    )  # fmt: skip


def enter(home: Home, contact: int, at: int, event_id: int | None, status: str = "live") -> int:
    """Write a run of somebody, begun at a moment."""

    def verb() -> int:
        flow = Flow.create(account=home.account_id, name="f", status="active", created_at=at, updated_at=at)
        made = Run.create(
            account=home.account_id, flow=flow, version=1, contact=contact, event_id=event_id, status=status,
            created_at=at, updated_at=at,
        )  # fmt: skip
        return int(made.id)

    return transactions.write(verb)


def days() -> list[int]:
    """Return how many days old what is left is."""
    now = clock.now_ms()
    return sorted(round((now - row[0]) / DAY) for row in rows("SELECT created_at FROM event"))


def tend() -> None:
    """Let one round pass."""
    log.delete_expired(threading.Event())


def test_what_is_older_goes(aged: Home) -> None:
    """All that is over thirty days old and nothing younger; from when on events are whole is noted."""
    tend()
    assert days() == list(range(30))
    since = scalar("SELECT events_since FROM account WHERE id = ?", (aged.account_id,))
    assert abs(since - (clock.now_ms() - 30 * DAY)) < 60_000
    tend()
    assert days() == list(range(30))


def test_everything_is_kept_unless_asked(aged: Home) -> None:
    """Without the setting nothing ever goes."""
    aged.configure()
    tend()
    assert len(days()) == 100 and scalar("SELECT max(events_since) FROM account") is None


def test_nobody_loses_what_they_have_not_read(aged: Home) -> None:
    """Events that flows or webhooks have not come to stay, however old they say they are."""
    ids = [row[0] for row in rows("SELECT id FROM event ORDER BY id")]
    read_to(ids[50])
    tend()
    assert days() == [*range(30), *range(51, 100)]
    read_to(10**9)
    read_to(ids[60], "webhooks")
    tend()
    assert days() == [*range(30), *range(61, 100)]
    transactions.write(run, "DELETE FROM cursor")
    tend()
    assert days() == [*range(30), *range(61, 100)]


def test_a_run_keeps_what_it_may_ask_for(aged: Home) -> None:
    """Of somebody in a flow all since they came, and what brought them; of others, and after its end, nothing."""
    contact = rows("SELECT max(id) FROM contact")[0][0]
    other = aged.contact("other@example.org").id
    theirs = happen(aged, other, clock.now_ms() - 45 * DAY)
    brought = rows("SELECT id FROM event ORDER BY created_at LIMIT 1")[0][0]
    number = enter(aged, contact, clock.now_ms() - 60 * DAY - 1000, brought)
    enter(aged, contact, clock.now_ms() - 90 * DAY, None, "completed")
    tend()
    assert [day for day in days() if day >= 30] == [*range(30, 61), 99]
    assert scalar("SELECT count(*) FROM event WHERE id = ?", (theirs,)) == 0
    transactions.write(run, "UPDATE run SET status = 'completed' WHERE id = ?", (number,))
    tend()
    assert [day for day in days() if day >= 30] == []


def test_what_is_on_its_way_stays(aged: Home) -> None:
    """An event that a webhook still has to be told of stays until that has ended."""
    event = rows("SELECT id FROM event ORDER BY created_at LIMIT 1")[0][0]
    transactions.write(
        run,
        "INSERT INTO webhook (account_id, url, events, enabled, secret, after_event_id, created_at, updated_at) "
        "VALUES (?, 'https://a.example', '[]', 1, x'00', 0, 0, 0)",
        (aged.account_id,),
    )
    transactions.write(
        run,
        "INSERT INTO webhook_delivery (webhook_id, event_id, status, attempts, created_at, updated_at) "
        "VALUES (1, ?, 'pending', 1, 0, 0)",
        (event,),
    )
    tend()
    assert [day for day in days() if day >= 30] == [99]
    transactions.write(run, "UPDATE webhook_delivery SET status = 'failed'")
    tend()
    assert [day for day in days() if day >= 30] == []


def test_a_round_ends_with_the_service(aged: Home) -> None:
    """Who is told to stop deletes nothing more."""
    stopping = threading.Event()
    stopping.set()
    log.delete_expired(stopping)
    assert len(days()) == 100


@pytest.mark.parametrize("keep", ["29d", "30", "720h", "-30d", "1d", ""])
def test_less_than_a_month_is_refused(keep: str) -> None:
    """Warm-up, caps and reports look back; what is kept for less is a mistake."""
    with pytest.raises(ConfigError, match=r"events\.keep"):
        config.load({"events.keep": keep}, {})
