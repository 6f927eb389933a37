"""Local times in every time zone, over changes of daylight saving, and the zones of phone numbers and countries."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import phonenumbers
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.core import addresses, clock, time_zones

ZONES = st.sampled_from(sorted(time_zones.list_zones()))
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2037, 12, 31)).map(
    lambda time: time.replace(second=0, microsecond=0)
)
MINUTE_MS, MAX_GAP = 60_000, timedelta(days=1, hours=1)


def to_clock(moment: int, zone: str) -> datetime:
    """Return what the clocks of a zone show at a moment."""
    return datetime.fromtimestamp(moment / 1000, ZoneInfo(zone)).replace(tzinfo=None)


@given(TIMES, ZONES)
@example(datetime(2026, 3, 29, 2, 30), "Europe/Berlin")
@example(datetime(2026, 10, 25, 2, 30), "Europe/Berlin")
@example(datetime(2026, 10, 4, 2, 10), "Australia/Lord_Howe")
@example(datetime(2011, 12, 30, 9, 0), "Pacific/Apia")
def test_a_local_time_is_the_first_moment_that_the_clocks_show(local: datetime, zone: str) -> None:
    """The clocks show the time then and not before; a time that they skip is the first moment after the gap."""
    moment = time_zones.find_moment(local, ZoneInfo(zone))
    shown, before = to_clock(moment, zone), to_clock(moment - 1000, zone)
    if shown == local:
        earlier = (to_clock(moment - minutes * MINUTE_MS, zone) for minutes in range(1, 181))
        assert local not in earlier
    else:
        assert before < local < shown <= local + MAX_GAP


@given(TIMES, TIMES, ZONES)
def test_the_next_moment_is_at_the_same_time_of_day(start: datetime, local: datetime, zone: str) -> None:
    """It is not before the start or the local time itself, and none comes between."""
    start_ms = int(start.replace(tzinfo=UTC).timestamp() * 1000)
    moment = time_zones.find_next_moment(start_ms, local, ZoneInfo(zone))
    assert moment >= max(start_ms, time_zones.find_moment(local, ZoneInfo(zone)))
    day = max(local, to_clock(start_ms, zone)).date()
    candidates = (datetime.combine(day + timedelta(days=number), local.time()) for number in range(-1, 3))
    moments = [time_zones.find_moment(candidate, ZoneInfo(zone)) for candidate in candidates if candidate >= local]
    assert moment == min(candidate for candidate in moments if candidate >= start_ms)


@given(TIMES)
def test_first_and_last_moment_enclose_every_zone(local: datetime) -> None:
    """A local time comes first in the east and last in the west, at most 27 hours apart."""
    first, last = time_zones.find_first_and_last(f"{local:%Y-%m-%dT%H:%M}")
    assert 0 < last - first <= 27 * 60 * MINUTE_MS or local.year < 1995 or local.year == 2011
    assert first <= time_zones.find_moment(local, ZoneInfo("Europe/Berlin")) <= last


def test_an_hour_that_the_clocks_skip_or_repeat() -> None:
    """02:30 is 03:00 when it is skipped, the next minute that exists, and the first 02:30 when it comes twice."""
    berlin = ZoneInfo("Europe/Berlin")
    spring, autumn = datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)
    assert time_zones.find_moment(spring, berlin) == clock.parse("2026-03-29T03:00+02:00")
    assert time_zones.find_moment(autumn, berlin) == clock.parse("2026-10-25T02:30+02:00")


@pytest.mark.parametrize(
    ("country", "zone"),
    [("DE", "Europe/Berlin"), ("de", "Europe/Berlin"), ("JP", "Asia/Tokyo"), ("US", None), ("ES", None), ("", None),
     (None, None), ("XX", None)],
)  # fmt: skip
def test_a_country_decides_if_its_clocks_agree(country: str | None, zone: str | None) -> None:
    """Germany has two zones with the same rules."""
    assert time_zones.find_country_zone(country) == zone


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_the_zone_of_a_number_is_that_of_its_details(kind: int) -> None:
    """The zone by calling code or block of numbers is the common one of the zones that the number may be in."""
    for region in phonenumbers.SUPPORTED_REGIONS:
        sample = phonenumbers.example_number_for_type(region, kind)
        if sample is None:
            continue
        number = phonenumbers.format_number(sample, phonenumbers.PhoneNumberFormat.E164)
        assert time_zones.find_phone_zone(number) == time_zones.choose_common_zone(
            addresses.inspect_number(number).zones
        ), number


@pytest.mark.parametrize(
    ("number", "zone"),
    [("+12125550123", "America/New_York"), ("+14155550123", "America/Los_Angeles"), ("+18005550123", None),
     ("+61412345678", None), ("+491701234567", "Europe/Berlin")],
)  # fmt: skip
def test_area_codes_decide(number: str, zone: str | None) -> None:
    """Toll-free and Australian mobile numbers say nothing."""
    assert time_zones.find_phone_zone(number) == zone


def test_a_number_that_does_not_exist_decides_nothing_for_others() -> None:
    """A mistyped number does not hide the zone of its area code from the numbers that are looked up after it."""
    time_zones._phone_zones = None
    assert time_zones.find_phone_zone("+12121230000") == "America/New_York"
    assert time_zones.find_phone_zone("+12125550123") == "America/New_York"


def test_an_area_with_two_zones_is_divided_by_exchange_code() -> None:
    """The numbers of Florida's 850 are not all in the zone of the first that was asked for."""
    numbers = [f"+1850{exchange}0123" for exchange in range(200, 999)]
    zones = {number: time_zones.find_phone_zone(number) for number in numbers}
    assert set(zones.values()) >= {"America/New_York", "America/Chicago"}
    assert zones == {
        number: time_zones.choose_common_zone(addresses.inspect_number(number).zones) for number in numbers
    }


@pytest.mark.parametrize(
    "text",
    ["2026-12-01", "2026-12-01T09:00:00", "2026-12-01T09:00Z", "2026-12-01 09:00", "1969-12-31T23:59",
     "2026-02-30T09:00", "soon", ""],
)  # fmt: skip
def test_other_texts_are_no_local_time(text: str) -> None:
    """A local time has a day, hours and minutes, and no offset."""
    with pytest.raises(ValueError, match=r"."):
        time_zones.parse_local_time(text)
