"""What a single value of a request may be, beyond its type."""

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from appliance.core import addresses

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


# Unknown keys of a request that are refused: ignoring them would change what is sent, to whom, or when.
#
# A Struct lists them in a class attribute, `REFUSED: ClassVar[RefusedKeys]`. A key that nearly matches a listed or a
# declared name counts as that name. The reader refuses them and the OpenAPI document lists them.

# A body may hold very many keys, and long ones
MAX_GUESSED_KEYS = 100
MAX_GUESSED_LENGTH = 64
MIN_SIMILARITY = 0.94
# What others call the time at which something is sent
SEND_TIMES = (
    "schedule", "schedule_at", "scheduled_for", "scheduled_time", "schedule_time", "send_time", "send_on", "deliver_at",
    "delivery_time", "start_at", "publish_at",
)  # fmt: skip


class RefusedKey(NamedTuple):
    """What the field error says, and the value that asks for nothing, as null does."""

    message: str
    neutral: Any = None


RefusedKeys = Mapping[str, RefusedKey]


def use_instead(right: str, *wrong: str) -> dict[str, RefusedKey]:
    """Refuse some keys in favour of the right one."""
    return dict.fromkeys(wrong, RefusedKey(f"is not a known field: use {right}"))


def use_within(path: str, *names: str) -> dict[str, RefusedKey]:
    """Refuse keys that belong deeper in the request, below a path."""
    return {name: RefusedKey(f"is not a known field: use `{path}.{name}`") for name in names}


def of_content(prefix: str = "") -> dict[str, RefusedKey]:
    """Refuse what others call the parts of a message; `prefix` is the path of the keys to use."""
    return {
        **use_instead(f"`{prefix}body`", "html", "html_body", "body_html", "content"),
        **use_instead(f"`{prefix}from_email`", "from", "from_address", "sender"),
        **use_instead(f"`{prefix}preheader`", "preview_text"),
        **unsupported(f"the text part is made of `{prefix}body`", "text", "plain_text", "text_body", "body_text"),
        **unsupported("a message has one recipient", "cc", "bcc"),
        **unsupported("put a link into the body", "attachments"),
    }


def unsupported(reason: str, *names: str, neutral: Any = None) -> dict[str, RefusedKey]:
    """Refuse some keys that have no equivalent, for a reason or with the way to do without."""
    return dict.fromkeys(names, RefusedKey(f"is not supported: {reason}", neutral))


def key_fault(known: Iterable[str], refused: RefusedKeys, key: str, value: Any, guess: bool = True) -> str | None:
    """Return the field error of an unknown key, or None if it may be ignored.

    `guess` compares the key with the known and the refused names, which takes a fraction of a millisecond.
    """
    if value is None or not refused:
        return None
    listed = refused.get(key)
    if listed is not None:
        return None if value is listed.neutral else listed.message
    if not guess or len(key) > MAX_GUESSED_LENGTH:
        return None
    names = {_plain(name): name for name in (*refused, *known)}
    match = get_close_matches(_plain(key), names, 1, MIN_SIMILARITY)
    if not match:
        return None
    name = names[match[0]]
    if name in refused:
        return key_fault((), refused, name, value)
    return f"is not a known field: use {name}"


def listed_refusals(refused: RefusedKeys) -> str:
    """Return refused keys with the hint of each for the documentation."""
    names: dict[str, list[str]] = {}
    for name, key in refused.items():
        names.setdefault(key.message.partition(": ")[2], []).append(f"`{name}`")
    return "; ".join(f"{', '.join(group)} ({hint})" for hint, group in names.items())


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
