"""The event `date_reached`: on the day, at the hour, once for each contact."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from appliance.core import clock
from appliance.flows import date_events, triggers
from appliance.flows.date_events import DateQuery
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.flows_home import live_flow, process_events, runs
from tests.domain.home import Home

ZONE = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("value", "day", "yearly", "expected"),
    [
        ("1990-05-12", "2026-05-12", True, True),
        ("1990-05-12", "2026-05-12", False, False),
        ("2026-05-12", "2026-05-12", False, True),
        ("2026-05-12", "2026-05-12", True, True),
        ("2030-05-12", "2026-05-12", True, False),
        ("05-12", "2026-05-12", True, True),
        ("--05-12", "2026-05-12", True, True),
        ("--05-12", "2026-05-12", False, False),
        ("1992-02-29", "2026-02-28", True, True),
        ("1992-02-29", "2026-03-01", True, False),
        ("1992-02-29", "2028-02-28", True, False),
        ("1992-02-29", "2028-02-29", True, True),
        ("--02-29", "2027-02-28", True, True),
        ("2026-05-13T02:00:00Z", "2026-05-12", False, True),
        ("2026-05-13T02:00:00Z", "2026-05-13", False, False),
        ("2026-05-13T02:00:00", "2026-05-13", False, True),
        ("1990-05-12 and so on", "2026-05-12", True, False),
        ("2026-13-45", "2026-05-12", True, False),
        ("0001-01-01T00:00:00Z", "2026-01-01", True, False),
        ("9999-12-31T23:59:59-12:00", "2026-12-31", True, False),
        (True, "2026-05-12", True, False),
        (None, "2026-05-12", True, False),
    ],
)
def test_falls_on(value: Any, day: str, yearly: bool, expected: bool) -> None:
    """A date falls on a day, once or yearly, in the account's time zone; 29 February may fall on the 28th."""
    assert date_events.falls_on(value, DateQuery(date.fromisoformat(day), yearly, ZONE)) is expected


def test_the_sql_condition_misses_no_candidate(home: Home) -> None:
    """The SQL condition selects at least all values that fall on the day."""
    values = ["1990-05-12", "--05-12", "05-12", "1992-02-29", "1992-03-01", "2026-05-13T02:00:00Z", "1999-12-31",
              "2000-01-01T03:00:00+00:00"]  # fmt: skip
    for value in values:
        home.upsert(data={"day": value})
    source = triggers.find_date_source("day")
    assert source is not None
    for number in range(800):
        for yearly in (True, False):
            query = DateQuery(date(2026, 1, 1) + timedelta(days=number), yearly, ZONE)
            if not any(date_events.falls_on(value, query) for value in values):
                continue
            binder = date_events.Binder("d", date_events.triggers.get_condition_scope(home.account_id))
            sql = f"SELECT {source.sql} FROM contact c WHERE {date_events.compile_candidates(source, query, binder)}"
            candidates = {row[0] for row in rows(sql, binder.values)}
            assert {value for value in values if date_events.falls_on(value, query)} <= candidates


def check_dates_and_process_events() -> None:
    """Check all due dates, and process the events."""
    while date_events.check_dates():
        pass
    process_events()


def set_time(home: Home, moment: str) -> None:
    """Advance the clock to a UTC time."""
    home.advance(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() - clock.now())


@pytest.fixture
def contact_ids(home: Home) -> dict[str, int]:
    """Return three contacts by name, two with the same birthday, on the evening before it in New York."""
    transactions.write(run, "UPDATE account SET time_zone = 'America/New_York'")
    set_time(home, "2027-05-12T02:00:00")
    return {
        name: home.contact(f"{name}@example.org", data={"birthday": day}).id
        for name, day in (("anna", "1990-05-12"), ("ben", "2001-05-12"), ("cleo", "1990-05-19"))
    }


def test_contacts_enter_once_on_the_day_at_the_hour(home: Home, contact_ids: dict[str, int]) -> None:
    """Contacts enter at the hour, and only once if the clock is set back; the event has the date."""
    flow = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "10:30"}})
    check_dates_and_process_events()
    set_time(home, "2027-05-12T14:29:59")
    assert not date_events.is_date_check_due()
    check_dates_and_process_events()
    assert runs(flow) == []
    set_time(home, "2027-05-12T14:30:00")
    assert date_events.is_date_check_due()
    check_dates_and_process_events()
    home.advance(-7200)
    check_dates_and_process_events()
    home.advance(9000)
    check_dates_and_process_events()
    assert [row[0] for row in runs(flow)] == [contact_ids["anna"], contact_ids["ben"]]
    assert scalar("SELECT event_data FROM run LIMIT 1") == (
        f'{{"flow_id":{flow},"path":"birthday","date":"1990-05-12","day":"2027-05-12"}}'
    )
    transactions.write(run, "UPDATE run SET status = 'completed'")
    set_time(home, "2028-05-12T14:30:00")
    check_dates_and_process_events()
    assert [row[0] for row in runs(flow)] == [contact_ids["anna"], contact_ids["ben"]] * 2


def test_dates_are_checked_after_a_clock_was_years_ahead(home: Home, contact_ids: dict[str, int]) -> None:
    """After a wrong clock is corrected, coming days are checked again."""
    flow = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "10:30"}})
    check_dates_and_process_events()
    home.advance(10 * 366 * 86_400)
    check_dates_and_process_events()
    home.advance(-10 * 366 * 86_400)
    check_dates_and_process_events()
    assert not date_events.is_date_check_due()
    set_time(home, "2027-05-12T14:30:00")
    check_dates_and_process_events()
    assert [row[0] for row in runs(flow)] == [contact_ids["anna"], contact_ids["ben"]]


def test_a_flow_activated_after_the_hour_starts_tomorrow(home: Home, contact_ids: dict[str, int]) -> None:
    """A flow activated after its hour skips today; one activated before it does not."""
    set_time(home, "2027-05-12T15:00:00")
    late_flow = live_flow(
        home, {"event": "date_reached", "data": {"path": "data.birthday", "yearly": True, "at": "10:30"}}
    )
    early_flow = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "11:30"}})
    check_dates_and_process_events()
    set_time(home, "2027-05-12T15:30:00")
    check_dates_and_process_events()
    assert (runs(late_flow), len(runs(early_flow))) == ([], 2)


def test_offset_days(home: Home, contact_ids: dict[str, int]) -> None:
    """With an offset of -7 a contact enters seven days before the date."""
    flow = live_flow(
        home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "offset_days": -7, "at": "00:00"}}
    )
    check_dates_and_process_events()
    set_time(home, "2027-05-12T04:00:00")
    check_dates_and_process_events()
    assert [row[0] for row in runs(flow)] == [contact_ids["cleo"]]


def test_missed_dates_are_caught_up_for_hours_only(home: Home, contact_ids: dict[str, int]) -> None:
    """A check that is days late finishes what it had begun, but starts no missed day."""
    flow = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True}})
    check_dates_and_process_events()
    batch_size, date_events._DATE_BATCH_SIZE = date_events._DATE_BATCH_SIZE, 1
    try:
        set_time(home, "2027-05-12T18:00:00")
        assert date_events.check_dates()
        set_time(home, "2027-05-15T18:00:00")
        check_dates_and_process_events()
    finally:
        date_events._DATE_BATCH_SIZE = batch_size
    assert [row[0] for row in runs(flow)] == [contact_ids["anna"], contact_ids["ben"]]
    set_time(home, "2027-05-19T22:00:01")
    check_dates_and_process_events()
    assert len(runs(flow)) == 2


def test_only_contacts_of_the_list_get_the_event(home: Home, contact_ids: dict[str, int]) -> None:
    """Contacts outside the trigger's list get no event; `contact_created_at` is reached from the next year on."""
    list_id = home.list_of(contact_ids["ben"], name="club").id
    flow = live_flow(home, {"event": "date_reached", "contact_list_id": list_id,
                            "data": {"path": "birthday", "yearly": True}})  # fmt: skip
    created_flow = live_flow(home, {"event": "date_reached", "data": {"path": "contact_created_at", "yearly": True}})
    check_dates_and_process_events()
    set_time(home, "2027-05-12T13:00:00")
    check_dates_and_process_events()
    assert [row[0] for row in runs(flow)] == [contact_ids["ben"]]
    assert scalar("SELECT count(*) FROM event WHERE event = 'date_reached'") == 1
    assert runs(created_flow) == []
    set_time(home, "2028-05-11T13:00:00")
    check_dates_and_process_events()
    assert len(runs(created_flow)) == 3


def test_a_broken_trigger_does_not_stop_others(home: Home, contact_ids: dict[str, int]) -> None:
    """A trigger that cannot be evaluated starts nothing; other flows start as usual."""
    trigger = {"event": "date_reached", "data": {"path": "birthday", "yearly": True}}
    broken_flow, other_flow = live_flow(home, trigger), live_flow(home, trigger)
    check_dates_and_process_events()
    transactions.write(
        run, "UPDATE trigger SET data = json_set(data, '$.offset_days', 1e9) WHERE flow_id = ?", (broken_flow,)
    )
    check_dates_and_process_events()
    set_time(home, "2027-05-12T13:00:00")
    check_dates_and_process_events()
    assert (runs(broken_flow), len(runs(other_flow))) == ([], 2)
    date_events._date_retry_at.clear()
