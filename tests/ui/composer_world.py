"""Fixtures of the composer tests: a server with a relay, and contacts of every kind."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.kit.browser import Problems, lent_page, reuse_session
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.shared_clock import clock
from tests.kit.smtp import SmtpServer

__all__ = ["clock"]
BODY = "<h1>Hello {{ first_name | default: 'friend' }}</h1><p><a href='https://bakery.example'>Bread</a></p>"


@pytest.fixture(scope="module")
def smtp() -> Iterator[SmtpServer]:
    """The SMTP server that receives sent messages."""
    with SmtpServer() as running:
        yield running


@pytest.fixture(scope="module")
def server(smtp: SmtpServer, clock: TestClock) -> Iterator[Server]:
    """A server with a relay, contacts of every kind in three lists, and a segment."""
    with Server(relay=smtp.port, clock=clock).set_up() as running:
        api = running.client()
        api.put("/brand", {"physical_address": "4 Mill Lane"}).expect(200)
        api.patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
        lists = [api.post("/lists", {"name": name}).expect(201)["id"] for name in ("Newsletter", "Workshop", "Staff")]
        for number in range(12):
            list_ids = [lists[0]] * (number < 9) + [lists[1]] * (number > 6) + [lists[2]] * (number in (0, 8))
            body = {"email": f"p{number}@example.com", "list_ids": list_ids}
            body |= {} if number == 4 else {"first_name": f"Ann{number}"}
            api.post("/contacts", body).expect(201)
        api.post("/suppressions", {"address": "p1@example.com", "reason": "manual"}).expect(201)
        rule = {"name": "contact_first_name", "predicate": "present"}
        api.post("/segments", {"name": "With a name", "filters": [rule]}).expect(201)
        api.post("/templates", {"name": "Monthly", "subject": "News", "body": BODY}).expect(201)
        yield running


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; the test fails on any console error."""
    problems = Problems()
    with lent_page(browser, server.url, problems, width=1360) as opened:
        yield reuse_session(opened, server)
    assert not problems.found


def recipients_of(smtp: SmtpServer, subject: str) -> list[str]:
    """Return the recipients of messages with a subject."""
    return [message.to for message in list(smtp.messages) if message.subject == subject]


def draft(api: Client, name: str, **content: str) -> int:
    """Create a sendable draft to the newsletter and return its id."""
    request = {"name": name, "template_attributes": {"subject": name, "body": BODY, **content},
             "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    return int(api.post("/campaigns", request).expect(201)["id"])
