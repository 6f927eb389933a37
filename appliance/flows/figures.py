"""The shapes of what became of the people of a flow: numbers, each with the path to its people."""

from typing import Literal

from msgspec import Struct

Range = Literal["all", "30d", "7d"]


class FlowStats(Struct):
    """Runs and messages of a flow ever, without tests.

    Entered is active, completed and exited; audience is pending and every final status.
    """

    entered: int
    active: int
    completed: int
    exited: int
    audience: int
    pending: int
    sent: int
    delivered: int
    bounced: int
    complained: int
    failed: int
    skipped: int
    cancelled: int
    uncertain: int
    accepted: int


class Number(Struct):
    """A number of people, and the path that lists them."""

    count: int
    people: str


class ReasonCount(Struct):
    """How many for one reason; `reason` is null where none was given."""

    reason: str | None
    count: int
    people: str


class Reasoned(Struct):
    """A number of people, and why, the most frequent reason first."""

    count: int
    people: str
    reasons: list[ReasonCount]


class RunFigures(Struct):
    """Who came into a flow, and what became of them; `ignored` are triggers that started nothing.

    Entered is active, completed and exited.
    """

    entered: Number
    active: Number
    completed: Reasoned
    exited: Reasoned
    ignored: Reasoned


class Sent(Struct):
    """The messages of a step: the ledger's terms, who opened and clicked, and why some were not attempted."""

    audience: Number
    pending: Number
    accepted: Number
    opened: Number
    clicked: Number
    skipped: Reasoned
    terms: dict[str, int]


class StepFigures(Struct):
    """What became of those who came to a step: entered is waiting, went on and left.

    Who went on took a branch (`yes`, `no`: null where there is none) or was `skipped` by the step among others. Of
    those who came in another time `waiting_now` knows too. A step that is `removed` still has people, or had some.
    """

    id: int
    type: str
    summary: str
    path: str | None
    removed: bool
    entered: Number
    waiting: Number
    waiting_now: Number
    went_on: Number
    yes: Number | None
    no: Number | None
    skipped: Reasoned
    left: Reasoned
    messages: Sent | None


class FlowReport(Struct):
    """What became of the people of a flow, all of one moment; those who came to it, or to a step, `since` then."""

    flow_id: int
    range: Range
    since: str | None
    stats: FlowStats
    runs: RunFigures
    steps: list[StepFigures]
