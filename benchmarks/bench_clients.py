"""Measures the Python client: `python -m benchmarks.bench_clients [--requests 500]`; run by hand on a quiet machine.

The same request is made by bare httpx and by the client in turns, and the medians of the rounds are compared: the
processor time of this process, and the time on the clock. The goal is an overhead of less than 15 %. The time of the
imports, each in a process of its own, follows.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import httpx

from tests.kit.server import ROOT, Server
from tests.kit.timeouts import report_stolen_cpu_at_exit

sys.path.insert(0, str(ROOT / "clients/python"))

from campanero_client import AsyncCampanero, Campanero  # after its path was added

ROUNDS = 15
IMPORTS = ("httpx", "campanero_client")


def measure(calls: dict[str, Callable[[], object]], requests: int) -> dict[str, tuple[float, float]]:
    """Return the medians of processor and clock time per request in microseconds, of all calls in turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            cpu, clock = time.process_time(), time.perf_counter()
            for _ in range(requests // ROUNDS):
                call()
            count = requests // ROUNDS
            times[name].append((
                (time.process_time() - cpu) / count * 1e6, (time.perf_counter() - clock) / count * 1e6,
            ))  # fmt: skip
    return {
        name: (statistics.median(cpu for cpu, _ in rows), statistics.median(clock for _, clock in rows))
        for name, rows in times.items()
    }


def report(title: str, times: dict[str, tuple[float, float]]) -> None:
    """Print a line for each way to make a request, and the overhead of the client."""
    (bare_cpu, bare_clock), (cpu, clock) = times.values()
    print(
        f"{title:28} httpx {bare_cpu:5.0f} us of processor, {bare_clock:5.0f} us; client {cpu:5.0f}, {clock:5.0f}; "
        f"overhead {cpu / bare_cpu - 1:+.1%} of processor, {clock / bare_clock - 1:+.1%} (goal +15 %)"
    )


def measure_sync(server: Server, key: str, requests: int) -> None:
    """Compare a GET, a list and a POST."""
    headers = {"Authorization": f"Bearer {key}"}
    event = {"event": "order_paid", "contact_id": 1, "data": {"loaves": 3}}
    with httpx.Client(base_url=f"{server.url}/v1/my", headers=headers) as http, Campanero(server.url, key) as client:
        report("GET /contacts/{id}", measure({
            "httpx": lambda: http.get("/contacts/1").raise_for_status().json(),
            "client": lambda: client.contacts.get(1),
        }, requests))  # fmt: skip
        report("GET /contacts, one page", measure({
            "httpx": lambda: http.get("/contacts", params={"limit": 100}).raise_for_status().json(),
            "client": lambda: client.contacts.list().page(),
        }, requests))  # fmt: skip
        report("POST /events", measure({
            "httpx": lambda: http.post("/events", json=event).raise_for_status().json(),
            "client": lambda: client.events.create(event="order_paid", contact_id=1, data={"loaves": 3}),
        }, requests))  # fmt: skip


async def measure_async(server: Server, key: str, requests: int) -> None:
    """Compare a GET of the async clients."""
    headers = {"Authorization": f"Bearer {key}"}
    loop = asyncio.new_event_loop()

    async def bare() -> object:
        return (await http.get("/contacts/1")).raise_for_status().json()

    def run(call: Callable[[], Awaitable[object]]) -> Callable[[], object]:
        return lambda: loop.run_until_complete(call())  # type: ignore[arg-type]  # an awaitable suffices

    http = httpx.AsyncClient(base_url=f"{server.url}/v1/my", headers=headers)
    client = AsyncCampanero(server.url, key)
    calls = {"httpx": run(bare), "client": run(lambda: client.contacts.get(1))}
    times = await asyncio.to_thread(measure, calls, requests)
    report("GET /contacts/{id}, async", times)
    await asyncio.to_thread(loop.run_until_complete, http.aclose())
    await asyncio.to_thread(loop.run_until_complete, client.close())
    loop.close()


def measure_imports() -> None:
    """Print the processor time of a process that imports httpx, and of one that imports the client."""
    path = json.dumps(str(ROOT / "clients/python"))
    for name in IMPORTS:
        code = f"import sys, time; sys.path.insert(0, {path}); t = time.process_time(); import {name}; "
        code += "print((time.process_time() - t) * 1000)"
        runs = [float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(7)]
        print(f"import {name:22} {statistics.median(runs):5.0f} ms of processor")


def main() -> None:
    """Start a server with a hundred contacts and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=600, help="requests for each way (default: 600)")
    options = parser.parse_args()
    report_stolen_cpu_at_exit()
    with Server().set_up() as server:
        key = server.new_key()
        with Campanero(server.url, key) as client:
            for number in range(100):
                client.contacts.create(email=f"person{number}@example.org", first_name="Ann", data={"city": "Lyon"})
        measure_sync(server, key, options.requests)
        asyncio.run(measure_async(server, key, options.requests))
    measure_imports()


if __name__ == "__main__":
    main()
