"""Several accounts of one service: templates of one that take long to parse do not delay requests of the others."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conftest import FreshServer
from tests.journeys.test_fair_shares import second_account
from tests.kit.client import Client
from tests.kit.server import Server

# The maximum of one template's merge tags; each number makes a different template
ARGUMENTS = ",".join("1" * 1_000)
STEPS = 8


def heavy(number: int) -> str:
    """Return a body that takes about as long to parse as allowed."""
    return f"<p>{number}</p>" + f"{{{{ a{number} | join: {ARGUMENTS} }}}}" * 15


def steps(first: int) -> list[dict[str, Any]]:
    """Return flow steps whose messages together are within the limit."""
    light = f"{{{{ a | join: {ARGUMENTS} }}}}"
    return [{"subject": "x", "body": f"{number}" + light * 3} for number in range(first, first + STEPS)]


def longest_wait_during(other: Client, busy: Callable[[], object]) -> tuple[float, float]:
    """Run `busy` and return the longest wait of another account meanwhile and the total time, in seconds."""
    started = time.monotonic()
    waits = []
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(busy)
        while not future.done():
            before = time.monotonic()
            other.get("/lists").expect(200)
            other.post("/lists", {"name": f"List {len(waits)}"}).expect(201)
            waits.append(time.monotonic() - before)
        future.result()
    return max(waits), time.monotonic() - started


def post_heavy_flows(server: Server) -> None:
    """Post and update flows with heavy messages, four at once."""

    def post_flow(number: int) -> None:
        api = server.client()
        flow = api.post("/flows", {"name": "x", "steps": steps(number * 100)}).expect(201)
        api.patch(f"/flows/{flow['id']}", {"steps": steps(number * 100 + 50)}).expect(200)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(post_flow, range(4)))


def test_heavy_templates_do_not_delay_another_account(fresh_server: FreshServer) -> None:
    """While one account posts heavy templates, each request of another takes less than a sixth of that time."""
    server = fresh_server()
    other = second_account(server)
    longest, total = longest_wait_during(other, lambda: post_heavy_flows(server))
    assert total > 1, "the templates were not heavy enough for this test"
    assert longest < total / 6, (longest, total)


def test_too_many_merge_tags_in_a_flow_are_rejected_quickly(fresh_server: FreshServer) -> None:
    """Heavy messages, each within its own limit, are rejected together before any of them is parsed."""
    server = fresh_server()
    api = server.client()
    messages = [{"subject": "x", "body": heavy(number)} for number in range(12)]
    started = time.monotonic()
    rejection = api.post("/flows", {"name": "x", "steps": messages}).expect(422)
    assert rejection["validation_errors"] == {
        "steps": ["the merge tags are too long (maximum is 65536 characters outside of quotes)"]
    }
    # Parsing one of them takes longer than this
    assert time.monotonic() - started < 2


def test_large_anonymous_requests_do_not_delay_an_account(fresh_server: FreshServer) -> None:
    """Large forms and sign-ins of anonymous clients, four at once, are rejected at once."""
    server = fresh_server()
    other = second_account(server)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    fields = b"&".join(b"a%d=1" % number for number in range(200_000))
    numbers = b'{"email": "a@example.org", "password": "x", "z": [' + b"1," * 900_000 + b"1]}"
    statuses: list[int] = []

    def send(request: tuple[str, bytes, dict[str, str]]) -> None:
        path, body, headers = request
        for _ in range(5):
            statuses.append(server.client(validate=False).request("POST", path, body, headers).status)

    def send_all() -> None:
        with ThreadPoolExecutor(4) as pool:
            requests = [(path, fields, form) for path in ("/contacts", "/login", "/u/x")]
            list(pool.map(send, [*requests, ("/v1/login", numbers, {"Content-Type": "application/json"})]))

    longest, _ = longest_wait_during(other, send_all)
    assert {413} <= set(statuses) <= {404, 413}
    assert longest < 2, longest
