"""A disk that cannot be written, or a database locked by another process: sending stops and resumes without help."""

import threading
import time

import pytest

from tests.faults.conftest import Figures, StartRelayed
from tests.faults.trouble import (
    CONNECTIONS,
    FORM,
    check_writes_fail,
    count_late_messages,
    locked,
    start_sending,
    unsubscribe_link,
    wait_for_recovery,
)
from tests.kit.clock import TestClock
from tests.kit.disk import unwritable
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.server import EMAIL, PASSWORD
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout


def test_an_unwritable_disk_stops_sending(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """While all writes fail sending stops; it resumes without a restart, and no message is lost or copied."""
    server = relayed()
    path = start_sending(server, smtp_server, 1_000, 200)
    with unwritable(server.pid):
        sent_later = count_late_messages(smtp_server)
        check_writes_fail(server, path, unsubscribe_link(smtp_server))
    seconds = wait_for_recovery(server, smtp_server, unsubscribe_link(smtp_server))
    api = server.client(validate=False)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, left_after_fault=sent_later, recovered_after=f"{seconds:.1f} s")

    assert sent_later <= 2 * CONNECTIONS  # those that were claimed before
    assert (books.accepted, books.copies, books.missing, books.uncertain) == (1_000, 0, 0, 0)


def test_reads_work_while_the_disk_is_read_only(
    relayed: StartRelayed, smtp_server: SmtpServer, clock: TestClock, figures: Figures
) -> None:
    """On a disk that cannot be written, pages and lists return 200, and saving a form returns 503 with the reason."""
    server = relayed(clock)
    api = server.client(validate=False)
    path = send_campaign(api, create_list(api, 20))
    wait_until_completed(api, path)
    form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}".encode()
    signed_in = api.request("POST", "/login", form, FORM | {"Origin": server.url})
    headers = FORM | {"Cookie": signed_in.headers["set-cookie"].partition(";")[0], "Origin": server.url}
    clock.advance(hours=2)
    pages = ("/", "/campaigns", path, "/contacts", "/lists", "/templates", "/inbox")
    with unwritable(server.pid):
        server.wait_for_line("sending stopped")
        statuses = {page: api.request("GET", page, None, headers).status for page in pages}
        saved = api.request("POST", "/contacts", b"email=new@crowd.example", headers)
        lists = {page: api.get(page).status for page in ("/contacts", "/campaigns", "/messages", "/events", "/lists")}
    figures.note(size=20, pages=len(pages))

    assert set(statuses.values()) | set(lists.values()) == {200}, statuses
    assert saved.status == 503 and "Nothing was" in saved.text


def test_stopping_on_an_unwritable_disk(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """SIGTERM ends the service within 30 s with exit code 0; outcomes that were not written lead to one copy each."""
    if not full:
        pytest.skip("takes half a minute; with --full")
    server = relayed()
    path = start_sending(server, smtp_server, 300, 50)
    with unwritable(server.pid):
        server.wait_for_line("sending stopped")
        started = time.monotonic()
        server.stop(expect=0)
        seconds = time.monotonic() - started
    smtp_server.rules.clear()
    api = server.start().client(validate=False)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, stopped_after=f"{seconds:.1f} s")

    assert seconds < 30
    assert (books.accepted, books.missing, books.uncertain) == (300, 0, 0) and books.copies <= 2 * CONNECTIONS


def test_stopping_while_the_database_is_locked(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """SIGTERM ends the service within 30 s with exit code 0, though writes wait for another process's lock."""
    if not full:
        pytest.skip("takes half a minute; with --full")
    server = relayed()
    api = server.client(validate=False)
    path = start_sending(server, smtp_server, 300, 50)
    with locked(server.data / "campanero.db"):
        thread = threading.Thread(target=lambda: api.post("/contacts", {"first_name": "waits"}))
        thread.start()
        time.sleep(1)
        started = time.monotonic()
        server.stop(expect=0)
        seconds = time.monotonic() - started
    thread.join(10)
    smtp_server.rules.clear()
    api = server.start().client(validate=False)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, stopped_after=f"{seconds:.1f} s")

    assert seconds < 30
    assert (books.accepted, books.missing, books.uncertain) == (300, 0, 0) and books.copies <= 2 * CONNECTIONS


def test_a_short_lock_delays_writes(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """While another process locks the database for up to 8 s, a write waits and succeeds, and sending does not stop."""
    server = relayed()
    path = start_sending(server, smtp_server, 500, 100)
    api = server.client(validate=False)
    with locked(server.data / "campanero.db"):
        statuses: list[int] = []
        thread = threading.Thread(
            target=lambda: statuses.append(api.post("/contacts", {"first_name": "patient"}).status)
        )
        thread.start()
        time.sleep(8 if full else 3)
    thread.join(10)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books)

    assert statuses == [201] and "sending stopped" not in server.output
    assert (books.accepted, books.copies, books.missing) == (500, 0, 0)


@pytest.mark.full
def test_a_long_lock_stops_sending(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """After 10 s of a lock writes return 503 and sending stops; later it resumes, and acknowledged data is there."""
    server = relayed()
    path = start_sending(server, smtp_server, 500, 100)
    api = server.client(validate=False)
    contact_id = api.post("/contacts", {"first_name": "kept"}).expect(201)["id"]
    with locked(server.data / "campanero.db"):
        started = time.monotonic()
        assert api.post("/contacts", {"first_name": "late"}).status == 503
        waited = time.monotonic() - started
        count_late_messages(smtp_server, 0.5)
        assert api.get("/healthz").status == 503
        assert api.get(path).status == 200
        time.sleep(max(0.0, (30 if full else 12) - (time.monotonic() - started)))
    wait_for_recovery(server, smtp_server, unsubscribe_link(smtp_server))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, refused_after=f"{waited:.1f} s")

    assert 9 < waited < extend_timeout(12)
    assert api.get(f"/contacts/{contact_id}").status == 200
    assert (books.accepted, books.copies, books.missing) == (500, 0, 0)
