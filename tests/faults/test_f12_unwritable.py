"""The disk cannot be written, or another process has it locked; nothing leaves, all goes on alone."""

import threading
import time

import pytest

from tests.faults.conftest import Figures, Relayed
from tests.faults.trouble import (
    CONNECTIONS,
    FORM,
    locked,
    recovered,
    refuses,
    sending,
    silence,
    unsubscribe_link,
)
from tests.kit.books import balance
from tests.kit.clock import TestClock
from tests.kit.disk import unwritable
from tests.kit.patience import soon
from tests.kit.recipients import completed, crowd, send
from tests.kit.server import EMAIL, PASSWORD
from tests.kit.smtp import SmtpServer


def test_a_disk_that_cannot_be_written_stops_sending_until_it_can(
    relayed: Relayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """Every write of the process fails in the middle of a send: as with a full disk, and it recovers by itself."""
    server = relayed()
    path = sending(server, smtp_server, 1_000, 200)
    with unwritable(server.pid):
        more = silence(smtp_server)
        refuses(server, path, unsubscribe_link(smtp_server))
    took = recovered(server, smtp_server, unsubscribe_link(smtp_server))
    api = server.client(validate=False)
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, left_after_fault=more, recovered_after=f"{took:.1f} s")

    assert more <= CONNECTIONS
    assert (books.accepted, books.copies, books.missing, books.uncertain) == (1_000, 0, 0, 0)


def test_who_only_looks_is_served(
    relayed: Relayed, smtp_server: SmtpServer, clock: TestClock, figures: Figures
) -> None:
    """Pages and lists answer on a disk that cannot be written, and what is saved there says that it was not."""
    server = relayed(clock)
    api = server.client(validate=False)
    path = send(api, crowd(api, 20))
    completed(api, path)
    form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}".encode()
    signed_in = api.request("POST", "/login", form, FORM | {"Origin": server.url})
    known = FORM | {"Cookie": signed_in.headers["set-cookie"].partition(";")[0], "Origin": server.url}
    clock.advance(hours=2)
    pages = ("/", "/campaigns", path, "/contacts", "/lists", "/templates", "/inbox")
    with unwritable(server.pid):
        server.wait_for_line("sending stopped")
        answers = {page: api.request("GET", page, None, known).status for page in pages}
        saved = api.request("POST", "/contacts", b"email=new@crowd.example", known)
        lists = {page: api.get(page).status for page in ("/contacts", "/campaigns", "/messages", "/events", "/lists")}
    figures.note(size=20, pages=len(pages))

    assert set(answers.values()) | set(lists.values()) == {200}, answers
    assert saved.status == 503 and "Nothing was" in saved.text


def test_the_service_ends_though_nothing_can_be_written(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """SIGTERM on a broken disk ends within 30 s, exit 0; what could not be written is in doubt, and comes once more."""
    if not full:
        pytest.skip("takes half a minute; with --full")
    server = relayed()
    path = sending(server, smtp_server, 300, 50)
    with unwritable(server.pid):
        server.wait_for_line("sending stopped")
        begun = time.monotonic()
        server.stop(expect=0)
        took = time.monotonic() - begun
    smtp_server.rules.clear()
    api = server.start().client(validate=False)
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, stopped_after=f"{took:.1f} s")

    assert took < 30
    assert (books.accepted, books.missing, books.uncertain) == (300, 0, 0) and books.copies <= CONNECTIONS


def test_the_service_ends_though_another_process_has_the_database(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """SIGTERM while all that is written waits for the lock of another process ends within 30 s, exit 0."""
    if not full:
        pytest.skip("takes half a minute; with --full")
    server = relayed()
    api = server.client(validate=False)
    path = sending(server, smtp_server, 300, 50)
    with locked(server.data / "campanero.db"):
        thread = threading.Thread(target=lambda: api.post("/contacts", {"first_name": "waits"}))
        thread.start()
        time.sleep(1)
        begun = time.monotonic()
        server.stop(expect=0)
        took = time.monotonic() - begun
    thread.join(10)
    smtp_server.rules.clear()
    api = server.start().client(validate=False)
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, stopped_after=f"{took:.1f} s")

    assert took < 30
    assert (books.accepted, books.missing, books.uncertain) == (300, 0, 0) and books.copies <= CONNECTIONS


def test_a_lock_of_seconds_is_only_waiting(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Another process locks the database for up to 8 s: whoever writes meanwhile waits, and is served."""
    server = relayed()
    path = sending(server, smtp_server, 500, 100)
    api = server.client(validate=False)
    with locked(server.data / "campanero.db"):
        answers: list[int] = []
        thread = threading.Thread(
            target=lambda: answers.append(api.post("/contacts", {"first_name": "patient"}).status)
        )
        thread.start()
        time.sleep(8 if full else 3)
    thread.join(10)
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books)

    assert answers == [201] and "sending stopped" not in server.output
    assert (books.accepted, books.copies, books.missing) == (500, 0, 0)


def test_a_lock_of_thirty_seconds_is_trouble(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Over 10 s writes answer 503 and nothing leaves; afterwards all goes on, and what was acknowledged is there."""
    server = relayed()
    path = sending(server, smtp_server, 500, 100)
    api = server.client(validate=False)
    kept = api.post("/contacts", {"first_name": "kept"}).expect(201)["id"]
    with locked(server.data / "campanero.db"):
        begun = time.monotonic()
        assert api.post("/contacts", {"first_name": "late"}).status == 503
        waited = time.monotonic() - begun
        silence(smtp_server, 0.5)
        assert api.get("/healthz").status == 503
        assert api.get(path).status == 200
        time.sleep(max(0.0, (30 if full else 12) - (time.monotonic() - begun)))
    recovered(server, smtp_server, unsubscribe_link(smtp_server))
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, refused_after=f"{waited:.1f} s")

    assert 9 < waited < soon(12)
    assert api.get(f"/contacts/{kept}").status == 200
    assert (books.accepted, books.copies, books.missing) == (500, 0, 0)
