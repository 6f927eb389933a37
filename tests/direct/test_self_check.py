"""What a machine that delivers itself finds out about itself: its name there and back, and whether anything answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from appliance.sending.delivery import mx_routes, smtp_connect
from appliance.settings import config
from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.dns import DnsServer
from tests.kit.world import World

NAME, BACK = "mail.bakery.example", "8.8.8.8"


@pytest.fixture
def configured(dns: DnsServer, tmp_path: Path) -> Iterator[Any]:
    """Use settings in this process; `configured(helo=...)`."""

    def use(helo: str = NAME) -> None:
        mx_routes.clear_caches()
        options = {"data_dir": str(tmp_path), "email.direct.helo": helo, "network.dns_servers": [dns.address]}
        config.set_current(config.load(options, {}).config)

    yield use
    config._current = None


def test_a_name_that_leads_back(dns: DnsServer, configured: Any) -> None:
    """Name to address and address to name: all is well."""
    dns.set(NAME, "A", BACK)
    dns.set("8.8.8.8.in-addr.arpa", "PTR", f"{NAME}.")
    configured()
    assert [found.level for found in smtp_connect.check_helo_name()] == ["ok"]


@pytest.mark.parametrize(
    ("records", "helo", "level", "words", "record"),
    [
        ({}, "localhost", "fail", "not a full host name", ""), ({}, "192.0.2.7", "fail", "not a full host name", ""),
        ({}, NAME, "fail", "has no address", f"{NAME}. A "),
        ({(NAME, "A"): BACK}, NAME, "fail", "has no name", f"8.8.8.8.in-addr.arpa. PTR {NAME}."),
        ({(NAME, "A"): BACK, ("8.8.8.8.in-addr.arpa", "PTR"): "pool-8.isp.example."}, NAME, "fail", "pool-8", "PTR"),
        ({(NAME, "A"): "10.0.0.7"}, NAME, "warn", "not a public address", ""),
    ],
)  # fmt: skip
def test_a_name_that_does_not(
    records: dict[tuple[str, str], str], helo: str, level: str, words: str, record: str, dns: DnsServer, configured: Any
) -> None:
    """What is missing is said, with the record to enter."""
    for (name, kind), value in records.items():
        dns.set(name, kind, value)
    configured(helo)
    [found] = smtp_connect.check_helo_name()
    assert found.level == level and words in found.message
    assert found.record.startswith(record) or record in found.record


def test_the_doctor_says_it(fresh_server: FreshServer) -> None:
    """Before anything is sent it is known whether mail servers can be reached, and what the own name lacks."""
    with World() as world:
        world.mail("gmail.example", "gmail.com")
        server = fresh_server(env=world.env, start=False)
        reached = server.cli("doctor", expect=1).stdout
        world.servers["gmail.example"].stop()
        blocked = server.cli("doctor", expect=1).stdout

    assert "mail servers can be reached" in reached and "has no address" in reached
    assert "mail.bakery.example. A" in reached
    assert "blocked" in blocked


def test_the_page_says_what_it_needs(browser: Browser, api: Client, browser_problems: Problems) -> None:
    """The settings show how we greet, what direct delivery needs, and that a relay may be the better way."""
    page = sign_in(new_page(browser, api.url, browser_problems))
    page.goto("/settings")
    words = page.locator("main").inner_text()
    page.context.close()

    assert "mail.bakery.example" in words and "Straight to the servers of the recipients" in words
    assert "(PTR)" in words and "relay" in words and not browser_problems.found


@pytest.mark.parametrize(("helo", "count"), [("mail.bakery.example", 0), ("", 1), ("bakery", 1), ("192.0.2.7", 1)])
def test_a_name_that_nobody_takes_is_warned_of(helo: str, count: int) -> None:
    """A start with a name that is none of the internet says so; other ways out need no name."""
    options = {"email.transport": "direct", "email.direct.helo": helo, "base_url": "http://localhost:8080"}
    warnings = config.load(options, {}).warnings

    assert len([one for one in warnings if "email.direct.helo" in one]) == count
    assert not config.load(options | {"email.transport": "capture"}, {}).warnings
