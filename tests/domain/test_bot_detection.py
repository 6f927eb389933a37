"""Bot detection: by user agent, time of the request, and other requests of the same client."""

import pytest

from appliance.tracking import bot_detection
from appliance.tracking.bot_detection import ObservedHit

SENT = 1_000_000
LATER = SENT + 60_000
CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36"
PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 "
    "Mobile/15E148 Safari/604.1"
)
GMAIL = "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"


def click(
    at: int, number: int, method: str = "GET", agent: str | None = CHROME, ip: str | None = "192.0.2.0"
) -> ObservedHit:
    """Return a click `at` milliseconds after the first minute."""
    return ObservedHit(LATER + at, "click", number, method, ip, agent)


def open_hit(at: int = 0, agent: str | None = CHROME) -> ObservedHit:
    """Return an open."""
    return ObservedHit(LATER + at, "open", None, "GET", "192.0.2.0", agent)


def judge(hits: list[ObservedHit], links: int = 8, sent_at: int | None = SENT) -> list[str]:
    """Return the verdicts with their reasons."""
    return [
        f"{verdict.verdict} {verdict.reason or ''}".strip()
        for verdict in bot_detection.judge_hits(hits, sent_at, links)
    ]


@pytest.mark.parametrize(
    ("hit", "verdict"),
    [
        (click(0, 1), "human"), (click(0, 1, agent=PHONE), "human"), (open_hit(), "human"),
        (click(0, 1, "HEAD"), "machine head"), (click(0, 1, "PREFETCH"), "machine prefetch"),
        (click(0, 1, agent=None), "machine bare_agent"), (click(0, 1, agent="curl/8.5"), "machine bare_agent"),
        (click(0, 1, agent="python-requests/2.32"), "machine bare_agent"),
        (click(0, 1, agent="Mozilla/5.0 (compatible; Barracuda Sentinel)"), "machine scanner_agent"),
        (click(0, 1, agent="Mozilla/5.0 (X11) HeadlessChrome/126.0"), "machine scanner_agent"),
        # Phones that fetch a preview of the page in an SMS
        (click(0, 1, agent="Mozilla/5.0 (X11) Google (+https://developers.google.com/+/web/snippet/)"),
         "machine scanner_agent"),
        (click(0, 1, agent="Mozilla/5.0 Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0"),
         "machine scanner_agent"),
        (click(0, 1, agent="Mozilla/5.0"), "machine bare_agent"),
        (open_hit(agent="Mozilla/5.0"), "machine apple_prefetch"),
        (open_hit(agent=GMAIL), "unsure image_proxy"), (click(0, 1, agent=GMAIL), "machine scanner_agent"),
        (open_hit(agent="YahooMailProxy; https://help.yahoo.com/"), "unsure image_proxy"),
        (open_hit(agent="SomeMailer/2.1 (Linux)"), "unsure unknown_agent"),
    ],
)  # fmt: skip
def test_single_hits(hit: ObservedHit, verdict: str) -> None:
    """Method and user agent decide for many hits."""
    assert judge([hit]) == [verdict]


def test_hits_soon_after_sending_are_machines() -> None:
    """Hits less than three seconds after the send; without a known time of sending they are judged otherwise."""
    early, later = (
        ObservedHit(SENT + 2_999, "click", 1, "GET", None, PHONE),
        ObservedHit(SENT + 3_000, "click", 1, "GET", None, CHROME),
    )
    before = ObservedHit(SENT - 50, "open", None, "GET", None, "Mozilla/5.0 (X11; Linux x86_64)")
    assert judge([before, early, later]) == ["machine too_soon", "machine too_soon", "human"]
    assert judge([early], sent_at=None) == ["human"]


def test_many_links_at_once_are_a_machine() -> None:
    """More than three different links within two seconds make all of these clicks those of a machine."""
    assert judge([click(number * 100, number) for number in (1, 2, 3)]) == ["human"] * 3
    assert judge([click(number * 100, number) for number in (1, 2, 3, 4)]) == ["machine many_links"] * 4
    assert judge([click(number * 700, number) for number in (1, 2, 3, 4)]) == ["human"] * 4
    assert judge([click(number, 1) for number in range(9)]) == ["human"] * 9  # the same link again and again


def test_every_link_in_order_is_a_machine() -> None:
    """All three links of a message within seconds; two links are too few, and slower clicks are a person's."""
    clicks = [click(number * 3_000, number) for number in (1, 2, 3)]
    assert judge(clicks, links=3) == ["machine every_link"] * 3
    assert judge(clicks[:2], links=2) == ["human"] * 2
    assert judge([click(number * 30_000, number) for number in (1, 2, 3)], links=3) == ["human"] * 3


def test_other_hits_of_a_machine_are_machine_hits() -> None:
    """Hits of the same address and agent near a machine's hit are the machine's too."""
    hits = [
        open_hit(0), click(500, 1, "HEAD"), click(900, 1), click(1_500, 1, ip="198.51.100.0"),
        click(1_600, 1, agent=PHONE),
        click(90_000, 1),
    ]  # fmt: skip
    assert judge(hits) == ["machine same_client", "machine head", "machine same_client", "human", "human", "human"]


def test_apple_prefetch_does_not_mark_its_client() -> None:
    """Apple's prefetching uses shared addresses: a later hit from there is judged alone."""
    assert judge([open_hit(agent="Mozilla/5.0"), open_hit(1_000, agent=CHROME)]) == [
        "machine apple_prefetch",
        "human",
    ]


def test_judging_is_repeatable() -> None:
    """The same hits get the same verdicts, and a later hit of a person does not change them."""
    hits = [click(number * 100, number) for number in (1, 2, 3, 4)] + [click(70_000, 2, agent=PHONE)]
    assert bot_detection.judge_hits(hits, SENT, 8) == bot_detection.judge_hits(hits, SENT, 8)
    assert judge(hits)[:4] == judge(hits[:4])
