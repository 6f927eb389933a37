"""F11 to F13, A11: the disk is full, cannot be written, or is locked; nothing leaves, nothing is lied about (P9)."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.client import Client, Response
from tests.kit.disk import CannotMount, fill, free_bytes, small_disk, unwritable
from tests.kit.recipients import UNLIMITED, completed, crowd, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.uploads import upload

CONNECTIONS = 4
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 MB."""
    try:
        with small_disk(tmp_path / "disk", 200) as at:
            yield at
    except CannotMount as error:
        pytest.skip(f"no small disk can be mounted: {error}")


def one_click(api: Client, link: str) -> Response:
    """Opt out as a mailbox does."""
    return api.request("POST", urlsplit(link).path, b"List-Unsubscribe=One-Click", FORM)


def refuses(server: Server, path: str, link: str) -> None:
    """Check that nothing is written or claimed to be, and that what is there can be read."""
    api = server.client(validate=False)
    for answer in (
        api.post("/contacts", {"email": "late@crowd.example"}),
        api.post("/messages", {"to": "late@crowd.example", "subject": "s", "body": "b"}),
        api.get("/healthz"),
    ):
        assert (answer.status, answer.json["code"]) == (503, "storage_unavailable"), answer.text
        assert int(answer.headers["Retry-After"]) > 0
    kept = upload(api, "email\nlate@crowd.example\n")
    assert (kept.status, kept.json["code"]) == (503, "storage_unavailable")
    refused = one_click(api, link)
    assert refused.status == 503 and int(refused.headers["Retry-After"]) > 0
    assert api.request("GET", urlsplit(link).path).status == 200
    assert api.get(path).expect(200)["status"] == "active"
    assert len(api.get("/contacts", limit=5).expect(200)) == 5


def silence(sink: SmtpServer, seconds: float = 2.0) -> int:
    """Return how many messages arrive within so many seconds, and check that none does in the second after them."""
    before = len(sink.messages)
    time.sleep(seconds)
    after = len(sink.messages)
    time.sleep(1.0)
    assert len(sink.messages) == after, "messages leave though what becomes of them cannot be written"
    return after - before


def recovered(server: Server, sink: SmtpServer, link: str, timeout: float = 15) -> float:
    """Let mail be taken as fast as it comes, wait until an opt-out is written, and return the seconds that took."""
    begun = time.monotonic()
    api = server.client(validate=False)
    sink.rules.clear()
    while one_click(api, link).status != 200:
        assert time.monotonic() - begun < timeout, server.output
        time.sleep(0.1)
    assert api.get("/healthz").status == 200
    return time.monotonic() - begun


def unsubscribe_link(sink: SmtpServer) -> str:
    """Return the link of the first who got the mail."""
    found = re.search("<(.+)>", sink.messages[0].header("List-Unsubscribe") or "")
    assert found
    return found[1]


def sending(server: Server, sink: SmtpServer, count: int, at: int) -> str:
    """Send to a crowd, wait until so many have it, and return the path of the campaign."""
    sink.rules.delay("body", 0.02)
    path = send(server.client(validate=False), crowd(server.client(validate=False), count))
    sink.wait_for(at)
    return path


def test_a_full_disk_stops_sending_until_there_is_room(
    fresh_server: FreshServer, smtp_server: SmtpServer, disk: Path, figures: Figures
) -> None:
    """Filled in the middle of a send: at most what is in hand leaves, writes answer 503; freed, all goes on."""
    server = fresh_server(relay=smtp_server.port, data=disk / "data", env=UNLIMITED)
    path = sending(server, smtp_server, 1_000, 200)
    filler = fill(disk)
    more = silence(smtp_server)
    refuses(server, path, unsubscribe_link(smtp_server))
    filler.unlink()
    took = recovered(server, smtp_server, unsubscribe_link(smtp_server))
    api = server.client(validate=False)
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, left_after_full=more, recovered_after=f"{took:.1f} s")
    server.stop()

    assert (books.accepted, books.missing, books.uncertain) == (1_000, 0, 0)
    assert books.copies <= CONNECTIONS
    here = apsw.Connection(str(disk / "data" / "campanero.db"))
    assert here.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_what_was_in_hand_is_recorded_in_the_reserve(
    fresh_server: FreshServer, smtp_server: SmtpServer, disk: Path, figures: Figures
) -> None:
    """Messages that a server has when the disk fills up are written down all the same: no kill makes copies of them.

    The service starts on the full disk too, for those who read, and goes on when there is room.
    """
    gate = smtp_server.rules.store_then_hold()
    server = fresh_server(relay=smtp_server.port, data=disk / "data", env=UNLIMITED)
    path = send(server.client(validate=False), crowd(server.client(validate=False), 100))
    smtp_server.wait_for(CONNECTIONS)
    reserve = disk / "data" / "reserve"
    assert reserve.stat().st_size == 16 * 1_048_576
    filler = fill(disk)
    server.wait_for_line("disk of the data directory is full")
    assert not reserve.exists()
    fill(disk, leave=900_000)
    gate.release()
    api = server.client(validate=False)
    api.wait(path, lambda row: row["stats"]["sent"] == CONNECTIONS)
    refuses(server, path, unsubscribe_link(smtp_server))
    server.kill()
    fill(disk)
    smtp_server.rules.clear()
    api = server.start().client(validate=False)
    refuses(server, path, unsubscribe_link(smtp_server))
    filler.unlink()
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, kills=1)

    assert (books.accepted, books.copies, books.missing) == (100, 0, 0)
    assert reserve.stat().st_size == 16 * 1_048_576


def test_a_disk_that_is_nearly_full_stops_only_the_sending(
    fresh_server: FreshServer, smtp_server: SmtpServer, disk: Path, figures: Figures
) -> None:
    """Below a twentieth of the disk nothing is sent, while opt-outs are taken; above it all goes on."""
    server = fresh_server(relay=smtp_server.port, data=disk / "data", env=UNLIMITED)
    path = sending(server, smtp_server, 600, 100)
    filler = fill(disk, leave=9_500_000)
    more = silence(smtp_server)
    api = server.client(validate=False)
    assert free_bytes(disk) > 1_048_576
    assert one_click(api, unsubscribe_link(smtp_server)).status == 200
    assert api.get("/healthz").status == 200
    filler.unlink()
    smtp_server.rules.clear()
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, left_after_low=more)

    assert (books.accepted, books.copies, books.missing) == (600, 0, 0)


def test_the_least_free_room_can_be_set(fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures) -> None:
    """With a whole disk asked for nothing is sent; started with less, it goes."""
    env = UNLIMITED | {"CAMPANERO_STORAGE__LEAST_FREE_PERCENT": "100", "CAMPANERO_STORAGE__LEAST_FREE_MB": "1000000000"}
    server = fresh_server(relay=smtp_server.port, env=env)
    path = send(server.client(), crowd(server.client(), 20))
    server.wait_for_line("sending stops: less than")
    assert silence(smtp_server, 1.2) == 0
    server.stop()
    server.env["CAMPANERO_STORAGE__LEAST_FREE_PERCENT"] = "0"
    api = server.start().client()
    completed(api, path)
    figures.books(balance(api, path, smtp_server.messages))


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


def test_the_service_ends_though_nothing_can_be_written(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """SIGTERM on a broken disk ends within 30 s, exit 0; what could not be written is in doubt, and comes once more."""
    if not full:
        pytest.skip("takes half a minute; with --full")
    server = relayed()
    path = sending(server, smtp_server, 300, 50)
    with unwritable(server.pid):
        server.wait_for_line("sending stops")
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

    assert answers == [201] and "sending stops" not in server.output
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

    assert 9 < waited < 12
    assert api.get(f"/contacts/{kept}").status == 200
    assert (books.accepted, books.copies, books.missing) == (500, 0, 0)


class locked:
    """Hold the write lock of a database as another program does."""

    def __init__(self, database: Path) -> None:
        self._here = apsw.Connection(str(database))

    def __enter__(self) -> None:
        self._here.set_busy_timeout(5000)
        self._here.execute("BEGIN EXCLUSIVE").fetchall()

    def __exit__(self, *_: object) -> None:
        self._here.execute("ROLLBACK").fetchall()
        self._here.close()
