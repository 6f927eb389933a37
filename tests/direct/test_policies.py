"""How a policy about encryption is read and held against a server (RFC 8461), and whose machine a mail server is."""

import pytest

from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.mx_routes import MtaStsPolicy, get_organisation

GOOD = "version: STSv1\nmode: enforce\nmx: mail.example.com\nmx: *.example.net\nmax_age: 604800\n"


@pytest.mark.parametrize("text", [GOOD, GOOD.replace("\n", "\r\n"), GOOD + "extra: thing\n", GOOD.upper().lower()
                                  .replace("stsv1", "STSv1")])  # fmt: skip
def test_a_policy_is_read(text: str) -> None:
    """Lines end either way, and what is not known is left alone."""
    found = mx_routes.parse_policy("1", text.encode())
    assert found == MtaStsPolicy("1", "enforce", ("mail.example.com", "*.example.net"), 604800)


@pytest.mark.parametrize(
    "text",
    [
        "", "\xff", GOOD.replace("STSv1", "STSv2"), GOOD.replace("enforce", "strict"), GOOD.replace("604800", "-1"),
        GOOD.replace("604800", "99999999999"), GOOD.replace("max_age", "age"), "version: STSv1\nmode: enforce\n"
        "max_age: 1", GOOD.replace("mail.example.com", "mail example"), GOOD.replace("*.example.net", "a.*.net"),
        "<html>version: STSv1</html>",
    ],
)  # fmt: skip
def test_what_is_no_policy_counts_for_nothing(text: str) -> None:
    """Whatever else stands there is none, and never half of one."""
    assert mx_routes.parse_policy("1", text.encode("latin-1")) is None


def test_a_policy_holds_a_year_at_most() -> None:
    """What asks for longer gets the most there is (3.2)."""
    found = mx_routes.parse_policy("1", GOOD.replace("604800", "9999999999").encode())
    assert found is not None and found.max_age == 31_557_600


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("mail.example.com", True), ("MAIL.example.com.", True), ("mx.mail.example.com", False), ("a.example.net", True),
     ("a.b.example.net", False), ("example.net", False), ("aexample.net", False), ("mail.example.com.evil.org", False)],
)  # fmt: skip
def test_which_servers_a_policy_names(host: str, allowed: bool) -> None:
    """A star stands for one label at the beginning and nothing else (4.1)."""
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
def test_whose_machine_a_mail_server_is(host: str, group: str) -> None:
    """By the end of its name a provider that is known, or the domain it stands in; never by a part in the middle."""
    assert get_organisation(host) == group
