"""Where emails are composed: a server that sends for real, and people of every kind to write to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

BODY = "<h1>Hello {{ first_name | default: 'friend' }}</h1><p><a href='https://bakery.example'>Bread</a></p>"


@pytest.fixture(scope="module")
def smtp() -> Iterator[SmtpServer]:
    """Where real messages go."""
    with SmtpServer() as running:
        yield running


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """What time it is for the server."""
    return TestClock(Path(tmp_path_factory.mktemp("clock"), "offset"))


@pytest.fixture(scope="module")
def server(smtp: SmtpServer, clock: TestClock) -> Iterator[Server]:
    """A server that sends for real, with people of every kind in three lists, and a segment."""
    with Server(relay=smtp.port, clock=clock).set_up() as running:
        api = running.client()
        api.put("/brand", {"physical_address": "4 Mill Lane"}).expect(200)
        api.patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
        lists = [api.post("/lists", {"name": name}).expect(201)["id"] for name in ("Newsletter", "Workshop", "Staff")]
        for number in range(12):
            inside = [lists[0]] * (number < 9) + [lists[1]] * (number > 6) + [lists[2]] * (number in (0, 8))
            body = {"email": f"p{number}@example.com", "list_ids": inside}
            body |= {} if number == 4 else {"first_name": f"Ann{number}"}
            api.post("/contacts", body).expect(201)
        api.post("/suppressions", {"address": "p1@example.com", "reason": "manual"}).expect(201)
        rule = {"name": "contact_first_name", "predicate": "present"}
        api.post("/segments", {"name": "With a name", "filters": [rule]}).expect(201)
        api.post("/templates", {"name": "Monthly", "subject": "News", "body": BODY}).expect(201)
        yield running


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The owner at a browser, in which nothing may go wrong."""
    problems = Problems()
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


def named(smtp: SmtpServer, subject: str) -> list[str]:
    """Return to whom messages with a subject went."""
    return [one.to for one in list(smtp.messages) if one.subject == subject]


def draft(api: Client, name: str, **content: str) -> int:
    """Make a draft to the newsletter that could be sent."""
    asked = {"name": name, "template_attributes": {"subject": name, "body": BODY, **content},
             "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    return int(api.post("/campaigns", asked).expect(201)["id"])
