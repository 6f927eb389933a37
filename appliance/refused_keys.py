"""Unknown keys of a request that are refused: ignoring them would change what is sent, to whom, or when.

A Struct lists them in a class attribute, `REFUSED: ClassVar[RefusedKeys]`. A key that nearly matches a listed or a
declared name counts as that name. The reader refuses them and the OpenAPI document lists them.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

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


def use(right: str, *wrong: str) -> dict[str, RefusedKey]:
    """Refuse some keys in favour of the right one."""
    return dict.fromkeys(wrong, RefusedKey(f"is not a known field: use {right}"))


def use_within(path: str, *names: str) -> dict[str, RefusedKey]:
    """Refuse keys that belong deeper in the request, below a path."""
    return {name: RefusedKey(f"is not a known field: use `{path}.{name}`") for name in names}


def of_content(prefix: str = "") -> dict[str, RefusedKey]:
    """Refuse what others call the parts of a message; `prefix` is the path of the keys to use."""
    return {
        **use(f"`{prefix}body`", "html", "html_body", "body_html", "content"),
        **use(f"`{prefix}from_email`", "from", "from_address", "sender"),
        **use(f"`{prefix}preheader`", "preview_text"),
        **unsupported(f"the text part is made of `{prefix}body`", "text", "plain_text", "text_body", "body_text"),
        **unsupported("a message has one recipient", "cc", "bcc"),
        **unsupported("put a link into the body", "attachments"),
    }


def unsupported(reason: str, *names: str, neutral: Any = None) -> dict[str, RefusedKey]:
    """Refuse some keys that have no equivalent, for a reason or with the way to do without."""
    return dict.fromkeys(names, RefusedKey(f"is not supported: {reason}", neutral))


def fault(known: Iterable[str], refused: RefusedKeys, key: str, value: Any, guess: bool = True) -> str | None:
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
        return fault((), refused, name, value)
    return f"is not a known field: use {name}"


def listed(refused: RefusedKeys) -> str:
    """Return refused keys with the hint of each for the documentation."""
    names: dict[str, list[str]] = {}
    for name, key in refused.items():
        names.setdefault(key.message.partition(": ")[2], []).append(f"`{name}`")
    return "; ".join(f"{', '.join(group)} ({hint})" for hint, group in names.items())


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
