"""The pending HTTP requests of a flow: listing them, and making them due at once.

A request that has ended is not listed: its run continues with the branch of the result, whose reason is among the
visits of the run (`runs.list_visited_steps`).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock, signals
from appliance.flows import store
from appliance.storage.database import Page, rows, run_set, scalar
from appliance.storage.transactions import after_commit, require_write_transaction

PAGE_SIZE = 50
_PENDING = "flow_request q WHERE q.flow_id = :flow AND q.status = 'pending'"
_LIST = (
    "SELECT q.id, q.run_id, (SELECT r.contact_id FROM run r WHERE r.id = q.run_id), q.action_id, "
    "iif(q.attempts, 'retrying', 'waiting'), q.attempts, q.reason, q.next_attempt_at, q.deadline_at "
    f"FROM {_PENDING} ORDER BY q.next_attempt_at, q.id LIMIT :limit OFFSET :offset"
)
_RETRY = (
    "UPDATE flow_request SET next_attempt_at = :now, updated_at = :now WHERE id IN (SELECT value FROM "
    "json_each(:items)) AND flow_id = :flow AND status = 'pending' AND next_attempt_at > :now"
)


class PendingRequest(NamedTuple):
    """A request that is still to be made; times are in Unix milliseconds.

    `reason` is why the last attempt failed, None before the first. No attempt is made after `deadline_at`.
    """

    id: int
    run_id: int
    contact_id: int | None
    step_id: int
    state: Literal["waiting", "retrying"]
    attempts: int
    reason: str | None
    next_attempt_at: int
    deadline_at: int


def list_pending(account_id: int, flow_id: int, page: int) -> Page:
    """Return a page of the pending requests of a flow, the next to be made first; raises NotFound."""
    store.find(account_id, flow_id)
    total = int(scalar(f"SELECT count(*) FROM {_PENDING}", {"flow": flow_id}) or 0)
    values = {"flow": flow_id, "limit": PAGE_SIZE, "offset": (page - 1) * PAGE_SIZE}
    return Page([PendingRequest(*row) for row in rows(_LIST, values)], total, page, PAGE_SIZE)


def retry_now(account_id: int, flow_id: int, request_ids: Sequence[int], by: Actor) -> int:
    """Make pending requests of a flow due at once, and return their number; raises NotFound for an unknown flow.

    A request that is already due, has ended, or belongs to another flow is not changed.
    """
    require_write_transaction()
    store.find(account_id, flow_id)
    changed = run_set(_RETRY, request_ids, flow=flow_id, now=clock.now_ms())
    if changed:
        audit.record(by, account_id, "flow_requests_retry", f"flow:{flow_id}", {"requests": changed})
        after_commit(lambda: signals.wake("requests"))
    return changed
