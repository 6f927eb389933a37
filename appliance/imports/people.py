"""Turn the records of an imported file into `Person` rows with their addresses (`PersonReader`).

A row without a valid address is rejected; most other invalid values are left out with a warning.
"""

import re
from collections.abc import Set
from typing import Any, NamedTuple

import msgspec

from appliance.core import addresses, crypto
from appliance.core.addresses import Address
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.core.validation import MAX_DATA_BYTES, MAX_DATA_DEPTH, is_too_deep
from appliance.imports import cells, columns
from appliance.imports.cells import (
    BLANKS,
    CELL_READERS,
    INVALID_EMAIL,
    INVALID_PHONE,
    MAX_ADDRESS_CELL_CHARACTERS,
    NO,
    REASONS_BY_SEVERITY,
    REFUSALS,
    SPACES,
    STATES,
    SUBSCRIBED,
    UNCLEAN_EDGES,
    YES,
    InvalidRecord,
    RowAddress,
    add_warning,
    clean_cell,
    is_blank,
    normalize_word,
    parse_email,
    parse_typed,
)
from appliance.imports.columns import DateFormat
from appliance.imports.detection import NumberFormat, convert_number

_MAX_NAMES = 2000
_KEPT_AS_TEXT = gettext_stored("%(reason)s; kept as text")
_TOO_MANY_KEYS = gettext_stored("the file has too many different keys (maximum is %(limit)s)")
_TOO_LONG = gettext_stored("is too long (maximum is %(limit)s bytes)")
READERS = {**cells.CELL_READERS, **cells.STATE_READERS}
_MAUTIC_REASONS = {"1": "out", "2": "hard_bounce", "3": "manual"}
_encode = msgspec.json.Encoder().encode
_decode_addresses = msgspec.json.Decoder(list[RowAddress]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_warnings = msgspec.json.Decoder(list[tuple[str, str, str]]).decode


class Person(NamedTuple):
    """A valid row of a file of contacts or suppressions, as stored in the staging file.

    The fields `kind` to `hash` are the identifying address: the email address, else the phone number, else the first
    address in the column `channels`. The fields `suppression` to `opt_out_at` are the state of that address, as in
    `RowAddress`. `phone_country` is the country of the phone number. `data` is custom data as JSON, `more` a JSON list
    of the other addresses (as `RowAddress`), and `lists` a JSON list of names.
    """

    line: int
    kind: str
    key: str
    value: str
    hash: bytes
    first_name: str | None = None
    last_name: str | None = None
    source: str | None = None
    country_code: str | None = None
    language: str | None = None
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
    # A JSON list of (field, value, reason), one for each value that was left out or changed
    warnings: str | None = None
    # The first line with this identifying address, or None if it is this line
    first: int | None = None
    # 1 if another line of the file has one of the addresses, else 0
    shared: int = 0

    def list_addresses(self) -> list[RowAddress]:
        """Return all addresses of the row, the identifying address first."""
        own = RowAddress(
            self.kind, self.key, self.value, self.suppression, self.consent, bool(self.verified), self.opt_in_at,
            self.opt_out_at,
        )  # fmt: skip
        return [own, *(_decode_addresses(self.more) if self.more else ())]

    def list_names(self) -> list[str]:
        """Return the names of the lists in the row."""
        return _decode_names(self.lists) if self.lists else []


def decode_warnings(warnings_json: str | None) -> list[tuple[str, str, str]]:
    """Return the (field, value, reason) of each warning in the JSON of `Person.warnings`."""
    return _decode_warnings(warnings_json) if warnings_json else []


class PersonReader:
    """A reader that turns records into `Person` rows, by the targets of the columns.

    `names` and `targets` are the names and target fields of the columns, in order. `country` is the default country of
    phone numbers. By column index, `written` has the date formats and `numbers` the number formats; `texts` has the
    indexes of columns whose values stay text, and `day_numbers` those in which day numbers of spreadsheets are dates.
    `is_own` means that the file is our own export, which has no placeholders for empty values: a dash is a name there.

    `unstated_counts` has the number of rows that say neither yes nor no, by the target of the consent column. Such rows
    are opted in only with `opt_in_unstated`.
    """

    def __init__(
        self, names: list[str], targets: list[str], country: str | None = None,
        written: dict[int, DateFormat] | None = None, is_own: bool = False, *,
        numbers: dict[int, NumberFormat] | None = None, texts: Set[int] = frozenset(), opt_in_unstated: bool = True,
        day_numbers: Set[int] = frozenset(),
    ) -> None:  # fmt: skip
        self._opt_in_unstated = opt_in_unstated
        self.unstated_counts = dict.fromkeys(("status", "subscribed_email", "subscribed_phone"), 0)
        self._numbers, self._texts = numbers or {}, texts
        self._address_reader = AddressReader(country, is_own)
        self._written, self._is_own, self._day_numbers = written or {}, is_own, day_numbers
        self._hash = crypto.make_address_hasher()
        self._reason_column = {name for name in names if "reason" in name.lower() or name.lower() == "dnc"}
        self._columns = [
            (index, name, target) for index, (name, target) in enumerate(zip(names, targets, strict=True)) if target
        ]
        self._consent_targets = self.unstated_counts.keys() & set(targets)
        self._names = set(names)

    def person(self, line: int, record: Any) -> Person:
        """Return a record (a list of cells, or a dict by column name) as a `Person`; raises InvalidRecord."""
        if isinstance(record, dict):
            return self._object(line, record)
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        states: list[str] = []
        width = len(record)
        for index, name, target in self._columns:
            cell = record[index] if index < width else ""
            # Only CSV cells are cleaned of a quote before a formula, because JSON lines are not read by spreadsheets.
            if not cell or ((cell[0] in UNCLEAN_EDGES or cell[-1] in UNCLEAN_EDGES) and not (cell := clean_cell(cell))):
                continue
            if index in self._written:
                cell = self._date(row, cell, index, target)
            reader = READERS.get(target)
            if reader is not None:
                if self._is_own or not is_blank(cell, target):
                    reader(row, data, cell, target)
            elif target.startswith("data."):
                if cell in BLANKS:
                    continue
                if index in self._numbers:
                    data[target[5:]] = self._number(row, cell, index, target)
                else:
                    data[target[5:]] = cell if index in self._texts else parse_typed(cell)
            else:
                self._state(name, target, cell, states, row)
        return self._build_person(line, row, data, states)

    def _date(self, row: dict[str, Any], cell: str, index: int, target: str) -> str:
        """Return the date of a cell in ISO 8601, or the cell itself if it cannot be converted.

        Custom data that cannot be converted gets a warning.
        """
        iso, reason = columns.convert_date(cell, self._written[index], has_day_numbers=index in self._day_numbers)
        # Times of consent get no warning here: a cell may be a word such as yes, and READERS report invalid times.
        if iso is None and target.startswith("data.") and cell not in BLANKS:
            add_warning(row, target, cell, _KEPT_AS_TEXT % {"reason": reason})
        return iso or cell

    def _number(self, row: dict[str, Any], cell: str, index: int, target: str) -> Any:
        """Return the number of a cell, or the cell itself with a warning if it cannot be converted."""
        number, reason = convert_number(cell, self._numbers[index])
        if reason is None:
            return number
        value = parse_typed(cell)
        if isinstance(value, str):
            add_warning(row, target, cell, _KEPT_AS_TEXT % {"reason": reason})
        return value

    def _object(self, line: int, record: dict[str, Any]) -> Person:
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        states: list[str] = []
        self._add_targets(record)
        for _, name, target in self._columns:
            cell = record.get(name)
            cell = cell.strip(SPACES) if isinstance(cell, str) else cell
            if cell is None or cell == "" or cell == []:
                continue
            if target.startswith("data."):
                data[target[5:]] = cell
            elif target in READERS:
                if self._is_own or not isinstance(cell, str) or not is_blank(cell, target):
                    READERS[target](row, data, cell, target)
            else:
                self._state(name, target, cell, states, row)
        return self._build_person(line, row, data, states)

    def _add_targets(self, record: dict[str, Any]) -> None:
        """Guess the targets of new keys of a JSON object; raises InvalidRecord if the file has too many keys."""
        for name in record.keys() - self._names:
            if len(self._names) >= _MAX_NAMES:
                raise InvalidRecord(_TOO_MANY_KEYS % {"limit": _MAX_NAMES})
            self._names.add(name)
            target = columns.guess_targets([name])[0]
            if target:
                self._columns.append((0, name, target))
                self._consent_targets |= self.unstated_counts.keys() & {target}

    def _state(self, name: str, target: str, cell: Any, states: list[str], row: dict[str, Any]) -> None:
        word = normalize_word(cell)
        if word in BLANKS and word not in NO:
            return
        if target == "status":
            state = STATES.get(word, "no" if word in REFUSALS else None)
            if state is not None or word in SUBSCRIBED or word in YES:
                row["stated"] = True
            else:
                add_warning(row, target, cell, gettext_noop("is not a known status"))
        elif target == "bounced":
            state = None if word in NO else "hard_bounce"
        elif target == "unsubscribed":
            reason = _MAUTIC_REASONS.get(word) if name in self._reason_column else None
            state = None if word in NO else reason or STATES.get(word, "out")
            if state == "out":
                row.setdefault("opt_out_at", cells.parse_past_time(cell))
        elif target == "opted_out_by":
            state = "out" if word == "recipient" else "no"
        else:
            # Instead of a word, the cell may contain the time of the consent.
            state = _consent_word(word) or ("in" if cells.parse_past_time(cell) else None)
            if state == "no" and self._is_own:
                # Our own export says no for every address that is not subscribed. Which of them opted out is in its
                # column `opted_out_by`.
                state = "off"
            if state is None:
                add_warning(row, target, cell, gettext_noop("is neither yes nor no"))
            if target == "subscribed_phone":
                row["phone_consent"] = "out" if state in REASONS_BY_SEVERITY else state
                return
            row["stated"] = row.get("stated") or state is not None
        if state:
            states.append(state)

    def _build_person(self, line: int, row: dict[str, Any], data: dict[str, Any], states: list[str]) -> Person:
        email, phone = self._address_reader.email_of(row, data), self._address_reader.phone_of(row, data)
        identifying = email or phone or _first_channel(row.get("channels"))
        if identifying is None:
            raise InvalidRecord(explain_missing_address(row))
        text = self._data(row, data) if data else None
        suppression = (
            next((candidate for candidate in REASONS_BY_SEVERITY if candidate in states), None) if states else None
        )
        if email is None and _is_about_email(row, suppression):
            suppression = None
        consent: str | None = (
            next((state for state in ("out", "no", "off", "in") if state in states), None) if states else None
        )
        if consent == "no" and email is None:
            # These columns are about email. A no in them is not an opt-out from SMS, whose consent has its own column.
            consent = "off"
        if self._consent_targets and "channels" not in row:
            consent = self._add_unstated(row, phone is not None, email is not None, consent, bool(states))
        own_state = (suppression, consent, row.get("verified", 0), row.get("opt_in_at"), row.get("opt_out_at"))
        more = None
        if (email is not None and phone is not None) or "channels" in row:
            own_state, more = _further_addresses(identifying, phone if email is not None else None, row, own_state)
        return Person(
            line, identifying.kind, identifying.key, identifying.value, self._hash(identifying.kind, identifying.key),
            row.get("first_name"), row.get("last_name"), row.get("source"), row.get("country_code"),
            row.get("language"),
            # Our own export has a column for the country, so it is not derived from the phone number.
            self._address_reader.country(phone.key) if phone is not None and "channels" not in row else None,
            row.get("tracking"), text, *own_state, more, row.get("lists"),
            _encode(row["warnings"]).decode() if "warnings" in row else None,
        )  # fmt: skip

    def _add_unstated(
        self, row: dict[str, Any], has_phone: bool, has_email: bool, consent: str | None, has_states: bool
    ) -> str | None:
        """Count a row that says neither yes nor no, and return the consent of its identifying address.

        The consent of a further phone number is set in `row["phone_consent"]`.
        """
        unstated = None if self._opt_in_unstated else "unstated"
        has_phone_column = has_phone and "subscribed_phone" in self._consent_targets
        if has_phone_column and not has_email:
            # The phone number is the identifying address.
            consent = row.get("phone_consent") or consent
            targets = {"subscribed_phone"}
        else:
            targets = self._consent_targets - {"subscribed_phone"}
        if targets and consent is None and not has_states and not row.get("stated"):
            consent = unstated
            for target in targets:
                self.unstated_counts[target] += 1
        if has_phone_column and has_email and consent not in ("out", "no", "off") and not row.get("phone_consent"):
            self.unstated_counts["subscribed_phone"] += 1
            row["phone_consent"] = unstated
        return consent

    def _data(self, row: dict[str, Any], data: dict[str, Any]) -> str | None:
        """Return custom data as JSON, or add a warning and return None if it is too long, too deep or has a NUL."""
        fault = None
        text = _encode(data).decode()
        if len(text) > MAX_DATA_BYTES:
            fault = _TOO_LONG % {"limit": MAX_DATA_BYTES}
        elif "\\u0000" in text:
            fault = gettext_noop("holds a NUL character")
        elif text.count("{") + text.count("[") > MAX_DATA_DEPTH and is_too_deep(data):
            fault = gettext_noop("is nested too deeply")
        if fault is None:
            return text
        add_warning(row, "data", text, fault)
        return None

    def suppressed(self, line: int, record: Any) -> Person:
        """Return the `Person` of a record in a file of suppressions; raises InvalidRecord with the reason.

        It has only the address, its suppression reason (default `manual`), its note (in `source`) and its warnings.
        """
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        for index, name, target in self._columns:
            cell = record.get(name) if isinstance(record, dict) else record[index] if index < len(record) else None
            cell = clean_cell(cell) if isinstance(cell, str) else cell
            if cell not in (None, "") and target in READERS and not (isinstance(cell, str) and is_blank(cell, target)):
                READERS[target](row, data, cell, target)
        if "phone" not in row and not any("@" in text for text in row.get("email", ())):
            # One column may contain both email addresses and phone numbers.
            row["phone"] = row.pop("email", [])
        reason = row.get("reason", "manual")
        address = self._address_reader.email_of(row, data)
        if address is None and not _is_about_email(row, reason):
            address = self._address_reader.phone_of(row, data)
        if address is None:
            raise InvalidRecord(explain_missing_address(row))
        return Person(
            line, address.kind, address.key, address.value, self._hash(address.kind, address.key),
            source=row.get("note"), suppression=reason,
            warnings=_encode(row["warnings"]).decode() if "warnings" in row else None,
        )  # fmt: skip


# The suppression reasons that concern a single address, not the person.
_REASONS_OF_ADDRESSES = ("hard_bounce", "soft_bounce", "complaint")


def _is_about_email(row: dict[str, Any], suppression: str | None) -> bool:
    """Return whether a suppression concerns only the email address of a row, and never its phone number.

    The email address of the row may be invalid: then it has bounced, and the phone number has not.
    """
    return suppression in _REASONS_OF_ADDRESSES and bool(row.get("email"))


def _consent_word(word: str) -> str | None:
    """Return the consent state or suppression reason of a word (yes, no or a status), or None if it is unknown."""
    if word in YES or word in SUBSCRIBED:
        return "in"
    return "no" if word in REFUSALS else "off" if word in NO else STATES.get(word)


def _first_channel(channels: list[RowAddress] | None) -> Address | None:
    return Address(channels[0].kind, channels[0].value, channels[0].key) if channels else None


def _further_addresses(
    identifying: Address, phone: Address | None, row: dict[str, Any], own_state: tuple[Any, ...]
) -> tuple[tuple[Any, ...], str | None]:
    """Return (state of the identifying address, the row's other addresses as a JSON list of `RowAddress`, or None).

    `own_state` and the returned state are (suppression, consent, verified, opt_in_at, opt_out_at). `phone` is the phone
    number of the row unless that is its identifying address. The values that the column `channels` has for an address
    replace those of the other columns.
    """
    others: dict[tuple[str, str], RowAddress] = {}
    if phone is not None:
        # A consent state without an address applies to both addresses; a no to email is not an opt-out from SMS.
        consent = row.get("phone_consent") or {"no": "off", "in": None}.get(own_state[1], own_state[1])
        others[("phone", phone.key)] = RowAddress(phone.kind, phone.key, phone.value, None, consent)
    for channel in row.get("channels", ()):
        if (channel.kind, channel.key) == (identifying.kind, identifying.key):
            own_state = (
                channel.suppression,
                channel.consent,
                int(channel.verified),
                channel.opt_in_at,
                channel.opt_out_at,
            )
        else:
            others[(channel.kind, channel.key)] = channel
    return own_state, _encode(list(others.values())).decode() if others else None


# The addresses in the cells of a row.

# If the local part of an address matches, only its domain must be validated.
_PLAIN_EMAIL = re.compile(r"[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+(?:\.[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+)*\Z")

# Matches each address in a cell with other words, such as `Ann <ann@example.org>; bob@example.org`. A match begins at
# the start of a word, because trying each character of a long word would take quadratic time.
_EMAIL_IN_WORDS = re.compile(r"""(?<![^\s<>,;:"()|\[\]])[^\s<>,;:"()|\[\]]+@[^\s<>,;:"'()|\[\]]+""")

_QUOTED_NAME = re.compile(r"""["']?([^<>@"]{1,255}?)["']?""")
_MAX_QUOTED_NAME_CHARACTERS = 257

# A cell like this has no valid address: in `a b@example.org` the space may be a typing error within the address.
_EMAIL_WITH_SPACE = re.compile(r"""\s*+[^\s<>,;:"()|\[\]@]++\s[^<>,;:"()|\[\]]*@[^\s@]++\s*+""")

# Matches a separator between two phone numbers in one cell.
_PHONE_SEPARATOR = re.compile(r"[;,|\n]|\s(?:or|oder|ou|und|and|et|y)\s")
# A slash may be inside of a number (0151/3765191) or between two numbers. A slash with spaces is tried first.
_PHONE_SLASHES = (re.compile(r"\s/\s"), re.compile(r"/"))
# A part of a cell that begins with 0 or + and has this many digits is a phone number, perhaps an invalid one, and not
# an area code.
_MIN_PHONE_DIGITS = 7


def _find_name_before_email(cell: str) -> str | None:
    """Return the name in a cell like `"Ann" <ann@example.org>`, or None if the cell has another form."""
    written, _, rest = cell.partition("<")
    address, bracket, end = rest.partition(">")
    if not address or "<" in address or not bracket or not all(part.isspace() or part in ",;." for part in end):
        return None
    written = written.strip()
    match = _QUOTED_NAME.fullmatch(written) if len(written) <= _MAX_QUOTED_NAME_CHARACTERS else None
    return match[1].strip() if match and match[1] != "'" else None


class AddressReader:
    """A reader for the email addresses and phone numbers of rows, with caches for domains and countries of numbers.

    `country` is the default country of phone numbers. `is_own` says that the file is our own export; in other files, a
    quote before an email address does not belong to the address.
    """

    def __init__(self, country: str | None = None, is_own: bool = False) -> None:
        self._domains: dict[str, tuple[str, str] | None] = {}
        self._countries: dict[str, str | None] = {}
        self._country_code, self._is_own = country, is_own

    def email_of(self, row: dict[str, Any], data: dict[str, Any]) -> Address | None:
        """Return the first valid email address of a row, or None; store a further one as `other_email` in `data`."""
        address: Address | None = None
        for cell in row.get("email", ()):
            parsed: Address | None
            further: list[Address] = []
            try:
                parsed = self.email(cell if self._is_own else cell.lstrip("'"))
            except InvalidRecord:
                parsed, further = self._in_words(row, data, cell)
            if parsed is None:
                add_warning(row, "email", cell, gettext_noop("is not an email address"))
            elif address is not None:
                data.setdefault("other_email", cell)
            else:
                address = parsed
            for other in further:
                add_warning(row, "email", other.value, gettext_noop("is a further address; kept as other_email"))
                data.setdefault("other_email", other.value)
        return address

    def _in_words(
        self, row: dict[str, Any], data: dict[str, Any], cell: str
    ) -> tuple[Address | None, list[Address]]:  # fmt: skip
        """Return (first address or None, other addresses) of a cell that also contains other words.

        A name before the first address is stored in the row if the row has no name.
        """
        found_addresses: list[Address] = []
        if len(cell) > MAX_ADDRESS_CELL_CHARACTERS:
            return None, []
        if _EMAIL_WITH_SPACE.fullmatch(cell):
            return None, []
        for text in _EMAIL_IN_WORDS.findall(cell):
            try:
                found_addresses.append(self.email(text.strip(".'`").removeprefix("mailto:")))
            except InvalidRecord:
                continue
        if (
            found_addresses
            and "first_name" not in row
            and "last_name" not in row
            and (name := _find_name_before_email(cell))
        ):
            CELL_READERS["name"](row, data, name, "name")
        return (found_addresses[0], list(dict.fromkeys(found_addresses[1:]))) if found_addresses else (None, [])

    def phone_of(self, row: dict[str, Any], data: dict[str, Any]) -> Address | None:
        """Return the first valid phone number of a row, or None; store a further one as `other_phone` in `data`."""
        address: Address | None = None
        for cell in row.get("phone", ()):
            try:
                parsed, further = self.phone(cell)
            except ValueError as fault:
                add_warning(row, "phone", cell, str(fault))
                continue
            if address is not None:
                data.setdefault("other_phone", cell)
            else:
                address = parsed
            for other in further:
                add_warning(row, "phone", other, gettext_noop("is a further number; kept as other_phone"))
                data.setdefault("other_phone", other)
        return address

    def phone(self, cell: str) -> tuple[Address, list[str]]:
        """Return the first valid phone number of a cell, and the other numbers or words in it; raises ValueError."""
        if len(cell) > MAX_ADDRESS_CELL_CHARACTERS:
            raise ValueError(addresses.NOT_A_PHONE)
        try:
            return addresses.parse_written_phone(cell, self._country_code), []
        except ValueError:
            parts = self._split_numbers(cell)
            for index, part in enumerate(parts if len(parts) > 1 else ()):
                try:
                    parsed = addresses.parse_written_phone(part, self._country_code)
                except ValueError:
                    continue
                return parsed, [other.strip() for other in parts[:index] + parts[index + 1 :]]
            raise

    def _split_numbers(self, cell: str) -> list[str]:
        """Split a cell at separators between phone numbers; at slashes only if each part `_is_whole`."""
        parts = []
        for part in filter(str.strip, _PHONE_SEPARATOR.split(cell)):
            splits = [[piece for piece in slash.split(part) if piece.strip()] for slash in _PHONE_SLASHES]
            parts += next((pieces for pieces in splits if len(pieces) > 1 and all(map(self._is_whole, pieces))), [part])
        return parts

    def _is_whole(self, text: str) -> bool:
        """Return whether a text is or looks like a phone number with its prefix, or is a word without digits."""
        digit_count = sum(character.isdecimal() for character in text)
        if not digit_count or (digit_count >= _MIN_PHONE_DIGITS and text.lstrip(" (")[0] in "0+"):
            return True
        try:
            addresses.parse_written_phone(text, self._country_code)
        except ValueError:
            return False
        return True

    def email(self, text: str) -> Address:
        """Parse an email address as `addresses.parse_email` does, with a cache of domains; raises InvalidRecord."""
        local, _, domain = text.rpartition("@")
        if len(text) <= 254 and len(local) <= 64 and _PLAIN_EMAIL.match(local):
            domain_forms = self._domains.get(domain)
            if domain_forms is None and domain not in self._domains:
                if len(self._domains) > 100_000:
                    self._domains.clear()
                domain_forms = self._domains[domain] = _normalize_domain(domain)
            if domain_forms is not None:
                value = f"{local}@{domain_forms[0]}"
                if len(value) <= 254:
                    return Address("email", value, f"{local.lower()}@{domain_forms[1]}")
        return parse_email(text)

    def country(self, number: str) -> str | None:
        """Return the two-letter country code of a phone number in E.164 format, or None if it is unknown."""
        if number not in self._countries:
            if len(self._countries) > 1000:
                self._countries.clear()
            self._countries[number] = addresses.country_of_phone(number)
        return self._countries[number]


def explain_missing_address(row: dict[str, Any]) -> str:
    """Return the reason why a row has no valid address, from its warnings for email and phone."""
    faults = [(field, value, reason) for field, value, reason in row.get("warnings", ()) if field in ("email", "phone")]
    reasons = [
        INVALID_EMAIL % {"value": value}
        if field == "email"
        else INVALID_PHONE % {"reason": reason, "value": value[:40]}
        for field, value, reason in faults
    ]
    return "; ".join(reasons) or gettext_noop("the row has no address")


def _normalize_domain(domain: str) -> tuple[str, str] | None:
    try:
        parsed = addresses.parse_email(f"a@{domain}")
    except ValueError:
        return None
    return parsed.value[2:], parsed.key[2:]
