"""What filters are read and compiled in: whose people, which clock, and where the filter stands."""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from appliance.core.errors import Faults


class Place(Enum):
    """Where a filter stands: some names are known only in some places."""

    SEGMENT = "segment"
    SPLIT = "split"  # a flow's branch: the triggering event is known
    WHERE = "where"  # of an event leaf: only `event.<path>`


class Scope(NamedTuple):
    """Whose people filters are about, and what ids mean there.

    `exists(kind, id)` is asked for ids of lists, flows and campaigns when filters are written; stored filters outlive
    what they name and are read without it. `segment(id)` answers the nodes of a segment, or None. In a flow's branch,
    `document` is the SQL of the triggering event's data and `start` that of the moment the run began: parameters of
    one run, or columns where many are asked about at once.
    """

    account_id: int
    zone: str
    now: int
    place: Place = Place.SEGMENT
    exists: Callable[[str, int], bool] | None = None
    segment: Callable[[int], "list[Any] | None"] = lambda number: None
    document: str = ":event_data"
    start: str = ":flow_start"


class Compiled(NamedTuple):
    """A condition over the contact alias `c`, with its named parameters."""

    sql: str
    parameters: dict[str, Any]


class Binder:
    """Hands out parameter names that share a prefix, so that compiled parts can stand in one statement."""

    def __init__(self, prefix: str, scope: Scope) -> None:
        self.prefix = prefix
        self.scope = scope
        self.values: dict[str, Any] = {}

    def add(self, value: Any) -> str:
        """Keep a value and answer the placeholder for it."""
        name = f"{self.prefix}{len(self.values)}"
        self.values[name] = value
        return f":{name}"


class Operand(NamedTuple):
    """What a predicate looks at, as SQL: the value, and what belongs to it where it has more than one face."""

    value: str
    type: str = ""  # of a JSON value: the SQL that answers json_type
    each: str = ""  # of a JSON value: the table of what is in it
    whole: str = ""  # of an address: the column with its one normal form


class Asked:
    """One value being read: where it stands, and what is wrong with it."""

    def __init__(self, scope: Scope, faults: Faults, path: str, field: Any) -> None:
        self.scope = scope
        self.faults = faults
        self.path = path
        self.field = field

    def fault(self, message: str, below: str = "") -> None:
        """Note what is wrong, here or below here; returns None, the value that is then used."""
        self.faults.add(self.path + below, message)
