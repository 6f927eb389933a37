"""The step `wait_until`: hours in the contact's zone over both changes of daylight saving time, dates, and events."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from appliance.audience import time_zones
from appliance.core import clock
from appliance.flows import date_events, event_waits
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Flow
from tests.domain.flows_home import process_events, record_event
from tests.domain.home import Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow, start_runs, step_history

PARIS = ZoneInfo("Europe/Paris")
TIME: dict[str, Any] = {"id": 1, "type": "wait_until", "until": "time", "at": "09:00", "weekdays": [],
                        "time_zone": "contact"}  # fmt: skip
DATE: dict[str, Any] = {
    "id": 1, "type": "wait_until", "until": "date", "path": "data.renewal", "offset_days": -3, "at": "10:00",
    "time_zone": "account", "yes": [{"id": 2, "type": "exit"}], "no": [],
}  # fmt: skip
EVENT: dict[str, Any] = {
    "id": 1, "type": "wait_until", "until": "event", "event_name": "order_paid", "timeout": 86_400,
    "filters": [{"name": "event.total", "predicate": "gt", "value": 10}], "yes": [{"id": 2, "type": "exit"}], "no": [],
}  # fmt: skip


def local_due(run_id: int, zone: ZoneInfo) -> str:
    """Return when a run is due, as the clock shows it in a time zone."""
    due_at = scalar("SELECT due_at FROM run WHERE id = ?", (run_id,))
    return f"{datetime.fromtimestamp(due_at / 1000, zone):%a %Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-28T12:00+01:00", "2026-03-29T09:00+02:00"),
        ("2026-10-24T12:00+02:00", "2026-10-25T09:00+01:00"),
        ("2026-10-25T09:00+01:00", "2026-10-25T09:00+01:00"),
    ],
)
def test_the_local_hour_holds_over_both_changes_of_the_clock(now: str, expected: str) -> None:
    """09:00 is 09:00 on the clock, 22 or 24 hours later in UTC; a run that comes at 09:00 does not wait."""
    assert date_events.get_next_moment(clock.parse(now), "09:00", (), PARIS) == clock.parse(expected)


def test_an_hour_that_the_clock_skips_or_repeats() -> None:
    """02:30 is 03:00 on the day on which it is skipped, and the first 02:30 on the day on which it comes twice."""
    spring, autumn = clock.parse("2026-03-29T00:00+01:00"), clock.parse("2026-10-25T00:00+02:00")
    assert date_events.get_next_moment(spring, "02:30", (), PARIS) == clock.parse("2026-03-29T03:00+02:00")
    assert date_events.get_next_moment(autumn, "02:30", (), PARIS) == clock.parse("2026-10-25T02:30+02:00")
    after_first = clock.parse("2026-10-25T02:10+01:00")
    assert date_events.get_next_moment(after_first, "02:30", (), PARIS) == clock.parse("2026-10-26T02:30+01:00")


def test_weekdays_limit_the_days() -> None:
    """On a Friday after the hour, the next of Friday and Monday is Monday; only Friday is in a week."""
    friday = clock.parse("2026-11-27T12:00+01:00")
    assert date_events.get_next_moment(friday, "09:00", ("mon", "fri"), PARIS) == clock.parse("2026-11-30T09:00+01:00")
    assert date_events.get_next_moment(friday, "09:00", ("fri",), PARIS) == clock.parse("2026-12-04T09:00+01:00")


def test_the_zone_comes_from_data_then_phone_then_country_then_account(home: Home) -> None:
    """The first source that names one zone decides; a number or country with several zones does not."""
    contacts = {
        home.contact("a@acme.test", phone="+41791234567", data={"time_zone": "Asia/Tokyo"}).id: ("Asia/Tokyo", "data"),
        home.contact("b@acme.test", phone="+41791234568", country_code="JP").id: ("Europe/Zurich", "phone"),
        home.contact("c@acme.test", country_code="JP").id: ("Asia/Tokyo", "country"),
        home.contact("d@acme.test", country_code="US", data={"time_zone": "Mars/Base"}).id: ("UTC", "account"),
    }
    transactions.write(run, "UPDATE account SET time_zone = 'UTC' WHERE id = ?", (home.account_id,))
    zones = time_zones.find_zones(home.account_id, list(contacts))
    assert {number: (zone.zone.key, zone.source) for number, zone in zones.items()} == contacts


def test_each_contact_waits_for_the_hour_on_their_own_clock(home: Home) -> None:
    """Contacts in 24 zones continue when it is 09:00 where they are."""
    names = [f"Etc/GMT{offset:+d}" for offset in range(-11, 13)]
    contacts = [home.contact(f"c{index}@acme.test", data={"time_zone": name}).id for index, name in enumerate(names)]
    flow = create_live_flow(home, [TIME])
    runs = start_runs(home, flow, *contacts)
    advance_until_idle()
    assert {local_due(run_id, ZoneInfo(name))[-5:] for run_id, name in zip(runs, names, strict=True)} == {"09:00"}
    assert len({scalar("SELECT due_at FROM run WHERE id = ?", (run_id,)) for run_id in runs}) == len(names)
    home.advance(86_401)
    advance_until_idle()
    assert [step_history(run_id) for run_id in runs] == [[(1, "on", None)]] * len(names)


def test_a_date_with_an_offset_and_its_branches(home: Home) -> None:
    """The run waits until the hour on the day; a contact without a date, or with one that is past, takes `no`."""
    zone = ZoneInfo(str(scalar("SELECT time_zone FROM account WHERE id = ?", (home.account_id,))))
    today = datetime.fromtimestamp(clock.now_ms() / 1000, zone).date()
    soon = today.replace(year=today.year + 1, day=15)
    contacts = [
        home.contact(f"d{index}@acme.test", data={"renewal": value} if value is not None else {}).id
        for index, value in enumerate((soon.isoformat(), None, "soon", "2001-01-01", f"{soon}T23:00:00", "9999-12-31"))
    ]
    flow = create_live_flow(home, [DATE])
    runs = start_runs(home, flow, *contacts)
    advance_until_idle()
    assert local_due(runs[0], zone)[4:] == local_due(runs[4], zone)[4:] == f"{soon.replace(day=12)} 10:00"
    assert [step_history(run_id) for run_id in runs[1:4]] == [
        [(1, "no", "no_date")], [(1, "no", "no_date")], [(1, "no", "date_passed")]
    ]  # fmt: skip
    home.advance(400 * 86_400)
    advance_until_idle()
    assert step_history(runs[0]) == [(1, "yes", None), (2, "exited", "exit_step")]


def create_event_flow(home: Home) -> tuple[Flow, list[int], list[int]]:
    """Return a flow whose two runs wait for an order, with its contacts and runs."""
    contacts = [home.contact(f"e{index}@acme.test").id for index in range(2)]
    flow = create_live_flow(home, [EVENT])
    before = record_event(home, "order_paid", contacts[0], {"total": 50})
    process_events()
    home.advance(1)
    runs = start_runs(home, flow, *contacts, event_id=before)
    advance_until_idle()
    return flow, contacts, runs


def test_the_event_ends_the_wait_and_the_time_limit_takes_the_other_branch(home: Home) -> None:
    """An event before the wait, of another contact or that fails a filter does not count."""
    _, contacts, runs = create_event_flow(home)
    record_event(home, "order_paid", contacts[0], {"total": 5})
    record_event(home, "order_paid", contacts[1], {"total": 50}, test=True)
    process_events()
    advance_until_idle()
    assert [step_history(run_id) for run_id in runs] == [[(1, None, None)]] * 2
    record_event(home, "order_paid", contacts[0], {"total": 50})
    process_events()
    advance_until_idle()
    assert step_history(runs[0]) == [(1, "yes", None), (2, "exited", "exit_step")]
    home.advance(86_401)
    advance_until_idle()
    assert step_history(runs[1]) == [(1, "no", "timed_out")]


def test_an_event_during_a_pause_counts_when_the_flow_is_resumed(home: Home) -> None:
    """The run is made due by `catch_up`, long before its time limit."""
    flow, contacts, runs = create_event_flow(home)
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (flow.id,))
    record_event(home, "order_paid", contacts[1], {"total": 50})
    process_events()
    assert rows("SELECT count(*) FROM run WHERE due_at <= ?", (clock.now_ms(),)) == [(0,)]
    transactions.write(run, "UPDATE flow SET status = 'active' WHERE id = ?", (flow.id,))
    transactions.write(event_waits.start_catch_up, flow.id)
    assert event_waits.is_catch_up_due() and event_waits.catch_up()
    assert not event_waits.is_catch_up_due()
    advance_until_idle()
    assert step_history(runs[1])[0] == (1, "yes", None) and step_history(runs[0]) == [(1, None, None)]
