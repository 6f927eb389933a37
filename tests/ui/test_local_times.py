"""Sending at a local time in the composer, its review, the page of a scheduled campaign, and the report."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.shared_clock import clock

__all__ = ["clock"]
ZONES = ("Asia/Tokyo", "Europe/Berlin", "America/New_York", "America/Los_Angeles")
CONTENT = {"subject": "World", "body": "<p>Hi</p>"}


@pytest.fixture(scope="module")
def server(clock: TestClock) -> Iterator[Server]:
    """Yield a server with contacts in four time zones and one whose zone is unknown."""
    with Server(clock=clock).set_up() as running:
        api = running.client()
        api.patch("/account", {"time_zone": "Europe/Lisbon", "email_from_email": "ana@bakery.example"}).expect(200)
        api.put("/brand", {"physical_address": "4 Mill Lane"}).expect(200)
        list_id = api.post("/lists", {"name": "World"}).expect(201)["id"]
        for zone in ZONES:
            body = {"email": f"{zone[-3:].lower()}@example.org", "data": {"time_zone": zone}, "list_ids": [list_id]}
            api.post("/contacts", body).expect(201)
        api.post("/contacts", {"email": "unknown@example.org", "list_ids": [list_id]}).expect(201)
        yield running
        running.stop()


def draft(api: Client, **attributes: str) -> int:
    """Create a sendable draft and return its id."""
    body = {"name": "World", "template_attributes": CONTENT, "trigger_attributes": {"contact_list_id": 1}, **attributes}
    return int(api.post("/campaigns", body).expect(201)["id"])


def test_from_the_composer_to_the_schedule(api: Client) -> None:
    """The card says when the first and the last leave and where the zones come from; the schedule can be moved."""
    campaign_id, browser = draft(api), ScriptlessBrowser(api)
    page = HtmlPage(browser, f"/campaigns/{campaign_id}?open=when")
    page.check("Schedule by local time")
    page.fill("Date", "2031-12-01")
    page.fill("Time", "09:00")
    card = page.press(page.one("#card-when form button"))
    assert api.get(f"/campaigns/{campaign_id}").json["local_time"] == "2031-12-01T09:00"
    text = card.one("#card-when")
    shown = " ".join("".join(text.itertext()).split())
    assert "The first contacts get it 1 Dec 2031, 00:00, the last 1 Dec 2031, 17:00" in shown
    assert "custom field “time_zone”: 4 · unknown, so your account’s time zone: 1" in shown

    review = HtmlPage(browser, f"/campaigns/{campaign_id}/send")
    assert "1 Dec 2031, 09:00 on the clock of each contact" in review.text
    scheduled = review.press("Schedule for 5 contacts")
    assert "Scheduled for 1 Dec 2031, 09:00, local time" in scheduled.text
    assert api.get(f"/campaigns/{campaign_id}").json["scheduled_at"] == "2031-11-30T19:00:00.000Z"

    moving = HtmlPage(browser, f"/campaigns/{campaign_id}/reschedule")
    assert moving.value("Date") == "2031-12-01"
    moving.fill("Date", "2031-12-02")
    moved = moving.press("Reschedule")
    assert "Scheduled for 2 Dec 2031, 09:00 on the clock of each contact." in moved.text
    assert api.get(f"/campaigns/{campaign_id}").json["local_time"] == "2031-12-02T09:00"
    late = HtmlPage(browser, f"/campaigns/{campaign_id}/reschedule")
    late.fill("Date", "2020-01-01")
    assert "This time has passed in every time zone." in late.press("Reschedule").text
    now = HtmlPage(browser, f"/campaigns/{campaign_id}/send?now=yes")
    assert "on the clock of each contact" not in now.text
    api.delete(f"/campaigns/{campaign_id}")


def test_the_report_says_where_it_waits(api: Client, clock: TestClock) -> None:
    """The report counts contacts and open messages by time; the banner says when the next zone gets it."""
    today = datetime.fromtimestamp(clock.now(), UTC)
    clock.advance((today.replace(hour=12, minute=0, second=0) - today).total_seconds())
    campaign_id = draft(api, local_time=f"{today:%Y-%m-%d}T08:30")
    page = HtmlPage(ScriptlessBrowser(api), f"/campaigns/{campaign_id}/send")
    assert "The time has passed for 2 contacts, who get it at once." in page.text
    assert "It passed long ago for 1 contact, who gets it a day later." in page.text
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    waiting = api.wait(f"/campaigns/{campaign_id}", lambda row: row["sent_count"] == 2, 20)
    assert waiting["waiting"]["reason"] == "local_time"
    report = HtmlPage(ScriptlessBrowser(api), f"/campaigns/{campaign_id}")
    counts = [text_of(cell) for cell in report.all("#local-times td.num")]
    assert counts == ["2", "0", "1", "1", "1", "1", "1", "1"]
    assert "It waits for 3 contacts, in New York and later." in report.text
    assert "The next time zone gets it at 13:30." in report.text


def test_the_page_of_a_contact_names_the_zone_and_its_source(api: Client) -> None:
    """The source is shown, so that a wrong zone can be corrected where it comes from."""
    browser = ScriptlessBrowser(api)
    assert "from: custom field “time_zone”" in HtmlPage(browser, "/contacts/1").text
    assert "from: unknown, so your account’s time zone" in HtmlPage(browser, "/contacts/5").text


def test_the_calendar_of_the_account(api: Client) -> None:
    """The settings store days, hours and holidays; all errors are shown at once; empty fields switch it off."""
    page = HtmlPage(ScriptlessBrowser(api), "/settings/consent")
    page.fill("Earliest time", "17:00")
    page.fill("Holidays", "2031-12-25\nsoon")
    missing = page.press("Save")
    assert "Write dates like 2026-12-25, one per line." in missing.text
    for day in ("Mon", "Fri"):
        missing.check(day)
    missing.fill("Latest time", "00:00")
    missing.fill("Holidays", "2031-12-25")
    saved = missing.press("Save")
    assert api.get("/account").json["marketing_calendar"] == {
        "days": ["mon", "fri"], "from": "17:00", "to": "24:00", "holidays": ["2031-12-25"],
    }  # fmt: skip
    composer = HtmlPage(ScriptlessBrowser(api), f"/campaigns/{draft(api)}?open=when")
    assert "from 17:00 to 24:00 in each recipient’s time zone. Emails at other times wait." in composer.text
    review = HtmlPage(ScriptlessBrowser(api), f"/campaigns/{draft(api)}/send")
    held = review.one("#held")
    assert "contacts get it later, when it is allowed in their time zone: the last" in " ".join(
        "".join(held.itertext()).split()
    )
    api.patch("/account", {"marketing_calendar": None}).expect(200)
    assert saved.value("Latest time") == "00:00"
    only_a_holiday = HtmlPage(ScriptlessBrowser(api), "/settings/consent")
    only_a_holiday.fill("Holidays", "2031-12-25")
    only_a_holiday.press("Save")
    assert api.get("/account").json["marketing_calendar"] == {
        "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
        "from": "00:00", "to": "24:00", "holidays": ["2031-12-25"],
    }  # fmt: skip
    api.patch("/account", {"marketing_calendar": None}).expect(200)


def test_the_best_hour_from_the_composer_to_the_schedule(api: Client) -> None:
    """The card asks for a day and two hours, and says how many contacts get it at which hour."""
    campaign_id, browser = draft(api), ScriptlessBrowser(api)
    page = HtmlPage(browser, f"/campaigns/{campaign_id}?open=when")
    page.check("Schedule by best hour")
    card = page.press(page.one("#card-when form button"))
    saved = api.get(f"/campaigns/{campaign_id}").json
    assert (saved["local_time"][-6:], saved["best_hour_until"]) == ("T08:00", 20)
    card.fill("Date", "2031-12-01")
    card.fill("From", "09:00")
    card.fill("Until", "09:00")
    wrong = card.press(card.one("#card-when form button"))
    assert "Select an hour after the first one." in wrong.text
    wrong.fill("Until", "24:00")
    right = wrong.press(wrong.one("#card-when form button"))
    saved = api.get(f"/campaigns/{campaign_id}").json
    assert (saved["local_time"], saved["best_hour_until"]) == ("2031-12-01T09:00", 24)
    assert "Contacts by hour: 09:00: 5" in right.text
    review = HtmlPage(browser, f"/campaigns/{campaign_id}/send")
    assert "1 Dec 2031, 09:00–24:00 at the best hour on the clock of each contact" in review.text
    scheduled = review.press("Schedule for 5 contacts")
    assert "Scheduled for 1 Dec 2031, 09:00–24:00 at the best hour" in scheduled.text
    moving = HtmlPage(browser, f"/campaigns/{campaign_id}/reschedule")
    moving.fill("Date", "2031-12-02")
    moving.press("Reschedule")
    moved = api.get(f"/campaigns/{campaign_id}").json
    assert (moved["local_time"], moved["best_hour_until"]) == ("2031-12-02T09:00", 24)
    api.delete(f"/campaigns/{campaign_id}")
