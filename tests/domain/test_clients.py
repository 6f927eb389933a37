"""Whom a request comes from, and how much of that is kept (T36, docs/decisions.md#13, `ip`)."""

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
def test_only_what_a_trusted_proxy_added_is_believed(
    peer: str, forwarded: list[str], trusted: list[str], client: str
) -> None:
    """The header is read from its end, hop by hop, as long as those who wrote it are trusted."""
    assert addresses.find_client_ip(peer, forwarded, trusted) == client


def test_a_header_of_any_length_is_read_quickly() -> None:
    """What a stranger puts before is not walked through."""
    assert addresses.find_client_ip(PROXY, [f"{PROXY}," * 100_000], [PROXY]) == PROXY


@pytest.mark.parametrize(
    ("ip", "how", "kept"),
    [
        ("203.0.113.9", "full", "203.0.113.9"), ("203.0.113.9", "truncated", "203.0.113.0"),
        ("203.0.113.9", "none", None), ("2001:db8:1:2::7", "truncated", "2001:db8:1::"),
        ("2001:db8:1:2::7", "full", "2001:db8:1:2::7"), (None, "full", None), ("nobody", "full", None),
    ],
)  # fmt: skip
def test_as_much_of_an_address_is_kept_as_the_account_says(ip: str | None, how: str, kept: str | None) -> None:
    """In full, its network, or nothing; never what is no address."""
    assert addresses.anonymize_ip(ip, how) == kept


@pytest.mark.parametrize(("how", "kept"), [("truncated", "203.0.113.0"), ("full", "203.0.113.9"), ("none", None)])
def test_evidence_of_consent_follows_the_setting(how: Any, kept: str | None, home: Home) -> None:
    """What a consent row says of where it came from is what `privacy_ip` allows."""
    home.contact("ana@example.org")
    transactions.write(accounts.update, home.account_id, AccountWrite(privacy_ip=how))
    evidence = Evidence("link", "recipient", "203.0.113.9", "x" * 1000)
    transactions.write(lambda: consent.opt_out(home.channel("ana@example.org"), "recipient", evidence))
    last = Consent.select().order_by(Consent.id.desc()).get()
    assert (last.ip, len(last.user_agent)) == (kept, 400)


def test_one_line_is_one_client() -> None:
    """Of IPv6 the /64 counts, which one household has; an IPv4 address is one."""
    assert (
        addresses.client_network("2001:db8::1")
        == addresses.client_network("2001:db8::ffff:1")
        != addresses.client_network("2001:db9::1")
    )
    assert addresses.client_network("203.0.113.9") == "203.0.113.9"
