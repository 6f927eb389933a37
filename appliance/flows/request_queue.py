"""The queue of HTTP requests of steps: rows that a step adds, and their results, which the step takes later.

A run waits for an awaited request. The result of the request makes the run due, in the transaction that stores it. The
step takes the result in the transaction that moves the run, so that it counts once, and deletes the row. The end of a
run deletes its rows, too (`run_ends`). A request for which no run waits is deleted with its last attempt.

The id of a request (`get_request_id`) is the same for each attempt, even after a crash, so that receivers recognize a
repetition. It contains the time at which the run started, because a restored backup may give the ids of rows again.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.core import clock, signals
from appliance.storage.database import connection, rows, run, write_state
from appliance.storage.transactions import after_commit, require_write_transaction
from appliance.webhooks.queue import RETRY_DELAYS_MS

# With these statuses a server may accept the request later; any other error is final.
RETRYABLE_STATUSES = frozenset({408, 425, 429, *range(500, 600)})
PENDING, SUCCEEDED, FAILED = "pending", "succeeded", "failed"
_PURGE_BATCH_SIZE = 1_000
_INSERT = (
    "INSERT INTO flow_request (account_id, flow_id, run_id, version, action_id, round, awaited, body, status, "
    "attempts, next_attempt_at, deadline_at, created_at, updated_at) "
    "SELECT account_id, flow_id, id, version, ?2, (SELECT count(*) FROM step_visit v WHERE v.run_id = run.id "
    "AND v.action_id = ?2 AND v.left_at IS NOT NULL), ?3, ?4, 'pending', 0, ?5, ?6, ?5, ?5 FROM run WHERE id = ?1 "
    "ON CONFLICT (run_id, action_id, round) DO NOTHING"
)
# A request is not made if its run has left the step, or if the flow is not active. The plus keeps SQLite from using the
# index of all live runs.
IS_SENDABLE = (
    "EXISTS (SELECT 1 FROM flow f WHERE f.id = q.flow_id AND f.status = 'active' AND f.deleted_at IS NULL) "
    "AND (NOT q.awaited OR EXISTS (SELECT 1 FROM run r WHERE r.id = q.run_id AND +r.status = 'live' "
    "AND r.action_id = q.action_id AND r.step_visit_id IS NOT NULL))"
)
_SELECT_DUE = (
    "SELECT q.id, q.account_id, q.attempts FROM flow_request q WHERE q.flow_id = ? AND q.status = 'pending' "
    f"AND q.next_attempt_at <= ? AND {IS_SENDABLE} ORDER BY q.next_attempt_at, q.id LIMIT ?"
)
_SELECT_FLOWS = (
    "SELECT account_id, id FROM flow WHERE status = 'active' AND hidden = 0 AND deleted_at IS NULL AND EXISTS "
    "(SELECT 1 FROM flow_request q WHERE q.flow_id = flow.id AND q.status = 'pending' AND q.next_attempt_at <= ?) "
    "ORDER BY account_id, id"
)
_WAKE_RUN = (
    "UPDATE run SET due_at = ?3, updated_at = ?3 WHERE id = ?1 AND status = 'live' AND action_id = ?2 "
    "AND step_visit_id IS NOT NULL AND due_at > ?3"
)


class DueRequest(NamedTuple):
    """A request to make; `attempts` is the number of earlier attempts."""

    id: int
    account_id: int
    attempts: int


class RequestOutcome(NamedTuple):
    """The outcome of an attempt.

    `reason` is None if it succeeded, else a code. `answers` are the values of the response to store. `is_final` False
    means that a later attempt may succeed. `is_withdrawn` says that nothing was sent, because the run had left the step
    or the flow was paused.
    """

    request: DueRequest
    reason: str | None = None
    is_final: bool = True
    retry_after_ms: int = 0
    answers: dict[str, Any] = {}
    duration_ms: int = 0
    is_withdrawn: bool = False


class Result(NamedTuple):
    """The stored result of a request: its status, the reason of a failure, and the values of the response."""

    status: str
    reason: str | None
    answers: dict[str, Any]


def get_request_id(run_id: int, run_created_at: int, action_id: int, visit_round: int) -> str:
    """Return the id of a request, stable for a run, a step, and the run's visit of it."""
    return f"run_{run_id}_{run_created_at}_{action_id}_{visit_round}"


def add_requests(
    run_ids: Sequence[int], action_id: int, until: int, body: bytes | None = None, is_awaited: bool = True
) -> None:
    """Add the request of a step for each run, unless it has one of this visit; attempts end at `until` (Unix ms).

    Without `body`, the body is filled in right before the first attempt. Does nothing in a sandbox.
    """
    require_write_transaction()
    if write_state.is_sandboxed or not run_ids:
        return
    now, text = clock.now_ms(), None if body is None else body.decode()
    connection().executemany(_INSERT, [(run_id, action_id, is_awaited, text, now, until) for run_id in run_ids])
    after_commit(lambda: signals.wake("requests"))


def take_results(run_ids: Sequence[int], action_id: int) -> dict[int, Result]:
    """Return the results of the requests of runs at a step by run id, and delete the requests.

    A request that is still pending has the status PENDING, and will no longer be made. Empty in a sandbox.
    """
    require_write_transaction()
    if write_state.is_sandboxed:
        return {}
    where = "FROM flow_request WHERE run_id IN (SELECT value FROM json_each(?)) AND action_id = ?"
    values = (json.dumps(list(run_ids)), action_id)
    results = {
        row[0]: Result(row[1], row[2], msgspec.json.decode(row[3] or "{}"))
        for row in rows(f"SELECT run_id, status, reason, answers {where} ORDER BY round", values)
    }
    run(f"DELETE {where}", values)
    return results


def record_outcomes(outcomes: Sequence[RequestOutcome]) -> None:
    """Store the outcomes of attempts: schedule a later attempt, or store the result and make the run due."""
    require_write_transaction()
    now = clock.now_ms()
    for outcome in outcomes:
        request = outcome.request
        if outcome.is_withdrawn:
            continue
        row = rows(
            "SELECT run_id, action_id, awaited, deadline_at FROM flow_request WHERE id = ? AND status = 'pending' "
            "AND attempts = ?",
            (request.id, request.attempts),
        )
        if not row:
            continue  # The run has left the step, or another process has recorded an attempt.
        run_id, action_id, is_awaited, deadline = row[0]
        retry_at = None if outcome.reason is None or outcome.is_final else _get_retry_time(outcome, now)
        if retry_at is not None and retry_at <= deadline:
            run(
                "UPDATE flow_request SET attempts = attempts + 1, reason = ?, next_attempt_at = ?, updated_at = ? "
                "WHERE id = ?",
                (outcome.reason, retry_at, now, request.id),
            )
        elif is_awaited:
            run(
                "UPDATE flow_request SET attempts = attempts + 1, status = ?, reason = ?, answers = ?, body = NULL, "
                "next_attempt_at = NULL, updated_at = ? WHERE id = ?",
                (
                    SUCCEEDED if outcome.reason is None else FAILED, outcome.reason,
                    msgspec.json.encode(outcome.answers).decode(), now, request.id,
                ),
            )  # fmt: skip
            run(_WAKE_RUN, (run_id, action_id, now))
        else:
            run("DELETE FROM flow_request WHERE id = ?", (request.id,))
    after_commit(lambda: signals.wake("flows"))


def _get_retry_time(outcome: RequestOutcome, now: int) -> int | None:
    """Return the time of the next attempt in Unix milliseconds, None after the last one (docs/decisions.md#13)."""
    if outcome.request.attempts >= len(RETRY_DELAYS_MS):
        return None
    return now + max(RETRY_DELAYS_MS[outcome.request.attempts], outcome.retry_after_ms)


def store_body(request_id: int, body: str) -> bool:
    """Store the body of a request before its first attempt, so that each attempt has the same body; return True."""
    require_write_transaction()
    run("UPDATE flow_request SET body = ? WHERE id = ? AND body IS NULL", (body, request_id))
    return True


def list_due_flows() -> dict[int, list[int]]:
    """Return the ids of the active flows that have due requests, by the id of their account."""
    flows: dict[int, list[int]] = {}
    for account_id, flow_id in rows(_SELECT_FLOWS, (clock.now_ms(),)):
        flows.setdefault(account_id, []).append(flow_id)
    return flows


def fetch_due(flow_id: int, limit: int) -> list[DueRequest]:
    """Return up to `limit` due requests of a flow, in the order of their due times."""
    return [DueRequest(*row) for row in rows(_SELECT_DUE, (flow_id, clock.now_ms(), limit))]


def has_due() -> bool:
    """Return whether any request is to be made now."""
    return any(fetch_due(flow_id, 1) for flow_ids in list_due_flows().values() for flow_id in flow_ids)


def prune_expired() -> bool:
    """Delete up to `_PURGE_BATCH_SIZE` expired requests for which no run waits; return whether there were any."""
    require_write_transaction()
    return bool(
        run(
            "DELETE FROM flow_request WHERE id IN (SELECT id FROM flow_request WHERE NOT awaited AND deadline_at < ? "
            "LIMIT ?)",
            (clock.now_ms(), _PURGE_BATCH_SIZE),
        )
    )
