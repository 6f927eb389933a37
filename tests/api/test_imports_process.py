"""Imports while the process is killed, stopped or busy (T20, T21)."""

import os
import signal
import threading
import time
from typing import Any

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.https_clients import wait_until
from tests.kit.process_metrics import list_process_tree, runs_command, wait_until_ended
from tests.kit.server import EMAIL, Server
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import import_results, upload, wait_for_import

PEOPLE = 8_000


def create_file(number: int = PEOPLE) -> str:
    """Return a file in which every fifth line repeats a contact in another case."""
    lines = ["email,first_name,n"]
    for index in range(number):
        name = f"p{index}@example.org" if index % 5 else f"P{index // 2}@EXAMPLE.org\u00a0"
        lines.append(f"{name},N{index},{index}")
    return "\n".join(lines)


def count_contacts(number: int = PEOPLE) -> int:
    """Return the number of contacts in that file."""
    return len({index if index % 5 else index // 2 for index in range(number)})


def wait_until_processed(api: Client, job: int, processed: int) -> dict[str, Any]:
    """Wait until an import has processed more than this number of rows."""
    job_state: dict[str, Any] = api.wait(f"/imports/{job}", lambda row: row["processed"] > processed, 60)
    return job_state


def find_child(server: Server, word: str) -> int:
    """Wait for a child process of a server that runs the command `word`, and return its process id."""
    child_ids: list[int] = []

    def look() -> bool:
        child_ids.extend(pid for pid in list_process_tree(server.pid) if runs_command(pid, word))
        return bool(child_ids)

    wait_until(look)
    return child_ids[0]


@pytest.fixture
def running() -> Any:
    """Yield a new server."""
    with Server().set_up() as server:
        yield server


def test_a_killed_import_is_completed(running: Server) -> None:
    """After SIGKILL while reading and while writing each contact exists once and each line has its result."""
    api = running.client()
    list_id = api.post("/lists", {"name": "All"}).expect(201)["id"]
    job = upload(api, create_file(), list_ids=[list_id]).expect(201)["id"]
    running.kill()
    running.start()
    wait_until_processed(api, job, 1000)
    running.kill()
    running.start()
    end = api.wait(f"/imports/{job}", lambda row: row["status"] not in ("pending", "processing"), 60)

    assert (end["status"], end["total"], end["failed"]) == ("complete", PEOPLE, 0)
    assert (end["created"], end["updated"]) == (count_contacts(), PEOPLE - count_contacts())
    assert int(api.get("/contacts", limit=1).headers["X-Total-Count"]) == count_contacts()
    assert api.get(f"/lists/{list_id}").json["sendable_count"]["email"] == count_contacts()
    assert int(api.get("/events", limit=1, event="contact_add").headers["X-Total-Count"]) == count_contacts()
    lines = import_results(api, job)
    assert [int(row["line"]) for row in lines] == list(range(2, PEOPLE + 2))
    assert {row["result"] for row in lines} == {"created", "updated"}


def test_cancel_and_undo_an_import(running: Server) -> None:
    """A cancelled import stops before its end, and undoing it deletes its contacts."""
    api = running.client()
    job = upload(api, create_file()).expect(201)["id"]
    wait_until_processed(api, job, 500)
    api.post(f"/imports/{job}/cancel").expect(200)
    end = api.wait(f"/imports/{job}", lambda row: row["status"] == "cancelled")

    assert 0 < end["created"] == int(api.get("/contacts", limit=1).headers["X-Total-Count"]) < count_contacts()
    api.post(f"/imports/{job}/undo").expect(200)
    api.wait(f"/imports/{job}", lambda row: row["phase"] == "undone", 30)
    assert api.get("/contacts").json == []


@pytest.mark.full
def test_the_page_of_an_import_cancelled_while_reading(running: Server) -> None:
    """The page says that nothing was imported, and has no link to results."""
    api = running.client()
    job = upload(api, create_file(200_000)).expect(201)["id"]
    wait_until(lambda: any((running.data / "imports").rglob("staging.raw")))
    api.post(f"/imports/{job}/cancel").expect(200)
    api.wait(f"/imports/{job}", lambda row: row["status"] == "cancelled")

    assert count_contacts() > 0 == len(api.get("/contacts").json)
    page = Visitor(running, EMAIL).send("GET", f"/contacts/imports/{job}")
    assert page.status == 200 and "Stopped before anything was imported." in page.text
    assert "/results" not in page.text
    assert api.get(f"/imports/{job}/results").status == 404


@pytest.mark.full
def test_a_stop_interrupts_an_import(running: Server) -> None:
    """SIGTERM ends the process at once, and the next start completes the import."""
    api = running.client()
    job = upload(api, create_file()).expect(201)["id"]
    wait_until_processed(api, job, 500)
    started_at = time.monotonic()
    running.stop()
    assert time.monotonic() - started_at < extend_timeout(2)
    running.start()
    end = api.wait(f"/imports/{job}", lambda row: row["status"] not in ("pending", "processing"), 60)

    assert (end["status"], end["created"]) == ("complete", count_contacts())


def test_cancel_and_stop_do_not_wait_for_the_child_process(running: Server) -> None:
    """A child that reports nothing is ended by Cancel, by SIGTERM of the service, and by its stop."""
    api = running.client()
    job = upload(api, create_file(100_000)).expect(201)["id"]
    child = find_child(running, "read-import")
    os.kill(child, signal.SIGSTOP)
    api.post(f"/imports/{job}/cancel").expect(200)
    begun = time.monotonic()
    api.wait(f"/imports/{job}", lambda row: row["status"] == "cancelled", extend_timeout(1))
    assert wait_until_ended(child) and time.monotonic() - begun < extend_timeout(1)

    upload(api, create_file(100_000)).expect(201)
    child = find_child(running, "read-import")
    os.kill(child, signal.SIGSTOP)
    begun = time.monotonic()
    running.stop()
    assert wait_until_ended(child) and time.monotonic() - begun < extend_timeout(1)


def test_a_child_process_ends_when_the_service_is_killed(running: Server) -> None:
    """It ends in the middle of a file, also while it reports nothing."""
    upload(running.client(), b"email,n\n" + b'"x@example.org\n",\n' * 300_000).expect(201)
    child = find_child(running, "read-import")
    os.kill(running.pid, signal.SIGKILL)
    begun = time.monotonic()
    assert wait_until_ended(child) and time.monotonic() - begun < extend_timeout(0.5)


def test_requests_are_fast_during_an_import(running: Server) -> None:
    """Other requests hardly wait, and a second import waits for the first."""
    api = running.client()
    first = upload(api, create_file()).expect(201)["id"]
    waits: list[float] = []
    over = threading.Event()

    def ask() -> None:
        client = running.client()
        client.validate = False
        while not over.is_set():
            started_at = time.monotonic()
            client.post("/contacts", {"email": "other@example.org"})
            waits.append(time.monotonic() - started_at)
            time.sleep(0.01)

    asking = threading.Thread(target=ask)
    asking.start()
    second = wait_for_import(api, upload(api, "email\nsecond@example.org\n"))
    over.set()
    asking.join()

    assert api.get(f"/imports/{first}").json["status"] == second["status"] == "complete"
    assert sorted(waits)[int(len(waits) * 0.95)] < extend_timeout(0.1)
