"""What a program says of itself when it asks for a picture or a page: who it is, and what it runs on."""

import re
from functools import lru_cache
from typing import NamedTuple

# Programs that look at mail before its reader does, and those that draw a preview of a page for somebody else
_SCANNERS = re.compile(
    r"barracuda|proofpoint|urldefense|mimecast|forcepoint|fireeye|trellix|ironport|cisco-|sophos|symantec|messagelabs|"
    r"bitdefender|trendmicro|trend micro|kaspersky|mailguard|vade|zscaler|netcraft|virustotal|safebrowsing|phish|"
    r"bingpreview|skypeuripreview|microsoftpreview|facebookexternalhit|whatsapp/|telegrambot|discordbot|slackbot|"
    r"twitterbot|linkedinbot|embedly|googlebot|bingbot|yandexbot|duckduckbot|crawler|spider|\bbot\b|bot/|"
    r"headlesschrome|phantomjs|puppeteer|playwright|selenium|scanner|monitor|uptime",
    re.IGNORECASE,
)
_TOOLS = re.compile(
    r"(?:curl|wget|libwww-perl|lwp|python-|python/|aiohttp|go-http-client|java/|jakarta|apache-httpclient|axios|"
    r"node-fetch|undici|node\b|php/|guzzle|ruby|faraday|httpie|postman|powershell|dart)",
    re.IGNORECASE,
)
# They fetch a picture when their reader looks at the mail, in their own name
_PROXIES = re.compile(r"googleimageproxy|ggpht\.com|yahoomailproxy|yandeximage|mail\.ru image", re.IGNORECASE)
# What Apple's mail privacy says for every picture of every mail, whether or not anybody looks at it
_APPLE = "Mozilla/5.0"

_BROWSERS = (
    ("Edge", re.compile(r"\bEdgA?(?:iOS)?/")), ("Opera", re.compile(r"\bOPR/")),
    ("Samsung Internet", re.compile("SamsungBrowser/")),
    ("Outlook", re.compile(r"Outlook|MSOffice|Microsoft Office")), ("Thunderbird", re.compile("Thunderbird/")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/")), ("Chrome", re.compile(r"\b(?:Chrome|CriOS)/")),
    ("Safari", re.compile(r"\bVersion/\S+ .*Safari/")), ("Apple Mail", re.compile(r"AppleWebKit/(?!.*Safari/)")),
)  # fmt: skip
_SYSTEMS = (
    ("iOS", re.compile(r"iPhone|iPad|iPod")), ("Android", re.compile("Android")), ("Windows", re.compile("Windows")),
    ("macOS", re.compile("Mac OS X|Macintosh")), ("ChromeOS", re.compile("CrOS")), ("Linux", re.compile("Linux|X11")),
)  # fmt: skip


class Device(NamedTuple):
    """What somebody reads with, as far as it says so."""

    browser: str | None
    os: str | None
    kind: str | None  # desktop, mobile, tablet


@lru_cache(maxsize=4_096)
def sort(agent: str | None) -> str:
    """Say of what sort a program is: reader, scanner, tool, proxy, apple, or unknown."""
    if not agent:
        return "tool"
    if agent == _APPLE:
        return "apple"
    if _PROXIES.search(agent):
        return "proxy"
    if _SCANNERS.search(agent):
        return "scanner"
    if _TOOLS.match(agent):
        return "tool"
    return "reader" if agent.startswith("Mozilla/") and len(agent) > len(_APPLE) + 4 else "unknown"


@lru_cache(maxsize=4_096)
def device(agent: str | None) -> Device:
    """Read browser, system and kind of device out of what a program says of itself."""
    if sort(agent) != "reader" or agent is None:
        return Device(None, None, None)
    browser = next((name for name, found in _BROWSERS if found.search(agent)), None)
    system = next((name for name, found in _SYSTEMS if found.search(agent)), None)
    if "iPad" in agent or (system == "Android" and "Mobile" not in agent):
        return Device(browser, system, "tablet")
    if system in ("iOS", "Android"):
        return Device(browser, system, "mobile")
    return Device(browser, system, "desktop" if system else None)
