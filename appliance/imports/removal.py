"""Undo imports, and delete the data stored for an undo when it has expired.

An undo deletes the contacts that the import created, except those that were later changed, sent a message, or added to
another list. Contacts that a later import names, that have events from clients, or whose consent was changed by another
act count as changed. Mirrored lists and skipped or cancelled messages are ignored. A field that the import changed gets
its old value back if it still has the import's value. The same holds for addresses, consent, suppressions and
memberships. An opt-out or a suppression that was requested again after the import stays, even if that request changed
nothing (`channel.opt_out_repeated_at`, `suppression.repeated_at`). If the consent of an address is restored, one act
`import_undone` is recorded as evidence. A contact that the import created and the undo does not delete keeps everything
that the import wrote, except for suppressions.

First the contacts that the import created are deleted, and then the others restored, chunk by chunk from the last to
the first. Each batch is one transaction, so an undo can be interrupted and continued. The result does not depend on how
the rows were divided into chunks.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from appliance.audience import lists
from appliance.audience.consent import (
    Evidence,
    find_last_tracking_choice,
    find_suppression_reason,
    record_evidence,
)
from appliance.audience.contacts import search, statuses
from appliance.audience.contacts import store as contacts
from appliance.core import addresses, clock, crypto
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows import run_ends
from appliance.imports import store
from appliance.imports.row_writer import (
    CONTACT_FIELDS,
    ChunkSnapshot,
    ContactChange,
    decode_snapshot,
    encode_snapshot,
    from_ranges,
    to_ranges,
)
from appliance.storage import transactions
from appliance.storage.database import connection, fetch_one, rows, run, scalar
from appliance.storage.models import Import
from appliance.storage.transactions import require_write_transaction

_decode_outcomes = msgspec.msgpack.Decoder(tuple[list[int], list[Any]]).decode
# The number of contacts in one transaction of an undo, small because a deletion takes longer than an insertion
_UNDO_BATCH = 50
# Up to this number of contacts, the page of an import counts what an undo would do.
_MAX_FORECAST = 20_000


def undo_in_batches(job: Import) -> Iterator[None]:
    """Undo an import, and yield after each batch but the last; a new call continues an interrupted undo."""
    undo = _ImportUndo(job)
    while transactions.write(undo.step):
        yield


class _ContactsNamedLater:
    """The contacts that later imports of the account named but did not create, from the start of an import on.

    An import that was undone does not count. An import whose undo is in progress counts, because the undo may be
    interrupted.
    """

    def __init__(self, job: Import) -> None:
        # One byte for each contact id
        self._named = bytearray()
        chunks = rows(
            "SELECT c.outcomes FROM import_chunk c JOIN import i ON i.id = c.import_job_id WHERE i.account_id = ? "
            "AND i.resource = 'contacts' AND i.id != ? AND NOT i.dry_run AND i.phase IS NOT 'undone' "
            "AND c.id > (SELECT min(id) FROM import_chunk WHERE import_job_id = ?)",
            (job.account_id, job.id, job.id),
        )
        for (packed,) in chunks:
            for _, result, contact_id, *_ in _decode_outcomes(packed)[1]:
                if result == "created" or contact_id is None:
                    continue
                if contact_id >= len(self._named):
                    self._named.extend(bytes(contact_id + 1024 - len(self._named)))
                self._named[contact_id] = 1

    def __contains__(self, contact_id: int) -> bool:
        return contact_id < len(self._named) and self._named[contact_id] == 1


_UPDATED, _CREATED = 1, 2


class _ContactsOfImport:
    """The contacts that the rows of an import created or updated: none for an import of suppressions.

    `updated` has the ids of the contacts that it updated but did not create, by the first chunk that updated them. Each
    contact occurs once, although several rows in several chunks may have updated it.
    """

    def __init__(self, job: Import) -> None:
        self.updated: dict[int, array[int]] = {}
        # One byte for each contact id
        self._results = bytearray()
        chunks = rows("SELECT id, outcomes FROM import_chunk WHERE import_job_id = ? ORDER BY number", (job.id,))
        for chunk_id, packed in chunks:
            self.updated[chunk_id] = array("q")
            if job.resource == "suppressions":
                continue
            (_, _, first_id, inserted_count), outcomes = _decode_outcomes(packed)
            for contact_id in range(first_id, first_id + inserted_count):
                self._take(contact_id, _CREATED)
            for _, result, contact_id, *_ in outcomes:
                if contact_id is None or result not in ("created", "updated"):
                    continue
                is_first = self._take(contact_id, _CREATED if result == "created" else _UPDATED)
                if is_first and result == "updated":
                    self.updated[chunk_id].append(contact_id)

    def _take(self, contact_id: int, result: int) -> bool:
        """Store the result of a row, and return whether no earlier row named the contact."""
        if contact_id >= len(self._results):
            self._results.extend(bytes(contact_id + 1024 - len(self._results)))
        is_first = not self._results[contact_id]
        if is_first:
            self._results[contact_id] = result
        return is_first

    def is_created(self, contact_id: int) -> bool:
        """Return whether the import created a contact."""
        return contact_id < len(self._results) and self._results[contact_id] == _CREATED


class _ImportUndo:
    """The undo of an import; it continues where an interrupted undo stopped."""

    def __init__(self, job: Import) -> None:
        self._import_id, self._account_id = job.id, job.account_id
        self._is_of_suppressions = job.resource == "suppressions"
        self._contacts = _ContactsOfImport(job)
        # Only one import of an account is applied or undone at a time, so no import names further contacts meanwhile.
        self._named = _ContactsNamedLater(job)
        self._actor = _find_undoing_actor(job.account_id, job.id)
        # The times and lists of all chunks, because later rows of the file may have changed a new contact. For this,
        # all chunks keep their snapshots until the new contacts are deleted.
        self._times: set[int] = set()
        self._list_ids: set[int] = set()
        # The chunks with new contacts, the last one at the end
        self._creating_ids: list[int] = []
        for chunk_id, packed in rows(
            "SELECT id, before FROM import_chunk WHERE import_job_id = ? AND before IS NOT NULL ORDER BY number",
            (job.id,),
        ):
            snapshot = decode_snapshot(packed)
            self._times.add(snapshot.at)
            self._list_ids.update(snapshot.joined)
            if snapshot.created:
                self._creating_ids.append(chunk_id)

    def step(self) -> bool:
        """Undo up to `_UNDO_BATCH` contacts of the last remaining chunk, and return whether more may remain.

        If no chunk remains, set the phase `undone`.
        """
        require_write_transaction()
        chunk = fetch_one(
            "SELECT id, before FROM import_chunk WHERE id = ?"
            if self._creating_ids
            else "SELECT id, before FROM import_chunk WHERE import_job_id = ? AND before IS NOT NULL "
            "ORDER BY number DESC LIMIT 1",
            (self._creating_ids[-1] if self._creating_ids else self._import_id,),
        )
        now = clock.now_ms()
        if chunk is None:
            run(
                "UPDATE import SET phase = 'undone', undone_at = ?, updated_at = ? WHERE id = ?",
                (now, now, self._import_id),
            )
            self._record_end()
            statuses.forget_counts(self._account_id)
            return False
        notes = decode_snapshot(chunk[1])
        removed_count, stayed = 0, Counter(Import.get_by_id(self._import_id).left_in_place)
        is_done = False
        if self._creating_ids:
            with log.in_batch(f"import:{self._import_id}"):
                removed_count = self._remove_batch(notes, stayed)
            if not notes.created:
                self._creating_ids.pop()
        else:
            chunk_undo = _ChunkUndo(self._account_id, self._import_id, self._actor, notes, self._contacts)
            with log.in_batch(f"import:{self._import_id}"):
                is_done = chunk_undo.undo_batch()
            if self._is_of_suppressions:
                removed_count = chunk_undo.lifted_suppressions
                stayed["changed"] += chunk_undo.kept_suppressions
        restored_count = _count_existing(self._account_id, self._contacts.updated[chunk[0]]) if is_done else 0
        run("UPDATE import_chunk SET before = ? WHERE id = ?", (None if is_done else encode_snapshot(notes), chunk[0]))
        run(
            "UPDATE import SET restored = restored + ?, removed = removed + ?, left_in_place = ?, updated_at = ? "
            "WHERE id = ?",
            (removed_count + restored_count, removed_count, msgspec.json.encode(+stayed).decode(), now,
             self._import_id),
        )  # fmt: skip
        return True

    def _record_end(self) -> None:
        """Record one event in place of an event for each contact."""
        job = Import.get_by_id(self._import_id)
        if not job.restored:
            return
        data = {"import_id": job.id, "resource": job.resource, "actor": self._actor, "removed": job.removed,
                "restored": job.restored - job.removed}  # fmt: skip
        log.record(NewEvent(self._account_id, "import_undone", None, data, f"import:{job.id}", job.filename))

    def _remove_batch(self, notes: ChunkSnapshot, stayed: Counter[str]) -> int:
        """Delete the last new contacts of a chunk, except those that stay, and return the number of deleted contacts.

        Those that stay are counted in `stayed`, by `store.KEEP_REASONS`.
        """
        created = from_ranges(notes.created)
        contact_ids = created[-_UNDO_BATCH:]
        notes.created = to_ranges(created[:-_UNDO_BATCH])
        removed_ids, stayed_by_reason = _find_untouched(
            self._account_id, self._times, self._list_ids, contact_ids, self._named
        )
        stayed += stayed_by_reason
        placeholders = ",".join("?" * len(removed_ids))
        members: dict[int, list[int]] = {}
        for list_id, contact_id in rows(
            f"SELECT contact_list_id, contact_id FROM membership WHERE contact_id IN ({placeholders})", removed_ids
        ):
            members.setdefault(list_id, []).append(contact_id)
        for list_id, leaving in members.items():
            lists.remove_members(self._account_id, list_id, leaving)
        db = connection()
        db.executemany(search.DELETE_SQL, [(removed_id,) for removed_id in removed_ids])
        run_ends.end_runs_of_deleted_contacts(removed_ids)
        log.record_many(
            [NewEvent(self._account_id, "contact_delete", None,
                      {"contact_id": removed_id, "import_id": self._import_id})
             for removed_id in removed_ids]
        )  # fmt: skip
        db.executemany("DELETE FROM contact WHERE id = ?", [(removed_id,) for removed_id in removed_ids])
        return len(removed_ids)


def _joined_by_others(notes: ChunkSnapshot, contacts_of_import: _ContactsOfImport) -> dict[int, list[int]]:
    """Return the ids, by list id, of contacts that a chunk added to lists but that the import did not create."""
    joined = {
        list_id: [contact_id for contact_id in from_ranges(members) if not contacts_of_import.is_created(contact_id)]
        for list_id, members in notes.joined.items()
    }
    return {list_id: contact_ids for list_id, contact_ids in joined.items() if contact_ids}


def _count_existing(account_id: int, contact_ids: "array[int]") -> int:
    """Return how many of some contacts still exist."""
    sql = "SELECT count(*) FROM contact WHERE account_id = ? AND id IN (SELECT value FROM json_each(?))"
    return int(scalar(sql, (account_id, _to_json(contact_ids))))


def _find_untouched(
    account_id: int, times: Iterable[int], list_ids: Iterable[int], contact_ids: list[int], named: _ContactsNamedLater
) -> tuple[list[int], Counter[str]]:
    """Return the new contacts that an undo deletes, and the number of the other ones by `store.KEEP_REASONS`.

    `times` are the times at which the import wrote, and `list_ids` the lists that its contacts joined.
    """
    removable_ids = []
    stayed: Counter[str] = Counter()
    for contact_id, messaged, listed, changed in rows(
        "SELECT c.id, EXISTS (SELECT 1 FROM message m WHERE m.contact_id = c.id AND m.status NOT IN "
        "('skipped', 'cancelled')), EXISTS (SELECT 1 FROM membership b JOIN contact_list l "
        "ON l.id = b.contact_list_id WHERE b.contact_id = c.id AND l.segment_id IS NULL "
        "AND l.id NOT IN (SELECT value FROM json_each(?1))), "
        "c.updated_at NOT IN (SELECT value FROM json_each(?2)) OR EXISTS (SELECT 1 FROM channel h "
        "WHERE h.contact_id = c.id AND (h.updated_at NOT IN (SELECT value FROM json_each(?2)) "
        "OR (h.opt_out_repeated_at >= h.updated_at "
        "AND h.opt_out_repeated_at NOT IN (SELECT value FROM json_each(?2))))) "
        "OR EXISTS (SELECT 1 FROM consent k WHERE k.contact_id = c.id AND k.source != 'import') "
        "OR EXISTS (SELECT 1 FROM event e WHERE e.contact_id = c.id AND NOT e.generated) "
        "FROM contact c WHERE c.account_id = ?3 AND c.id IN (SELECT value FROM json_each(?4))",
        (_to_json(list_ids), _to_json(times), account_id, _to_json(contact_ids)),
    ):
        is_changed = changed or contact_id in named
        reason = "messaged" if messaged else "in_another_list" if listed else "changed" if is_changed else None
        if reason is None:
            removable_ids.append(contact_id)
        else:
            stayed[reason] += 1
    return removable_ids, stayed


def _to_json(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(list(numbers)).decode()


class UndoForecast(NamedTuple):
    """The effect of an undo now: the numbers of contacts to be removed, restored, and left in place (by reason).

    For an import of suppressions, `removed` is the number of addresses that would no longer be suppressed, and
    `left_in_place` the number of those that stay suppressed because they were suppressed again.
    """

    removed: int
    restored: int
    left_in_place: dict[str, int]


def forecast_undo(job: Import) -> UndoForecast | None:
    """Return what an undo of an import would do now, or None for more than `_MAX_FORECAST` contacts or addresses."""
    if job.created + job.updated > _MAX_FORECAST:
        return None
    snapshots = [
        decode_snapshot(packed)
        for (packed,) in rows("SELECT before FROM import_chunk WHERE import_job_id = ? AND before IS NOT NULL",
                              (job.id,))
    ]  # fmt: skip
    if job.resource == "suppressions":
        lifted = sum(
            bool(fetch_one(f"SELECT 1 FROM suppression WHERE {_LIFTED}", (job.account_id, *suppression, snapshot.at)))
            for snapshot in snapshots
            for suppression in snapshot.suppressions
        )
        repeated = sum(
            bool(fetch_one(f"SELECT 1 FROM suppression WHERE {_REPEATED}", (job.account_id, *suppression)))
            for snapshot in snapshots
            for suppression in snapshot.suppressions
        )
        return UndoForecast(lifted, 0, {"changed": repeated} if repeated else {})
    # Later rows of the file may have changed a contact that an earlier one created.
    times = {snapshot.at for snapshot in snapshots}
    list_ids = {list_id for snapshot in snapshots for list_id in snapshot.joined}
    created = [contact_id for snapshot in snapshots for contact_id in from_ranges(snapshot.created)]
    removable_ids, stayed = _find_untouched(job.account_id, times, list_ids, created, _ContactsNamedLater(job))
    restored = sum(
        _count_existing(job.account_id, contact_ids) for contact_ids in _ContactsOfImport(job).updated.values()
    )
    return UndoForecast(len(removable_ids), restored, dict(stayed))


# The suppressions that an undo lifts, and those that it keeps because they were requested again
_SUPPRESSION = "account_id = ? AND kind = ? AND address_hash = ? AND reason = ?"
_LIFTED = f"{_SUPPRESSION} AND source = 'import' AND created_at = ? AND repeated_at IS NULL"
_REPEATED = f"{_SUPPRESSION} AND repeated_at NOT NULL"
# Selects a channel without a change or a repeated opt-out since the import. For a subscribed channel, the time of a
# repetition is ignored: it belongs to an older opt-out, but may be equal or later, because two chunks can be written in
# one millisecond, and clocks may be set back.
_UNCHANGED = "updated_at = ? AND (subscribed OR coalesce(opt_out_repeated_at, 0) < updated_at)"


def _find_undoing_actor(account_id: int, import_id: int) -> str | None:
    """Return the actor who requested the undo of an import, from the audit log, or None if it has no entry."""
    row = fetch_one(
        "SELECT actor FROM audit WHERE account_id = ? AND action = 'import_undo' AND subject = ? "
        "ORDER BY created_at DESC, id DESC LIMIT 1",
        (account_id, f"import:{import_id}"),
    )
    return None if row is None else str(row[0])


class _ChunkUndo:
    """The undo of the changes of a chunk, except of the contacts that the import created.

    `undo_batch` removes from `notes` the changes that it has undone.
    """

    def __init__(
        self, account_id: int, import_id: int, actor: str | None, notes: ChunkSnapshot,
        contacts_of_import: _ContactsOfImport,
    ) -> None:  # fmt: skip
        self.account_id, self.import_id, self.notes = account_id, import_id, notes
        self.lifted_suppressions = self.kept_suppressions = 0
        self._actor = actor
        self._is_created = contacts_of_import.is_created
        self._joined = _joined_by_others(notes, contacts_of_import)

    def undo_batch(self) -> bool:
        """Undo all changes of addresses and the next batch of changes of contacts; return whether no changes remain."""
        self._restore_addresses()
        changes = self.notes.changes[-_UNDO_BATCH:]
        del self.notes.changes[-_UNDO_BATCH:]
        self._remove_from_lists([change.contact_id for change in changes])
        for change in changes:
            if not self._is_created(change.contact_id):
                self._restore(change)
        if not self.notes.changes:
            self._remove_from_lists([member for members in self._joined.values() for member in members])
        self.notes.joined = {list_id: to_ranges(members) for list_id, members in self._joined.items()}
        return not self.notes.changes

    def _restore_addresses(self) -> None:
        """Restore all suppressions, opt-outs and channels of the chunk that are unchanged since the import."""
        account, at = self.account_id, self.notes.at
        lifted_addresses = []
        for suppression in self.notes.suppressions:
            lifted = rows(
                f"DELETE FROM suppression WHERE {_LIFTED} RETURNING kind, address", (account, *suppression, at)
            )
            lifted_addresses += lifted
            if lifted:
                data = {"reason": suppression[2]}
                self._record((suppression[0], suppression[1]), self._contact_of(*lifted[0]), data)
            self.kept_suppressions += not lifted and bool(
                fetch_one(f"SELECT 1 FROM suppression WHERE {_REPEATED}", (account, *suppression))
            )
        self.lifted_suppressions += len(lifted_addresses)
        for kind, hashed, by, opted_out_at in self.notes.opt_outs:
            run("INSERT INTO opt_out (account_id, kind, address_hash, by, created_at) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (account, kind, hashed, by, opted_out_at))  # fmt: skip
        for number in self.notes.repeated:
            # The opt-out stays, but no longer because of this import.
            run("UPDATE channel SET opt_out_repeated_at = NULL WHERE id = ? AND opt_out_repeated_at = ?", (number, at))
            for kind, key, contact_id in rows("SELECT kind, key, contact_id FROM channel WHERE id = ?", (number,)):
                self._record_consent(kind, key, contact_id)
        for number, consent_state, verified_at, updated_at in self.notes.channels:
            changed = fetch_one(
                f"SELECT kind, key, contact_id FROM channel WHERE id = ? AND account_id = ? AND {_UNCHANGED}",
                (number, account, at),
            )
            if changed is None or self._is_created(changed[2]):
                continue
            run(
                "UPDATE channel SET subscribed = ?, opted_out_by = ?, opt_out_at = ?, opt_in_at = ?, suppression = ?, "
                "verified_at = ?, updated_at = ? WHERE id = ?",
                (*consent_state, verified_at, updated_at, number),
            )
            self._record_consent(*changed)
        for kind, key in self.notes.added:
            added = fetch_one(
                f"SELECT id, contact_id FROM channel WHERE account_id = ? AND kind = ? AND key = ? AND {_UNCHANGED} "
                "AND sent_count = 0",
                (account, kind, key, at),
            )
            if added is None or self._is_created(added[1]):
                continue
            run("DELETE FROM channel WHERE id = ?", (added[0],))
            self._record_consent(kind, key, added[1])
        self._refresh_suppressions(lifted_addresses)
        self.notes.suppressions, self.notes.opt_outs, self.notes.channels, self.notes.added = [], [], [], []
        self.notes.repeated = []

    def _contact_of(self, kind: str, value: str) -> int | None:
        """Return the id of the contact with an address, or None."""
        key = addresses.parse(kind, value).key
        row = fetch_one(
            "SELECT contact_id FROM channel WHERE account_id = ? AND kind = ? AND key = ?", (self.account_id, kind, key)
        )
        return None if row is None else int(row[0])

    def _record_consent(self, kind: str, key: str, contact_id: int) -> None:
        """Record the undo for an address whose consent the import changed or confirmed, if it is not recorded yet.

        Several rows of the file, in several chunks, may have changed the same address.
        """
        acts = rows(
            "SELECT act, json_extract(data, '$.reason') FROM consent WHERE contact_id = ? AND account_id = ? "
            "AND kind = ? AND address_hash = ? AND source = 'import' AND json_extract(data, '$.import_id') = ?",
            (contact_id, self.account_id, kind, crypto.hash_address(kind, key), self.import_id),
        )
        is_recorded = ("import_undone", None) in acts
        if not is_recorded and any(act in ("opt_in", "opt_out") for act, _ in acts):
            self._record((kind, key), contact_id)

    def _record(
        self, address: tuple[str, str | bytes], contact_id: int | None, data: dict[str, Any] | None = None
    ) -> None:
        """Record as evidence that the undo reverts the import's change to the consent of an address."""
        note = {"import_id": self.import_id, **(data or {})}
        # Like other acts of imports, it does not count as a change of the contact (see `_find_untouched`).
        evidence = Evidence(source="import", actor=self._actor)
        record_evidence(self.account_id, address, "import_undone", "operator", evidence, contact_id, note)

    def _refresh_suppressions(self, lifted_addresses: list[tuple[str, str]]) -> None:
        """Set the suppression column of all affected channels to the suppression in force.

        These are the channels of the chunk, and those of `lifted_addresses`. The reason in the snapshot may be out of
        date, and a lifted suppression may belong to a contact that was added after the import.
        """
        ids = _to_json(number for number, *_ in self.notes.channels)
        channels = rows(
            "SELECT id, kind, key, suppression FROM channel WHERE account_id = ? "
            "AND id IN (SELECT value FROM json_each(?))",
            (self.account_id, ids),
        )
        for kind, value in lifted_addresses:
            channels += rows(
                "SELECT id, kind, key, suppression FROM channel WHERE account_id = ? AND kind = ? AND key = ?",
                (self.account_id, kind, addresses.parse(kind, value).key),
            )
        for number, kind, key, suppression in channels:
            reason = find_suppression_reason(self.account_id, kind, crypto.hash_address(kind, key))
            if reason != suppression:
                run("UPDATE channel SET suppression = ? WHERE id = ?", (reason, number))

    def _remove_from_lists(self, contact_ids: list[int]) -> None:
        selected = set(contact_ids)
        for list_id, members in self._joined.items():
            leaving = [contact_id for contact_id in members if contact_id in selected]
            if leaving:
                lists.remove_members(self.account_id, list_id, leaving)
                self._joined[list_id] = [contact_id for contact_id in members if contact_id not in selected]

    def _restore(self, change: ContactChange) -> None:
        stored = rows(
            "SELECT first_name, last_name, source, country_code, language, tracking, data, updated_at FROM contact "
            "WHERE account_id = ? AND id = ?",
            (self.account_id, change.contact_id),
        )
        if not stored:
            return
        values: dict[str, Any] = dict(zip(CONTACT_FIELDS, stored[0], strict=False))
        for name, (old_field, new_field) in change.fields.items():
            is_chosen = name == "tracking" and find_last_tracking_choice(change.contact_id) == new_field
            if values[name] == new_field and not is_chosen:
                values[name] = old_field
        data = msgspec.json.decode(stored[0][6])
        for key, (old_value, new_value) in change.data.items():
            if ([data[key]] if key in data else []) == new_value:
                if old_value:
                    data[key] = old_value[0]
                else:
                    data.pop(key, None)
        restored_at = change.updated_at if stored[0][7] == self.notes.at else clock.now_ms()
        run(
            "UPDATE contact SET first_name = ?, last_name = ?, source = ?, country_code = ?, language = ?, "
            "tracking = ?, data = ?, updated_at = ? WHERE id = ?",
            (*values.values(), msgspec.json.encode(data).decode(), restored_at, change.contact_id),
        )
        restored = contacts.get(self.account_id, change.contact_id)
        search.index_contact(restored, restored.channels)


_CHUNK_BATCH = 50


def _find_expired_import() -> int | None:
    """Return the id of a finished import with expired snapshots or outcomes, or None."""
    now = clock.now_ms()
    row = fetch_one(
        "SELECT i.id FROM import i WHERE i.status NOT IN ('pending', 'processing') AND i.phase IS DISTINCT "
        "FROM 'undoing' AND ((coalesce(i.completed_at, i.created_at) < ? "
        "AND EXISTS (SELECT 1 FROM import_chunk c WHERE c.import_job_id = i.id)) "
        "OR (coalesce(i.undo_until, 0) < ? AND EXISTS (SELECT 1 FROM import_chunk c WHERE c.import_job_id = i.id "
        "AND c.before IS NOT NULL))) LIMIT 1",
        (now - store.RETENTION_MS, now),
    )
    return None if row is None else int(row[0])


def prune_chunks() -> bool:
    """Prune the expired snapshots or outcomes of up to `_CHUNK_BATCH` chunks, and return whether more may remain.

    Snapshots expire at the end of the period for an undo, outcomes after `store.RETENTION_MS`.
    """
    require_write_transaction()
    import_id = _find_expired_import()
    if import_id is None:
        return False
    is_expired = fetch_one(
        "SELECT 1 FROM import WHERE id = ? AND coalesce(completed_at, created_at) < ?",
        (import_id, clock.now_ms() - store.RETENTION_MS),
    )
    if is_expired:
        run("DELETE FROM import_chunk WHERE id IN (SELECT id FROM import_chunk WHERE import_job_id = ? LIMIT ?)",
            (import_id, _CHUNK_BATCH))  # fmt: skip
    else:
        run("UPDATE import_chunk SET before = NULL WHERE id IN (SELECT id FROM import_chunk "
            "WHERE import_job_id = ? AND before IS NOT NULL LIMIT ?)", (import_id, _CHUNK_BATCH))  # fmt: skip
    return True
