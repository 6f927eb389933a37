"""Measures list pages with many contacts while reports are followed: `python -m benchmarks.bench_ui [--tabs 10]`.

Run by hand. Pages are asked for one after the other by somebody signed in, first alone and then while so many tabs
poll the report of a campaign that is sending, as the pages themselves do.
"""

import argparse
import re
import threading
import time
from collections.abc import Callable

from benchmarks.bench_report import late
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import report_stolen_cpu_at_exit

PAGES = ("/", "/contacts", "/contacts?search=anna", "/contacts?page=40", "/lists", "/lists/1", "/campaigns",
         "/campaigns/1", "/campaigns/1/people", "/outbox", "/activity", "/segments", "/flows")  # fmt: skip
_POLL_SECONDS = 2.0


class Visitor:
    """A signed-in user without a browser; each request uses a new connection."""

    def __init__(self, server: Server) -> None:
        self._api = Client(server.url, validate=False)
        form = f"email={EMAIL}&password={PASSWORD}".replace(" ", "+").replace("@", "%40").encode()
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        answer = self._api.request("POST", "/login", form, headers)
        self._headers = {"Cookie": str(answer.headers["set-cookie"]).partition(";")[0]}

    def get(self, path: str, **headers: str) -> float:
        """Request a page and return the seconds."""
        started_at = time.perf_counter()
        answer = self._api.request("GET", path, None, self._headers | headers)
        assert answer.status == 200, (path, answer.status)
        return time.perf_counter() - started_at


def measure(visitor: Visitor, times: int) -> None:
    """Request each page so many times and print the times."""
    for path in PAGES:
        visitor.get(path)
        times_ = [visitor.get(path) for _ in range(times)]
        print(f"  {path:28} {late(times_)}", flush=True)


def followed(visitor: Visitor, tabs: int, stop: threading.Event) -> tuple[list[threading.Thread], list[float]]:
    """Poll the report in so many tabs until stopped; return the threads and the time of each poll."""
    took: list[float] = []

    def follow(first: float) -> None:
        stop.wait(first)
        while not stop.is_set():
            took.append(visitor.get("/campaigns/1/live", **{"hx-request": "true", "hx-target": "div#live"}))
            took.append(visitor.get("/campaigns/1", **{"hx-request": "true", "hx-target": "div#figures"}))
            stop.wait(_POLL_SECONDS)

    target: Callable[[float], None] = follow
    threads = [threading.Thread(target=target, args=(_POLL_SECONDS * index / tabs,)) for index in range(tabs)]
    for thread in threads:
        thread.start()
    return threads, took


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser()
    parser.add_argument("--contacts", type=int, default=100_000)
    parser.add_argument("--tabs", type=int, default=10)
    parser.add_argument("--times", type=int, default=40)
    options = parser.parse_args()
    with SmtpServer() as post, Server(relay=post.port).set_up() as server:
        server.set_postal_address()
        server.stop()
        insert_contacts(server.data / "campanero.db", options.contacts)
        server.start()
        visitor, api = Visitor(server), server.client()
        content = {"subject": "News", "body": "<p>Hello</p>", "from_email": "ana@example.com"}
        body = {"name": "Large", "trigger_attributes": {"contact_list_id": 1}, "template_attributes": content}
        campaign = api.post("/campaigns", body).expect(201)["id"]
        api.post(f"/campaigns/{campaign}/send").expect(200)
        api.wait(f"/campaigns/{campaign}", lambda row: row["stats"]["accepted"] > 100)
        stop = threading.Event()
        threads, took = followed(visitor, options.tabs, stop)
        print(f"{options.contacts} contacts, sending, {options.tabs} tabs that follow:", flush=True)
        measure(visitor, options.times)
        stop.set()
        for thread in threads:
            thread.join()
        print(f"  {'the polls themselves':28} {late(took)}, {len(took)} of them")
        api.post(f"/campaigns/{campaign}/pause").expect(200)
        time.sleep(2)
        print("alone, nothing sending:", flush=True)
        measure(visitor, options.times)
        log = "\n".join(server.lines)
        assert not re.search(r"Traceback", log), log[-2000:]


if __name__ == "__main__":
    main()
