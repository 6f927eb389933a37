"""Parsing of user agents (browser, operating system, device) and of the UTM parameters of a URL."""

import random
import time

import pytest

from appliance.events import submit, user_agents

WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64)"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("agent", "device"),
    [
        (f"{WINDOWS} AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36",
         ("Chrome", "Windows", "desktop")),
        (f"{WINDOWS} AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36 Edg/126.0",
         ("Edge", "Windows", "desktop")),
        (f"{IPHONE} Version/17.5 Mobile/15E148 Safari/604.1", ("Safari", "iOS", "mobile")),
        (f"{IPHONE} CriOS/126.0 Mobile/15E148 Safari/604.1", ("Chrome", "iOS", "mobile")),
        (f"{IPHONE} FxiOS/127.0 Mobile/15E148 Safari/605.1.15", ("Firefox", "iOS", "mobile")),
        (f"{IPHONE} Mobile/15E148", ("Apple Mail", "iOS", "mobile")),
        ("Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X) AppleWebKit/605.1.15", ("Apple Mail", "iOS", "tablet")),
        ("Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/126.0 Mobile Safari/537.36",
         ("Chrome", "Android", "mobile")),
        ("Mozilla/5.0 (Linux; Android 13; SM-X700) AppleWebKit/537.36 SamsungBrowser/25.0 Chrome/121.0 Safari/537.36",
         ("Samsung Internet", "Android", "tablet")),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0", ("Firefox", "Linux", "desktop")),
        ("Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0 Safari/537.36",
         ("Chrome", "ChromeOS", "desktop")),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko)",
         ("Apple Mail", "macOS", "desktop")),
        (f"{WINDOWS} Gecko/20100101 Thunderbird/115.0", ("Thunderbird", "Windows", "desktop")),
        ("Microsoft Office/16.0 (Windows NT 10.0; Microsoft Outlook 16.0.17726; Pro)",
         ("Outlook", "Windows", "desktop")),
        ("Dalvik/2.1.0 (Linux; U; Android 13; Pixel 7)", ("Android", "Android", "mobile")),
        ("MyShop/3.1", (None, None, None)),
        (f"{WINDOWS} AppleWebKit/537.36 (KHTML, like Gecko; via ggpht.com GoogleImageProxy)", (None, None, None)),
        ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", (None, None, None)),
        ("Mozilla/5.0", (None, None, None)), ("curl/8.5", (None, None, None)), ("", (None, None, None)),
        (None, (None, None, None)),
    ],
)  # fmt: skip
def test_parse_device_of_a_user_agent(agent: str | None, device: tuple[str | None, ...]) -> None:
    """Browsers and mail programs give browser, system and device; proxies, bots and unknown programs give None."""
    assert user_agents.parse_device(agent) == device


def test_parsing_any_user_agent_is_fast() -> None:
    """Parsing 2,000 random parts of user agents takes less than 0.3 s."""
    random_source = random.Random(4)
    atoms = ["Mozilla/5.0 ", "(", ")", ";", " ", "1", ".", "/", "Android ", "Version/", "Mobile", "Linux; ", "Chrome/"]
    user_agents.parse_device("Mozilla/5.0 nothing of this kind is known")
    for _ in range(100):
        agent = "".join(random_source.choice(atoms) for _ in range(2_000))
        started_at = time.thread_time()
        user_agents.parse_device(agent)
        assert time.thread_time() - started_at < 0.3, agent


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/?utm_source=letter&utm_campaign=May+sale&x=1", ("letter", None, None, None, "May sale")),
        ("https://a.example/?utm_source=a&utm_source=b&utm_term=%C3%A9", ("a", None, "é", None, None)),
        ("https://a.example/?utm_medium=", (None,) * 5), ("https://a.example/#utm_source=x", (None,) * 5),
        ("http://[utm_source=x", (None,) * 5), ("/cart?utm_content=top", (None, None, None, "top", None)),
        (None, (None,) * 5), ("https://a.example/?utm_source=" + "x" * 300, ("x" * 255, None, None, None, None)),
    ],
)  # fmt: skip
def test_parse_utm_parameters_of_a_url(url: str | None, expected: tuple[str | None, ...]) -> None:
    """The first value of each parameter is returned, cut to 255 characters; an invalid URL gives None for all."""
    assert submit.parse_utm(url) == expected
