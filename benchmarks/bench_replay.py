"""Measures replays of flows: `python -m benchmarks.bench_replay [--runs 100000]`; not a test, run by hand.

Half of the runs are those of the draft, half those of the live version: an abandoned cart in five steps, whose goal is
an order, against the carts and orders of 90 days. Meanwhile a page and an API request are timed.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

import apsw

from benchmarks.bench_import import memory
from tests.kit import bulk_contacts
from tests.kit.server import Server
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit

UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "0"}
DAY_MS = 86_400_000
ORDERED = {"name": "event", "predicate": "performed", "value": {"event": "order", "since": "flow_start"}}
MAIL = {"subject": "Your cart", "body": "<p>Your {{ event.sku }}</p>"}
STEPS = [{"duration": 3_600}, MAIL, {"duration": 86_400}, {"filters": [ORDERED], "yes": [], "no": [MAIL]}]
EVENT = (
    "INSERT INTO event (account_id, contact_id, event, amount, data, test, generated, quiet, chain_depth, created_at, "
    'updated_at) VALUES (1, ?, ?, ?, \'{"sku":"A-1"}\', 0, 0, 0, 0, ?, ?)'
)


def write_past(path: Path, contacts: int) -> None:
    """Write a cart of each contact at a random time of the last 90 days, and orders after a third of them."""
    rng, now = random.Random(1), int(time.time() * 1000)
    events: list[tuple[int, int, str, float | None]] = []
    for contact_id in range(1, contacts + 1):
        at = now - rng.randrange(90 * DAY_MS)
        events.append((at, contact_id, "cart_add", None))
        if rng.random() < 0.3:
            events.append((min(now - 1, at + rng.randrange(3 * DAY_MS)), contact_id, "order", rng.random() * 100))
    database = apsw.Connection(str(path))
    database.execute("BEGIN")
    database.executemany(EVENT, ((contact, name, amount, at, at) for at, contact, name, amount in sorted(events)))
    database.execute("COMMIT")
    database.close()


def list_children(pid: int) -> list[int]:
    """Return the process ids of the children of a process that replay a flow."""
    children = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"replay-flow" in (path / "cmdline").read_bytes():
                children.append(int(path.name))
        except (OSError, ValueError, IndexError):
            continue
    return children


def measure(server: Server, flow_id: int) -> None:
    """Replay a flow with another wait, and print its rate, the processor time, and how long requests took meanwhile."""
    api = server.client(validate=False, keep_alive=True)
    steps = api.get(f"/flows/{flow_id}").expect(200)["steps"]
    steps[0]["duration"] = 10_800
    started_at = time.perf_counter()
    api.post(f"/flows/{flow_id}/replay", {"steps": steps}).expect(202)
    reads, writes, used, peak = [], [], 0.0, 0
    while (replay := api.get(f"/flows/{flow_id}/replay").expect(200))["state"] in ("waiting", "running"):
        for child in list_children(server.pid):
            try:
                used, peak = max(used, cpu_seconds(child)), max(peak, memory(child)["VmHWM"])
            except (OSError, KeyError):
                continue
        before = time.perf_counter()
        api.get("/contacts").expect(200)
        between = time.perf_counter()
        api.post("/events", {"event": "seen", "contact_id": 1}).expect(201)
        reads.append((between - before) * 1000)
        writes.append((time.perf_counter() - between) * 1000)
        time.sleep(0.2)
    seconds, result = time.perf_counter() - started_at, replay["result"]
    runs = result["draft"]["entered"] + result["live"]["entered"]
    print(
        f"{runs} runs in {seconds:.1f} s = {runs / seconds:.0f} runs/s; {used:.1f} s of processor in the child = "
        f"{runs / max(used, 0.01):.0f} runs/s; child {peak // 1024} MB at most; messages "
        f"{result['draft']['emails']} and {result['live']['emails']}; meanwhile GET /contacts median "
        f"{statistics.median(reads):.1f} ms, worst {max(reads):.0f} ms; POST /events median "
        f"{statistics.median(writes):.1f} ms, worst {max(writes):.0f} ms"
    )


def main() -> None:
    """Prepare a server and measure one replay."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    contacts = parser.parse_args().runs // 2
    with Server(env=UNLIMITED).set_up() as server:
        server.client().get("/account").expect(200)
        server.stop()
        bulk_contacts.insert_contacts(server.data / "campanero.db", contacts)
        write_past(server.data / "campanero.db", contacts)
        server.start()
        flow = {"name": "Carts", "trigger": {"event": "cart_add"}, "goal": "order", "steps": STEPS, "status": "active"}
        measure(server, server.client(validate=False).post("/flows", flow).expect(201)["id"])


if __name__ == "__main__":
    main()
