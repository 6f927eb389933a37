"""A row of the ledger that cannot be written, and a connection with a slow greeting, do not affect other messages."""

import time

import apsw

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.recipients import create_list, recipient_address, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer


def test_an_unwritable_row_affects_no_other(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """If one outcome of a batch violates a constraint, the others are written one by one, and it is uncertain (P3)."""
    count = 300
    server = relayed()
    api = server.client()
    list_id = create_list(api, count)
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.set_busy_timeout(5000)
    connection.execute(
        f"CREATE TRIGGER poison BEFORE UPDATE OF status ON message WHEN new.status = 'sent' "
        f"AND new.recipient = '{recipient_address(150)}' BEGIN SELECT raise(ABORT, 'not this one'); END"
    ).fetchall()
    path = send_campaign(api, list_id)
    api.wait(path, lambda row: row["stats"]["sent"] == count - 1)
    smtp_server.wait_for(count)
    wait_until_completed(api, path)
    assert api.get(path).expect(200)["stats"]["uncertain"] == 1
    connection.execute("DROP TRIGGER poison").fetchall()
    connection.close()
    api = server.restart().client()
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books)

    assert (books.accepted, books.missing, books.copies) == (count - 1, 0, 0)
    assert api.get(path).expect(200)["stats"]["uncertain"] == 1


def test_a_slow_greeting_delays_no_message(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """A message that is waiting for a connection with a slow greeting is sent over another connection."""
    smtp_server.rules.delay("connect", 40, times=1)
    api = relayed(connections="2").client()
    list_id = create_list(api, 40)
    started = time.monotonic()
    path = send_campaign(api, list_id)
    smtp_server.wait_for(40, timeout=30)
    seconds = time.monotonic() - started
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, all_had_it_after=f"{seconds:.1f} s")

    assert seconds < 40
    assert (books.accepted, books.copies, books.missing) == (40, 0, 0)
