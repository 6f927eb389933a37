"""Campaigns that are sent at a local time: who gets them when, and what holds while they wait."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from appliance.accounts import settings
from appliance.accounts.audit import Actor
from appliance.campaigns import (
    experiment,
    ledger_check,
    local_preflight,
    preflight,
    send,
    send_times,
    states,
    store,
    variants,
)
from appliance.campaigns.audience_snapshot import BatchRunner
from appliance.campaigns.store import CampaignPatch, SendRequest
from appliance.campaigns.variants import ExperimentWrite, VariantWrite
from appliance.core import clock, validation
from appliance.core.errors import Invalid
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign, Experiment, Message, SendTime
from tests.domain.home import Home

BY = Actor(can_send=True, can_approve=True)
HOUR = 3_600_000
PLACES = {
    "tokyo": "Asia/Tokyo",
    "berlin": "Europe/Berlin",
    "york": "America/New_York",
    "kiritimati": "Pacific/Kiritimati",
}


def create(home: Home, local_time: str, people: dict[str, dict[str, Any]] | None = None, **test: Any) -> Campaign:
    """Create a draft with a local time, to one contact in each of PLACES, or to these contacts by name."""
    bodies = people if people is not None else {name: {"data": {"time_zone": zone}} for name, zone in PLACES.items()}
    ids = [home.contact(f"{name}@example.org", first_name=name, **body).id for name, body in bodies.items()]
    draft = home.campaign(home.list_of(*ids).id)
    if test:
        transactions.write(variants.apply, draft, ExperimentWrite(**test))
    return patch(home, draft, local_time=local_time)


def patch(home: Home, campaign: Campaign, **body: Any) -> Campaign:
    """Change a campaign as the API does."""
    request = validation.read(CampaignPatch, body)
    return transactions.write(send.update, home.account_id, campaign.id, request, BY)


def go(home: Home, campaign: Campaign, **body: Any) -> Campaign:
    """Send a campaign as the API does."""
    request = validation.read(SendRequest, body)
    prepared = preflight.prepare_send(home.account_id, campaign.id)
    return transactions.write(send.go_live, home.account_id, campaign.id, request, BY, None, prepared)


def move_to(home: Home, moment: str) -> None:
    """Set the clock to a later moment."""
    home.advance((clock.parse(moment) - clock.now_ms()) / 1000)


def start_due(home: Home) -> None:
    """Start the scheduled campaigns that are due, as the job does."""
    for account_id, campaign_id in send.list_due():
        prepared = preflight.prepare_send(account_id, campaign_id)
        transactions.write(send.start_scheduled, account_id, campaign_id, prepared)


def due_times(campaign: Campaign) -> dict[str, str]:
    """Return what the clock of each recipient shows when the message is due, by first name."""
    sql = (
        "SELECT c.first_name, m.due_at, coalesce(t.time_zone, 'UTC') FROM message m JOIN contact c "
        "ON c.id = m.contact_id LEFT JOIN send_time t ON t.id = m.send_time_id "
        "WHERE m.campaign_id = ? AND m.due_at NOT NULL"
    )
    return {
        name: f"{datetime.fromtimestamp(due_at / 1000, ZoneInfo(zone)):%m-%d %H:%M}"
        for name, due_at, zone in rows(sql, (campaign.id,))
    }


def test_everybody_gets_it_at_the_same_time_of_their_day(home: Home) -> None:
    """It is scheduled for the first moment anywhere, and starts then; each message is due at 09:00 of its recipient."""
    draft = create(home, "2031-12-01T09:00")
    assert (draft.local_time, clock.iso(draft.scheduled_at)) == ("2031-12-01T09:00", "2031-11-30T19:00:00.000Z")
    assert go(home, draft).phase == "scheduled"
    move_to(home, "2031-11-30T18:59:59Z")
    start_due(home)
    assert not rows("SELECT 1 FROM message")
    move_to(home, "2031-11-30T19:00:01Z")
    start_due(home)
    # In Kiritimati, it has been 09:00 for a second.
    assert due_times(draft) | {"kiritimati": ""} == dict.fromkeys(PLACES, "12-01 09:00") | {"kiritimati": ""}
    assert due_times(draft)["kiritimati"] == "12-01 09:00"
    waiting = store.get(home.account_id, draft.id)
    assert (waiting.phase, waiting.waiting) == ("sending", None)
    progress = {row.time_zone: (row.recipients, row.waiting) for row in send_times.list_progress(draft)}
    assert progress == dict.fromkeys(PLACES.values(), (1, 1))


def test_where_the_hour_has_passed(home: Home) -> None:
    """Up to `limits.max_lateness` late, contacts get it at once, and else at the same hour of the next day."""
    home.advance(0)
    move_to(home, "2031-12-01T04:30:00Z")
    draft = create(home, "2031-12-01T09:00")
    forecast = local_preflight.get_send_times(home.account_id, draft.id)
    assert (forecast.late_recipients, forecast.next_day_recipients) == (1, 1)
    assert {finding.message for finding in preflight.run_preflight(home.account_id, draft.id, BY).warnings} >= {
        "the local time has passed for 1 contact, who gets it at once",
        "the local time has passed long ago for 1 contact, who gets it a day later",
    }
    sent = go(home, draft)
    assert sent.phase == "sending"
    assert due_times(draft) == {
        "kiritimati": "12-02 09:00", "tokyo": "12-01 13:30", "berlin": "12-01 09:00", "york": "12-01 09:00",
    }  # fmt: skip
    fixed = local_preflight.get_send_times(home.account_id, draft.id)
    assert fixed.is_fixed and fixed.sources is None
    # The clock has gone on between the forecast and the send.
    assert [(row.time_zones, row.recipients) for row in fixed.times] == [
        (row.time_zones, row.recipients) for row in forecast.times
    ]


def test_the_source_of_the_zones_is_counted(home: Home) -> None:
    """The custom field decides before the number, the number before the country, and then the account."""
    people = {
        "field": {"data": {"time_zone": " Asia/Tokyo "}, "phone": "+41791234567"},
        "phone": {"phone": "+41791234568", "country_code": "JP"},
        "country": {"country_code": "DE", "phone": "+18005550123"},
        "account": {"country_code": "US", "data": {"time_zone": "Mars/Base"}},
    }
    transactions.write(run, "UPDATE account SET time_zone = 'Europe/Lisbon'")
    draft = create(home, "2031-12-01T09:00", people)
    forecast = local_preflight.get_send_times(home.account_id, draft.id)
    assert forecast.sources == local_preflight.ZoneSources(1, 1, 1, 1)
    assert [row.time_zones for row in forecast.times] == [
        ["Asia/Tokyo"], ["Europe/Berlin", "Europe/Zurich"], ["Europe/Lisbon"],
    ]  # fmt: skip
    assert forecast.first_at == "2031-12-01T00:00:00.000Z" and forecast.last_at == "2031-12-01T09:00:00.000Z"


@pytest.mark.parametrize("is_large", [False, True])
def test_variants_and_holdouts_have_local_times(home: Home, monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    """A variant's own time begins at the local time; who is held out has none, and each zone counts its recipients."""
    if is_large:
        monkeypatch.setattr("appliance.campaigns.audience_snapshot.MAX_AT_ONCE", 1)
    zones = list(PLACES.values())
    people = {f"p{number}": {"data": {"time_zone": zones[number % 4]}} for number in range(120)}
    test = {"variants": [VariantWrite(), VariantWrite(send_after_minutes=90)], "holdout": 0.3, "event": "order",
            "metric": "event"}  # fmt: skip
    draft = create(home, "2031-12-01T09:00", people, **test)
    go(home, draft)
    move_to(home, "2031-11-30T18:59:59.5Z")
    home.advance(1)
    start_due(home)
    BatchRunner().run()
    sql = "SELECT variant, count(*), count(send_time_id) FROM message WHERE campaign_id = ? GROUP BY 1 ORDER BY 1"
    (held_out, held_count, held_times), *groups = rows(sql, (draft.id,))
    assert (held_out, held_times) == (-1, 0) and held_count > 10
    assert [row[0] for row in groups] == [1, 2] and all(row[1] == row[2] for row in groups)
    by_variant = rows(
        "SELECT DISTINCT m.variant, (m.due_at - t.due_at) / 60000 FROM message m JOIN send_time t "
        "ON t.id = m.send_time_id WHERE m.campaign_id = ? ORDER BY 1", (draft.id,),
    )  # fmt: skip
    assert by_variant == [(1, 0), (2, 90)]
    assert set(due_times(draft).values()) == {"12-01 09:00", "12-01 10:30"}
    assert sum(row.recipients for row in send_times.list_progress(draft)) == 120 - held_count
    campaign = store.add_sums(Campaign.get_by_id(draft.id))
    assert [text for texts in ledger_check.check_thoroughly(campaign) for text in texts] == []


def test_the_winner_is_sent_at_the_next_local_time(home: Home) -> None:
    """Who waits gets the winner when it is the hour next in their zone, over the end of daylight saving time too."""
    people = {f"p{number}": {"data": {"time_zone": "Europe/Berlin" if number % 2 else "America/New_York"}}
              for number in range(40)}  # fmt: skip
    test = {"variants": [VariantWrite(), VariantWrite(subject="B")], "test_share": 0.4}
    draft = create(home, "2031-10-25T09:00", people, **test)
    go(home, draft)
    move_to(home, "2031-10-24T20:00:00Z")
    start_due(home)
    untimed = Message.select().where(Message.campaign == draft.id, Message.variant == 0)
    waiting = {row.id for row in untimed}
    assert waiting and all(row.due_at is None and row.send_time_id for row in untimed)
    move_to(home, "2031-10-25T12:00:00Z")
    transactions.write(experiment.choose_winner, home.account_id, draft.id, 2, Actor("key:1"))
    BatchRunner().run()
    released = [row for row in Message.select().where(Message.campaign == draft.id) if row.id in waiting]
    shown = {
        f"{datetime.fromtimestamp(row.due_at / 1000, ZoneInfo(zone)):%m-%d %H:%M} {zone}"
        for row in released
        for zone in [SendTime.get_by_id(row.send_time_id).time_zone]
    }
    assert {row.variant for row in released} == {2}
    assert shown == {"10-26 09:00 Europe/Berlin", "10-25 09:00 America/New_York"}


def test_undo_and_a_second_send(home: Home) -> None:
    """An undone send leaves no times behind, and a campaign keeps its local time."""
    move_to(home, "2031-12-01T00:00:30Z")
    draft = create(home, "2031-12-01T09:00")
    assert go(home, draft, hold_seconds=60).phase == "holding"
    assert due_times(draft)["tokyo"] == "12-01 09:01"
    undone = transactions.write(states.return_to_draft, home.account_id, draft.id)
    assert (undone.phase, undone.local_time) == ("draft", "2031-12-01T09:00")
    assert not SendTime.select().exists() and not Message.select().exists()
    go(home, draft)
    assert due_times(draft)["berlin"] == "12-01 09:00"


def test_setting_one_time_ends_the_other(home: Home) -> None:
    """The time that is set last counts; null takes a schedule back, and sending now needs no local time."""
    draft = create(home, "2031-12-01T09:00")
    fixed = patch(home, draft, scheduled_at="2031-12-05T10:00:00Z")
    assert (fixed.local_time, clock.iso(fixed.scheduled_at)) == (None, "2031-12-05T10:00:00.000Z")
    local = patch(home, draft, local_time="2031-12-06T10:00")
    assert clock.iso(local.scheduled_at) == "2031-12-05T20:00:00.000Z"
    assert go(home, draft).phase == "scheduled"
    moved = patch(home, draft, local_time="2031-12-07T10:00")
    assert (moved.phase, clock.iso(moved.scheduled_at)) == ("scheduled", "2031-12-06T20:00:00.000Z")
    unscheduled = patch(home, draft, local_time=None)
    assert (unscheduled.phase, unscheduled.local_time, unscheduled.scheduled_at) == ("draft", None, None)
    with pytest.raises(Invalid) as caught:
        patch(home, draft, local_time="2031-12-06T10:00", scheduled_at="2031-12-05T10:00:00Z")
    assert list(caught.value.fields) == ["local_time"]
    patch(home, draft, local_time="2031-12-06T10:00")
    sent = go(home, draft, scheduled_at=None)
    assert (sent.phase, sent.local_time) == ("sending", None)
    assert rows("SELECT DISTINCT due_at, send_time_id FROM message") == [(0, None)]


def test_a_time_that_has_passed_everywhere_blocks(home: Home) -> None:
    """Nobody would get it at the local time of that day; so does a test that divides its recipients unevenly."""
    move_to(home, "2031-12-02T00:00:00Z")
    test = {"variants": [VariantWrite(), VariantWrite(subject="B")], "uneven": True}
    draft = create(home, "2031-12-01T09:00", **test)
    with pytest.raises(Invalid) as caught:
        go(home, draft)
    assert list(caught.value.fields) == ["local_time", "experiment.uneven"]


def test_a_stopped_service_pauses_what_missed_its_hour(home: Home) -> None:
    """At the start of the service, a message late by over `limits.max_lateness` pauses the campaign (P8)."""
    move_to(home, "2031-12-01T00:00:30Z")
    draft = create(home, "2031-12-01T09:00")
    go(home, draft)
    move_to(home, "2031-12-01T13:59:00Z")  # Berlin is six hours late in a minute
    transactions.write(states.pause_overdue)
    assert Campaign.get_by_id(draft.id).phase == "sending"
    home.advance(120)
    transactions.write(states.pause_overdue)
    paused = Campaign.get_by_id(draft.id)
    assert (paused.phase, paused.pause_reason) == ("paused", "missed_start")
    resumed = transactions.write(send.resume, home.account_id, draft.id, BY)
    assert resumed.phase == "sending"


def test_a_slow_send_is_no_missed_hour(home: Home) -> None:
    """What became due while the service ran, as its heartbeat says, is late because sending is slow."""
    move_to(home, "2031-12-01T00:00:30Z")
    draft = create(home, "2031-12-01T09:00")
    go(home, draft)
    move_to(home, "2031-12-01T08:00:30Z")  # Berlin has been due for half a minute
    transactions.write(settings.write_heartbeat)
    move_to(home, "2031-12-01T19:59:00Z")  # New York is not yet six hours late
    assert (transactions.write(states.pause_overdue), Campaign.get_by_id(draft.id).phase) == (0, "sending")
    home.advance(120)
    assert (transactions.write(states.pause_overdue), Campaign.get_by_id(draft.id).phase) == (1, "paused")


def test_the_end_of_a_test_waits_for_the_last_time_zone(home: Home) -> None:
    """A test of one hour does not end before the last zone has had the hour."""
    test = {"variants": [VariantWrite(), VariantWrite(subject="B")], "decide_after_minutes": 60}
    people = {f"p{number}": {"data": {"time_zone": zone}} for number, zone in enumerate([*PLACES.values()] * 5)}
    draft = create(home, "2031-12-01T09:00", people, **test)
    go(home, draft)
    move_to(home, "2031-11-30T19:00:01Z")
    start_due(home)
    home.advance(2 * 3600)
    step = experiment.find_next_step(draft.id)
    assert step is not None and step.later_end is not None
    transactions.write(experiment.take_step, step)
    last = clock.parse("2031-12-01T14:00:00Z")
    assert Experiment.get(Experiment.campaign == draft.id).decide_at == last + HOUR
