"""Campaigns at the best hour of each contact on a running server: the hours come from clicks on tracked links."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apsw
import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms
from tests.kit.readers import Reader, parse_mail
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

TOKYO, BERLIN = "Asia/Tokyo", "Europe/Berlin"
CLICKS = 6
FIRST, UNTIL = 9, 19
CLICK_DAY = "2031-11-03"  # a Monday
EVERY_DAY = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
# The zone and the hour of the clicks of each contact; those who are new have none, and get it at `COMMON_HOUR`.
CLICKING = {
    "t-morning": (TOKYO, 9), "t-noon": (TOKYO, 13), "t-noon2": (TOKYO, 13), "t-evening": (TOKYO, 18),
    "t-new": (TOKYO, None), "b-morning": (BERLIN, 9), "b-noon": (BERLIN, 13), "b-noon2": (BERLIN, 13),
    "b-evening": (BERLIN, 18), "b-new": (BERLIN, None),
}  # fmt: skip
COMMON_HOUR = 13


def find_moment(day: str, hour: int, zone: str) -> datetime:
    """Return when it is an hour of a day in a zone."""
    return datetime.fromisoformat(day).replace(hour=hour, tzinfo=ZoneInfo(zone))


def wait_until(condition: Callable[[], object], timeout: float = 30) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not so within {timeout} s"
        time.sleep(0.05)


class Shop:
    """A service whose contacts have clicked at their hours, and its clock."""

    def __init__(self, server: Server, sink: SmtpServer, sms: FakeSms, clock: TestClock) -> None:
        self.server, self.sink, self.sms, self.clock = server, sink, sms, clock
        self.api: Client = server.client()
        self.ids: dict[str, int] = {}
        self.people: dict[str, tuple[str, int | None]] = {}
        self.list_id: int = self.api.post("/lists", {"name": "World"}).expect(201)["id"]
        link = {"subject": "Offer", "body": '<p><a href="https://shop.example/">Offer</a></p>'}
        trigger = {"event": "offer", "data": {"frequency": "every_time"}}
        flow = self.api.post("/flows", {"trigger": trigger, "steps": [link] * CLICKS, "status": "active"}).expect(201)
        self.flow_path = f"/flows/{flow['id']}"

    def add(self, name: str, zone: str, hour: int | None) -> None:
        """Create a contact on the list, who is to click at an hour."""
        body = {
            "email": f"{name}@example.org", "phone": f"+1415555{len(self.ids) + 100:04}", "list_ids": [self.list_id],
            "data": {"time_zone": zone},
        }  # fmt: skip
        self.ids[name] = self.api.post("/contacts", body).expect(201)["id"]
        self.people[name] = zone, hour

    def set_time(self, moment: datetime, seconds: float = 0) -> None:
        """Set the clock to some seconds after a moment."""
        self.clock.advance(moment.timestamp() + seconds - self.clock.now())

    def click(self, *names: str) -> None:
        """Start the flow for contacts, and click the link of each email that it sends, two minutes later."""
        expected = len(self.sink.messages) + CLICKS * len(names)
        sent = self.api.get(self.flow_path).expect(200)["sent_count"]
        for name in names:
            self.api.post("/events", {"event": "offer", "contact_id": self.ids[name]}).expect(201)
        # They are recorded as sent before the clock moves, else the clicks would have the same time.
        self.api.wait(self.flow_path, lambda row: row["sent_count"] == sent + CLICKS * len(names), 60)
        self.clock.advance(minutes=2)
        assert len(self.sink.messages) == expected
        reader = Reader(self.server)
        for message in self.sink.messages[-CLICKS * len(names) :]:
            reader.follow(parse_mail(message).tracked_paths[0])
        self.clock.advance(5)
        wait_until(lambda: not self.query("SELECT 1 FROM hit WHERE verdict IS NULL LIMIT 1"))

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query on the service's database."""
        path = str(self.server.data / "campanero.db")
        with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            return connection.execute(sql, values).fetchall()

    def export_hours(self, name: str) -> dict[int, int]:
        """Return the number of clicks by hour in the data export of a contact."""
        rows = self.api.get(f"/contacts/{self.ids[name]}/export").expect(200)["click_hours"]
        return {row["hour"]: row["clicks"] for row in rows}

    def find_expected(self, day: str) -> dict[str, datetime]:
        """Return when each contact of the list is to get a campaign of a day, by their clicks."""
        return {name: find_moment(day, hour or COMMON_HOUR, zone) for name, (zone, hour) in self.people.items()}

    def count_forecast(self, path: str) -> dict[int, int]:
        """Return the recipients of a campaign by the hour of their clock."""
        hours = self.api.get(f"{path}/send_times").expect(200)["hours"]
        return {row["hour"]: row["recipients"] for row in hours}

    def create(self, day: str, **fields: Any) -> str:
        """Create a campaign to the list at the best hours of a day, and return its path."""
        body = {
            "name": day, "local_time": f"{day}T{FIRST:02}:00", "best_hour_until": UNTIL,
            "trigger_attributes": {"contact_list_id": self.list_id},
            "template_attributes": {"subject": day, "body": "<p>Hi</p>"}, **fields,
        }  # fmt: skip
        return f"/campaigns/{self.api.post('/campaigns', body).expect(201)['id']}"

    def schedule(self, day: str, **fields: Any) -> str:
        """Send a campaign before its day begins anywhere, wait until it has started, and return its path."""
        self.set_time(find_moment(day, 12, "UTC") - timedelta(hours=36))
        path = self.create(day, **fields)
        sent = self.api.post(f"{path}/send").expect(200)
        assert sent["phase"] == "scheduled"
        self.set_time(datetime.fromisoformat(sent["scheduled_at"]), 1)
        self.api.wait(path, lambda row: row["phase"] == "sending" and row["audience_count"], 30)
        return path

    def count_received(self, day: str) -> int:
        """Return how many emails of the campaign of a day have arrived."""
        return sum(message.subject == day for message in self.sink.messages)

    def read_sent(self, path: str) -> dict[str, datetime]:
        """Return when the messages of a campaign that are sent were sent, by the name of the contact."""
        names = {number: name for name, number in self.ids.items()}
        rows = self.api.all("/messages", campaign_id=path.rpartition("/")[2])
        return {names[row["contact_id"]]: datetime.fromisoformat(row["sent_at"]) for row in rows if row["sent_at"]}

    def wait_for_count(self, path: str, count: int) -> None:
        """Wait until at least so many messages of a campaign are sent."""
        self.api.wait(path, lambda row: row["sent_count"] >= count, 30)

    def go_through(
        self, path: str, expected: Mapping[str, datetime], until: datetime | None = None, seconds: float = 1
    ) -> None:
        """Pass each expected moment up to `until`: shortly before it, only those of earlier moments have got it.

        So many seconds after it, all who are to get it by then have got it.
        """
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        for moment in sorted({due for due in expected.values() if due > now and (until is None or due <= until)}):
            self.set_time(moment, -3)
            assert self.read_sent(path).keys() == {name for name, due in expected.items() if due < moment}, moment
            self.set_time(moment, seconds)
            due_now = {name for name, due in expected.items() if due <= moment}
            self.wait_for_count(path, len(due_now))
            assert self.read_sent(path).keys() == due_now

    def check(self, path: str, day: str, expected: Mapping[str, datetime]) -> None:
        """Check that a campaign is completed, and each recipient got it once, within a minute after the moment."""
        self.api.wait(path, lambda row: row["status"] == "completed", 30)
        received = [message.to for message in self.sink.messages if message.subject == day]
        assert sorted(received) == sorted(f"{name}@example.org" for name in expected)
        self.check_times(path, expected)

    def check_times(self, path: str, expected: Mapping[str, datetime], seconds: float = 60) -> None:
        """Check that each recipient was sent a campaign within so many seconds after the expected moment."""
        sent = self.read_sent(path)
        assert sent.keys() == expected.keys()
        delays = {name: (sent[name] - moment).total_seconds() for name, moment in expected.items()}
        assert all(0 <= delay < seconds for delay in delays.values()), delays


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, shared_fake_sms: FakeSms) -> Iterator[Shop]:
    """A service for the tests of this module, each of which takes a later day."""
    clock = TestClock(Path(tmp_path_factory.mktemp("shop")) / "clock")
    with SmtpServer() as sink, Server(relay=sink.port, clock=clock, env=shared_fake_sms.env).set_up() as server:
        server.set_postal_address()
        server.client().patch("/account", {"email_from_email": "ana@bakery.example", "time_zone": "UTC"}).expect(200)
        shop = Shop(server, sink, shared_fake_sms, clock)
        shop.set_time(find_moment(CLICK_DAY, 0, TOKYO))
        clicking: dict[datetime, list[str]] = {}
        for name, (zone, hour) in CLICKING.items():
            shop.add(name, zone, hour)
            if hour is not None:
                clicking.setdefault(find_moment(CLICK_DAY, hour, zone), []).append(name)
        for moment, names in sorted(clicking.items()):
            shop.set_time(moment)
            shop.click(*names)
        yield shop
        server.stop()


def test_clicks_count_at_the_hour_of_the_contact(shop: Shop) -> None:
    """Each followed link counts at the hour of the contact's clock, and the forecast follows it."""
    for name, (_, hour) in CLICKING.items():
        assert shop.export_hours(name) == ({hour: CLICKS} if hour else {}), name
    assert shop.count_forecast(shop.create("2031-11-05")) == {9: 2, 13: 6, 18: 2}


def test_a_pause_over_several_hours(shop: Shop) -> None:
    """While it is paused nobody gets it; then those whose hour has passed get it at once, the others at their hour."""
    day = "2031-11-10"
    path, expected = shop.schedule(day), shop.find_expected(day)
    shop.go_through(path, expected, find_moment(day, 9, TOKYO))
    shop.api.post(f"{path}/pause").expect(200)
    for moment in (find_moment(day, 13, TOKYO), find_moment(day, 9, BERLIN)):
        shop.set_time(moment, 1)
        time.sleep(1)  # a worker that ignored the pause would send now
        assert shop.read_sent(path).keys() == {"t-morning"}
    resumed_at = find_moment(day, 9, BERLIN) + timedelta(minutes=30)
    shop.set_time(resumed_at)
    shop.api.post(f"{path}/resume").expect(200)
    expected |= dict.fromkeys(("t-noon", "t-noon2", "t-new", "b-morning"), resumed_at)
    shop.wait_for_count(path, 5)
    shop.go_through(path, expected)
    shop.check(path, day, expected)


def test_a_cancel_in_the_middle(shop: Shop) -> None:
    """Who got it keeps it; nobody gets it at a later hour."""
    day = "2031-11-12"
    path, expected = shop.schedule(day), shop.find_expected(day)
    shop.go_through(path, expected, find_moment(day, 13, TOKYO))
    cancelled = shop.api.post(f"{path}/cancel").expect(200)
    assert (cancelled["phase"], cancelled["sent_count"]) == ("cancelled", 4)
    for moment in (find_moment(day, 9, BERLIN), find_moment(day, 18, BERLIN)):
        shop.set_time(moment, 1)
        time.sleep(1)  # a message that was not cancelled would leave now
    rows = shop.api.all("/messages", campaign_id=path.rpartition("/")[2])
    assert Counter(row["status"] for row in rows) == {"sent": 4, "cancelled": 6}
    assert shop.count_received(day) == 4
    assert sum(row["waiting"] for row in shop.api.get(f"{path}/send_times").expect(200)["hours"]) == 0


def test_an_undo_forgets_the_hours(shop: Shop) -> None:
    """After an undo nobody gets it; another send asks the clicks again, and all get it once."""
    day = "2031-11-14"
    zone = "Pacific/Honolulu"
    shop.add("h-new", zone, None)
    shop.set_time(find_moment(day, 12, "UTC") - timedelta(hours=36))
    path = shop.create(day)
    assert shop.api.post(f"{path}/send").expect(200)["phase"] == "scheduled"
    undone = shop.api.patch(path, {"status": "draft"}).expect(200)
    assert (undone["phase"], undone["local_time"], undone["best_hour_until"]) == ("draft", f"{day}T09:00", UNTIL)
    # The day has begun in the first zone, so this send starts at once.
    shop.set_time(find_moment("2031-11-13", 10, zone))
    assert shop.api.post(f"{path}/send", {"hold_seconds": 600}).expect(200)["phase"] == "holding"
    assert shop.count_forecast(path) == {9: 2, 13: 7, 18: 2}
    assert shop.api.get(f"{path}/send_times").expect(200)["is_fixed"]
    shop.api.patch(path, {"status": "draft"}).expect(200)
    assert not shop.api.get(f"{path}/send_times").expect(200)["is_fixed"]
    shop.click("h-new")
    shop.people["h-new"] = zone, 10
    shop.set_time(find_moment(day, 9, TOKYO), -600)
    assert shop.count_received(day) == 0
    shop.api.post(f"{path}/send").expect(200)
    assert shop.count_forecast(path) == {9: 2, 10: 1, 13: 6, 18: 2}
    expected = shop.find_expected(day)
    shop.go_through(path, expected)
    shop.check(path, day, expected)


def find_allowed(shop: Shop, day: str) -> dict[str, datetime]:
    """Return when contacts are to get a campaign of a day if messages may only be sent between 10:00 and 17:00."""
    next_day = str(datetime.fromisoformat(day).date() + timedelta(days=1))
    expected = {}
    for name, moment in shop.find_expected(day).items():
        zone = shop.people[name][0]
        early, late = find_moment(day, 10, zone), find_moment(next_day, 10, zone)
        expected[name] = late if moment >= find_moment(day, 17, zone) else max(early, moment)
    return expected


def test_allowed_times_win(shop: Shop) -> None:
    """A message whose hour is not allowed leaves when the next allowed time of its recipient begins."""
    day = "2031-11-17"
    shop.api.patch("/account", {"marketing_calendar": {"days": EVERY_DAY, "from": "10:00", "to": "17:00"}}).expect(200)
    try:
        path, expected = shop.schedule(day), find_allowed(shop, day)
        shop.go_through(path, expected)
        shop.check(path, day, expected)
    finally:
        shop.api.patch("/account", {"marketing_calendar": None}).expect(200)


def test_quiet_hours_of_sms_win(shop: Shop) -> None:
    """An SMS whose hour is quiet leaves in the minute after the quiet hours of its recipient."""
    day = "2031-11-20"
    shop.api.patch("/account", {"sms_quiet_hours": {"from": "17:00", "to": "10:00"}}).expect(200)
    try:
        content = {"body": f"Bakery: bread of {day}. STOP to leave"}
        path, expected = shop.schedule(day, channel="sms", template_attributes=content), find_allowed(shop, day)
        shop.go_through(path, expected, seconds=61)
        shop.api.wait(path, lambda row: row["status"] == "completed", 30)
        shop.check_times(path, expected, 120)
        texts = [sms for sms in shop.sms.accepted if day in sms.body]
        assert len({sms.to for sms in texts}) == len(texts) == len(expected)
    finally:
        shop.api.patch("/account", {"sms_quiet_hours": None}).expect(200)


def test_kills_between_the_hours(shop: Shop, full: bool) -> None:
    """Kills before, between and over an hour: nobody is left out, nobody gets it twice, each within their hour."""
    day = "2031-11-24"
    path, expected = shop.schedule(day), shop.find_expected(day)
    fixed = shop.api.get(f"{path}/send_times").expect(200)
    shop.server.kill()
    shop.server.start()
    shop.go_through(path, expected, find_moment(day, 9, TOKYO))
    shop.server.kill()
    started_at = find_moment(day, 13, TOKYO) + timedelta(minutes=20)
    shop.set_time(started_at)
    shop.server.start()
    late = dict.fromkeys(("t-noon", "t-noon2", "t-new"), started_at)
    expected |= late
    shop.wait_for_count(path, 1 + len(late))
    later = sorted({due for due in expected.values() if due > started_at})
    for moment in later if full else later[:2]:
        shop.set_time(moment, -600)
        shop.server.kill()
        shop.server.start()
        shop.go_through(path, expected, moment)
    shop.go_through(path, expected)
    shop.check(path, day, expected)
    times = shop.api.get(f"{path}/send_times").expect(200)
    assert [(row["hour"], row["recipients"]) for row in times["hours"]] == [
        (row["hour"], row["recipients"]) for row in fixed["hours"]
    ]


def test_a_merge_unites_the_hours_and_an_erasure_deletes_them(shop: Shop) -> None:
    """The export has the clicks of both contacts after their merge; after an erasure no table has them."""
    for name in ("first", "second"):
        shop.add(name, TOKYO, None)
    for hour, names in ((9, ("first", "second")), (18, ("second",))):
        shop.set_time(find_moment("2031-12-01", hour, TOKYO))
        shop.click(*names)
    assert (shop.export_hours("first"), shop.export_hours("second")) == ({9: CLICKS}, {9: CLICKS, 18: CLICKS})
    first, second = shop.ids["first"], shop.ids["second"]
    shop.api.post(f"/contacts/{first}/merge", {"contact_id": second}).expect(200)
    assert shop.export_hours("first") == {9: 2 * CLICKS, 18: CLICKS}
    stored = "SELECT contact_id, hour, clicks FROM click_hour WHERE contact_id IN (?, ?) ORDER BY hour"
    assert shop.query(stored, first, second) == [(first, 9, 2 * CLICKS), (first, 18, CLICKS)]
    shop.api.delete(f"/contacts/{first}?erase=true").expect(200)
    assert not shop.query(stored, first, second)
    assert shop.api.get(f"/contacts/{first}/export").status == 404
