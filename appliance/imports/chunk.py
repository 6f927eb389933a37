"""Apply one chunk of an import in one transaction: contacts with all related rows, or suppressions."""

from collections import defaultdict
from typing import NamedTuple

import msgspec

from appliance.audience import lists
from appliance.audience.contacts import search
from appliance.audience.lists import ListCreate
from appliance.core import clock
from appliance.core.addresses import MAX_ADDRESSES
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.imports import contact_rows, row_writer
from appliance.imports.cells import RowAddress
from appliance.imports.contact_rows import (
    ChannelState,
    ContactFields,
    DryRunState,
    ExistingContacts,
)
from appliance.imports.people import Person, decode_warnings
from appliance.imports.row_writer import CONTACT_FIELDS, ImportPlan, InsertedRange, RowWriter, SnapshotBuilder, uuid7
from appliance.storage.database import normalize_name, rows

_SQL_BATCH = 500


class NamedLists:
    """The ids of the lists that the rows of a chunk name.

    The constructor creates missing lists, except in a dry run (`dry`).
    """

    def __init__(self, account_id: int, people: list[Person], dry: bool) -> None:
        names = {normalize_name(name): name for person in people for name in person.list_names()}
        self._ids: dict[str, int] = {}
        keys = list(names)
        for start in range(0, len(keys), _SQL_BATCH):
            batch = keys[start : start + _SQL_BATCH]
            list_rows = rows(
                f"SELECT name_key, id FROM contact_list WHERE account_id = ? AND name_key IN "
                f"({','.join('?' * len(batch))})",
                (account_id, *batch),
            )
            self._ids.update(list_rows)
        for key in keys if not dry else ():
            if key not in self._ids:
                self._ids[key] = lists.create(account_id, ListCreate(names[key])).id

    def ids(self, person: Person) -> list[int]:
        """Return the ids of the lists that a person's row names; in a dry run, without missing lists."""
        return [self._ids[key] for name in person.list_names() if (key := normalize_name(name)) in self._ids]


CREATED, UPDATED, SKIPPED = "created", "updated", "skipped"
_PHONE_OF_ANOTHER = gettext_noop("its phone number belongs to another contact")
_TOO_MANY_ADDRESSES = gettext_stored("is one too many (maximum is %(limit)s addresses)") % {"limit": MAX_ADDRESSES}
_EXISTS = gettext_noop("there is a contact with this address already")
_SAME_ADDRESS = gettext_stored("the same address as line %(line)s")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode


class Outcome(NamedTuple):
    """The outcome of one line.

    `result` is `created`, `updated`, `skipped` or `failed`. `kept_opt_outs` lists the addresses that remain opted out
    or suppressed, and as `list:<id>` the lists that the contact has left. `warnings` are (field, value, reason) of
    values that were left out because of stored data; warnings about unreadable values are in the staging file. `state`
    is the state of the contact after the chunk, one of `results.CONTACT_STATES`, or None if the line wrote no contact.
    """

    line: int
    result: str
    contact_id: int | None = None
    reason: str | None = None
    kept_opt_outs: list[str] = []
    warnings: list[tuple[str, str, str]] = []
    state: str | None = None


_SUPPRESSION_ACTORS = {"manual": "operator", "complaint": "recipient"}


class _Repetitions:
    """Records opt-outs and suppressions of a chunk that are already in force.

    Without this record, an undo of the earlier import that stored them would lift them, although this import states
    them too. Those that this import itself stored, in this or an earlier chunk, are not recorded again.
    """

    def __init__(
        self,
        plan: ImportPlan,
        existing: ExistingContacts,
        rows: RowWriter,
        before: SnapshotBuilder,
        now: int,
        dry: bool,
    ) -> None:
        self._plan, self._existing, self._rows, self._before = plan, existing, rows, before
        self._now, self._dry = now, dry

    def record_opt_out(self, channel: ChannelState, kind: str, hashed: bytes, by: str, note: str) -> None:
        """Record that the import repeats the opt-out of an address; do nothing if the address is not opted out.

        A new address may have the remembered opt-out of a deleted contact. Its repetition is recorded only as evidence,
        because an undo deletes the address. Later rows and imports need this evidence
        (`contact_rows.find_refused_addresses`).
        """
        consent = channel.consent
        if self._dry or channel.is_repeated or consent.subscribed or consent.opt_out_at is None:
            return
        is_new = consent[:3] != channel.original[:3]
        if is_new or row_writer.has_recorded(self._plan, channel.contact_id, hashed, "opt_out"):
            return
        channel.is_repeated = True
        if channel.id is not None:
            self._rows.repeat_opt_out((self._now, channel.id))
            self._before.record_repeated_opt_out(channel.id)
        self._rows.add_consent(channel.contact_id, kind, hashed, "opt_out", by, note)

    def record_suppression(self, contact_id: int | None, kind: str, hashed: bytes, reason: str) -> None:
        """Record that the import repeats a suppression of an earlier import; do nothing for any other suppression."""
        if self._dry or (kind, hashed, reason) not in self._existing.of_imports:
            return
        if row_writer.has_recorded(self._plan, contact_id, hashed, "suppressed", reason):
            return
        self._existing.of_imports.discard((kind, hashed, reason))
        self._rows.repeat_suppression((self._now, self._plan.account_id, kind, hashed, reason))
        note = _encode({"import_id": self._plan.import_id, "reason": reason}).decode()
        actor = _SUPPRESSION_ACTORS.get(reason, "service")
        self._rows.add_consent(contact_id, kind, hashed, "suppressed", actor, note)


class Chunk:
    """A chunk of contacts, which the constructor applies; the results are in the attributes.

    `memory` is given for a dry run, and has the effects of the previous chunks; a dry run writes nothing and may run on
    any thread. Without `memory`, call the constructor in a write transaction. `people` are the rows of the chunk
    that were not inserted in bulk. The contacts of the others are `inserted` (`row_writer.insert_in_bulk`); they are
    only added to the lists here.

    Attributes: `outcomes` has one Outcome for each of `people`; `before` has the snapshot for an undo; `warned` is the
    number of created or updated lines with warnings.
    """

    def __init__(
        self, plan: ImportPlan, people: list[Person], inserted: InsertedRange | None = None,
        memory: DryRunState | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.now = plan, clock.now_ms() if inserted is None else inserted.at
        self.existing = ExistingContacts(plan.account_id, people, memory)
        self.rows = RowWriter(plan.account_id, plan.actor, plan.words, self.now)
        self.before = SnapshotBuilder(self.now, inserted)
        self._repetitions = _Repetitions(plan, self.existing, self.rows, self.before, self.now, memory is not None)
        self.outcomes: list[Outcome] = []
        self._joining: dict[int, list[int]] = defaultdict(list)
        self._changed: set[int] = set()
        self._note = _encode({"import_id": plan.import_id}).decode()
        self._file_consents: dict[int, str | None] = {}
        self.warned = 0
        named_lists = NamedLists(plan.account_id, people, dry=memory is not None)
        for person in people:
            self._apply_row(person, named_lists)
        self._set_contact_states()
        if memory is None:
            self._collect_contacts()
            self.rows.flush()
            self._add_to_lists(inserted)
        else:
            rows = zip(people, self.outcomes, strict=True)
            memory.remember(
                self.existing, {outcome.contact_id for person, outcome in rows if person.shared and outcome.contact_id}
            )

    def _set_contact_states(self) -> None:
        """Set `state` in the outcome of each line that created or updated a contact to its contact's final state."""
        for index, outcome in enumerate(self.outcomes):
            if outcome.result in (CREATED, UPDATED) and outcome.contact_id is not None:
                self.outcomes[index] = outcome._replace(state=self._describe_contact(outcome.contact_id))

    def _describe_contact(self, contact_id: int) -> str:
        addresses = self.existing.addresses_of(contact_id)
        kind = "email" if any(key[0] == "email" for key, _ in addresses) else "phone"
        deciding = max((channel for key, channel in addresses if key[0] == kind), key=_status_rank)
        state = self._describe_address(contact_id, kind, deciding)
        gets_sms = kind == "email" and any(
            other_kind == "phone" and channel.consent.subscribed and channel.consent.suppression is None
            for (other_kind, _), channel in addresses
        )
        return f"{state}+sms" if gets_sms else state

    def _describe_address(self, contact_id: int, kind: str, channel: ChannelState) -> str:
        if channel.consent.suppression is not None:
            return f"suppressed:{channel.consent.suppression}"
        if channel.consent.subscribed:
            return "subscribed" if kind == "email" else "subscribed:phone"
        return f"unsubscribed:{self._unsubscribed_reason(contact_id, kind, channel)}"

    def _unsubscribed_reason(self, contact_id: int, kind: str, channel: ChannelState) -> str:
        file_consent = self._file_consents.get(contact_id)
        if channel.consent.opted_out_by is not None:
            # The opt-out of an earlier row stays although a later row of the contact says yes.
            is_of_file = file_consent in ("out", "no", "off") or channel.original.opted_out_by is None
            return "file" if is_of_file else "before"
        if file_consent == "off":
            return "inactive"
        if file_consent == "unstated" and self.plan.opt_in:
            return "unstated"
        return "sms_not_opted_in" if kind == "phone" else "not_opted_in"

    def _apply_row(self, person: Person, named_lists: NamedLists) -> None:
        outcome = self._apply_person(person)
        if outcome.result in (CREATED, UPDATED) and (person.warnings is not None or outcome.warnings):
            self.warned += 1
        if person.first is not None and (outcome.reason is None or outcome.reason == _EXISTS):
            outcome = outcome._replace(reason=_SAME_ADDRESS % {"line": person.first})
        self.outcomes.append(outcome)
        if outcome.contact_id is not None and outcome.result != SKIPPED:
            for list_id in dict.fromkeys((*self.plan.list_ids, *named_lists.ids(person))):
                self._joining[list_id].append(len(self.outcomes) - 1)

    def _build_addition_data(self, source: str | None) -> str:
        return _encode({"source": source or "import", **self.plan.mark}).decode()

    def _apply_person(self, person: Person) -> Outcome:
        row_addresses, left_out = person.list_addresses(), []
        contact_id = None
        for address in list(row_addresses):
            channel = self.existing.channels.get((address.kind, address.key))
            if channel is None or channel.contact_id == contact_id:
                continue
            # The first address of a row identifies a contact. A further one does so only if it is the phone number of a
            # contact without an email address.
            is_identifying = address is row_addresses[0] or (
                address.kind == "phone" and not self.existing.has_email(channel.contact_id)
            )
            if contact_id is not None or not is_identifying:
                # Several people may share the phone number of an office or household, but it belongs to one contact, so
                # the others are imported without it.
                row_addresses.remove(address)
                left_out.append((address.kind, address.value, gettext_noop("belongs to another contact")))
                continue
            contact_id = channel.contact_id
        left_out += self._remove_surplus(contact_id, row_addresses)
        if contact_id is None:
            return self._create_contact(person, row_addresses)._replace(warnings=left_out)
        if person.kind == "phone" and self._is_another_person(contact_id, person):
            return Outcome(person.line, SKIPPED, contact_id, _PHONE_OF_ANOTHER)
        if self.plan.skip:
            return Outcome(person.line, SKIPPED, contact_id, _EXISTS)
        self._update_contact(contact_id, person)
        stored_addresses = self._apply_addresses(contact_id, person, row_addresses)
        return Outcome(person.line, UPDATED, contact_id, None, stored_addresses, left_out)

    def _remove_surplus(self, contact_id: int | None, row_addresses: list[RowAddress]) -> list[tuple[str, str, str]]:
        """Remove new addresses beyond a contact's `MAX_ADDRESSES`, and return a warning for each.

        `contact_id` is None for a new contact. A warning is (field, value, reason).
        """
        room = MAX_ADDRESSES - (0 if contact_id is None else len(self.existing.addresses_of(contact_id)))
        new_addresses = [
            address for address in row_addresses if (address.kind, address.key) not in self.existing.channels
        ]
        surplus = new_addresses[max(room, 0) :]
        for address in surplus:
            row_addresses.remove(address)
        return [(address.kind, address.value, _TOO_MANY_ADDRESSES) for address in surplus]

    def _is_another_person(self, contact_id: int, person: Person) -> bool:
        """Return whether a row that has only a phone number is about a person other than the contact with that number.

        It is if the contact has an email address and either the row's email address is invalid or the last names
        differ. Several people may share the phone number of an office or household.
        """
        if not self.existing.has_email(contact_id):
            return False
        had_email = any(field == "email" for field, _, _ in decode_warnings(person.warnings))
        last_name = self.existing.contacts[contact_id].last_name
        differs = bool(person.last_name and last_name and person.last_name.casefold() != last_name.casefold())
        return had_email or differs

    def _create_contact(self, person: Person, row_addresses: list[RowAddress]) -> Outcome:
        contact_id = self.existing.next_id()
        self.before.record_created(contact_id)
        self.existing.contacts[contact_id] = ContactFields(
            person.first_name, person.last_name, person.source, person.country_code or person.phone_country,
            person.language, person.tracking or "full", person.data or "{}", True,
        )  # fmt: skip
        self._changed.add(contact_id)
        return Outcome(person.line, CREATED, contact_id, None, self._apply_addresses(contact_id, person, row_addresses))

    def _update_contact(self, contact_id: int, person: Person) -> None:
        """Replace the fields and data keys of a contact for which the row has values."""
        old_fields = self.existing.contacts[contact_id]
        values = {name: value for name in CONTACT_FIELDS if (value := getattr(person, name)) is not None}
        if old_fields.country_code is None and person.phone_country is not None:
            values.setdefault("country_code", person.phone_country)
        data = old_fields.data
        if person.data is not None:
            data = _encode({**_decode(old_fields.data), **_decode(person.data)}).decode()
        new_fields = old_fields._replace(**values, data=data)
        if new_fields != old_fields:
            self.existing.contacts[contact_id] = new_fields
            self._changed.add(contact_id)

    def _apply_addresses(self, contact_id: int, person: Person, row_addresses: list[RowAddress]) -> list[str]:
        file_consent = row_addresses[0].consent
        # A row without a consent state does not change the state that an earlier row of the contact has set.
        if file_consent not in (None, "unstated") or contact_id not in self._file_consents:
            self._file_consents[contact_id] = file_consent
        return [address.value for address in row_addresses if self._apply_address(contact_id, person.line, address)]

    def _apply_address(self, contact_id: int, line: int, address: RowAddress) -> bool:
        """Apply the suppression and consent of a row to one address, which is added if it is new.

        Return whether the address remains opted out or suppressed although the import opts in.
        """
        key = (address.kind, address.key)
        channel = self.existing.channels.get(key)
        hashed = self.existing.hash_of(key)
        if channel is None:
            channel = self.existing.build_channel(contact_id, key, address.value)
            self.existing.add(key, channel)
        if address.suppression is not None:
            if address.suppression in self.existing.get_suppression_reasons(key[0], hashed):
                self._repetitions.record_suppression(contact_id, key[0], hashed, address.suppression)
            else:
                self._suppress(contact_id, key, hashed, address.value, address.suppression)
        consent = channel.consent._replace(
            suppression=contact_rows.gravest_reason(self.existing.get_suppression_reasons(key[0], hashed))
        )
        opt_in = self.plan.opt_in if address.kind == "email" else self.plan.opt_in_phone
        decision = contact_rows.decide_consent(
            self.now, consent, address.state, opt_in, (address.opt_in_at, address.opt_out_at),
            channel.is_refused and address.consent != "in",
        )  # fmt: skip
        if decision.act == "opt_out":
            self.rows.add_consent(contact_id, key[0], hashed, decision.act, decision.by, self._opt_out_note(line))
        elif decision.act is not None:
            self.rows.add_consent(contact_id, key[0], hashed, decision.act, decision.by, self._note)
        elif address.state in ("out", "complaint", "no", "off"):
            by = "operator" if address.state in ("no", "off") else "recipient"
            self._repetitions.record_opt_out(channel, key[0], hashed, by, self._opt_out_note(line))
        if decision.act is not None or address.state in ("no", "off"):
            channel.is_refused = decision.consent.opted_out_by == "operator"
        if decision.act == "opt_in" and (key[0], hashed) in self.existing.opt_outs:
            by, opted_out_at = self.existing.opt_outs.pop((key[0], hashed))
            self.rows.delete_opt_out((self.plan.account_id, key[0], hashed))
            self.before.record_lifted_opt_out(key[0], hashed, by, opted_out_at)
        verified_at = channel.verified_at or (self.now if address.verified else None)
        channel.change(decision.consent, verified_at)
        return decision.is_still_blocked

    def _opt_out_note(self, line: int) -> str:
        """Return the data of the evidence of an opt-out, which names the line of the file that states it."""
        return _encode({"import_id": self.plan.import_id, "file": self.plan.filename, "line": line}).decode()

    def _suppress(self, contact_id: int, key: tuple[str, str], hashed: bytes, value: str, reason: str) -> None:
        self.existing.suppress(key[0], hashed, reason)
        self.rows.add_suppression((self.plan.account_id, key[0], hashed, value, reason, self.plan.words, self.now))
        note = _encode({"import_id": self.plan.import_id, "reason": reason}).decode()
        self.rows.add_consent(
            contact_id, key[0], hashed, "suppressed", _SUPPRESSION_ACTORS.get(reason, "service"), note
        )
        self.before.record_suppression(key[0], hashed, reason)

    def _collect_contacts(self) -> None:
        """Collect in `self.rows` the new and changed contacts, with their events, channels and search index."""
        touched = self._changed | {channel.contact_id for channel in self.existing.list_changed()}
        mark = self.plan.mark
        account_id, now = self.plan.account_id, self.now
        for contact_id in sorted(touched):
            fields = self.existing.contacts[contact_id]
            if fields.new:
                self.rows.add_contact(
                    (contact_id, account_id, uuid7(now, contact_id), fields.first_name, fields.last_name, fields.source,
                     fields.country_code, fields.language, fields.data, fields.tracking, now, now)
                )  # fmt: skip
                self.rows.add_event(contact_id, "contact_add", self._build_addition_data(fields.source))
            else:
                self.before.record_change(
                    contact_id, self.existing.original[contact_id], fields, self.existing.updated_at[contact_id]
                )
                self.rows.update_contact((*fields[:5], fields.data, fields.tracking, now, contact_id))
                note = _encode({"source": "import", **mark}).decode()
                self.rows.add_event(contact_id, "contact_update", note)
            addresses = self.existing.addresses_of(contact_id)
            self._collect_channels(addresses)
            if (
                fields.new
                or fields[:2] != self.existing.original[contact_id][:2]
                or any(channel_state.id is None for _, channel_state in addresses)
            ):
                address_texts = [(kind, channel.value) for (kind, _), channel in addresses]
                self.rows.index_words(search.index_row(contact_id, fields[:2], address_texts))

    def _collect_channels(self, addresses: list[tuple[tuple[str, str], ChannelState]]) -> None:
        now = self.now
        for (kind, key), address in addresses:
            values = address.consent
            if address.id is None:
                self.rows.add_channel(
                    (self.plan.account_id, address.contact_id, kind, address.value, key, values.subscribed,
                     address.verified_at, values.opt_in_at, values.opt_out_at, values.opted_out_by, values.suppression,
                     now, now)
                )  # fmt: skip
                if not self.existing.contacts[address.contact_id].new:
                    self.before.record_added_channel(kind, key)
            elif address.touched:
                self.before.record_channel(address.id, address.original, address.verified_before, address.updated_at)
                self.rows.update_channel(
                    (values.subscribed, values.opted_out_by, values.opt_out_at, values.opt_in_at, values.suppression,
                     address.verified_at, now, address.id)
                )  # fmt: skip

    def _add_to_lists(self, inserted: InsertedRange | None) -> None:
        plan_list_ids = self.plan.list_ids if inserted is not None and inserted.number else ()
        for list_id in dict.fromkeys((*plan_list_ids, *self._joining)):
            indexes = self._joining.get(list_id, [])
            name, members, opted_out = self.existing.of_list(
                list_id, [self.outcomes[line_index].contact_id for line_index in indexes]
            )
            if name is None:
                continue
            if inserted is not None and list_id in plan_list_ids:
                row_writer.add_bulk_to_list(self.plan, list_id, name, inserted)
                self.before.record_joined(list_id, range(inserted.first, inserted.first + inserted.number))
            joining: dict[int, None] = {}
            for index in indexes:
                outcome = self.outcomes[index]
                assert outcome.contact_id is not None
                if outcome.contact_id in opted_out:
                    self.outcomes[index] = outcome._replace(kept_opt_outs=[*outcome.kept_opt_outs, f"list:{list_id}"])
                elif outcome.contact_id not in members:
                    joining[outcome.contact_id] = None
            if joining:
                self.rows.add_to_list(list_id, name, list(joining), self.plan.mark)
                self.before.record_joined(list_id, joining)


class SuppressionChunk:
    """A chunk of suppressions, which the constructor applies, with the parameters and attributes of `Chunk`."""

    def __init__(
        self, plan: ImportPlan, people: list[Person], inserted: InsertedRange | None = None,
        memory: DryRunState | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.now = plan, clock.now_ms() if inserted is None else inserted.at
        self.existing = ExistingContacts(plan.account_id, people, memory)
        self.rows = RowWriter(plan.account_id, plan.actor, plan.words, self.now)
        self.before = SnapshotBuilder(self.now, inserted)
        self._repetitions = _Repetitions(plan, self.existing, self.rows, self.before, self.now, memory is not None)
        self.outcomes = [self._apply_person(person) for person in people]
        rows = zip(people, self.outcomes, strict=True)
        self.warned = sum(person.warnings is not None and outcome.result == CREATED for person, outcome in rows)
        if memory is None:
            self._collect_channels()
            self.rows.flush()

    def _apply_person(self, person: Person) -> Outcome:
        key, reason = (person.kind, person.key), person.suppression or "manual"
        hashed = self.existing.hash_of(key)
        channel = self.existing.channels.get(key)
        contact_id = channel.contact_id if channel else None
        if reason in self.existing.get_suppression_reasons(person.kind, hashed):
            if channel is not None and reason == "complaint":
                self._repetitions.record_opt_out(channel, person.kind, hashed, "recipient", self._opt_out_note())
            self._repetitions.record_suppression(contact_id, person.kind, hashed, reason)
            return Outcome(
                person.line, SKIPPED, contact_id, gettext_noop("the address is suppressed for this reason already")
            )
        self.existing.suppress(person.kind, hashed, reason)
        self.before.record_suppression(person.kind, hashed, reason)
        self.rows.add_suppression(
            (
                self.plan.account_id,
                person.kind,
                hashed,
                person.value,
                reason,
                person.source or self.plan.words,
                self.now,
            )
        )
        note = _encode({"import_id": self.plan.import_id, "reason": reason}).decode()
        self.rows.add_consent(
            contact_id, person.kind, hashed, "suppressed", _SUPPRESSION_ACTORS.get(reason, "service"), note
        )
        if channel is not None:
            consent = channel.consent._replace(
                suppression=contact_rows.gravest_reason(self.existing.get_suppression_reasons(person.kind, hashed))
            )
            decision = contact_rows.decide_consent(self.now, consent, reason, False)
            if decision.act is not None:
                self.rows.add_consent(contact_id, person.kind, hashed, decision.act, decision.by, note)
            elif reason == "complaint":
                self._repetitions.record_opt_out(channel, person.kind, hashed, "recipient", self._opt_out_note())
            channel.change(decision.consent, channel.verified_at)
        elif reason == "complaint" and (person.kind, hashed) not in self.existing.opt_outs:
            self.rows.add_opt_out((self.plan.account_id, person.kind, hashed, "recipient", self.now))
        return Outcome(person.line, CREATED, contact_id)

    def _opt_out_note(self) -> str:
        return _encode({"import_id": self.plan.import_id}).decode()

    def _collect_channels(self) -> None:
        for address in self.existing.list_changed():
            state = address.consent
            assert address.id is not None
            self.before.record_channel(address.id, address.original, address.verified_before, address.updated_at)
            self.rows.update_channel(
                (state.subscribed, state.opted_out_by, state.opt_out_at, state.opt_in_at, state.suppression,
                 address.verified_at, self.now, address.id)
            )  # fmt: skip


def _status_rank(channel: ChannelState) -> int:
    """Return the rank of an address: the contact has the state of its address with the highest rank.

    The order is that of `ContactQuery.status`.
    """
    if channel.consent.suppression is not None:
        return 2
    return 3 if channel.consent.subscribed else int(channel.consent.opted_out_by is not None)
