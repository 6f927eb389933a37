"""The allowed calendar for marketing email: its arithmetic, and which messages wait for it."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import accounts
from appliance.accounts.accounts import AccountWrite
from appliance.campaigns import hold_reasons, local_preflight
from appliance.core import clock, time_zones, validation
from appliance.core.errors import Invalid
from appliance.sending.messages import marketing_calendar, sms_rules
from appliance.sending.messages.marketing_calendar import WEEKDAYS, Calendar
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from tests.domain.flows_rehearsed import create_flow, simulate, step_entry
from tests.domain.home import Home, record_and_claim

OFFICE = Calendar(("mon", "tue", "wed", "thu", "fri"), "09:00", "17:00", ("2031-12-25",))
HOURS = st.integers(0, 23).map(lambda hour: f"{hour:02}:00")
CALENDARS = st.builds(
    Calendar,
    st.sets(st.sampled_from(WEEKDAYS), min_size=1).map(tuple), HOURS, st.just("24:00"),
    st.sets(st.dates(datetime(2031, 1, 1).date(), datetime(2031, 12, 31).date()).map(str), max_size=5).map(tuple),
)  # fmt: skip
MOMENTS = st.datetimes(datetime(2030, 12, 25), datetime(2032, 1, 5), timezones=st.just(ZoneInfo("UTC")))


def is_allowed(calendar: Calendar, zone: str, moment: int) -> bool:
    """Return whether a calendar allows a moment, by what the clock in a zone shows."""
    local = datetime.fromtimestamp(moment / 1000, ZoneInfo(zone))
    shown = f"{local:%H:%M}"
    is_day = WEEKDAYS[local.weekday()] in calendar.days and f"{local:%Y-%m-%d}" not in calendar.holidays
    return is_day and calendar.from_ <= shown < calendar.to


@given(CALENDARS, st.sampled_from(sorted(time_zones.list_zones())), MOMENTS)
def test_the_next_allowed_moment_is_allowed_and_none_is_before(calendar: Calendar, zone: str, now: datetime) -> None:
    """Over a year in every time zone; every quarter of an hour before it is not allowed."""
    start = int(now.timestamp() * 1000)
    moment = marketing_calendar.find_next_allowed(calendar, zone, start)
    if moment is None:
        assert is_allowed(calendar, zone, start)
        return
    assert moment > start and is_allowed(calendar, zone, moment)
    step = int(timedelta(minutes=15).total_seconds() * 1000)
    assert not any(is_allowed(calendar, zone, earlier) for earlier in range(start, moment, step))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2031-12-24T10:00+01:00", None),
        ("2031-12-24T17:00+01:00", "2031-12-26T09:00+01:00"),  # Thursday is a holiday
        ("2031-12-26T17:00+01:00", "2031-12-29T09:00+01:00"),  # Friday evening
        ("2031-12-29T08:59+01:00", "2031-12-29T09:00+01:00"),
    ],
)
def test_days_hours_and_holidays(now: str, expected: str | None) -> None:
    """Emails wait for the next hour, over weekends and holidays."""
    moment = marketing_calendar.find_next_allowed(OFFICE, "Europe/Berlin", clock.parse(now))
    assert moment == (expected and clock.parse(expected))


def set_calendar(home: Home, calendar: dict[str, object] | None) -> None:
    """Set the calendar of the account as the API does."""
    request = validation.read(AccountWrite, {"marketing_calendar": calendar})
    transactions.write(accounts.update, home.account_id, request)


def start(home: Home) -> Campaign:
    """Send a campaign on a Saturday to a contact in Tokyo and one in Berlin."""
    home.advance((clock.parse("2031-12-06T12:00:00Z") - clock.now_ms()) / 1000)
    people = {"tokyo": "Asia/Tokyo", "berlin": "Europe/Berlin"}
    ids = [home.contact(f"{name}@example.org", data={"time_zone": zone}).id for name, zone in people.items()]
    return home.send(home.campaign(home.list_of(*ids).id))


def claim_all() -> list[str]:
    """Claim all messages that may be sent now, and return their recipients."""
    claimed = []
    while (row := record_and_claim(None, want=True)) is not None:
        claimed.append(str(row.recipient))
    return claimed


def list_due(campaign: Campaign) -> list[tuple[str, str, str | None]]:
    """Return recipient, status and due time of the messages of a campaign."""
    sql = "SELECT recipient, status, due_at FROM message WHERE campaign_id = ? ORDER BY recipient"
    return [(recipient, status, clock.iso(due_at)) for recipient, status, due_at in rows(sql, (campaign.id,))]


def test_a_campaign_waits_in_each_time_zone(home: Home) -> None:
    """Nothing is claimed on a Saturday; each message waits for Monday 09:00 of its recipient, and then is sent."""
    set_calendar(home, {"days": ["mon", "tue"], "from": "09:00", "to": "17:00"})
    campaign = start(home)
    assert claim_all() == []
    assert list_due(campaign) == [
        ("berlin@example.org", "held", "2031-12-08T08:00:00.000Z"),
        ("tokyo@example.org", "held", "2031-12-08T00:00:00.000Z"),
    ]
    reason = hold_reasons.find_hold_reason(Campaign.get_by_id(campaign.id))
    assert reason is not None and (reason.reason, clock.iso(reason.until)) == ("calendar", "2031-12-08T00:00:00.000Z")
    assert reason.text.startswith("2 contacts wait for an allowed time, next at ")
    home.advance((clock.parse("2031-12-08T00:00:01Z") - clock.now_ms()) / 1000)
    assert claim_all() == ["tokyo@example.org"]


def test_an_ended_calendar_releases_what_it_held(home: Home) -> None:
    """Without a calendar, held emails are due at once."""
    set_calendar(home, {"days": ["mon"], "from": "09:00", "to": "17:00"})
    campaign = start(home)
    assert claim_all() == []
    home.advance(1)
    set_calendar(home, None)
    sms_rules.recheck_held_messages()
    assert len(claim_all()) == 2
    assert {row[1] for row in list_due(campaign)} == {"sending"}


def test_a_draft_tells_who_will_wait(home: Home) -> None:
    """Of two recipients the one in Tokyo waits for the morning; without a calendar nobody does."""
    draft = home.campaign(start(home).trigger.contact_list_id)
    saturday_noon = clock.parse("2031-12-06T12:00:00Z")
    assert local_preflight.count_held(draft, saturday_noon) is None
    set_calendar(home, {"days": list(WEEKDAYS), "from": "09:00", "to": "17:00"})
    held = local_preflight.count_held(Campaign.get_by_id(draft.id), saturday_noon)
    assert held is not None and (held.recipients, clock.iso(held.last_at)) == (1, "2031-12-07T00:00:00.000Z")
    assert local_preflight.count_held(Campaign.get_by_id(draft.id), clock.parse("2031-12-08T07:59:00Z")) is not None


def test_a_simulated_sample_contact_is_in_the_time_zone_of_the_account(home: Home) -> None:
    """At night its email waits for the morning of the account, whatever the zone of its made-up number."""
    set_calendar(home, {"days": list(WEEKDAYS), "from": "08:00", "to": "21:00"})
    flow = create_flow(home, [{"subject": "Hi", "body": "<p>Hi</p>"}])
    result = simulate(home, flow, start_at="2031-03-03T23:14:00Z", until="2031-03-03T23:50:00Z")
    message = step_entry(result, 1).message
    assert message is not None and (message.status, message.leaves_at) == ("held", "2031-03-04T08:00:00.000Z")


def test_single_messages_do_not_wait(home: Home) -> None:
    """A receipt on a Saturday is a receipt on a Saturday."""
    set_calendar(home, {"days": ["mon"], "from": "09:00", "to": "17:00"})
    campaign = start(home)
    transactions.write(run, "UPDATE message SET transactional = 1 WHERE campaign_id = ?", (campaign.id,))
    assert len(claim_all()) == 2


@pytest.mark.parametrize(
    ("calendar", "field"),
    [
        ({"days": [], "from": "09:00", "to": "17:00"}, "marketing_calendar.days"),
        ({"days": ["mon"], "from": "17:00", "to": "09:00"}, "marketing_calendar.to"),
        ({"days": ["mon"], "from": "9", "to": "17:00"}, "marketing_calendar.from"),
        ({"days": ["mon"], "from": "09:00", "to": "24:00", "holidays": ["25 Dec"]}, "marketing_calendar.holidays[0]"),
    ],
)
def test_an_invalid_calendar_is_rejected(home: Home, calendar: dict[str, object], field: str) -> None:
    """Each error is at its field."""
    with pytest.raises(Invalid) as caught:
        set_calendar(home, calendar)
    assert list(caught.value.fields) == [field]
