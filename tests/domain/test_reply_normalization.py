"""Replies of servers are normalized: parts specific to one recipient are removed."""

import pytest

from appliance.campaigns import report

GOOGLE = "550-5.1.1 does not exist. https://support.google.com/mail/?p=NoSuchUser"


@pytest.mark.parametrize(
    ("reply", "expected"),
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
def test_normalize_reply(reply: str | None, expected: str | None) -> None:
    """Recipients, queue ids and timestamps become an ellipsis; hosts, codes and sender IPs stay."""
    assert report.normalize_reply(reply) == expected


def test_normalize_reply_accepts_long_repetitions() -> None:
    """A reply of 1,000 repetitions that almost match a pattern is normalized too."""
    for piece in ("a", "1a", "a.", "@", "<a@", "A1", "-"):
        assert report.normalize_reply(piece * 1000) is not None
