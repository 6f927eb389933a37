"""One transaction of an import of addresses that must not be written to."""

import msgspec

from appliance import clock
from appliance.importing import rules
from appliance.importing.bulk_insert import Made
from appliance.importing.chunk import CREATED, SKIPPED, Outcome, Plan
from appliance.importing.existing_contacts import Known, Memory
from appliance.importing.people import Person
from appliance.importing.undo_notes import Before
from appliance.importing.writing import Rows

_encode = msgspec.json.Encoder().encode
_BY = {"manual": "operator", "complaint": "recipient"}


class SuppressionChunk:
    """The work on some addresses, done when it is made (see `chunk.Chunk`)."""

    def __init__(
        self, plan: Plan, people: list[Person], made: Made | None = None, memory: Memory | None = None
    ) -> None:  # fmt: skip
        self.plan, self.now = plan, clock.now_ms() if made is None else made.at
        self.known = Known(plan.account_id, people, memory)
        self.rows = Rows(plan.account_id, plan.actor, plan.words, self.now)
        self.before = Before(self.now, made)
        self.outcomes = [self._person(person) for person in people]
        rows = zip(people, self.outcomes, strict=True)
        self.warned = sum(person.warnings is not None and one.result == CREATED for person, one in rows)
        if memory is None:
            self._channels()
            self.rows.flush()

    def _person(self, person: Person) -> Outcome:
        key, reason = (person.kind, person.key), person.suppression or "manual"
        hashed = self.known.hash_of(key)
        have = self.known.channels.get(key)
        contact_id = have.contact_id if have else None
        if reason in self.known.reasons(person.kind, hashed):
            return Outcome(person.line, SKIPPED, contact_id, "the address is suppressed for this reason already")
        self.known.suppress(person.kind, hashed, reason)
        self.before.suppressed(person.kind, hashed, reason)
        self.rows.suppression(
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
        self.rows.consent(contact_id, person.kind, hashed, "suppressed", _BY.get(reason, "service"), note)
        if have is not None:
            standing = have.standing._replace(suppression=rules.gravest(self.known.reasons(person.kind, hashed)))
            done = rules.outcome(self.now, standing, reason, False)
            if done.act is not None:
                self.rows.consent(contact_id, person.kind, hashed, done.act, done.by, note)
            have.change(done.standing, have.verified_at)
        elif reason == "complaint" and (person.kind, hashed) not in self.known.opt_outs:
            self.rows.remember((self.plan.account_id, person.kind, hashed, "recipient", self.now))
        return Outcome(person.line, CREATED, contact_id)

    def _channels(self) -> None:
        for have in self.known.touched():
            one = have.standing
            assert have.id is not None
            self.before.channel(have.id, have.original, have.verified_before, have.updated_at)
            self.rows.channel_update(
                (one.subscribed, one.opted_out_by, one.opt_out_at, one.opt_in_at, one.suppression, have.verified_at,
                 self.now, have.id)
            )  # fmt: skip
