"""The client's IP address behind proxies, and how much of it is stored (T36, docs/decisions.md#13, `ip`)."""

from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.accounts.accounts import AccountWrite
from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.core import addresses
from appliance.storage import transactions
from appliance.storage.models import Consent
from tests.domain.home import Home

PROXY, OTHER = "10.0.0.1", "10.0.0.2"


@pytest.mark.parametrize(
    ("peer", "forwarded", "trusted", "client"),
    [
        ("198.51.100.7", ["203.0.113.9"], [], "198.51.100.7"),
        ("198.51.100.7", ["203.0.113.9"], [PROXY], "198.51.100.7"),
        (PROXY, [], [PROXY], PROXY),
        (PROXY, ["203.0.113.9"], [PROXY], "203.0.113.9"),
        (PROXY, ["203.0.113.9"], ["10.0.0.0/8"], "203.0.113.9"),
        (PROXY, ["1.1.1.1, 203.0.113.9"], [PROXY], "203.0.113.9"),
        (PROXY, ["1.1.1.1", "203.0.113.9"], [PROXY], "203.0.113.9"),
        (PROXY, [f"1.1.1.1, 203.0.113.9, {OTHER}"], [PROXY, OTHER], "203.0.113.9"),
        (PROXY, [f"{OTHER}"], ["10.0.0.0/8"], OTHER),
        (PROXY, ["203.0.113.9:4711"], [PROXY], "203.0.113.9"),
        (PROXY, ['"[2001:db8::7]:4711"'], [PROXY], "2001:db8::7"),
        (PROXY, ["unknown"], [PROXY], PROXY),
        (PROXY, ["203.0.113.9, garbage"], [PROXY], PROXY),
        ("::ffff:10.0.0.1", ["203.0.113.9"], [PROXY], "203.0.113.9"),
        ("::1", ["203.0.113.9"], ["::1"], "203.0.113.9"),
    ],
)
def test_only_hops_added_by_trusted_proxies_count(
    peer: str, forwarded: list[str], trusted: list[str], client: str
) -> None:
    """X-Forwarded-For is read from its end as long as the hop that added the entry is trusted."""
    assert addresses.find_client_ip(peer, forwarded, trusted) == client


def test_a_very_long_forwarded_header_is_read() -> None:
    """An X-Forwarded-For header of 100,000 hops, all of the proxy, gives the proxy's address."""
    assert addresses.find_client_ip(PROXY, [f"{PROXY}," * 100_000], [PROXY]) == PROXY


@pytest.mark.parametrize(
    ("ip", "setting", "expected"),
    [
        ("203.0.113.9", "full", "203.0.113.9"), ("203.0.113.9", "truncated", "203.0.113.0"),
        ("203.0.113.9", "none", None), ("2001:db8:1:2::7", "truncated", "2001:db8:1::"),
        ("2001:db8:1:2::7", "full", "2001:db8:1:2::7"), (None, "full", None), ("nobody", "full", None),
    ],
)  # fmt: skip
def test_anonymize_ip_by_the_account_setting(ip: str | None, setting: str, expected: str | None) -> None:
    """An IP address is stored in full, as its network, or not at all; an invalid address is never stored."""
    assert addresses.anonymize_ip(ip, setting) == expected


@pytest.mark.parametrize(
    ("setting", "expected"), [("truncated", "203.0.113.0"), ("full", "203.0.113.9"), ("none", None)]
)
def test_consent_evidence_follows_privacy_ip(setting: Any, expected: str | None, home: Home) -> None:
    """The IP address in a consent row is reduced as `privacy_ip` says; the user agent is cut to 400 characters."""
    home.contact("ana@example.org")
    transactions.write(accounts.update, home.account_id, AccountWrite(privacy_ip=setting))
    evidence = Evidence("link", "recipient", "203.0.113.9", "x" * 1000)
    transactions.write(lambda: consent.opt_out(home.channel("ana@example.org"), "recipient", evidence))
    last = Consent.select().order_by(Consent.id.desc()).get()
    assert (last.ip, len(last.user_agent)) == (expected, 400)


def test_client_network_of_ip_addresses() -> None:
    """IPv6 addresses of one /64 are one client; an IPv4 address is its own."""
    assert (
        addresses.client_network("2001:db8::1")
        == addresses.client_network("2001:db8::ffff:1")
        != addresses.client_network("2001:db9::1")
    )
    assert addresses.client_network("203.0.113.9") == "203.0.113.9"
