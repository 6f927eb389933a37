"""The report of a flow: its runs, visits of steps and messages, counted from the rows.

Tests are not counted. All numbers are read from one snapshot. The counts of large flows are cached for `_CACHE_FACTOR`
times as long as counting took, so that many readers cost no more than one.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

from msgspec import Meta, Struct

from appliance.core import clock, i18n
from appliance.core.i18n import gettext
from appliance.flows import document, holdouts, jumps, split_results, split_sample
from appliance.flows.holdouts import FlowHoldout
from appliance.flows.split_results import SplitTestResult
from appliance.flows.split_sample import SplitSample
from appliance.flows.steps import BY_TYPE
from appliance.sending.messages.ledger import FINAL_STATUSES, STATUSES
from appliance.storage.database import rows
from appliance.storage.models import Flow, Step
from appliance.storage.transactions import snapshot

# The Structs of the report. Each number of runs has the API path that lists these runs.

Range = Literal["all", "30d", "7d"]


class FlowStats(Struct):
    """The total numbers of runs and messages of a flow, without tests.

    `entered` is the sum of `active`, `completed` and `exited`; `audience` is the sum of `pending` and all final
    statuses.
    """

    entered: int
    active: Annotated[int, Meta(description="active runs")]
    completed: Annotated[int, Meta(description="completed runs")]
    exited: Annotated[int, Meta(description="runs that ended early")]
    audience: int
    pending: Annotated[int, Meta(description="not yet final: queued, held or sending")]
    sent: Annotated[int, Meta(description="accepted by the next hop, with no report since")]
    delivered: Annotated[int, Meta(description="reported as delivered")]
    bounced: int
    complained: Annotated[int, Meta(description="reported as spam")]
    failed: int
    skipped: Annotated[int, Meta(description="skipped, each for a reason")]
    cancelled: Annotated[int, Meta(description="cancelled before they were sent")]
    uncertain: Annotated[int, Meta(description="unconfirmed: it cannot be known whether the next hop accepted them")]
    accepted: int


class RunCount(Struct):
    """A number of runs, and the API path that lists them."""

    count: int
    people: str


class ReasonCount(Struct):
    """The number of runs with one reason, and the API path that lists them."""

    reason: Annotated[str, Meta(description="reason; null if none was given")] | None
    count: int
    people: str


class NumberByReason(Struct):
    """A number of runs, the API path that lists them, and the numbers by reason."""

    count: int
    people: str
    reasons: Annotated[list[ReasonCount], Meta(description="reasons, most frequent first")]


class RunFigures(Struct):
    """The runs of a flow by status. `ignored` counts events that triggered the flow but started no run.

    `entered` is the sum of `active`, `completed` and `exited`.
    """

    entered: RunCount
    active: Annotated[RunCount, Meta(description="active runs")]
    completed: Annotated[NumberByReason, Meta(description="completed runs")]
    exited: Annotated[NumberByReason, Meta(description="runs that ended early")]
    ignored: Annotated[NumberByReason, Meta(description="triggers that started no run")]


class BranchFigures(Struct):
    """The visits of a step that continued with one of its branches."""

    key: Annotated[str, Meta(description="key of the branch, which is also the outcome of its visits")]
    label: Annotated[str, Meta(description="label of the branch")]
    count: int
    people: str


class MessageFigures(Struct):
    """The messages of a step: their statuses in the ledger, opens, clicks, and the reasons of skipped ones."""

    audience: RunCount
    pending: Annotated[RunCount, Meta(description="not yet final: queued, held or sending")]
    accepted: RunCount
    opened: Annotated[RunCount, Meta(description="number of people who opened")]
    clicked: Annotated[RunCount, Meta(description="number of people who clicked a link")]
    skipped: Annotated[NumberByReason, Meta(description="skipped messages, by reason")]
    terms: Annotated[dict[str, int], Meta(description="terms of the ledger for these messages")]


class StepFigures(Struct):
    """The visits of a step: `entered` is the sum of `waiting`, `went_on` and `left`.

    `went_on` includes `skipped`; `branches` are its parts by branch, and `yes` and `no` two of them.
    `waiting_now` also counts contacts who entered before the period. Steps that were removed from the flow are included
    if contacts visited them.
    """

    id: Annotated[int, Meta(description="id of the step")]
    type: Annotated[str, Meta(description="type of the step")]
    summary: Annotated[str, Meta(description="description of the step")]
    path: Annotated[str, Meta(description="path of the step in the flow; null if it was removed")] | None
    removed: Annotated[bool, Meta(description="whether the step was removed but has contacts, or had some")]
    entered: RunCount
    waiting: Annotated[RunCount, Meta(description="entered contacts that wait at the step")]
    waiting_now: Annotated[RunCount, Meta(description="all contacts that wait at the step, whenever they entered")]
    went_on: Annotated[RunCount, Meta(description="contacts that continued")]
    yes: (
        Annotated[RunCount, Meta(description="contacts that continued with the `yes` branch; null without branches")]
        | None
    )
    no: (
        Annotated[RunCount, Meta(description="contacts that continued with the `no` branch; null without branches")]
        | None
    )
    branches: Annotated[list[BranchFigures], Meta(description="contacts that continued, by branch")]
    skipped: Annotated[NumberByReason, Meta(description="contacts for which the step was skipped")]
    left: Annotated[NumberByReason, Meta(description="contacts that exited the flow at the step")]
    messages: Annotated[MessageFigures, Meta(description="messages sent by the step; null if it sends none")] | None
    test: (
        Annotated[SplitTestResult, Meta(description="the test of a `random_split`, of all time; null without one")]
        | None
    ) = None
    sample_size: (
        Annotated[
            SplitSample, Meta(description="what the test of a `random_split` needs, also before it is live; else null")
        ]
        | None
    ) = None


class FlowReport(Struct):
    """The report of a flow; all figures are from the same moment.

    `runs` counts runs that started in the period, and each step counts contacts who entered it in the period.
    """

    flow_id: Annotated[int, Meta(description="id of the flow")]
    range: Annotated[Range, Meta(description="period of the report, in days")]
    since: Annotated[str, Meta(description="start of the period; null for all time")] | None
    stats: Annotated[FlowStats, Meta(description="runs and messages of all time")]
    runs: Annotated[RunFigures, Meta(description="results of the runs that started in the period")]
    steps: Annotated[list[StepFigures], Meta(description="results by step, in the order of the flow")]
    holdout: Annotated[FlowHoldout, Meta(description="the effect of the flow; null without a holdout group")] | None


T = TypeVar("T")

_RANGE_DAYS = {"30d": 30, "7d": 7}
# The outcomes of visits that are not branches.
_PLAIN_OUTCOMES = (None, "on", "jumped", "skipped", "exited")
_CACHE_MIN_PEOPLE, _CACHE_FACTOR, _MAX_CACHED_COUNTS = 5_000, 20, 100
_OPEN_STATUSES, _ACCEPTED_STATUSES = ("queued", "held", "sending"), ("sent", "delivered", "bounced", "complained")
_COUNT_LEDGER = (
    "SELECT flow_id, status, count(*) FROM message INDEXED BY message_of_flow WHERE run_id IS NOT NULL "
    "AND test = 0 AND flow_id IN (SELECT value FROM json_each(?)) GROUP BY 1, 2"
)
_COUNT_RUNS = (
    "SELECT status, exit_reason, count(*) FROM run INDEXED BY run_ended WHERE flow_id = ? "
    "AND status IN ('live', 'completed', 'exited', 'ignored') AND test = 0 AND created_at >= ? GROUP BY 1, 2"
)
_COUNT_VISITS = (
    "SELECT action_id, outcome, reason, count(*), count(*) FILTER (WHERE entered_at >= ?) FROM step_visit "
    "WHERE flow_id = ? AND test = 0 GROUP BY 1, 2, 3"
)
_COUNT_MESSAGES = (
    "SELECT step_id, status, skip_reason, count(*), count(opened_at), count(clicked_at) FROM message "
    "INDEXED BY message_of_flow WHERE run_id IS NOT NULL AND flow_id = ? AND test = 0 AND created_at >= ? "
    "GROUP BY 1, 2, 3"
)


class _CountCache:
    """Cached counts of large flows by key: (monotonic time after counting, duration in seconds, result)."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[Any, tuple[float, float, Any]] = {}

    def get_or_count(self, key: Any, people: int, count: Callable[[], T]) -> T:
        """Return the result of `count`, from the cache if possible.

        A cached result is used for `_CACHE_FACTOR` times as long as counting it took. With fewer than
        `_CACHE_MIN_PEOPLE` contacts (`people`), nothing is cached.
        """
        if people < _CACHE_MIN_PEOPLE:
            return count()
        started = time.monotonic()
        with self.lock:
            cached = self.entries.get(key)
        if cached is not None and started - cached[0] < _CACHE_FACTOR * cached[1]:
            return cached[2]  # type: ignore[no-any-return]  # the result that was cached under the key
        value = count()
        ended = time.monotonic()
        with self.lock:
            if len(self.entries) >= _MAX_CACHED_COUNTS:
                self.entries.clear()
            self.entries[key] = ended, ended - started, value
        return value


_count_cache = _CountCache()


def load_stats(flows: Sequence[Flow]) -> dict[int, FlowStats]:
    """Return the statistics of flows by id: runs from the flows' counters, messages from the ledger or its cache."""
    ids = sorted(flow.id for flow in flows)
    entered_count = sum(flow.entered_count for flow in flows)
    ledger = _count_cache.get_or_count(("stats", *ids), entered_count, lambda: _count_ledger(ids))
    return {flow.id: _build_stats(flow, ledger.get(flow.id, {})) for flow in flows}


def _count_ledger(ids: list[int]) -> dict[int, dict[str, int]]:
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for flow_id, status, count in rows(_COUNT_LEDGER, (json.dumps(ids),)) if ids else ():
        counts[flow_id][status] = count
    return dict(counts)


def _build_stats(flow: Flow, counts: dict[str, int]) -> FlowStats:
    terms = _sum_terms(counts)
    return FlowStats(
        entered=flow.entered_count, active=flow.entered_count - flow.completed_count - flow.exited_count,
        completed=flow.completed_count, exited=flow.exited_count,
        audience=sum(terms.values()), **terms, accepted=sum(terms[name] for name in _ACCEPTED_STATUSES),
    )  # fmt: skip


def _sum_terms(counts: dict[str, int]) -> dict[str, int]:
    return {
        "pending": sum(counts.get(name, 0) for name in _OPEN_STATUSES),
        **{name: counts.get(name, 0) for name in FINAL_STATUSES},
    }


def build_report(flow: Flow, range_name: Range = "all") -> FlowReport:
    """Return the report of a flow for a period, possibly from the cache if the flow is large."""
    with snapshot():
        current = Flow.get_by_id(flow.id)
        # The summaries of steps are in the language of the request.
        key = ("report", flow.id, current.updated_at, range_name, i18n.get_language())
        return _count_cache.get_or_count(key, current.entered_count, lambda: _count_report(current, range_name))


def _count_report(flow: Flow, range_name: Range) -> FlowReport:
    since = clock.now_ms() - _RANGE_DAYS[range_name] * clock.DAY_MS if range_name in _RANGE_DAYS else 0
    paths = _Paths(flow.id, since)
    return FlowReport(
        flow_id=flow.id, range=range_name, since=clock.iso(since) if since else None, stats=load_stats([flow])[flow.id],
        runs=_count_runs(flow, since, paths), steps=list(_count_steps(flow, since, paths)),
        holdout=holdouts.measure(flow),
    )  # fmt: skip


class _Paths(NamedTuple):
    """Builds the numbers of a report, each with the API path that lists its runs.

    `since` is the start of the period in Unix milliseconds, 0 for all time.
    """

    flow_id: int
    since: int

    def number(self, count: int, **chosen: Any) -> RunCount:
        """Return a number with its path; `chosen` are the filters of `RunQuery` in the path."""
        return RunCount(count, self._build_path(chosen))

    def number_by_reason(self, counts: dict[str | None, int], **chosen: Any) -> NumberByReason:
        """Return the sum of `counts`, and each count by its reason, the largest first, all with their paths."""
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0] or ""))
        return NumberByReason(
            sum(counts.values()), self._build_path(chosen),
            [ReasonCount(name, count, self._build_path({**chosen, "reason": name or ""}))
             for name, count in order if count],
        )  # fmt: skip

    def _build_path(self, chosen: dict[str, Any]) -> str:
        since = {"since": clock.iso(self.since)} if self.since else {}
        return f"/v1/my/flows/{self.flow_id}/runs?{urlencode({**chosen, 'test': 'false', **since})}"


def _count_runs(flow: Flow, since: int, paths: _Paths) -> RunFigures:
    counts: dict[str, dict[str | None, int]] = defaultdict(dict)
    for status, reason, count in rows(_COUNT_RUNS, (flow.id, since)):
        counts[status][reason] = count
    active = sum(counts["live"].values())
    entered = active + sum(counts["completed"].values()) + sum(counts["exited"].values())
    return RunFigures(
        paths.number(entered), paths.number(active, status="live"),
        *(paths.number_by_reason(counts[name], status=name) for name in ("completed", "exited", "ignored")),
    )  # fmt: skip


class _MessageCount(NamedTuple):
    """The number of messages of a step with one status and skip reason, and of those opened and clicked."""

    status: str
    reason: str | None
    number: int
    opened: int
    clicked: int


# The number of visits in all, and of those in the period, by outcome (None: still in the step) and reason
_VisitCounts = dict[tuple[str | None, str | None], tuple[int, int]]


def _count_steps(flow: Flow, since: int, paths: _Paths) -> Iterator[StepFigures]:
    """Yield the figures of each step in document order, then of each removed step that contacts visited."""
    visits: dict[int, _VisitCounts] = defaultdict(dict)
    for action_id, outcome, reason, total, in_range in rows(_COUNT_VISITS, (since, flow.id)):
        visits[action_id][outcome, reason] = (total, int(in_range))
    messages: dict[int, list[_MessageCount]] = defaultdict(list)
    for action_id, *figures in rows(_COUNT_MESSAGES, (flow.id, since)):
        messages[action_id].append(_MessageCount._make(figures))
    current = list(document.walk(jumps.link_targets(flow.steps)))
    former = sorted((visits.keys() | messages.keys()) - {step["id"] for _, step in current})
    for path, step in [*current, *((None, step) for step in _load_former_steps(flow.id, former))]:
        step_id, sentence = step["id"], summarize_step(flow.account_id, step)
        yield _build_step_figures(step, sentence, path, visits.get(step_id, {}), messages.get(step_id, []), paths, flow)


def summarize_step(account_id: int, step: dict[str, Any]) -> str:
    """Return a short text that says what a step does. A step that sends must have its content."""
    kind = BY_TYPE.get(step["type"])
    return kind.summary(step, account_id) if kind is not None else step["type"]


def _load_former_steps(flow_id: int, ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield removed steps, each as in the last version that contains it."""
    for step_id in ids:
        row = Step.select().where(Step.flow == flow_id, Step.action_id == step_id).order_by(Step.version.desc()).first()
        if row is not None:
            yield {**row.data, "id": step_id, "type": row.kind}


def _build_step_figures(
    step: dict[str, Any], sentence: str, path: str | None, visits: _VisitCounts,
    messages: list[_MessageCount], paths: _Paths, flow: Flow,
) -> StepFigures:  # fmt: skip
    step_id = step["id"]
    counts: dict[str | None, dict[str | None, int]] = defaultdict(dict)
    for (outcome, reason), (_, in_range) in visits.items():
        if in_range:
            counts[outcome][reason] = in_range
    sums = {outcome: sum(reasons.values()) for outcome, reasons in counts.items()}
    went_on = sum(count for outcome, count in sums.items() if outcome not in (None, "exited"))
    branches = [
        BranchFigures(key, label, number.count, number.people)
        for key, label in _list_branches(step, sums)
        for number in (paths.number(sums.get(key, 0), step=step_id, outcome=key),)
    ]
    yes, no = (
        next((RunCount(branch.count, branch.people) for branch in branches if branch.key == key), None)
        for key in ("yes", "no")
    )
    waiting_now = sum(total for (outcome, _), (total, _) in visits.items() if outcome is None)
    return StepFigures(
        id=step_id, type=step["type"], summary=sentence, path=path, removed=path is None,
        entered=paths.number(sum(sums.values()), step=step_id),
        waiting=paths.number(sums.get(None, 0), step=step_id, outcome="waiting"),
        waiting_now=paths._replace(since=0).number(waiting_now, step=step_id, outcome="waiting"),
        went_on=paths.number(went_on, step=step_id, outcome="went_on"), yes=yes, no=no, branches=branches,
        skipped=paths.number_by_reason(counts["skipped"], step=step_id, outcome="skipped"),
        left=paths.number_by_reason(counts["exited"], step=step_id, outcome="exited"),
        test=split_results.get_result(flow.id, step) if path is not None else None,
        sample_size=split_sample.estimate(flow.account_id, flow.id, step) if path is not None else None,
        messages=(
            _build_message_figures(step_id, messages, paths) if messages or step["type"] in ("email", "sms") else None
        ),
    )  # fmt: skip


def _list_branches(step: dict[str, Any], sums: dict[str | None, int]) -> list[tuple[str, str]]:
    """Return (key, label) of the current branches of a step, and of removed ones that contacts took."""
    kind = BY_TYPE.get(step["type"])
    current = kind.list_outcomes(step) if kind is not None else {}
    former = sorted({outcome for outcome in sums if outcome not in _PLAIN_OUTCOMES} - current.keys(), key=str)
    return [*current.items(), *((str(key), gettext("removed branch")) for key in former)]


def _build_message_figures(step_id: int, messages: list[_MessageCount], paths: _Paths) -> MessageFigures:
    counts: dict[str, int] = dict.fromkeys(STATUSES, 0)
    skipped: dict[str | None, int] = defaultdict(int)
    for message in messages:
        counts[message.status] += message.number
        if message.status == "skipped":
            skipped[message.reason] += message.number
    terms = _sum_terms(counts)
    return MessageFigures(
        audience=paths.number(sum(terms.values()), step=step_id, message="any"),
        pending=paths.number(terms["pending"], step=step_id, message="pending"),
        accepted=paths.number(sum(terms[name] for name in _ACCEPTED_STATUSES), step=step_id, message="accepted"),
        opened=paths.number(sum(message.opened for message in messages), step=step_id, message="opened"),
        clicked=paths.number(sum(message.clicked for message in messages), step=step_id, message="clicked"),
        skipped=paths.number_by_reason(skipped, step=step_id, message="skipped"), terms=terms,
    )  # fmt: skip
