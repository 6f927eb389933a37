"""People told from machines: by what they say they are, when they come, and what else they ask for."""

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
    """A click so many milliseconds after a minute had passed."""
    return ObservedHit(LATER + at, "click", number, method, ip, agent)


def look(at: int = 0, agent: str | None = CHROME) -> ObservedHit:
    """An open."""
    return ObservedHit(LATER + at, "open", None, "GET", "192.0.2.0", agent)


def said(seen: list[ObservedHit], links: int = 8, sent_at: int | None = SENT) -> list[str]:
    """Return the verdicts, with their reasons."""
    return [f"{one.verdict} {one.reason or ''}".strip() for one in bot_detection.judge_hits(seen, sent_at, links)]


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (click(0, 1), "human"), (click(0, 1, agent=PHONE), "human"), (look(), "human"),
        (click(0, 1, "HEAD"), "machine head"), (click(0, 1, "PREFETCH"), "machine prefetch"),
        (click(0, 1, agent=None), "machine bare_agent"), (click(0, 1, agent="curl/8.5"), "machine bare_agent"),
        (click(0, 1, agent="python-requests/2.32"), "machine bare_agent"),
        (click(0, 1, agent="Mozilla/5.0 (compatible; Barracuda Sentinel)"), "machine scanner_agent"),
        (click(0, 1, agent="Mozilla/5.0 (X11) HeadlessChrome/126.0"), "machine scanner_agent"),
        # Phones that draw a preview of the page beside an SMS
        (click(0, 1, agent="Mozilla/5.0 (X11) Google (+https://developers.google.com/+/web/snippet/)"),
         "machine scanner_agent"),
        (click(0, 1, agent="Mozilla/5.0 Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0"),
         "machine scanner_agent"),
        (click(0, 1, agent="Mozilla/5.0"), "machine bare_agent"), (look(agent="Mozilla/5.0"), "machine apple_prefetch"),
        (look(agent=GMAIL), "unsure image_proxy"), (click(0, 1, agent=GMAIL), "machine scanner_agent"),
        (look(agent="YahooMailProxy; https://help.yahoo.com/"), "unsure image_proxy"),
        (look(agent="SomeMailer/2.1 (Linux)"), "unsure unknown_agent"),
    ],
)  # fmt: skip
def test_one_by_itself(one: ObservedHit, verdict: str) -> None:
    """What a request says of itself is enough for many of them."""
    assert said([one]) == [verdict]


def test_nobody_reads_so_soon() -> None:
    """Within three seconds of the handover it is a machine; of what nobody knows when it left, nothing is held so."""
    soon, later = (
        ObservedHit(SENT + 2_999, "click", 1, "GET", None, PHONE),
        ObservedHit(SENT + 3_000, "click", 1, "GET", None, CHROME),
    )
    before = ObservedHit(SENT - 50, "open", None, "GET", None, "Mozilla/5.0 (X11; Linux x86_64)")
    assert said([before, soon, later]) == ["machine too_soon", "machine too_soon", "human"]
    assert said([soon], sent_at=None) == ["human"]


def test_three_links_are_a_person_and_four_at_once_are_not() -> None:
    """More than three different links in two seconds: then the first ones were a machine's too."""
    assert said([click(n * 100, n) for n in (1, 2, 3)]) == ["human"] * 3
    assert said([click(n * 100, n) for n in (1, 2, 3, 4)]) == ["machine many_links"] * 4
    assert said([click(n * 700, n) for n in (1, 2, 3, 4)]) == ["human"] * 4
    assert said([click(n, 1) for n in range(9)]) == ["human"] * 9  # one link, again and again


def test_all_links_one_after_the_other_are_a_machines() -> None:
    """A mail's three links within seconds; two links are too few to tell, and an hour is a person's time."""
    tour = [click(n * 3_000, n) for n in (1, 2, 3)]
    assert said(tour, links=3) == ["machine every_link"] * 3
    assert said(tour[:2], links=2) == ["human"] * 2
    assert said([click(n * 30_000, n) for n in (1, 2, 3)], links=3) == ["human"] * 3


def test_what_a_machine_did_besides_is_its_own() -> None:
    """Who asked HEAD first is no person a second later, and opened no mail; another at another address may be."""
    found = [
        look(0), click(500, 1, "HEAD"), click(900, 1), click(1_500, 1, ip="198.51.100.0"), click(1_600, 1, agent=PHONE),
        click(90_000, 1),
    ]  # fmt: skip
    assert said(found) == ["machine same_client", "machine head", "machine same_client", "human", "human", "human"]


def test_apple_gives_nobody_away() -> None:
    """It fetches every picture in a name that all share: who comes by the same name later is judged alone."""
    assert said([look(agent="Mozilla/5.0"), look(1_000, agent=CHROME)]) == ["machine apple_prefetch", "human"]


def test_judging_again_changes_nothing() -> None:
    """The same hits have the same verdicts, and one more of a person's changes none of theirs."""
    seen = [click(n * 100, n) for n in (1, 2, 3, 4)] + [click(70_000, 2, agent=PHONE)]
    assert bot_detection.judge_hits(seen, SENT, 8) == bot_detection.judge_hits(seen, SENT, 8)
    assert said(seen)[:4] == said(seen[:4])
