"""The bell is emptied in the middle, again and again; it carries no work, so none is lost."""

import os
import signal
import time

from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.kit.books import balance
from tests.kit.recipients import UNLIMITED, address, completed, crowd, draft, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


def toggle(server: Server, word: str) -> None:
    """Begin or end the emptying, and wait until it is so."""
    os.kill(server.pid, signal.SIGUSR1)
    server.wait_for_line(f"the bell is {word}")


def test_an_emptied_bell_loses_nothing(fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures) -> None:
    """Sent, single, temporarily refused and scheduled mail goes out once, though nearly every ring is lost."""
    smtp_server.rules.refuse("rcpt", address(3), code=450, times=1)
    server = fresh_server(relay=smtp_server.port, env=UNLIMITED, module="tests.kit.emptied_bell")
    api = server.client()
    group = crowd(api, 300)
    later = draft(api, group, subject="Later")
    toggle(server, "emptied")
    path = send(api, group, subject="Now")
    due = time.time() + 5
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due))
    api.patch(later, {"scheduled_at": when}).expect(200)
    api.post(f"{later}/send").expect(200)
    letter = {"to": "single@example.org", "subject": "Single", "body": "b", "from_email": "ana@bakery.example"}
    single = api.post("/messages", letter).expect(201)["id"]
    time.sleep(max(0.0, due - time.time()) + 1)
    toggle(server, "left alone")
    api.wait(f"/messages/{single}", lambda row: row["status"] == "sent")
    for one, subject in ((path, "Now"), (later, "Later")):
        completed(api, one)
        books = balance(api, one, (message for message in smtp_server.messages if message.subject == subject))
        figures.books(books)
        assert (books.accepted, books.copies, books.missing) == (300, 0, 0)


def test_a_bell_that_is_emptied_for_good_still_sends(
    fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures
) -> None:
    """Killed while the bell is empty, the next process finds all that is due without anybody ringing."""
    smtp_server.rules.delay("body", 0.01)
    server = fresh_server(relay=smtp_server.port, env=UNLIMITED, module="tests.kit.emptied_bell")
    api = server.client()
    path = send(api, crowd(api, 300))
    smtp_server.wait_for(50)
    toggle(server, "emptied")
    server.kill()
    api = server.start().client()
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, kills=1)

    assert (books.accepted, books.missing) == (300, 0) and books.copies <= 4
