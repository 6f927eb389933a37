"""A campaign at a local time on a running server, over both changes of daylight saving time and over kills."""

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

# In order of their local times; the first ones are enough without `--full`.
FEW_ZONES = (
    "Pacific/Kiritimati",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "Pacific/Niue",
)
ZONES = (
    *FEW_ZONES, "Pacific/Auckland", "Pacific/Noumea", "Australia/Sydney", "Australia/Adelaide", "Asia/Tokyo",
    "Asia/Shanghai", "Asia/Bangkok", "Asia/Yangon", "Asia/Dhaka", "Asia/Karachi", "Asia/Dubai", "Europe/Moscow",
    "Atlantic/Azores", "Atlantic/South_Georgia", "America/Sao_Paulo", "America/Chicago", "America/Los_Angeles",
    "Pacific/Honolulu",
)  # fmt: skip
# What the clocks in Berlin show when it is 02:30: the hour is skipped in spring and comes twice in autumn.
CHANGES = {"2027-03-28T02:30": "2027-03-28T03:00+02:00", "2027-10-31T02:30": "2027-10-31T02:30+02:00"}


@pytest.fixture
def clock(tmp_path: Path) -> TestClock:
    """Return the clock of the server."""
    return TestClock(tmp_path / "offset")


def find_moment(local_time: str, zone: str) -> datetime:
    """Return when it is a local time in a zone, independent of the product: the first minute not before it."""
    if zone == "Europe/Berlin":
        return datetime.fromisoformat(CHANGES[local_time])
    if zone == "Europe/London" and local_time == "2027-03-28T02:30":
        return datetime(2027, 3, 28, 1, 30, tzinfo=UTC)
    return datetime.fromisoformat(local_time).replace(tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize("local_time", CHANGES)
def test_each_zone_gets_it_within_the_minute(
    clock: TestClock, smtp_server: SmtpServer, local_time: str, full: bool
) -> None:
    """Nobody gets it before their local time, all get it once and within a minute of it, whatever was killed."""
    zones = ZONES if full else FEW_ZONES
    with Server(relay=smtp_server.port, clock=clock).set_up() as server:
        server.set_postal_address()
        api = server.client()
        api.patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
        list_id = api.post("/lists", {"name": "World"}).expect(201)["id"]
        zone_by_address = {f"p{number}@example.org": zone for number, zone in enumerate(zones)}
        for address, zone in zone_by_address.items():
            api.post("/contacts", {"email": address, "list_ids": [list_id], "data": {"time_zone": zone}}).expect(201)
        body = {
            "name": "World", "local_time": local_time, "trigger_attributes": {"contact_list_id": list_id},
            "template_attributes": {"subject": "World", "body": "<p>Hi</p>"},
        }  # fmt: skip
        path = f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"
        assert api.post(f"{path}/send").expect(200)["phase"] == "scheduled"
        moments = sorted({find_moment(local_time, zone) for zone in zones})
        set_clock(clock, moments[0], -5)
        assert api.get(path).expect(200)["phase"] == "scheduled"
        for number, moment in enumerate(moments):
            set_clock(clock, moment, -2)
            assert len(smtp_server.messages) == count_due(zones, local_time, moment) - count_at(
                zones, local_time, moment
            )
            set_clock(clock, moment, 1)
            if number == 2:
                server.kill()
                server.start()
            expected = count_due(zones, local_time, moment)
            api.wait(path, lambda row, expected=expected: row["sent_count"] >= expected, 30)
        api.wait(path, lambda row: row["status"] == "completed", 30)
        check_times(api, zone_by_address, local_time)
        times = api.get(f"{path}/send_times").expect(200)
        assert (times["is_fixed"], sum(row["recipients"] for row in times["times"])) == (True, len(zones))
        assert all(row["waiting"] == 0 for row in times["times"])
    assert sorted(message.to for message in smtp_server.messages) == sorted(zone_by_address)


def test_a_slow_campaign_goes_on_after_a_restart(clock: TestClock, smtp_server: SmtpServer) -> None:
    """Messages that wait for hours because of a rate limit did not miss their hour, unlike those of a downtime (P8)."""
    env = {"CAMPANERO_EMAIL__RATE_PER_HOUR": "1"}
    with Server(relay=smtp_server.port, clock=clock, env=env).set_up() as server:
        server.set_postal_address()
        api = server.client()
        api.patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
        list_id = api.post("/lists", {"name": "Slow"}).expect(201)["id"]
        for number in range(9):
            zone = "Europe/Berlin" if number < 8 else "America/Los_Angeles"
            body = {"email": f"p{number}@example.org", "list_ids": [list_id], "data": {"time_zone": zone}}
            api.post("/contacts", body).expect(201)
        start = datetime(2027, 6, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))
        set_clock(clock, start, 30)
        body = {
            "name": "Slow", "local_time": "2027-06-01T09:00", "trigger_attributes": {"contact_list_id": list_id},
            "template_attributes": {"subject": "Slow", "body": "<p>Hi</p>"},
        }  # fmt: skip
        path = f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"
        api.post(f"{path}/send").expect(200)
        for hour in range(1, 8):
            api.wait(path, lambda row, hour=hour: row["sent_count"] >= hour, 30)
            clock.advance(hours=1)
        server.kill()
        server.start()
        api = server.client()
        api.wait(path, lambda row: row["sent_count"] == 8, 30)
        assert api.get(path).expect(200)["phase"] == "sending"
        server.kill()
        clock.advance(hours=9)  # In Los Angeles, it was nine o'clock over six hours ago.
        paused = server.start().client().wait(path, lambda row: row["status"] == "paused", 30)
        assert paused["pause_reason"] == "missed_start"


def set_clock(clock: TestClock, moment: datetime, seconds: float) -> None:
    """Set the clock to some seconds after a moment."""
    clock.advance(moment.timestamp() + seconds - clock.now())


def count_due(zones: tuple[str, ...], local_time: str, moment: datetime) -> int:
    """Return how many zones have had the local time at a moment."""
    return sum(find_moment(local_time, zone) <= moment for zone in zones)


def count_at(zones: tuple[str, ...], local_time: str, moment: datetime) -> int:
    """Return in how many zones it is the local time at a moment."""
    return sum(find_moment(local_time, zone) == moment for zone in zones)


def check_times(api: Client, zone_by_address: dict[str, str], local_time: str) -> None:
    """Check that each message was sent in the minute after the local time of its recipient."""
    messages = api.get("/messages?limit=100").json
    sent = {row["to"]: datetime.fromisoformat(row["sent_at"]) for row in messages if row["to"] in zone_by_address}
    assert sent.keys() == zone_by_address.keys()
    for address, zone in zone_by_address.items():
        delay = (sent[address] - find_moment(local_time, zone)).total_seconds()
        assert 0 <= delay < 60, (zone, delay)
