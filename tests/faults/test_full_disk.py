"""A full or nearly full disk: sending stops, and nothing is acknowledged that is not stored (P9)."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.faults.trouble import (
    CONNECTIONS,
    check_writes_fail,
    count_late_messages,
    one_click,
    start_sending,
    unsubscribe_link,
    wait_for_recovery,
)
from tests.kit.disk import CannotMount, fill_disk, free_bytes, small_disk
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 MB."""
    try:
        with small_disk(tmp_path / "disk", 200) as path:
            yield path
    except CannotMount as error:
        pytest.skip(f"no small disk can be mounted: {error}")


def test_a_full_disk_stops_sending(
    fresh_server: FreshServer, smtp_server: SmtpServer, disk: Path, figures: Figures
) -> None:
    """On a full disk only open messages leave and writes return 503; with space again sending resumes."""
    server = fresh_server(relay=smtp_server.port, data=disk / "data", env=NO_RATE_LIMITS)
    path = start_sending(server, smtp_server, 1_000, 200)
    filler = fill_disk(disk)
    sent_later = count_late_messages(smtp_server)
    check_writes_fail(server, path, unsubscribe_link(smtp_server))
    filler.unlink()
    seconds = wait_for_recovery(server, smtp_server, unsubscribe_link(smtp_server))
    api = server.client(validate=False)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, left_after_full=sent_later, recovered_after=f"{seconds:.1f} s")
    server.stop()

    assert (books.accepted, books.missing, books.uncertain) == (1_000, 0, 0)
    assert books.copies <= 2 * CONNECTIONS
    connection = apsw.Connection(str(disk / "data" / "campanero.db"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_the_reserve_records_messages_in_flight(
    fresh_server: FreshServer, smtp_server: SmtpServer, disk: Path, figures: Figures
) -> None:
    """Messages in flight when the disk fills up are recorded, so that a kill makes no copies.

    The service also starts on the full disk, read-only, and resumes once there is space.
    """
    gate = smtp_server.rules.store_then_hold()
    server = fresh_server(relay=smtp_server.port, data=disk / "data", env=NO_RATE_LIMITS)
    path = send_campaign(server.client(validate=False), create_list(server.client(validate=False), 100))
    smtp_server.wait_for(CONNECTIONS)
    reserve = disk / "data" / "reserve"
    assert reserve.stat().st_size == 16 * 1_048_576
    filler = fill_disk(disk)
    server.wait_for_line("sending stopped: .* full")
    assert not reserve.exists()
    fill_disk(disk, leave=900_000)
    gate.release()
    api = server.client(validate=False)
    # Those that were claimed behind the messages in flight may leave too.
    api.wait(path, lambda row: CONNECTIONS <= row["stats"]["sent"] <= 2 * CONNECTIONS)
    check_writes_fail(server, path, unsubscribe_link(smtp_server))
    server.kill()
    fill_disk(disk)
    smtp_server.rules.clear()
    api = server.start().client(validate=False)
    check_writes_fail(server, path, unsubscribe_link(smtp_server))
    filler.unlink()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, kills=1)

    assert (books.accepted, books.copies, books.missing) == (100, 0, 0)
    assert reserve.stat().st_size == 16 * 1_048_576


@pytest.mark.full
def test_a_nearly_full_disk_stops_only_sending(
    fresh_server: FreshServer, smtp_server: SmtpServer, disk: Path, figures: Figures
) -> None:
    """Below 5 % of free space nothing is sent, but opt-outs are stored; above it sending resumes."""
    server = fresh_server(relay=smtp_server.port, data=disk / "data", env=NO_RATE_LIMITS)
    path = start_sending(server, smtp_server, 600, 100)
    filler = fill_disk(disk, leave=9_500_000)
    sent_later = count_late_messages(smtp_server)
    api = server.client(validate=False)
    assert free_bytes(disk) > 1_048_576
    assert one_click(api, unsubscribe_link(smtp_server)).status == 200
    assert api.get("/healthz").status == 200
    filler.unlink()
    smtp_server.rules.clear()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, left_after_low=sent_later)

    assert (books.accepted, books.copies, books.missing) == (600, 0, 0)


def test_the_minimum_of_free_space_is_a_setting(
    fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures
) -> None:
    """With a minimum above the free space nothing is sent and the campaign says why; with a lower one it is sent."""
    env = NO_RATE_LIMITS | {
        "CAMPANERO_STORAGE__LEAST_FREE_PERCENT": "100",
        "CAMPANERO_STORAGE__LEAST_FREE_MB": "1000000000",
    }
    server = fresh_server(relay=smtp_server.port, env=env)
    path = send_campaign(server.client(), create_list(server.client(), 20))
    server.wait_for_line("sending stopped: less than")
    assert count_late_messages(smtp_server, 1.2) == 0
    waiting, status = (
        server.client().get(path).expect(200)["waiting"],
        server.client().get("/delivery/status").expect(200),
    )
    assert waiting["reason"] == "storage" and status["storage"] == {"ok": False, "text": waiting["text"]}
    server.stop()
    server.env["CAMPANERO_STORAGE__LEAST_FREE_PERCENT"] = "0"
    api = server.start().client()
    wait_until_completed(api, path)
    figures.books(reconcile(api, path, smtp_server.messages))
