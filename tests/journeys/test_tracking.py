"""Links that lead through us: never elsewhere, counted for people alone, never lost once answered."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.disk import unwritable
from tests.kit.readers import Mail, Reader, read
from tests.kit.recipients import UNLIMITED, completed, crowd, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

TARGETS = ["https://shop.example/one?a=1&b=2#top", "https://shop.example/two", "https://shop.example/three",
           "https://shop.example/four?utm_source=letter", "http://shop.example/five"]  # fmt: skip
BODY = "<p>Dear {{ first_name }}, " + " ".join(
    f'<a href="{one.replace("&", "&amp;")}">{number}</a>' for number, one in enumerate(TARGETS)
) + '<a href="mailto:ann@shop.example">write</a> <a href="tel:+441225000000">call</a></p>'  # fmt: skip


class Post:
    """A service whose mail arrives in this process, and its clock."""

    def __init__(self, server: Server, sink: SmtpServer, clock: TestClock) -> None:
        self.server, self.sink, self.clock = server, sink, clock
        self.api: Client = server.client()

    def mailed(self, name: str, people: int = 1) -> list[Mail]:
        """Send a campaign to a crowd, let a minute pass, and return the mails."""
        before = len(self.sink.messages)
        completed(self.api, send(self.api, crowd(self.api, people, name), body=BODY))
        self.clock.advance(60)
        return [read(one) for one in self.sink.messages[before:]]

    def settled(self) -> None:
        """Wait until all that was asked for is judged."""
        self.clock.advance(5)
        wait_until(lambda: not self.stored("SELECT 1 FROM hit WHERE verdict IS NULL LIMIT 1"))

    def stored(self, sql: str) -> list[tuple[Any, ...]]:
        """Read rows of the service's database."""
        with closing(apsw.Connection(str(self.server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)) as here:
            return here.execute(sql).fetchall()

    def counted(self, event: str, verdict: str) -> int:
        """Return how many events of a name have a verdict."""
        return sum(row["data"]["verdict"] == verdict for row in self.api.all("/events", event=event))


def wait_until(true: Callable[[], object], timeout: float = 30) -> None:
    """Wait for a condition."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, f"not so within {timeout} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Post]:
    """One for the tests of this module; it must end well."""
    clock = TestClock(Path(tmp_path_factory.mktemp("post")) / "clock")
    with SmtpServer() as sink, Server(relay=sink.port, clock=clock, env=UNLIMITED).set_up() as server:
        yield Post(server.give_address(), sink, clock)
        server.stop()


def test_links_lead_where_they_were_written_to(post: Post) -> None:
    """Whatever the query or a header says; mail and telephone stay; nothing tells the next site where somebody was."""
    (mail,) = post.mailed("Written")
    reader = Reader(post.server)
    assert len(mail.doors) == len(TARGETS) and "mailto:ann@shop.example" in mail.links
    assert "tel:+441225000000" in mail.links and any("/u/" in one for one in mail.links)
    evil = "https://evil.example/"
    for door, target in zip(mail.doors, TARGETS, strict=True):
        for more in ("", f"?url={evil}", "?u=//evil.example", f"?redirect={evil}&next={evil}", "?"):
            assert reader.follows(door + more) == target
        headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Referer": evil, "X-Original-Url": evil}
        for method in ("GET", "HEAD"):
            answer = reader.get(door, method, **headers)
            assert (answer.status, answer.headers["Location"]) == (302, target)
            assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["X-Robots-Tag"] == "noindex"
            assert answer.headers["Cache-Control"] == "no-store" and answer.body == b""
    assert [reader.get(mail.doors[0], method).status for method in ("POST", "PUT", "DELETE")] == [404] * 3


def test_what_is_not_ours_leads_nowhere(post: Post) -> None:
    """Every character changed, other numbers, other purposes, other doors: the friendly page, and no way on."""
    first, other = post.mailed("Guess", 2)
    reader = Reader(post.server)
    door = first.doors[0]
    token, number = door.removeprefix("/c/")[:19], door[-1]
    wrong = [f"/c/{token}", f"/c/{token}-", f"/c/{token}-0", f"/c/{token}-01", f"/c/{token}-99", f"/c/{token}-6",
             f"/c/{token}--1", f"/c/{token}-{number}x", f"/c/{token}-{'9' * 30}", f"/c/{token}-%31%00",
             f"/c/{token}-１", "/c/https://evil.example/", "/c/", f"/c/{token.upper()}-1", f"/o/{token}.gif",
             f"/u/{token}", f"/v/{token}", f"/c/{first.picture.removeprefix('/o/')[:19]}-1",
             f"/c/{other.doors[0].removeprefix('/c/')[:10]}{token[10:]}-1"]  # fmt: skip
    for place, sign in itertools.product(range(19), ("A", "b", "_", "=")):
        changed = token[:place] + (sign if sign != token[place] else "z") + token[place + 1 :]
        wrong.append(f"/c/{changed}-{number}")
    for path in wrong:
        answer = reader.get(path.replace("１", "%EF%BC%91"))
        assert answer.status in (404, 405) and answer.headers["Location"] is None, path
        assert "evil" not in answer.text
    page = reader.get(f"/c/{token}-99")
    assert "text/html" in page.headers["Content-Type"] and page.headers["X-Robots-Tag"] == "noindex"
    assert [reader.get(f"{first.picture}{tail}").status for tail in ("x", "/x", ".gif")] == [404] * 3


def test_scanners_are_told_from_people(post: Post, full: bool) -> None:
    """A scanner asks for every link of every mail, and some people read theirs: only people are counted."""
    mails = post.mailed("Scan", 500 if full else 24)
    people = mails[:: 10 if full else 8]
    before = {one: post.counted(one, "human") for one in ("email_opened", "email_clicked")}
    scanner = Reader(
        post.server, "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0 Safari/537.36"
    )
    for mail in mails:
        for door in mail.doors:
            assert scanner.get(door, "HEAD").status == 302
            scanner.follows(door)
    post.clock.advance(60)
    reader = Reader(post.server)
    for index, mail in enumerate(people):
        for _ in range(50 if index == 0 else 1):
            reader.opens(mail)
        reader.follows(mail.doors[index % 2])
    post.settled()
    for event in before:
        assert post.counted(event, "human") - before[event] == len(people)
    assert post.counted("email_clicked", "machine") >= len(mails) * len(TARGETS)
    campaign = post.api.get("/messages", to=mails[0].to).expect(200)[0]["campaign_id"]
    clicked = [row for row in post.api.all("/messages", campaign_id=campaign) if row["clicked_at"]]
    assert {row["to"] for row in clicked} == {mail.to for mail in people}
    asked = {"event": "email_clicked", "at_least": 1}
    for filters, count in (
        ([{"name": "campaign_clicked", "predicate": "eq", "value": campaign}], len(people)),
        ([{"name": "campaign_opened", "predicate": "eq", "value": campaign}], len(people)),
        ([{"name": "event", "predicate": "performed", "value": {**asked, "include_machine": True}},
          {"name": "campaign_sent", "predicate": "eq", "value": campaign}], len(mails)),
        ([{"name": "event", "predicate": "performed", "value": asked},
          {"name": "campaign_sent", "predicate": "eq", "value": campaign}], len(people)),
    ):  # fmt: skip
        assert post.api.post("/segments/count", {"filters": filters}).expect(200)["count"] == count, filters
    verified = post.api.get("/contacts", search=people[0].to).expect(200)[0]
    assert verified["verification_status"] == "verified"


def test_nothing_that_was_answered_is_lost(post: Post) -> None:
    """Killed while many follow links, it has every click whose answer somebody saw."""
    mails = post.mailed("Kill", 60)
    left, answered, lock = iter(mails), set[str](), threading.Lock()
    enough = threading.Event()

    def follow() -> None:
        reader = Reader(post.server)
        while True:
            with lock:
                mail = next(left, None)
            if mail is None:
                return
            try:
                reader.follows(mail.doors[0])
            except OSError:
                return
            with lock:
                answered.add(mail.to)
                if len(answered) >= 20:
                    enough.set()

    threads = [threading.Thread(target=follow) for _ in range(8)]
    for one in threads:
        one.start()
    assert enough.wait(30)
    post.server.kill()
    for one in threads:
        one.join(30)
    post.server.start()
    post.api = post.server.client()
    asked = "SELECT m.recipient FROM hit h JOIN message m ON m.id = h.message_id WHERE h.kind = 'click'"
    assert answered <= {row[0] for row in post.stored(asked)}
    post.settled()
    campaign = post.api.get("/messages", to=mails[0].to).expect(200)[0]["campaign_id"]
    assert answered <= {row["to"] for row in post.api.all("/messages", campaign_id=campaign) if row["clicked_at"]}


def test_nobody_waits_for_a_slow_disk(post: Post) -> None:
    """While nothing can be written the reader goes first, is counted once it can, and the log says so."""
    (mail,) = post.mailed("Slow")
    reader = Reader(post.server)
    held = apsw.Connection(str(post.server.data / "campanero.db"))
    held.execute("BEGIN IMMEDIATE")
    try:
        assert reader.follows(mail.doors[1]) == TARGETS[1]
        reader.opens(mail)
    finally:
        held.execute("ROLLBACK")
        held.close()
    number = post.api.get("/messages", to=mail.to).expect(200)[0]["id"]
    wait_until(lambda: len(post.stored(f"SELECT 1 FROM hit WHERE message_id = {number}")) == 2)
    post.settled()
    (row,) = post.api.get("/messages", to=mail.to).expect(200)
    assert row["clicked_at"] and row["opened_at"]
    assert post.server.wait_for_line(r"early_responses=(\d+)")[1] == "1"


def test_who_cannot_be_counted_is_sent_on(post: Post) -> None:
    """On a disk that takes nothing the links still lead on, and what was not kept is said."""
    (mail,) = post.mailed("Full")
    reader = Reader(post.server)
    with unwritable(post.server.process.pid):
        assert reader.follows(mail.doors[0]) == TARGETS[0]
        reader.opens(mail)
        post.server.wait_for_line(r"unrecorded=[1-9]")
    # Followed again and again, until there is room for it
    number = post.api.get("/messages", to=mail.to).expect(200)[0]["id"]
    wait_until(lambda: reader.follows(mail.doors[1]) and post.stored(f"SELECT 1 FROM hit WHERE message_id = {number}"))
