"""Helpers of the storage tests: opting out, checking that writes fail, and waiting for recovery."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import apsw

from tests.kit.client import Client, Response
from tests.kit.recipients import create_list, send_campaign
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.uploads import upload

CONNECTIONS = 4
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def one_click(api: Client, link: str) -> Response:
    """Opt out like a mailbox provider does."""
    return api.request("POST", urlsplit(link).path, b"List-Unsubscribe=One-Click", FORM)


def check_writes_fail(server: Server, path: str, link: str) -> None:
    """Check that writes return 503 and that reads still work."""
    api = server.client(validate=False)
    for response in (
        api.post("/contacts", {"email": "late@crowd.example"}),
        api.post("/messages", {"to": "late@crowd.example", "subject": "s", "body": "b"}),
        api.get("/healthz"),
    ):
        assert (response.status, response.json["code"]) == (503, "storage_unavailable"), response.text
        assert int(response.headers["Retry-After"]) > 0
    import_response = upload(api, "email\nlate@crowd.example\n")
    assert (import_response.status, import_response.json["code"]) == (503, "storage_unavailable")
    opt_out = one_click(api, link)
    assert opt_out.status == 503 and int(opt_out.headers["Retry-After"]) > 0
    assert api.request("GET", urlsplit(link).path).status == 200
    assert api.get(path).expect(200)["status"] == "active"
    assert len(api.get("/contacts", limit=5).expect(200)) == 5


def count_late_messages(sink: SmtpServer, seconds: float = 2.0) -> int:
    """Return how many messages arrive within `seconds`, and check that none arrives in the second after."""
    before = len(sink.messages)
    time.sleep(seconds)
    after = len(sink.messages)
    time.sleep(1.0)
    assert len(sink.messages) == after, "messages leave though their outcomes cannot be written"
    return after - before


def wait_for_recovery(server: Server, sink: SmtpServer, link: str, timeout: float = 60) -> float:
    """Accept mail without delay, wait until an opt-out succeeds, and return the seconds until then."""
    started = time.monotonic()
    api = server.client(validate=False)
    sink.rules.clear()
    while one_click(api, link).status != 200:
        assert time.monotonic() - started < timeout, server.output
        time.sleep(0.1)
    assert api.get("/healthz").status == 200
    return time.monotonic() - started


def unsubscribe_link(sink: SmtpServer) -> str:
    """Return the unsubscribe link of the first message."""
    match = re.search("<(.+)>", sink.messages[0].header("List-Unsubscribe") or "")
    assert match
    return match[1]


def start_sending(server: Server, sink: SmtpServer, count: int, at: int) -> str:
    """Send a campaign, wait until `at` messages have arrived, and return the path of the campaign."""
    sink.rules.delay("body", 0.02)
    path = send_campaign(server.client(validate=False), create_list(server.client(validate=False), count))
    sink.wait_for(at)
    return path


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold the write lock of a database like another program would."""
    connection = apsw.Connection(str(database))
    connection.set_busy_timeout(5000)
    connection.execute("BEGIN EXCLUSIVE").fetchall()
    try:
        yield
    finally:
        connection.execute("ROLLBACK").fetchall()
        connection.close()
