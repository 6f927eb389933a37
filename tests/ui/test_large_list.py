"""The page of a large list does not wait for its count, and shows it once it is known."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.kit.audience_data import pseudo_random
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.bulk_contacts import insert_contacts

PEOPLE, SHARE = 60_000, 0.94


def _summary(people: int, may: int) -> re.Pattern[str]:
    return re.compile(f"^{people:,} contacts · {may:,} can receive email$")


@pytest.mark.full
def test_the_sendable_count_appears_by_itself(
    browser: Browser, fresh_server: FreshServer, browser_problems: Problems
) -> None:
    """The sendable count appears with the page or later, and is recomputed after a contact is deleted."""
    server = fresh_server()
    server.stop()
    insert_contacts(server.data / "campanero.db", PEOPLE, SHARE)
    server.start()
    sendable = sum(pseudo_random(number, 12) < SHARE for number in range(1, PEOPLE + 1))
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto("/lists/1")
    expect(page.get_by_role("heading", level=1)).to_have_text("Everybody")
    expect(page.locator("#reach")).to_have_text(_summary(PEOPLE, sendable))
    expect(page.locator("#reach[hx-trigger]")).to_have_count(0)
    server.client().delete("/contacts/1").expect(200)
    page.reload()
    expect(page.locator("#reach")).to_have_text(_summary(PEOPLE - 1, sendable - 1))
    page.context.close()
    assert not browser_problems.found
