"""Edit conflicts in the panels of a flow: rules, conditions and times."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit.browser import Problems, choose_option, save_screenshot
from tests.kit.client import Client

_DE, _FR, _SE = ([{"name": "contact_country", "predicate": "eq", "value": code}] for code in ("DE", "FR", "SE"))


@pytest.fixture
def flow(api: Client, browser_problems: Problems) -> dict[str, Any]:
    """A draft flow with a wait and a split, for contacts in Germany."""
    browser_problems.allow("status of 409")
    trigger = {"event": "contact_add", "data": {"where": _DE}}
    steps = [{"duration": 86_400}, {"filters": _DE, "yes": [], "no": []}]
    return dict(api.post("/flows", {"name": "Readers", "trigger": trigger, "steps": steps}).expect(201))


def _value(page: Page) -> Any:
    return page.locator("#panel [data-filter] input[name$='.value'], #panel [data-filter] [name*='value']").last


@pytest.mark.full
@pytest.mark.parametrize("choice", ["Keep mine", "Use theirs"])
@pytest.mark.parametrize("where", ["split", "start"])
def test_a_conflict_of_rules(browser_page: Page, api: Client, flow: dict[str, Any], where: str, choice: str) -> None:
    """Both rules are shown, nothing is saved until the user chooses, and the choice is saved."""
    page, path, [wait, split] = browser_page, f"/flows/{flow['id']}", flow["steps"]

    def stored_rules() -> Any:
        flow_now = api.get(path).expect(200)
        return flow_now["trigger"]["data"]["where"] if where == "start" else flow_now["steps"][1]["filters"]

    page.goto(f"{path}?step={split['id'] if where == 'split' else 'start'}")
    theirs = {"trigger": {"event": "contact_add", "data": {"where": _FR}}} if where == "start" else {
        "steps": [wait, {**split, "filters": _FR}]
    }  # fmt: skip
    api.patch(path, theirs).expect(200)
    choose_option(page, "Value", "Sweden")
    page.get_by_role("button", name="Save conditions").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Someone else saved changes while you were editing")
    expect(alert).to_contain_text("France")
    expect(alert).to_contain_text("Sweden")
    assert stored_rules() == _FR
    save_screenshot(page, f"flow_{where}_both")
    alert.get_by_role("button", name=choice).click()
    expect(alert).to_have_count(0)
    assert stored_rules() == (_SE if choice == "Keep mine" else _FR)


@pytest.mark.full
def test_a_conflict_of_a_step_with_autosave(browser_page: Page, api: Client, flow: dict[str, Any]) -> None:
    """The user's own autosaves cause no conflict; another user's change does."""
    page, path, [wait, split] = browser_page, f"/flows/{flow['id']}", flow["steps"]
    page.goto(f"{path}?step={wait['id']}")
    days = page.locator("#f-duration")
    for number in ("2", "3"):
        days.fill(number)
        api.wait(path, lambda row, number=number: row["steps"][0]["duration"] == int(number) * 86_400)
    api.patch(path, {"steps": [{**wait, "duration": 7 * 86_400}, split]}).expect(200)
    days.fill("5")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Duration: theirs 7 days, yours 5 days")
    expect(page.locator("#saved-text")).to_contain_text("Not saved")
    save_screenshot(page, "flow_step_both")
    alert.get_by_role("button", name="Keep mine").click()
    api.wait(path, lambda row: row["steps"][0]["duration"] == 5 * 86_400)
    expect(alert).to_have_count(0)
