"""The counters of flows stay correct under concurrent changes and a kill."""

import random
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

import apsw

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server

STEPS: list[dict[str, Any]] = [
    {"duration": 1},
    {
        "filters": [{"name": "contact_tag", "predicate": "eq", "value": "vip"}],
        "yes": [{"subject": "Hello", "body": "<p>Hi</p>"}], "no": [{"duration": 600}],
    },
    {"event_name": "went_by"}, {"duration": 1}, {"type": "exit"},
]  # fmt: skip
WAITS = (1, 4, 6)
THREADS, PEOPLE = 3, 30


class _Worker:
    """A thread that changes flows and their contacts at random until the service is gone."""

    def __init__(self, api: Client, flows: list[int], people: list[int], seed: int, acts: int) -> None:
        self.api, self.flows, self.people, self.dice, self.acts = api, flows, people, random.Random(seed), acts
        self.failed: list[str] = []
        self.done = 0

    def work(self) -> None:
        """Act up to `acts` times, or until the service is gone."""
        acts: list[Callable[[str, int], Any]] = [
            self._enroll, self._enroll, self._bulk, self._bulk, self._act_on_run,
            self._change_status, self._tag, self._buy, self._delete_or_merge,
        ]  # fmt: skip
        for _ in range(self.acts):
            try:
                response = self.dice.choice(acts)(
                    f"/flows/{self.dice.choice(self.flows)}", self.dice.choice(self.people)
                )
            except (OSError, HTTPException):
                return
            self.done += 1
            if response.status >= 500:
                self.failed.append(response.text)

    def _enroll(self, flow: str, _: int) -> Any:
        return self.api.post(f"{flow}/enroll", {"contact_ids": self.dice.sample(self.people, 15)})

    def _bulk(self, flow: str, _: int) -> Any:
        act = self.dice.choice(("move_on", "move_on", "take_out"))
        return self.api.post(f"{flow}/runs/{act}", {"step": self.dice.choice(WAITS)})

    def _act_on_run(self, flow: str, person: int) -> Any:
        runs = self.api.get(f"{flow}/runs", contact_id=person, status="live")
        if runs.status != 200 or not runs.json:
            return runs
        return self.api.post(f"{flow}/runs/{runs.json[0]['id']}/{self.dice.choice(('move_on', 'take_out'))}")

    def _change_status(self, flow: str, _: int) -> Any:
        return self.api.post(f"{flow}/{self.dice.choice(('pause', 'activate', 'activate'))}")

    def _tag(self, _: str, person: int) -> Any:
        return self.api.patch(f"/contacts/{person}", {"data": {"tags": self.dice.sample(["vip", "new", "old"], 2)}})

    def _buy(self, _: str, person: int) -> Any:
        return self.api.post("/events", {"event": "bought", "contact_id": person})

    def _delete_or_merge(self, _: str, person: int) -> Any:
        if self.dice.random() < 0.5:
            return self.api.delete(f"/contacts/{person}")
        return self.api.post(f"/contacts/{person}/merge", {"contact_id": self.dice.choice(self.people)})


def run_workers(server: Server, flows: list[int], people: list[int], seed: int, acts: int, kill: bool) -> None:
    """Run several workers at once; the service may be killed meanwhile."""
    workers = [_Worker(server.client(), flows, people, seed * 10 + number, acts) for number in range(THREADS)]
    threads = [threading.Thread(target=worker.work) for worker in workers]
    for thread in threads:
        thread.start()
    if kill:
        while sum(worker.done for worker in workers) < acts and any(thread.is_alive() for thread in threads):
            time.sleep(0.005)
        server.kill()
    for thread in threads:
        thread.join()
    assert [worker.failed for worker in workers] == [[]] * THREADS


def test_flow_counters_stay_correct(fresh_server: FreshServer, seed: int, full: bool) -> None:
    """After concurrent changes and a kill all counters match the rows, and each run has one start and one end event."""
    server = fresh_server()
    api = server.client()
    tagged = {"event": "tag_add", "data": {"frequency": "every_time"}}
    body = {"goal": "bought", "trigger": tagged, "steps": STEPS, "status": "active"}
    flows = [api.post("/flows", {**body, "name": f"Flow {number}"}).expect(201)["id"] for number in range(2)]
    people = [
        api.post("/contacts", {"email": f"p{number}@example.org", "data": {"tags": ["vip"][: number % 2]}}).json["id"]
        for number in range(PEOPLE)
    ]
    for flow in flows:
        api.post(f"/flows/{flow}/enroll", {"contact_ids": people}).expect(200)
    run_workers(server, flows, people, seed, 200 if full else 15, kill=True)
    server.start()
    run_workers(server, flows, people, seed + 100, 200 if full else 15, kill=False)
    lines = server.cli("doctor").stdout
    assert "flows: the counters of 2 flows are correct" in lines, lines
    for flow in flows:
        report = server.client().get(f"/flows/{flow}/report").expect(200)
        stats, runs = report["stats"], report["runs"]
        assert (stats["entered"], stats["active"]) == (runs["entered"]["count"], runs["active"]["count"])
        assert stats["entered"] > 5
    connection = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    # In one query, since runs still move
    started, entered, ended, exited = connection.execute(
        "SELECT (SELECT count(*) FROM event WHERE event = 'flow_enter'), sum(status <> 'ignored'), (SELECT count(*) "
        "FROM event WHERE event = 'flow_exit'), sum(status IN ('completed', 'exited')) FROM run"
    ).fetchall()[0]
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    connection.close()
    assert (started, ended, broken) == (entered, exited, [])
