"""Repeating campaigns: each date is sent once, by a copy; downtime, pauses, findings and ends, by a movable clock."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.experiment_rows import query
from tests.kit.server import Server

CONTENT = {"subject": "Monday news", "body": "<p>Hello</p>"}
DAILY = {"every": "day", "at": "09:00"}


def create_series(api: Client, repeat: dict[str, Any], **fields: Any) -> str:
    """Create and schedule a repeating campaign to one contact, and return its path."""
    list_id = api.post("/lists", {"name": f"Readers {time.monotonic_ns()}"}).expect(201)["id"]
    api.post("/contacts", {"email": f"r{list_id}@example.org", "list_ids": [list_id]}).expect(201)
    body = {"name": "News", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": CONTENT}
    created = api.post("/campaigns", body | {"repeat": repeat} | fields).expect(201)
    path = f"/campaigns/{created['id']}"
    assert api.post(f"{path}/send").expect(200)["phase"] == "scheduled"
    return path


def read_time(text: str) -> float:
    """Return an ISO time in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def move_to_next(api: Client, clock: TestClock, path: str, late: float = 5) -> str:
    """Move the clock to `late` seconds after the next date of a series, and return that date."""
    due_at = str(api.get(path).expect(200)["scheduled_at"])
    clock.advance(read_time(due_at) - clock.now() + late)
    return due_at


def wait_for_outcomes(api: Client, path: str, count: int) -> list[dict[str, Any]]:
    """Wait until `count` dates are over and return them, the first date first."""
    rows = api.wait(f"{path}/occurrences", lambda occurrences: len(occurrences) >= count, 30)
    assert len(rows) == count
    return list(reversed(rows))


def test_each_date_is_a_campaign_of_its_own(fresh_server: FreshServer, clock: TestClock) -> None:
    """The copy has its own report and name; the series goes on, and sends changed content from then on."""
    server = fresh_server(clock=clock)
    api = server.client()
    path = create_series(api, DAILY)
    series = api.get(path).expect(200)
    assert len(series["repeat"]["next_at"]) == 3 and series["repeat"]["next_at"][0] == series["scheduled_at"]
    first_at = move_to_next(api, clock, path)
    [first] = wait_for_outcomes(api, path, 1)
    assert (first["due_at"], first["outcome"], first["reason"]) == (first_at, "sent", None)
    sent = api.wait(f"/campaigns/{first['campaign_id']}", lambda row: row["status"] == "completed")
    assert (sent["series_id"], sent["stats"]["sent"], sent["repeat"]) == (series["id"], 1, None)
    assert sent["name"] == f"News {first_at[:10]}"
    again = api.get(path).expect(200)
    assert (again["phase"], again["stats"]["sent"]) == ("scheduled", 0)
    assert read_time(again["scheduled_at"]) == read_time(first_at) + 86_400
    api.patch(path, {"template_attributes": {"subject": "Other news"}}).expect(200)
    clock.advance(-3 * 3600)  # a clock that is set back sends nothing again
    time.sleep(1.5)
    assert len(api.get(f"{path}/occurrences").expect(200)) == 1
    move_to_next(api, clock, path)
    second = wait_for_outcomes(api, path, 2)[1]
    other = api.wait(f"/campaigns/{second['campaign_id']}", lambda row: row["status"] == "completed")
    assert other["template"]["subject"] == "Other news"


def test_only_if_changed_and_the_end(fresh_server: FreshServer, clock: TestClock) -> None:
    """A date whose content was sent before is left out; after the last date the campaign is a draft."""
    server = fresh_server(clock=clock)
    api = server.client()
    start = clock.now()
    end = datetime.fromtimestamp(start + 3.9 * 86_400, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    path = create_series(api, DAILY | {"only_if_changed": True, "ends_at": end})
    count = len(api.get(path).expect(200)["repeat"]["next_at"])
    outcomes = []
    for number in range(1, 9):
        if api.get(path).expect(200)["phase"] != "scheduled":
            break
        move_to_next(api, clock, path)
        outcomes = [row["outcome"] for row in wait_for_outcomes(api, path, number)]
        if number == 2:
            api.patch(path, {"template_attributes": {"body": "<p>New</p>"}}).expect(200)
    assert outcomes[:3] == ["sent", "unchanged", "sent"] and len(outcomes) >= count
    draft = api.wait(path, lambda row: row["phase"] == "draft", 20)
    assert (draft["scheduled_at"], draft["repeat"]["next_at"]) == (None, [])
    refused = api.post(f"{path}/send").expect(422)
    assert refused["validation_errors"].keys() == {"repeat.ends_at"}
    api.patch(path, {"repeat": DAILY}).expect(200)
    assert api.post(f"{path}/send").expect(200)["phase"] == "scheduled"


def test_dates_of_a_downtime_are_left_out(fresh_server: FreshServer, clock: TestClock) -> None:
    """Of several dates that passed, the last one is sent if it is not too late; the others are recorded as missed."""
    server = fresh_server(clock=clock)
    api = server.client()
    path = create_series(api, DAILY)
    due_at = read_time(api.get(path).expect(200)["scheduled_at"])
    server.kill()
    clock.advance(due_at + 2 * 86_400 - clock.now() + 3600)
    api = server.start().client()
    outcomes = wait_for_outcomes(api, path, 3)
    assert [row["outcome"] for row in outcomes] == ["missed", "missed", "sent"]
    api.wait(f"/campaigns/{outcomes[2]['campaign_id']}", lambda row: row["status"] == "completed")
    server.kill()
    clock.advance(hours=23 + 8)  # eight hours after the next date, which is too late
    api = server.start().client()
    assert [row["outcome"] for row in wait_for_outcomes(api, path, 4)][3] == "missed"
    assert api.get(path).expect(200)["phase"] == "scheduled"
    sent = query(server, "SELECT count(*) FROM message WHERE source_type = 'campaign' AND status = 'sent'")
    assert sent == [(1,)]


@pytest.mark.parametrize("delay", [0.0, 0.4])
def test_a_kill_around_a_date_sends_it_once(fresh_server: FreshServer, clock: TestClock, delay: float) -> None:
    """Whenever the process dies around a date, there is one copy with one message."""
    server = fresh_server(clock=clock)
    path = create_series(server.client(), DAILY)
    move_to_next(server.client(), clock, path)
    for _ in range(3):
        time.sleep(delay)
        server.kill()
        server.start()
    api = server.client()
    [occurrence] = wait_for_outcomes(api, path, 1)
    api.wait(f"/campaigns/{occurrence['campaign_id']}", lambda row: row["status"] == "completed")
    counts = query(server, "SELECT count(DISTINCT campaign_id), count(*) FROM message WHERE source_type = 'campaign'")
    assert counts == [(1, 1)] and query(server, "SELECT count(*) FROM occurrence") == [(1,)]


def test_pause_resume_and_stop(fresh_server: FreshServer, clock: TestClock) -> None:
    """A paused series sends nothing; resumed, it goes on with the next date; cancelled, it is over."""
    server = fresh_server(clock=clock)
    api = server.client()
    path = create_series(api, DAILY)
    api.post(f"{path}/pause").expect(200)
    clock.advance(days=3)
    time.sleep(1.5)
    assert api.get(f"{path}/occurrences").expect(200) == []
    resumed = api.post(f"{path}/resume").expect(200)
    assert resumed["phase"] == "scheduled" and read_time(resumed["scheduled_at"]) > clock.now()
    move_to_next(api, clock, path)
    wait_for_outcomes(api, path, 1)
    api.post(f"{path}/cancel").expect(200)
    clock.advance(days=2)
    time.sleep(1.5)
    assert len(api.get(f"{path}/occurrences").expect(200)) == 1


def test_a_finding_stops_a_date_and_tells_the_owner(fresh_server: FreshServer, clock: TestClock) -> None:
    """The campaign is a draft again; owners get an email, and the next date is sent after the repair."""
    server = fresh_server(clock=clock)
    api = server.client()
    path = create_series(api, DAILY)
    api.patch(path, {"template_attributes": {"subject": ""}}).expect(200)
    move_to_next(api, clock, path)
    [blocked] = wait_for_outcomes(api, path, 1)
    assert (blocked["outcome"], blocked["reason"], blocked["campaign_id"]) == ("blocked", "content_required", None)
    assert api.get(path).expect(200)["phase"] == "draft"
    [event] = api.get("/events", event="campaign_paused").expect(200)
    assert event["data"]["reason"] == "content_required"
    [notice] = api.wait("/capture", bool, search="repeating campaign")
    assert notice["subject"] == "A repeating campaign was not sent"
    assert "write a subject" in api.get(f"/capture/{notice['id']}").expect(200)["text"]
    api.patch(path, {"template_attributes": {"subject": "Back"}}).expect(200)
    assert api.post(f"{path}/send").expect(200)["phase"] == "scheduled"
    move_to_next(api, clock, path)
    assert wait_for_outcomes(api, path, 2)[1]["outcome"] == "sent"


def test_daylight_saving_time_and_a_new_zone(fresh_server: FreshServer, clock: TestClock) -> None:
    """The hour on the clock of the account holds, also after the account moves to another zone."""
    server = fresh_server(clock=clock)
    api = server.client()
    api.patch("/account", {"time_zone": "Europe/Berlin"}).expect(200)
    path = create_series(api, {"every": "month", "at": "09:00", "day_of_month": 15})
    hours = {read[5:7]: read[11:16] for read in api.get(path).expect(200)["repeat"]["next_at"]}
    assert set(hours.values()) <= {"08:00", "07:00"}
    api.patch("/account", {"time_zone": "America/New_York"}).expect(200)
    moved = api.get(path).expect(200)
    assert moved["scheduled_at"] == moved["repeat"]["next_at"][0]
    assert moved["scheduled_at"][11:16] in ("13:00", "14:00")


def test_invalid_repetitions(server: Server) -> None:
    """All errors at once, each at its field; a repeating campaign is not sent at once."""
    api = server.client()
    for repeat, paths in (
        ({"every": "week", "at": "9:00"}, {"repeat.at"}),
        ({"every": "week", "at": "09:00"}, {"repeat.weekdays"}),
        ({"every": "week", "at": "09:00", "weekdays": ["someday"]}, {"repeat.weekdays[0]"}),
        ({"every": "week", "at": "09:00", "weekdays": ["mon"], "day_of_month": 1}, {"repeat.day_of_month"}),
        ({"every": "day", "at": "09:00", "weekdays": ["mon"]}, {"repeat.weekdays"}),
        ({"every": "month", "at": "09:00"}, {"repeat.day_of_month"}),
        ({"every": "month", "at": "09:00", "week_of_month": "last", "weekdays": ["mon", "fri"]}, {"repeat.weekdays"}),
        ({"every": "day", "at": "09:00", "ends_at": "2001-01-01T00:00:00Z"}, {"repeat.ends_at"}),
        ({"every": "year", "at": "25:00", "day_of_month": 32},
         {"repeat.every", "repeat.at", "repeat.day_of_month"}),
    ):  # fmt: skip
        assert api.post("/campaigns", {"name": "x", "repeat": repeat}).expect(422)["validation_errors"].keys() == paths
    campaign = api.post("/campaigns", {"name": "x", "repeat": DAILY}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    unchanged = api.patch(path, {"repeat": {key: campaign["repeat"][key] for key in ("every", "at", "weekdays")}})
    assert unchanged.expect(200)["repeat"] == campaign["repeat"]
    refused = api.post(f"{path}/send", {"scheduled_at": None}).expect(422)
    assert refused["validation_errors"].keys() == {"scheduled_at"}
    kept = api.patch(path, {"scheduled_at": None}).expect(200)
    assert (kept["scheduled_at"], kept["repeat"]) == (None, campaign["repeat"])
    later = {"scheduled_at": "2099-01-01T00:00:00Z"}
    once = api.patch(path, later | {"repeat": None}).expect(200)
    assert (once["repeat"], once["scheduled_at"][:4]) == (None, "2099")


def test_setting_a_time_clears_the_other_two(server: Server) -> None:
    """A campaign has one of three times: the last that is set counts, and two in one request are refused."""
    api = server.client()
    times = {
        "scheduled_at": "2099-01-01T00:00:00.000Z", "local_time": "2099-02-01T09:00", "repeat": DAILY,
    }  # fmt: skip
    path = f"/campaigns/{api.post('/campaigns', {'name': 'x'}).expect(201)['id']}"

    def check(chosen: str, row: dict[str, Any]) -> None:
        assert (row["local_time"] is not None, row["repeat"] is not None) == (
            chosen == "local_time", chosen == "repeat",
        )  # fmt: skip
        year = {"scheduled_at": "2099-01-01", "local_time": "2099-01-31"}.get(chosen)
        assert row["scheduled_at"] == row["repeat"]["next_at"][0] if year is None else row["scheduled_at"][:10] == year

    for chosen in ("scheduled_at", "repeat", "local_time", "scheduled_at", "local_time", "repeat", "scheduled_at"):
        row = api.patch(path, {chosen: times[chosen]}).expect(200)
        check(chosen, row)
        read_back = {name: row[name] for name in ("scheduled_at", "local_time")}
        read_back["repeat"] = row["repeat"] and {"every": "day", "at": "09:00"}
        assert api.patch(path, read_back).expect(200)["scheduled_at"] == row["scheduled_at"]
        check(chosen, api.get(path).expect(200))
    for name in ("repeat", "local_time"):
        api.patch(path, {name: times[name]}).expect(200)
        row = api.patch(path, {name: None}).expect(200)
        assert (row["scheduled_at"], row["local_time"], row["repeat"]) == (None, None, None)
    for pair in (("repeat", "local_time"), ("repeat", "scheduled_at")):
        body = {name: times[name] for name in pair}
        for refused in (api.post("/campaigns", {"name": "x"} | body), api.patch(path, body)):
            errors = refused.expect(422)["validation_errors"]
            assert errors.keys() == set(pair)
            assert all(text == [f"give either `repeat` or `{pair[1]}`, not both"] for text in errors.values())
    api.patch(path, {"repeat": DAILY}).expect(200)
    assert api.get(path).expect(200)["repeat"] is not None


def test_a_time_in_the_send_ends_the_repetition(server: Server) -> None:
    """A scheduled series that gets a single time is sent then, and no longer repeats; its dates follow the clock."""
    api = server.client()
    path = create_series(api, DAILY)
    moved = api.post(f"{path}/send", {"scheduled_at": "2099-01-01T00:00:00Z"}).expect(200)
    assert (moved["phase"], moved["scheduled_at"][:4], moved["repeat"]) == ("scheduled", "2099", None)
    again = api.patch(path, {"repeat": DAILY}).expect(200)
    assert (again["phase"], again["scheduled_at"]) == ("scheduled", again["repeat"]["next_at"][0])
    local = api.post(f"{path}/send", {"local_time": "2099-02-01T09:00"}).expect(200)
    assert (local["phase"], local["local_time"], local["repeat"]) == ("scheduled", "2099-02-01T09:00", None)
    repeated = api.patch(path, {"repeat": DAILY, "local_time": None, "scheduled_at": None}).expect(200)
    assert (repeated["phase"], repeated["local_time"]) == ("scheduled", None)
    draft = api.patch(path, {"repeat": None}).expect(200)
    assert (draft["phase"], draft["scheduled_at"]) == ("draft", None)
