"""Read the database rows of a chunk of contacts, and decide about their consent.

The consent rules of imports are the line "Import" of the table "Who lifts what" (docs/decisions.md#9). `decide_consent`
applies the rules of `audience.consent` to values instead of database rows, which is fast enough for a million
addresses; a test compares the results of both.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from appliance.audience.consent import REASONS_BY_SEVERITY
from appliance.core import clock, crypto
from appliance.imports.people import Person
from appliance.storage import database as storage_sql
from appliance.storage.database import fetch_one, rows, scalar

_BLOCKING_REASONS = ("complaint", "erased")
SUPPRESSING = ("complaint", "hard_bounce", "manual", "soft_bounce")


class ConsentState(NamedTuple):
    """The consent columns of a channel."""

    subscribed: bool = False
    opted_out_by: str | None = None
    opt_out_at: int | None = None
    opt_in_at: int | None = None
    suppression: str | None = None


class ConsentChange(NamedTuple):
    """The decision about the consent of an address.

    `consent` is the new consent state. `act` is the act to record, by the actor `by`, or None if the state is
    unchanged. `is_still_blocked` says that an opt-out or a suppression remains although the import opts in.
    """

    consent: ConsentState
    act: str | None = None
    by: str = "operator"
    is_still_blocked: bool = False


def gravest_reason(reasons: "set[str] | frozenset[str]") -> str | None:
    """Return the most severe of some suppression reasons, or None if there is none."""
    return next((reason for reason in REASONS_BY_SEVERITY if reason in reasons), None)


def decide_consent(
    now: int,
    stored: ConsentState,
    state: str | None,
    opt_in: bool,
    times: tuple[int | None, int | None] = (None, None),
    keeps_opt_out: bool = False,
) -> ConsentChange:
    """Return the consent change of an address.

    `stored` is its consent state in the database. `state` is its state in the file: `out`, `no`, `off` or `unstated` as
    in `cells.RowAddress`, a suppression reason, or None if it is subscribed or has no state. `opt_in` is the option of
    the import. `times` are the times of the opt-in and the opt-out in the file (Unix milliseconds); `now` is used for a
    time that is None. With `keeps_opt_out`, an opt-in does not lift even an opt-out by an operator, because a file
    stated it and this row does not say yes.
    """
    joined_at, left_at = (at or now for at in times)
    if state in ("out", "complaint"):
        return _opt_out(left_at, stored, "recipient")
    if state == "no":
        is_opted_out = not stored.subscribed and stored.opted_out_by is not None
        return ConsentChange(stored) if is_opted_out else _opt_out(left_at, stored, "operator")
    if state == "off":
        return _opt_out(left_at, stored, "operator") if stored.subscribed else ConsentChange(stored)
    if state in SUPPRESSING or state == "unstated" or not opt_in:
        return ConsentChange(stored)
    is_kept = stored.opted_out_by == "recipient" or (keeps_opt_out and stored.opted_out_by is not None)
    if stored.suppression in _BLOCKING_REASONS or is_kept:
        return ConsentChange(stored, is_still_blocked=True)
    keeps_suppression = stored.suppression is not None
    if stored.subscribed:
        return ConsentChange(stored, is_still_blocked=keeps_suppression)
    return ConsentChange(
        ConsentState(True, None, None, joined_at, stored.suppression), "opt_in", is_still_blocked=keeps_suppression
    )


def _opt_out(opted_out_at: int, stored: ConsentState, by: str) -> ConsentChange:
    if not stored.subscribed and stored.opted_out_by == "recipient":
        return ConsentChange(stored)
    changed_state = ConsentState(False, by, opted_out_at, stored.opt_in_at, stored.suppression)
    return ConsentChange(changed_state, "opt_out", by)


_SQL_BATCH = 500


class ContactFields(NamedTuple):
    """The columns of a contact that an import writes. `data` is JSON. `new` says that the contact is not stored yet."""

    first_name: str | None
    last_name: str | None
    source: str | None
    country_code: str | None
    language: str | None
    tracking: str
    data: str
    new: bool = False


class ChannelState:
    """An address of a contact, with its state before the chunk (`original`, `verified_before`) and after it.

    `id` is None for a new address. `touched` says that the address is new or changed. `is_repeated` says that the
    opt-out was requested again after the last change of the address. `is_refused` says that the file of an import
    stated the opt-out, so that only a row that says yes lifts it.
    """

    __slots__ = (
        "consent", "contact_id", "id", "is_refused", "is_repeated", "original", "touched", "updated_at", "value",
        "verified_at", "verified_before",
    )  # fmt: skip

    def __init__(
        self, number: int | None, contact_id: int, value: str, consent: ConsentState, verified_at: int | None = None,
        updated_at: int = 0, is_repeated: bool = False, is_refused: bool = False,
    ) -> None:  # fmt: skip
        self.id, self.contact_id, self.value = number, contact_id, value
        self.consent = self.original = consent
        self.verified_at = self.verified_before = verified_at
        self.updated_at, self.is_repeated, self.is_refused = updated_at, is_repeated, is_refused
        self.touched = number is None

    def change(self, consent: ConsentState, verified_at: int | None) -> None:
        """Set the consent state and the time of verification, and mark the address as touched if either differs."""
        if consent != self.consent or verified_at != self.verified_at:
            self.consent, self.verified_at, self.touched = consent, verified_at, True


def _select_in(sql: str, fixed: tuple[Any, ...], values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a statement for any number of values, passed to SQLite in batches of `_SQL_BATCH`.

    `sql` has `{}` in place of the values, after the parameters `fixed`.
    """
    selected: list[tuple[Any, ...]] = []
    all_values = list(values)
    for start in range(0, len(all_values), _SQL_BATCH):
        batch = all_values[start : start + _SQL_BATCH]
        selected += rows(sql.format(",".join("?" * len(batch))), (*fixed, *batch))
    return selected


# The evidence that `find_refused_addresses` reads; `{}` is the condition.
_EVIDENCE_SQL = (
    "SELECT id, kind, address_hash, act, json_extract(data, '$.import_id') FROM consent WHERE account_id = ? AND {} "
    "AND (act IN ('opt_in', 'confirmed', 'import_undone') OR (act = 'opt_out' AND source = 'import'))"
)


def find_refused_addresses(evidence: Iterable[tuple[Any, ...]]) -> set[tuple[str, bytes]]:
    """Return (kind, hash) of the addresses whose opt-out the file of an import stated, and that still counts.

    It no longer counts if it was lifted, or if the import was undone. `evidence` has rows (id, kind, hash, act, import
    id or None), ordered by id.
    """
    refusing: dict[tuple[str, bytes], set[int]] = defaultdict(set)
    # The imports whose opt-out an import lifted, by address and import, because its undo restores the opt-out
    lifted: dict[tuple[str, bytes, int], set[int]] = {}
    for _, kind, hashed, act, import_id in evidence:
        imports = refusing[(kind, hashed)]
        if act == "opt_out":
            imports.add(import_id)
        elif act == "import_undone":
            imports.discard(import_id)
            imports |= lifted.pop((kind, hashed, import_id), set())
        else:
            if import_id is not None and imports:
                lifted[(kind, hashed, import_id)] = set(imports)
            imports.clear()
    return {address for address, imports in refusing.items() if imports}


class DryRunState:
    """The effects of the previous chunks of a dry run, which writes nothing to the database.

    It has the contacts that later rows may name, with their addresses, and all suppression reasons by (kind, hash).
    """

    def __init__(self) -> None:
        self.last_id: int | None = None
        self.contacts: dict[int, ContactFields] = {}
        self.addresses: dict[int, list[tuple[tuple[str, str], ChannelState]]] = {}
        self.owners: dict[tuple[str, str], int] = {}
        self.reasons: dict[tuple[str, bytes], set[str]] = {}

    def remember(self, contacts: "ExistingContacts", contact_ids: Iterable[int]) -> None:
        """Store the state of some contacts after a chunk, and the last id that a new contact got."""
        self.last_id = contacts.last_id()
        for contact_id in contact_ids:
            self.contacts[contact_id] = contacts.contacts[contact_id]
            self.addresses[contact_id] = contacts.addresses_of(contact_id)
            self.owners.update((key, contact_id) for key, _ in self.addresses[contact_id])


class ExistingContacts:
    """The contacts, channels, suppressions and remembered opt-outs of the addresses of a chunk.

    Remembered opt-outs are those of deleted contacts. The constructor loads all, and they are updated as the chunk is
    applied. A key is (kind, normalized address).
    """

    def __init__(self, account_id: int, people: list[Person], memory: DryRunState | None = None) -> None:
        self.account_id = account_id
        self.channels: dict[tuple[str, str], ChannelState] = {}
        self.contacts: dict[int, ContactFields] = {}
        self.original: dict[int, ContactFields] = {}
        self.updated_at: dict[int, int] = {}
        self.opt_outs: dict[tuple[str, bytes], tuple[str, int]] = {}
        self._reasons: dict[tuple[str, bytes], set[str]] = {}
        # The suppressions that imports stored and nothing repeated since, as (kind, hash, reason).
        self.of_imports: set[tuple[str, bytes, str]] = set()
        self._of_contact: dict[int, list[tuple[tuple[str, str], ChannelState]]] = defaultdict(list)
        self._hashes: dict[tuple[str, str], bytes] = {}
        self._last_id: int | None = None
        self._remembered: dict[tuple[str, bytes], set[str]] | None = None
        keys = set()
        for person in people:
            keys.add((person.kind, person.key))
            self._hashes[(person.kind, person.key)] = person.hash
            if person.more is not None:
                keys |= {(address.kind, address.key) for address in person.list_addresses()}
        self._load_channels(keys)
        self._load_states(keys)
        self._refused = self._find_refused()
        if memory is not None:
            self._apply_memory(memory, keys)

    def _apply_memory(self, memory: DryRunState, keys: set[tuple[str, str]]) -> None:
        """Replace the stored state of contacts and suppressions with the state in the dry run."""
        self._last_id = memory.last_id
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
        contact_ids: set[int] = set()
        for kind in ("email", "phone"):
            sql = f"SELECT contact_id FROM channel WHERE account_id = ? AND kind = '{kind}' AND key IN ({{}})"
            contact_ids |= {
                row[0]
                for row in _select_in(sql, (self.account_id,), [key for key_kind, key in keys if key_kind == kind])
            }
        if not contact_ids:
            return
        for row in _select_in(
            "SELECT kind, key, id, contact_id, value, subscribed, opted_out_by, opt_out_at, opt_in_at, suppression, "
            "verified_at, updated_at, coalesce(opt_out_repeated_at >= updated_at, 0) FROM channel "
            "WHERE contact_id IN ({}) ORDER BY id", (), contact_ids,
        ):  # fmt: skip
            consent = ConsentState(bool(row[5]), *row[6:10])
            self.add((row[0], row[1]), ChannelState(row[2], row[3], row[4], consent, row[10], row[11], bool(row[12])))
        for row in _select_in(
            "SELECT id, first_name, last_name, source, country_code, language, tracking, data, updated_at FROM contact "
            "WHERE id IN ({})", (), contact_ids,
        ):  # fmt: skip
            self.contacts[row[0]] = self.original[row[0]] = ContactFields(*row[1:8])
            self.updated_at[row[0]] = row[8]

    def _load_states(self, keys: set[tuple[str, str]]) -> None:
        """Load the suppressions in force and the remembered opt-outs of addresses, if the account has any."""
        params = (self.account_id,)
        if scalar("SELECT EXISTS (SELECT 1 FROM suppression WHERE account_id = ?)", params):
            for kind, hashed, reason, is_of_import in _select_in(
                "SELECT kind, address_hash, reason, source = 'import' AND repeated_at IS NULL FROM suppression "
                f"WHERE account_id = ? AND (expires_at IS NULL OR expires_at > {clock.now_ms()}) "
                "AND kind IN ('email', 'phone') AND address_hash IN ({})", params, [self.hash_of(key) for key in keys],
            ):  # fmt: skip
                self._reasons.setdefault((kind, hashed), set()).add(reason)
                if is_of_import:
                    self.of_imports.add((kind, hashed, reason))
        if scalar("SELECT EXISTS (SELECT 1 FROM opt_out WHERE account_id = ?)", params):
            for kind, hashed, by, opted_out_at in _select_in(
                "SELECT kind, address_hash, by, created_at FROM opt_out WHERE account_id = ? "
                "AND kind IN ('email', 'phone') AND address_hash IN ({})", params, [self.hash_of(key) for key in keys],
            ):  # fmt: skip
                self.opt_outs[(kind, hashed)] = (by, opted_out_at)

    def _find_refused(self) -> set[tuple[str, bytes]]:
        """Return (kind, hash) of the addresses whose opt-out by an operator was stated by the file of an import.

        Such an opt-out ends with the next opt-in, and with the undo of the import. Also sets `is_refused` of the
        channels with these addresses.
        """
        channels = {
            (key[0], self.hash_of(key)): channel
            for key, channel in self.channels.items()
            if channel.consent.opted_out_by == "operator" and not channel.consent.subscribed
        }
        hashes = channels.keys() | {address for address, (by, _) in self.opt_outs.items() if by == "operator"}
        if not hashes:
            return set()
        evidence = _select_in(_EVIDENCE_SQL.format("contact_id IN ({})"), (self.account_id,),
                              {channel.contact_id for channel in channels.values()})  # fmt: skip
        # Evidence about a deleted contact has no contact id. Its opt-out counts for a new contact with the address.
        evidence += _select_in(_EVIDENCE_SQL.format("contact_id IS NULL AND address_hash IN ({})"), (self.account_id,),
                               {hashed for _, hashed in hashes})  # fmt: skip
        refused = find_refused_addresses(sorted(evidence)) & hashes
        for address in refused & channels.keys():
            channels[address].is_refused = True
        return refused

    def hash_of(self, key: tuple[str, str]) -> bytes:
        """Return the keyed hash of an address, from the cache if it is known."""
        hashed = self._hashes.get(key)
        if hashed is None:
            hashed = self._hashes[key] = crypto.hash_address(*key)
        return hashed

    def add(self, key: tuple[str, str], channel: ChannelState) -> None:
        """Add a channel to its contact."""
        self.channels[key] = channel
        self._of_contact[channel.contact_id].append((key, channel))

    def build_channel(self, contact_id: int, key: tuple[str, str], value: str) -> ChannelState:
        """Return a new channel that is not subscribed, with the remembered opt-out of its address, if any."""
        address = (key[0], self.hash_of(key))
        by, opted_out_at = self.opt_outs.get(address, (None, None))
        consent = ConsentState(False, by, opted_out_at)
        return ChannelState(None, contact_id, value, consent, is_refused=address in self._refused)

    def get_suppression_reasons(self, kind: str, hashed: bytes) -> "set[str] | frozenset[str]":
        """Return the reasons for which an address is suppressed; do not change the set."""
        return self._reasons.get((kind, hashed), frozenset())

    def suppress(self, kind: str, hashed: bytes, reason: str) -> None:
        """Add a suppression to the state of this chunk, and in a dry run also to that of the following chunks."""
        self._reasons.setdefault((kind, hashed), set()).add(reason)
        if self._remembered is not None:
            self._remembered.setdefault((kind, hashed), set()).add(reason)

    def has_email(self, contact_id: int) -> bool:
        """Return whether a contact has an email address."""
        return any(kind == "email" for (kind, _), _ in self._of_contact.get(contact_id, ()))

    def addresses_of(self, contact_id: int) -> list[tuple[tuple[str, str], ChannelState]]:
        """Return the addresses of a contact as (key, channel), oldest first.

        A key is (kind, normalized address), as in `channels`.
        """
        return self._of_contact[contact_id]

    def list_changed(self) -> list[ChannelState]:
        """Return the new and changed addresses."""
        return [channel for channel in self.channels.values() if channel.touched]

    def next_id(self) -> int:
        """Return an id for a new contact. In a write transaction, no other thread can use the same id."""
        if self._last_id is None:
            self._last_id = storage_sql.last_id("contact")
        self._last_id += 1
        return self._last_id

    def last_id(self) -> int | None:
        """Return the last id that `next_id` returned, in this chunk or an earlier one of the dry run, or None."""
        return self._last_id

    def of_list(self, list_id: int, contact_ids: list[int | None]) -> tuple[str | None, set[int], set[int]]:
        """Return the name of a list, which of `contact_ids` are its members, and which have left it themselves.

        The name is None if the list does not exist or mirrors a segment.
        """
        params = (list_id, self.account_id)
        list_row = fetch_one(
            "SELECT name FROM contact_list WHERE id = ? AND account_id = ? AND segment_id IS NULL", params
        )
        if list_row is None:
            return None, set(), set()
        existing_ids = [contact_id for contact_id in contact_ids if contact_id in self.original]
        members = _select_in("SELECT contact_id FROM membership WHERE contact_list_id = ? AND contact_id IN ({})",
                      (list_id,), existing_ids)  # fmt: skip
        opted_out = _select_in("SELECT contact_id FROM list_opt_out WHERE contact_list_id = ? AND contact_id IN ({})",
                      (list_id,), existing_ids)  # fmt: skip
        return list_row[0], {row[0] for row in members}, {row[0] for row in opted_out}
