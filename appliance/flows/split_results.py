"""The results of the branches of a random split, and the decision whether one of them is the best.

A run counts for the branch that it took first, and converts at most once: by a click on a message of the run, or by an
event of its contact, within `CONVERSION_DAYS` after the step. If a contact has several runs, an event counts for the
last one before it. Counts of versions with different shares, and of the batches of an uneven test, are compared
separately (`experiments.evidence`), because the evidence is valid only for fixed shares (docs/decisions.md#22).
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Meta, Struct, convert

from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.events.listing import Moment
from appliance.experiments.assignment import MIN_RECIPIENTS, choose_weights
from appliance.experiments.decision import (
    Decision,
    ExperimentDecision,
    decide_by_amount,
    decide_by_rate,
    describe_decision,
)
from appliance.experiments.evidence import Batches, Counts, TypicalAmount
from appliance.flows import split_tests
from appliance.flows.branches import LISTED_KEY
from appliance.flows.document import walk
from appliance.flows.split_tests import ChooseBranch
from appliance.flows.triggers import MACHINE_EVENT_SQL
from appliance.storage import disk_guard, transactions
from appliance.storage.database import rows
from appliance.storage.models import Flow, SplitTest
from appliance.tracking.orders import CLAMPED_AMOUNT

log = logging.getLogger("campanero.flows")

CONVERSION_DAYS = 30
# A test is checked again after at least a minute, and after this multiple of the time that counting took.
_MIN_PAUSE_SECONDS, _PAUSE_FACTOR = 60.0, 100
_MAX_KNOWN_TESTS = 1_000
# A batch of an uneven test lasts at least this time, and until this number of runs for each branch has come. The last
# is the maximum number of batches.
_MIN_BATCH_MS, _MIN_BATCH_RUNS, _MAX_BATCHES = clock.DAY_MS, MIN_RECIPIENTS, 200
# A smaller change of the shares begins no batch, because only the runs of one batch are compared with each other.
_MIN_CHANGE = 0.05
_VISITED = (
    "SELECT run_id, outcome, entered_at, min(id) AS id FROM step_visit WHERE flow_id = :flow AND action_id = :step "
    "AND outcome IN (SELECT value FROM json_each(:keys)) AND reason IS NULL AND test = 0 AND entered_at >= :since "
    "GROUP BY run_id"
)
_COUNT_RECIPIENTS = (
    f"SELECT r.version, {{batch}}, v.outcome, count(*) FROM ({_VISITED}) v CROSS JOIN run r ON r.id = v.run_id "
    "GROUP BY 1, 2, 3"
)
_COUNT_CLICKS = (
    f"SELECT r.version, {{batch}}, v.outcome, count(*), 0, 0 FROM ({_VISITED}) v CROSS JOIN run r ON r.id = v.run_id "
    "WHERE EXISTS (SELECT 1 FROM message m WHERE m.run_id = v.run_id AND m.clicked_at >= v.entered_at "
    "AND m.clicked_at < v.entered_at + :window) GROUP BY 1, 2, 3"
)
_COUNT_EVENTS = (
    "WITH happened AS (SELECT e.id, r.id AS run, r.version, v.outcome, max(v.entered_at), {amount} AS amount "
    "FROM event e INDEXED BY event_of_name CROSS JOIN run r ON r.contact_id = e.contact_id AND r.flow_id = :flow "
    "AND r.test = 0 AND r.status IN ('live', 'completed', 'exited') CROSS JOIN step_visit v ON v.run_id = r.id "
    "AND v.action_id = :step AND v.outcome IN (SELECT value FROM json_each(:keys)) AND v.reason IS NULL "
    "AND v.entered_at >= :since AND v.entered_at <= e.created_at AND e.created_at < v.entered_at + :window "
    "WHERE e.account_id = :account AND e.event = :event AND e.created_at >= :since AND e.test = 0 "
    f"AND {MACHINE_EVENT_SQL.format('e')} IS NOT TRUE GROUP BY e.id), "
    "converted AS (SELECT version, outcome, total(amount) AS amount, (SELECT min(f.id) FROM step_visit f "
    "WHERE f.run_id = run AND f.action_id = :step AND f.outcome = happened.outcome) AS id FROM happened GROUP BY run) "
    "SELECT version, {batch}, outcome, count(*), total(amount), total(amount * amount) FROM converted v "
    "GROUP BY 1, 2, 3"
)


class SplitVariant(Struct):
    """The counts of a branch in its test."""

    number: Annotated[int, Meta(description="number of the branch, from 1")]
    key: Annotated[str, Meta(description="key of the branch")]
    name: Annotated[str, Meta(description="its name, by default its letter")]
    share: Annotated[float, Meta(description="share of the contacts who come to the step now that take it, 0 to 1")]
    test_recipients: Annotated[int, Meta(description="number of runs that took it in the test, which are compared")]
    converted: Annotated[int, Meta(description="number of those that did what is counted")]
    amount: Annotated[float, Meta(description="sum of the amounts of their events; 0 if amounts are not compared")]
    value: Annotated[float, Meta(description="what is compared: `converted` or `amount`, per run")]
    chance: Annotated[float, Meta(description="probability that it is the best; null without a comparison")] | None
    loss: Annotated[float, Meta(description="expected loss per run of choosing it; null without a comparison")] | None


class SplitTestResult(Struct):
    """The test of a random split: counts, the conclusion, and the winner."""

    state: Annotated[Literal["testing", "decided"], Meta(description="`decided`: all take the winner")]
    metric: Annotated[Literal["clicks", "event"], Meta(description="what decides")]
    event: Annotated[str, Meta(description="name of the event that is counted")] | None
    by_amount: Annotated[bool, Meta(description="whether the amounts of the events are compared")]
    uneven: Annotated[bool, Meta(description="whether better branches get more of the later contacts")]
    decided_by: Annotated[Literal["service", "person"], Meta(description="who decides")]
    started_at: Annotated[Moment, Meta(description="since when runs are counted")] | None
    winner: Annotated[str, Meta(description="key of the branch that all take")] | None
    chosen_by: Annotated[str, Meta(description="`service`, or the user or API key that chose the winner")] | None
    chosen_at: Annotated[Moment, Meta(description="when it was chosen")] | None
    decision: Annotated[ExperimentDecision, Meta(description="what the counts say; null without runs")] | None
    variants: Annotated[list[SplitVariant], Meta(description="counts of each branch")]


class _BatchKey(NamedTuple):
    """The shares of the branches in a batch, and its number from 0; the number is None unless the test is uneven."""

    shares: tuple[int, ...]
    number: int | None


class _Version(NamedTuple):
    """The shares of the branches in a version of the flow, and whether the test is uneven in it."""

    shares: tuple[int, ...]
    is_uneven: bool


def count_batches(test: SplitTest) -> Batches:
    """Return the counts of all branches (in their order) for each batch; empty without runs."""
    return list(_count_by_key(test).values())


def _count_by_key(test: SplitTest) -> dict[_BatchKey, list[Counts]]:
    terms, keys = test.terms, test.terms["keys"]
    values = {
        "flow": test.flow_id, "step": test.action_id, "keys": json.dumps(keys), "since": test.started_at,
        "window": CONVERSION_DAYS * clock.DAY_MS,
    }  # fmt: skip
    batch = _build_batch_sql(test)
    recipients = {(row[0], row[1], row[2]): row[3] for row in rows(_COUNT_RECIPIENTS.format(batch=batch), values)}
    if terms["metric"] == split_tests.EVENT:
        sql = _COUNT_EVENTS.format(amount=CLAMPED_AMOUNT if terms["by_amount"] else "0", batch=batch)
        values |= {"account": test.account_id, "event": terms["event_name"]}
    else:
        sql = _COUNT_CLICKS.format(batch=batch)
    converted = {(row[0], row[1], row[2]): row[3:] for row in rows(sql, values)}
    batches: dict[_BatchKey, list[Counts]] = {}
    versions = _load_versions(test)
    for version, number in sorted({(version, number) for version, number, _ in recipients}):
        stored = versions.get(version, _Version((), False))
        key = _BatchKey(stored.shares, number if stored.is_uneven else None)
        counts = batches.setdefault(key, [Counts(0, 0) for _ in keys])
        for index, branch in enumerate(keys):
            count, amount, squares = converted.get((version, number, branch), (0, 0.0, 0.0))
            known = counts[index]
            counts[index] = Counts(
                # A run may have been added between the two queries.
                known.recipients + max(recipients.get((version, number, branch), 0), count), known.converted + count,
                known.amount + amount, known.amount_squares + squares,
            )  # fmt: skip
    return batches


def _build_batch_sql(test: SplitTest) -> str:
    """Return the SQL expression for the batch number, from 0, of the first visit `v.id` of a run."""
    starts = [int(batch["after_visit"]) for batch in test.batches]
    cases = [f"WHEN v.id > {start} THEN {number}" for number, start in reversed([*enumerate(starts, 1)])]
    return f"CASE {' '.join(cases)} ELSE 0 END" if cases else "0"


def _load_versions(test: SplitTest) -> dict[int, _Version]:
    """Return the shares of the step by version of the flow."""
    version_rows = rows(
        "SELECT version, data FROM step WHERE flow_id = ? AND action_id = ?", (test.flow_id, test.action_id)
    )
    versions = {}
    for version, text in version_rows:
        data = msgspec.json.decode(text)
        shares = tuple(item["share"] for item in data[LISTED_KEY])
        versions[version] = _Version(shares, bool(data.get("uneven")))
    return versions


def decide(test: SplitTest, batches: Batches) -> Decision | None:
    """Return what the counts of a test show, or None without runs."""
    if not batches:
        return None
    is_over = test.state == split_tests.DECIDED
    if test.terms["by_amount"]:
        return decide_by_amount(batches, convert(test.typical_amount, TypicalAmount), is_over=is_over)
    return decide_by_rate(batches, is_over=is_over)


def find_decision(account_id: int, flow_id: int, request: ChooseBranch) -> Decision | None:
    """Return what the counts show, to be recorded with a user's choice; call it outside of a transaction.

    The choice does not depend on it: an error is logged, and None is returned. None also without a test or runs.
    """
    test = split_tests.find(flow_id, request.step)
    if test is None or test.account_id != account_id:
        return None
    try:
        return decide(test, count_batches(test))
    except (ArithmeticError, ValueError):
        log.exception("flows: comparing branches failed flow=%s step=%s", flow_id, request.step)
        return None


def get_result(flow_id: int, step: dict[str, Any]) -> SplitTestResult | None:
    """Return the results of the test of a live step, or None if it has no test."""
    test = split_tests.find(flow_id, step["id"]) if step.get("metric") else None
    if test is None:
        return None
    batches = count_batches(test)
    decision, terms, live = decide(test, batches), test.terms, _load_last_step(test) or step
    names = {item["key"]: item["name"] for item in step[LISTED_KEY]}
    decided_by, is_uneven = live.get("decided_by", split_tests.SERVICE), bool(live.get("uneven"))
    shares = _find_shares(test, live[LISTED_KEY], is_uneven)
    return SplitTestResult(
        cast(Any, test.state), terms["metric"], terms["event_name"], terms["by_amount"], is_uneven, decided_by,
        clock.iso(test.started_at), test.winner, test.chosen_by, clock.iso(test.decided_at),
        None if decision is None else describe_decision(decision),
        [
            _build_variant(number, key, names.get(key), shares.get(key, 0.0), batches, decision)
            for number, key in enumerate(terms["keys"], 1)
        ],
    )  # fmt: skip


def _find_shares(test: SplitTest, branches: Sequence[dict[str, Any]], is_uneven: bool) -> dict[str, float]:
    """Return, by branch key, the share of the contacts coming to a step now that take the branch."""
    keys = [item["key"] for item in branches]
    if test.winner in keys:
        return {key: float(key == test.winner) for key in keys}
    present = test.batches[-1]["weights"] if is_uneven and test.batches else {}
    weights = split_tests.weigh(branches, present)
    return {key: weight / sum(weights) for key, weight in zip(keys, weights, strict=True)}


def load_result(account_id: int, flow_id: int, step_id: int) -> SplitTestResult:
    """Return the results of the test of a step; raises NotFound if it has none."""
    flow = Flow.get_or_none(Flow.account == account_id, Flow.id == flow_id)
    step = None if flow is None else next((step for _, step in walk(flow.steps) if step["id"] == step_id), None)
    result = None if step is None else get_result(flow_id, step)
    if result is None:
        raise NotFound
    return result


def _build_variant(
    number: int, key: str, name: str | None, share: float, batches: Batches, decision: Decision | None
) -> SplitVariant:
    counts = [batch[number - 1] for batch in batches]
    return SplitVariant(
        number, key, name or chr(ord("A") + number - 1), share, sum(count.recipients for count in counts),
        sum(count.converted for count in counts), sum(count.amount for count in counts),
        decision.values[number - 1] if decision is not None else 0.0,
        decision.chances[number - 1] if decision is not None else None,
        decision.losses[number - 1] if decision is not None else None,
    )  # fmt: skip


# The decision of the service.


# When each test is checked again (`time.monotonic`)
_next_looks: dict[int, float] = {}


def decide_running() -> None:
    """Choose the winner of each test that the service decides and whose result is clear.

    A test whose comparison fails is logged and skipped. Raises storage errors.
    """
    for test_id in split_tests.list_running():
        if time.monotonic() < _next_looks.get(test_id, 0.0):
            continue
        started = time.monotonic()
        try:
            _decide_test(test_id)
        except Exception as error:
            if (storage_error := disk_guard.to_storage_error(error)) is not None:
                raise storage_error from error
            log.exception("flows: deciding a test failed test=%s", test_id)
        if len(_next_looks) >= _MAX_KNOWN_TESTS:
            _next_looks.clear()
        ended = time.monotonic()
        _next_looks[test_id] = ended + max(_MIN_PAUSE_SECONDS / 2, _PAUSE_FACTOR * (ended - started))


def _decide_test(test_id: int) -> None:
    """Choose the winner of a test if the service decides and it is clear, or begin the next batch of an uneven one."""
    test = SplitTest.get_by_id(test_id)
    step = _load_last_step(test)
    if step is None:
        return
    counts = _count_by_key(test)
    if step.get("decided_by") in (None, split_tests.SERVICE):
        decision = decide(test, list(counts.values()))
        if decision is not None and decision.code == "winner":
            winner = test.terms["keys"][decision.leader]
            transactions.write(split_tests.finish, test.id, test.updated_at, winner, decision)
            return
    weights = _find_next_weights(test, step, counts) if step.get("uneven") else None
    if weights is not None:
        transactions.write(split_tests.start_batch, test.id, test.updated_at, weights)


def _load_last_step(test: SplitTest) -> dict[str, Any] | None:
    """Return the props of a test's step in the last version that has it, or None."""
    row = rows(
        "SELECT data FROM step WHERE flow_id = ? AND action_id = ? ORDER BY version DESC LIMIT 1",
        (test.flow_id, test.action_id),
    )
    return msgspec.json.decode(row[0][0]) if row else None


def _find_next_weights(
    test: SplitTest, step: dict[str, Any], counts: Mapping[_BatchKey, Sequence[Counts]]
) -> dict[str, float] | None:
    """Return the weights of the next batch of an uneven test by branch key, or None if no batch begins now."""
    number, keys = len(test.batches), test.terms["keys"]
    started_at = test.batches[-1]["started_at"] if test.batches else test.started_at
    if number >= _MAX_BATCHES or clock.now_ms() - started_at < _MIN_BATCH_MS:
        return None
    present = _find_shares(test, step[LISTED_KEY], is_uneven=True)
    active = [index for index, key in enumerate(keys) if present.get(key)]
    runs = sum(count.recipients for key, batch in counts.items() if key.number == number for count in batch)
    batches = [[batch[index] for index in active] for batch in counts.values()]
    if len(active) < 2 or runs < _MIN_BATCH_RUNS * len(active):
        return None
    if min(sum(batch[index].recipients for batch in batches) for index in range(len(active))) < MIN_RECIPIENTS:
        return None
    chosen = choose_weights(batches, len(active), test.terms["by_amount"])
    weights = dict.fromkeys(keys, 0.0) | {keys[index]: weight for index, weight in zip(active, chosen, strict=True)}
    is_changed = any(abs(weights[key] - present[key]) >= _MIN_CHANGE for key in keys)
    return weights if is_changed else None
