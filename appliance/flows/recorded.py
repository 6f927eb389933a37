"""What really happened to people after the moment at which a rehearsal begins, when that lies in the past."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from appliance.storage.open import fetch_one, rows, run
from appliance.storage.work import writing

_MAX_EVENTS = 1_000


class Came(NamedTuple):
    """A real event: when it came, which it is, and its name."""

    at: int
    id: int
    event: str


def coming(contact_id: int, flow_id: int, start: int) -> list[Came]:
    """Return what the person did or got after a moment, the oldest first: not what this flow did."""
    found = rows(
        "SELECT created_at, id, event FROM main.event WHERE contact_id = ? AND created_at > ? AND test = 0 "
        "AND (generated = 1 AND json_extract(data, '$.flow_id') = ?) IS NOT TRUE ORDER BY created_at, id LIMIT ?",
        (contact_id, start, flow_id, _MAX_EVENTS),
    )
    return [Came(*row) for row in found]


def again(came: Came) -> None:
    """Let a real event be there from now on, as one of the rehearsal."""
    writing()
    names = [row[1] for row in rows("SELECT * FROM pragma_table_info('event')") if row[1] != "id"]
    columns = ", ".join(names)
    run(f"INSERT INTO event ({columns}) SELECT {columns} FROM main.event WHERE id = ?", (came.id,))


def asked_for(steps: Sequence[Any]) -> Iterator[str]:
    """Return the events that filters of steps ask for, at any depth."""
    for part in steps:
        if isinstance(part, dict):
            name = part.get("event")
            if isinstance(name, str):
                yield name
            yield from asked_for(list(part.values()))
        elif isinstance(part, list):
            yield from asked_for(part)


def inside_now(contact_id: int, flow_id: int) -> bool:
    """Return whether somebody is really inside of a flow."""
    asked = "SELECT 1 FROM main.run WHERE contact_id = ? AND flow_id = ? AND status = 'live' AND test = 0"
    return fetch_one(asked, (contact_id, flow_id)) is not None
