"""Accounts of the installation: limits that keep one from starving another, closing, and who may do both."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server
from tests.kit.uploads import upload, wait_for_import

OWNER = "south@example.org"


class South(NamedTuple):
    """The limited account: its id, a client with a key of it, and one of the first account."""

    server: Server
    id: str
    api: Client
    first: Client


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """Return the clock of the server of this module."""
    return TestClock(tmp_path_factory.mktemp("clock") / "clock")


@pytest.fixture(scope="module")
def server(later: TestClock) -> Iterator[Server]:
    """Yield a server with a clock that a test moves."""
    with Server(clock=later).set_up() as running:
        yield running
        running.stop()


@pytest.fixture
def south(server: Server) -> Iterator[South]:
    """Yield a new account, whose name is South, with an owner."""
    number = server.cli("account", "add", "South").stdout.strip()
    api = server.client(server.new_key("South", "--account", number), validate=False)
    api.patch("/account", {"email_from_email": "us@south.example"}).expect(200)
    yield South(server, number, api, server.client())


def set_limits(south: South, **limits: int) -> None:
    """Set limits of the account on its page, which has an effect at once."""
    operator = ScriptlessBrowser(south.server.client())
    response = operator.submit(f"/settings/accounts/{south.id}/limits", **limits)
    assert response.status == 303, response.text


def test_contacts_stop_at_the_limit(south: South) -> None:
    """The API says which limit, an import keeps what fits, and a sign-up by a form is never refused."""
    set_limits(south, contacts=2)
    for number in range(2):
        south.api.post("/contacts", {"email": f"c{number}@example.org"}).expect(201)
    error = south.api.post("/contacts", {"email": "c3@example.org"})
    assert error.status == 409
    body = error.json
    assert (body["code"], body["limit_name"], body["limit"]) == (
        "account_limit", "contacts", 2
    )  # fmt: skip
    assert body["message"] == (
        "This account has 2 of at most 2 contacts. The operator of this installation can raise the limit."
    )
    owner = f"told{south.id}@example.org"
    south.server.cli("user", "add", "--email", owner, "--account", south.id, stdin=f"{PASSWORD}\n")
    assert "This account has 2 of at most 2 contacts." in ScriptlessBrowser(south.server.client(), owner).get("/")
    south.api.post("/contacts", {"email": "c1@example.org", "first_name": "Known"}).expect(200)
    result = wait_for_import(south.api, upload(south.api, "email\nnew@example.org\n"))
    assert result["status"] == "failed" and "at most 2 contacts" in result["error"]
    number = south.api.all("/contacts")[0]["id"]
    south.api.delete(f"/contacts/{number}").expect(200)
    deadline = time.monotonic() + 5  # a deletion makes room within a second
    while south.api.post("/contacts", {"email": "c3@example.org"}).status != 201:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    south.first.post("/contacts", {"email": "first@example.org"}).expect(201)


def test_messages_stop_at_the_limit_of_the_day(south: South) -> None:
    """Single messages get 429 until the next day, a campaign to more people is blocked, and tests are not counted."""
    set_limits(south, messages_per_day=3, messages_per_month=100)
    message = {"to": "x@example.org", "subject": "s", "body": "<p>x</p>"}
    for _ in range(3):
        south.api.post("/messages", message).expect(201)
    refused = south.api.post("/messages", message)
    assert refused.status == 429 and 0 < int(refused.headers["retry-after"]) <= 86_400
    error = refused.json
    assert (error["reason"], error["limit_name"]) == ("account_limit", "messages_per_day")
    assert error["message"] == "This account has sent 3 of at most 3 messages today."
    created = south.api.post("/contacts", {"email": "y@example.org", "opt_in": True}).expect(201)
    listed = south.api.post("/lists", {"name": "All"}).expect(201)["id"]
    south.api.post(f"/lists/{listed}/contacts/bulk", {"add": [created["id"]]}).expect(200)
    campaign = south.api.post("/campaigns", {
        "name": "C", "trigger_attributes": {"contact_list_id": listed},
        "template_attributes": {"subject": "s", "body": "<p>x</p>"},
    }).expect(201)  # fmt: skip
    blocked = south.api.post(f"/campaigns/{campaign['id']}/send", {})
    assert blocked.status == 422 and blocked.json["reason"] == "account_limit", blocked.json
    south.first.post("/messages", message).expect(201)


def test_owners_are_told_at_80_and_100_per_cent(south: South, later: TestClock) -> None:
    """One email at each of the two, in plain words."""
    south.server.cli("user", "add", "--email", OWNER, "--account", south.id, stdin=f"{PASSWORD}\n")
    set_limits(south, contacts=5)

    def subjects() -> list[str]:
        rows = south.api.all("/messages", source_type="system")
        return [row["subject"] for row in rows if row["to"] == OWNER]

    assert subjects() == []
    for number in range(5):
        south.api.post("/contacts", {"email": f"t{number}@example.org"}).expect(201)
        if number == 3:
            later.advance(3_700)
            south.api.wait("/messages", lambda rows: any(row["to"] == OWNER for row in rows), source_type="system")
    later.advance(3_700)
    south.api.wait(
        "/messages", lambda rows: len([row for row in rows if row["to"] == OWNER]) == 2, source_type="system"
    )


def test_requests_imports_and_images_have_limits(south: South) -> None:
    """All keys of an account share its requests; the other limits say what is full."""
    set_limits(south, imports_at_once=0, picture_megabytes=0)
    csv = upload(south.api, "email\nnew@example.org\n").expect(409)
    assert csv["code"] == "account_limit" and "0 imports at once" in csv["message"]
    set_limits(south, requests_per_minute=10)
    statuses = [south.api.get("/lists").status for _ in range(4)]
    other = south.server.client(south.server.new_key("Second", "--account", south.id), validate=False)
    refused = other.get("/lists")
    assert 429 in [*statuses, refused.status]
    assert refused.json["reason"] == "account_limit"
    south.first.get("/lists").expect(200)


def test_only_operators_manage_accounts(south: South) -> None:
    """Owners of another account see neither the page nor other accounts; those of the first account see all."""
    south.server.cli("user", "add", "--email", f"{south.id}@example.org", "--account", south.id, stdin=f"{PASSWORD}\n")
    owner = ScriptlessBrowser(south.server.client(), f"{south.id}@example.org")
    for method, path in (
        ("GET", ""), ("POST", ""), ("GET", f"/{south.id}"), ("POST", f"/{south.id}/limits"),
        ("POST", f"/{south.id}/close"), ("POST", f"/{south.id}/reopen"), ("GET", "/1"), ("POST", "/1/limits"),
    ):  # fmt: skip
        assert owner.status(method, f"/settings/accounts{path}", name="x", contacts="1") == 403, path
    assert "/settings/accounts" not in owner.get("/settings")
    operator = ScriptlessBrowser(south.server.client())
    page = HtmlPage(operator, "/settings/accounts")
    page.fill("Account name", "Third")
    created = page.press("Add account")
    assert created.title.startswith("Third")
    assert operator.status("GET", "/settings/accounts/987654321") == 404
    closed = HtmlPage(operator, created.path).press("Close account")
    assert "This account is closed since" in closed.text
    assert "is open again" in closed.press("Reopen account").text
    bad = operator.submit(f"{created.path}/limits", contacts="many")
    assert bad.status in (409, 422)


def test_a_closed_account_is_shut_and_its_links_work(south: South) -> None:
    """Users and keys are refused, nothing is sent, and the account can be opened again."""
    email = f"closed{south.id}@example.org"
    south.server.cli("user", "add", "--email", email, "--account", south.id, stdin=f"{PASSWORD}\n")
    user, token = ScriptlessBrowser(south.server.client(), email), user_client(south.server, email)
    south.server.cli("account", "close", south.id)
    assert user.status("GET", "/lists") == 303 and token.get("/lists").status == 401
    assert south.api.get("/lists").status == 401
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        ScriptlessBrowser(south.server.client(), email).get("/lists")
    assert "closed" in next(
        line for line in south.server.cli("account", "list").stdout.splitlines() if line.startswith(f"{south.id} ")
    )
    assert south.server.cli("account", "close", "1", expect=1).stderr.startswith("campanero: ")
    south.server.cli("account", "reopen", south.id)
    account = south.api.get("/account").expect(200)
    assert account["sending_stopped"] is True and account["stop_reason"] == "closed"
    assert "this account was closed for a while" in ScriptlessBrowser(south.server.client(), email).get("/lists")


def test_limits_on_the_command_line(south: South) -> None:
    """`account limits` sets, keeps, removes and prints limits, and refuses nonsense."""
    printed = south.server.cli("account", "limits", south.id, "--contacts", "10", "--imports-at-once", "2").stdout
    assert "contacts: 10\n" in printed and "imports_at_once: 2\n" in printed
    printed = south.server.cli("account", "limits", south.id, "--contacts", "none").stdout
    assert "contacts: no limit\n" in printed and "imports_at_once: 2\n" in printed
    assert "must be a number" in south.server.cli("account", "limits", south.id, "--contacts", "x", expect=2).stderr
