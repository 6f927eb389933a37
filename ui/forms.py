"""Forms: strings of the browser to values, refusals of the domain to sentences at their field."""

import re
from datetime import datetime
from typing import Any, Self
from zoneinfo import ZoneInfo

from sanic import Request

from appliance.core import clock, errors
from ui import words

# What the rules say in the API's words, said to a person. A message that is not here is shown as it is, as a sentence.
_SENTENCES = {
    "can't be blank": "Fill this in.",
    "is invalid": "This does not look right. Check it for a slip.",
    "has already been taken": "This is already in use. Choose another.",
    "must exist": "This no longer exists. Choose another.",
    "is not included in the list": "Choose one of those offered.",
}

# What a field wants to look like, by a part of its name.
_HINTS = {
    "email": "Write an address like name@example.com.",
    "reply_to": "Write an address like name@example.com.",
    "phone": "Write the number with its country, like +44 20 7946 0018.",
    "country": "Write the two letters of the country, like GB.",
}
_LENGTH = re.compile(r"is too (short|long) \(m\w+ is (\d+) characters\)")


class Form:
    """What was typed, and what is wrong with it; nothing typed is ever lost."""

    def __init__(self, values: dict[str, str] | None = None, lists: dict[str, list[str]] | None = None) -> None:
        self.values = values or {}
        self.lists = lists or {}
        self.errors: dict[str, str] = {}
        # Where others saved meanwhile (see together.py): what differs, and what was kept when that was looked at
        self.met: list[Any] = []
        self.stood: dict[str, str] = {}

    @classmethod
    def of(cls, request: Request) -> Self:
        """Read what the browser posted; surrounding spaces are dropped, line ends are one character."""
        posted: dict[str, list[str]] = dict(request.get_form(keep_blank_values=True) or {})
        values = {name: found[0].replace("\r\n", "\n").strip() for name, found in posted.items() if found}
        return cls(values, posted)

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def all(self, name: str) -> list[str]:
        """Return every value of a field that may be chosen several times."""
        return self.lists.get(name, [])

    def exact(self, name: str) -> str:
        """Return a field as it was typed, spaces and all; for passwords."""
        return next(iter(self.all(name)), "")

    def ids(self, name: str) -> list[int]:
        """Return the chosen ids of a field; what is no number is left out."""
        return [int(text) for text in self.all(name) if text.isdecimal() and len(text) < 19]

    def text(self, name: str) -> str | None:
        """Return a field's text, or None if it is empty."""
        return self[name] or None

    def wrong(self, name: str, sentence: str) -> None:
        """Note what is wrong with a field, once."""
        self.errors.setdefault(name, sentence)

    def need(self, name: str, sentence: str) -> None:
        """Note that a field must be filled in."""
        if not self[name]:
            self.wrong(name, sentence)

    def take(self, refused: errors.Invalid, names: dict[str, str] | None = None) -> "Form":
        """Note the domain's faults; `names` maps its paths to fields of this form. The rest stands above the form."""
        for path, messages in refused.fields.items():
            last = path.rpartition(".")[2]
            field = (names or {}).get(path) or (names or {}).get(last) or (last if last in self.values else "base")
            self.wrong(field, sentence(messages[0], path) if field == "base" else _at(field, messages[0]))
        if not refused.fields:
            self.wrong("base", sentence(refused.message))
        return self

    def moment(self, day: str, hour: str, zone: ZoneInfo) -> int | None:
        """Return the moment that a date and a time name in a zone, in milliseconds; notes what is missing or wrong."""
        try:
            local = datetime.fromisoformat(f"{self[day]}T{self[hour] or '09:00'}").replace(tzinfo=zone)
            return clock.parse(local.isoformat())
        except (ValueError, OverflowError):
            self.wrong(day, "Choose a date.")
            return None


def _at(field: str, message: str) -> str:
    if message == "is invalid":
        hint = next((hint for name, hint in _HINTS.items() if name in field), None)
        if hint:
            return hint
    return sentence(message)


def sentence(message: str, path: str = "") -> str:
    """Turn a message of a rule into a sentence for a person."""
    if found := _LENGTH.match(message):
        return f"Use at {'least' if found[1] == 'short' else 'most'} {found[2]} characters."
    known = _SENTENCES.get(message)
    if known and not path:
        return known
    return words.sentence(f"{path.replace('_', ' ').replace('.', ' ')} {message}")


def number(text: str | None, default: int = 1, most: int = 10**6) -> int:
    """Return a whole number of a query, within bounds; what is none is the default."""
    if not text or not text.isdecimal() or len(text) > 9:
        return default
    return max(1, min(int(text), most))


def listing(request: Request, limit: int) -> tuple[dict[str, Any], str]:
    """Return what every table is asked with, its page and what is searched for, and the latter by itself."""
    search = (request.args.get("search") or "").strip()[:254]
    raw: dict[str, Any] = {"page": number(request.args.get("page")), "limit": limit}
    return raw | ({"search": search} if search else {}), search


def local_path(text: str | None) -> str:
    """Return a path on this site to go on to; anything that could lead elsewhere is the start page."""
    if not text or not text.startswith("/") or text.startswith(("//", "/\\")) or any(ord(c) < 33 for c in text):
        return "/"
    return text
