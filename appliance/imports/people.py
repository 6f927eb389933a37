"""One record made a person: addresses in their normal form, fields checked, opt-out state understood.

Only a row without any address is lost. Whatever else cannot be read is left out, and the person says so.
"""

import re
from typing import Any, NamedTuple

import msgspec

from appliance.core import addresses, tokens
from appliance.core.addresses import Address
from appliance.core.fields import DATA_BYTES, MAX_DATA_DEPTH, is_too_deep
from appliance.imports import address_states, cells, columns
from appliance.imports.address_states import GRAVITY, Given
from appliance.imports.cells import (
    BLANKS,
    EDGES,
    NO,
    SPACES,
    STATES,
    SUBSCRIBED,
    YES,
    Bad,
    Verdict,
    clean,
    is_blank,
    leave_out,
    typed,
    word_of,  # fmt: skip
)

# Finds the addresses of a row in its cells, whatever else people write there.

# An address that needs no closer look once its domain has had one
_PLAIN = re.compile(r"[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+(?:\.[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+)*\Z")
# Addresses among other words in one cell: `Ann <ann@example.org>; bob@example.org`
_IN_WORDS = re.compile(r"""[^\s<>,;:"()|\[\]]+@[^\s<>,;:"'()|\[\]]+""")
_BEFORE = re.compile(r"""\s*["']?([^<>@"]{1,255}?)["']?\s*<[^<>]+>[\s,;.]*""")
# A space may have slipped into the address itself: `a b@example.org` may be anybody's
_SPACED = re.compile(r"""\s*[^\s<>,;:"()|\[\]@]+\s+[^<>,;:"()|\[\]]*@[^\s@]+\s*""")
# What stands between two numbers in one cell
_SEVERAL = re.compile(r"[;,|/\n]|\s(?:or|oder|ou|und|and|et|y)\s")


class Finder:
    """Reads e-mail addresses and phone numbers; what was found of a domain or number is kept for the next row.

    `country` is that of numbers without country code. Our own export is read to the letter.
    """

    def __init__(self, country: str | None = None, is_own: bool = False) -> None:
        self._domains: dict[str, tuple[str, str] | None] = {}
        self._countries: dict[str, str | None] = {}
        self._country_code, self._is_own = country, is_own

    def email_of(self, row: dict[str, Any], data: dict[str, Any]) -> Address | None:
        """Return the first e-mail address of a row; the others are kept as data, where nobody is found by them."""
        address: Address | None = None
        for cell in row.get("email", ()):
            found: Address | None
            others: list[Address] = []
            try:
                found = self.email(cell if self._is_own else cell.lstrip("'"))
            except Bad:
                found, others = self._in_words(row, cell)
            if found is None:
                leave_out(row, "email", cell, "is not an email address")
            elif address is not None:
                data.setdefault("other_email", cell)
            else:
                address = found
            for other in others:
                leave_out(row, "email", other.value, "is a further address; kept as other_email")
                data.setdefault("other_email", other.value)
        return address

    def _in_words(self, row: dict[str, Any], cell: str) -> tuple[Address | None, list[Address]]:
        """Return the first address that a cell with other words holds, and the others."""
        found: list[Address] = []
        if _SPACED.fullmatch(cell):
            return None, []
        for text in _IN_WORDS.findall(cell):
            try:
                found.append(self.email(text.strip(".'`").removeprefix("mailto:")))
            except Bad:
                continue
        if found and "first_name" not in row and "last_name" not in row and (before := _BEFORE.fullmatch(cell)):
            cells.READ["name"](row, {}, before[1].strip(), "name")
        return (found[0], list(dict.fromkeys(found[1:]))) if found else (None, [])

    def phone_of(self, row: dict[str, Any], data: dict[str, Any]) -> Address | None:
        """Return the first phone number of a row that can be read; the others are kept as data."""
        address: Address | None = None
        for cell in row.get("phone", ()):
            try:
                found, others = self.phone(cell)
            except ValueError as fault:
                leave_out(row, "phone", cell, str(fault))
                continue
            if address is not None:
                data.setdefault("other_phone", cell)
            else:
                address = found
            for other in others:
                leave_out(row, "phone", other, "is a further number; kept as other_phone")
                data.setdefault("other_phone", other)
        return address

    def phone(self, cell: str) -> tuple[Address, list[str]]:
        """Read a number as people write it, and what else is in its cell; raises ValueError with the reason."""
        try:
            return addresses.written_phone(cell, self._country_code), []
        except ValueError:
            parts = [part for part in _SEVERAL.split(cell) if part.strip()]
            for index, part in enumerate(parts if len(parts) > 1 else ()):
                try:
                    found = addresses.written_phone(part, self._country_code)
                except ValueError:
                    continue
                return found, [other.strip() for other in parts[:index] + parts[index + 1 :]]
            raise

    def email(self, text: str) -> Address:
        """Read an address as `addresses.email` does, with one close look at each domain; raises Bad."""
        local, _, domain = text.rpartition("@")
        if len(text) <= 254 and len(local) <= 64 and _PLAIN.match(local):
            known = self._domains.get(domain)
            if known is None and domain not in self._domains:
                if len(self._domains) > 100_000:
                    self._domains.clear()
                known = self._domains[domain] = _domain(domain)
            if known is not None:
                value = f"{local}@{known[0]}"
                if len(value) <= 254:
                    return Address("email", value, f"{local.lower()}@{known[1]}")
        return address_states.email(text)

    def country(self, number: str) -> str | None:
        """Return the country of a number in E.164 by two letters, None where it has none."""
        if number not in self._countries:
            if len(self._countries) > 1000:
                self._countries.clear()
            self._countries[number] = addresses.country_of(number)
        return self._countries[number]


def without_address(row: dict[str, Any]) -> str:
    """Return why a row has no address that can be used."""
    faults = [(field, value, why) for field, value, why in row.get("warnings", ()) if field in ("email", "phone")]
    told = [
        f"email is invalid: {value}" if field == "email" else f"phone {why}: {value[:40]}"
        for field, value, why in faults
    ]
    return "; ".join(told) or "the row has no address"


def _domain(domain: str) -> tuple[str, str] | None:
    try:
        found = addresses.email(f"a@{domain}")
    except ValueError:
        return None
    return found.value[2:], found.key[2:]


_MAX_NAMES = 2000
READ = {**cells.READ, **address_states.READ}
_MAUTIC = {"1": "out", "2": "hard_bounce", "3": "manual"}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Given]).decode
_names = msgspec.json.Decoder(list[str]).decode
_warnings = msgspec.json.Decoder(list[tuple[str, str, str]]).decode


class Person(NamedTuple):
    """A row of the staging file: somebody by their first address; `more`, `lists` and `warnings` are JSON."""

    line: int
    kind: str
    key: str
    value: str
    hash: bytes
    first_name: str | None = None
    last_name: str | None = None
    source: str | None = None
    country_code: str | None = None
    phone_country: str | None = None
    tracking: str | None = None
    data: str | None = None
    suppression: str | None = None
    consent: str | None = None
    verified: int = 0
    opt_in_at: int | None = None
    opt_out_at: int | None = None
    more: str | None = None
    lists: str | None = None
    # What was left out of the row: each as field, value, and why
    warnings: str | None = None
    # The first line of the file that names this address; None if this one is
    first: int | None = None
    # Whether another line of the file names one of these addresses
    shared: int = 0

    def given(self) -> list[Given]:
        """Return the person's addresses, the one they are known by first."""
        own = Given(
            self.kind, self.key, self.value, self.suppression, self.consent, bool(self.verified), self.opt_in_at,
            self.opt_out_at,
        )  # fmt: skip
        return [own, *(_decode(self.more) if self.more else ())]

    def list_names(self) -> list[str]:
        """Return the lists that the row names."""
        return _names(self.lists) if self.lists else []


def warnings_of(packed: str | None) -> list[tuple[str, str, str]]:
    """Return what was left out of a row: each as field, value, and why."""
    return _warnings(packed) if packed else []


class Reader:
    """Turns records into people, by where their columns go.

    `country` is that of phone numbers without country code; `written` says how the dates of a column are written, by
    its index. Our own export is read to the letter: a name of it may be a dash.
    """

    def __init__(
        self, names: list[str], targets: list[str], country: str | None = None,
        written: dict[int, Verdict] | None = None, is_own: bool = False,
    ) -> None:  # fmt: skip
        self._finder = Finder(country, is_own)
        self._written, self._is_own = written or {}, is_own
        self._hash = tokens.address_hasher()
        self._reason_column = {name for name in names if "reason" in name.lower() or name.lower() == "dnc"}
        self._columns = [
            (index, name, target) for index, (name, target) in enumerate(zip(names, targets, strict=True)) if target
        ]
        self._names = set(names)

    def person(self, line: int, record: Any) -> Person:
        """Read one record; raises Bad."""
        if isinstance(record, dict):
            return self._object(line, record)
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        states: list[str] = []
        width = len(record)
        for index, name, target in self._columns:
            cell = record[index] if index < width else ""
            # Only cells of a spreadsheet have a quote before what would be a formula
            if not cell or ((cell[0] in EDGES or cell[-1] in EDGES) and not (cell := clean(cell))):
                continue
            if index in self._written:
                cell = self._date(row, cell, index, target)
            read = READ.get(target)
            if read is not None:
                if self._is_own or not is_blank(cell, target):
                    read(row, data, cell, target)
            elif target.startswith("data."):
                if cell not in BLANKS:
                    data[target[5:]] = typed(cell)
            else:
                self._state(name, target, cell, states, row)
        return self._made(line, row, data, states)

    def _date(self, row: dict[str, Any], cell: str, index: int, target: str) -> str:
        """Return a cell of a column of dates in ISO 8601, or as it is where it cannot be."""
        iso, reason = cells.convert(cell, self._written[index])
        # Times of consent say themselves when they cannot be read, and have other words beside them
        if iso is None and target.startswith("data.") and cell not in BLANKS:
            leave_out(row, target, cell, f"{reason}; kept as text")
        return iso or cell

    def _object(self, line: int, record: dict[str, Any]) -> Person:
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        states: list[str] = []
        self._learn(record)
        for _, name, target in self._columns:
            cell = record.get(name)
            cell = cell.strip(SPACES) if isinstance(cell, str) else cell
            if cell is None or cell == "" or cell == []:
                continue
            if target.startswith("data."):
                data[target[5:]] = cell
            elif target in READ:
                if self._is_own or not isinstance(cell, str) or not is_blank(cell, target):
                    READ[target](row, data, cell, target)
            else:
                self._state(name, target, cell, states, row)
        return self._made(line, row, data, states)

    def _learn(self, record: dict[str, Any]) -> None:
        """Find a place for keys of JSON lines that the beginning of the file did not show."""
        for name in record.keys() - self._names:
            if len(self._names) >= _MAX_NAMES:
                raise Bad(f"the file has too many different keys (maximum is {_MAX_NAMES})")
            self._names.add(name)
            target = columns.guess([name])[0]
            if target:
                self._columns.append((0, name, target))

    def _state(self, name: str, target: str, cell: Any, states: list[str], row: dict[str, Any]) -> None:
        word = word_of(cell)
        if word in BLANKS and word not in NO:
            return
        if target == "status":
            found = STATES.get(word)
            if found is None and word not in SUBSCRIBED and word not in YES:
                leave_out(row, target, cell, "is not a known status")
        elif target == "bounced":
            found = None if word in NO else "hard_bounce"
        elif target == "unsubscribed":
            reason = _MAUTIC.get(word) if name in self._reason_column else None
            found = None if word in NO else reason or STATES.get(word, "out")
            if found == "out":
                row.setdefault("opt_out_at", address_states.moment(cell))
        elif target == "opted_out_by":
            found = "out" if word == "recipient" else "off"
        else:
            # Some write when somebody agreed instead of that they did
            found = _answer(word) or ("in" if address_states.moment(cell) else None)
            if found is None:
                leave_out(row, target, cell, "is neither yes nor no")
            if target == "subscribed_phone":
                row["phone_consent"] = "out" if found in GRAVITY else found
                return
        if found:
            states.append(found)

    def _made(self, line: int, row: dict[str, Any], data: dict[str, Any], states: list[str]) -> Person:
        email, phone = self._finder.email_of(row, data), self._finder.phone_of(row, data)
        first = email or phone or _first(row.get("channels"))
        if first is None:
            raise Bad(without_address(row))
        text = self._data(row, data) if data else None
        suppression = next((one for one in GRAVITY if one in states), None) if states else None
        consent = next((one for one in ("out", "off", "in") if one in states), None) if states else None
        own = (suppression, consent, row.get("verified", 0), row.get("opt_in_at"), row.get("opt_out_at"))
        more = None
        if (email is not None and phone is not None) or "channels" in row:
            own, more = _further(first, phone if email is not None else None, row, own)
        return Person(
            line, first.kind, first.key, first.value, self._hash(first.kind, first.key), row.get("first_name"),
            row.get("last_name"), row.get("source"), row.get("country_code"),
            # Our own export says what country there is, or that there is none
            self._finder.country(phone.key) if phone is not None and "channels" not in row else None,
            row.get("tracking"), text, *own, more, row.get("lists"),
            _encode(row["warnings"]).decode() if "warnings" in row else None,
        )  # fmt: skip

    def _data(self, row: dict[str, Any], data: dict[str, Any]) -> str | None:
        """Return the custom data as JSON; without what cannot be kept."""
        fault = None
        text = _encode(data).decode()
        if len(text) > DATA_BYTES:
            fault = f"is too long (maximum is {DATA_BYTES} bytes)"
        elif "\\u0000" in text:
            fault = "holds a NUL character"
        elif text.count("{") + text.count("[") > MAX_DATA_DEPTH and is_too_deep(data):
            fault = "is nested too deeply"
        if fault is None:
            return text
        leave_out(row, "data", text, fault)
        return None

    def suppressed(self, line: int, record: Any) -> Person:
        """Read a row of addresses that must not be written to; without a known reason it is `manual`. Raises Bad."""
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        for index, name, target in self._columns:
            cell = record.get(name) if isinstance(record, dict) else record[index] if index < len(record) else None
            cell = clean(cell) if isinstance(cell, str) else cell
            if cell not in (None, "") and target in READ and not (isinstance(cell, str) and is_blank(cell, target)):
                READ[target](row, data, cell, target)
        if "phone" not in row and not any("@" in text for text in row.get("email", ())):
            # One column of addresses holds both kinds
            row["phone"] = row.pop("email", [])
        address = self._finder.email_of(row, data) or self._finder.phone_of(row, data)
        if address is None:
            raise Bad(without_address(row))
        return Person(
            line, address.kind, address.key, address.value, self._hash(address.kind, address.key),
            source=row.get("note"), suppression=row.get("reason", "manual"),
            warnings=_encode(row["warnings"]).decode() if "warnings" in row else None,
        )  # fmt: skip


def _answer(word: str) -> str | None:
    """Return what a yes or no, or a status in its place, says of consent; None for what says neither."""
    if word in YES or word in SUBSCRIBED:
        return "in"
    return "off" if word in NO else STATES.get(word)


def _first(known: list[Given] | None) -> Address | None:
    return Address(known[0].kind, known[0].value, known[0].key) if known else None


def _further(
    first: Address, phone: Address | None, row: dict[str, Any], own: tuple[Any, ...]
) -> tuple[tuple[Any, ...], str | None]:
    """Return the standing of the first address and the others as JSON; the column `channels` knows best of each."""
    found: dict[tuple[str, str], Given] = {}
    if phone is not None:
        # What a file says of a person's consent without saying for which address holds for both
        consent = row.get("phone_consent") or (own[1] if own[1] in ("out", "off") else None)
        found[("phone", phone.key)] = Given(phone.kind, phone.key, phone.value, None, consent)
    for one in row.get("channels", ()):
        if (one.kind, one.key) == (first.kind, first.key):
            own = (one.suppression, one.consent, int(one.verified), one.opt_in_at, one.opt_out_at)
        else:
            found[(one.kind, one.key)] = one
    return own, _encode(list(found.values())).decode() if found else None
