"""Forms: read what a browser posted, and show errors of the domain as sentences at their fields."""

import re
from datetime import datetime
from typing import Any, Self
from zoneinfo import ZoneInfo

from sanic import Request

from appliance.core import clock, errors
from ui import formats

# Sentences for validation messages. Messages that are missing here are shown as they are, as a sentence.
_SENTENCES = {
    "can't be blank": "Fill this in.",
    "is invalid": "This does not look right. Check it for a slip.",
    "has already been taken": "This is already in use. Choose another.",
    "must exist": "This no longer exists. Choose another.",
    "is not included in the list": "Choose one of those offered.",
}

# Hints for invalid fields, by a part of their names.
_HINTS = {
    "email": "Write an address like name@example.com.",
    "reply_to": "Write an address like name@example.com.",
    "phone": "Write the number with its country, like +44 20 7946 0018.",
    "country": "Write the two letters of the country, like GB.",
}
_LENGTH = re.compile(r"is too (short|long) \(m\w+ is (\d+) characters\)")


class Form:
    """The values of a posted form and their errors. The page always shows again what the user typed."""

    def __init__(self, values: dict[str, str] | None = None, lists: dict[str, list[str]] | None = None) -> None:
        self.values = values or {}
        self.lists = lists or {}
        self.errors: dict[str, str] = {}
        # Set by edit_conflicts.merge_form: the conflicts, and the digests of the stored values.
        self.conflicts: list[Any] = []
        self.stored_digests: dict[str, str] = {}

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """Return the form of a request; values are stripped and line ends are one character."""
        posted: dict[str, list[str]] = dict(request.get_form(keep_blank_values=True) or {})
        values = {
            name: values_of_field[0].replace("\r\n", "\n").strip()
            for name, values_of_field in posted.items()
            if values_of_field
        }
        return cls(values, posted)

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def getlist(self, name: str) -> list[str]:
        """Return every value of a field that may be chosen several times."""
        return self.lists.get(name, [])

    def raw(self, name: str) -> str:
        """Return a field exactly as it was typed, including spaces; for passwords."""
        return next(iter(self.getlist(name)), "")

    def ids(self, name: str) -> list[int]:
        """Return the chosen ids of a field, without values that are not numbers."""
        return [int(text) for text in self.getlist(name) if text.isdecimal() and len(text) < 19]

    def text(self, name: str) -> str | None:
        """Return a field's text, or None if it is empty."""
        return self[name] or None

    def add_error(self, name: str, sentence: str) -> None:
        """Add an error to a field, unless it has one."""
        self.errors.setdefault(name, sentence)

    def require(self, name: str, sentence: str) -> None:
        """Add an error if a field is empty."""
        if not self[name]:
            self.add_error(name, sentence)

    def add_errors(self, error: errors.Invalid, names: dict[str, str] | None = None) -> "Form":
        """Add the field errors of the domain.

        `names` maps error paths to fields of this form. Errors without a field are shown above the form.
        """
        for path, messages in error.fields.items():
            last = path.rpartition(".")[2]
            field = (names or {}).get(path) or (names or {}).get(last) or (last if last in self.values else "base")
            self.add_error(
                field, error_sentence(messages[0], path) if field == "base" else _field_sentence(field, messages[0])
            )
        if not error.fields:
            self.add_error("base", error_sentence(error.message))
        return self

    def moment(self, day: str, hour: str, zone: ZoneInfo) -> int | None:
        """Return the time of a date and an hour field in a zone, in milliseconds.

        Adds an error and returns None if it is invalid.
        """
        try:
            local = datetime.fromisoformat(f"{self[day]}T{self[hour] or '09:00'}").replace(tzinfo=zone)
            return clock.parse(local.isoformat())
        except (ValueError, OverflowError):
            self.add_error(day, "Choose a date.")
            return None


def _field_sentence(field: str, message: str) -> str:
    if message == "is invalid":
        hint = next((hint for name, hint in _HINTS.items() if name in field), None)
        if hint:
            return hint
    return error_sentence(message)


def error_sentence(message: str, path: str = "") -> str:
    """Return the message of a field error as a sentence."""
    if match := _LENGTH.match(message):
        return f"Use at {'least' if match[1] == 'short' else 'most'} {match[2]} characters."
    known_sentence = _SENTENCES.get(message)
    if known_sentence and not path:
        return known_sentence
    return formats.sentence(f"{path.replace('_', ' ').replace('.', ' ')} {message}")


def parse_int(text: str | None, default: int = 1, limit: int = 10**6) -> int:
    """Return an integer of a query, clamped to 1..`limit`, or the default if it is not an integer."""
    if not text or not text.isdecimal() or len(text) > 9:
        return default
    return max(1, min(int(text), limit))


def list_params(request: Request, limit: int) -> tuple[dict[str, Any], str]:
    """Return the page, limit and search that list queries take, and the search by itself."""
    search = (request.args.get("search") or "").strip()[:254]
    raw: dict[str, Any] = {"page": parse_int(request.args.get("page")), "limit": limit}
    return raw | ({"search": search} if search else {}), search


def safe_path(text: str | None) -> str:
    """Return a path on this site to redirect to, or `/` if the path could lead elsewhere."""
    if not text or not text.startswith("/") or text.startswith(("//", "/\\")) or any(ord(c) < 33 for c in text):
        return "/"
    return text
