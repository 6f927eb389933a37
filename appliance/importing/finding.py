"""Finds the addresses of a row in its cells, whatever else people write there."""

import re
from typing import Any

from appliance import addresses
from appliance.addresses import Address
from appliance.importing import address_states, cells
from appliance.importing.cells import Bad, leave_out

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
