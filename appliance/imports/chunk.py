"""One transaction of an import: some people of the staging file made contacts, with everything that belongs to them."""

from collections import defaultdict
from typing import Any, NamedTuple

import msgspec

from appliance.audience.contacts import lists, search
from appliance.audience.contacts.lists import ListCreate
from appliance.core import clock
from appliance.imports import bulk_insert, existing_contacts
from appliance.imports.address_states import Given
from appliance.imports.bulk_insert import Made, Rows, uuid7
from appliance.imports.existing_contacts import Have, Known, Line, Memory
from appliance.imports.people import Person, warnings_of
from appliance.imports.undo import Before
from appliance.storage.open import name_key, rows

# Lists that the rows of a file name: found by their names, made where there are none of them.

_PART = 500


class Named:
    """The lists that some people's rows name; when `dry`, those that are missing are left out."""

    def __init__(self, account_id: int, people: list[Person], dry: bool) -> None:
        names = {name_key(name): name for person in people for name in person.list_names()}
        self._ids: dict[str, int] = {}
        keys = list(names)
        for start in range(0, len(keys), _PART):
            part = keys[start : start + _PART]
            found = rows(
                f"SELECT name_key, id FROM contact_list WHERE account_id = ? AND name_key IN "
                f"({','.join('?' * len(part))})",
                (account_id, *part),
            )
            self._ids.update(found)
        for key in keys if not dry else ():
            if key not in self._ids:
                self._ids[key] = lists.create(account_id, ListCreate(names[key])).id

    def ids(self, person: Person) -> list[int]:
        """Return the lists that a person's row names."""
        return [self._ids[key] for name in person.list_names() if (key := name_key(name)) in self._ids]


CREATED, UPDATED, SKIPPED, FAILED = "created", "updated", "skipped", "failed"
_ANOTHERS = "its phone number belongs to another contact"
_EXISTS = "there is a contact with this address already"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_FIELDS = ("first_name", "last_name", "source", "country_code", "tracking")


class Plan(NamedTuple):
    """What an import asks of every chunk."""

    import_id: int
    account_id: int
    actor: str
    words: str | None
    list_ids: tuple[int, ...]
    opt_in: bool
    skip: bool
    trigger_flows: bool

    @property
    def mark(self) -> dict[str, Any]:
        """Return what events carry, so that nobody mistakes them for something that a person did."""
        return {"import_id": self.import_id, **({"trigger_flows": True} if self.trigger_flows else {})}


class Outcome(NamedTuple):
    """What came of one line.

    `warnings` are values that were left out because of what is stored, each as field, value, and why; what cannot be
    read at all is known of the line before. `state` is where the contact stands then: `subscribed`, or `unsubscribed`
    or `suppressed` with the reason behind a colon.
    """

    line: int
    result: str
    contact_id: int | None = None
    reason: str | None = None
    kept: list[str] = []
    warnings: list[tuple[str, str, str]] = []
    state: str | None = None


class Chunk:
    """The work on some people, done when it is made: on the writer thread, or for a check on any, writing nothing.

    A check has a `memory` of the parts of the file before this one. `made` are those of them whom `plain.make` made
    before, who only join the lists here.
    """

    def __init__(
        self, plan: Plan, people: list[Person], made: Made | None = None, memory: Memory | None = None
    ) -> None:  # fmt: skip
        self.plan, self.now = plan, clock.now_ms() if made is None else made.at
        self.known = Known(plan.account_id, people, memory)
        self.rows = Rows(plan.account_id, plan.actor, plan.words, self.now)
        self.before = Before(self.now, made)
        self.outcomes: list[Outcome] = []
        self._joining: dict[int, list[int]] = defaultdict(list)
        self._changed: set[int] = set()
        self._note = _encode({"import_id": plan.import_id}).decode()
        self._said: dict[int, str | None] = {}
        self.warned = 0
        named = Named(plan.account_id, people, dry=memory is not None)
        for person in people:
            self._row(person, named)
        self._states()
        if memory is None:
            self._contacts()
            self.rows.flush()
            self._lists(made)
        else:
            rows = zip(people, self.outcomes, strict=True)
            memory.keep(self.known, {one.contact_id for person, one in rows if person.shared and one.contact_id})

    def _states(self) -> None:
        """Say of each line that wrote a contact where the contact stands in the end."""
        for place, outcome in enumerate(self.outcomes):
            if outcome.result in (CREATED, UPDATED) and outcome.contact_id is not None:
                self.outcomes[place] = outcome._replace(state=self._state(outcome.contact_id))

    def _state(self, contact_id: int) -> str:
        addresses = self.known.addresses_of(contact_id)
        first = next((have for (kind, _), have in addresses if kind == "email"), addresses[0][1])
        standing = first.standing
        if standing.suppression is not None:
            return f"suppressed:{standing.suppression}"
        if standing.subscribed:
            return "subscribed"
        if self._said.get(contact_id) is not None:
            return "unsubscribed:file"
        return "unsubscribed:before" if self.plan.opt_in else "unsubscribed:not_opted_in"

    def _row(self, person: Person, named: Named) -> None:
        found = self._person(person)
        if found.result in (CREATED, UPDATED) and (person.warnings is not None or found.warnings):
            self.warned += 1
        if person.first is not None and (found.reason is None or found.reason == _EXISTS):
            found = found._replace(reason=f"the same address as line {person.first}")
        self.outcomes.append(found)
        if found.contact_id is not None and found.result != SKIPPED:
            for list_id in dict.fromkeys((*self.plan.list_ids, *named.ids(person))):
                self._joining[list_id].append(len(self.outcomes) - 1)

    def _add(self, source: str | None) -> str:
        return _encode({"source": source or "import", **self.plan.mark}).decode()

    def _person(self, person: Person) -> Outcome:
        given, taken = person.given(), []
        contact_id = None
        for address in list(given):
            have = self.known.channels.get((address.kind, address.key))
            if have is None or have.contact_id == contact_id:
                continue
            # A further address tells a person only where it is a phone and no other address contradicts it
            own = address is given[0] or (address.kind == "phone" and not self.known.has_email(have.contact_id))
            if contact_id is not None or not own:
                # The line of an office or a household belongs to one of them, and the others come without it
                given.remove(address)
                taken.append((address.kind, address.value, "belongs to another contact"))
                continue
            contact_id = have.contact_id
        if contact_id is None:
            return self._new(person, given)._replace(warnings=taken)
        if person.kind == "phone" and self._is_somebody_else(contact_id, person):
            return Outcome(person.line, SKIPPED, contact_id, _ANOTHERS)
        if self.plan.skip:
            return Outcome(person.line, SKIPPED, contact_id, _EXISTS)
        self._merge(contact_id, person)
        return Outcome(person.line, UPDATED, contact_id, None, self._addresses(contact_id, given), taken)

    def _is_somebody_else(self, contact_id: int, person: Person) -> bool:
        """Return whether a row that names a person by a phone number alone is about another than whose number it is.

        It is where it had an email address that could not be read, or has another last name; people with an email
        address share a number with their office or household.
        """
        if not self.known.has_email(contact_id):
            return False
        had_email = any(field == "email" for field, _, _ in warnings_of(person.warnings))
        last_name = self.known.contacts[contact_id].last_name
        differs = bool(person.last_name and last_name and person.last_name.casefold() != last_name.casefold())
        return had_email or differs

    def _new(self, person: Person, given: list[Given]) -> Outcome:
        contact_id = self.known.next_id()
        self.before.created(contact_id)
        self.known.contacts[contact_id] = Line(
            person.first_name, person.last_name, person.source, person.country_code or person.phone_country,
            person.tracking or "full", person.data or "{}", True,
        )  # fmt: skip
        self._changed.add(contact_id)
        return Outcome(person.line, CREATED, contact_id, None, self._addresses(contact_id, given))

    def _merge(self, contact_id: int, person: Person) -> None:
        """Lay what a row says over what is there; an empty cell says nothing."""
        old = self.known.contacts[contact_id]
        values = {name: value for name in _FIELDS if (value := getattr(person, name)) is not None}
        if old.country_code is None and person.phone_country is not None:
            values.setdefault("country_code", person.phone_country)
        data = old.data
        if person.data is not None:
            data = _encode({**_decode(old.data), **_decode(person.data)}).decode()
        new = old._replace(**values, data=data)
        if new != old:
            self.known.contacts[contact_id] = new
            self._changed.add(contact_id)

    def _addresses(self, contact_id: int, given: list[Given]) -> list[str]:
        said = given[0].consent
        self._said[contact_id] = said if said in ("out", "off") else None
        return [one.value for one in given if self._address(contact_id, one)]

    def _address(self, contact_id: int, given: Given) -> bool:
        """Bring one address to where the file and the rules put it; returns whether an opt-out was kept."""
        key = (given.kind, given.key)
        have = self.known.channels.get(key)
        hashed = self.known.hash_of(key)
        if have is None:
            have = self.known.fresh(contact_id, key, given.value)
            self.known.add(key, have)
        if given.suppression is not None and given.suppression not in self.known.reasons(key[0], hashed):
            self._suppress(contact_id, key, hashed, given.value, given.suppression)
        standing = have.standing._replace(suppression=existing_contacts.gravest(self.known.reasons(key[0], hashed)))
        done = existing_contacts.outcome(
            self.now, standing, given.state, self.plan.opt_in, (given.opt_in_at, given.opt_out_at)
        )
        if done.act is not None:
            self.rows.consent(contact_id, key[0], hashed, done.act, done.by, self._note)
        if done.act == "opt_in" and (key[0], hashed) in self.known.opt_outs:
            by, when = self.known.opt_outs.pop((key[0], hashed))
            self.rows.forget((self.plan.account_id, key[0], hashed))
            self.before.forgot(key[0], hashed, by, when)
        verified_at = have.verified_at or (self.now if given.verified else None)
        have.change(done.standing, verified_at)
        return done.kept

    def _suppress(self, contact_id: int, key: tuple[str, str], hashed: bytes, value: str, reason: str) -> None:
        self.known.suppress(key[0], hashed, reason)
        self.rows.suppression((self.plan.account_id, key[0], hashed, value, reason, self.plan.words, self.now))
        note = _encode({"import_id": self.plan.import_id, "reason": reason}).decode()
        by = "recipient" if reason == "complaint" else "operator" if reason == "manual" else "service"
        self.rows.consent(contact_id, key[0], hashed, "suppressed", by, note)
        self.before.suppressed(key[0], hashed, reason)

    def _contacts(self) -> None:
        """Turn what was gathered into rows: contacts first, then their channels, then their words."""
        touched = self._changed | {have.contact_id for have in self.known.touched()}
        mark = self.plan.mark
        account_id, now = self.plan.account_id, self.now
        for contact_id in sorted(touched):
            line = self.known.contacts[contact_id]
            if line.new:
                self.rows.contact(
                    (contact_id, account_id, uuid7(now, contact_id), line.first_name, line.last_name, line.source,
                     line.country_code, line.data, line.tracking, now, now)
                )  # fmt: skip
                self.rows.event(contact_id, "contact_add", self._add(line.source))
            else:
                self.before.line(contact_id, self.known.original[contact_id], line, self.known.updated_at[contact_id])
                self.rows.contact_update((*line[:4], line.data, line.tracking, now, contact_id))
                note = _encode({"source": "import", **mark}).decode()
                self.rows.event(contact_id, "contact_update", note)
            addresses = self.known.addresses_of(contact_id)
            self._channels(addresses)
            if (
                line.new
                or line[:2] != self.known.original[contact_id][:2]
                or any(one.id is None for _, one in addresses)
            ):
                words = [(kind, have.value) for (kind, _), have in addresses]
                self.rows.words_of(search.entry(contact_id, line[:2], words))

    def _channels(self, addresses: list[tuple[tuple[str, str], Have]]) -> None:
        now = self.now
        for (kind, key), have in addresses:
            one = have.standing
            if have.id is None:
                self.rows.channel(
                    (self.plan.account_id, have.contact_id, kind, have.value, key, one.subscribed, have.verified_at,
                     one.opt_in_at, one.opt_out_at, one.opted_out_by, one.suppression, now, now)
                )  # fmt: skip
                if not self.known.contacts[have.contact_id].new:
                    self.before.channel_added(kind, key)
            elif have.touched:
                self.before.channel(have.id, have.original, have.verified_before, have.updated_at)
                self.rows.channel_update(
                    (one.subscribed, one.opted_out_by, one.opt_out_at, one.opt_in_at, one.suppression,
                     have.verified_at, now, have.id)
                )  # fmt: skip

    def _lists(self, made: Made | None) -> None:
        everybody = self.plan.list_ids if made is not None and made.number else ()
        for list_id in dict.fromkeys((*everybody, *self._joining)):
            places = self._joining.get(list_id, [])
            name, members, refused = self.known.of_list(list_id, [self.outcomes[one].contact_id for one in places])
            if name is None:
                continue
            if made is not None and list_id in everybody:
                bulk_insert.join(self.plan, list_id, name, made)
                self.before.joined(list_id, range(made.first, made.first + made.number))
            joining: dict[int, None] = {}
            for place in places:
                said = self.outcomes[place]
                assert said.contact_id is not None
                if said.contact_id in refused:
                    self.outcomes[place] = said._replace(kept=[*said.kept, f"list:{list_id}"])
                elif said.contact_id not in members:
                    joining[said.contact_id] = None
            if joining:
                self.rows.join(list_id, name, list(joining), self.plan.mark)
                self.before.joined(list_id, joining)
