"""Read posted forms, and show validation errors as sentences at their fields."""

import re
from datetime import date, datetime
from typing import Any, Self
from zoneinfo import ZoneInfo

from sanic import Request

from appliance.core import clock, errors
from appliance.core.i18n import gettext, gettext_noop, ngettext
from ui import formats

# Validation messages that pages replace with sentences of their own.
IS_INVALID, IS_TAKEN = gettext_noop("is invalid"), gettext_noop("has already been taken")
# Sentences for validation messages. Any other message is turned into a sentence by `formats.sentence`.
_SENTENCES = {
    gettext_noop("can't be blank"): gettext_noop("This field is required."),
    IS_INVALID: gettext_noop("This value is not valid. Check it for typos."),
    IS_TAKEN: gettext_noop("This is already in use. Enter another."),
    gettext_noop("must exist"): gettext_noop("This no longer exists. Select another."),
    gettext_noop("is not included in the list"): gettext_noop("Select one of the options."),
}

# Hints for invalid fields, by a part of the field's name.
_HINTS = {
    "email": gettext_noop("Enter an email address like name@example.com."),
    "reply_to": gettext_noop("Enter an email address like name@example.com."),
    "phone": gettext_noop("Enter the number with its country code, like +44 20 7946 0018."),
    "country": gettext_noop("Enter the two-letter country code, like GB."),
}
_LENGTH = re.compile(r"is too (short|long) \(m\w+ is (\d+) characters\)")


class Form:
    """The values and errors of a form, from which a page shows the user's entries again.

    `values` has the first value of each field, stripped; `lists` has all values as posted. `errors` maps fields to
    sentences; the key `base` is shown above the form.
    """

    def __init__(self, values: dict[str, str] | None = None, lists: dict[str, list[str]] | None = None) -> None:
        self.values = values or {}
        self.lists = lists or {}
        self.errors: dict[str, str] = {}
        # `edit_conflicts.merge_form` sets the conflicts and the digests of the stored values.
        self.conflicts: list[Any] = []
        self.stored_digests: dict[str, str] = {}

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """Return the form that a request posted; in `values` every line end is a single newline."""
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
        """Return every value of a field, such as one with several checkboxes, as posted."""
        return self.lists.get(name, [])

    def raw(self, name: str) -> str:
        """Return the first value of a field as posted, including spaces, for passwords."""
        return next(iter(self.getlist(name)), "")

    def ids(self, name: str) -> list[int]:
        """Return the ids among the values of a field; other values are dropped."""
        return [int(text) for text in self.getlist(name) if text.isdecimal() and len(text) < 19]

    def text(self, name: str) -> str | None:
        """Return the value of a field, or None if it is empty."""
        return self[name] or None

    def add_error(self, name: str, sentence: str) -> None:
        """Add an error to a field, unless the field has an error already."""
        self.errors.setdefault(name, sentence)

    def require(self, name: str, sentence: str) -> None:
        """Add an error to a field if the field is empty."""
        if not self[name]:
            self.add_error(name, sentence)

    def add_errors(self, error: errors.Invalid, names: dict[str, str] | None = None) -> "Form":
        """Add the errors of an Invalid to the fields of the form, and return the form.

        `names` maps error paths, or their last parts, to field names. Errors that match no field are added to `base`.
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
        """Return the time of a date field and an hour field in a time zone, in milliseconds.

        An empty hour means 09:00. If the date or hour is invalid, add an error to the date field and return None.
        """
        try:
            local = datetime.fromisoformat(f"{self[day]}T{self[hour] or '09:00'}").replace(tzinfo=zone)
            return clock.parse(local.isoformat())
        except (ValueError, OverflowError):
            self.add_error(day, gettext("Select a date."))
            return None


def is_message(message: str, text: str) -> bool:
    """Return whether a validation message is `text`, in English or in the language of the page."""
    return message in (text, gettext(text))


def has_message(error: errors.Invalid, field: str, text: str) -> bool:
    """Return whether an Invalid has the validation message `text` at a field."""
    return any(is_message(message, text) for message in error.fields.get(field, ()))


def _field_sentence(field: str, message: str) -> str:
    if is_message(message, IS_INVALID):
        hint = next((hint for name, hint in _HINTS.items() if name in field), None)
        if hint:
            return gettext(hint)
    return error_sentence(message)


def error_sentence(message: str, path: str = "") -> str:
    """Return a validation message as a sentence, which names `path` if it is given."""
    if match := _LENGTH.match(message):
        if match[1] == "short":
            return ngettext("Use at least %(num)s character.", "Use at least %(num)s characters.", int(match[2]))
        return ngettext("Use at most %(num)s character.", "Use at most %(num)s characters.", int(match[2]))
    known_sentence = next((sentence for text, sentence in _SENTENCES.items() if is_message(message, text)), None)
    if known_sentence and not path:
        return gettext(known_sentence)
    return formats.sentence(f"{path.replace('_', ' ').replace('.', ' ')} {message}")


def parse_int(text: str | None, default: int = 1, limit: int = 10**6) -> int:
    """Parse a decimal number of a query and clamp it to 1..`limit`; return `default` for any other text."""
    if not text or not text.isdecimal() or len(text) > 9:
        return default
    return max(1, min(int(text), limit))


def parse_id(text: str | None) -> int:
    """Parse an object id of up to 18 digits; return 0, which is no object's id, for any other text.

    Unlike `parse_int`, it never clamps: another number would be the id of another object.
    """
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 18 else 0


def parse_day(text: str | None) -> date | None:
    """Parse an ISO date; None if the date is invalid or not between the years 1970 and 9998."""
    try:
        date_ = date.fromisoformat(text or "")
    except ValueError:
        return None
    return date_ if 1970 <= date_.year < 9999 else None


# A whole number without or with spaces between its thousands; then with decimals or separators: 89.90, 89,90,
# 1.234,50, 1,234.50. A comma before exactly three digits is refused: 1,234 is read differently in different countries.
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}")
_COMMA_DECIMAL = re.compile(r"[+-]?(?:\d+,(?!\d{3}$)|\d{1,3}(?:\.\d{3})+,|0,)\d+")
_ENGLISH_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+\.\d+")


def parse_number(text: str) -> int | float:
    """Parse a number as people write it, ignoring spaces: `1250`, `89.90`, `89,90`, `1.234,50` or `1,234.50`.

    `1.234` is read with a decimal point. Raises ValueError for `1,234`, which is ambiguous, and for any text that is
    not a finite number.
    """
    plain = re.sub(r"\s", "", text)
    if _WHOLE_NUMBER.fullmatch(plain):
        return int(plain)
    if _COMMA_DECIMAL.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif _ENGLISH_THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    number = float(plain)
    if number != number or abs(number) == float("inf"):
        raise ValueError(text)
    return number


def list_params(request: Request, limit: int) -> tuple[dict[str, Any], str]:
    """Return the query parameters of a list page as (parameters, search text).

    The parameters are `page`, `limit` and, unless it is empty, `search`.
    """
    search = (request.args.get("search") or "").strip()[:254]
    raw: dict[str, Any] = {"page": parse_int(request.args.get("page")), "limit": limit}
    return raw | ({"search": search} if search else {}), search


def safe_path(text: str | None) -> str:
    """Return a path to redirect to, or `/` if it could lead to another site."""
    if not text or not text.startswith("/") or text.startswith(("//", "/\\")) or any(ord(c) < 33 for c in text):
        return "/"
    return text
