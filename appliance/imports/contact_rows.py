"""Read and write the database rows of a chunk of contacts, and decide about their consent.

The consent rules of imports are the line "Import" of the table "Who lifts what" (docs/decisions.md#9). `decide_consent`
applies the rules of `audience.consent` to values instead of database rows, which is fast enough for a million
addresses; a test compares the two.
"""

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from appliance.audience import consent
from appliance.audience.consent import REASONS_BY_SEVERITY
from appliance.audience.contacts import search
from appliance.core import clock, crypto
from appliance.imports.staging import Person
from appliance.storage import database as storage_sql
from appliance.storage.database import connection, fetch_one, rows, run, scalar

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

    `standing` is the new state. `act` is the act to record, by the actor `by`, or None if the state is unchanged.
    `kept` says that an opt-out or a suppression remains although the import opts in.
    """

    standing: ConsentState
    act: str | None = None
    by: str = "operator"
    kept: bool = False


def gravest_reason(reasons: "set[str] | frozenset[str]") -> str | None:
    """Return the most severe of some suppression reasons, or None if there is none."""
    return next((reason for reason in REASONS_BY_SEVERITY if reason in reasons), None)


def decide_consent(
    now: int,
    standing: ConsentState,
    state: str | None,
    opt_in: bool,
    times: tuple[int | None, int | None] = (None, None),
) -> ConsentChange:
    """Return the consent change of an address.

    `standing` is its stored state. `state` is its state in the file: `out`, `off`, `unstated` (neither yes nor no, and
    such rows are not opted in), a suppression reason, or None for subscribed or not given. `opt_in` is the option of
    the import. `times` are the times of the opt-in and the opt-out in the file (Unix milliseconds), `now` if None.
    """
    joined_at, left_at = (at or now for at in times)
    if state in ("out", "complaint"):
        return _opt_out(left_at, standing, "recipient")
    if state == "off":
        return _opt_out(left_at, standing, "operator") if standing.subscribed else ConsentChange(standing)
    if state in SUPPRESSING or state == "unstated" or not opt_in:
        return ConsentChange(standing)
    if standing.suppression in _BLOCKING_REASONS or standing.opted_out_by == "recipient":
        return ConsentChange(standing, kept=True)
    keeps_suppression = standing.suppression is not None
    if standing.subscribed:
        return ConsentChange(standing, kept=keeps_suppression)
    return ConsentChange(
        ConsentState(True, None, None, joined_at, standing.suppression), "opt_in", kept=keeps_suppression
    )


def _opt_out(opted_out_at: int, standing: ConsentState, by: str) -> ConsentChange:
    if not standing.subscribed and standing.opted_out_by == "recipient":
        return ConsentChange(standing)
    changed_state = ConsentState(False, by, opted_out_at, standing.opt_in_at, standing.suppression)
    return ConsentChange(changed_state, "opt_out", by)


_SQL_BATCH = 500


class ContactFields(NamedTuple):
    """The columns of a contact that an import writes. `data` is JSON. `new` says that the contact is not stored yet."""

    first_name: str | None
    last_name: str | None
    source: str | None
    country_code: str | None
    tracking: str
    data: str
    new: bool = False


class ChannelState:
    """An address of a contact, with its state before the chunk (`original`, `verified_before`) and after it.

    `id` is None for a new address. `touched` says that the address is new or changed. `is_repeated` says that an
    opt-out was asked for again since the address was last changed.
    """

    __slots__ = (
        "contact_id", "id", "is_repeated", "original", "standing", "touched", "updated_at", "value", "verified_at",
        "verified_before",
    )  # fmt: skip

    def __init__(
        self, number: int | None, contact_id: int, value: str, standing: ConsentState, verified_at: int | None = None,
        updated_at: int = 0, is_repeated: bool = False,
    ) -> None:  # fmt: skip
        self.id, self.contact_id, self.value = number, contact_id, value
        self.standing = self.original = standing
        self.verified_at = self.verified_before = verified_at
        self.updated_at, self.is_repeated = updated_at, is_repeated
        self.touched = number is None

    def change(self, standing: ConsentState, verified_at: int | None) -> None:
        """Set the consent state and the time of verification, and mark the address as touched if one differs."""
        if standing != self.standing or verified_at != self.verified_at:
            self.standing, self.verified_at, self.touched = standing, verified_at, True


def _select_in(sql: str, fixed: tuple[Any, ...], values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a statement for any number of values, which SQLite gets in batches of `_SQL_BATCH`.

    `sql` has `{}` in place of the values, after the parameters `fixed`.
    """
    selected: list[tuple[Any, ...]] = []
    all_values = list(values)
    for start in range(0, len(all_values), _SQL_BATCH):
        batch = all_values[start : start + _SQL_BATCH]
        selected += rows(sql.format(",".join("?" * len(batch))), (*fixed, *batch))
    return selected


class DryRunState:
    """The effects of the previous chunks of a dry run, which writes nothing to the database.

    It has the contacts that later rows may name, with their addresses, and all suppression reasons by (kind, hash).
    """

    def __init__(self) -> None:
        self.next_id: int | None = None
        self.contacts: dict[int, ContactFields] = {}
        self.addresses: dict[int, list[tuple[tuple[str, str], ChannelState]]] = {}
        self.owners: dict[tuple[str, str], int] = {}
        self.reasons: dict[tuple[str, bytes], set[str]] = {}

    def keep(self, known: "ExistingContacts", contact_ids: Iterable[int]) -> None:
        """Store the state of some contacts after a chunk, and the last id given to a new contact."""
        self.next_id = known.last_id()
        for contact_id in contact_ids:
            self.contacts[contact_id] = known.contacts[contact_id]
            self.addresses[contact_id] = known.addresses_of(contact_id)
            self.owners.update((key, contact_id) for key, _ in self.addresses[contact_id])


class ExistingContacts:
    """The contacts, channels, suppressions and remembered opt-outs of the addresses of a chunk.

    They are loaded in the constructor and updated as the chunk is applied. A key is (kind, normalized address).
    """

    def __init__(self, account_id: int, people: list[Person], memory: DryRunState | None = None) -> None:
        self.account_id = account_id
        self.channels: dict[tuple[str, str], ChannelState] = {}
        self.contacts: dict[int, ContactFields] = {}
        self.original: dict[int, ContactFields] = {}
        self.updated_at: dict[int, int] = {}
        self.opt_outs: dict[tuple[str, bytes], tuple[str, int]] = {}
        self._reasons: dict[tuple[str, bytes], set[str]] = {}
        # The suppressions that were stored by imports and not asked for again since, as (kind, hash, reason)
        self.of_imports: set[tuple[str, bytes, str]] = set()
        self._of_contact: dict[int, list[tuple[tuple[str, str], ChannelState]]] = defaultdict(list)
        self._hashes: dict[tuple[str, str], bytes] = {}
        self._next: int | None = None
        self._remembered: dict[tuple[str, bytes], set[str]] | None = None
        keys = set()
        for person in people:
            keys.add((person.kind, person.key))
            self._hashes[(person.kind, person.key)] = person.hash
            if person.more is not None:
                keys |= {(address.kind, address.key) for address in person.given()}
        self._load_channels(keys)
        self._load_states(keys)
        if memory is not None:
            self._recall(memory, keys)

    def _recall(self, memory: DryRunState, keys: set[tuple[str, str]]) -> None:
        """Replace the stored state of contacts and suppressions with the state in the dry run."""
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
            standing = ConsentState(bool(row[5]), *row[6:10])
            self.add((row[0], row[1]), ChannelState(row[2], row[3], row[4], standing, row[10], row[11], bool(row[12])))
        for row in _select_in(
            "SELECT id, first_name, last_name, source, country_code, tracking, data, updated_at FROM contact "
            "WHERE id IN ({})", (), contact_ids,
        ):  # fmt: skip
            self.contacts[row[0]] = self.original[row[0]] = ContactFields(*row[1:7])
            self.updated_at[row[0]] = row[7]

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

    def fresh(self, contact_id: int, key: tuple[str, str], value: str) -> ChannelState:
        """Return a new channel that is not subscribed, with the remembered opt-out of its address, if any."""
        by, opted_out_at = self.opt_outs.get((key[0], self.hash_of(key)), (None, None))
        return ChannelState(None, contact_id, value, ConsentState(False, by, opted_out_at))

    def reasons(self, kind: str, hashed: bytes) -> "set[str] | frozenset[str]":
        """Return the reasons for which an address is suppressed; do not change the set."""
        return self._reasons.get((kind, hashed), frozenset())

    def suppress(self, kind: str, hashed: bytes, reason: str) -> None:
        """Add a suppression, also to the state of the dry run."""
        self._reasons.setdefault((kind, hashed), set()).add(reason)
        if self._remembered is not None:
            self._remembered.setdefault((kind, hashed), set()).add(reason)

    def has_email(self, contact_id: int) -> bool:
        """Return whether a contact has an email address."""
        return any(kind == "email" for (kind, _), _ in self._of_contact.get(contact_id, ()))

    def addresses_of(self, contact_id: int) -> list[tuple[tuple[str, str], ChannelState]]:
        """Return the addresses of a contact as (key, channel), oldest first."""
        return self._of_contact[contact_id]

    def touched(self) -> list[ChannelState]:
        """Return the new and changed addresses."""
        return [channel for channel in self.channels.values() if channel.touched]

    def next_id(self) -> int:
        """Return an id for a new contact. In a write transaction it stays free, because no other thread writes."""
        if self._next is None:
            self._next = storage_sql.last_id("contact")
        self._next += 1
        return self._next

    def last_id(self) -> int | None:
        """Return the last id that `next_id` returned, in this chunk or an earlier one of the dry run, or None."""
        return self._next

    def of_list(self, list_id: int, contact_ids: list[int | None]) -> tuple[str | None, set[int], set[int]]:
        """Return the name of a list, and which of some contacts are members of it and which have opted out of it.

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


# Plain people are new contacts with one email address that is neither suppressed nor opted out, as in most rows of most
# files. SQLite creates their rows from the attached staging file, table by table, in the same transaction as the rest
# of the chunk. This is several times as fast as `chunk.Chunk`, with the same result; a test compares the two.

_PLAIN_TABLE = (
    "CREATE TEMP TABLE IF NOT EXISTS import_plain (n INTEGER PRIMARY KEY, pos INTEGER, value TEXT, "
    "key TEXT, hash BLOB, first_name TEXT, last_name TEXT, source TEXT, country_code TEXT, tracking TEXT, data TEXT, "
    "verified INTEGER, opt_in_at INTEGER, warnings TEXT)"
)
_FILL_PLAIN = (
    "INSERT INTO temp.import_plain SELECT NULL, pos, value, key, hash, first_name, last_name, source, "
    "country_code, coalesce(tracking, 'full'), coalesce(data, '{}'), verified, opt_in_at, warnings "
    "FROM staged.person p WHERE pos > :after AND pos <= :last AND plain AND NOT EXISTS (SELECT 1 FROM channel h "
    "WHERE h.account_id = :account AND h.kind = 'email' AND h.key = p.key)"
)
# The first condition is added only if the account has suppressions, the second only if it has remembered opt-outs.
_WITHOUT_STATE = (
    " AND NOT EXISTS (SELECT 1 FROM suppression s WHERE s.account_id = :account AND s.kind = 'email' "
    "AND s.address_hash = p.hash)",
    " AND NOT EXISTS (SELECT 1 FROM opt_out o WHERE o.account_id = :account AND o.kind = 'email' "
    "AND o.address_hash = p.hash)",
)
# The SQL expression for a UUID of version 7, as `uuid7` returns it
_UUID_SQL = (
    ":uuid || printf('%04x-%012x', 32768 | ((:base + n) >> 28), (:base + n & 268435455) << 20 | (random() & 1048575))"
)  # fmt: skip
_INSERT_PLAIN = (
    "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
    "email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, created_at, "
    f"updated_at) SELECT :base + n, :account, {_UUID_SQL}, first_name, last_name, source, country_code, data, "
    "tracking, "
    "0, 0, 0, 0, 0, :now, :now FROM temp.import_plain ORDER BY n",
    "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, verified_at, opt_in_at, opt_out_at, "
    "opted_out_by, suppression, sent_count, fail_count, data, created_at, updated_at) "
    "SELECT :account, :base + n, 'email', value, key, :wanted, CASE WHEN verified THEN :now END, "
    "CASE WHEN :wanted THEN coalesce(opt_in_at, :now) END, NULL, NULL, NULL, "
    "0, 0, '{}', :now, :now FROM temp.import_plain ORDER BY n",
    "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, text, data, created_at) "
    "SELECT :account, :base + n, 'email', hash, 'opt_in', 'operator', 'import', :actor, :words, :note, :now "
    "FROM temp.import_plain WHERE :wanted ORDER BY n",
    search.FILL_FROM_IMPORT_SQL,
)
_PLAIN_EVENT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, "
    "quiet, chain_depth, created_at, updated_at) SELECT :account, :base + n, {}, 0, 1, :quiet, 0, :now, :now "
    "FROM temp.import_plain ORDER BY n"
)
_PLAIN_ADDED = _PLAIN_EVENT.format(
    "'contact_add', CASE WHEN source IS NULL THEN :added ELSE json_set(:added, '$.source', source) END, NULL, NULL"
)  # fmt: skip
_PLAIN_JOINED = _PLAIN_EVENT.format("'list_add', :data, 'list:' || :list, :name")


class ImportPlan(NamedTuple):
    """The options of an import that each chunk needs.

    `words` is the text of the consent for the evidence. `opt_in` is for email addresses. `skip` leaves existing
    contacts unchanged.
    """

    import_id: int
    account_id: int
    actor: str
    words: str | None
    list_ids: tuple[int, ...]
    opt_in: bool
    opt_in_phone: bool
    skip: bool
    trigger_flows: bool

    @property
    def mark(self) -> dict[str, Any]:
        """Return the data that marks an event as caused by the import: `import_id` and, if set, `trigger_flows`."""
        return {"import_id": self.import_id, **({"trigger_flows": True} if self.trigger_flows else {})}


class InsertedRange(NamedTuple):
    """The plain people of a chunk: the time of creation, the first contact id, and the number of contacts."""

    at: int
    first: int
    number: int


def clear_plain_people(now: int) -> InsertedRange:
    """Empty `temp.import_plain` and return an empty range, for a file of suppressions."""
    db = connection()
    db.execute(_PLAIN_TABLE)
    db.execute("DELETE FROM temp.import_plain")
    return InsertedRange(now, 0, 0)


def insert_plain_people(plan: ImportPlan, after: int, last: int, now: int) -> InsertedRange:
    """Insert the plain people of the positions (after, last] of the attached staging file, with all related rows.

    They are also in `temp.import_plain` until the next chunk. They join the lists in `add_plain_to_list`.
    """
    clear_plain_people(now)
    params = {"account": plan.account_id}
    tables = ("suppression", "opt_out")
    conditions = [
        sql for table, sql in zip(tables, _WITHOUT_STATE, strict=True)
        if scalar(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE account_id = :account)", params)
    ]  # fmt: skip
    count = run(f"{_FILL_PLAIN}{''.join(conditions)} ORDER BY pos", {**params, "after": after, "last": last})
    first_id = storage_sql.last_id("contact") + 1
    if not count:
        return InsertedRange(now, first_id, 0)
    values = {
        **params, "base": first_id - 1, "now": now, "quiet": not plan.trigger_flows, "wanted": plan.opt_in,
        "actor": plan.actor, "words": plan.words,
        "uuid": _uuid_prefix(now), "note": _encode_text({"import_id": plan.import_id}),
        "added": _encode_text({"source": "import", **plan.mark}),
    }  # fmt: skip
    for sql in (*_INSERT_PLAIN, _PLAIN_ADDED):
        run(sql, values)
    return InsertedRange(now, first_id, count)


def count_warned(inserted: InsertedRange) -> int:
    """Return the number of plain people of the chunk whose rows have warnings."""
    return int(scalar("SELECT count(*) FROM temp.import_plain WHERE warnings NOT NULL")) if inserted.number else 0


def add_plain_to_list(plan: ImportPlan, list_id: int, name: str, inserted: InsertedRange) -> None:
    """Add the plain people of the chunk to a list, which must exist and must not mirror a segment."""
    values = {"list": list_id, "now": inserted.at, "count": inserted.number, "base": inserted.first - 1}
    run("INSERT INTO membership SELECT :list, :base + n, :now FROM temp.import_plain ORDER BY n", values)
    run("UPDATE contact_list SET contacts_count = contacts_count + :count, updated_at = :now WHERE id = :list", values)
    data = _encode_text({"contact_list_id": list_id, **plan.mark})
    run(_PLAIN_JOINED, {**values, "account": plan.account_id, "name": name, "data": data,
                 "quiet": not plan.trigger_flows})  # fmt: skip


def _encode_text(value: dict[str, object]) -> str:
    return msgspec.json.encode(value).decode()


def _uuid_prefix(now: int) -> str:
    text = f"{now & (1 << 48) - 1:012x}"
    return f"{text[:8]}-{text[8:]}-7000-"


_CONTACT = (
    "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
    "email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, created_at, "
    "updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, ?, ?)"
)
_CONTACT_UPDATE = (
    "UPDATE contact SET first_name = ?, last_name = ?, source = ?, country_code = ?, data = ?, tracking = ?, "
    "updated_at = ? WHERE id = ?"
)
_CHANNEL = (
    "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, verified_at, opt_in_at, opt_out_at, "
    "opted_out_by, suppression, sent_count, fail_count, data, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '{}', ?, ?)"
)
_CHANNEL_UPDATE = (
    "UPDATE channel SET subscribed = ?, opted_out_by = ?, opt_out_at = ?, opt_in_at = ?, suppression = ?, "
    "verified_at = ?, updated_at = ? WHERE id = ?"
)
_CONSENT = (
    "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, text, data, created_at) "
    "VALUES (?, ?, ?, ?, ?, ?, 'import', ?, ?, ?, ?)"
)
_SUPPRESSION = (
    "INSERT INTO suppression (account_id, kind, address_hash, address, reason, source, note, created_at) "
    "VALUES (?, ?, ?, ?, ?, 'import', ?, ?) ON CONFLICT (account_id, kind, address_hash, reason) DO UPDATE SET "
    "address = excluded.address, source = excluded.source, created_at = excluded.created_at, repeated_at = NULL, "
    "expires_at = NULL"
)
_REPEATED_SUPPRESSION = (
    "UPDATE suppression SET repeated_at = ? WHERE account_id = ? AND kind = ? AND address_hash = ? AND reason = ?"
)
_REPEATED_OPT_OUT = "UPDATE channel SET opt_out_repeated_at = max(?, updated_at) WHERE id = ?"
_HAS_RECORDED = (
    "SELECT EXISTS (SELECT 1 FROM consent WHERE {} AND account_id = :account AND address_hash = :hashed "
    "AND act = :act AND source = 'import' AND json_extract(data, '$.import_id') = :import_id "
    "AND json_extract(data, '$.reason') IS :reason)"
)
_EVENT_ROW = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
    "chain_depth, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 1, "
    "json_extract(?4, '$.trigger_flows') IS DISTINCT FROM 1, 0, ?7, ?8)"
)
_DELETE_OPT_OUT = "DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?"
_INSERT_OPT_OUT = (
    "INSERT INTO opt_out (account_id, kind, address_hash, by, created_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (account_id, kind, address_hash) DO UPDATE SET by = excluded.by"
)
_LIST_COUNT = "UPDATE contact_list SET contacts_count = contacts_count + ?, updated_at = ? WHERE id = ?"
# The statements are in the order in which foreign keys allow them.
_STATEMENTS = (
    _CONTACT, _CONTACT_UPDATE, _CHANNEL, _CHANNEL_UPDATE, _REPEATED_OPT_OUT, _SUPPRESSION, _REPEATED_SUPPRESSION,
    _CONSENT, _DELETE_OPT_OUT, _INSERT_OPT_OUT, search.WRITE_SQL,
)  # fmt: skip


def has_recorded(
    plan: "ImportPlan", contact_id: int | None, hashed: bytes, act: str, reason: str | None = None
) -> bool:
    """Return whether an earlier chunk of an import recorded an act about an address; `reason` is of a suppression."""
    # The evidence of addresses with and without a contact is found by different indexes.
    condition = "contact_id IS NULL" if contact_id is None else "contact_id = :contact"
    values = {
        "account": plan.account_id, "contact": contact_id, "hashed": hashed, "act": act, "reason": reason,
        "import_id": plan.import_id,
    }  # fmt: skip
    return bool(scalar(_HAS_RECORDED.format(condition), values))


def uuid7(now: int, number: int) -> str:
    """Return a UUID of version 7 (RFC 9562) for a time in milliseconds and a contact id.

    UUIDs ascend with both, so that new entries come at the end of the index.
    """
    value = (now & (1 << 48) - 1) << 80 | 7 << 76 | (number >> 42 & 0xFFF) << 64 | 2 << 62
    value |= (number & (1 << 42) - 1) << 20 | time.perf_counter_ns() & 0xFFFFF
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class RowWriter:
    """The rows of a chunk, which `flush` writes table by table."""

    def __init__(self, account_id: int, actor: str, words: str | None, now: int) -> None:
        self.account_id, self.actor, self.words, self.now = account_id, actor, words, now
        self._rows: dict[str, list[tuple[Any, ...]]] = {sql: [] for sql in _STATEMENTS}
        self.contact = self._rows[_CONTACT].append
        self.contact_update = self._rows[_CONTACT_UPDATE].append
        self.channel = self._rows[_CHANNEL].append
        self.channel_update = self._rows[_CHANNEL_UPDATE].append
        self.suppression = self._rows[_SUPPRESSION].append
        self.repeated_suppression = self._rows[_REPEATED_SUPPRESSION].append
        self.repeated_opt_out = self._rows[_REPEATED_OPT_OUT].append
        self.forget = self._rows[_DELETE_OPT_OUT].append
        self.remember = self._rows[_INSERT_OPT_OUT].append
        self.words_of = self._rows[search.WRITE_SQL].append
        self._events: list[tuple[Any, ...]] = []
        self._refusals: list[tuple[str, bytes, str, str, str]] = []

    def consent(self, contact_id: int | None, kind: str, hashed: bytes, act: str, by: str, data: str = "{}") -> None:
        """Add a consent row with the evidence of the import; `flush` also journals an opt-out or suppression."""
        self._rows[_CONSENT].append(
            (self.account_id, contact_id, kind, hashed, act, by, self.actor, self.words, data, self.now)
        )
        if act in consent.JOURNALED_ACTS:
            self._refusals.append((kind, hashed, act, by, data))

    def event(self, contact_id: int, name: str, data: str, uid: str | None = None, title: str | None = None) -> None:
        """Add an event of a contact; `uid` and `title` are the id and the name of its resource."""
        self._events.append((self.account_id, contact_id, name, data, uid, title, self.now, self.now))

    def flush(self) -> None:
        """Write all collected rows and journal the refusals. Call it once."""
        db = connection()
        for sql, values in self._rows.items():
            if values:
                db.executemany(sql, values)
        if self._events:
            db.executemany(_EVENT_ROW, self._events)
        for kind, hashed, act, by, data in self._refusals:
            consent.journal_refusal(self.account_id, kind, hashed, act, by, msgspec.json.decode(data))

    def join(self, list_id: int, name: str, contact_ids: list[int], data: dict[str, Any]) -> None:
        """Add contacts to a list and write a `list_add` event for each, whose data includes `data`.

        None of the contacts may be a member already. Call it after `flush`, because they must exist.
        """
        db = connection()
        db.executemany(
            "INSERT INTO membership VALUES (?, ?, ?)", [(list_id, contact_id, self.now) for contact_id in contact_ids]
        )
        db.execute(_LIST_COUNT, (len(contact_ids), self.now, list_id))
        text = msgspec.json.encode({"contact_list_id": list_id, **data}).decode()
        uid = f"list:{list_id}"
        db.executemany(
            _EVENT_ROW,
            [
                (self.account_id, contact_id, "list_add", text, uid, name, self.now, self.now)
                for contact_id in contact_ids
            ],
        )
