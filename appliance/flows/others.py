"""Which other flows would start by what happens in a rehearsal; they are named, and not followed."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from appliance.db.open import rows, scalar
from appliance.flows import matching
from appliance.flows.starting import MAX_CHAIN_DEPTH
from appliance.flows.triggers import MANUAL, Start

_LIVE = (
    "SELECT f.id, f.name, t.event, t.segment_id, t.contact_list_id, t.data FROM main.flow f "
    "JOIN main.trigger t ON t.flow_id = f.id WHERE f.account_id = ? AND f.id <> ? AND f.status = 'active' "
    f"AND f.hidden = 0 AND f.deleted_at IS NULL AND t.event <> '{MANUAL}' ORDER BY f.id"
)


class Other(NamedTuple):
    """A live flow, and the event that would start it."""

    flow_id: int
    name: str
    event: str


class Others:
    """Looks at the events of a rehearsal as they come."""

    def __init__(self, account_id: int, flow_id: int) -> None:
        self._account_id = account_id
        self._flows = [
            (row[0], row[1], Start(row[2], row[3], row[4], msgspec.json.decode(row[5])))
            for row in rows(_LIVE, (account_id, flow_id))
        ]
        self._seen = int(scalar("SELECT coalesce(max(id), 0) FROM event"))

    def started(self) -> Iterator[Other]:
        """Return the flows that what was recorded since the last time would start."""
        before, self._seen = self._seen, int(scalar("SELECT coalesce(max(id), 0) FROM event"))
        if not self._flows or self._seen == before:
            return
        new: dict[str, list[int]] = {}
        for number, name in rows(
            "SELECT id, event FROM event WHERE id > ? AND quiet = 0 AND chain_depth < ? ORDER BY id",
            (before, MAX_CHAIN_DEPTH),
        ):
            new.setdefault(name, []).append(number)
        for flow_id, name, start in self._flows:
            if start.event in new and matching.met(self._account_id, flow_id, start, new[start.event]):
                yield Other(flow_id, name, start.event)
