"""Asks filters about many runs at once: who goes to Yes."""

import json
from collections.abc import Sequence
from typing import Any

from appliance.db.dialect.documents import among
from appliance.db.open import rows
from appliance.filters import compile, read
from appliance.filters.scope import Place, Scope
from appliance.flows.steps.kind import Going
from appliance.segments import people

_ASKED = f"SELECT r.id FROM run r JOIN contact c ON c.id = r.contact_id WHERE r.id {among(':runs')} AND ({{condition}})"


def scope(account_id: int) -> Scope:
    """Return what filters of a branch mean where many runs are asked about in one statement."""
    here = people.scope(account_id)
    return here._replace(place=Place.SPLIT, document="r.event_data", start="r.created_at")


def holding(account_id: int, filters: list[Any], goings: Sequence[Going]) -> set[int]:
    """Return the runs of those for whom filters hold now, in one statement: by the same SQL as a segment's."""
    here = scope(account_id)
    asked = compile.condition(read.filters(filters, here), here)
    values = {**asked.parameters, "runs": json.dumps([going.id for going in goings])}
    return {row[0] for row in rows(_ASKED.format(condition=asked.sql), values)}
