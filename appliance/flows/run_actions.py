"""What a person does with people inside a flow: lets them go on at once, or takes them out."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.acting import By
from appliance.core import clock, wake_ups
from appliance.core.errors import Faults, NotAllowed
from appliance.core.fields import Id
from appliance.core.transitions import Action, Standing, refusal
from appliance.flows import document, people, run_ends
from appliance.storage.models import Flow, Run
from appliance.storage.open import connection, rows
from appliance.storage.work import after_commit, writing

Act = Literal["move_on", "take_out"]
# How many one transaction moves, so that nobody waits for it
CHUNK = 200
ACTIONS = {
    "move_on": Action("moved on", "live", ("live",)), "take_out": Action("taken out", "exited", ("live",)),
}  # fmt: skip
_INSIDE = "flow_id = ? AND status = 'live'"


class RunsChosen(Struct):
    """Whom to move: these runs, or all that wait in a step."""

    run_ids: Annotated[list[Id], Meta(max_length=10_000)] | None | UnsetType = UNSET
    step: Id | None | UnsetType = UNSET


class RunsMoved(Struct):
    """How many were moved; `unchanged` are those named that are not in this flow, or not any more."""

    changed: int
    unchanged: list[int]


def one(account_id: int, flow_id: int, run_id: int, act: Act, by: By) -> Run:
    """Move one run and answer it; raises NotFound, NotAllowed, or Invalid (`invalid_transition`) if it has ended."""
    writing()
    run = people.get(account_id, flow_id, run_id)
    if by.test and not run.test:
        raise NotAllowed("a test key moves only the runs of tests")
    if run.status != "live":
        raise refusal("run", Standing(run.status, [], []), act, ACTIONS[act])
    some(flow_id, [run_id], act)
    audit.note(by, account_id, f"flow_run_{act}", f"run:{run_id}", {"flow_id": flow_id})
    return people.get(account_id, flow_id, run_id)


def chosen(account_id: int, flow_id: int, request: RunsChosen) -> list[int]:
    """Return the runs that a request means, also such as it names wrongly; raises NotFound, Invalid."""
    check(account_id, request, flow_id)
    if isinstance(request.run_ids, list):
        return list(dict.fromkeys(request.run_ids))
    return [row[0] for row in rows(
        "SELECT run_id FROM passage WHERE flow_id = ? AND action_id = ? AND outcome IS NULL ORDER BY run_id",
        (flow_id, request.step),
    )]  # fmt: skip


def check(account_id: int, request: RunsChosen, flow_id: int) -> None:
    """Raise Invalid unless a request names runs in one of the two ways, and a step that there is or was; NotFound."""
    flow, faults = people.flow_of(account_id, flow_id), Faults()
    ids = request.run_ids if isinstance(request.run_ids, list) else None
    step = request.step if isinstance(request.step, int) else None
    if ids is None and step is None:
        faults.add("run_ids", "can't be blank")
    elif ids is not None and step is not None:
        faults.add("step", "is invalid")
    if step is not None and not _has_step(flow, step):
        faults.add("step", "must exist")
    faults.check()


def _has_step(flow: Flow, step_id: int) -> bool:
    """Return whether a flow has a step, or had it when somebody was there."""
    if any(step["id"] == step_id for _, step in document.walk(flow.steps)):
        return True
    return bool(rows("SELECT 1 FROM passage WHERE flow_id = ? AND action_id = ? LIMIT 1", (flow.id, step_id)))


def some(flow_id: int, run_ids: Sequence[int], act: Act, tests_only: bool = False) -> list[int]:
    """Move those of some runs that are inside a flow (and tests, if only these may be moved), and answer their ids."""
    writing()
    inside = [row[0] for row in rows(
        f"SELECT id FROM run WHERE {_INSIDE} AND test >= ? AND id IN (SELECT value FROM json_each(?))",
        (flow_id, tests_only, json.dumps(list(run_ids))),
    )]  # fmt: skip
    ids, now = json.dumps(inside), clock.now_ms()
    if act == "move_on":
        # A wait that is due is over. While its flow is paused they stay, and go on with the others
        connection().execute(
            "UPDATE run SET due_at = min(coalesce(due_at, ?2), ?2), updated_at = ?2 WHERE id IN "
            "(SELECT value FROM json_each(?1))",
            (ids, now),
        ).fetchall()
        after_commit(lambda: wake_ups.ring("flows"))
        return inside
    # Of what they were to get from this flow nothing leaves any more but what is in hand
    run_ends.take_back(inside, now)
    return run_ends.end(inside, "exited", "taken_out", now)


def noted(account_id: int, flow_id: int, act: Act, count: int, by: By) -> None:
    """Note in the audit that so many were moved at once."""
    audit.note(by, account_id, f"flow_runs_{act}", f"flow:{flow_id}", {"runs": count})
