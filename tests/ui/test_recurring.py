"""Repeating campaigns and UTM parameters on their pages."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.shared_clock import clock

__all__ = ["clock"]
BODY = '<p><a href="https://shop.example/a">Shop</a></p>'


@pytest.fixture(scope="module")
def server(clock: TestClock) -> Iterator[Server]:
    """Yield a server with the built-in inbox and one list."""
    with Server(clock=clock).set_up() as running:
        api = running.client()
        list_id = api.post("/lists", {"name": "Readers"}).expect(201)["id"]
        api.post("/contacts", {"email": "reader@example.org", "list_ids": [list_id]}).expect(201)
        yield running
        running.stop()


def create_draft(api: Client, name: str) -> str:
    """Return the path of a draft that can be sent."""
    body = {"name": name, "template_attributes": {"subject": name, "body": BODY},
            "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    return f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"


def test_the_choice_repeat_and_its_dates(api: Client, clock: TestClock) -> None:
    """The card shows the next three dates, the page of the series its past ones, and each copy the series."""
    user = ScriptlessBrowser(api)  # an earlier session has expired if the clock was moved
    path = create_draft(api, "Weekly")
    user.post(f"{path}/when", when="repeat")
    page = HtmlPage(user, f"{path}?open=when")
    card = text_of(page.one("#card-when"))
    assert "Every week on Monday at 09:00" in card and card.count("Mon") >= 3 and "Next dates:" in card
    assert api.get(path).expect(200)["repeat"]["weekdays"] == ["mon"]
    assert "Select at least one day" in user.submit(f"{path}/when", when="repeat", every="week", shown="week").text
    for form, sentence in (
        ({"every": "month_week", "week_of_month": "last", "weekday": "fri"}, "Every month on the last Friday at 09:00"),
        ({"every": "month_day", "day_of_month": "31", "hour": "18:30"}, "Every month on day 31 at 18:30"),
        ({"every": "day", "hour": "08:15", "changed": "yes"}, "Every day at 08:15"),
    ):
        assert sentence in user.post(f"{path}/when", when="repeat", **form)
    assert "must be after the next date" in user.submit(
        f"{path}/when", when="repeat", every="day", until="2001-01-01"
    ).text.replace("Must", "must")
    user.post(f"{path}/when", when="repeat", every="day", hour="08:15", changed="yes", until="2099-12-31")
    assert api.get(path).expect(200)["repeat"]["ends_at"] == "2099-12-31T23:59:00.000Z"
    api.post(f"{path}/send").expect(200)
    page = HtmlPage(user, path)
    assert "Every day at 08:15" in text_of(page.one("#series")) and not page.all("a", "Send now")
    now = datetime.fromtimestamp(clock.now(), UTC)
    due = now.replace(hour=8, minute=15, second=0)
    due += timedelta(days=due <= now)
    clock.advance((due - now).total_seconds() + 60)  # not hours later, when the date would be missed
    [occurrence] = api.wait(f"{path}/occurrences", bool)
    api.wait(f"/campaigns/{occurrence['campaign_id']}", lambda row: row["status"] == "completed")
    clock.advance(days=1)
    api.wait(f"{path}/occurrences", lambda rows: len(rows) == 2)
    user = ScriptlessBrowser(api)  # the session has expired meanwhile
    page = HtmlPage(user, path)
    assert page.has("#series", "Skipped: the content was not changed") and page.has("#series td", "1 sent")
    copy = page.follow(page.one("#series td a"))
    assert copy.has("#figures", "Sent at one of the dates of Weekly")
    paused = HtmlPage(user, path).press("Pause")
    assert paused.has(".banner", "Paused") and paused.has("#series", "Every day at 08:15")
    user.post(f"{path}/resume")
    user.post(f"{path}/undo")
    user.post(f"{path}/when", when="now")
    assert api.get(path).expect(200)["repeat"] is None


def test_the_card_stores_one_of_four_choices(api: Client, clock: TestClock) -> None:
    """Each choice replaces the one before; a repetition or a local time without a date begins tomorrow."""
    user = ScriptlessBrowser(api)  # an earlier session has expired if the clock was moved
    path = create_draft(api, "Choices")
    tomorrow = datetime.fromtimestamp(clock.now() + 86_400, UTC).strftime("%Y-%m-%d")

    def list_stored() -> list[bool]:
        row = api.get(path).expect(200)
        return [row[name] is not None for name in ("scheduled_at", "local_time", "repeat")]

    expected = {"now": [False, False, False], "later": [True, False, False], "local": [True, True, False],
                "repeat": [True, False, True]}  # fmt: skip
    labels = {"now": "Send immediately", "later": "Schedule for later", "local": "Schedule by local time",
              "repeat": "Repeat"}  # fmt: skip
    for choice in ("repeat", "later", "repeat", "local", "repeat", "now", "local", "later", "now"):
        user.post(f"{path}/when", when=choice)
        assert list_stored() == expected[choice], choice
        page = HtmlPage(user, f"{path}?open=when")
        assert [label for label in labels.values() if page.is_checked(label)] == [labels[choice]]
    user.post(f"{path}/when", when="repeat")
    user.post(f"{path}/when", when="local")
    assert api.get(path).expect(200)["local_time"][:10] >= tomorrow


def test_utm_parameters_of_account_and_campaign(api: Client) -> None:
    """Settings are checked at their fields; the campaign replaces them, and its preview has the final links."""
    user = ScriptlessBrowser(api)  # an earlier session has expired if the clock was moved
    page = HtmlPage(user, "/settings/consent")
    page.fill("utm_source", "{{ first_name }}")
    page = page.press("Save")
    assert "not a field of UTM parameters" in text_of(page.one("#f-utm-source-err"))
    page.fill("utm_source", "news")
    page.fill("utm_campaign", "{{ campaign.name }}")
    assert page.press("Save").has(".toast", "Saved")
    assert api.get("/account").expect(200)["utm"]["campaign"] == "{{ campaign.name }}"
    path = create_draft(api, "Big Sale")
    assert "utm_source=news&amp;utm_campaign=big-sale" in user.get(f"{path}/preview")
    user.post(f"{path}/content", utm="own", utm_term="x y")
    assert "https://shop.example/a?utm_term=x y" in unquote(user.get(f"{path}/preview"))
    assert 'value="x y"' in user.get(f"{path}?open=content")
    user.post(f"{path}/content", utm="none")
    assert api.get(path).expect(200)["utm"] == dict.fromkeys(("source", "medium", "campaign", "term", "content"))
    assert "utm_" not in user.get(f"{path}/preview")
    user.post(f"{path}/content", utm="account")
    assert api.get(path).expect(200)["utm"] is None
