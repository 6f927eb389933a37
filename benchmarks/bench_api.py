"""Measures the API: `python -m benchmarks.bench_api [--seconds 5]`; not a test, run by hand on a quiet machine.

A hundred thousand contacts lie in the database. Then one kind of request after the other is asked over many kept
connections: reads, refusals of every early kind, events that are stored; with a key, with a JWT, with rates on and off.
Where `wrk` is installed it asks too, for a loop of Python takes part of the processor that it measures.
"""

import argparse
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import count
from typing import NamedTuple

import uvloop

from tests.kit.bulk_contacts import insert_contacts
from tests.kit.http_load import build_request, format_percentiles, send_requests
from tests.kit.server import EMAIL, PASSWORD, RATES, Server
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit, wait_until_idle

GOALS = {
    **dict.fromkeys(("GET /contacts/{id}", "GET /account", "GET /contacts, page of 25"), "goal 1,500/s, p99 25 ms"),
    "POST /events": "goal 2,000/s",
}


class Case(NamedTuple):
    """A kind of request, a function that builds the n-th one, and the expected status."""

    name: str
    make: Callable[[int], bytes]
    status: int


def cases(key: str, jwt: str, people: int) -> list[Case]:
    """Return the cases in the order of measurement."""

    def contact(number: int) -> str:
        return f"/contacts/{number * 7919 % people + 1}"

    def event(number: int) -> bytes:
        body = {"event": "order_paid", "contact_id": number * 7919 % people + 1, "data": {"order": number}}
        return build_request(key, "POST", "/events", body)

    return [
        Case("GET /contacts/{id}", lambda number: build_request(key, "GET", contact(number)), 200),
        Case("GET /contacts/{id}, JWT", lambda number: build_request(jwt, "GET", contact(number)), 200),
        Case("404 of an id", lambda _: build_request(key, "GET", "/contacts/999999999"), 404),
        Case("404 of a path", lambda _: build_request(key, "GET", "/nothing"), 404),
        Case("401", lambda _: build_request("camp_live_" + "x" * 36, "GET", "/contacts/1"), 401),
        Case("422 of a query", lambda _: build_request(key, "GET", "/contacts/1?x=1"), 422),
        Case("422 of a body", lambda _: build_request(key, "POST", "/contacts", {"email": "x", "tracking": 1}), 422),
        Case("GET /account", lambda _: build_request(key, "GET", "/account"), 200),
        Case("GET /contacts, page of 25", lambda _: build_request(key, "GET", "/contacts?limit=25"), 200),
        Case("GET /healthz", lambda _: b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        Case("POST /events", event, 201),
    ]


def requests(case: Case, seconds: float) -> Iterator[bytes]:
    """Yield requests until the time is over."""
    end = time.perf_counter() + seconds
    for number in count(1):
        if time.perf_counter() > end:
            return
        yield case.make(number)


def measure(server: Server, case: Case, connections: int, seconds: float) -> None:
    """Measure one case after a warm-up, and print the result."""
    uvloop.run(send_requests(server.port, requests(case, 0.5), connections, {case.status}))
    cpu_before = cpu_seconds(server.pid)
    rate, times = uvloop.run(send_requests(server.port, requests(case, seconds), connections, {case.status}))
    spent = (cpu_seconds(server.pid) - cpu_before) / len(times)
    sorted_times = sorted(times)
    p99 = sorted_times[int(len(sorted_times) * 0.99)] * 1000
    print(f"  {case.name:<26} {rate:>7,.0f}/s  {format_percentiles(times)}  p99 {p99:6.1f}  "
          f"processor {spent * 1e6:5.0f} us each  {GOALS.get(case.name, '')}")  # fmt: skip


def by_wrk(server: Server, key: str, connections: int, seconds: float) -> None:
    """Measure requests for one contact with `wrk`, if it is installed."""
    program = shutil.which("wrk")
    if program is None:
        print("  wrk is not installed")
        return
    command = [program, "-t1", f"-c{connections}", f"-d{max(1, int(seconds))}s", "--latency",
               "-H", f"Authorization: Bearer {key}", f"{server.url}/v1/my/contacts/4711"]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures = re.findall(r"^\s*(?:50%|99%|Requests/sec:).*$", output, re.MULTILINE)
    print("  wrk, GET /contacts/4711:", "  ".join(" ".join(line.split()) for line in figures))


def limited(connections: int, seconds: float) -> None:
    """Measure a service with rate limits: while requests are allowed, and while they are refused."""
    # A burst that the first part does not use up, and one that is used up at once
    for words, minute, status in (("200, rates on", 60_000_000, 200), ("429", 1, 429)):
        env = {f"CAMPANERO_LIMITS__{name}_PER_MINUTE": str(minute) for name in RATES}
        with Server(env=env).set_up() as server:
            wait_until_idle(server.pid)
            key = str(server.key)
            server.client(validate=False).get("/lists")
            measure(
                server,
                Case(words, lambda _, key=key: build_request(key, "GET", "/lists"), status),
                connections,
                seconds,
            )
            server.stop()


def jwt_of(server: Server) -> str:
    """Sign in over the API and return the token."""
    link = HTTPConnection("127.0.0.1", server.port, timeout=10)
    body = f'{{"email": "{EMAIL}", "password": "{PASSWORD}"}}'
    link.request("POST", "/v1/login", body, {"Content-Type": "application/json"})
    answer = link.getresponse()
    if answer.status != 200:
        raise AssertionError(answer.read())
    return (answer.headers["Authorization"] or "").removeprefix("Bearer ")


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--only", default="", help="a part of the name of what is asked")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {options.connections} connections")
    server = Server().set_up()
    insert_contacts(server.data / "campanero.db", options.people)
    with server:
        wait_until_idle(server.pid)
        for case in cases(str(server.key), jwt_of(server), options.people):
            if options.only in case.name:
                measure(server, case, options.connections, options.seconds)
        by_wrk(server, str(server.key), options.connections, options.seconds)
        server.stop()
    limited(options.connections, options.seconds)


if __name__ == "__main__":
    main()
