"""What a phone number says: country, type, whether it is possible, and its time zones."""

import pytest

from appliance.core import addresses, clock

# (number, country, type, possible, first zone, number of zones)
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
    ("+1415555", "US", "unknown", False, "America/Los_Angeles", 1),
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
def test_inspect_number(
    number: str, country: str | None, kind: str, possible: bool, zone: str | None, count: int
) -> None:
    """The country, type and possibility of a number, and the time zones of its country."""
    info = addresses.inspect_number(number)
    assert (info.country, info.type, info.is_possible) == (country, kind, possible)
    assert (info.zones[0] if info.zones else None, len(info.zones)) == (zone, count)


def test_numbers_of_a_block_share_a_prefix() -> None:
    """Numbers that differ only in the last four digits have the same prefix."""
    assert {addresses.inspect_number(f"+4477009{last:05}").prefix for last in (1, 42, 9999)} == {"+44770090"}
    assert addresses.inspect_number("+447700910000").prefix == "+44770091"


def test_time_zones_of_country() -> None:
    """Country codes work in either case; an unknown country has no zones, and every returned zone exists."""
    assert clock.time_zones_of_country("de") == ("Europe/Berlin", "Europe/Busingen")
    assert "America/Chicago" in clock.time_zones_of_country("US")
    assert clock.time_zones_of_country("XX") == clock.time_zones_of_country(None) == ()
    assert all(map(clock.find_time_zone, clock.time_zones_of_country("US")))


@pytest.mark.parametrize(
    "name", ["", "Europe", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "a\0b", "é", "9" * 300, "x" * 5000]
)
def test_other_names_are_not_time_zones(name: str) -> None:
    """Only names of existing time zones are accepted, not paths or other text."""
    assert clock.find_time_zone(name) is None
