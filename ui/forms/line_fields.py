"""Fields of forms that hold data: lines of names and values, and JSON."""

import json
from typing import Any

from appliance.core import errors
from appliance.core.i18n import gettext

_MAX_KEY_CHARACTERS = 100


def format_lines(values: dict[str, Any]) -> str:
    """Return the lines of values, which `parse_lines` reads."""
    return "\n".join(f"{key}: {_format_value(value)}" for key, value in values.items())


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and not _needs_quoting(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _needs_quoting(text: str) -> bool:
    return bool(_parse_value(text) != text)


def _parse_value(text: str) -> Any:
    if not text:
        return None
    if text[0] in '-0123456789"{[' or text in ("true", "false", "null"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def parse_lines(text: str, name: str) -> dict[str, Any]:
    """Parse lines of `name: value` or `name = value` to a dict, decoding JSON values.

    Raises Invalid with an error at the path `name`.
    """
    values: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        separator = min(filter(None, (line.find(":") + 1, line.find("=") + 1)), default=0)
        key = line[: separator - 1].strip() if separator else ""
        if not 1 <= len(key) <= _MAX_KEY_CHARACTERS:
            message = gettext("This line does not have the form “name: value”: %(line)s", line=line.strip()[:40])
            raise errors.Invalid({name: [message]})
        values[key] = _parse_value(line[separator:].strip())
    return values


def parse_json(name: str, text: str) -> Any:
    """Return the JSON of a field, None for an empty text. Raises Invalid with the place of the error."""
    try:
        return json.loads(text) if text.strip() else None
    except RecursionError:
        raise errors.Invalid({name: [gettext("This is not valid JSON.")]}) from None
    except json.JSONDecodeError as error:
        message = gettext("This is not valid JSON: see line %(line)s, column %(column)s.", line=error.lineno,
                          column=error.colno)  # fmt: skip
        raise errors.Invalid({name: [message]}) from None
