"""The values of a JSON response that a step stores: in the contact's custom data, and in the data of the run.

A path names the keys and positions to a value, joined with dots, as in `result.items.0.price`.
"""

import re
from typing import Any

import msgspec

from appliance.core.i18n import gettext

TO_CONTACT, TO_RUN = "save_to_contact", "save_to_run"
MAX_RESPONSE_BYTES = 65_536
MAX_VALUES, MAX_PATH_CHARACTERS, MAX_VALUE_BYTES = 20, 200, 4_096
_PATH = re.compile(r"[^.\x00-\x1f]+(?:\.[^.\x00-\x1f]+)*")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def find_mapping_faults(mapping: Any) -> list[tuple[str, str]]:
    """Return (key, message) for each error of a mapping from names to paths; an empty key is the mapping itself."""
    if not isinstance(mapping, dict):
        return [("", gettext("is invalid"))]
    if len(mapping) > MAX_VALUES:
        return [("", gettext("is too long (maximum is %(max)s items)", max=MAX_VALUES))]
    faults = []
    for key, path in mapping.items():
        if not _KEY.fullmatch(key):
            faults.append((key[:64], gettext("is not a valid name")))
        elif not isinstance(path, str) or len(path) > MAX_PATH_CHARACTERS or not _PATH.fullmatch(path):
            faults.append((key, gettext("is invalid")))
    return faults


def pick_values(response: Any, props: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values that a step chooses from a decoded response, by where they are stored and by name.

    A path that leads to nothing or to null has no value. Raises ValueError for a value of more than `MAX_VALUE_BYTES`.
    """
    return {
        target: {key: value for key, path in (props.get(target) or {}).items()
                 if (value := _pick(response, path)) is not None}
        for target in (TO_CONTACT, TO_RUN)
    }  # fmt: skip


def _pick(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdecimal() and len(part) < 6:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    if len(msgspec.json.encode(value)) > MAX_VALUE_BYTES:
        raise ValueError(f"{path} is too long")
    return value
