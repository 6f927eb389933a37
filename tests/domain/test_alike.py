"""What servers say to one recipient alone is left out of their words, and nothing else."""

import pytest

from appliance.campaigns import report

GOOGLE = "550-5.1.1 does not exist. https://support.google.com/mail/?p=NoSuchUser"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("550 5.1.1 <b.b+x@example.org>: User unknown", "550 5.1.1 …: User unknown"),
        (f"{GOOGLE} a640c23a62f3a-aa5ec9ff7b8si1234.456 - gsmtp", f"{GOOGLE} … - gsmtp"),
        ("421 try later 2026-11-20T10:00:00Z 4FGH123JK90", "421 try later … …"),
        ("554 [192.0.2.1] blocked using zen.spamhaus.org", "554 [192.0.2.1] blocked using zen.spamhaus.org"),
        ("421 mx1.host25-abc.example.net  is\r\nbusy", "421 mx1.host25-abc.example.net is busy"),
        ("21211 The 'To' number +15005550001 is not valid", "21211 The 'To' number … is not valid"),
        (None, None),
    ],
)
def test_words_are_those_for_everybody(said: str | None, kept: str | None) -> None:
    """Addresses, names in a queue and moments go; hosts, codes and addresses of ours stay."""
    assert report.normalize_reply(said) == kept


def test_hostile_words_cost_no_more() -> None:
    """A thousand signs that almost fit are looked through at once."""
    for sign in ("a", "1a", "a.", "@", "<a@", "A1", "-"):
        assert report.normalize_reply(sign * 1000) is not None
