"""What a rehearsal sees: shadows of every table that a flow writes, holding the people it is about and nobody else."""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from appliance import clock, tokens
from appliance.db.open import rows
from appliance.db.shadow import ALL, NONE, Rows, shadowed
from appliance.flows.document import walk
from appliance.tables import Flow

# Versions that were never live; numbered over all rehearsals of this process, so that none is remembered for another
_versions = itertools.count((1 << 47) + 1, 2)

_PEOPLE = "(SELECT value FROM json_each(:people))"
_HASHES = "(SELECT value ->> 0, unhex(value ->> 1) FROM json_each(:hashes))"


class Stage:
    """Whose rehearsal of which flow it is, and when it begins.

    `steps` are what is tried in place of its own, `addresses` (kind, key) those of people who are made up.
    """

    def __init__(
        self, flow: Flow, people: Sequence[int], start: int, steps: Sequence[dict[str, Any]] = (),
        addresses: Sequence[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        self.flow, self.people, self.start, self.addresses = flow, people, start, addresses
        self._templates = [
            step["template_id"] for _, step in [*walk(flow.steps), *walk(steps)] if step.get("template_id") is not None
        ]

    @contextmanager
    def open(self) -> Iterator[int]:
        """Let this thread write into the shadows, and believe that it is the moment of the start.

        Yields the number that a version of the flow may have which was never live.
        """
        with shadowed(self._tables()), clock.imagined(self.start):
            yield next(_versions)

    def _tables(self) -> dict[str, Rows]:
        own = rows(
            f"SELECT kind, key FROM channel WHERE contact_id IN {_PEOPLE}", {"people": json.dumps([*self.people])}
        )
        hashes = [(kind, tokens.address_hash(kind, key).hex()) for kind, key in [*own, *self.addresses]]
        values = {
            "account": self.flow.account_id, "flow": self.flow.id, "people": json.dumps([*self.people]),
            "start": self.start, "hashes": json.dumps(hashes), "templates": json.dumps(self._templates),
        }  # fmt: skip

        def some(where: str) -> Rows:
            return Rows(where, {name: value for name, value in values.items() if f":{name}" in where})

        of_people, of_flow = some(f"contact_id IN {_PEOPLE}"), some("flow_id = :flow")
        by_address = some(f"account_id = :account AND (kind, address_hash) IN {_HASHES}")
        templates = "flow_id = :flow OR id IN (SELECT value FROM json_each(:templates))"
        return {
            "contact": some(f"id IN {_PEOPLE}"), "channel": of_people, "consent": of_people, "membership": of_people,
            "list_refusal": of_people, "contact_list": some("account_id = :account"), "contact_search": NONE,
            "opt_out": by_address, "suppression": by_address,
            # What happened after the start has not happened yet
            "event": some(f"contact_id IN {_PEOPLE} AND created_at <= :start"),
            "flow": some("id = :flow"), "trigger": of_flow, "step": of_flow, "cursor": ALL, "passage": NONE,
            # Who is inside now is not inside in the rehearsal, or could not come in
            "run": some(f"contact_id IN {_PEOPLE} AND (flow_id <> :flow OR status <> 'live')"),
            # Of what waits to be sent the rehearsal knows nothing, or it would send it
            "message": some(f"contact_id IN {_PEOPLE} AND status NOT IN ('queued', 'held', 'sending')"),
            "message_content": NONE, "repeat": NONE, "hit": NONE, "returned": NONE, "told": NONE, "warm_up_day": ALL,
            "link": some("account_id = :account AND campaign_id IS NULL"),
            "template": some(f"account_id = :account AND ({templates})"),
            "template_revision": some(f"template_id IN (SELECT id FROM main.template WHERE {templates})"),
        }  # fmt: skip
