"""What became of the people of a flow, counted from the rows themselves: runs, the steps they came to, messages.

Tests are counted nowhere. All numbers are of one moment. Those of a large flow take a while: they are counted again
only after a rest of some twenty times what that took, so that many who look cost no more than one.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from appliance.core import clock
from appliance.flows import document
from appliance.flows.steps import BY_TYPE
from appliance.sending.messages.ledger import FINAL, STATUSES
from appliance.storage.models import Flow, Step
from appliance.storage.open import rows
from appliance.storage.work import snapshot

# The shapes of what became of the people of a flow: numbers, each with the path to its people.

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


T = TypeVar("T")

_DAY_MS = 24 * 3600 * 1000
_DAYS = {"30d": 30, "7d": 7}
_LARGE, _RESTS, _MAX_KEPT = 5_000, 20, 100
_OPEN, _ACCEPTED = ("queued", "held", "sending"), ("sent", "delivered", "bounced", "complained")
_LEDGER = (
    "SELECT flow_id, status, count(*) FROM message INDEXED BY message_of_flow WHERE run_id IS NOT NULL "
    "AND test = 0 AND flow_id IN (SELECT value FROM json_each(?)) GROUP BY 1, 2"
)
_RUNS = (
    "SELECT status, exit_reason, count(*) FROM run INDEXED BY run_ended WHERE flow_id = ? "
    "AND status IN ('live', 'completed', 'exited', 'ignored') AND test = 0 AND created_at >= ? GROUP BY 1, 2"
)
_PASSAGES = (
    "SELECT action_id, outcome, reason, count(*), count(*) FILTER (WHERE entered_at >= ?) FROM passage "
    "WHERE flow_id = ? AND test = 0 GROUP BY 1, 2, 3"
)
_MESSAGES = (
    "SELECT step_id, status, skip_reason, count(*), count(opened_at), count(clicked_at) FROM message "
    "INDEXED BY message_of_flow WHERE run_id IS NOT NULL AND flow_id = ? AND test = 0 AND created_at >= ? "
    "GROUP BY 1, 2, 3"
)


class _Memory:
    """What was counted of large flows: when, how long that took, and what came of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: dict[Any, tuple[float, float, Any]] = {}

    def rested(self, key: Any, people: int, count: Callable[[], T]) -> T:
        """Count anew; of many people not again right after that took its time."""
        if people < _LARGE:
            return count()
        begun = time.monotonic()
        with self.lock:
            known = self.known.get(key)
        if known is not None and begun - known[0] < _RESTS * known[1]:
            return known[2]  # type: ignore[no-any-return]  # what was kept under the key
        made = count()
        ended = time.monotonic()
        with self.lock:
            if len(self.known) >= _MAX_KEPT:
                self.known.clear()
            self.known[key] = ended, ended - begun, made
        return made


_memory = _Memory()


def stats(flows: Sequence[Flow]) -> dict[int, FlowStats]:
    """Return what some flows have done ever: their runs as they count them, and the ledger of their messages."""
    ids = sorted(flow.id for flow in flows)
    people = sum(flow.entered_count for flow in flows)
    ledger = _memory.rested(("stats", *ids), people, lambda: _ledger(ids))
    return {flow.id: _stats(flow, ledger.get(flow.id, {})) for flow in flows}


def _ledger(ids: list[int]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for flow_id, status, count in rows(_LEDGER, (json.dumps(ids),)) if ids else ():
        found[flow_id][status] = count
    return dict(found)


def _stats(flow: Flow, counted: dict[str, int]) -> FlowStats:
    terms = _terms(counted)
    return FlowStats(
        entered=flow.entered_count, active=flow.entered_count - flow.completed_count - flow.exited_count,
        completed=flow.completed_count, exited=flow.exited_count,
        audience=sum(terms.values()), **terms, accepted=sum(terms[name] for name in _ACCEPTED),
    )  # fmt: skip


def _terms(counted: dict[str, int]) -> dict[str, int]:
    return {"pending": sum(counted.get(name, 0) for name in _OPEN), **{name: counted.get(name, 0) for name in FINAL}}


def of(flow: Flow, span: Range = "all") -> FlowReport:
    """Report what became of the people of a flow, or of those who came to it, and to each step, lately."""
    with snapshot():
        fresh = Flow.get_by_id(flow.id)
        key = ("report", flow.id, fresh.updated_at, span)
        return _memory.rested(key, fresh.entered_count, lambda: _of(fresh, span))


def _of(flow: Flow, span: Range) -> FlowReport:
    since = clock.now_ms() - _DAYS[span] * _DAY_MS if span in _DAYS else 0
    paths = _Paths(flow.id, since)
    return FlowReport(
        flow_id=flow.id, range=span, since=clock.iso(since) if since else None, stats=stats([flow])[flow.id],
        runs=_runs(flow, since, paths), steps=list(_steps(flow, since, paths)),
    )  # fmt: skip


class _Paths(NamedTuple):
    """Where the people behind numbers are listed."""

    flow_id: int
    since: int

    def number(self, count: int, **chosen: Any) -> Number:
        """Return a number with the path to its people."""
        return Number(count, self._to(chosen))

    def reasoned(self, counts: dict[str | None, int], **chosen: Any) -> Reasoned:
        """Return the sum of some numbers with each of them, the largest first."""
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0] or ""))
        return Reasoned(
            sum(counts.values()), self._to(chosen),
            [ReasonCount(name, count, self._to({**chosen, "reason": name or ""})) for name, count in order if count],
        )  # fmt: skip

    def _to(self, chosen: dict[str, Any]) -> str:
        since = {"since": clock.iso(self.since)} if self.since else {}
        return f"/v1/my/flows/{self.flow_id}/runs?{urlencode({**chosen, 'test': 'false', **since})}"


def _runs(flow: Flow, since: int, paths: _Paths) -> RunFigures:
    found: dict[str, dict[str | None, int]] = defaultdict(dict)
    for status, reason, count in rows(_RUNS, (flow.id, since)):
        found[status][reason] = count
    active = sum(found["live"].values())
    entered = active + sum(found["completed"].values()) + sum(found["exited"].values())
    return RunFigures(
        paths.number(entered), paths.number(active, status="live"),
        *(paths.reasoned(found[name], status=name) for name in ("completed", "exited", "ignored")),
    )  # fmt: skip


class _Messages(NamedTuple):
    """Messages of a step of one status and reason."""

    status: str
    reason: str | None
    number: int
    opened: int
    clicked: int


# By outcome and reason: how many ever, and how many of those that count now
_Came = dict[tuple[str | None, str | None], tuple[int, int]]


def _steps(flow: Flow, since: int, paths: _Paths) -> Iterator[StepFigures]:
    """Count each step of the document in its order, then those that it has no more."""
    came: dict[int, _Came] = defaultdict(dict)
    for action_id, outcome, reason, ever, lately in rows(_PASSAGES, (since, flow.id)):
        came[action_id][outcome, reason] = (ever, int(lately))
    sent: dict[int, list[_Messages]] = defaultdict(list)
    for action_id, *figures in rows(_MESSAGES, (flow.id, since)):
        sent[action_id].append(_Messages._make(figures))
    placed = list(document.walk(flow.steps))
    former = sorted((came.keys() | sent.keys()) - {step["id"] for _, step in placed})
    for path, step in [*placed, *((None, step) for step in _former(flow.id, former))]:
        number, words = step["id"], summary(flow.account_id, step)
        yield _step(step, words, path, came.get(number, {}), sent.get(number, []), paths)


def summary(account_id: int, step: dict[str, Any]) -> str:
    """Say in a sentence what a step does."""
    kind = BY_TYPE.get(step["type"])
    return kind.summary(step, account_id) if kind is not None else step["type"]


def _former(flow_id: int, ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Return steps as the last version that had them went live."""
    for number in ids:
        row = Step.select().where(Step.flow == flow_id, Step.action_id == number).order_by(Step.version.desc()).first()
        if row is not None:
            yield {**row.data, "id": number, "type": row.kind}


def _step(
    step: dict[str, Any], words: str, path: str | None, came: _Came,
    sent: list[_Messages], paths: _Paths,
) -> StepFigures:  # fmt: skip
    number = step["id"]
    counts: dict[str | None, dict[str | None, int]] = defaultdict(dict)
    for (outcome, reason), (_, lately) in came.items():
        if lately:
            counts[outcome][reason] = lately
    sums = {outcome: sum(reasons.values()) for outcome, reasons in counts.items()}
    on = sum(sums.get(outcome, 0) for outcome in ("on", "yes", "no", "skipped"))
    branches = BY_TYPE[step["type"]].branches if step["type"] in BY_TYPE else False
    yes, no = (
        paths.number(sums.get(way, 0), step=number, outcome=way) if branches or way in sums else None
        for way in ("yes", "no")
    )
    standing = sum(ever for (outcome, _), (ever, _) in came.items() if outcome is None)
    return StepFigures(
        id=number, type=step["type"], summary=words, path=path, removed=path is None,
        entered=paths.number(sum(sums.values()), step=number),
        waiting=paths.number(sums.get(None, 0), step=number, outcome="waiting"),
        waiting_now=paths._replace(since=0).number(standing, step=number, outcome="waiting"),
        went_on=paths.number(on, step=number, outcome="went_on"), yes=yes, no=no,
        skipped=paths.reasoned(counts["skipped"], step=number, outcome="skipped"),
        left=paths.reasoned(counts["exited"], step=number, outcome="exited"),
        messages=_sent(number, sent, paths) if sent or step["type"] in ("email", "sms") else None,
    )  # fmt: skip


def _sent(number: int, sent: list[_Messages], paths: _Paths) -> Sent:
    counted: dict[str, int] = dict.fromkeys(STATUSES, 0)
    skipped: dict[str | None, int] = defaultdict(int)
    for one in sent:
        counted[one.status] += one.number
        if one.status == "skipped":
            skipped[one.reason] += one.number
    terms = _terms(counted)
    return Sent(
        audience=paths.number(sum(terms.values()), step=number, message="any"),
        pending=paths.number(terms["pending"], step=number, message="pending"),
        accepted=paths.number(sum(terms[name] for name in _ACCEPTED), step=number, message="accepted"),
        opened=paths.number(sum(one.opened for one in sent), step=number, message="opened"),
        clicked=paths.number(sum(one.clicked for one in sent), step=number, message="clicked"),
        skipped=paths.reasoned(skipped, step=number, message="skipped"), terms=terms,
    )  # fmt: skip
