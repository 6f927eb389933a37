"""Why nothing moves: the campaign, its page and the status of delivery always say it, with the time it ends."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.journeys.test_pace import create_address_list, start_limited
from tests.journeys.test_sending import completed, create_list, send
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.patience import comes_to_rest
from tests.kit.smtp import SmtpServer


def waits(api: Client, campaign: dict[str, Any], reason: str, timeout: float = 15) -> dict[str, Any]:
    """Wait until a campaign says that it waits for this, and answer what it says."""
    path = f"/campaigns/{campaign['id']}"
    row = api.wait(path, lambda row: (row["waiting"] or {}).get("reason") == reason, timeout)
    found: dict[str, Any] = row["waiting"]
    return found


def seconds_until(moment: str | None) -> float:
    """Return how far away a moment is."""
    assert moment is not None
    return datetime.fromisoformat(moment).timestamp() - time.time()


def test_a_limit_of_an_hour_says_when_it_opens(
    fresh_server: FreshServer, smtp_server: SmtpServer, browser: Browser, browser_problems: Problems
) -> None:
    """`limit of 5 an hour, next at 15:00`, in the account's zone: on the API, on the pages, and in the status."""
    server = start_limited(fresh_server, smtp_server, rate_per_hour="5")
    api = server.client()
    api.patch("/account", {"time_zone": "Asia/Kathmandu"}).expect(200)
    begun = time.time()
    made = send(api, create_list(api, 8))
    smtp_server.wait_for(5)
    found = waits(api, made, "hour_limit")
    status = api.wait("/delivery/status", lambda row: row["queue"]["in_hand"] == 0)

    assert 3500 <= seconds_until(found["until"]) <= 3600
    local = datetime.fromtimestamp(begun + 3600, ZoneInfo("Asia/Kathmandu"))
    shown = {(local + timedelta(seconds=more)).strftime("%H:%M") for more in (0, 5, 10)}
    assert found["text"].startswith("limit of 5 an hour, next at ") and found["text"][-5:] in shown
    [obstacle] = status["obstacles"]
    assert (status["open"], obstacle["code"], obstacle["until"][:16]) == (False, "hour_limit", found["until"][:16])
    assert status["queue"] | {"waiting": 3, "due": 3, "in_hand": 0} == status["queue"]
    assert 0 <= status["queue"]["oldest_age_seconds"] < 120 and status["queue"]["oldest_due_at"]
    assert status["rate"] == {"per_second": 0, "per_hour": 5, "last_minute": 5, "last_hour": 5}
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto(f"/campaigns/{made['id']}")
    expect(page.locator("#waiting")).to_contain_text("Slowed: waiting for your limit of 5 an hour, next at")
    api.patch("/account", {"sending_stopped": True, "stop_reason": "prices"}).expect(200)
    # The part that polls brings the news by itself
    expect(page.locator("#waiting")).to_contain_text("Waiting: sending is stopped: prices")
    page.goto("/")
    expect(page.locator("#happening")).to_contain_text("waiting: sending is stopped: prices")
    page.context.close()
    assert not browser_problems.found


def test_what_people_decided_comes_first(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Scheduled, held, paused, stopped, the file: each is said, the more important first; a draft waits for nothing."""
    server = start_limited(fresh_server, smtp_server, rate_per_second="1")
    api = server.client()
    group = create_list(api, 9)
    when = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    content = {"subject": "x", "body": "<p>x</p>", "from_email": "ana@bakery.example"}
    body = {"trigger_attributes": {"contact_list_id": group}, "template_attributes": content, "scheduled_at": when}
    draft = api.post("/campaigns", {"name": "x", **body}).expect(201)
    held = send(api, group, hold_seconds=30)
    live = send(api, group)

    assert draft["waiting"] is None
    later = api.post(f"/campaigns/{draft['id']}/send").expect(200)
    told = waits(api, later, "scheduled")
    assert seconds_until(told["until"]) > 86_400 and ", " in told["text"]
    assert 0 < seconds_until(waits(api, held, "held")["until"]) <= 30
    api.post(f"/campaigns/{live['id']}/pause").expect(200)
    assert waits(api, live, "paused") == {"reason": "paused", "text": "paused by a person", "until": None}
    (server.data / "STOP").touch()
    assert "STOP" in waits(api, live, "stop_file")["text"]
    api.patch("/account", {"sending_stopped": True}).expect(200)
    assert waits(api, later, "sending_stopped")["text"] == "sending is stopped by a person"
    status = api.get("/delivery/status").expect(200)
    assert [one["code"] for one in status["obstacles"]] == ["sending_stopped", "stop_file"]
    assert (status["open"], status["sending_stopped"], status["stop_file"]) == (False, True, True)
    assert abs(seconds_until(status["obstacles"][1]["since"])) < 60


@pytest.mark.parametrize("rate", ["0", "20"])
def test_a_relay_that_is_away_is_told(rate: str, fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Who cannot be reached, why, and when it is tried again; nothing of it is left once it is back."""
    server = start_limited(fresh_server, smtp_server, probe_after="3s", rate_per_second=rate)
    api = server.client()
    group = create_list(api, 4)
    smtp_server.stop()
    made = send(api, group)
    found = waits(api, made, "unreachable")
    [obstacle] = api.get("/delivery/status").expect(200)["obstacles"]

    assert "cannot be reached" in found["text"] and 0 < seconds_until(found["until"]) <= 3
    assert obstacle["code"] == "unreachable" and "relay" in obstacle["text"]
    assert -60 < seconds_until(obstacle["since"]) <= 0 < seconds_until(obstacle["until"])
    assert comes_to_rest(server.pid), "it is probed, not hammered"
    smtp_server.start()
    assert completed(api, made)["waiting"] is None
    status = api.get("/delivery/status").expect(200)
    assert (status["open"], status["obstacles"], status["queue"]["waiting"]) == (True, [], 0)


def test_a_spared_group_and_retries_are_told(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A group that asked for less, with its words; and where only retries are left, when the next one is."""
    smtp_server.rules.refuse("rcpt", "*@gmail.com", code=421, text="4.7.0 too much from you")
    smtp_server.rules.refuse("rcpt", "*@later.example", code=450, text="4.2.0 come back")
    server = start_limited(fresh_server, smtp_server, slow_down="60s", retry_after="90")
    api = server.client()
    slow = send(api, create_address_list(server, *[f"g{n}@gmail.com" for n in range(9)], "ok@fine.example"))
    found = waits(api, slow, "group")
    status = api.get("/delivery/status").expect(200)

    assert found["text"].startswith("mail to google waits until ") and found["text"].endswith("4.7.0 too much from you")
    assert 50 <= seconds_until(found["until"]) <= 60
    [group] = status["groups"]
    assert (group["group"], group["provider"], group["connections"]) == ("google", "relay", 2)
    assert status["open"] and status["obstacles"] == []
    again = send(api, create_address_list(server, "x@later.example", name="Later"))
    told = waits(api, again, "retries")
    assert 60 <= seconds_until(told["until"]) <= 110
    row = api.get("/messages", campaign_id=again["id"]).json[0]
    assert (row["attempts"], row["next_attempt_at"]) == (1, told["until"])


def test_the_status_of_an_account_is_its_own(fresh_server: FreshServer) -> None:
    """Another account sees neither the queue nor the switch; a key needs the scope."""
    server = fresh_server()
    server.client().patch("/account", {"sending_stopped": True}).expect(200)
    server.client().post("/messages", {"to": "a@b.example", "subject": "x", "body": "<p>x</p>"}).expect(201)
    other = server.client(server.new_key("other", "--account", server.cli("account", "add", "Other").stdout.strip()))

    mine, theirs = (one.get("/delivery/status").expect(200) for one in (server.client(), other))
    assert (mine["queue"]["waiting"], mine["sending_stopped"], mine["transport"]) == (1, True, "capture")
    assert (theirs["queue"]["waiting"], theirs["sending_stopped"], theirs["open"]) == (0, False, True)
    assert theirs["storage"] == {"ok": True, "text": None} and theirs["connections"]["most"] == 4
    narrow = server.client(server.new_key("narrow", "--scope", "contacts:write"))
    assert narrow.get("/delivery/status").expect(403)["required_scope"] == "account:read"
