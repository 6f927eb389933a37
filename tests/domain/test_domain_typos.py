"""Typos in the domains of email addresses: what is suggested, and what is left alone."""

import pytest

from appliance.core.domain_typos import KNOWN_DOMAINS, list_typos, suggest_address, suggest_domain


@pytest.mark.parametrize(
    ("domain", "suggestion"),
    [("gmail.con", "gmail.com"), ("gmial.com", "gmail.com"), ("gmai.com", "gmail.com"), ("gmaill.com", "gmail.com"),
     ("gmail.co", "gmail.com"), ("gmail.om", "gmail.com"), ("hotmial.com", "hotmail.com"), ("yaho.com", "yahoo.com"),
     ("outlok.com", "outlook.com"), ("iclod.com", "icloud.com"), ("gmx.dee", "gmx.de"), ("web.d", "web.de"),
     ("t-onlin.de", "t-online.de"), ("ornage.fr", "orange.fr"), ("GMAIL.CON", "gmail.com"),
     ("hotmail.co.k", "hotmail.co.uk"),
     ("gmailcom", None), ("gmail..com", None), ("gmail.com", None), ("example.org", None), ("fernmail.example", None)],
)  # fmt: skip
def test_a_typo_has_a_suggestion(domain: str, suggestion: str | None) -> None:
    """One letter missing, too many, wrong or swapped leads to the well-known domain; the local part stays."""
    assert suggest_domain(f"ann@{domain}") == suggestion
    assert suggest_address(f"Ann.Lee+x@{domain}") == (suggestion and f"Ann.Lee+x@{suggestion}")


@pytest.mark.parametrize(
    "domain",
    ["mail.com", "ymail.com", "email.com", "cloud.com", "yahoo.dk", "yahoo.se", "yahoo.in", "hotmail.gr", "outlook.dk",
     "gmx.fr", "gmx.us", "wob.de", "aon.com", "love.com", "mon.com", "googlemail.com", "live.nl", "", "com"],
)  # fmt: skip
def test_a_domain_that_exists_has_none(domain: str) -> None:
    """Other providers, short names and the same provider in another country are no typos."""
    assert suggest_domain(f"ann@{domain}") is None


def test_no_known_domain_is_a_typo_of_another() -> None:
    """Each typo leads to a known domain, and none of these is a typo."""
    assert not set(KNOWN_DOMAINS) & set(list_typos()) and set(list_typos().values()) == set(KNOWN_DOMAINS)
