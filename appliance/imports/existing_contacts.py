"""What is already there about the addresses of a chunk: read in a few statements, kept right while it is worked."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from appliance.audience.contacts.consent import GRAVITY
from appliance.core import clock, tokens
from appliance.imports.people import Person
from appliance.storage import sql as storage_sql
from appliance.storage.open import fetch_one, rows, scalar

# What a row of a file may do to consent: the line "Import" of the table "Who lifts what" (docs/decisions.md#9).
#
# The same rules as `contacts.consent`, over values instead of rows, because a million of them pass here; a test
# holds the two against each other.

_KEEPS_OUT = ("complaint", "erased")
SUPPRESSING = ("complaint", "hard_bounce", "manual", "soft_bounce")


class Standing(NamedTuple):
    """How an address stands: the columns of its channel that consent is made of."""

    subscribed: bool = False
    opted_out_by: str | None = None
    opt_out_at: int | None = None
    opt_in_at: int | None = None
    suppression: str | None = None


class Outcome(NamedTuple):
    """How it stands afterwards, the act to record (None: nothing changed), whose, and whether an opt-out was kept."""

    standing: Standing
    act: str | None = None
    by: str = "operator"
    kept: bool = False


def gravest(reasons: "set[str] | frozenset[str]") -> str | None:
    """Return the reason that a channel names, out of all in force."""
    return next((reason for reason in GRAVITY if reason in reasons), None)


def outcome(
    now: int, standing: Standing, state: str | None, wanted: bool, times: tuple[int | None, int | None] = (None, None)
) -> Outcome:
    """Return what a row does to an address; `state` is what the file says of it, `wanted` the import's `opt_in`.

    `times` are when they came and left by the file's own telling, which a change takes over.
    """
    came, left = (one or now for one in times)
    if state in ("out", "complaint"):
        return _out(left, standing, "recipient")
    if state == "off":
        return _out(left, standing, "operator") if standing.subscribed else Outcome(standing)
    if state in SUPPRESSING or not wanted:
        return Outcome(standing)
    if standing.suppression in _KEEPS_OUT or standing.opted_out_by == "recipient":
        return Outcome(standing, kept=True)
    kept = standing.suppression is not None
    if standing.subscribed:
        return Outcome(standing, kept=kept)
    return Outcome(Standing(True, None, None, came, standing.suppression), "opt_in", kept=kept)


def _out(when: int, standing: Standing, by: str) -> Outcome:
    if not standing.subscribed and standing.opted_out_by == "recipient":
        return Outcome(standing)
    after = Standing(False, by, when, standing.opt_in_at, standing.suppression)
    return Outcome(after, "opt_out", by)


_PART = 500


class Line(NamedTuple):
    """The columns of a contact that an import writes."""

    first_name: str | None
    last_name: str | None
    source: str | None
    country_code: str | None
    tracking: str
    data: str
    new: bool = False


class Have:
    """An address of a contact: as it was, and as it will be."""

    __slots__ = (
        "contact_id", "id", "original", "standing", "touched", "updated_at", "value", "verified_at", "verified_before",
    )  # fmt: skip

    def __init__(
        self, number: int | None, contact_id: int, value: str, standing: Standing, verified_at: int | None = None,
        updated_at: int = 0,
    ) -> None:  # fmt: skip
        self.id, self.contact_id, self.value = number, contact_id, value
        self.standing = self.original = standing
        self.verified_at = self.verified_before = verified_at
        self.updated_at = updated_at
        self.touched = number is None

    def change(self, standing: Standing, verified_at: int | None) -> None:
        """Take over how it stands now."""
        if standing != self.standing or verified_at != self.verified_at:
            self.standing, self.verified_at, self.touched = standing, verified_at, True


def _in(sql: str, fixed: tuple[Any, ...], values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Run a statement with `{}` for a list of values, in parts that every SQLite takes."""
    found: list[tuple[Any, ...]] = []
    given = list(values)
    for start in range(0, len(given), _PART):
        part = given[start : start + _PART]
        found += rows(sql.format(",".join("?" * len(part))), (*fixed, *part))
    return found


class Memory:
    """What a check has done so far for people whose addresses further rows of the file name, as nothing is written."""

    def __init__(self) -> None:
        self.next_id: int | None = None
        self.contacts: dict[int, Line] = {}
        self.addresses: dict[int, list[tuple[tuple[str, str], Have]]] = {}
        self.owners: dict[tuple[str, str], int] = {}
        self.reasons: dict[tuple[str, bytes], set[str]] = {}

    def keep(self, known: "Known", contact_ids: Iterable[int]) -> None:
        """Remember contacts as they would be now, and every suppression."""
        self.next_id = known.last_id()
        for contact_id in contact_ids:
            self.contacts[contact_id] = known.contacts[contact_id]
            self.addresses[contact_id] = known.addresses_of(contact_id)
            self.owners.update((key, contact_id) for key, _ in self.addresses[contact_id])


class Known:
    """Contacts, channels, suppressions and remembered opt-outs that some people of a file meet."""

    def __init__(self, account_id: int, people: list[Person], memory: Memory | None = None) -> None:
        self.account_id = account_id
        self.channels: dict[tuple[str, str], Have] = {}
        self.contacts: dict[int, Line] = {}
        self.original: dict[int, Line] = {}
        self.updated_at: dict[int, int] = {}
        self.opt_outs: dict[tuple[str, bytes], tuple[str, int]] = {}
        self._reasons: dict[tuple[str, bytes], set[str]] = {}
        self._of_contact: dict[int, list[tuple[tuple[str, str], Have]]] = defaultdict(list)
        self._hashes: dict[tuple[str, str], bytes] = {}
        self._next: int | None = None
        self._remembered: dict[tuple[str, bytes], set[str]] | None = None
        keys = set()
        for person in people:
            keys.add((person.kind, person.key))
            self._hashes[(person.kind, person.key)] = person.hash
            if person.more is not None:
                keys |= {(one.kind, one.key) for one in person.given()}
        self._load_channels(keys)
        self._load_states(keys)
        if memory is not None:
            self._recall(memory, keys)

    def _recall(self, memory: Memory, keys: set[tuple[str, str]]) -> None:
        """Take over what a check has done before: of contacts, instead of what is stored of them."""
        self._next = memory.next_id
        for contact_id in {memory.owners[key] for key in keys & memory.owners.keys()} | (
            self.contacts.keys() & memory.contacts.keys()
        ):
            self.contacts[contact_id] = memory.contacts[contact_id]
            self.original.setdefault(contact_id, memory.contacts[contact_id])
            self._of_contact[contact_id] = memory.addresses[contact_id]
            self.channels.update(memory.addresses[contact_id])
        for key, reasons in memory.reasons.items():
            self._reasons.setdefault(key, set()).update(reasons)
        self._remembered = memory.reasons

    def _load_channels(self, keys: set[tuple[str, str]]) -> None:
        found: set[int] = set()
        for kind in ("email", "phone"):
            sql = f"SELECT contact_id FROM channel WHERE account_id = ? AND kind = '{kind}' AND key IN ({{}})"
            found |= {row[0] for row in _in(sql, (self.account_id,), [key for one, key in keys if one == kind])}
        if not found:
            return
        for row in _in(
            "SELECT kind, key, id, contact_id, value, subscribed, opted_out_by, opt_out_at, opt_in_at, suppression, "
            "verified_at, updated_at FROM channel WHERE contact_id IN ({}) ORDER BY id", (), found,
        ):  # fmt: skip
            standing = Standing(bool(row[5]), *row[6:10])
            self.add((row[0], row[1]), Have(row[2], row[3], row[4], standing, row[10], row[11]))
        for row in _in(
            "SELECT id, first_name, last_name, source, country_code, tracking, data, updated_at FROM contact "
            "WHERE id IN ({})", (), found,
        ):  # fmt: skip
            self.contacts[row[0]] = self.original[row[0]] = Line(*row[1:7])
            self.updated_at[row[0]] = row[7]

    def _load_states(self, keys: set[tuple[str, str]]) -> None:
        """Look for suppressions and remembered opt-outs only where there are any: most who import have few."""
        mine = (self.account_id,)
        if scalar("SELECT EXISTS (SELECT 1 FROM suppression WHERE account_id = ?)", mine):
            for kind, hashed, reason in _in(
                f"SELECT kind, address_hash, reason FROM suppression WHERE account_id = ? "
                f"AND (expires_at IS NULL OR expires_at > {clock.now_ms()}) AND kind IN ('email', 'phone') "
                "AND address_hash IN ({})", mine, [self.hash_of(key) for key in keys],
            ):  # fmt: skip
                self._reasons.setdefault((kind, hashed), set()).add(reason)
        if scalar("SELECT EXISTS (SELECT 1 FROM opt_out WHERE account_id = ?)", mine):
            for kind, hashed, by, when in _in(
                "SELECT kind, address_hash, by, created_at FROM opt_out WHERE account_id = ? "
                "AND kind IN ('email', 'phone') AND address_hash IN ({})", mine, [self.hash_of(key) for key in keys],
            ):  # fmt: skip
                self.opt_outs[(kind, hashed)] = (by, when)

    def hash_of(self, key: tuple[str, str]) -> bytes:
        """Return the hash of an address, made once."""
        found = self._hashes.get(key)
        if found is None:
            found = self._hashes[key] = tokens.address_hash(*key)
        return found

    def add(self, key: tuple[str, str], have: Have) -> None:
        """Know an address from now on."""
        self.channels[key] = have
        self._of_contact[have.contact_id].append((key, have))

    def fresh(self, contact_id: int, key: tuple[str, str], value: str) -> Have:
        """Return a new address with what it already carries: suppressions, and opt-outs of a deleted contact."""
        by, when = self.opt_outs.get((key[0], self.hash_of(key)), (None, None))
        return Have(None, contact_id, value, Standing(False, by, when))

    def reasons(self, kind: str, hashed: bytes) -> "set[str] | frozenset[str]":
        """Return why an address is suppressed."""
        return self._reasons.get((kind, hashed), frozenset())

    def suppress(self, kind: str, hashed: bytes, reason: str) -> None:
        """Know a suppression from now on."""
        self._reasons.setdefault((kind, hashed), set()).add(reason)
        if self._remembered is not None:
            self._remembered.setdefault((kind, hashed), set()).add(reason)

    def has_email(self, contact_id: int) -> bool:
        """Return whether a contact has an e-mail address."""
        return any(kind == "email" for (kind, _), _ in self._of_contact.get(contact_id, ()))

    def addresses_of(self, contact_id: int) -> list[tuple[tuple[str, str], Have]]:
        """Return the addresses of a contact, oldest first."""
        return self._of_contact[contact_id]

    def touched(self) -> list[Have]:
        """Return the addresses that changed."""
        return [have for have in self.channels.values() if have.touched]

    def next_id(self) -> int:
        """Return the id of the next contact; this thread is the only one that makes any."""
        if self._next is None:
            self._next = storage_sql.last_number("contact")
        self._next += 1
        return self._next

    def last_id(self) -> int | None:
        """Return the id of the last contact that was made here; None if none was, here or before."""
        return self._next

    def of_list(self, list_id: int, contact_ids: list[int | None]) -> tuple[str | None, set[int], set[int]]:
        """Return a list's name (None if it is gone or became a mirror), and who of some is in it or refused it."""
        mine = (list_id, self.account_id)
        found = fetch_one("SELECT name FROM contact_list WHERE id = ? AND account_id = ? AND segment_id IS NULL", mine)
        if found is None:
            return None, set(), set()
        old = [number for number in contact_ids if number in self.original]
        members = _in("SELECT contact_id FROM membership WHERE contact_list_id = ? AND contact_id IN ({})",
                      (list_id,), old)  # fmt: skip
        refused = _in("SELECT contact_id FROM list_refusal WHERE contact_list_id = ? AND contact_id IN ({})",
                      (list_id,), old)  # fmt: skip
        return found[0], {row[0] for row in members}, {row[0] for row in refused}
