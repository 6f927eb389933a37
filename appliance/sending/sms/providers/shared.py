"""What providers have in common: words of statuses, bounds of what is told, and how our own address is called."""

import ipaddress
import json
import re
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from appliance.core import clock, tokens
from appliance.core.errors import NotAllowed
from appliance.sending.sms.client import Answer
from appliance.settings import config

T = TypeVar("T")

# What they say of a message, in our words; what is told before it has left is no more than that it was taken
STATUSES = {
    "accepted": "sent", "scheduled": "sent", "queued": "sent", "sending": "sent", "sent": "sent",
    "delivered": "delivered", "read": "delivered", "undelivered": "undelivered", "bounced": "undelivered",
    "failed": "failed", "canceled": "failed", "cancelled": "failed", "rejected": "failed", "expired": "undelivered",
}  # fmt: skip
_PURPOSE = "sms receipt"
_NAME = re.compile(r"[!-~]{1,255}")
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_WAIT_SECONDS = 3600.0
_MAX_WORDS, _MAX_BODY = 1_000, 20_000


def forged() -> NotAllowed:
    """Return the one refusal of whatever is not signed as it should be."""
    return NotAllowed("the signature of this request is missing, wrong or too old")


def name(said: Any) -> str | None:
    """Return what a provider calls a message; None for what is no name."""
    text = str(said) if isinstance(said, str | int) and not isinstance(said, bool) else ""
    return text if _NAME.fullmatch(text) else None


def words(said: Any, most: int = _MAX_WORDS) -> str:
    """Return words of a provider in one line, without what cannot be seen."""
    return " ".join(_UNSEEN.sub("", str(said)).split())[:most] if said is not None else ""


def body(said: str) -> str:
    """Return what somebody wrote, as they wrote it, without what no phone writes."""
    return _UNSEEN.sub("", said)[:_MAX_BODY]


def told(body: bytes, sort: type[T]) -> T:
    """Read what a hook is told in JSON; raises ValueError.

    Half a letter, of a text that was cut in the middle of a picture, is read as `?`: it costs nobody their STOP.
    """
    try:
        return msgspec.json.decode(body, type=sort)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        whole = json.dumps(json.loads(body.decode("utf-8", "replace")), ensure_ascii=False)
        return msgspec.json.decode(whole.encode("utf-8", "replace"), type=sort)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def said(answer: Answer) -> dict[str, Any]:
    """Read the object of an answer; empty if it has none."""
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def plain(answer: Answer) -> str:
    """Return the beginning of an answer that is not in the form it should be."""
    return words(answer.body[:400].decode("utf-8", "replace"), 200)


def retry_after(answer: Answer) -> float:
    """Return the seconds for which somebody wants to be left alone: at least one, at most an hour."""
    said = answer.headers.get("retry-after", "").strip()
    if said.isascii() and said.isdecimal():
        wait = float(said[:9])
    else:
        try:
            wait = (parsedate_to_datetime(said) - parsedate_to_datetime(answer.headers.get("date", ""))).total_seconds()
        except (ValueError, TypeError):
            wait = 1.0
    return min(max(wait, 1.0), _MAX_WAIT_SECONDS)


def callback_url(path: str, message_id: int, theirs: str) -> str:
    """Return our address for what becomes of a message; empty where `theirs`, a server of the world, cannot call it."""
    base = config.base_url(config.current())
    if not _is_outside(base) and _is_outside(theirs):
        return ""
    return f"{base}{path}?m={tokens.sign(_PURPOSE, message_id)}"


def message_of(url: str) -> int | None:
    """Return the message that an address of ours was made for."""
    found = parse_qs(urlsplit(url).query).get("m", [""])
    return tokens.read(_PURPOSE, found[0])


@lru_cache(64)
def _is_outside(url: str) -> bool:
    """Return whether the host of an address may be one that all the world can call."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".local", ".localhost", ".internal", ".test", ".invalid"))


def fault_of_url(url: str) -> str | None:
    """Return what is wrong with the address of a provider, or None."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or port == 0:
        return "is not an http(s) address"
    return None if re.fullmatch(r"[!-~]+", url) and not parts.fragment else "may hold no spaces, no # and no umlauts"


def in_clear(setting: str, url: str) -> list[str]:
    """Say that what goes to an address in the world goes without encryption, if it does."""
    is_open = url.startswith("http://") and _is_outside(url)
    return [f"{setting}: {url} is not https: who is written to, and what, can be read on the way"] if is_open else []


def now() -> float:
    """Return the time that signatures are made and judged at."""
    return clock.now()
