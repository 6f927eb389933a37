"""Custom data and the tags in it: their bounds, and the events of tags that come and go."""

from typing import Any

import msgspec

from appliance.core.errors import Faults
from appliance.core.fields import DATA_BYTES
from appliance.events import log
from appliance.events.log import Happened
from appliance.storage.models import Contact
from appliance.storage.open import fold

MAX_TAGS, MAX_CHARACTERS = 100, 64
_encode = msgspec.json.Encoder().encode


def checked(data: dict[str, Any], field: str, faults: Faults) -> dict[str, Any]:
    """Note what is wrong with custom data under its path: its size, and `tags`, which is an array of short strings."""
    if len(_encode(data)) > DATA_BYTES:
        faults.add(field, f"is too long (maximum is {DATA_BYTES} bytes)")
    tags = data.get("tags")
    if tags is None:
        return {key: value for key, value in data.items() if key != "tags"}
    where = f"{field}.tags"
    if not isinstance(tags, list):
        faults.add(where, "is invalid")
    elif len(tags) > MAX_TAGS:
        faults.add(where, f"is too long (maximum is {MAX_TAGS} entries)")
    else:
        for index, tag in enumerate(tags):
            words = fault(tag)
            if words:
                faults.add(f"{where}[{index}]", words)
    return data


def fault(tag: Any) -> str | None:
    """Return what is wrong with one tag, or None."""
    if not isinstance(tag, str):
        return "is invalid"
    if not tag.strip():
        return "can't be blank"
    return f"is too long (maximum is {MAX_CHARACTERS} characters)" if len(tag) > MAX_CHARACTERS else None


def of(data: dict[str, Any]) -> list[str]:
    """Return the tags in a contact's data."""
    tags = data.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def tell(contact: Contact, before: list[str]) -> None:
    """Record the tags that came and went; a tag in other letters is the same tag."""
    now = of(contact.data)
    had, has = {fold(tag): tag for tag in before}, {fold(tag): tag for tag in now}
    log.record_many(
        [Happened(contact.account_id, "tag_add", contact.id, {"tag": has[key]}) for key in has if key not in had]
        + [Happened(contact.account_id, "tag_remove", contact.id, {"tag": had[key]}) for key in had if key not in has]
    )
