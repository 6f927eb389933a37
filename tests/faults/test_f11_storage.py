"""The disk is full, or nearly; nothing leaves, nothing is lied about (P9)."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.faults.trouble import CONNECTIONS, one_click, recovered, refuses, sending, silence, unsubscribe_link
from tests.kit.books import balance
from tests.kit.disk import CannotMount, fill, free_bytes, small_disk
from tests.kit.recipients import UNLIMITED, completed, crowd, send
from tests.kit.smtp import SmtpServer


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 MB."""
    try:
        with small_disk(tmp_path / "disk", 200) as at:
            yield at
    except CannotMount as error:
        pytest.skip(f"no small disk can be mounted: {error}")


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
    server.wait_for_line("sending stopped: .* full")
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
    """With a whole disk asked for nothing is sent, and campaign and status say why; started with less, it goes."""
    env = UNLIMITED | {"CAMPANERO_STORAGE__LEAST_FREE_PERCENT": "100", "CAMPANERO_STORAGE__LEAST_FREE_MB": "1000000000"}
    server = fresh_server(relay=smtp_server.port, env=env)
    path = send(server.client(), crowd(server.client(), 20))
    server.wait_for_line("sending stopped: less than")
    assert silence(smtp_server, 1.2) == 0
    waits, told = server.client().get(path).expect(200)["waiting"], server.client().get("/delivery/status").expect(200)
    assert waits["reason"] == "storage" and told["storage"] == {"ok": False, "text": waits["text"]}
    server.stop()
    server.env["CAMPANERO_STORAGE__LEAST_FREE_PERCENT"] = "0"
    api = server.start().client()
    completed(api, path)
    figures.books(balance(api, path, smtp_server.messages))
