"""Measures the MCP server: `python -m benchmarks.bench_mcp [--calls 300]`; not a test, run by hand on a quiet machine.

A hundred thousand contacts lie in the database. Each tool that reads is called one call after the other over a kept
connection; beside it stand the requests of the API that the tool makes.
"""

import argparse
import json
import statistics
import time
from http.client import HTTPConnection
from typing import Any

from tests.kit.bulk_contacts import insert_contacts
from tests.kit.server import RATES, Server
from tests.kit.timeouts import report_stolen_cpu_at_exit

GOALS = {"status": "goal 20 ms"}
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("status", {}), ("deliverability", {}), ("find_contacts", {"limit": 20}), ("contact", {"contact_id": 77}),
    ("describe_audience", {}), ("list_campaigns", {}), ("api_search", {"query": "suppress an address"}),
)  # fmt: skip
REQUESTS = ("/account", "/delivery/status", "/contacts?limit=20")


def measure(
    connection: HTTPConnection, method: str, path: str, body: bytes | None, key: str, calls: int
) -> list[float]:
    """Return how long each of a number of equal requests took, in milliseconds, after ten that are not counted."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    times = []
    for _ in range(calls + 10):
        begun = time.perf_counter()
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        times.append((time.perf_counter() - begun) * 1000)
        assert response.status == 200 and b'"isError":true' not in content, content[:500]
    return times[10:]


def report(name: str, times: list[float]) -> None:
    """Write the median and the 99th percentile of one kind of request."""
    ordered = sorted(times)
    p99 = ordered[int(len(ordered) * 0.99) - 1]
    print(f"{name:32} median {statistics.median(ordered):7.2f} ms   p99 {p99:7.2f} ms   {GOALS.get(name, '')}")


def main() -> None:
    """Measure all tools, and the requests that they make."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--contacts", type=int, default=100_000)
    options = parser.parse_args()
    report_stolen_cpu_at_exit()
    unlimited = dict.fromkeys((f"CAMPANERO_LIMITS__{name}_PER_MINUTE" for name in RATES), "0")
    with Server(env=unlimited).set_up() as server:
        server.stop()
        insert_contacts(server.data / "campanero.db", options.contacts)
        server.start()
        key, connection = str(server.key), HTTPConnection("127.0.0.1", server.port)
        for tool, arguments in TOOLS:
            call = {"name": tool, "arguments": arguments}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
            report(tool, measure(connection, "POST", "/mcp", body, key, options.calls))
        for path in REQUESTS:
            report(f"GET {path}", measure(connection, "GET", f"/v1/my{path}", None, key, options.calls))
        server.stop()


if __name__ == "__main__":
    main()
