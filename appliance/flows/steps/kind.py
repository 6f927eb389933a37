"""What a kind of step is, and the words in which it answers where a run goes on."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from appliance.core.errors import Faults


class Node(NamedTuple):
    """One step of a compiled plan; `next`, `yes` and `no` are ids of steps, None is the end of the flow.

    The way on after a branch stands in the branch's last step, so that nobody has to look for it.
    """

    id: int
    kind: str
    props: dict[str, Any]
    next: int | None
    yes: int | None = None
    no: int | None = None


class Going(Struct):
    """A run in hand; it stands at `action_id`, and has come in before if it has a `passage_id`."""

    id: int
    account_id: int
    flow_id: int
    version: int
    contact_id: int | None
    event_id: int | None
    event_data: dict[str, Any]
    chain_depth: int
    test: bool
    started_at: int
    action_id: int | None
    passage_id: int | None
    due_at: int


class Move(NamedTuple):
    """Where a run goes from a step: `on`, `yes`, `no`, `wait` until a moment (ms), or `exit`.

    `outcome` is what the passage keeps of it (on, yes, no, skipped, exited), `reason` why, where there is one.
    """

    to: str
    until: int = 0
    outcome: str = ""
    reason: str | None = None


ON = Move("on", outcome="on")
YES = Move("yes", outcome="yes")
NO = Move("no", outcome="no")


def wait(until: int) -> Move:
    """Return that a run stays where it is until a moment (ms)."""
    return Move("wait", until)


def skipped(reason: str) -> Move:
    """Return that a step did nothing, and the run goes on."""
    return Move("on", outcome="skipped", reason=reason)


def left(reason: str) -> Move:
    """Return that a run ends here before its time."""
    return Move("exit", outcome="exited", reason=reason)


class Here(NamedTuple):
    """What a step is run in: whose flow, and which moment it is (ms). Runs in hand are all of this flow and version."""

    account_id: int
    flow_id: int
    flow_name: str
    version: int
    now: int


class Field(NamedTuple):
    """One thing that a person sets about a step: for forms, and for `/flows/spec`."""

    name: str
    label: str
    type: str  # text, line, duration, filters, boolean, object, design, list, event
    required: bool = False
    help: str = ""


class Reading(NamedTuple):
    """Where a step is read: whose flow, at which path, with which faults so far."""

    account_id: int
    path: str
    faults: Faults

    def fault(self, key: str, message: str) -> None:
        """Note a fault of one key of this step (of the step itself if empty)."""
        self.faults.add(f"{self.path}.{key}" if key else self.path, message)


class Kind(ABC):
    """A kind of step. One file, and one line in the registry, make a new one."""

    type: ClassVar[str]
    label: ClassVar[str]
    icon: ClassVar[str]
    # Of the request form: any of these, set, says that a step without a `type` is of this kind. Empty: by `type` only
    claims: ClassVar[frozenset[str]] = frozenset()
    # All keys that it takes beside `id` and `type` (and `yes`, `no` where it branches)
    keys: ClassVar[frozenset[str]] = frozenset()
    branches: ClassVar[bool] = False
    # For how many runs it is done before somebody looks how long the writer has been kept. 0: it is quick for all
    at_once: ClassVar[int] = 0
    fields: ClassVar[tuple[Field, ...]] = ()

    @abstractmethod
    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Read what a step says into its stored form; notes every fault at its path."""

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the request keys that a stored step has set; sending them back changes nothing."""
        return dict(props)

    def lacks(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return what keeps a step from going live: (key, words)."""
        return []

    @abstractmethod
    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Do a step for runs that stand at it, in the running transaction; returns where each goes, in their order."""

    def simulate(self, node: Node, going: Going, move: Move, here: Here) -> dict[str, Any]:
        """Return what a rehearsal tells of a run at this step beside where it went: who decided, what was rendered."""
        return {}

    @abstractmethod
    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Say in a sentence what a step does."""
