"""Tracking links: they redirect only where the author linked, count people only, and lose no answered click."""

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
from tests.kit.readers import Reader, ReceivedMail, parse_mail
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

TARGETS = ["https://shop.example/one?a=1&b=2#top", "https://shop.example/two", "https://shop.example/three",
           "https://shop.example/four?utm_source=letter", "http://shop.example/five"]  # fmt: skip
BODY = "<p>Dear {{ first_name }}, " + " ".join(
    f'<a href="{target.replace("&", "&amp;")}">{number}</a>' for number, target in enumerate(TARGETS)
) + '<a href="mailto:ann@shop.example">write</a> <a href="tel:+441225000000">call</a></p>'  # fmt: skip


class TrackingServer:
    """A service whose mail arrives in this process, and its clock."""

    def __init__(self, server: Server, sink: SmtpServer, clock: TestClock) -> None:
        self.server, self.sink, self.clock = server, sink, clock
        self.api: Client = server.client()

    def send_campaign(self, name: str, people: int = 1) -> list[ReceivedMail]:
        """Send a campaign to `people` contacts, advance the clock by a minute, and return the mails."""
        before = len(self.sink.messages)
        wait_until_completed(self.api, send_campaign(self.api, create_list(self.api, people, name), body=BODY))
        self.clock.advance(60)
        return [parse_mail(message) for message in self.sink.messages[before:]]

    def wait_until_judged(self) -> None:
        """Wait until all hits are judged."""
        self.clock.advance(5)
        wait_until(lambda: not self.query("SELECT 1 FROM hit WHERE verdict IS NULL LIMIT 1"))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query on the service's database."""
        with closing(
            apsw.Connection(str(self.server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
        ) as connection:
            return connection.execute(sql).fetchall()

    def event_count(self, event: str, verdict: str) -> int:
        """Return the number of events with a verdict."""
        return sum(row["data"]["verdict"] == verdict for row in self.api.all("/events", event=event))


def wait_until(condition: Callable[[], object], timeout: float = 30) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not so within {timeout} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    """A service for the tests of this module."""
    clock = TestClock(Path(tmp_path_factory.mktemp("post")) / "clock")
    with SmtpServer() as sink, Server(relay=sink.port, clock=clock, env=NO_RATE_LIMITS).set_up() as server:
        yield TrackingServer(server.set_postal_address(), sink, clock)
        server.stop()


def test_tracking_links_redirect_to_their_target(post: TrackingServer) -> None:
    """Query and headers do not change the target; mailto and tel links stay; the redirect sends no referrer."""
    (mail,) = post.send_campaign("Written")
    reader = Reader(post.server)
    assert len(mail.tracked_paths) == len(TARGETS) and "mailto:ann@shop.example" in mail.links
    assert "tel:+441225000000" in mail.links and any("/u/" in link for link in mail.links)
    hostile_url = "https://evil.example/"
    for door, target in zip(mail.tracked_paths, TARGETS, strict=True):
        for suffix in (
            "",
            f"?url={hostile_url}",
            "?u=//evil.example",
            f"?redirect={hostile_url}&next={hostile_url}",
            "?",
        ):
            assert reader.follow(door + suffix) == target
        headers = {
            "Host": "evil.example",
            "X-Forwarded-Host": "evil.example",
            "Referer": hostile_url,
            "X-Original-Url": hostile_url,
        }
        for method in ("GET", "HEAD"):
            response = reader.get(door, method, **headers)
            assert (response.status, response.headers["Location"]) == (302, target)
            assert (
                response.headers["Referrer-Policy"] == "no-referrer" and response.headers["X-Robots-Tag"] == "noindex"
            )
            assert response.headers["Cache-Control"] == "no-store" and response.body == b""
    assert [reader.get(mail.tracked_paths[0], method).status for method in ("POST", "PUT", "DELETE")] == [404] * 3


def test_forged_tracking_links_return_404(post: TrackingServer) -> None:
    """Changed tokens, other numbers and tokens of other purposes return 404 without a redirect."""
    first, other = post.send_campaign("Guess", 2)
    reader = Reader(post.server)
    door = first.tracked_paths[0]
    token, number = door.removeprefix("/c/")[:19], door[-1]
    wrong = [f"/c/{token}", f"/c/{token}-", f"/c/{token}-0", f"/c/{token}-01", f"/c/{token}-99", f"/c/{token}-6",
             f"/c/{token}--1", f"/c/{token}-{number}x", f"/c/{token}-{'9' * 30}", f"/c/{token}-%31%00",
             f"/c/{token}-１", "/c/https://evil.example/", "/c/", f"/c/{token.upper()}-1", f"/o/{token}.gif",
             f"/u/{token}", f"/v/{token}", f"/c/{first.pixel_path.removeprefix('/o/')[:19]}-1",
             f"/c/{other.tracked_paths[0].removeprefix('/c/')[:10]}{token[10:]}-1"]  # fmt: skip
    for position, character in itertools.product(range(19), ("A", "b", "_", "=")):
        changed = token[:position] + (character if character != token[position] else "z") + token[position + 1 :]
        wrong.append(f"/c/{changed}-{number}")
    for path in wrong:
        response = reader.get(path.replace("１", "%EF%BC%91"))
        assert response.status in (404, 405) and response.headers["Location"] is None, path
        assert "evil" not in response.text
    page = reader.get(f"/c/{token}-99")
    assert "text/html" in page.headers["Content-Type"] and page.headers["X-Robots-Tag"] == "noindex"
    assert [reader.get(f"{first.pixel_path}{tail}").status for tail in ("x", "/x", ".gif")] == [404] * 3


def test_scanner_clicks_are_not_counted(post: TrackingServer, full: bool) -> None:
    """Of a scanner that requests every link and some people that click, only people are counted."""
    mails = post.send_campaign("Scan", 500 if full else 24)
    people = mails[:: 10 if full else 8]
    before = {event_name: post.event_count(event_name, "human") for event_name in ("email_opened", "email_clicked")}
    scanner = Reader(
        post.server, "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0 Safari/537.36"
    )
    for mail in mails:
        for door in mail.tracked_paths:
            assert scanner.get(door, "HEAD").status == 302
            scanner.follow(door)
    post.clock.advance(60)
    reader = Reader(post.server)
    for index, mail in enumerate(people):
        for _ in range(50 if index == 0 else 1):
            reader.open(mail)
        reader.follow(mail.tracked_paths[index % 2])
    post.wait_until_judged()
    for event in before:
        assert post.event_count(event, "human") - before[event] == len(people)
    assert post.event_count("email_clicked", "machine") >= len(mails) * len(TARGETS)
    campaign = post.api.get("/messages", to=mails[0].to).expect(200)[0]["campaign_id"]
    clicked = [row for row in post.api.all("/messages", campaign_id=campaign) if row["clicked_at"]]
    assert {row["to"] for row in clicked} == {mail.to for mail in people}
    filter_value = {"event": "email_clicked", "at_least": 1}
    for filters, count in (
        ([{"name": "campaign_clicked", "predicate": "eq", "value": campaign}], len(people)),
        ([{"name": "campaign_opened", "predicate": "eq", "value": campaign}], len(people)),
        ([{"name": "event", "predicate": "performed", "value": {**filter_value, "include_machine": True}},
          {"name": "campaign_sent", "predicate": "eq", "value": campaign}], len(mails)),
        ([{"name": "event", "predicate": "performed", "value": filter_value},
          {"name": "campaign_sent", "predicate": "eq", "value": campaign}], len(people)),
    ):  # fmt: skip
        assert post.api.post("/segments/count", {"filters": filters}).expect(200)["count"] == count, filters
    verified = post.api.get("/contacts", search=people[0].to).expect(200)[0]
    assert verified["verification_status"] == "verified"


def test_answered_clicks_survive_a_kill(post: TrackingServer) -> None:
    """After a kill each click whose redirect was received is recorded."""
    mails = post.send_campaign("Kill", 60)
    remaining, answered, lock = iter(mails), set[str](), threading.Lock()
    enough = threading.Event()

    def follow() -> None:
        reader = Reader(post.server)
        while True:
            with lock:
                mail = next(remaining, None)
            if mail is None:
                return
            try:
                reader.follow(mail.tracked_paths[0])
            except OSError:
                return
            with lock:
                answered.add(mail.to)
                if len(answered) >= 20:
                    enough.set()

    threads = [threading.Thread(target=follow) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert enough.wait(30)
    post.server.kill()
    for thread in threads:
        thread.join(30)
    post.server.start()
    post.api = post.server.client()
    sql = "SELECT m.recipient FROM hit h JOIN message m ON m.id = h.message_id WHERE h.kind = 'click'"
    assert answered <= {row[0] for row in post.query(sql)}
    post.wait_until_judged()
    campaign = post.api.get("/messages", to=mails[0].to).expect(200)[0]["campaign_id"]
    assert answered <= {row["to"] for row in post.api.all("/messages", campaign_id=campaign) if row["clicked_at"]}


def test_redirects_do_not_wait_for_a_locked_database(post: TrackingServer) -> None:
    """While the database is locked links redirect at once; the hits are recorded later, and the log says so."""
    (mail,) = post.send_campaign("Slow")
    reader = Reader(post.server)
    connection = apsw.Connection(str(post.server.data / "campanero.db"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        assert reader.follow(mail.tracked_paths[1]) == TARGETS[1]
        reader.open(mail)
    finally:
        connection.execute("ROLLBACK")
        connection.close()
    message_id = post.api.get("/messages", to=mail.to).expect(200)[0]["id"]
    wait_until(lambda: len(post.query(f"SELECT 1 FROM hit WHERE message_id = {message_id}")) == 2)
    post.wait_until_judged()
    (row,) = post.api.get("/messages", to=mail.to).expect(200)
    assert row["clicked_at"] and row["opened_at"]
    assert post.server.wait_for_line(r"early_responses=(\d+)")[1] == "1"


def test_redirects_work_on_an_unwritable_disk(post: TrackingServer) -> None:
    """While nothing can be written links redirect, and the log has the number of unrecorded hits."""
    (mail,) = post.send_campaign("Full")
    reader = Reader(post.server)
    with unwritable(post.server.process.pid):
        assert reader.follow(mail.tracked_paths[0]) == TARGETS[0]
        reader.open(mail)
        post.server.wait_for_line(r"unrecorded=[1-9]")
    # Repeated until the hit can be recorded
    message_id = post.api.get("/messages", to=mail.to).expect(200)[0]["id"]
    wait_until(
        lambda: (
            reader.follow(mail.tracked_paths[1]) and post.query(f"SELECT 1 FROM hit WHERE message_id = {message_id}")
        )
    )
