"""The queue of requests of flows: turns between accounts and flows, retries, and what ends with a run."""

import asyncio
from typing import Any

from appliance.accounts import accounts
from appliance.audience.contacts import removal
from appliance.flows import request_queue, request_worker, run_ends
from appliance.flows.request_queue import RequestOutcome
from appliance.flows.request_worker import FlowRequestWorker
from appliance.sending.delivery.safe_http import ConnectionPool
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Flow
from tests.domain.home import BY_API, Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow, start_runs, step_history

REQUEST: dict[str, Any] = {
    "id": 1, "type": "http_request", "method": "POST", "url": "https://shop.example/hook", "headers": {},
    "secret_headers": {}, "payload": {"to": "{{ email }}"}, "signing_secret": None, "timeout": 3_600,
    "save_to_contact": {"score": "score"}, "save_to_run": {"code": "code"},
    "yes": [{"id": 2, "type": "emit_event", "event_name": "asked", "event_data": {}, "forward_event_data": True}],
    "no": [],
}  # fmt: skip


def make_waiting_runs(home: Home, number: int, account_id: int | None = None) -> tuple[Flow, list[int]]:
    """Create a flow of an account whose runs all wait for the response of their request."""
    flow = create_live_flow(home, [REQUEST])
    names = f"f{flow.id}"
    runs = start_runs(home, flow, *(home.contact(f"{names}-{index}@acme.test").id for index in range(number)))
    advance_until_idle()
    if account_id is not None:
        for table, column in (("flow", "id"), ("run", "flow_id"), ("flow_request", "flow_id")):
            transactions.write(run, f"UPDATE {table} SET account_id = ? WHERE {column} = ?", (account_id, flow.id))
    return flow, runs


def record(*outcomes: RequestOutcome) -> None:
    """Record outcomes of attempts."""
    transactions.write(request_queue.record_outcomes, list(outcomes))


def test_accounts_and_flows_take_turns(home: Home) -> None:
    """An account gets four connections, shared by its flows, and slow accounts get half of all connections."""
    first, _ = make_waiting_runs(home, 9)
    second, _ = make_waiting_runs(home, 9)
    others = [transactions.write(lambda: accounts.create("Else").id) for _ in range(4)]
    for account_id in others:
        make_waiting_runs(home, 5, account_id)
    worker = FlowRequestWorker()
    chosen = worker.choose([])
    counts = {
        account: sum(request.account_id == account for request in chosen) for account in (home.account_id, *others)
    }
    assert len(chosen) == 16 and sorted(counts.values()) == [0, 4, 4, 4, 4]
    own = [request.id for request in chosen if request.account_id == home.account_id] or [
        request.id for request in worker.choose([]) if request.account_id == home.account_id
    ]
    flows = dict(rows("SELECT flow_id, count(*) FROM flow_request WHERE id IN "
                      f"({','.join(map(str, own))}) GROUP BY 1"))  # fmt: skip
    assert flows == {first.id: 2, second.id: 2}
    for request in chosen:
        worker.note_finished(request, None)
    again = worker.choose([])
    slow = {request.account_id for request in chosen}
    assert sum(request.account_id in slow for request in again) == 8


def test_the_values_of_a_response_are_stored_once(home: Home) -> None:
    """The run is due with the result; its step stores the values and goes on in one transaction."""
    _, (run_id,) = make_waiting_runs(home, 1)
    (due,) = request_queue.fetch_due(rows("SELECT flow_id FROM run")[0][0], 9)
    record(RequestOutcome(due, answers={"save_to_contact": {"score": 4}, "save_to_run": {"code": "x"}}))
    record(RequestOutcome(due, "unreachable"))  # a second outcome of the same attempt does not count
    advance_until_idle()
    assert step_history(run_id) == [(1, "yes", None), (2, "on", None)]
    assert rows("SELECT data FROM event WHERE event = 'asked'") == [('{"code":"x"}',)]
    assert rows("SELECT json_extract(data, '$.score') FROM contact") == [(4,)]
    assert rows("SELECT count(*) FROM flow_request") == [(0,)]


def test_a_request_that_fails_is_tried_again_until_its_time_is_over(home: Home) -> None:
    """The delays are those of webhooks, or what the server asks for; the last failure ends the wait."""
    flow, (run_id,) = make_waiting_runs(home, 1)
    delays = []
    for pause in (0, 0, 400, 0, 0, 0):
        (due,) = request_queue.fetch_due(flow.id, 9)
        record(RequestOutcome(due, "http_503", is_final=False, retry_after_ms=pause * 1000))
        row = rows("SELECT next_attempt_at - updated_at FROM flow_request WHERE status = 'pending'")
        delays += [seconds[0] // 1000 for seconds in row]
        home.advance(row[0][0] // 1000 if row else 0)
    assert delays == [30, 60, 400, 300, 900, 1800]
    (due,) = request_queue.fetch_due(flow.id, 9)
    record(RequestOutcome(due, "http_503", is_final=False))
    advance_until_idle()
    assert step_history(run_id) == [(1, "no", "http_503")]


def test_without_a_result_the_wait_ends_with_its_time(home: Home) -> None:
    """A response that comes later is not used."""
    flow, (run_id,) = make_waiting_runs(home, 1)
    (due,) = request_queue.fetch_due(flow.id, 9)
    home.advance(3_600)
    advance_until_idle()
    record(RequestOutcome(due))
    assert step_history(run_id) == [(1, "no", "timed_out")] and request_queue.fetch_due(flow.id, 9) == []


def test_the_request_of_a_run_that_ended_or_was_paused_is_not_made(home: Home) -> None:
    """It is deleted with the end of the run or the contact, and waits while the flow is paused."""
    flow, (first, second, third) = make_waiting_runs(home, 3)
    transactions.write(run_ends.end_runs, [first], "exited", "taken_out", 1)
    contact = rows("SELECT contact_id FROM run WHERE id = ?", (second,))[0][0]
    transactions.write(removal.erase, home.account_id, contact, BY_API)
    assert rows("SELECT run_id FROM flow_request") == [(third,)]
    (due,) = request_queue.fetch_due(flow.id, 9)
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (flow.id,))
    assert not request_queue.has_due() and FlowRequestWorker().choose([]) == []
    outcome = asyncio.run(request_worker.attempt_request(due, ConnectionPool()))
    record(outcome)
    assert outcome.is_withdrawn and rows("SELECT status, attempts FROM flow_request") == [("pending", 0)]
