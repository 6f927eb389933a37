"""What a program says of itself when it asks for a picture or a page: who it is, and what it runs on."""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ua_parser import PartialResult

# Programs that look at mail before its reader does, and those that draw a preview of a page for somebody else
_SCANNERS = re.compile(
    r"barracuda|proofpoint|urldefense|mimecast|forcepoint|fireeye|trellix|ironport|cisco-|sophos|symantec|messagelabs|"
    r"bitdefender|trendmicro|trend micro|kaspersky|mailguard|vade|zscaler|netcraft|virustotal|safebrowsing|phish|"
    r"bingpreview|skypeuripreview|microsoftpreview|facebookexternalhit|whatsapp/|telegrambot|discordbot|slackbot|"
    r"twitterbot|linkedinbot|embedly|googlebot|/web/snippet/|bingbot|yandexbot|duckduckbot|crawler|spider|\bbot\b|bot/|"
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

# So many names are browsers of phones that are known by the name of their desktop's
_FORMS = re.compile(r" (?:Mobile(?: iOS| WebView)?|iOS)$")
_SAME = {
    "Mobile Safari": "Safari", "Mobile Safari UI/WKWebView": "Apple Mail", "Opera Mini": "Opera",
    "Mac OS X": "macOS", "Chrome OS": "ChromeOS",
}  # fmt: skip
_HELD = frozenset(("iOS", "Android", "Windows Phone", "KaiOS", "HarmonyOS", "BlackBerry OS"))
_ON_DESKS = frozenset(
    ("Windows", "macOS", "ChromeOS", "Linux", "Ubuntu", "Fedora", "Debian", "FreeBSD", "OpenBSD", "NetBSD")
)
# What is read of what a program says of itself; nothing that is told stands behind
_MAX_CHARACTERS = 400


class Device(NamedTuple):
    """What somebody reads with, as far as it says so."""

    browser: str | None
    os: str | None
    kind: str | None  # desktop, mobile, tablet


def told(header: str | None) -> str | None:
    """Return what is kept of what a program says of itself."""
    return header[:_MAX_CHARACTERS] if header else None


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
    """Read browser, system and kind of device out of what a program says of itself, be it a browser or an app.

    The first look at an agent takes a millisecond: whoever writes on the writer thread lets it be looked at before.
    """
    if agent is None or sort(agent) not in ("reader", "unknown"):
        return Device(None, None, None)
    agent = agent[:_MAX_CHARACTERS]
    found = _parser()(agent)
    browser = _name(found.user_agent.family if found.user_agent else None)
    system = _name(found.os.family if found.os else None)
    return Device(browser, system, _kind(agent, system))


def _kind(agent: str, system: str | None) -> str | None:
    if "iPad" in agent or "Tablet" in agent or (system == "Android" and "Mobile" not in agent and "Mozilla/" in agent):
        return "tablet"
    if system in _HELD:
        return "mobile"
    return "desktop" if system in _ON_DESKS else None


def _name(family: str | None) -> str | None:
    if family is None:
        return None
    return _SAME.get(family) or _FORMS.sub("", family)


@cache
def _parser() -> "Callable[[str], PartialResult]":
    """Make the parser when it is first needed; each of its thousand patterns is compiled when it is first tried."""
    from ua_parser import Domain
    from ua_parser.basic import Resolver
    from ua_parser.loaders import load_lazy_builtins

    parser, wanted = Resolver(load_lazy_builtins()), Domain.USER_AGENT | Domain.OS
    return lambda agent: parser(agent, wanted)
