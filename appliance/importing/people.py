"""One record made a person: addresses in their normal form, fields checked, opt-out state understood."""

from typing import Any, NamedTuple

import msgspec

from appliance import addresses, tokens
from appliance.addresses import Address
from appliance.fields import DATA_BYTES, DEEPEST, is_too_deep
from appliance.importing import cells, columns, given
from appliance.importing.cells import EDGES, NO, SPACES, STATES, YES, Bad, clean, typed, word_of
from appliance.importing.given import GRAVITY, Given
from appliance.patterns import late

# An address that needs no closer look once its domain has had one
_PLAIN = late(r"[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+(?:\.[A-Za-z0-9_'+/=?^`{|}~!#$%&*-]+)*\Z")
_MOST_NAMES = 2000
READ = {**cells.READ, **given.READ}
_MAUTIC = {"1": "out", "2": "hard_bounce", "3": "manual"}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Given]).decode
_names = msgspec.json.Decoder(list[str]).decode


class Person(NamedTuple):
    """A row of the staging file: somebody by their first address; `more` and `lists` are JSON."""

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
    # The first line of the file that names this address; None if this one is
    first: int | None = None

    def given(self) -> list[Given]:
        """Answer the person's addresses, the one they are known by first."""
        own = Given(
            self.kind, self.key, self.value, self.suppression, self.consent, bool(self.verified), self.opt_in_at,
            self.opt_out_at,
        )  # fmt: skip
        return [own, *(_decode(self.more) if self.more else ())]

    def list_names(self) -> list[str]:
        """Answer the lists that the row names."""
        return _names(self.lists) if self.lists else []


class Reader:
    """Turns records into people, by where their columns go."""

    def __init__(self, names: list[str], targets: list[str]) -> None:
        self._domains: dict[str, tuple[str, str] | None] = {}
        self._countries: dict[str, str | None] = {}
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
            read = READ.get(target)
            if read is not None:
                read(row, data, cell, target)
            elif target.startswith("data."):
                data[target[5:]] = typed(cell)
            else:
                self._state(name, target, cell, states, row)
        return self._made(line, row, data, states)

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
                READ[target](row, data, cell, target)
            else:
                self._state(name, target, cell, states, row)
        return self._made(line, row, data, states)

    def _learn(self, record: dict[str, Any]) -> None:
        """Find a place for keys of JSON lines that the beginning of the file did not show."""
        for name in record.keys() - self._names:
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
            if found == "out":
                row.setdefault("opt_out_at", given.moment(cell))
        elif target == "opted_out_by":
            found = "out" if word == "recipient" else "off"
        else:
            found = "off" if word in NO else "in" if word in YES else None
            if target == "subscribed_phone":
                row["phone_consent"] = found
                return
        if found:
            states.append(found)

    def _made(self, line: int, row: dict[str, Any], data: dict[str, Any], states: list[str]) -> Person:
        email = self.email(str(row["email"])) if "email" in row else None
        phone = given.phone(row["phone"]) if "phone" in row else None
        first = email or phone or _first(row.get("channels"))
        if first is None:
            raise Bad("the row has no address")
        text = _encode(data).decode() if data else None
        if text is not None and len(text) > DATA_BYTES:
            raise Bad(f"data is too long (maximum is {DATA_BYTES} bytes)")
        if text is not None and "\\u0000" in text:
            raise Bad("data holds a NUL character")
        if text is not None and text.count("{") + text.count("[") > DEEPEST and is_too_deep(data):
            raise Bad("data is nested too deeply")
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
            self._country(phone.key) if phone is not None and "channels" not in row else None, row.get("tracking"),
            text, *own, more,
            row.get("lists"),
        )  # fmt: skip

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
        return given.email(text)

    def suppressed(self, line: int, record: Any) -> Person:
        """Read a row of addresses that must not be written to; without a word the reason is `manual`. Raises Bad."""
        row: dict[str, Any] = {}
        for index, name, target in self._columns:
            cell = record.get(name) if isinstance(record, dict) else record[index] if index < len(record) else None
            cell = clean(cell) if isinstance(cell, str) else cell
            if cell not in (None, "") and target in READ:
                READ[target](row, {}, cell, target)
        text = str(row.get("email") or row.get("phone") or "")
        if not text:
            raise Bad("the row has no address")
        found = self.email(text) if "@" in text else given.phone(text)
        hashed = self._hash(found.kind, found.key)
        return Person(
            line, found.kind, found.key, found.value, hashed, source=row.get("note"),
            suppression=row.get("reason", "manual"),
        )  # fmt: skip

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


def _first(known: list[Given] | None) -> Address | None:
    return Address(known[0].kind, known[0].value, known[0].key) if known else None


def _further(
    first: Address, phone: Address | None, row: dict[str, Any], own: tuple[Any, ...]
) -> tuple[tuple[Any, ...], str | None]:
    """Answer the standing of the first address and the others as JSON; the column `channels` knows best of each."""
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
