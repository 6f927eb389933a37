"""Dates in the headers of HTTP responses, also those that a hostile or broken server writes."""

import pytest

from appliance.core import clock
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpResponse

SUNDAY = "Sun, 06 Nov 1994 08:49:37 GMT"
NO_TIMES = [
    "",
    "soon",
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    "Mon, 01 Jan 2026 00:00:00 +99999999999999999999",
]


def test_a_date_is_read_with_and_without_a_zone() -> None:
    """A date without a time zone is in UTC (RFC 9110, section 5.6.7)."""
    moments = {clock.parse_http_date(text) for text in (SUNDAY, "Sun, 06 Nov 1994 08:49:37 -0000")}
    assert moments == {784_111_777_000}


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_text_that_is_no_time_changes_no_outcome(text: str) -> None:
    """The response counts as one without the header: a refusal stays a refusal, with the shortest wait."""
    assert clock.parse_http_date(text) is None
    for headers in ({"retry-after": text, "date": SUNDAY}, {"retry-after": SUNDAY, "date": text}):
        assert http_client.parse_retry_after(HttpResponse(429, headers, b"")) == 1.0


def test_a_wait_until_a_date_is_counted_by_the_clock_of_the_server() -> None:
    """Our clock may be wrong."""
    headers = {"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT", "date": SUNDAY}
    assert http_client.parse_retry_after(HttpResponse(503, headers, b"")) == 30.0
