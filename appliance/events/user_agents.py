"""Detect the kind of program, the browser, the operating system and the kind of device from User-Agent headers."""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ua_parser import PartialResult

# Security scanners, which open mail before its recipient does, and programs that fetch pages for previews or searches.
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
# Image proxies of mailbox providers, which fetch images with their own User-Agent when the recipient opens the mail.
_PROXIES = re.compile(r"googleimageproxy|ggpht\.com|yahoomailproxy|yandeximage|mail\.ru image", re.IGNORECASE)
# The User-Agent of Apple's Mail Privacy Protection, which fetches all images of all mail, whether opened or not.
_APPLE = "Mozilla/5.0"

# These endings are removed, so that a mobile browser has the name of its desktop version.
_MOBILE_SUFFIX = re.compile(r" (?:Mobile(?: iOS| WebView)?|iOS)$")
_DISPLAY_NAMES = {
    "Mobile Safari": "Safari", "Mobile Safari UI/WKWebView": "Apple Mail", "Opera Mini": "Opera",
    "Mac OS X": "macOS", "Chrome OS": "ChromeOS",
}  # fmt: skip
_MOBILE_SYSTEMS = frozenset(("iOS", "Android", "Windows Phone", "KaiOS", "HarmonyOS", "BlackBerry OS"))
_DESKTOP_SYSTEMS = frozenset(
    ("Windows", "macOS", "ChromeOS", "Linux", "Ubuntu", "Fedora", "Debian", "FreeBSD", "OpenBSD", "NetBSD")
)
# Only the beginning of a User-Agent is stored and parsed; nothing useful follows it.
_MAX_CHARACTERS = 400


class Device(NamedTuple):
    """Browser, operating system and kind of device; None where the User-Agent does not show it."""

    browser: str | None
    os: str | None
    kind: str | None  # desktop, mobile, tablet


def truncate_header(header: str | None) -> str | None:
    """Return the part of a User-Agent header that is stored, or None if it is empty."""
    return header[:_MAX_CHARACTERS] if header else None


@lru_cache(maxsize=4_096)
def classify(agent: str | None) -> str:
    """Return the kind of program of a User-Agent: `reader`, `scanner`, `tool`, `proxy`, `apple` or `unknown`.

    A `reader` is a browser or mail program of a person; a missing User-Agent counts as a `tool`.
    """
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
def parse_device(agent: str | None) -> Device:
    """Parse the browser, the operating system and the kind of device from a User-Agent.

    All three are None unless the program is a `reader` or `unknown` (`classify`). The first parse of a User-Agent takes
    a millisecond, so parse it before a write transaction.
    """
    if agent is None or classify(agent) not in ("reader", "unknown"):
        return Device(None, None, None)
    agent = agent[:_MAX_CHARACTERS]
    parsed = _parser()(agent)
    browser = _family_name(parsed.user_agent.family if parsed.user_agent else None)
    system = _family_name(parsed.os.family if parsed.os else None)
    return Device(browser, system, _device_kind(agent, system))


def _device_kind(agent: str, system: str | None) -> str | None:
    if "iPad" in agent or "Tablet" in agent or (system == "Android" and "Mobile" not in agent and "Mozilla/" in agent):
        return "tablet"
    if system in _MOBILE_SYSTEMS:
        return "mobile"
    return "desktop" if system in _DESKTOP_SYSTEMS else None


def _family_name(family: str | None) -> str | None:
    if family is None:
        return None
    return _DISPLAY_NAMES.get(family) or _MOBILE_SUFFIX.sub("", family)


@cache
def _parser() -> "Callable[[str], PartialResult]":
    """Return the parser, which is created on first use and compiles each of its thousand patterns when first tried."""
    from ua_parser import Domain
    from ua_parser.basic import Resolver
    from ua_parser.loaders import load_lazy_builtins

    resolver, domains = Resolver(load_lazy_builtins()), Domain.USER_AGENT | Domain.OS
    return lambda agent: resolver(agent, domains)
