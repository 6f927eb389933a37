"""One record made a person: addresses in their normal form, fields checked, opt-out state understood."""

import re
from typing import Any, NamedTuple

import msgspec

from appliance import addresses
from appliance.addresses import Address
from appliance.fields import DATA_BYTES
from appliance.importing import columns
from appliance.importing.cells import NO, READ, SPACES, STATES, Bad, clean, typed, word_of

# An address that needs no closer look once its domain has had one
_PLAIN = re.compile(r"[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+(?:\.[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+)*\Z")
_MOST_NAMES = 2000
_GRAVITY = ("complaint", "hard_bounce", "manual", "soft_bounce", "out", "off")
_MAUTIC = {"1": "out", "2": "hard_bounce", "3": "manual"}


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
                # Only cells of a spreadsheet have a quote before what would be a formula
                cell = cell.strip(SPACES) if isinstance(cells, dict) else clean(cell)
                if not cell:
                    continue
            if target.startswith("data."):
                data[target[5:]] = typed(cell) if not isinstance(cells, dict) else cell
            elif target in READ:
                READ[target](row, data, cell, target)
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
        word = word_of(cell)
        if target == "status":
            found = STATES.get(word)
        elif target == "bounced":
            found = None if word in NO else "hard_bounce"
        elif target == "unsubscribed":
            reason = _MAUTIC.get(word) if name in self._reason_column else None
            found = None if word in NO else reason or STATES.get(word, "out")
        elif target == "opted_out_by":
            found = "out" if word == "recipient" else "off"
        else:
            found = "off" if word in NO else None
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


def suppressed(reader: Reader, line: int, cells: Any, targets: list[tuple[int, str, str]]) -> Person:
    """Read a row of addresses that must not be written to; without a word the reason is `manual`. Raises Bad."""
    row: dict[str, Any] = {}
    for index, name, target in targets:
        cell = cells.get(name) if isinstance(cells, dict) else cells[index] if index < len(cells) else None
        cell = clean(cell) if isinstance(cell, str) else cell
        if cell not in (None, "") and target in READ:
            READ[target](row, {}, cell, target)
    text = str(row.get("email") or row.get("phone") or "")
    if not text:
        raise Bad("the row has no address")
    found = reader.email(text) if "@" in text else _phone(text)
    return Person(
        line, found.kind, found.key, found.value, None, None, None, row.get("note"), None, None, None, None,
        row.get("reason", "manual"), None, 0,
    )  # fmt: skip
