"""Two at one panel of a flow: questions, conditions and times are laid beside what others saved meanwhile."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit.browser import Problems, shoot
from tests.kit.client import Client

_DE, _FR, _SE = ([{"name": "contact_country", "predicate": "eq", "value": code}] for code in ("DE", "FR", "SE"))


@pytest.fixture
def flow(api: Client, browser_problems: Problems) -> dict[str, Any]:
    """A draft that waits and asks, for people in Germany."""
    browser_problems.allow("status of 409")
    trigger = {"event": "contact_add", "data": {"where": _DE}}
    steps = [{"duration": 86_400}, {"filters": _DE, "yes": [], "no": []}]
    return dict(api.post("/flows", {"name": "Readers", "trigger": trigger, "steps": steps}).expect(201))


def _value(page: Page) -> Any:
    return page.locator("#panel [data-filter] input[name$='.value'], #panel [data-filter] [name*='value']").last


@pytest.mark.parametrize("answer", ["Keep mine", "Use theirs"])
@pytest.mark.parametrize("where", ["split", "start"])
def test_rules_that_both_changed_are_asked_about(
    browser_page: Page, api: Client, flow: dict[str, Any], where: str, answer: str
) -> None:
    """Both stand there in words; whoever decides saves by that."""
    page, path, [wait, split] = browser_page, f"/flows/{flow['id']}", flow["steps"]

    def kept() -> Any:
        now = api.get(path).expect(200)
        return now["trigger"]["data"]["where"] if where == "start" else now["steps"][1]["filters"]

    page.goto(f"{path}?step={split['id'] if where == 'split' else 'start'}")
    theirs = {"trigger": {"event": "contact_add", "data": {"where": _FR}}} if where == "start" else {
        "steps": [wait, {**split, "filters": _FR}]
    }  # fmt: skip
    api.patch(path, theirs).expect(200)
    _value(page).fill("SE")
    page.get_by_role("button", name="Save rules" if where == "split" else "Save conditions").click()
    told = page.get_by_role("alert")
    expect(told).to_contain_text("Somebody else saved this meanwhile")
    expect(told).to_contain_text("FR")
    expect(told).to_contain_text("SE")
    assert kept() == _FR
    shoot(page, f"flow_{where}_both")
    told.get_by_role("button", name=answer).click()
    expect(told).to_have_count(0)
    assert kept() == (_SE if answer == "Keep mine" else _FR)


def test_a_step_that_saves_itself_asks_too(browser_page: Page, api: Client, flow: dict[str, Any]) -> None:
    """One's own saves are no others'; what somebody else set meanwhile is asked about, once."""
    page, path, [wait, split] = browser_page, f"/flows/{flow['id']}", flow["steps"]
    page.goto(f"{path}?step={wait['id']}")
    days = page.locator("#f-duration")
    for number in ("2", "3"):
        days.fill(number)
        api.wait(path, lambda row, number=number: row["steps"][0]["duration"] == int(number) * 86_400)
    api.patch(path, {"steps": [{**wait, "duration": 7 * 86_400}, split]}).expect(200)
    days.fill("5")
    told = page.get_by_role("alert")
    expect(told).to_contain_text("How long: theirs 1 week, yours 5 days")
    expect(page.locator("#saved-text")).to_contain_text("Not saved")
    shoot(page, "flow_step_both")
    told.get_by_role("button", name="Keep mine").click()
    api.wait(path, lambda row: row["steps"][0]["duration"] == 5 * 86_400)
    expect(told).to_have_count(0)
