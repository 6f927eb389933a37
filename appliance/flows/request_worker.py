"""Make the requests of steps: several at a time, in turns between accounts, signed like webhooks.

No database transaction is open while a request runs. A request may be repeated after a crash, with the same
`Idempotency-Key` and the same body.
"""

import asyncio
import json
import time
from itertools import islice, zip_longest
from typing import Any

import msgspec

from appliance.core import clock
from appliance.flows import request_queue, request_template, versions
from appliance.flows.request_queue import RETRYABLE_STATUSES, DueRequest, RequestOutcome
from appliance.flows.request_template import MAX_RESPONSE_BYTES, RequestSpec, UnusableRequest, pick_values
from appliance.flows.steps import BY_TYPE
from appliance.sending.delivery import safe_http
from appliance.sending.delivery.safe_http import ConnectionPool, HttpResponse, RequestFailed
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import fetch_one
from appliance.webhooks import subscriptions
from appliance.webhooks.request_loop import RequestLoop, commit, parse_retry_after

TIMEOUT_SECONDS = 10.0
# An account counts as slow if its last request took this long or failed. All slow accounts share half of the
# connections.
_SLOW_MS = 1_000
_SELECT_REQUEST = (
    "SELECT q.account_id, q.flow_id, q.version, q.action_id, q.round, q.run_id, q.body, r.contact_id, r.event_data, "
    f"r.created_at, q.deadline_at FROM flow_request q JOIN run r ON r.id = q.run_id "
    f"WHERE q.id = ? AND {request_queue.IS_SENDABLE}"
)


class FlowRequestWorker(RequestLoop[DueRequest, RequestOutcome]):
    """The worker that makes due requests; one thread at a time runs it."""

    def __init__(self) -> None:
        super().__init__()
        self._round = 0
        self._slow: set[int] = set()  # the accounts whose last request was slow or failed

    def has_work(self) -> bool:
        """Return whether any request is due."""
        return request_queue.has_due()

    async def prepare(self) -> bool:
        """Return False: there is nothing to prepare, because the steps of runs add and delete the requests."""
        return False

    def choose(self, in_flight: list[DueRequest]) -> list[DueRequest]:
        """Return the requests to start now: those that were due first, with accounts in turns."""
        settings, flows = config.current().webhooks, request_queue.list_due_flows()
        accounts = [*flows]
        self._slow &= {*accounts, *(request.account_id for request in in_flight)}
        self._round += 1
        start = self._round % len(accounts) if accounts else 0
        chosen: list[DueRequest] = []
        for account_id in accounts[start:] + accounts[:start]:
            current = [*in_flight, *chosen]
            busy = {request.id for request in current if request.account_id == account_id}
            free = min(settings.connections - len(current), settings.connections_each - len(busy))
            if account_id in self._slow:
                half = max(settings.connections // 2, 1)
                free = min(free, half - sum(request.account_id in self._slow for request in current))
            if free > 0:
                # The flows of an account take turns too.
                due = [request_queue.fetch_due(flow_id, free + len(busy)) for flow_id in flows[account_id]]
                in_turns = (request for turn in zip_longest(*due) for request in turn if request is not None)
                chosen += islice((request for request in in_turns if request.id not in busy), free)
        return chosen

    async def attempt(self, job: DueRequest, pool: ConnectionPool) -> RequestOutcome:
        """Make a request once, and return the outcome."""
        return await attempt_request(job, pool)

    def note_finished(self, job: DueRequest, outcome: RequestOutcome | None) -> None:
        """Store whether the last request of an account was slow or failed."""
        if outcome is None or outcome.reason is not None or outcome.duration_ms >= _SLOW_MS:
            self._slow.add(job.account_id)
        else:
            self._slow.discard(job.account_id)

    async def record(self, finished: list[tuple[DueRequest, RequestOutcome | None]]) -> None:
        """Store the outcomes in one transaction; after an internal error (outcome None) the request is tried again."""
        outcomes = [outcome or RequestOutcome(job, "failed_request", is_final=False) for job, outcome in finished]
        await asyncio.wrap_future(transactions.submit_essential(request_queue.record_outcomes, outcomes))


async def attempt_request(job: DueRequest, pool: ConnectionPool) -> RequestOutcome:
    """Fill in a request, make it once, and return the outcome; failures are outcomes, not exceptions."""
    row = fetch_one(_SELECT_REQUEST, (job.id,))
    if row is None:
        return RequestOutcome(job, is_withdrawn=True)
    account_id, flow_id, version, action_id, visit_round, run_id, body, contact_id, event_data, run_created_at = row[
        :-1
    ]
    deadline_at = row[-1]
    if deadline_at < clock.now_ms():
        return RequestOutcome(job, "unreachable")  # After a pause or an outage, the run continues without the request.
    node = versions.load_plan(flow_id, version).nodes[action_id]
    request_id = request_queue.get_request_id(run_id, run_created_at, action_id, visit_round)
    try:
        spec = BY_TYPE[node.kind].get_request(node.props, account_id)
        if "{" in spec.url or (body is None and spec.payload is not None):
            values = request_template.load_values(account_id, contact_id, json.loads(event_data or "{}"))
            spec = spec._replace(url=request_template.fill_url(spec.url, values))
            if body is None and spec.payload is not None:
                body = request_template.fill_payload(spec.payload, values).decode()
                await commit(lambda: request_queue.store_body(job.id, body))
    except UnusableRequest as error:
        return RequestOutcome(job, error.reason)
    started = time.monotonic()
    try:
        response = await _send(spec, request_id, None if body is None else body.encode(), pool)
    except RequestFailed:
        return RequestOutcome(job, "unreachable", is_final=False, duration_ms=_SLOW_MS)
    duration_ms = int(1000 * (time.monotonic() - started))
    return _read_response(job, spec, response, node.props)._replace(duration_ms=duration_ms)


async def _send(spec: RequestSpec, request_id: str, body: bytes | None, pool: ConnectionPool) -> HttpResponse:
    headers = {**spec.headers, "Idempotency-Key": request_id}
    if spec.signing_secret is not None:
        headers |= subscriptions.signature_headers([spec.signing_secret], request_id, body or b"")
    if body is not None:
        headers["Content-Type"] = "application/json"
    else:
        headers.pop("Content-Type", None)
    return await safe_http.request(
        spec.method, spec.url, headers=headers, content=body, max_bytes=MAX_RESPONSE_BYTES + 1,
        timeout_seconds=TIMEOUT_SECONDS, truncate=True, pool=pool,
    )  # fmt: skip


def _read_response(job: DueRequest, spec: RequestSpec, response: HttpResponse, props: dict[str, Any]) -> RequestOutcome:
    """Return the outcome of a response. A redirect is not followed; its status counts as an error."""
    if not 200 <= response.status < 300:
        is_final = response.status not in RETRYABLE_STATUSES
        pause = min(parse_retry_after(response.headers), clock.DAY_MS)
        return RequestOutcome(job, f"http_{response.status}", is_final, pause)
    if not spec.reads_response:
        return RequestOutcome(job)
    try:
        answers = pick_values(msgspec.json.decode(response.body), props)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return RequestOutcome(job, "invalid_response")
    return RequestOutcome(job, answers=answers)
