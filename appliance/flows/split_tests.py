"""The tests of random splits: when they start, their batches, their winner, and who chose it.

A test starts when its step is published with a metric. If the metric or the branches change, another test starts; a
change of shares, texts or other steps does not affect it. Once there is a winner, all runs that come to the step take
its branch; a run that took a branch there before takes the same one again. `split_results.py` counts the results of the
branches.

In an `uneven` test, better branches get more of the later contacts (Thompson sampling, `experiments/assignment.py`).
The first batch has the shares of the step, and `split_results.py` begins another one when the results suffice.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import Id
from appliance.experiments.decision import Decision
from appliance.flows.branches import LISTED_KEY
from appliance.storage.database import fetch_one, last_id, rows, run
from appliance.storage.models import Flow, SplitTest
from appliance.storage.transactions import require_write_transaction
from appliance.tracking import orders

if TYPE_CHECKING:
    from appliance.flows.steps.base import Node  # the steps import this module

KIND = "random_split"
METRICS = CLICKS, EVENT = ("clicks", "event")
DECIDERS = SERVICE, PERSON = ("service", "person")
TESTING, DECIDED = "testing", "decided"
# The reason of a visit that took the winner, and is therefore not part of the test
WINNER_TAKEN = "winner"
_SELECT_TAKEN = (
    "SELECT run_id, outcome FROM step_visit WHERE run_id IN (SELECT value FROM json_each(?)) AND action_id = ? "
    "AND outcome NOT NULL ORDER BY id"
)


class Batch(Struct):
    """A batch of an uneven test after the first: visits of the step with ids above `after_visit` belong to it.

    `weights` has the weight of each branch by its key; the sum is 1.
    """

    started_at: int
    after_visit: int
    weights: dict[str, float]


class Progress(NamedTuple):
    """The key of the winning branch, or None, and the weights of the current batch, empty in the first batch."""

    winner: str | None
    weights: dict[str, float]


class ChooseBranch(Struct):
    """The choice of the branch of a random split that all contacts take from now on."""

    step: Annotated[Id, Meta(description="id of the random split")]
    branch: (
        Annotated[str, Meta(max_length=20, description="key of the branch; null goes on with the test")]
        | None
        | UnsetType
    ) = UNSET


def get_terms(props: dict[str, Any]) -> dict[str, Any]:
    """Return what the test of a step with these props compares: its metric, and the keys of its branches in order.

    If these change, another test starts.
    """
    return {
        "metric": props["metric"], "event_name": props.get("event_name"), "by_amount": props.get("by_amount", False),
        "keys": [item["key"] for item in props[LISTED_KEY]],
    }  # fmt: skip


def start_tests(account_id: int, flow_id: int, nodes: "Sequence[Node]") -> None:
    """Start the tests of a version that was just published, and delete those of steps that no longer have one."""
    require_write_transaction()
    now = clock.now_ms()
    tests = {row.action_id: row for row in SplitTest.select().where(SplitTest.flow == flow_id)}
    for node in nodes:
        if node.kind != KIND or not node.props.get("metric"):
            continue
        terms, row = get_terms(node.props), tests.pop(node.id, None)
        if row is not None and row.terms == terms:
            continue
        if row is not None:
            row.delete_instance()
        by_amount = terms["by_amount"] and terms["event_name"]
        typical = orders.find_typical_amount(account_id, terms["event_name"]) if by_amount else orders.DEFAULT_TYPICAL
        SplitTest.create(
            account=account_id, flow=flow_id, action_id=node.id, terms=terms, started_at=now,
            typical_amount=to_builtins(typical), created_at=now, updated_at=now,
        )  # fmt: skip
    for row in tests.values():
        row.delete_instance()


def find(flow_id: int, step_id: int) -> SplitTest | None:
    """Return the test of a step, or None if it has none."""
    test: SplitTest | None = SplitTest.get_or_none(SplitTest.flow == flow_id, SplitTest.action_id == step_id)
    return test


def find_progress(flow_id: int, step_id: int) -> Progress:
    """Return the winner and the current weights of the test of a step; None and {} without a test."""
    row = fetch_one(
        "SELECT winner, batches ->> '$[#-1].weights' FROM split_test WHERE flow_id = ? AND action_id = ?",
        (flow_id, step_id),
    )
    return Progress(None, {}) if row is None else Progress(row[0], json.loads(row[1] or "{}"))


def weigh(branches: Sequence[dict[str, Any]], weights: Mapping[str, float]) -> tuple[float, ...]:
    """Return the weights of the branches in their order: those of the batch, else the shares.

    A branch with the share 0 gets no contact. `weights` of other branches than these are ignored.
    """
    shares = tuple(float(item["share"]) for item in branches)
    keys = [item["key"] for item in branches]
    if weights.keys() != set(keys):
        return shares
    present = tuple(weights[key] if share else 0.0 for key, share in zip(keys, shares, strict=True))
    return present if any(present) else shares


def find_taken(run_ids: Sequence[int], step_id: int) -> dict[int, str]:
    """Return the branch that each run took when it was at a step before, by run id; other runs are left out."""
    return dict(rows(_SELECT_TAKEN, (json.dumps(list(run_ids)), step_id)))


def has_running() -> bool:
    """Return whether any test may be decided by the service."""
    return bool(list_running())


def list_running() -> list[int]:
    """Return the ids of the tests of active flows without a winner."""
    return [
        row[0]
        for row in rows(
            "SELECT t.id FROM split_test t JOIN flow f ON f.id = t.flow_id WHERE t.state = 'testing' "
            "AND f.status = 'active' AND f.deleted_at IS NULL ORDER BY t.id"
        )
    ]


def start_batch(test_id: int, updated_at: int, weights: Mapping[str, float]) -> None:
    """Begin another batch of a test, unless the test has changed since it was read (`updated_at`)."""
    require_write_transaction()
    test = SplitTest.get_or_none(SplitTest.id == test_id)
    if test is None or test.state != TESTING or test.updated_at != updated_at:
        return
    now = clock.now_ms()
    test.batches = [*test.batches, to_builtins(Batch(now, last_id("step_visit"), dict(weights)))]
    test.updated_at = max(now, test.updated_at + 1)
    test.save(only=["batches", "updated_at"])


def finish(test_id: int, updated_at: int, winner: str, decision: Decision | None) -> None:
    """Store the winner that the service chose, unless the test has changed since it was read (`updated_at`)."""
    require_write_transaction()
    test = SplitTest.get_or_none(SplitTest.id == test_id)
    if test is not None and test.state == TESTING and test.updated_at == updated_at:
        _store(test, winner, SERVICE, decision)


def check_choice(account_id: int, request: ChooseBranch, flow_id: int) -> None:
    """Raise NotFound for an unknown flow, and Invalid for a step without a test or a branch that is not part of it."""
    _find_chosen(account_id, flow_id, request)


def choose(account_id: int, flow_id: int, request: ChooseBranch, decision: Decision | None, by: Actor) -> SplitTest:
    """Choose the branch that all runs take from now on, or continue the test; return the test.

    `decision` is what the counts showed (`split_results.find_decision`). Raises the errors of `check_choice`.
    """
    require_write_transaction()
    test = _find_chosen(account_id, flow_id, request)
    _store(test, request.branch or None, by.name, decision)
    data = {"step_id": request.step, "branch": request.branch or None}
    audit.insert_entry(account_id, by.name, "flow_winner", f"flow:{flow_id}", data, by.ip)
    return test


def _find_chosen(account_id: int, flow_id: int, request: ChooseBranch) -> SplitTest:
    if Flow.get_or_none(Flow.account == account_id, Flow.id == flow_id, Flow.deleted_at.is_null()) is None:
        raise NotFound
    test = find(flow_id, request.step) if isinstance(request.step, int) else None
    if test is None:
        raise Invalid({"step": [gettext("must be the id of a random split with a metric")]})
    if request.branch is UNSET:
        raise Invalid({"branch": [gettext("can't be blank")]})
    if request.branch is not None and request.branch not in test.terms["keys"]:
        raise Invalid({"branch": [gettext("must exist")]})
    return test


def _store(test: SplitTest, winner: str | None, chosen_by: str, decision: Decision | None) -> None:
    now = clock.now_ms()
    is_decided = winner is not None
    test.winner, test.state = winner, DECIDED if is_decided else TESTING
    test.chosen_by, test.decided_at = (chosen_by, now) if is_decided else (None, None)
    test.decision = to_builtins(decision) if is_decided else None
    test.updated_at = max(now, test.updated_at + 1)
    test.save()
    # The report of the flow is cached until the flow changes.
    run("UPDATE flow SET updated_at = max(?, updated_at + 1) WHERE id = ?", (now, test.flow_id))
