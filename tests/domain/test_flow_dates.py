"""`date_reached`: on the day, at the hour, once, for everybody whose date comes round."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from appliance.core import clock
from appliance.flows import date_events, triggers
from appliance.flows.date_events import DateQuery
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.flows_home import live_flow, runs, take_in
from tests.domain.home import Home

ZONE = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("value", "day", "yearly", "comes"),
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
        (True, "2026-05-12", True, False),
        (None, "2026-05-12", True, False),
    ],
)
def test_a_date_comes_round_on_its_day(value: Any, day: str, yearly: bool, comes: bool) -> None:
    """From the date itself on, with or without a year, in the account's time zone; the 29th may be the 28th."""
    assert date_events.falls_on(value, DateQuery(date.fromisoformat(day), yearly, ZONE)) is comes


def test_whoever_comes_round_is_found_by_the_rough_question(home: Home) -> None:
    """The condition in SQL never leaves out anybody whose date comes round, whatever form it is in."""
    values = ["1990-05-12", "--05-12", "05-12", "1992-02-29", "1992-03-01", "2026-05-13T02:00:00Z", "1999-12-31",
              "2000-01-01T03:00:00+00:00"]  # fmt: skip
    for value in values:
        home.upsert(data={"day": value})
    where = triggers.find_date_source("day")
    assert where is not None
    for number in range(800):
        for yearly in (True, False):
            wanted = DateQuery(date(2026, 1, 1) + timedelta(days=number), yearly, ZONE)
            if not any(date_events.falls_on(value, wanted) for value in values):
                continue
            binder = date_events.Binder("d", date_events.triggers.get_condition_scope(home.account_id))
            sql = f"SELECT {where.sql} FROM contact c WHERE {date_events.compile_candidates(where, wanted, binder)}"
            found = {row[0] for row in rows(sql, binder.values)}
            assert {value for value in values if date_events.falls_on(value, wanted)} <= found


def look() -> None:
    """Look at whatever days have come, and at what that means."""
    while date_events.check_dates():
        pass
    take_in()


def at(home: Home, text: str) -> None:
    """Let it be a moment (UTC), which is never before the one it was."""
    home.advance(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() - clock.now())


@pytest.fixture
def born(home: Home) -> dict[str, int]:
    """Two people of one birthday and one of another; it is the evening before, and the account is in New York."""
    transactions.write(run, "UPDATE account SET time_zone = 'America/New_York'")
    at(home, "2027-05-12T02:00:00")
    return {
        name: home.contact(f"{name}@example.org", data={"birthday": day}).id
        for name, day in (("anna", "1990-05-12"), ("ben", "2001-05-12"), ("cleo", "1990-05-19"))
    }


def test_everybody_enters_on_the_day_at_the_hour_once(home: Home, born: dict[str, int]) -> None:
    """Not before the hour, and not again whatever the clock does; the event says which date came round."""
    flow = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "10:30"}})
    look()
    at(home, "2027-05-12T14:29:59")
    assert not date_events.is_date_check_due()
    look()
    assert runs(flow) == []
    at(home, "2027-05-12T14:30:00")
    assert date_events.is_date_check_due()
    look()
    home.advance(-7200)
    look()
    home.advance(9000)
    look()
    assert [row[0] for row in runs(flow)] == [born["anna"], born["ben"]]
    assert scalar("SELECT event_data FROM run LIMIT 1") == (
        f'{{"flow_id":{flow},"path":"birthday","date":"1990-05-12","day":"2027-05-12"}}'
    )
    transactions.write(run, "UPDATE run SET status = 'completed'")
    at(home, "2028-05-12T14:30:00")
    look()
    assert [row[0] for row in runs(flow)] == [born["anna"], born["ben"]] * 2


def test_a_clock_that_ran_ahead_by_years_stops_no_flow(home: Home, born: dict[str, int]) -> None:
    """A machine that came up with a wrong date looks at the days that come, once its clock is right."""
    flow = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "10:30"}})
    look()
    home.advance(10 * 366 * 86_400)
    look()
    home.advance(-10 * 366 * 86_400)
    look()
    assert not date_events.is_date_check_due()
    at(home, "2027-05-12T14:30:00")
    look()
    assert [row[0] for row in runs(flow)] == [born["anna"], born["ben"]]


def test_a_flow_of_today_begins_only_before_its_hour(home: Home, born: dict[str, int]) -> None:
    """Going live after the hour begins with tomorrow, and days of a pause are not made up for."""
    at(home, "2027-05-12T15:00:00")
    late = live_flow(home, {"event": "date_reached", "data": {"path": "data.birthday", "yearly": True, "at": "10:30"}})
    soon = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "11:30"}})
    look()
    at(home, "2027-05-12T15:30:00")
    look()
    assert (runs(late), len(runs(soon))) == ([], 2)


def test_days_before_and_after_a_date(home: Home, born: dict[str, int]) -> None:
    """Seven days before the one is the day of the other."""
    flow = live_flow(
        home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "offset_days": -7, "at": "00:00"}}
    )
    look()
    at(home, "2027-05-12T04:00:00")
    look()
    assert [row[0] for row in runs(flow)] == [born["cleo"]]


def test_a_late_start_makes_up_for_hours_and_not_for_days(home: Home, born: dict[str, int]) -> None:
    """What was missed by more than the setting says is over; what was begun is finished, however late."""
    flow = live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True}})
    look()
    before, date_events._DATE_BATCH_SIZE = date_events._DATE_BATCH_SIZE, 1
    try:
        at(home, "2027-05-12T18:00:00")
        assert date_events.check_dates()
        at(home, "2027-05-15T18:00:00")
        look()
    finally:
        date_events._DATE_BATCH_SIZE = before
    assert [row[0] for row in runs(flow)] == [born["anna"], born["ben"]]
    at(home, "2027-05-19T22:00:01")
    look()
    assert len(runs(flow)) == 2


def test_only_people_of_the_list_and_the_segment_are_told_of(home: Home, born: dict[str, int]) -> None:
    """Whoever cannot enter gets no event; our own dates come round from the next year on."""
    club = home.list_of(born["ben"], name="club").id
    flow = live_flow(home, {"event": "date_reached", "contact_list_id": club,
                            "data": {"path": "birthday", "yearly": True}})  # fmt: skip
    added = live_flow(home, {"event": "date_reached", "data": {"path": "contact_created_at", "yearly": True}})
    look()
    at(home, "2027-05-12T13:00:00")
    look()
    assert [row[0] for row in runs(flow)] == [born["ben"]]
    assert scalar("SELECT count(*) FROM event WHERE event = 'date_reached'") == 1
    assert runs(added) == []
    at(home, "2028-05-11T13:00:00")
    look()
    assert len(runs(added)) == 3


def test_dates_that_cannot_be_looked_at_stop_no_other(home: Home, born: dict[str, int]) -> None:
    """A trigger that is broken is tried again in a minute; those beside it have their day."""
    said = {"event": "date_reached", "data": {"path": "birthday", "yearly": True}}
    broken, whole = live_flow(home, said), live_flow(home, said)
    look()
    transactions.write(
        run, "UPDATE trigger SET data = json_set(data, '$.offset_days', 1e9) WHERE flow_id = ?", (broken,)
    )
    look()
    at(home, "2027-05-12T13:00:00")
    look()
    assert (runs(broken), len(runs(whole))) == ([], 2)
    date_events._date_retry_at.clear()
