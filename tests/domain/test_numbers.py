"""What a phone number tells: country, kind, whether any network has it, and its time zones."""

import pytest

from appliance.sending.sms import numbers

# (number, country, type, possible, its first zone, how many zones)
NUMBERS = [
    ("+14155552671", "US", "fixed_or_mobile", True, "America/Los_Angeles", 1),
    ("+12025550123", "US", "fixed_or_mobile", True, "America/New_York", 1),
    ("+18085550123", "US", "fixed_or_mobile", True, "Pacific/Honolulu", 1),
    ("+14035550123", "CA", "fixed_or_mobile", True, "America/Edmonton", 1),
    ("+17875550123", "PR", "fixed_or_mobile", True, "America/Puerto_Rico", 1),
    ("+12425550123", "BS", "unknown", True, "America/Nassau", 1),
    ("+18005550123", "US", "toll_free", True, "America/New_York", 29),
    ("+15005550006", "US", "personal", True, "America/New_York", 29),
    ("+19005551234", "US", "premium", True, "America/New_York", 29),
    ("+1415555", "US", "unknown", False, "America/New_York", 29),
    ("+15551234", "US", "unknown", False, "America/New_York", 29),
    ("+447400123456", "GB", "mobile", True, "Europe/London", 1),
    ("+447700900123", "GB", "unknown", True, "Europe/London", 1),
    ("+442079460000", "GB", "fixed", True, "Europe/London", 1),
    ("+449098790000", "GB", "premium", True, "Europe/London", 1),
    ("+448431234567", "GB", "premium", True, "Europe/London", 1),
    ("+4915112345678", "DE", "mobile", True, "Europe/Berlin", 1),
    ("+493012345678", "DE", "fixed", True, "Europe/Berlin", 1),
    ("+491805123456", "DE", "shared_cost", True, "Europe/Berlin", 1),
    ("+499001234567", "DE", "premium", True, "Europe/Berlin", 1),
    ("+33612345678", "FR", "mobile", True, "Europe/Paris", 1),
    ("+33899123456", "FR", "premium", True, "Europe/Paris", 1),
    ("+34612345678", "ES", "mobile", True, "Atlantic/Canary", 2),
    ("+351912345678", "PT", "mobile", True, "Atlantic/Azores", 2),
    ("+5511961234567", "BR", "mobile", True, "America/Sao_Paulo", 1),
    ("+61491570006", "AU", "mobile", True, "Australia/Lord_Howe", 12),
    ("+79261234567", "RU", "mobile", True, "Europe/Kaliningrad", 26),
    ("+77012345678", "KZ", "mobile", True, "Asia/Almaty", 7),
    ("+8613812345678", "CN", "mobile", True, "Asia/Shanghai", 1),
    ("+80012345678", None, "toll_free", True, None, 0),
    ("+999123456789", None, "unknown", False, None, 0),
    ("+4471", "GB", "unknown", False, "Europe/London", 1),
    ("+3301234567890", "FR", "unknown", False, "Europe/Paris", 1),
]


@pytest.mark.parametrize(("number", "country", "kind", "possible", "zone", "count"), NUMBERS)
def test_a_number_tells(
    number: str, country: str | None, kind: str, possible: bool, zone: str | None, count: int
) -> None:
    """Its country, its kind, whether a network can have it, and the zones of its country alone."""
    found = numbers.inspect_number(number)
    assert (found.country, found.type, found.is_possible) == (country, kind, possible)
    assert (found.zones[0] if found.zones else None, len(found.zones)) == (zone, count)


def test_a_prefix_is_shared_by_a_block_of_numbers() -> None:
    """Numbers that differ in their last four digits have one prefix, others another."""
    assert {numbers.inspect_number(f"+4477009{last:05}").prefix for last in (1, 42, 9999)} == {"+44770090"}
    assert numbers.inspect_number("+447700910000").prefix == "+44770091"


def test_countries_have_their_zones() -> None:
    """Zones are found by the letters of a country in either case, and every one of them exists."""
    assert numbers.time_zones_of_country("de") == ("Europe/Berlin", "Europe/Busingen")
    assert "America/Chicago" in numbers.time_zones_of_country("US")
    assert numbers.time_zones_of_country("XX") == numbers.time_zones_of_country(None) == ()
    assert all(map(numbers.is_time_zone, numbers.time_zones_of_country("US")))


@pytest.mark.parametrize(
    "name", ["", "Europe", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "a\0b", "é", "x" * 5000]
)
def test_what_is_no_zone(name: str) -> None:
    """Whatever stands in the data of a contact, only names of zones are taken for one."""
    assert not numbers.is_time_zone(name)
