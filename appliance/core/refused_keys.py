"""Unknown keys of requests that are rejected, because ignoring them would change what is sent, to whom, or when.

A Struct lists such keys in a class attribute, `REFUSED: ClassVar[RefusedKeys]`. A key that nearly matches a listed key
or a field of the Struct is rejected too. `core/validation.py` rejects them; the OpenAPI document names the listed ones.
Their errors are in English like all texts of the API, because no page sends such a key.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

# These limits bound the work for a request body with very many or very long keys.
MAX_GUESSED_KEYS = 100
MAX_GUESSED_LENGTH = 64
MIN_SIMILARITY = 0.94
# Names that other products use for the time at which a campaign is sent.
SEND_TIMES = (
    "schedule", "schedule_at", "scheduled_for", "scheduled_time", "schedule_time", "send_time", "send_on", "deliver_at",
    "delivery_time", "start_at", "publish_at",
)  # fmt: skip


class RefusedKey(NamedTuple):
    """The field error of a rejected key; a key whose value is null or `neutral` is ignored instead."""

    message: str
    neutral: Any = None


RefusedKeys = Mapping[str, RefusedKey]


def use_instead(right: str, *wrong: str) -> dict[str, RefusedKey]:
    """Return the keys `wrong` with an error that names `right` as the key to use instead."""
    return dict.fromkeys(wrong, RefusedKey(f"is not a known field: use {right}"))


def use_within(path: str, *names: str) -> dict[str, RefusedKey]:
    """Return keys with an error that says to send them inside the object at `path`."""
    return {name: RefusedKey(f"is not a known field: use `{path}.{name}`") for name in names}


def content_keys(prefix: str = "") -> dict[str, RefusedKey]:
    """Return the keys that other products use for the parts of a message, with errors that name our keys.

    `prefix` is the path of our keys in the request, such as `message.`.
    """
    return {
        **use_instead(f"`{prefix}body`", "html", "html_body", "body_html", "content"),
        **use_instead(f"`{prefix}from_email`", "from", "from_address", "sender"),
        **use_instead(f"`{prefix}preheader`", "preview_text"),
        **unsupported(f"the text part is made of `{prefix}body`", "text", "plain_text", "text_body", "body_text"),
        **unsupported("a message has one recipient", "cc", "bcc"),
        **unsupported("put a link into the body", "attachments"),
    }


def unsupported(reason: str, *names: str, neutral: Any = None) -> dict[str, RefusedKey]:
    """Return keys that have no equivalent, with an error that gives `reason`, which may say what to do instead.

    A key with the value `neutral` is ignored.
    """
    return dict.fromkeys(names, RefusedKey(f"is not supported: {reason}", neutral))


def find_key_error(
    known_names: Iterable[str], refused: RefusedKeys, key: str, value: Any, guess: bool = True
) -> str | None:
    """Return the field error of an unknown key, or None if the key may be ignored.

    With `guess`, a key that is similar to a known or a rejected name is an error too; the comparison takes a fraction
    of a millisecond.
    """
    if value is None or not refused:
        return None
    listed = refused.get(key)
    if listed is not None:
        return None if value is listed.neutral else listed.message
    if not guess or len(key) > MAX_GUESSED_LENGTH:
        return None
    names = {_normalize_key(name): name for name in (*refused, *known_names)}
    match = get_close_matches(_normalize_key(key), names, 1, MIN_SIMILARITY)
    if not match:
        return None
    name = names[match[0]]
    if name in refused:
        return find_key_error((), refused, name, value)
    return f"is not a known field: use {name}"


def describe_refused_keys(refused: RefusedKeys) -> str:
    """Return rejected keys and their hints as text for the OpenAPI document, grouped by hint."""
    names: dict[str, list[str]] = {}
    for name, key in refused.items():
        names.setdefault(key.message.partition(": ")[2], []).append(f"`{name}`")
    return "; ".join(f"{', '.join(group)} ({hint})" for hint, group in names.items())


def _normalize_key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
