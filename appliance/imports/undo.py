"""Takes an import back: what it made goes, what it changed returns, except where something else changed it since.

A contact it made is removed unless somebody changed it, wrote to it or put it into a further list meanwhile. A list
that mirrors a segment is filled by itself, which is nobody's act, and a message that never left was not written. A
field it changed gets its old value back if it still has the import's. Addresses, consent, suppressions and memberships
likewise. Every chunk is taken back in one transaction, the last one first, so that a kill in the middle is no matter.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from appliance.audience.contacts import lists, search, store
from appliance.core import clock
from appliance.events import log
from appliance.events.log import Happened
from appliance.flows import run_ends
from appliance.imports.bulk_insert import Made
from appliance.imports.existing_contacts import Standing
from appliance.storage import work
from appliance.storage.models import Import
from appliance.storage.open import connection, fetch_one, rows
from appliance.storage.open import run as execute
from appliance.storage.work import writing

# What was there before a chunk, as little of it as taking the chunk back needs.

_FIELDS = ("first_name", "last_name", "source", "country_code", "tracking")
_encode = msgspec.msgpack.Encoder().encode


class Change(msgspec.Struct, array_like=True):
    """A contact that was there: its fields and data keys as (before, after), and when it was last changed."""

    contact_id: int
    updated_at: int
    fields: dict[str, tuple[Any, Any]]
    data: dict[str, tuple[Any, Any]]  # a list of one value, or empty where there was none


class Notes(msgspec.Struct, array_like=True):
    """All that a chunk changed."""

    at: int
    # Contacts as runs of ids, (first, count): most chunks make one run
    created: list[tuple[int, int]] = []
    changes: list[Change] = []
    channels: list[tuple[int, list[Any], int | None, int]] = []
    added: list[tuple[str, str]] = []
    opt_outs: list[tuple[str, bytes, str, int]] = []
    suppressions: list[tuple[str, bytes, str]] = []
    joined: dict[int, list[tuple[int, int]]] = {}


def id_runs(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return some ids as runs of neighbours: (first, count)."""
    found: list[tuple[int, int]] = []
    for one in sorted(ids):
        if found and one == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((one, 1))
    return found


def run_ids(found: Iterable[tuple[int, int]]) -> list[int]:
    """Return the ids of runs."""
    return [one for first, count in found for one in range(first, first + count)]


class Before:
    """Takes notes while a chunk is worked."""

    def __init__(self, now: int, made: Made | None = None) -> None:
        self.notes = Notes(now)
        self._created = list(range(made.first, made.first + made.number)) if made is not None else []
        self._joined: dict[int, list[int]] = defaultdict(list)
        self.created = self._created.append

    def line(self, contact_id: int, old: Any, new: Any, updated_at: int) -> None:
        """Note a contact that was there."""
        fields = {name: (a, b) for name in _FIELDS if (a := getattr(old, name)) != (b := getattr(new, name))}
        data = {}
        if old.data != new.data:
            before, after = msgspec.json.decode(old.data), msgspec.json.decode(new.data)
            for key in before.keys() | after.keys():
                pair = ([before[key]] if key in before else [], [after[key]] if key in after else [])
                if pair[0] != pair[1]:
                    data[key] = pair
        self.notes.changes.append(Change(contact_id, updated_at, fields, data))

    def channel(self, number: int, standing: Standing, verified_at: int | None, updated_at: int) -> None:
        """Note an address that was there."""
        self.notes.channels.append((number, list(standing), verified_at, updated_at))

    def channel_added(self, kind: str, key: str) -> None:
        """Note an address that a contact who was there got."""
        self.notes.added.append((kind, key))

    def forgot(self, kind: str, hashed: bytes, by: str, when: int) -> None:
        """Note a remembered opt-out that was lifted."""
        self.notes.opt_outs.append((kind, hashed, by, when))

    def suppressed(self, kind: str, hashed: bytes, reason: str) -> None:
        """Note a new suppression."""
        self.notes.suppressions.append((kind, hashed, reason))

    def joined(self, list_id: int, contact_ids: Iterable[int]) -> None:
        """Note who joined a list."""
        self._joined[list_id] += contact_ids

    def packed(self) -> bytes:
        """Return the notes for storage."""
        self.notes.created = id_runs(self._created)
        self.notes.joined = {list_id: id_runs(members) for list_id, members in self._joined.items()}
        return _encode(self.notes)


_decode = msgspec.msgpack.Decoder(Notes).decode
# A chunk of contacts takes longer to remove than to make
_PART = 50


def run(job: Import, stopping: threading.Event) -> None:
    """Take back chunk after chunk; what is left when the service ends is taken back by the next one."""
    while not stopping.is_set() and work.write(step, job.id):
        pass


def step(import_id: int) -> bool:
    """Take back some of the last chunk that still can be; returns whether there may be more."""
    writing()
    job = Import.get_by_id(import_id)
    found = fetch_one(
        "SELECT id, before FROM import_chunk WHERE import_job_id = ? AND before IS NOT NULL "
        "ORDER BY number DESC LIMIT 1",
        (import_id,),
    )
    now = clock.now_ms()
    if found is None:
        execute("UPDATE import SET phase = 'undone', undone_at = ?, updated_at = ? WHERE id = ?", (now, now, import_id))
        return False
    undo = _Undo(job.account_id, import_id, _decode(found[1]))
    done = undo.step()
    left = undo.left()
    stayed = Counter(job.left_in_place) + undo.stayed
    execute("UPDATE import_chunk SET before = ? WHERE id = ?", (left, found[0]))
    execute(
        "UPDATE import SET restored = restored + ?, left_in_place = ?, updated_at = ? WHERE id = ?",
        (done, msgspec.json.encode(stayed).decode(), now, import_id),
    )
    return True


class _Undo:
    def __init__(self, account_id: int, import_id: int, notes: Notes) -> None:
        self.account_id, self.import_id, self.notes = account_id, import_id, notes
        # Contacts that stay, by the reason
        self.stayed: Counter[str] = Counter()
        self._created = run_ids(notes.created)
        self._joined = {list_id: run_ids(members) for list_id, members in notes.joined.items()}

    def left(self) -> bytes | None:
        """Return the notes of what is still to be taken back; None if nothing is."""
        if not (self._created or self.notes.changes or any(self._joined.values())):
            return None
        self.notes.created = id_runs(self._created)
        self.notes.joined = {list_id: id_runs(members) for list_id, members in self._joined.items()}
        return msgspec.msgpack.encode(self.notes)

    def step(self) -> int:
        """Take back a part; what is done is struck from the notes."""
        self._addresses()
        part = self._created[-_PART:]
        del self._created[-_PART:]
        if part:
            return self._remove(part)
        changes = self.notes.changes[-_PART:]
        del self.notes.changes[-_PART:]
        self._leave([change.contact_id for change in changes])
        for change in changes:
            self._restore(change)
        if not self.notes.changes:
            self._leave([one for members in self._joined.values() for one in members])
            self._joined = {}
        return len(changes)

    def _addresses(self) -> None:
        """Suppressions and opt-outs first, all at once: they belong to addresses and not to contacts."""
        mine, at = self.account_id, self.notes.at
        for kind, hashed, reason in self.notes.suppressions:
            execute(
                "DELETE FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? AND reason = ? "
                "AND source = 'import' AND created_at = ?",
                (mine, kind, hashed, reason, at),
            )
        for kind, hashed, by, when in self.notes.opt_outs:
            execute("INSERT INTO opt_out (account_id, kind, address_hash, by, created_at) "
                    "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (mine, kind, hashed, by, when))  # fmt: skip
        for number, standing, verified_at, updated_at in self.notes.channels:
            execute(
                "UPDATE channel SET subscribed = ?, opted_out_by = ?, opt_out_at = ?, opt_in_at = ?, suppression = ?, "
                "verified_at = ?, updated_at = ? WHERE id = ? AND account_id = ? AND updated_at = ?",
                (*standing, verified_at, updated_at, number, mine, at),
            )
        for kind, key in self.notes.added:
            execute("DELETE FROM channel WHERE account_id = ? AND kind = ? AND key = ? AND updated_at = ? "
                    "AND sent_count = 0", (mine, kind, key, at))  # fmt: skip
        self.notes.suppressions, self.notes.opt_outs, self.notes.channels, self.notes.added = [], [], [], []

    def _remove(self, contact_ids: list[int]) -> int:
        gone = self._untouched(contact_ids)
        marks = ",".join("?" * len(gone))
        members: dict[int, list[int]] = {}
        for list_id, contact_id in rows(
            f"SELECT contact_list_id, contact_id FROM membership WHERE contact_id IN ({marks})", gone
        ):
            members.setdefault(list_id, []).append(contact_id)
        for list_id, leaving in members.items():
            lists.leave(self.account_id, list_id, leaving)
        for list_id, joined in self._joined.items():
            self._joined[list_id] = sorted(set(joined).difference(contact_ids))
        here = connection()
        here.executemany(search.FORGET, [(one,) for one in gone])
        run_ends.people_gone(gone)
        log.record_many(
            [Happened(self.account_id, "contact_delete", None, {"contact_id": one, "import_id": self.import_id})
             for one in gone]
        )  # fmt: skip
        here.executemany("DELETE FROM contact WHERE id = ?", [(one,) for one in gone])
        return len(gone)

    def _untouched(self, contact_ids: list[int]) -> list[int]:
        """Return those of some new contacts with whom nothing was done since; the others are counted by the reason."""
        marks, own = ",".join("?" * len(contact_ids)), ",".join(map(str, self._joined)) or "0"
        gone = []
        for contact_id, messaged, listed, changed in rows(
            "SELECT c.id, EXISTS (SELECT 1 FROM message m WHERE m.contact_id = c.id AND m.status NOT IN "
            "('skipped', 'cancelled')), EXISTS (SELECT 1 FROM membership b JOIN contact_list l "
            f"ON l.id = b.contact_list_id WHERE b.contact_id = c.id AND l.segment_id IS NULL AND l.id NOT IN ({own})), "
            "c.updated_at <> ? OR EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id "
            f"AND h.updated_at <> c.updated_at) FROM contact c WHERE c.account_id = ? AND c.id IN ({marks})",
            (self.notes.at, self.account_id, *contact_ids),
        ):
            reason = "messaged" if messaged else "in_another_list" if listed else "changed" if changed else None
            if reason is None:
                gone.append(contact_id)
            else:
                self.stayed[reason] += 1
        return gone

    def _leave(self, contact_ids: list[int]) -> None:
        wanted = set(contact_ids)
        for list_id, members in self._joined.items():
            part = [one for one in members if one in wanted]
            if part:
                lists.leave(self.account_id, list_id, part)
                self._joined[list_id] = [one for one in members if one not in wanted]

    def _restore(self, change: Change) -> None:
        contact = rows(
            "SELECT first_name, last_name, source, country_code, tracking, data, updated_at FROM contact "
            "WHERE account_id = ? AND id = ?",
            (self.account_id, change.contact_id),
        )
        if not contact:
            return
        names = ("first_name", "last_name", "source", "country_code", "tracking")
        values: dict[str, Any] = dict(zip(names, contact[0], strict=False))
        for name, (old, new) in change.fields.items():
            if values[name] == new:
                values[name] = old
        data = msgspec.json.decode(contact[0][5])
        for key, (before, after) in change.data.items():
            if ([data[key]] if key in data else []) == after:
                if before:
                    data[key] = before[0]
                else:
                    data.pop(key, None)
        when = change.updated_at if contact[0][6] == self.notes.at else clock.now_ms()
        execute(
            "UPDATE contact SET first_name = ?, last_name = ?, source = ?, country_code = ?, tracking = ?, data = ?, "
            "updated_at = ? WHERE id = ?",
            (*values.values(), msgspec.json.encode(data).decode(), when, change.contact_id),
        )
        found = store.get(self.account_id, change.contact_id)
        search.index(found, found.channels)
