"""Self-checks of direct delivery: forward and reverse DNS of the HELO name, and whether port 25 is open."""

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
from tests.kit.mail_network import MailNetwork

NAME, ADDRESS = "mail.bakery.example", "8.8.8.8"


@pytest.fixture
def configured(dns: DnsServer, tmp_path: Path) -> Iterator[Any]:
    """Use settings in this process: `configured(helo=...)`."""

    def use(helo: str = NAME) -> None:
        mx_routes._routes.clear()
        mx_routes._addresses.clear()
        options = {"data_dir": str(tmp_path), "email.direct.helo": helo, "network.dns_servers": [dns.address]}
        config.set_current(config.load(options, {}).config)

    yield use
    config._current = None


def test_a_helo_name_with_reverse_dns(dns: DnsServer, configured: Any) -> None:
    """A name with an address whose PTR record leads back to it is ok."""
    dns.set(NAME, "A", ADDRESS)
    dns.set("8.8.8.8.in-addr.arpa", "PTR", f"{NAME}.")
    configured()
    assert [finding.level for finding in smtp_connect.check_helo_name()] == ["ok"]


@pytest.mark.parametrize(
    ("records", "helo", "level", "message", "record"),
    [
        ({}, "localhost", "fail", "not a full host name", ""), ({}, "192.0.2.7", "fail", "not a full host name", ""),
        ({}, NAME, "fail", "has no address", f"{NAME}. A "),
        ({(NAME, "A"): ADDRESS}, NAME, "fail", "has no name", f"8.8.8.8.in-addr.arpa. PTR {NAME}."),
        ({(NAME, "A"): ADDRESS, ("8.8.8.8.in-addr.arpa", "PTR"): "pool-8.isp.example."}, NAME, "fail", "pool-8", "PTR"),
        ({(NAME, "A"): "10.0.0.7"}, NAME, "warn", "not a public address", ""),
    ],
)  # fmt: skip
def test_helo_name_faults(
    records: dict[tuple[str, str], str],
    helo: str,
    level: str,
    message: str,
    record: str,
    dns: DnsServer,
    configured: Any,
) -> None:
    """Each fault is reported with the DNS record to add."""
    for (name, kind), value in records.items():
        dns.set(name, kind, value)
    configured(helo)
    [finding] = smtp_connect.check_helo_name()
    assert finding.level == level and message in finding.message
    assert finding.record.startswith(record) or record in finding.record


def test_the_doctor_checks_direct_delivery(fresh_server: FreshServer) -> None:
    """`doctor` reports whether mail servers can be reached and what the HELO name lacks."""
    with MailNetwork() as world:
        world.mail("gmail.example", "gmail.com")
        server = fresh_server(env=world.env, start=False)
        reached = server.cli("doctor", expect=1).stdout
        world.servers["gmail.example"].stop()
        blocked = server.cli("doctor", expect=1).stdout

    assert "mail servers can be reached" in reached and "has no address" in reached
    assert "mail.bakery.example. A" in reached
    assert "blocked" in blocked


def test_the_settings_page_explains_direct_delivery(browser: Browser, api: Client, browser_problems: Problems) -> None:
    """The settings page shows the HELO name, the required PTR record, and that a relay may be better."""
    page = sign_in(new_page(browser, api.url, browser_problems))
    page.goto("/settings")
    text = page.locator("main").inner_text()
    page.context.close()

    assert "mail.bakery.example" in text and "Direct sending (no relay)" in text
    assert "(PTR)" in text and "relay" in text and not browser_problems.found


@pytest.mark.parametrize(("helo", "count"), [("mail.bakery.example", 0), ("", 1), ("bakery", 1), ("192.0.2.7", 1)])
def test_an_invalid_helo_name_is_warned_about(helo: str, count: int) -> None:
    """A HELO name that is not a full host name causes a warning with direct delivery, and none otherwise."""
    options = {"email.transport": "direct", "email.direct.helo": helo, "base_url": "http://localhost:8080"}
    warnings = config.load(options, {}).warnings

    assert len([warning for warning in warnings if "email.direct.helo" in warning]) == count
    assert not config.load(options | {"email.transport": "capture"}, {}).warnings
