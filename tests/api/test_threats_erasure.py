"""An erased contact is in no file of the data directory, and data of imports is deleted in time (T21)."""

import os
import re
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.imports.erasing import ErasedPerson
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import import_results, upload, wait_for_import

SECRET, PHONE = "Gesine.Vergessen@example.org", "+442079460777"
FILE = f"""email,first_name,phone,city
{SECRET},Gesinchen,,Bath
other@example.org,Otto,,York
"""


def find_traces(data: Path, *words: str) -> list[str]:
    """Return the files that contain a word, in any case and encoding."""
    results = []
    for path in data.rglob("*"):
        if path.is_file():
            text = path.read_bytes().lower()
            for word in words:
                if any(word.lower().encode(name) in text for name in ("utf-8", "utf-16-le")):
                    results.append(f"{path.relative_to(data)}: {word}")
    return results


def wait_for_erasures(server: Server, timeout: float = 10) -> None:
    """Wait until no erasure is left to do."""
    import apsw

    end = time.monotonic() + timeout
    while time.monotonic() < end:
        database = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
        database.execute("PRAGMA busy_timeout = 5000").fetchall()
        left = database.execute("SELECT count(*) FROM erasure").fetchall()[0][0]
        database.close()
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError("an erasure was not done")


def erase_contact(api: Client, address: str) -> int:
    """Erase the contact with an address and return its id."""
    number = next(row["id"] for row in api.all("/contacts") if address in [c["value"] for c in row["channels"]])
    api.delete(f"/contacts/{number}", erase="true").expect(200)
    return int(number)


WAYS: dict[str, Callable[[Client], None]] = {
    "in another case, encoding and twice": lambda api: import_file(
        api, ("\ufeff" + FILE.replace(SECRET, SECRET.upper()) + FILE.split("\n")[1]).encode("utf-16-le")
    ),
    "a bad row": lambda api: import_file(api, f"email,phone\n{SECRET},12\nfine@example.org,\n"),
    "a row that changes them": lambda api: import_file(api, f"email,first_name\n{SECRET},Gesinchens Neuer\n"),
    "only checked": lambda api: import_file(api, FILE, dry_run=True),
    "a suppression": lambda api: import_file(api, f"address,note\n{SECRET},Gesinchen bat darum\n", "suppressions"),
    "a long row": lambda api: import_file(api, f"email,x\n{SECRET},{'y' * 70_000}\nfine@example.org,\n"),
}  # fmt: skip


def import_file(api: Client, file: str | bytes, resource: str = "contacts", dry_run: bool = False) -> None:
    """Import a file to its end."""
    job = wait_for_import(api, upload(api, file, resource=resource, dry_run=dry_run))
    assert job["status"] == "complete"


def test_an_erased_contact_is_in_no_file(fresh_server: FreshServer) -> None:
    """Uploads, staged rows, results, samples and free database pages contain no trace of the contact."""
    server = fresh_server()
    api = server.client()
    import_file(api, FILE)
    kept = wait_for_import(api, upload(api, "email\nstays@example.org\n"))["id"]
    for way in WAYS.values():
        way(api)
    erase_contact(api, SECRET)
    wait_for_erasures(server)

    numbers = sorted(row["id"] for row in api.all("/imports"))
    assert len(numbers) == len(WAYS) + 2
    for number in set(numbers) - {kept}:
        gone = api.get(f"/imports/{number}/results.csv")
        assert gone.status == 404 and "erased" in gone.json["message"], number
    for job in api.all("/imports"):
        shown = str(job["columns"])
        assert SECRET.lower() not in shown.lower() and "Gesinchen" not in shown
    assert [row["result"] for row in import_results(api, kept)] == ["created"]
    assert api.get("/contacts", search="other").json[0]["first_name"] == "Otto"
    server.stop()
    assert find_traces(server.data, SECRET, "Gesinchen") == []


@pytest.mark.parametrize(
    ("encoding", "form"),
    [*((encoding, form) for encoding in ("utf-8", "utf-16-le", "utf-16-be") for form in ("NFC", "NFD")),
     ("cp1252", "NFC")],
)  # fmt: skip
def test_the_finder_of_erased_addresses(encoding: str, form: str) -> None:
    """It finds an address in any case, Unicode form and encoding, and no similar address."""
    gone = ErasedPerson(1, 1, 1, [("email", "über.straße@example.org", "Über.Straße@example.org")], 0)
    other = ErasedPerson(1, 1, 1, [("email", "почта@example.org", "почта@example.org")], 0)
    for spelling in ("ÜBER.STRAßE@EXAMPLE.ORG", "über.straße@example.org", "üBer.Straße@Example.org"):
        raw = unicodedata.normalize(form, f"a,{spelling},b").encode(encoding).lower()
        assert gone.finder()(raw), spelling
        assert not other.finder()(raw)
    assert not gone.finder()("über.strasse@example.org,uber.straße@example.org".encode(encoding).lower())


def test_an_erased_non_ascii_address_is_in_no_file(fresh_server: FreshServer) -> None:
    """A file with the address in capitals and decomposed is deleted too."""
    server = fresh_server()
    api = server.client()
    job = wait_for_import(
        api, upload(api, f"email,first_name\n{unicodedata.normalize('NFD', 'ÜBER@EXAMPLE.ORG')},Gesinchen\n")
    )
    erase_contact(api, "ÜBER@example.org")
    wait_for_erasures(server)
    assert api.get(f"/imports/{job['id']}/results.csv").status == 404
    server.stop()
    assert find_traces(server.data, "Gesinchen", "BER@EXAMPLE.ORG") == []


def test_no_trace_while_the_service_runs(fresh_server: FreshServer) -> None:
    """Captured mail, events, failed rows and the write-ahead log are clean without a restart."""
    server = fresh_server()
    api = server.client()
    import_file(api, FILE)
    sent = api.post("/messages", {"to": SECRET, "subject": "Gesinchen!", "body": "<p>Gesinchen</p>"}).expect(201)
    api.wait(f"/messages/{sent['id']}", lambda row: row["status"] == "sent")
    api.post("/events", {"event": "bought", "contact_email": SECRET, "data": {"for": "Gesinchen"}}).expect(201)
    assert find_traces(server.data, SECRET, "Gesinchen") != []
    erase_contact(api, SECRET)
    wait_for_erasures(server)
    end = time.monotonic() + extend_timeout(5)
    while (left := find_traces(server.data, SECRET, "Gesinchen")) and time.monotonic() < end:
        time.sleep(0.2)
    assert left == []


def test_test_emails_with_an_erased_contact_are_emptied(fresh_server: FreshServer) -> None:
    """The values of the contact are removed from a test email to a colleague; its row in the ledger stays."""
    server = fresh_server()
    api = server.client()
    person = api.post("/contacts", {"email": SECRET, "first_name": "Gesinchen"}).expect(201)["id"]
    body = {"subject": "For {{ contact.first_name }}", "body": "<p>{{ contact.first_name }} {{ data.code }}</p>",
            "preheader": "Look"}  # fmt: skip
    template = api.post("/templates", body).expect(201)["id"]
    asked = {"email": "colleague@example.org", "contact_id": person, "data": {"code": "Gesinchens Kram"}}
    result = api.post(f"/templates/{template}/send_test", asked).expect(200)["results"][0]["message_id"]
    api.wait(f"/messages/{result}", lambda row: row["status"] == "sent")
    assert find_traces(server.data, "Gesinchen") != []

    api.delete(f"/contacts/{person}", erase="true").expect(200)
    wait_for_erasures(server)
    row = api.get(f"/messages/{result}").expect(200)
    assert (row["to"], row["status"], row["subject"]) == ("colleague@example.org", "sent", None)
    server.stop()
    assert find_traces(server.data, SECRET, "Gesinchen") == []
    texts = "SELECT subject, body, preheader, design, data, shown_as FROM message_content"
    assert select_all(server, texts) == [(None, None, None, None, "{}", None)]
    assert select_all(server, "SELECT count(*) FROM captured_message") == [(0,)]


def test_an_erased_phone_is_in_no_file(fresh_server: FreshServer) -> None:
    """Files with the number in another format are deleted too."""
    server = fresh_server()
    api = server.client()
    import_file(api, f"email,phone,first_name\n{SECRET},+44 (20) 7946-0777,Gesinchen\n")
    import_file(api, "phone,first_name\n+44 20 7946 0777,Gesinchen\nx,\n")
    erase_contact(api, SECRET)
    wait_for_erasures(server)
    server.stop()
    assert find_traces(server.data, SECRET, "Gesinchen", PHONE, "7946 0777", "7946-0777") == []


def test_an_import_does_not_restore_an_erased_contact(fresh_server: FreshServer) -> None:
    """A contact erased during an import does not exist after it, even if the process is killed."""
    server = fresh_server()
    api = server.client()
    api.post("/contacts", {"email": SECRET, "first_name": "Gesinchen"}).expect(201)
    lines = [f"p{number}@example.org,P{number}" for number in range(6_000)]
    lines.insert(3_000, f"{SECRET},Gesinchen")
    job = upload(api, "email,first_name\n" + "\n".join(lines) + "\n").expect(201)["id"]
    erase_contact(api, SECRET)
    server.kill()
    server.start()
    end = api.wait(f"/imports/{job}", lambda row: row["status"] not in ("pending", "processing"), 60)
    assert (end["status"], end["processed"]) == ("complete", 6_001)
    wait_for_erasures(server)
    assert api.get("/contacts", search="gesine").json == []
    assert int(api.get("/contacts", limit=1).headers["X-Total-Count"]) == 6_000
    server.stop()
    assert find_traces(server.data, SECRET, "Gesinchen") == []


def test_undo_of_an_import_expires_after_a_day(fresh_server: FreshServer, clock: TestClock) -> None:
    """After 24 hours an import cannot be undone, and the error says why."""
    server = fresh_server(clock=clock)
    api = server.client()
    late, early = (wait_for_import(api, upload(api, f"email\n{name}@example.org\n")) for name in ("late", "early"))
    assert late["undo_until"] > late["completed_at"]
    clock.advance(hours=23, minutes=59)
    api.post(f"/imports/{early['id']}/undo").expect(200)
    api.wait(f"/imports/{early['id']}", lambda row: row["phase"] == "undone")
    clock.advance(minutes=2)
    error = api.post(f"/imports/{late['id']}/undo").expect(422)
    assert error["reason"] == "invalid_transition" and "24 hours" in error["message"], error
    assert [row["channels"][0]["value"] for row in api.all("/contacts")] == ["late@example.org"]
    twice = api.post(f"/imports/{early['id']}/undo").expect(422)
    assert "undone" in twice["message"] and "24 hours" not in twice["message"]


def select_all(server: Server, sql: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query on the database of a server."""
    import apsw

    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.set_busy_timeout(5_000)
    result = connection.execute(sql).fetchall()
    connection.close()
    return result


@pytest.mark.full
def test_import_files_are_deleted_after_a_week(fresh_server: FreshServer, clock: TestClock) -> None:
    """After a week upload, staged rows and results are deleted without another import."""
    server = fresh_server(clock=clock)
    api = server.client()
    job = wait_for_import(api, upload(api, FILE))["id"]
    home = server.data / "imports" / str(job)
    assert (home / "upload").exists() and len(import_results(api, job)) == 2
    clock.advance(hours=25)
    time.sleep(2.5)
    assert api.get(f"/imports/{job}/results.csv").status == 200
    clock.advance(days=4)
    time.sleep(2.5)
    days = 5
    while home.exists() and days < 20:
        # The clock of the test does not change the modification time of directories
        os.utime(home, (time.time() - 7200, time.time() - 7200))
        clock.advance(days=1)
        days += 1
        time.sleep(1.2)
    assert 7 <= days <= 9
    gone = api.get(f"/imports/{job}/results.csv")
    assert gone.status == 404 and re.search("7 days", gone.json["message"])
    deadline = time.monotonic() + 60
    while select_all(server, "SELECT count(*) FROM import_chunk") != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    server.stop()


def test_undo_data_is_deleted_after_a_day(fresh_server: FreshServer, clock: TestClock) -> None:
    """The previous values are stored as long as the import can be undone."""
    server = fresh_server(clock=clock)
    api = server.client()
    import_file(api, FILE)
    clock.advance(hours=25)
    time.sleep(2.5)
    server.stop()
    assert select_all(server, "SELECT count(*), count(before) FROM import_chunk") == [(1, 0)]


def test_a_flow_contains_no_trace_of_an_erased_contact(fresh_server: FreshServer) -> None:
    """The run ends without its data, and the counts of the flow stay."""
    server = fresh_server()
    api = server.client()
    import_file(api, FILE)
    steps = [
        {"subject": "For {{ event.who }}", "body": "<p>{{ event.who }}</p>"},
        {"event_name": "asked_twice", "forward_event_data": True}, {"duration": 3600},
    ]  # fmt: skip
    body = {"name": "Bought", "trigger": {"event": "bought"}, "steps": steps, "status": "active"}
    flow = f"/flows/{api.post('/flows', body).expect(201)['id']}"
    api.post("/events", {"event": "bought", "contact_email": SECRET, "data": {"who": "Gesinchen"}}).expect(201)
    (run,) = api.wait(f"{flow}/runs", lambda rows: len(rows) == 1, step=3, outcome="waiting")
    message = api.get(f"{flow}/runs/{run['id']}").expect(200)["history"][0]["message_id"]
    api.wait(f"/messages/{message}", lambda row: row["status"] == "sent")
    erase_contact(api, SECRET)
    wait_for_erasures(server)

    left = api.get(f"{flow}/runs/{run['id']}").expect(200)
    assert (left["status"], left["exit_reason"], left["contact_id"]) == ("exited", "contact_deleted", None)
    assert left["event_data"] == {} and [visit["outcome"] for visit in left["history"]] == ["on", "on", "exited"]
    stats = api.get(flow).expect(200)["stats"]
    assert (stats["entered"], stats["exited"], stats["sent"]) == (1, 1, 1)
    server.stop()
    assert find_traces(server.data, SECRET, "Gesinchen") == []
