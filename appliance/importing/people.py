"""One record made a person: addresses in their normal form, fields checked, opt-out state understood."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from appliance import addresses
from appliance.addresses import Address
from appliance.fields import DATA_BYTES
from appliance.importing import columns

# An address that needs no closer look once its domain has had one
_PLAIN = re.compile(r"[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+(?:\.[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+)*\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SPACES = " \t\r\n\u00a0\u2007\u202f\ufeff\u200b"
# What our export puts before a cell that a spreadsheet would take for a formula
_ESCAPED = re.compile(r"'+[=+\-@\t\r＝＋－＠]")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?\Z")
_MOST_NAMES = 2000
_SEPARATORS = re.compile(r"[,;|]")
_NO = frozenset(("", "0", "no", "n", "false", "f", "off", "none", "null", "never", "nein", "non"))
_YES = frozenset(("1", "yes", "y", "true", "t", "on", "x", "ja", "oui", "si"))
# How other products call what we know; the gravest of a row counts
_STATES = {
    "unsubscribed": "out", "unsubscribe": "out", "opted_out": "out", "optout": "out", "inactive": "off",
    "disabled": "off", "unconfirmed": "off", "pending": "off", "transactional": "off", "non_subscribed": "off",
    "nonsubscribed": "off", "blocklisted": "manual", "blacklisted": "manual", "blocked": "manual", "manual": "manual",
    "suppressed": "manual", "cleaned": "hard_bounce", "bounced": "hard_bounce", "bounce": "hard_bounce",
    "hard_bounce": "hard_bounce", "unreachable": "hard_bounce", "invalid": "hard_bounce", "soft_bounce": "soft_bounce",
    "complained": "complaint", "complaint": "complaint", "spam": "complaint", "abuse": "complaint",
}  # fmt: skip
_GRAVITY = ("complaint", "hard_bounce", "manual", "soft_bounce", "out", "off")
_MAUTIC = {"1": "out", "2": "hard_bounce", "3": "manual"}
REASONS = ("manual", "hard_bounce", "soft_bounce", "complaint")


class Bad(Exception):
    """A record that cannot be a person; its text is the reason."""


class Person(NamedTuple):
    """A row of the staging file."""

    line: int
    kind: str
    key: str
    value: str
    phone: str | None
    first_name: str | None
    last_name: str | None
    source: str | None
    country_code: str | None
    phone_country: str | None
    tracking: str | None
    data: str | None
    state: str | None
    phone_state: str | None
    verified: int


class Reader:
    """Turns records into people, by where their columns go."""

    def __init__(self, names: list[str], targets: list[str]) -> None:
        self._domains: dict[str, tuple[str, str] | None] = {}
        self._countries: dict[str, str | None] = {}
        self._reason_column = {name for name in names if "reason" in name.lower() or name.lower() == "dnc"}
        self._columns = [
            (index, name, target) for index, (name, target) in enumerate(zip(names, targets, strict=True)) if target
        ]
        self._names = set(names)

    def person(self, line: int, cells: Any) -> Person:
        """Read one record; raises Bad."""
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        states: list[str] = []
        if isinstance(cells, dict):
            self._learn(cells)
        for index, name, target in self._columns:
            cell = cells.get(name) if isinstance(cells, dict) else cells[index] if index < len(cells) else None
            if cell is None or cell == "" or cell == []:
                continue
            if isinstance(cell, str):
                cell = _clean(cell)
                if not cell:
                    continue
            if target.startswith("data."):
                data[target[5:]] = _value(cell) if not isinstance(cells, dict) else cell
            elif target in _READ:
                _READ[target](row, data, cell, target)
            else:
                self._state(name, target, cell, states, row)
        return self._made(line, row, data, states)

    def _learn(self, cells: dict[str, Any]) -> None:
        """Find a place for keys of JSON lines that the beginning of the file did not show."""
        for name in cells.keys() - self._names:
            if len(self._names) >= _MOST_NAMES:
                raise Bad(f"the file has too many different keys (maximum is {_MOST_NAMES})")
            self._names.add(name)
            target = columns.guess([name])[0]
            if target:
                self._columns.append((0, name, target))

    def _state(self, name: str, target: str, cell: Any, states: list[str], row: dict[str, Any]) -> None:
        word = _word(cell)
        if target == "status":
            found = _STATES.get(word)
        elif target == "bounced":
            found = None if word in _NO else "hard_bounce"
        elif target == "unsubscribed":
            reason = _MAUTIC.get(word) if name in self._reason_column else None
            found = None if word in _NO else reason or _STATES.get(word, "out")
        elif target == "opted_out_by":
            found = "out" if word == "recipient" else "off"
        else:
            found = "off" if word in _NO else None
            if target == "subscribed_phone":
                row["phone_state"] = found
                return
        if found:
            states.append(found)

    def _made(self, line: int, row: dict[str, Any], data: dict[str, Any], states: list[str]) -> Person:
        email = self.email(row["email"]) if "email" in row else None
        phone = _phone(row["phone"]) if "phone" in row else None
        first = email or phone
        if first is None:
            raise Bad("the row has no address")
        country = self._country(phone.key) if phone is not None else None
        text = msgspec.json.encode(data).decode() if data else None
        if text is not None and len(text) > DATA_BYTES:
            raise Bad(f"data is too long (maximum is {DATA_BYTES} bytes)")
        if text is not None and "\\u0000" in text:
            raise Bad("data holds a NUL character")
        state = next((one for one in _GRAVITY if one in states), None)
        return Person(
            line, first.kind, first.key, first.value, phone.key if email and phone else None, row.get("first_name"),
            row.get("last_name"), row.get("source"), row.get("country_code"), country, row.get("tracking"), text, state,
            row.get("phone_state") or (state if state in ("out", "off") else None), row.get("verified", 0),
        )  # fmt: skip

    def email(self, text: Any) -> Address:
        """Read an address as `addresses.email` does, with one close look at each domain; raises Bad."""
        text = str(text)
        local, _, domain = text.rpartition("@")
        if len(text) <= 254 and len(local) <= 64 and _PLAIN.match(local):
            if domain not in self._domains:
                if len(self._domains) > 100_000:
                    self._domains.clear()
                self._domains[domain] = _domain(domain)
            known = self._domains[domain]
            if known is not None:
                value = f"{local}@{known[0]}"
                if len(value) <= 254:
                    return Address("email", value, f"{local.lower()}@{known[1]}")
        try:
            return addresses.email(text)
        except ValueError:
            raise Bad(f"email is invalid: {text[:100]}") from None

    def _country(self, number: str) -> str | None:
        if number not in self._countries:
            if len(self._countries) > 1000:
                self._countries.clear()
            self._countries[number] = addresses.country_of(number)
        return self._countries[number]


def _domain(domain: str) -> tuple[str, str] | None:
    try:
        found = addresses.email(f"a@{domain}")
    except ValueError:
        return None
    return found.value[2:], found.key[2:]


def _phone(text: Any) -> Address:
    try:
        return addresses.phone(str(text))
    except ValueError:
        raise Bad(f"phone is invalid: {str(text)[:40]}") from None


def _clean(cell: str) -> str:
    cell = cell.strip(_SPACES)
    return cell[1:] if cell.startswith("'") and _ESCAPED.match(cell) else cell


def _word(cell: Any) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell).strip().lower().replace(" ", "_").replace("-", "_")


def _value(cell: str) -> Any:
    """Read a cell without a type: what is written exactly as a number or a truth value is one."""
    if cell in ("true", "false"):
        return cell == "true"
    if _NUMBER.match(cell) and cell != "-0":
        return float(cell) if "." in cell else int(cell)
    return cell


def _line(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell)
    if len(text) > 255:
        raise Bad(f"{target} is too long (maximum is 255 characters)")
    if _CONTROL.search(text):
        raise Bad(f"{target} is invalid")
    row[target] = text


def _address(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    """Take the first of several columns that has one; a second number is kept, but nobody is found by it."""
    if target in row:
        data.setdefault(f"other_{target}", cell)
    else:
        row[target] = cell


def _name(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    first, _, last = str(cell).strip().partition(" ")
    for name, text in (("first_name", first), ("last_name", last.strip())):
        if text and name not in row:
            _line(row, data, text, name)


def _country_code(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell)
    if not (len(text) == 2 and text.isascii() and text.isalpha()):
        raise Bad("country_code is invalid")
    row[target] = text.upper()


def _tracking(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    if cell not in ("full", "aggregate", "none"):
        raise Bad("tracking is not included in the list")
    row[target] = cell


def _tags(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    parts = cell if isinstance(cell, list) else _split_tags(str(cell))
    found = list(dict.fromkeys(text for part in parts if (text := str(part).strip(_SPACES + "\"'"))))
    if len(found) > 100 or any(len(text) > 64 for text in found):
        raise Bad("tags are too many or too long (maximum is 100 of 64 characters)")
    data["tags"] = found


def _split_tags(text: str) -> list[Any]:
    if text.startswith("["):
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found = None
        if isinstance(found, list):
            return found
    return _SEPARATORS.split(text)


def _json_data(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    try:
        found = cell if isinstance(cell, dict) else msgspec.json.decode(str(cell))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Bad("data is not a JSON object")
    for key, value in found.items():
        data.setdefault(key, value)


def _verified(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    row["verified"] = int(_word(cell) in _YES or _word(cell) == "verified")


def _reason(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    word = _word(cell)
    row["reason"] = _STATES.get(word, word)
    if row["reason"] == "out":
        row["reason"] = "manual"
    if row["reason"] not in REASONS:
        raise Bad("reason is not included in the list")


_READ: dict[str, Callable[[dict[str, Any], dict[str, Any], Any, str], None]] = {
    "email": _address, "phone": _address, "name": _name, "first_name": _line, "last_name": _line, "source": _line,
    "country_code": _country_code, "tracking": _tracking, "tags": _tags, "data": _json_data, "verified": _verified,
    "reason": _reason, "note": _line,
}  # fmt: skip


def suppressed(reader: Reader, line: int, cells: Any, targets: list[tuple[int, str, str]]) -> Person:
    """Read a row of addresses that must not be written to; without a word the reason is `manual`. Raises Bad."""
    row: dict[str, Any] = {}
    for index, name, target in targets:
        cell = cells.get(name) if isinstance(cells, dict) else cells[index] if index < len(cells) else None
        cell = _clean(cell) if isinstance(cell, str) else cell
        if cell not in (None, "") and target in _READ:
            _READ[target](row, {}, cell, target)
    text = str(row.get("email") or row.get("phone") or "")
    if not text:
        raise Bad("the row has no address")
    found = reader.email(text) if "@" in text else _phone(text)
    return Person(
        line, found.kind, found.key, found.value, None, None, None, row.get("note"), None, None, None, None,
        row.get("reason", "manual"), None, 0,
    )  # fmt: skip
