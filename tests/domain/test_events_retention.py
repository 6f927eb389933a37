"""Deletion of expired events, except those still needed."""

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
def home_with_old_events(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return an installation with 100 daily events of one contact, kept for 30 days, deleted in chunks of 7."""
    monkeypatch.setattr(log, "_SELECT_EXPIRED", log._SELECT_EXPIRED.replace(f"LIMIT {log._CHUNK_EVENTS}", "LIMIT 7"))
    contact = home.contact("old@example.org").id
    now = clock.now_ms()
    transactions.write(run, "DELETE FROM event")
    for day in range(100):
        insert_event(home, contact, now - day * DAY)
    set_cursor(10**9)
    home.configure(events__keep="30d")
    return home


def insert_event(home: Home, contact_id: int, created_at: int) -> int:
    """Insert an event and return its id."""
    transactions.write(
        run,
        "INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, "
        "updated_at) VALUES (?, ?, 'order_paid', '{}', 0, 0, 0, 0, ?, ?)",
        (home.account_id, contact_id, created_at, created_at),
    )
    return int(scalar("SELECT max(id) FROM event"))


def set_cursor(event_id: int, name: str = "flows") -> None:
    """Set the cursor of a reader of the event log."""
    transactions.write(
        run, "INSERT INTO cursor (name, event_id) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET event_id = ?2",
        (name, event_id),
    )  # fmt: skip


def insert_run(home: Home, contact_id: int, created_at: int, event_id: int | None, status: str = "live") -> int:
    """Insert a flow and a run of a contact in it, and return the run's id."""

    def insert() -> int:
        flow = Flow.create(
            account=home.account_id, name="f", status="active", created_at=created_at, updated_at=created_at
        )
        flow_run = Run.create(
            account=home.account_id, flow=flow, version=1, contact=contact_id, event_id=event_id, status=status,
            created_at=created_at, updated_at=created_at,
        )  # fmt: skip
        return int(flow_run.id)

    return transactions.write(insert)


def event_ages() -> list[int]:
    """Return the ages of the remaining events in days."""
    now = clock.now_ms()
    return sorted(round((now - row[0]) / DAY) for row in rows("SELECT created_at FROM event"))


def delete_expired() -> None:
    """Delete expired events once."""
    log.delete_expired(threading.Event())


def test_events_older_than_the_setting_are_deleted(home_with_old_events: Home) -> None:
    """Only events older than 30 days are deleted, and `events_since` records the time."""
    delete_expired()
    assert event_ages() == list(range(30))
    since = scalar("SELECT events_since FROM account WHERE id = ?", (home_with_old_events.account_id,))
    assert abs(since - (clock.now_ms() - 30 * DAY)) < 60_000
    delete_expired()
    assert event_ages() == list(range(30))


def test_events_are_kept_without_the_setting(home_with_old_events: Home) -> None:
    """Without `events.keep` no event is deleted."""
    home_with_old_events.configure()
    delete_expired()
    assert len(event_ages()) == 100 and scalar("SELECT max(events_since) FROM account") is None


def test_unread_events_are_kept(home_with_old_events: Home) -> None:
    """Events of any age that flows or webhooks have not processed are kept."""
    ids = [row[0] for row in rows("SELECT id FROM event ORDER BY id")]
    set_cursor(ids[50])
    delete_expired()
    assert event_ages() == [*range(30), *range(51, 100)]
    set_cursor(10**9)
    set_cursor(ids[60], "webhooks")
    delete_expired()
    assert event_ages() == [*range(30), *range(61, 100)]
    transactions.write(run, "DELETE FROM cursor")
    delete_expired()
    assert event_ages() == [*range(30), *range(61, 100)]


def test_a_live_run_keeps_the_events_it_may_need(home_with_old_events: Home) -> None:
    """A live run keeps its contact's events since its start and its trigger event; a completed run none."""
    contact_id = rows("SELECT max(id) FROM contact")[0][0]
    other_id = home_with_old_events.contact("other@example.org").id
    event_of_other = insert_event(home_with_old_events, other_id, clock.now_ms() - 45 * DAY)
    trigger_event_id = rows("SELECT id FROM event ORDER BY created_at LIMIT 1")[0][0]
    run_id = insert_run(home_with_old_events, contact_id, clock.now_ms() - 60 * DAY - 60_000, trigger_event_id)
    insert_run(home_with_old_events, contact_id, clock.now_ms() - 90 * DAY, None, "completed")
    delete_expired()
    assert [day for day in event_ages() if day >= 30] == [*range(30, 61), 99]
    assert scalar("SELECT count(*) FROM event WHERE id = ?", (event_of_other,)) == 0
    transactions.write(run, "UPDATE run SET status = 'completed' WHERE id = ?", (run_id,))
    delete_expired()
    assert [day for day in event_ages() if day >= 30] == []


def test_events_of_pending_webhook_deliveries_are_kept(home_with_old_events: Home) -> None:
    """An event with a pending webhook delivery is kept until the delivery has ended."""
    event_id = rows("SELECT id FROM event ORDER BY created_at LIMIT 1")[0][0]
    transactions.write(
        run,
        "INSERT INTO webhook (account_id, url, events, enabled, secret, after_event_id, created_at, updated_at) "
        "VALUES (?, 'https://a.example', '[]', 1, x'00', 0, 0, 0)",
        (home_with_old_events.account_id,),
    )
    transactions.write(
        run,
        "INSERT INTO webhook_delivery (webhook_id, event_id, status, attempts, created_at, updated_at) "
        "VALUES (1, ?, 'pending', 1, 0, 0)",
        (event_id,),
    )
    delete_expired()
    assert [day for day in event_ages() if day >= 30] == [99]
    transactions.write(run, "UPDATE webhook_delivery SET status = 'failed'")
    delete_expired()
    assert [day for day in event_ages() if day >= 30] == []


def test_a_stopping_service_deletes_no_events(home_with_old_events: Home) -> None:
    """With the stop event set nothing is deleted."""
    stopping = threading.Event()
    stopping.set()
    log.delete_expired(stopping)
    assert len(event_ages()) == 100


@pytest.mark.parametrize("keep", ["29d", "30", "720h", "-30d", "1d", ""])
def test_events_keep_below_30_days_is_rejected(keep: str) -> None:
    """A shorter or malformed `events.keep` raises ConfigError."""
    with pytest.raises(ConfigError, match=r"events\.keep"):
        config.load({"events.keep": keep}, {})
