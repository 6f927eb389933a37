"""Why nothing is sent: the campaign, its page and the delivery status give the reason and the time it ends."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.journeys.test_sending import completed, create_list, send
from tests.journeys.test_sending_rates import create_address_list, start_limited
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.sampling import full_only
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import becomes_idle


def wait_for_reason(api: Client, campaign: dict[str, Any], reason: str, timeout: float = 15) -> dict[str, Any]:
    """Wait until a campaign waits for this reason, and return its `waiting`."""
    path = f"/campaigns/{campaign['id']}"
    row = api.wait(path, lambda row: (row["waiting"] or {}).get("reason") == reason, timeout)
    waiting: dict[str, Any] = row["waiting"]
    return waiting


def seconds_until(moment: str | None) -> float:
    """Return the seconds from now until a time."""
    assert moment is not None
    return datetime.fromisoformat(moment).timestamp() - time.time()


def test_waiting_for_an_hourly_limit(
    fresh_server: FreshServer, smtp_server: SmtpServer, browser: Browser, browser_problems: Problems
) -> None:
    """API, pages and status show the limit and its next opening in the account's time zone."""
    server = start_limited(fresh_server, smtp_server, rate_per_hour="5")
    api = server.client()
    api.patch("/account", {"time_zone": "Asia/Kathmandu"}).expect(200)
    started = time.time()
    campaign = send(api, create_list(api, 8))
    smtp_server.wait_for(5)
    waiting = wait_for_reason(api, campaign, "hour_limit")
    # The counts follow the log of sent messages after some tenths of a second
    status = api.wait("/delivery/status", lambda row: (row["queue"]["in_hand"], row["queue"]["waiting"]) == (0, 3))

    assert 3500 <= seconds_until(waiting["until"]) <= 3600
    local = datetime.fromtimestamp(started + 3600, ZoneInfo("Asia/Kathmandu"))
    shown = {(local + timedelta(seconds=seconds)).strftime("%H:%M") for seconds in (0, 5, 10)}
    assert waiting["text"].startswith("limit of 5 an hour, next at ") and waiting["text"][-5:] in shown
    [obstacle] = status["obstacles"]
    assert (status["open"], obstacle["code"], obstacle["until"][:16]) == (False, "hour_limit", waiting["until"][:16])
    assert status["queue"] | {"waiting": 3, "due": 3, "in_hand": 0} == status["queue"]
    assert 0 <= status["queue"]["oldest_age_seconds"] < 120 and status["queue"]["oldest_due_at"]
    assert status["rate"] == {"per_second": 0, "per_hour": 5, "last_minute": 5, "last_hour": 5}
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto(f"/campaigns/{campaign['id']}")
    expect(page.locator("#waiting")).to_contain_text("Throttled: limit of 5 an hour, next at")
    api.patch("/account", {"sending_stopped": True, "stop_reason": "prices"}).expect(200)
    # The polling part of the page updates itself
    expect(page.locator("#waiting")).to_contain_text("Waiting: sending is stopped: prices")
    page.goto("/")
    expect(page.locator("#happening")).to_contain_text("waiting: sending is stopped: prices")
    page.context.close()
    assert not browser_problems.found


def test_the_order_of_waiting_reasons(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Of several reasons the most important is shown; a draft waits for nothing."""
    server = start_limited(fresh_server, smtp_server, rate_per_second="1")
    api = server.client()
    list_id = create_list(api, 9)
    scheduled_at = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    content = {"subject": "x", "body": "<p>x</p>", "from_email": "ana@bakery.example"}
    body = {
        "trigger_attributes": {"contact_list_id": list_id},
        "template_attributes": content,
        "scheduled_at": scheduled_at,
    }
    draft = api.post("/campaigns", {"name": "x", **body}).expect(201)
    held_campaign = send(api, list_id, hold_seconds=30)
    live = send(api, list_id)

    assert draft["waiting"] is None
    scheduled = api.post(f"/campaigns/{draft['id']}/send").expect(200)
    waiting = wait_for_reason(api, scheduled, "scheduled")
    assert seconds_until(waiting["until"]) > 86_400 and ", " in waiting["text"]
    assert 0 < seconds_until(wait_for_reason(api, held_campaign, "held")["until"]) <= 30
    api.post(f"/campaigns/{live['id']}/pause").expect(200)
    assert wait_for_reason(api, live, "paused") == {"reason": "paused", "text": "paused by a user", "until": None}
    (server.data / "STOP").touch()
    assert "STOP" in wait_for_reason(api, live, "stop_file")["text"]
    api.patch("/account", {"sending_stopped": True}).expect(200)
    assert wait_for_reason(api, scheduled, "sending_stopped")["text"] == "sending is stopped by a user"
    status = api.get("/delivery/status").expect(200)
    assert [obstacle["code"] for obstacle in status["obstacles"]] == ["sending_stopped", "stop_file"]
    assert (status["open"], status["sending_stopped"], status["stop_file"]) == (False, True, True)
    assert abs(seconds_until(status["obstacles"][1]["since"])) < 60


@pytest.mark.parametrize("rate", [full_only("0"), "20"])
def test_waiting_for_an_unreachable_relay(rate: str, fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """The reason and the next attempt are shown while the relay is unreachable, and gone afterwards."""
    server = start_limited(fresh_server, smtp_server, probe_after="3s", rate_per_second=rate)
    api = server.client()
    list_id = create_list(api, 4)
    smtp_server.stop()
    campaign = send(api, list_id)
    waiting = wait_for_reason(api, campaign, "unreachable")
    [obstacle] = api.get("/delivery/status").expect(200)["obstacles"]

    assert "cannot be reached" in waiting["text"] and 0 < seconds_until(waiting["until"]) <= 3
    assert obstacle["code"] == "unreachable" and "relay" in obstacle["text"]
    assert -60 < seconds_until(obstacle["since"]) <= 0 < seconds_until(obstacle["until"])
    assert becomes_idle(server.pid), "the relay is probed too often"
    smtp_server.start()
    assert completed(api, campaign)["waiting"] is None
    status = api.get("/delivery/status").expect(200)
    assert (status["open"], status["obstacles"], status["queue"]["waiting"]) == (True, [], 0)


def test_waiting_for_a_group_and_for_retries(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A throttled group is shown with the server's text; if only retries are left, the next one is shown."""
    smtp_server.rules.reject("rcpt", "*@gmail.com", code=421, text="4.7.0 too much from you")
    smtp_server.rules.reject("rcpt", "*@later.example", code=450, text="4.2.0 come back")
    server = start_limited(fresh_server, smtp_server, slow_down="60s", retry_after="90")
    api = server.client()
    throttled_campaign = send(
        api, create_address_list(server, *[f"g{n}@gmail.com" for n in range(9)], "ok@fine.example")
    )
    waiting = wait_for_reason(api, throttled_campaign, "group")
    status = api.get("/delivery/status").expect(200)

    assert waiting["text"].startswith("email to google waits until ") and waiting["text"].endswith(
        "4.7.0 too much from you"
    )
    assert 50 <= seconds_until(waiting["until"]) <= 60
    [group] = status["groups"]
    assert (group["group"], group["provider"], group["connections"]) == ("google", "relay", 2)
    assert status["open"] and status["obstacles"] == []
    retried_campaign = send(api, create_address_list(server, "x@later.example", name="Later"))
    retries = wait_for_reason(api, retried_campaign, "retries")
    assert 60 <= seconds_until(retries["until"]) <= 110
    row = api.get("/messages", campaign_id=retried_campaign["id"]).json[0]
    assert (row["attempts"], row["next_attempt_at"]) == (1, retries["until"])


def test_the_delivery_status_of_another_account(fresh_server: FreshServer) -> None:
    """Another account sees neither the queue nor the switch; a key needs the scope."""
    server = fresh_server()
    server.client().patch("/account", {"sending_stopped": True}).expect(200)
    server.client().post("/messages", {"to": "a@b.example", "subject": "x", "body": "<p>x</p>"}).expect(201)
    other = server.client(server.new_key("other", "--account", server.cli("account", "add", "Other").stdout.strip()))

    own_status, other_status = (client.get("/delivery/status").expect(200) for client in (server.client(), other))
    assert (own_status["queue"]["waiting"], own_status["sending_stopped"], own_status["transport"]) == (
        1,
        True,
        "capture",
    )
    assert (other_status["queue"]["waiting"], other_status["sending_stopped"], other_status["open"]) == (0, False, True)
    assert other_status["storage"] == {"ok": True, "text": None} and other_status["connections"]["limit"] == 4
    narrow = server.client(server.new_key("narrow", "--scope", "contacts:write"))
    assert narrow.get("/delivery/status").expect(403)["required_scope"] == "account:read"
