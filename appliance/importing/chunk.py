"""One transaction of an import: some people of the staging file made contacts, with everything that belongs to them."""

from typing import Any, NamedTuple

import msgspec

from appliance import clock
from appliance.contacts import search
from appliance.importing import rules
from appliance.importing.before import Before
from appliance.importing.known import Have, Known, Line
from appliance.importing.people import Person
from appliance.importing.writing import Rows, uuid7

CREATED, UPDATED, SKIPPED, FAILED = "created", "updated", "skipped", "failed"
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
        """Answer what events carry, so that nobody mistakes them for something that a person did."""
        return {"import_id": self.import_id, **({"trigger_flows": True} if self.trigger_flows else {})}


class Outcome(NamedTuple):
    """What came of one line."""

    line: int
    result: str
    contact_id: int | None = None
    reason: str | None = None
    kept: list[str] = []


class Group(NamedTuple):
    """A person with one address, and the later lines of the file that name it again."""

    person: Person
    again: tuple[Person, ...]


class Chunk:
    """The work on some groups, done when it is made: on the writer thread, or `dry` on any, which writes nothing."""

    def __init__(self, plan: Plan, groups: list[Group], dry: bool = False) -> None:
        self.plan, self.now = plan, clock.now_ms()
        self.known = Known(plan.account_id, [person for group in groups for person in (group.person, *group.again)])
        self.rows = Rows(plan.account_id, plan.actor, plan.words, self.now)
        self.before = Before(self.now)
        self.outcomes: list[Outcome] = []
        self._joining: list[tuple[Outcome, int]] = []
        self._changed: set[int] = set()
        self._note = _encode({"import_id": plan.import_id}).decode()
        self._added = self._add(None)
        for group in groups:
            self._group(group)
        if not dry:
            self._contacts()
            self.rows.flush()
            self._lists()

    def _group(self, group: Group) -> None:
        if not group.again and self._plain(group.person):
            return
        self._person(group.person)
        for person in group.again:
            found = self._person(person)
            if found.reason is None or found.reason == _EXISTS:
                reason = f"the same address as line {group.person.line}"
                self.outcomes[-1] = found._replace(reason=reason)

    def _plain(self, person: Person) -> bool:
        """Write somebody new of whom nothing special is known, which is most of most files, without any detour."""
        special = person.phone or person.state or person.kind != "email" or self.known.marked
        if special or ("email", person.key) in self.known.channels:
            return False
        contact_id, now, plan = self.known.next_id(), self.now, self.plan
        self.before.created(contact_id)
        self.rows.contact(
            (contact_id, plan.account_id, uuid7(now, contact_id), person.first_name, person.last_name, person.source,
             person.country_code, person.data or "{}", person.tracking or "full", now, now)
        )  # fmt: skip
        wanted = plan.opt_in
        self.rows.channel(
            (plan.account_id, contact_id, "email", person.value, person.key, wanted, now if person.verified else None,
             now if wanted else None, None, None, None, now, now)
        )  # fmt: skip
        if wanted:
            hashed = self.known.hash_of(("email", person.key))
            self.rows.consent(contact_id, "email", hashed, "opt_in", "operator", self._note)
        self.rows.event(contact_id, "contact_add", self._added if person.source is None else self._add(person.source))
        names = f"{person.first_name or ''} {person.last_name or ''}".strip()
        self.rows.words_of((contact_id, names, person.value, ""))
        self._say(Outcome(person.line, CREATED, contact_id))
        return True

    def _add(self, source: str | None) -> str:
        return _encode({"source": source or "import", **self.plan.mark}).decode()

    def _say(self, outcome: Outcome) -> Outcome:
        self.outcomes.append(outcome)
        if outcome.contact_id is not None and outcome.result != SKIPPED:
            self._joining.append((outcome, len(self.outcomes) - 1))
        return outcome

    def _person(self, person: Person) -> Outcome:
        have = self.known.channels.get((person.kind, person.key))
        phone = self.known.channels.get(("phone", person.phone)) if person.phone else None
        contact_id = have.contact_id if have else None
        if phone is not None and phone.contact_id != contact_id:
            # A phone alone tells a person only where no other address contradicts it
            if contact_id is not None or self.known.has_email(phone.contact_id):
                return self._say(Outcome(person.line, FAILED, None, "phone has already been taken"))
            contact_id = phone.contact_id
        if contact_id is None:
            return self._new(person)
        if self.plan.skip:
            return self._say(Outcome(person.line, SKIPPED, contact_id, _EXISTS))
        self._merge(contact_id, person)
        kept = self._addresses(contact_id, person)
        return self._say(Outcome(person.line, UPDATED, contact_id, None, kept))

    def _new(self, person: Person) -> Outcome:
        contact_id = self.known.next_id()
        self.before.created(contact_id)
        self.known.contacts[contact_id] = Line(
            person.first_name, person.last_name, person.source, person.country_code or person.phone_country,
            person.tracking or "full", person.data or "{}", True,
        )  # fmt: skip
        self._changed.add(contact_id)
        kept = self._addresses(contact_id, person)
        return self._say(Outcome(person.line, CREATED, contact_id, None, kept))

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

    def _addresses(self, contact_id: int, person: Person) -> list[str]:
        kept = []
        if self._address(contact_id, (person.kind, person.key), person.value, person.state, person.verified):
            kept.append(person.value)
        if person.phone and self._address(contact_id, ("phone", person.phone), person.phone, person.phone_state, 0):
            kept.append(person.phone)
        return kept

    def _address(self, contact_id: int, key: tuple[str, str], value: str, state: str | None, verified: int) -> bool:
        """Bring one address to where the file and the rules put it; answers whether an opt-out was kept."""
        have = self.known.channels.get(key)
        hashed = self.known.hash_of(key)
        if have is None:
            have = self.known.fresh(contact_id, key, value)
            self.known.add(key, have)
        if state in rules.SUPPRESSING and state not in self.known.reasons(key[0], hashed):
            self._suppress(contact_id, key, hashed, value, state)
        standing = have.standing._replace(suppression=rules.gravest(self.known.reasons(key[0], hashed)))
        done = rules.outcome(self.now, standing, state, self.plan.opt_in)
        if done.act is not None:
            self.rows.consent(contact_id, key[0], hashed, done.act, done.by, self._note)
        if done.act == "opt_in" and (key[0], hashed) in self.known.opt_outs:
            by, when = self.known.opt_outs.pop((key[0], hashed))
            self.rows.forget((self.plan.account_id, key[0], hashed))
            self.before.forgot(key[0], hashed, by, when)
        verified_at = have.verified_at or (self.now if verified else None)
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
            words = [(kind, have.value) for (kind, _), have in addresses]
            self.rows.words_of(search.entry(contact_id, (line.first_name, line.last_name), words))

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

    def _lists(self) -> None:
        for list_id in self.plan.list_ids:
            name, members, refused = self.known.of_list(list_id, [one.contact_id for one, _ in self._joining])
            if name is None:
                continue
            joining: dict[int, None] = {}
            for outcome, place in self._joining:
                assert outcome.contact_id is not None
                if outcome.contact_id in refused:
                    said = self.outcomes[place]
                    self.outcomes[place] = said._replace(kept=[*said.kept, f"list:{list_id}"])
                elif outcome.contact_id not in members:
                    joining[outcome.contact_id] = None
            if joining:
                self.rows.join(list_id, name, list(joining), self.plan.mark)
                self.before.joined(list_id, list(joining))
