"""What the sender does with a row that cannot be written, and with one that waits behind a slow greeting."""

import time

import apsw

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.recipients import address, completed, crowd, send
from tests.kit.smtp import SmtpServer


def test_a_row_that_cannot_be_written_harms_no_other(
    relayed: Relayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """Outcomes are written together; where one of them breaks a rule of the database the others are written alone."""
    count = 300
    server = relayed()
    api = server.client()
    group = crowd(api, count)
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.set_busy_timeout(5000)
    here.execute(
        f"CREATE TRIGGER poison BEFORE UPDATE OF status ON message WHEN new.status = 'sent' "
        f"AND new.recipient = '{address(150)}' BEGIN SELECT raise(ABORT, 'not this one'); END"
    ).fetchall()
    path = send(api, group)
    api.wait(path, lambda row: row["stats"]["sent"] == count - 1)
    smtp_server.wait_for(count)
    assert api.get(path).expect(200)["stats"]["pending"] == 1
    here.execute("DROP TRIGGER poison").fetchall()
    here.close()
    api = server.restart().client()
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books)

    assert (books.accepted, books.missing, books.copies) == (count, 0, 1)
    assert len(smtp_server.to(address(150))) == 2


def test_nobody_waits_behind_a_slow_greeting(relayed: Relayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """A message taken in hand for a connection that is slow to greet goes out by another one meanwhile."""
    smtp_server.rules.delay("connect", 40, times=1)
    api = relayed(connections="2").client()
    group = crowd(api, 40)
    begun = time.monotonic()
    path = send(api, group)
    smtp_server.wait_for(40, timeout=30)
    took = time.monotonic() - begun
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, all_had_it_after=f"{took:.1f} s")

    assert took < 40
    assert (books.accepted, books.copies, books.missing) == (40, 0, 0)
