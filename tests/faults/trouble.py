"""What the tests of storage in trouble share: how to ask, what must be refused, and how it recovers."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import apsw

from tests.kit.client import Client, Response
from tests.kit.recipients import crowd, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.uploads import upload

CONNECTIONS = 4
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


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


def recovered(server: Server, sink: SmtpServer, link: str, timeout: float = 60) -> float:
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


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold the write lock of a database as another program does."""
    here = apsw.Connection(str(database))
    here.set_busy_timeout(5000)
    here.execute("BEGIN EXCLUSIVE").fetchall()
    try:
        yield
    finally:
        here.execute("ROLLBACK").fetchall()
        here.close()
