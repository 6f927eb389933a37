"""What a single value of a request may be, beyond its type."""

import math
import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from appliance import addresses

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


def text_fault(value: str, extra: dict[str, Any]) -> str | None:
    """Return what is wrong with a text: what no row or header can hold, or nothing where something is asked for."""
    if UNWRITABLE.search(value) or (extra.get("line") and _CONTROL.search(value)):
        return "is invalid"
    if extra.get("filled") and not value.strip():
        return "can't be blank"
    return None


def data_fault(value: Any, extra: dict[str, Any]) -> str | None:
    """Return what is wrong with a value that is no text: a number that is none, or more bytes than are kept."""
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a number"
    most = extra.get("bytes")
    if most is None:
        return None
    try:
        text = msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, RecursionError):
        return "is invalid"
    if b"\\u0000" in text or (b"null" in text and _is_endless(value)):
        return "is invalid"
    return f"is too long (maximum is {most} bytes)" if len(text) > most else None


def _is_endless(value: Any) -> bool:
    """Return whether there is a number in it that is none: 1e400 is written back as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_endless(one) for one in inner)


def _country(value: str) -> str:
    if not (len(value) == 2 and value.isascii() and value.isalpha()):
        raise ValueError("is invalid")
    return value.upper()


def http_url(value: str) -> str:
    """Return an address as it is; raises ValueError unless it is http or https and names a host."""
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", value)
    except ValueError:
        good = False
    if not good:
        raise ValueError("is invalid")
    return value


CHECKS = {
    "email": lambda value: addresses.email(value).value,
    "phone": lambda value: addresses.phone(value).value,
    "sms_sender": addresses.sms_sender,
    "country": _country,
    "http_url": http_url,
}
