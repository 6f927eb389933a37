"""What a rehearsal sees: shadows of every table that a flow writes, holding the people it is about and nobody else."""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from appliance import clock, tokens
from appliance.db import work
from appliance.db.dialect.documents import among, each_of, entry_of
from appliance.db.dialect.texts import from_hex
from appliance.db.open import rows, run, scalar
from appliance.db.sandbox import ALL, NONE, Rows, shadowed
from appliance.flows import recorded
from appliance.flows.document import walk
from appliance.tables import Flow

# Versions that were never live; numbered over all rehearsals of this process, so that none is remembered for another
_versions = itertools.count((1 << 47) + 1, 2)

_PEOPLE = f"(SELECT value FROM {each_of(':people')})"
_NAMES = f"(SELECT value FROM {each_of(':names')})"
_OF_CAMPAIGNS = ("campaign_sent", "campaign_opened", "campaign_clicked")
_HASHES = f"(SELECT {entry_of('value', 0)}, {from_hex(entry_of('value', 1))} FROM {each_of(':hashes')})"


class Stage:
    """Whose rehearsal of which flow it is, and when it begins.

    `steps` are what is tried in place of its own, `addresses` (kind, key) those of people who are made up.
    """

    def __init__(
        self, flow: Flow, people: Sequence[int], start: int, steps: Sequence[dict[str, Any]] = (),
        addresses: Sequence[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        self.flow, self.people, self.start, self.steps, self.addresses = flow, people, start, steps, addresses
        self._templates = [
            step["template_id"] for _, step in [*walk(flow.steps), *walk(steps)] if step.get("template_id") is not None
        ]

    @contextmanager
    def open(self) -> Iterator[int]:
        """Let this thread write into the shadows, and believe that it is the moment of the start.

        Yields the number that a version of the flow may have which was never live.
        """
        with shadowed(self._tables()), clock.imagined(self.start):
            # A rehearsal with everything at rest would tell nothing
            work.write(run, "UPDATE account SET sending_stopped = 0")
            yield next(_versions)

    def _tables(self) -> dict[str, Rows]:
        own = rows(
            f"SELECT kind, key FROM channel WHERE contact_id IN {_PEOPLE}", {"people": json.dumps([*self.people])}
        )
        hashes = [(kind, tokens.address_hash(kind, key).hex()) for kind, key in [*own, *self.addresses]]
        asked = self._asked()
        values = {
            "account": self.flow.account_id, "flow": self.flow.id, "version": self.flow.version,
            "names": json.dumps(sorted({*recorded.asked_for(asked), *self._started_by()})),
            "sent_since": self._sent_since(asked), "people": json.dumps([*self.people]),
            "start": self.start, "hashes": json.dumps(hashes), "templates": json.dumps(self._templates),
        }  # fmt: skip

        def some(where: str) -> Rows:
            return Rows(where, {name: value for name, value in values.items() if f":{name}" in where})

        of_people, of_flow = some(f"contact_id IN {_PEOPLE}"), some("flow_id = :flow")
        by_address = some(f"account_id = :account AND (kind, address_hash) IN {_HASHES}")
        templates = f"flow_id = :flow OR id {among(':templates')}"
        return {
            "account": some("id = :account"),
            "contact": some(f"id IN {_PEOPLE}"), "channel": of_people, "consent": of_people, "membership": of_people,
            "list_refusal": of_people, "contact_list": some("account_id = :account"), "contact_search": NONE,
            "opt_out": by_address, "suppression": by_address,
            # What happened after the start has not happened yet, and what nobody asks for is not looked at
            "event": some(f"contact_id IN {_PEOPLE} AND created_at <= :start AND event IN {_NAMES}"),
            "flow": some("id = :flow"), "trigger": of_flow, "cursor": ALL, "passage": NONE,
            "step": some("flow_id = :flow AND version = :version"),
            # Who is inside now is not inside in the rehearsal, or could not come in
            "run": some(f"contact_id IN {_PEOPLE} AND (flow_id <> :flow OR status <> 'live')"),
            # Of what waits to be sent the rehearsal knows nothing, or it would send it
            "message": some(
                f"contact_id IN {_PEOPLE} AND status NOT IN ('queued', 'held', 'sending') AND sent_at >= :sent_since"
            ),
            "message_content": NONE, "repeat": NONE, "hit": NONE, "returned": NONE, "told": NONE, "warm_up_day": ALL,
            "sms_day": ALL, "receipt": NONE, "incoming": NONE,
            "link": some("account_id = :account AND campaign_id IS NULL"),
            "template": some(f"account_id = :account AND ({templates})"),
            "template_revision": some(
                "id IN (SELECT content_id FROM main.step WHERE flow_id = :flow AND version = :version) OR "
                f"(template_id, number) IN (SELECT id, revision FROM main.template WHERE {templates})"
            ),
        }  # fmt: skip

    def _asked(self) -> list[Any]:
        """Return whatever may ask for what people did: steps, trigger, designs, and segments that those may name."""
        here = {"account": self.flow.account_id, "flow": self.flow.id}
        found = rows("SELECT data FROM trigger WHERE flow_id = :flow UNION ALL SELECT filters FROM segment "
                     "WHERE account_id = :account UNION ALL SELECT design FROM template WHERE flow_id = :flow",
                     here)  # fmt: skip
        return [self.flow.steps, *self.steps, *(json.loads(text) for (text,) in found)]

    def _started_by(self) -> list[str]:
        return [name for (name,) in rows("SELECT event FROM trigger WHERE flow_id = ?", (self.flow.id,))]

    def _sent_since(self, asked: list[Any]) -> int:
        """Return since when messages that were sent matter: for filters of campaigns, or for the frequency cap."""
        if any(name in json.dumps(asked) for name in _OF_CAMPAIGNS):
            return 0
        cap = scalar("SELECT frequency_cap FROM account WHERE id = ?", (self.flow.account_id,))
        return self.start - int(json.loads(cap)["days"]) * 86_400_000 if cap else self.start
