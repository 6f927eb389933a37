"""Parsing of MTA-STS policies, their match with MX hosts (RFC 8461), and the organisation of an MX host."""

import pytest

from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.mx_routes import MtaStsPolicy, get_organisation

GOOD = "version: STSv1\nmode: enforce\nmx: mail.example.com\nmx: *.example.net\nmax_age: 604800\n"


@pytest.mark.parametrize("text", [GOOD, GOOD.replace("\n", "\r\n"), GOOD + "extra: thing\n", GOOD.upper().lower()
                                  .replace("stsv1", "STSv1")])  # fmt: skip
def test_parse_policy(text: str) -> None:
    """Lines end with LF or CRLF, and unknown keys are ignored."""
    policy = mx_routes.parse_policy("1", text.encode())
    assert policy == MtaStsPolicy("1", "enforce", ("mail.example.com", "*.example.net"), 604800)


@pytest.mark.parametrize(
    "text",
    [
        "", "\xff", GOOD.replace("STSv1", "STSv2"), GOOD.replace("enforce", "strict"), GOOD.replace("604800", "-1"),
        GOOD.replace("604800", "99999999999"), GOOD.replace("max_age", "age"), "version: STSv1\nmode: enforce\n"
        "max_age: 1", GOOD.replace("mail.example.com", "mail example"), GOOD.replace("*.example.net", "a.*.net"),
        "<html>version: STSv1</html>",
    ],
)  # fmt: skip
def test_an_invalid_policy_is_none(text: str) -> None:
    """An invalid policy is ignored as a whole."""
    assert mx_routes.parse_policy("1", text.encode("latin-1")) is None


def test_max_age_is_capped_at_a_year() -> None:
    """A longer `max_age` becomes the maximum (RFC 8461, 3.2)."""
    policy = mx_routes.parse_policy("1", GOOD.replace("604800", "9999999999").encode())
    assert policy is not None and policy.max_age == 31_557_600


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("mail.example.com", True), ("MAIL.example.com.", True), ("mx.mail.example.com", False), ("a.example.net", True),
     ("a.b.example.net", False), ("example.net", False), ("aexample.net", False), ("mail.example.com.evil.org", False)],
)  # fmt: skip
def test_policy_hosts(host: str, allowed: bool) -> None:
    """A wildcard matches exactly one leading label (RFC 8461, 4.1)."""
    assert MtaStsPolicy("1", "enforce", ("mail.example.com", "*.example.net"), 1).allows(host) is allowed


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("gmail-smtp-in.l.google.com", "google"),
        ("ASPMX.L.GOOGLE.COM.", "google"), ("aspmx2.googlemail.com", "google"),
        ("shop-example.mail.protection.outlook.com", "microsoft"), ("mx1.hotmail.com", "microsoft"),
        ("mta5.am0.yahoodns.net", "yahoo"), ("mx01.mail.icloud.com", "apple"), ("mx00.gmx.net", "gmx"),
        ("mx.bakery.co.uk", "bakery.co.uk"), ("mail.bakery.example", "bakery.example"), ("localhost", "localhost"),
        ("notgoogle.com", "notgoogle.com"), ("mx.google.com.evil.example", "evil.example"),
    ],
)  # fmt: skip
def test_organisation_of_a_mail_server(host: str, group: str) -> None:
    """The end of the host name gives a known provider or the registered domain."""
    assert get_organisation(host) == group
